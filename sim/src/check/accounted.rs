//! `fire.accounted`: each fire time ends in exactly one outcome.
//!
//! A task's versions are taken together as long as neither trigger nor `enabled` changes: such an edit keeps the cursor. Each such
//! *stretch* begins with an edit, at the time at which it was written, and ends with the next one or with the removal. What the old version
//! fires until its owner has applied the next entry is its own; the new one then begins behind it.
//!
//! Cron and fixed rates are judged twice: by identity (the fire times of instances and occurrences are the trigger's, one after the other,
//! from the first one on), and by matching that looks at neither fire times nor ids: outcomes in the order of their commits against the
//! trigger's fire times in their order, none before its time and enough of them in the end.
//!
//! A fixed delay fires `interval` after its last instance has ended, and goes on doing so. A delay fires once. A manual or disabled task
//! does not fire.
//!
//! Nothing is missing that was due less than [`SETTLE_MS`](crate::check::SETTLE_MS) before the end; where the run never healed, or only just,
//! a stretch's end is not judged. Where the database's clock was set, what is left of it is this: no fire time twice, cron fire times follow
//! each other without a gap within a stretch, rates at least grow. Where only a scheduler's clock was touched, that holds for fixed rates and
//! fixed delays, and cron is judged in full.

use punctual_core::cron::{LeftOut, Timetable};
use punctual_core::definition::Trigger;
use punctual_core::ids::{TaskId, Version};
use punctual_core::instance::InstanceRow;
use punctual_core::occurrence::Outcome;
use punctual_core::time::{Millis, Timestamp};

use crate::check::facts::{Edit, Facts, Fire, Fired, NEVER, Task};
use crate::check::series::Series;
use crate::check::{Case, SETTLE_MS, SKEW_MS, Verdict};

/// Versions in a row that share a cursor.
struct Stretch<'a> {
    /// Its first version and the one after its last.
    versions: (Version, Option<Version>),
    trigger: &'a Trigger,
    is_enabled: bool,
    begins_at: Timestamp,
    /// The commit that applied its first version.
    applied: Option<usize>,
    ends: Option<Ending>,
}

/// The edit or removal that ends a stretch.
#[derive(Clone, Copy)]
struct Ending {
    at: Timestamp,
    applied: Option<usize>,
}

/// What a stretch is judged against.
struct Judge<'f, 'a> {
    facts: &'f Facts<'a>,
    task: &'f Task<'a>,
    case: Case,
    /// Fire times up to then have their outcome, where something is said about the end at all.
    settled_until: Option<Timestamp>,
}

/// See the module's doc.
pub(super) fn accounted(facts: &Facts<'_>) -> Verdict {
    let settled_until = facts
        .healed_at()
        .filter(|healed| facts.end >= healed.saturating_add(SETTLE_MS) && !facts.clocks.database_was_set())
        .map(|_| facts.clocks.database_at(facts.end).saturating_sub(Millis(SETTLE_MS)));
    let mut case = Case::default();
    for task in &facts.tasks {
        let mut judge = Judge { facts, task, case, settled_until };
        let fires = facts.fires_of(task.id);
        let stretches = stretches(facts, task);
        for stretch in &stretches {
            judge.stretch(stretch, fires);
        }
        let is_covered = |version: Version| stretches.iter().any(|stretch| stretch.covers(version));
        if let Some(fire) = fires.iter().find(|fire| !is_covered(fire.version)) {
            judge.bad(fire, "no such version is in force");
        }
        case = judge.case;
    }
    let is_known = |task: TaskId| facts.task(task).is_some();
    if let Some(fire) = facts.fires.iter().find(|fire| !is_known(fire.task)) {
        let record = facts.commits[fire.commit].record;
        case.violated(|| format!("task {} fired for {} and was never defined (record {record})", fire.task, fire.first));
    }
    case.verdict()
}

