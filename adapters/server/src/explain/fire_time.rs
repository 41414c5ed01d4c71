//! Why a task did, or did not, fire at a time.

use punctual_core::cron::{LeftOut, Mark, Schedule, Series};
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::ids::{InstanceId, TaskId, Version};
use punctual_core::instance::{Origin, State};
use punctual_core::misfire;
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::time::{Millis, Timestamp};

use super::{between, plural};
use crate::cli::ask::lasted;

/// How far a fire time before is looked for.
const BEFORE_MAX: Millis = Millis::from_secs(5 * 366 * 86_400);
/// Later than this a fire time that nothing is on record of has not only just come.
const DECIDED_WITHIN: Millis = Millis::from_secs(60);

/// An instance whose fire time it was.
#[derive(Clone, Debug)]
pub(crate) struct Firing {
    pub(crate) id: InstanceId,
    pub(crate) origin: Origin,
    pub(crate) state: State,
    pub(crate) run: u32,
    pub(crate) fire_time: Timestamp,
    pub(crate) created_at: Timestamp,
}

/// What is known of a task and of a time. The time is a stretch, a second where it was asked for to the second.
pub(crate) struct Facts<'a> {
    pub(crate) task: TaskId,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) now: Timestamp,
    /// When its first version was made.
    pub(crate) made_at: Timestamp,
    /// The version that was in force, and since when; `None`: there was none yet.
    pub(crate) version: Option<(Version, Timestamp)>,
    /// Whether the task was removed then.
    pub(crate) was_removed: bool,
    /// By that version; `None` where it was removed, or this program can't read it.
    pub(crate) definition: Option<&'a TaskDefinition>,
    /// Instances with a fire time in the stretch, newest run first.
    pub(crate) firings: &'a [Firing],
    /// What is on record of fire times around the stretch.
    pub(crate) occurrences: &'a [Occurrence],
    /// Whether that version is in force now.
    pub(crate) is_in_force: bool,
    /// Where its owner has come to, if the version is in force now.
    pub(crate) cursor: Option<Timestamp>,
    /// The pauses that hold the task now, in words.
    pub(crate) pauses: &'a [String],
    /// The last firing before the stretch.
    pub(crate) before: Option<&'a Firing>,
}

/// What is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// In a word, for programs.
    pub(crate) verdict: Verdict,
    /// For people.
    pub(crate) says: Vec<String>,
    /// The fire time in the stretch, where there is one by the version that was in force.
    pub(crate) fire_time: Option<Timestamp>,
    /// The fire times around the stretch.
    pub(crate) before: Option<Timestamp>,
    pub(crate) after: Option<Timestamp>,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Fired,
    BeforeTheTask,
    Removed,
    NotOnRecord(Outcome),
    Unreadable,
    Disabled,
    ByHandOnly,
    NotATime,
    OutsideWindow,
    LeftOut(LeftOut),
    Ahead,
    Paused,
    JustDue,
    Forgotten,
}

impl Verdict {
    /// For programs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Verdict::Fired => "fired",
            Verdict::BeforeTheTask => "before_the_task",
            Verdict::Removed => "removed",
            Verdict::NotOnRecord(outcome) => outcome.name(),
            Verdict::Unreadable => "unreadable",
            Verdict::Disabled => "disabled",
            Verdict::ByHandOnly => "by_hand_only",
            Verdict::NotATime => "not_a_fire_time",
            Verdict::OutsideWindow => "outside_window",
            Verdict::LeftOut(LeftOut::ExcludedDay) => "excluded_day",
            Verdict::LeftOut(LeftOut::BlackedOut) => "blacked_out",
            Verdict::Ahead => "ahead",
            Verdict::Paused => "paused",
            Verdict::JustDue => "just_due",
            Verdict::Forgotten => "nothing_on_record",
        }
    }
}

/// Explains a time of a task.
pub(crate) fn explain(facts: &Facts<'_>) -> Explanation {
    let trigger = facts.definition.map(|definition| &definition.trigger);
    let (before, after) = trigger.map_or((None, None), |trigger| around(facts, trigger));
    let fire_time = trigger.and_then(|trigger| fire_time(facts, trigger));
    let (verdict, mut says) = decide(facts, fire_time);
    let fire_time = fire_time.or_else(|| on_record(facts, None).and_then(|(_, at)| at));
    let nearest = matches!(verdict, Verdict::NotATime | Verdict::LeftOut(_) | Verdict::OutsideWindow);
    if nearest {
        match (before, after) {
            (Some(before), Some(after)) => says.push(format!("The fire times around it are {before} and {after}.")),
            (Some(before), None) => says.push(format!("The last fire time before it is {before}; there is none after it.")),
            (None, Some(after)) => says.push(format!("The next fire time after it is {after}.")),
            (None, None) => {}
        }
        if let Some(schedule) = trigger.and_then(schedule) {
            let marked =
                [before, after].into_iter().flatten().filter_map(|at| schedule.explain(Timestamp(at.0.saturating_sub(1)), 1).pop());
            says.extend(
                marked
                    .filter(|fire| fire.mark != Mark::Normal)
                    .map(|fire| format!("{} is {} ({}): the clock is moved that day.", fire.at, local(fire.at, schedule), fire.mark)),
            );
        }
    }
    Explanation { verdict, says, fire_time, before, after }
}

fn decide(facts: &Facts<'_>, fire_time: Option<Timestamp>) -> (Verdict, Vec<String>) {
    if !facts.firings.is_empty() {
        return (Verdict::Fired, facts.firings.iter().map(fired).collect());
    }
    let Some((version, since)) = facts.version else {
        let says = format!("There was no such task yet: it was made at {}, {} later.", facts.made_at, between(facts.until, facts.made_at));
        return (Verdict::BeforeTheTask, vec![says]);
    };
    if facts.was_removed {
        return (Verdict::Removed, vec![format!("The task was removed then, since {since} (version {}).", version.0)]);
    }
    if let Some((occurrence, at)) = on_record(facts, fire_time) {
        return (Verdict::NotOnRecord(occurrence.outcome), recorded(facts, occurrence, at));
    }
    if let Some(at) = fire_time.filter(|at| *at <= facts.made_at) {
        let says = format!("There was no such task at {at} yet: it was made at {}, {} later.", facts.made_at, between(at, facts.made_at));
        return (Verdict::BeforeTheTask, vec![says]);
    }
    let Some(definition) = facts.definition else {
        let says = format!("Version {} was in force then, and this program can't read it; nothing is on record of that time.", version.0);
        return (Verdict::Unreadable, vec![says]);
    };
    let by = format!("version {}, in force since {since}", version.0);
    match &definition.trigger {
        Trigger::Manual => {
            let chained = definition.chains.as_ref().map(|chains| {
                let after: Vec<_> = chains.iter().map(|chain| format!("{:?}", chain.task)).collect();
                format!("; it fires after {}", after.join(", "))
            });
            let says = format!("The task has no times of its own by {by}: it fires by hand{}.", chained.unwrap_or_default());
            return (Verdict::ByHandOnly, vec![says, "Nobody triggered it then, and nothing that it fires after ended then.".to_owned()]);
        }
        trigger if !definition.enabled && schedule(trigger).is_none() => {
            // Without a cursor nobody knows what its times would be.
            return (Verdict::Disabled, vec![disabled(&by)]);
        }
        Trigger::Delay { delay } if fire_time.is_none() => {
            let says =
                format!("The task fires {} after it was made and after each trigger, by {by}; nothing came of that then.", lasted(delay.0));
            return (Verdict::NotATime, vec![says]);
        }
        _ => {}
    }
    if let Some(interval) = definition.trigger.fixed_delay()
        && fire_time.is_none()
    {
        let mut says =
            vec![format!("The task fires {} after its last instance has ended, by {by}; that was not so then.", lasted(interval.0))];
        says.extend(facts.before.map(|before| format!("The last one before was instance {}, of {}.", before.id, before.fire_time)));
        return (Verdict::NotATime, says);
    }
    let Some(fire_time) = fire_time else { return not_a_time(definition, &by, facts) };
    if let Trigger::Timetable(timetable) = &definition.trigger
        && let Some(reason) = timetable.left_out(fire_time)
    {
        let why = match reason {
            LeftOut::ExcludedDay => "its calendar excludes the day (`trigger.calendar`)",
            LeftOut::BlackedOut => "it lies in a blackout (`trigger.blackouts`)",
        };
        let tense = if fire_time > facts.now { "is left out" } else { "was left out" };
        return (
            Verdict::LeftOut(reason),
            vec![format!("{} is a time of its trigger by {by}, and {tense}: {why}.", told(fire_time, definition))],
        );
    }
    if !definition.enabled {
        return (Verdict::Disabled, vec![disabled(&by)]);
    }
    if fire_time > facts.now {
        let mut says =
            vec![format!("That is still ahead: it fires at {}, in {}.", told(fire_time, definition), between(facts.now, fire_time))];
        says.extend(facts.pauses.iter().map(|pause| format!("Unless the pause still holds it then: {pause}.")));
        return (Verdict::Ahead, says);
    }
    undecided(facts, definition, fire_time, &by)
}