fn stretches<'a>(facts: &Facts<'a>, task: &Task<'a>) -> Vec<Stretch<'a>> {
    let mut stretches: Vec<Stretch<'a>> = Vec::new();
    let mut is_open = false;
    for edit in task.edits.iter().filter(|edit| edit.undone_by == NEVER) {
        let applied = facts.applied_by(edit.entry, edit.record);
        let open = stretches.last_mut().filter(|_| is_open);
        if let (Some(definition), Some(open)) = (edit.definition, &open)
            && open.trigger == &definition.trigger
            && open.is_enabled == definition.enabled
        {
            continue;
        }
        if let Some(open) = open {
            open.ends = Some(Ending { at: edit.wall, applied });
            open.versions.1 = Some(edit.version);
        }
        is_open = edit.definition.is_some();
        stretches.extend(begin(edit, applied));
    }
    stretches
}

fn begin<'a>(edit: &Edit<'a>, applied: Option<usize>) -> Option<Stretch<'a>> {
    let definition = edit.definition?;
    Some(Stretch {
        versions: (edit.version, None),
        trigger: &definition.trigger,
        is_enabled: definition.enabled,
        begins_at: edit.wall,
        applied,
        ends: None,
    })
}

impl Stretch<'_> {
    fn covers(&self, version: Version) -> bool {
        self.versions.0 <= version && self.versions.1.is_none_or(|end| version < end)
    }

    /// Whether the owner had heard of the stretch's end when it made this commit.
    fn is_over(&self, commit: usize) -> bool {
        self.ends.and_then(|ends| ends.applied).is_some_and(|applied| applied < commit)
    }
}