fn disabled(by: &str) -> String {
    format!("The task was disabled (`enabled: false`) by {by}: it fires by hand only.")
}

/// A fire time that has come, and that nothing is on record of.
fn undecided(facts: &Facts<'_>, definition: &TaskDefinition, fire_time: Timestamp, by: &str) -> (Verdict, Vec<String>) {
    let late = between(fire_time, facts.now);
    let is_before_cursor = facts.cursor.is_some_and(|cursor| fire_time < cursor);
    if !facts.pauses.is_empty() && !is_before_cursor {
        let mut says = vec![format!(
            "{} came while the task was held, and passes by: it is put on record when the pause ends.",
            told(fire_time, definition)
        )];
        says.extend(facts.pauses.iter().map(|pause| format!("The pause: {pause}.")));
        return (Verdict::Paused, says);
    }
    if let Trigger::Timetable(timetable) = &definition.trigger {
        let start = timetable.start_of(facts.task, fire_time);
        if start > facts.now {
            let says = format!(
                "It fires with start jitter: {} starts at {start}, in {} (`trigger.jitter`).",
                told(fire_time, definition),
                between(facts.now, start)
            );
            return (Verdict::JustDue, vec![says]);
        }
    }
    if facts.cursor.is_some_and(|cursor| cursor <= fire_time) {
        let mut says = vec![format!("{} came {late} ago, and its owner has not come to it yet.", told(fire_time, definition))];
        if facts.now.since(fire_time) > DECIDED_WITHIN {
            says.push(
                "Nobody fires it: no replica runs, or none owns its partition. `punctual status` and `punctual doctor` say more."
                    .to_owned(),
            );
        }
        return (Verdict::JustDue, says);
    }
    let says = format!(
        "{} was a fire time by {by}, and nothing is on record of it: neither an instance nor why not.",
        told(fire_time, definition)
    );
    let why = "History as old as that may have been dropped (`--keep-months`); or the task's trigger was edited around that time.";
    (Verdict::Forgotten, vec![says, why.to_owned()])
}

fn not_a_time(definition: &TaskDefinition, by: &str, facts: &Facts<'_>) -> (Verdict, Vec<String>) {
    if let Trigger::Timetable(timetable) = &definition.trigger {
        let window = timetable.window();
        if let Some(starts_at) = window.starts_at.filter(|starts_at| facts.until <= *starts_at) {
            return (Verdict::OutsideWindow, vec![format!("The task fires from {starts_at} on, by {by} (`trigger.starts_at`).")]);
        }
        if let Some(ends_at) = window.ends_at.filter(|ends_at| facts.from >= *ends_at) {
            return (Verdict::OutsideWindow, vec![format!("The task fires until {ends_at}, by {by} (`trigger.ends_at`).")]);
        }
    }
    let mut says = match schedule(&definition.trigger) {
        Some(schedule) => {
            let local = local(facts.from, schedule);
            format!("The task was not due then: {local} is no time of its trigger, {}, by {by}.", schedule.expression().describe())
        }
        None if facts.cursor.is_none() && rate(&definition.trigger).is_some() => {
            let interval = rate(&definition.trigger).unwrap_or(Millis::ZERO);
            let (fires, from) = match facts.is_in_force {
                true => ("fires", "it has no fire time ahead now that others could be counted from"),
                false => ("fired", "where it counted from is not kept of versions that are no longer in force"),
            };
            format!("The task {fires} every {} by {by}; {from}. Nothing is on record of that time.", lasted(interval.0))
        }
        None => format!("The task was not due then, by {by}."),
    };
    if !definition.enabled {
        says += " It was disabled, too.";
    }
    (Verdict::NotATime, vec![says])
}

/// The cron schedule of a trigger that has one.
pub(crate) fn schedule(trigger: &Trigger) -> Option<&Schedule> {
    match trigger {
        Trigger::Cron(schedule) => Some(schedule),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(schedule) => Some(schedule),
            Series::FixedRate(_) | Series::FixedDelay(_) => None,
        },
        _ => None,
    }
}

/// What the clock on the wall says where the schedule is from.
fn local(at: Timestamp, schedule: &Schedule) -> String {
    let zone = schedule.zone();
    let name = zone.iana_name().unwrap_or("its own zone");
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(at) => format!("{} in {name}", jiff::ZonedDateTime::new(at, zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S")),
        Err(_) => at.to_string(),
    }
}

/// A fire time, with what the clock on the wall says of it in the task's zone.
fn told(at: Timestamp, definition: &TaskDefinition) -> String {
    schedule(&definition.trigger).map_or_else(|| at.to_string(), |schedule| format!("{at} ({})", local(at, schedule)))
}

fn fired(firing: &Firing) -> String {
    let Firing { id, origin, state, run, fire_time, created_at } = firing;
    let how = match origin {
        Origin::Schedule => "it fired by its trigger",
        Origin::CatchUp => "it was missed, and was made up for",
        Origin::Manual => "it was triggered by hand",
        Origin::Chain => "it fired after another task",
        Origin::Rerun => "it was run once more",
        Origin::Backfill => "it was made up for by a backfill",
        Origin::Call => "a node of another task's run called it",
    };
    let late = match origin {
        Origin::Schedule | Origin::CatchUp | Origin::Backfill => format!(", {} later", between(*fire_time, *created_at)),
        Origin::Manual | Origin::Chain | Origin::Rerun | Origin::Call => format!(" at {created_at}"),
    };
    format!("{fire_time}: {how}{late}, as instance {id} (run {run}), which is {}.", state.name().replace('_', " "))
}

/// What is on record of the fire time: of several runs around it the one that speaks of it, and which of its fire times that is, as far as
/// that can be told.
fn on_record<'a>(facts: &Facts<'a>, fire_time: Option<Timestamp>) -> Option<(&'a Occurrence, Option<Timestamp>)> {
    let around = facts.occurrences.iter().filter(|occurrence| occurrence.first < facts.until && occurrence.last >= facts.from);
    let speaking = around.filter_map(|occurrence| {
        let at = own_time(facts, occurrence, fire_time);
        // Without the trigger it can't be told which they are.
        let may_be = facts.definition.is_none() && occurrence.count > 2;
        (at.is_some() || may_be).then_some((occurrence, at))
    });
    speaking.min_by_key(|(occurrence, _)| (occurrence.last.since(occurrence.first), std::cmp::Reverse(occurrence.at)))
}

/// The fire time of a run on record that lies in the stretch. What lies between the run's first and last and is none of its own has another
/// fate, or is no fire time.
fn own_time(facts: &Facts<'_>, occurrence: &Occurrence, fire_time: Option<Timestamp>) -> Option<Timestamp> {
    let is_asked = |at: &Timestamp| (facts.from..facts.until).contains(at);
    if let Some(at) = [occurrence.first, occurrence.last].into_iter().find(is_asked) {
        return Some(at);
    }
    if occurrence.count <= 2 {
        return None;
    }
    let trigger = &facts.definition?.trigger;
    let at = match rate(trigger) {
        Some(interval) => of_grid(occurrence, interval, facts.from)?,
        None => fire_time?,
    };
    let left_out = match trigger {
        Trigger::Timetable(timetable) => timetable.left_out(at),
        _ => None,
    };
    let of_run = match occurrence.outcome {
        Outcome::ExcludedDay => Some(LeftOut::ExcludedDay),
        Outcome::BlackedOut => Some(LeftOut::BlackedOut),
        _ => None,
    };
    (is_asked(&at) && occurrence.first < at && at < occurrence.last && left_out == of_run).then_some(at)
}