impl<'a> Judge<'_, 'a> {
    fn bad(&mut self, fire: &Fire<'_>, why: &str) {
        let record = self.facts.commits[fire.commit].record;
        let what = match fire.outcome {
            Fired::Instance(row) => format!("instance {}", row.id),
            Fired::Occurrence(occurrence) => format!("{} fire times {}", fire.count, occurrence.outcome.name()),
        };
        let (task, name, first, last) = (self.task.id, self.task.name(), fire.first, fire.last);
        self.case.violated(|| format!("task {task} ({name}): {what} for {first} to {last} (record {record}): {why}"));
    }

    fn missing(&mut self, fire_time: Timestamp, why: &str) {
        let (task, name) = (self.task.id, self.task.name());
        self.case.violated(|| format!("task {task} ({name}): the fire time {fire_time} has no outcome: {why}"));
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, fires: &[Fire<'a>]) {
        let mut own: Vec<&Fire<'a>> = fires.iter().filter(|fire| stretch.covers(fire.version)).collect();
        for fire in &own {
            if stretch.is_over(fire.commit) {
                self.bad(fire, "a later edit or the removal had been applied");
            }
            if stretch.applied.is_none_or(|applied| applied > fire.commit) {
                self.bad(fire, "its version had not been applied");
            }
            self.judge_withdrawal(stretch, fire);
        }
        // Behind this the stretch begins: what older versions had dealt with when it was applied.
        let is_before =
            |fire: &&Fire<'_>| fire.version < stretch.versions.0 && stretch.applied.is_some_and(|applied| fire.commit <= applied);
        let older = fires.iter().filter(is_before).filter(|_| stretch.versions.0 > Version(1));
        let dealt_with = older.clone().map(|fire| fire.last).max();
        if let Trigger::Timetable(timetable) = stretch.trigger {
            own.retain(|fire| !self.is_left_out(timetable, fire));
        }
        match (Series::of(stretch.trigger), stretch.trigger) {
            _ if !stretch.is_enabled => self.nothing(&own),
            (Some(series), _) => {
                let first = first_behind(series, stretch.begins_at, dealt_with);
                let by_commit = own.clone();
                own.sort_by_key(|fire| fire.first);
                self.series(stretch, series, first, &own);
                self.match_outcomes(stretch, series, first, &by_commit);
            }
            (None, Trigger::FixedDelay { interval }) => {
                let last_end = older.filter_map(|fire| self.end_of(fire)).max();
                let is_busy = fires.iter().any(|fire| is_before(&fire) && self.end_of(fire).is_none());
                self.fixed_delay(stretch, *interval, last_end, is_busy, &own);
            }
            (None, Trigger::Delay { delay }) => self.delay(stretch, *delay, &own),
            // Of a fixed delay in a window the outcomes are counted by nobody yet.
            (None, Trigger::Timetable(_)) => {}
            (None, _) => self.nothing(&own),
        }
    }

    /// Whether this is what a timetable leaves out; then it must be just that.
    fn is_left_out(&mut self, timetable: &Timetable, fire: &Fire<'a>) -> bool {
        let Fired::Occurrence(occurrence) = fire.outcome else { return false };
        let reason = match occurrence.outcome {
            Outcome::BlackedOut => LeftOut::BlackedOut,
            Outcome::ExcludedDay => LeftOut::ExcludedDay,
            _ => return false,
        };
        let runs = timetable.left_out_in(Timestamp(fire.first.0 - 1), fire.last);
        if !runs.iter().any(|run| run.reason == reason && (run.first, run.last, run.count) == (fire.first, fire.last, fire.count)) {
            self.bad(fire, "that is not what the timetable leaves out");
        }
        true
    }

    fn nothing(&mut self, own: &[&Fire<'a>]) {
        if let Some(fire) = own.iter().find(|fire| !is_withdrawal(fire)) {
            self.bad(fire, "nothing makes the task fire by itself");
        }
    }

    /// A fire time is given up by the entry that ends the stretch alone, and only when it had come by then.
    fn judge_withdrawal(&mut self, stretch: &Stretch<'_>, fire: &Fire<'a>) {
        if !is_withdrawal(fire) || self.facts.clocks.database_was_set() {
            return;
        }
        match stretch.ends {
            Some(ends) if ends.applied == Some(fire.commit) && fire.last <= ends.at => {}
            Some(ends) if ends.applied == Some(fire.commit) => self.bad(fire, "given up, and the edit came before it"),
            _ => self.bad(fire, "given up without an edit"),
        }
    }

    /// Until when fire times must have an outcome.
    fn due_until(&self, stretch: &Stretch<'_>) -> Option<Timestamp> {
        match stretch.ends {
            _ if stretch.applied.is_none() || self.facts.clocks.database_was_set() => None,
            Some(ends) => ends.applied.map(|_| ends.at),
            None => self.settled_until,
        }
    }

    /// By identity.
    fn series(&mut self, stretch: &Stretch<'_>, series: Series<'_>, first: Option<Timestamp>, own: &[&Fire<'a>]) {
        let is_rate = series.is_loop();
        let jumps = is_rate && self.facts.clocks.were_touched;
        let begins_anywhere = self.facts.clocks.database_was_set();
        let mut expected = first;
        for (index, fire) in own.iter().enumerate() {
            let may_be_later = jumps || (begins_anywhere && index == 0);
            match expected {
                Some(expected) if fire.first == expected => {}
                Some(expected) if fire.first > expected && may_be_later => {}
                Some(expected) if fire.first > expected => self.missing(expected, &format!("the next one that has is {}", fire.first)),
                _ if begins_anywhere && index == 0 => {}
                _ if index > 0 && fire.first <= own[index - 1].last => self.bad(fire, "it had an outcome before"),
                _ => self.bad(fire, "the trigger does not give it"),
            }
            if !series.is_run(fire.first, fire.last, fire.count) {
                self.bad(fire, "that is not how many the trigger gives");
            }
            expected = series.next(fire.last);
        }
        if let (Some(expected), Some(until)) = (expected, self.due_until(stretch))
            && expected <= until
            && !jumps
        {
            self.missing(expected, &format!("nothing later has one, and they were due until {until}"));
        }
    }

    /// By earliest deadline: the outcomes in the order of their commits each take the earliest fire time that is left.
    fn match_outcomes(&mut self, stretch: &Stretch<'_>, series: Series<'_>, first: Option<Timestamp>, own: &[&Fire<'a>]) {
        let is_rate = series.is_loop();
        if self.facts.clocks.database_was_set() || (is_rate && self.facts.clocks.were_touched) {
            return;
        }
        let mut left = first;
        for fire in own {
            // That something was early is for another property to say.
            let known = self.facts.commits[fire.commit].wall.saturating_add(Millis(SKEW_MS));
            let taken = left.and_then(|left| series.nth(left, fire.count.saturating_sub(1), known));
            let Some(taken) = taken else {
                return self.bad(fire, "there are more outcomes than fire times by then");
            };
            left = series.next(taken);
        }
        if let (Some(left), Some(until)) = (left, self.due_until(stretch))
            && left <= until
        {
            self.missing(left, &format!("there are fewer outcomes than fire times until {until}"));
        }
    }

    /// When the place of a fire time in a fixed delay was free again.
    fn end_of(&self, fire: &Fire<'_>) -> Option<Timestamp> {
        match fire.outcome {
            Fired::Instance(row) => self.facts.last_row(row.id).and_then(InstanceRow::ended_at),
            Fired::Occurrence(occurrence) => Some(occurrence.at),
        }
    }

    fn fixed_delay(&mut self, stretch: &Stretch<'_>, interval: Millis, last_end: Option<Timestamp>, is_busy: bool, own: &[&Fire<'a>]) {
        let is_exact = !self.facts.clocks.were_touched;
        let mut free_at = Some(stretch.begins_at);
        let mut may_be_later = stretch.versions.0 > Version(1);
        let mut last: Option<Timestamp> = None;
        // One that an older version fired may end last, and then that is what counts.
        let counts_from_older =
            |free: Timestamp, first: Timestamp| last_end.is_some_and(|end| end > free && first <= end.saturating_add(interval));
        for fire in own.iter().filter(|fire| !is_withdrawal(fire)) {
            if last.is_some_and(|last| fire.first <= last) {
                self.bad(fire, "it had an outcome before");
            }
            let Some(free) = free_at else {
                self.bad(fire, "the last instance has not ended");
                break;
            };
            let due = free.saturating_add(interval);
            if is_exact && fire.first < due {
                self.bad(fire, &format!("the interval after the last end was over at {due} only"));
            } else if is_exact && fire.first > due && !may_be_later && !counts_from_older(free, fire.first) {
                self.bad(fire, &format!("the interval after the last end was over at {due}"));
            }
            free_at = self.end_of(fire);
            // What was missed and skipped is taken up again when its owner finds it.
            may_be_later = matches!(fire.outcome, Fired::Occurrence(occurrence) if !is_discarded(occurrence.outcome));
            last = Some(fire.last);
        }
        let is_due = |until: Timestamp| {
            let free_at = if last.is_none() { free_at.max(last_end) } else { free_at };
            free_at.map(|free| free.saturating_add(interval)).filter(|due| *due <= until)
        };
        if stretch.ends.is_none()
            && (last.is_some() || !is_busy)
            && let Some(due) = self.due_until(stretch).and_then(is_due)
        {
            self.missing(due, "the fixed delay has stopped");
        }
    }

    fn delay(&mut self, stretch: &Stretch<'_>, delay: Millis, own: &[&Fire<'a>]) {
        let due = stretch.begins_at.saturating_add(delay);
        for (index, fire) in own.iter().enumerate() {
            if index > 0 || fire.count > 1 {
                self.bad(fire, "a delay fires once");
            } else if fire.first != due && !self.facts.clocks.were_touched && !is_withdrawal(fire) {
                self.bad(fire, &format!("the delay was over at {due}"));
            }
        }
        let is_made = stretch.versions.0 == Version(1);
        if is_made && own.is_empty() && self.due_until(stretch).is_some_and(|until| due <= until) {
            self.missing(due, "the delay is over");
        }
    }
}

/// The first fire time after an edit: where an older version had dealt with it, the first one behind that.
fn first_behind(series: Series<'_>, edited_at: Timestamp, dealt_with: Option<Timestamp>) -> Option<Timestamp> {
    match (series.first(edited_at), dealt_with) {
        (Some(first), Some(dealt_with)) if first <= dealt_with => series.first(dealt_with),
        (first, _) => first,
    }
}

fn is_withdrawal(fire: &Fire<'_>) -> bool {
    matches!(fire.outcome, Fired::Occurrence(occurrence) if occurrence.outcome == Outcome::Withdrawn)
}

fn is_discarded(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::LimitReached | Outcome::QueueFull)
}