/// The first fire time of a fixed rate's run from an instant on; `None` where the run was counted by another interval.
fn of_grid(occurrence: &Occurrence, interval: Millis, from: Timestamp) -> Option<Timestamp> {
    let interval = interval.0.max(1);
    let length = occurrence.last.since(occurrence.first).0;
    let steps = from.since(occurrence.first).0.div_ceil(interval);
    length.is_multiple_of(interval).then(|| occurrence.first.saturating_add(Millis(steps.saturating_mul(interval))))
}

/// What the record says. Every outcome has its words.
fn recorded(facts: &Facts<'_>, occurrence: &Occurrence, at: Option<Timestamp>) -> Vec<String> {
    let policies = facts.definition.map(|definition| &definition.policies);
    let told = match (at, facts.definition) {
        (Some(at), Some(definition)) => told(at, definition),
        (Some(at), None) => at.to_string(),
        (None, _) => format!("Any of the {} fire times from {} to {}", occurrence.count, occurrence.first, occurrence.last),
    };
    let why = match occurrence.outcome {
        Outcome::Coalesced => {
            let by = occurrence
                .instance
                .map_or_else(|| "one later instance".to_owned(), |id| format!("instance {id}, which stands for all that were missed"));
            format!("{told} was missed, and made up for by {by} (`misfire: fire_once`).")
        }
        Outcome::MisfireSkipped => format!("{told} was missed, and skipped: the task says so (`misfire: skip`)."),
        Outcome::DeadlinePassed => {
            let deadline = policies.and_then(|policies| policies.misfire.deadline);
            let deadline = deadline.map(|deadline| format!(" of {}", lasted(deadline.0))).unwrap_or_default();
            format!("{told} was missed by more than the deadline{deadline}, and skipped (`misfire.deadline`).")
        }
        Outcome::CatchUpLimit => {
            format!("{told} was missed, with more others than are made up for (`misfire.limit`): the latest ones were, this was not.")
        }
        Outcome::LimitReached => {
            let most = policies.map(|policies| format!(" of {} at once", policies.concurrency.max_running)).unwrap_or_default();
            format!("{told} was discarded: the task was at its limit{most} (`concurrency.max_running`, `when_full: discard`).")
        }
        Outcome::QueueFull => format!("{told} was discarded: the task was at its limit, and its queue was full (`concurrency.max_queue`)."),
        Outcome::Disabled => format!("{told} passed while the task was disabled (`enabled: false`)."),
        Outcome::Withdrawn if occurrence.version == Version(0) => {
            format!("{told}: a trigger by hand came to nothing: there was no such task, or no such node, any more.")
        }
        Outcome::Withdrawn => {
            format!("{told} had come and was not fired yet when the task was edited or removed, and was given up with that.")
        }
        Outcome::ChainTooLong => format!(
            "{told}: another task had ended, and this one was not fired for it, because too many tasks had fired one another before."
        ),
        Outcome::BlackedOut => format!("{told} was left out: it lies in a blackout (`trigger.blackouts`)."),
        Outcome::ExcludedDay => format!("{told} was left out: its calendar excludes the day (`trigger.calendar`)."),
        Outcome::Paused => format!("{told} passed while the task was paused. Nothing is made up for after a pause."),
    };
    let mut says = vec![why];
    if matches!(occurrence.outcome, Outcome::Coalesced | Outcome::MisfireSkipped | Outcome::DeadlinePassed | Outcome::CatchUpLimit) {
        says.push(format!("It counts as missed because nobody could fire it for more than 5 s: no scheduler ran, or none owned the task's partition. That was decided at {}.", occurrence.at));
    } else {
        says.push(format!("That was decided at {}.", occurrence.at));
    }
    if occurrence.count > 1 && at.is_some() {
        let others = plural(occurrence.count - 1, "other fire time", "other fire times");
        says.push(format!("It shares that with {others}, from {} to {}.", occurrence.first, occurrence.last));
    }
    says
}

/// The fire time in the stretch by the version that was in force, left out or not.
fn fire_time(facts: &Facts<'_>, trigger: &Trigger) -> Option<Timestamp> {
    let just_before = Timestamp(facts.from.0.saturating_sub(1));
    let found = match trigger {
        Trigger::Cron(schedule) => schedule.next_after(just_before),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(_) => timetable.next_nominal_after(just_before),
            Series::FixedRate(_) => of_rate(facts, trigger),
            Series::FixedDelay(_) => None,
        },
        Trigger::FixedRate { .. } => of_rate(facts, trigger),
        _ => None,
    };
    // One that nobody can count is where its owner says.
    let found = found.or_else(|| facts.cursor.filter(|cursor| is_delayed(trigger) && *cursor >= facts.from));
    found.filter(|at| *at < facts.until)
}

/// The first fire time of a fixed rate in the stretch or after it, counted from where its owner is.
fn of_rate(facts: &Facts<'_>, trigger: &Trigger) -> Option<Timestamp> {
    let interval = i64::try_from(rate(trigger)?.0.max(1)).ok()?;
    let cursor = facts.cursor?;
    let steps = facts.from.0.saturating_sub(cursor.0);
    let first = cursor
        .0
        .checked_add(steps.div_euclid(interval).saturating_add(i64::from(steps.rem_euclid(interval) > 0)).checked_mul(interval)?)?;
    let starts_at = match trigger {
        Trigger::Timetable(timetable) => timetable.window().starts_at,
        _ => None,
    };
    Some(Timestamp(first)).filter(|at| *at >= facts.made_at && starts_at.is_none_or(|starts_at| *at >= starts_at))
}

/// Whether its fire times follow from what happens.
fn is_delayed(trigger: &Trigger) -> bool {
    matches!(trigger, Trigger::Delay { .. }) || trigger.fixed_delay().is_some()
}

fn rate(trigger: &Trigger) -> Option<Millis> {
    match trigger {
        Trigger::FixedRate { interval } => Some(*interval),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::FixedRate(interval) => Some(*interval),
            Series::Cron(_) | Series::FixedDelay(_) => None,
        },
        _ => None,
    }
}

/// The fire times before and after the stretch that are fired: by the version that was in force, and none from before that.
fn around(facts: &Facts<'_>, trigger: &Trigger) -> (Option<Timestamp>, Option<Timestamp>) {
    let (before, after) = around_at_all(facts, trigger);
    let since = facts.version.map_or(facts.made_at, |(_, since)| since);
    (before.filter(|before| *before > since), after.filter(|after| *after > since))
}

fn around_at_all(facts: &Facts<'_>, trigger: &Trigger) -> (Option<Timestamp>, Option<Timestamp>) {
    let last = Timestamp(facts.until.0.saturating_sub(1));
    let (just_before, floor) = (Timestamp(facts.from.0.saturating_sub(1)), facts.from.saturating_sub(BEFORE_MAX));
    match trigger {
        Trigger::Cron(schedule) => (schedule.latest_in(floor, just_before), schedule.next_after(last)),
        Trigger::Timetable(timetable) if matches!(timetable.series(), Series::Cron(_)) => {
            (timetable.latest_in(floor, just_before), timetable.next_after(last))
        }
        _ if is_delayed(trigger) => (None, facts.cursor.filter(|cursor| *cursor > last)),
        _ => {
            let interval = rate(trigger);
            let at = of_rate(&Facts { from: facts.until, ..*facts }, trigger);
            let before = at.zip(interval).map(|(at, interval)| at.saturating_sub(interval)).filter(|before| *before < facts.from);
            (before, at.and_then(|at| misfire::fired_from(trigger, at)))
        }
    }
}

#[cfg(test)]
mod tests;
