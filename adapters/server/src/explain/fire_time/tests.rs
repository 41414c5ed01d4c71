use std::sync::Arc;

use punctual_core::ids::PartitionId;
use punctual_spec::file::read_text;
use punctual_spec::zones::Zones;

use super::*;

/// 2026-11-29T17:00:00Z, a Sunday.
const START: i64 = 1_795_971_600_000;
const DAY: i64 = 86_400_000;

fn definition(trigger: &str, fields: &str) -> Arc<TaskDefinition> {
    let file = format!("tasks:\n  - {{name: a, trigger: {trigger}, command: x{fields}}}\n");
    read_text("t", &file, &Zones::load()).unwrap_or_else(|problems| panic!("{problems}")).tasks.remove(0).definition
}

const CRON: &str = "{cron: \"0 2 * * *\", timezone: Europe/Berlin}";
/// 02:00 in Berlin on the Monday after.
const DUE: i64 = START + 8 * 3_600_000;

/// A task that was made a day before, asked about long after.
struct Case {
    definition: Option<Arc<TaskDefinition>>,
    at: i64,
    now: i64,
    version: Option<(Version, Timestamp)>,
    was_removed: bool,
    is_in_force: bool,
    firings: Vec<Firing>,
    occurrences: Vec<Occurrence>,
    cursor: Option<i64>,
    pauses: Vec<String>,
}

impl Case {
    fn new(trigger: &str, fields: &str, at: i64) -> Case {
        let definition = Some(definition(trigger, fields));
        let version = Some((Version(2), Timestamp(START - DAY)));
        let (firings, occurrences, pauses) = (Vec::new(), Vec::new(), Vec::new());
        Case {
            definition,
            at,
            now: START + 10 * DAY,
            version,
            was_removed: false,
            is_in_force: true,
            firings,
            occurrences,
            cursor: Some(START + 11 * DAY),
            pauses,
        }
    }

    fn explained(&self) -> Explanation {
        explain(&Facts {
            task: TaskId(1),
            from: Timestamp(self.at),
            until: Timestamp(self.at + 1_000),
            now: Timestamp(self.now),
            made_at: Timestamp(START - DAY),
            version: self.version,
            was_removed: self.was_removed,
            definition: self.definition.as_deref(),
            firings: &self.firings,
            occurrences: &self.occurrences,
            is_in_force: self.is_in_force,
            cursor: self.cursor.map(Timestamp),
            pauses: &self.pauses,
            before: None,
        })
    }

    #[track_caller]
    fn check(&self, verdict: &str, says: &[&str]) {
        let explained = self.explained();
        assert_eq!((explained.verdict.name(), explained.says.iter().map(String::as_str).collect::<Vec<_>>()), (verdict, says.to_vec()));
    }
}

const TOLD: &str = "2026-11-30T01:00:00Z (Mon 2026-11-30 02:00:00 in Europe/Berlin)";
const BY: &str = "version 2, in force since 2026-11-28T17:00:00Z";

#[test]
fn what_fired_is_told_with_its_instances() {
    let mut case = Case::new(CRON, "", DUE);
    let firing = |run, origin, created_at| Firing {
        id: InstanceId::new(PartitionId(43), u64::from(run)),
        origin,
        state: State::Succeeded,
        run,
        fire_time: Timestamp(DUE),
        created_at: Timestamp(created_at),
    };
    case.firings = vec![firing(2, Origin::Rerun, DUE + DAY), firing(1, Origin::Schedule, DUE + 12)];
    // Instances say it, whatever else is on record.
    case.occurrences = vec![occurrence(Outcome::Paused)];
    case.check(
        "fired",
        &[
            "2026-11-30T01:00:00Z: it was run once more at 2026-12-01T01:00:00Z, as instance 43-2 (run 2), which is succeeded.",
            "2026-11-30T01:00:00Z: it fired by its trigger, 12 ms later, as instance 43-1 (run 1), which is succeeded.",
        ],
    );
    for (origin, words) in [
        (Origin::CatchUp, "it was missed, and was made up for, 1 d later"),
        (Origin::Manual, "it was triggered by hand at "),
        (Origin::Chain, "it fired after another task at "),
        (Origin::Backfill, "it was made up for by a backfill, 1 d later"),
        (Origin::Call, "a node of another task's run called it at "),
    ] {
        case.firings = vec![firing(1, origin, DUE + DAY)];
        assert!(case.explained().says[0].contains(words), "{:?}", case.explained());
    }
}

fn occurrence(outcome: Outcome) -> Occurrence {
    let at = Timestamp(DUE);
    Occurrence { task: TaskId(1), version: Version(2), first: at, last: at, count: 1, outcome, instance: None, at: Timestamp(DUE + 60_000) }
}

/// Every outcome has its words.
#[test]
fn what_is_on_record_is_told() {
    let missed = "It counts as missed because nobody could fire it for more than 5 s: no scheduler ran, or none owned the task's partition. That was \
                  decided at 2026-11-30T01:01:00Z.";
    let decided = "That was decided at 2026-11-30T01:01:00Z.";
    for outcome in Outcome::ALL {
        let fields = ", misfire: {action: fire_once, deadline: 1h}, concurrency: {max_running: 2}";
        let mut case = Case::new(CRON, fields, DUE);
        if outcome == Outcome::ExcludedDay {
            case.definition = Some(definition("{cron: \"0 2 * * *\", timezone: Europe/Berlin, calendar: {exclude: [2026-11-30]}}", ""));
        }
        if outcome == Outcome::BlackedOut {
            let trigger = "{cron: \"0 2 * * *\", timezone: Europe/Berlin, blackouts: [{from: \"01:00\", to: \"03:00\"}]}";
            case.definition = Some(definition(trigger, ""));
        }
        case.occurrences = vec![occurrence(outcome)];
        if outcome == Outcome::Coalesced {
            case.occurrences[0].instance = Some(InstanceId::new(PartitionId(43), 9));
        }
        let (says, second) = match outcome {
            Outcome::Coalesced => {
                (" was missed, and made up for by instance 43-9, which stands for all that were missed (`misfire: fire_once`).", missed)
            }
            Outcome::MisfireSkipped => (" was missed, and skipped: the task says so (`misfire: skip`).", missed),
            Outcome::DeadlinePassed => (" was missed by more than the deadline of 1 h, and skipped (`misfire.deadline`).", missed),
            Outcome::CatchUpLimit => {
                (" was missed, with more others than are made up for (`misfire.limit`): the latest ones were, this was not.", missed)
            }
            Outcome::LimitReached => {
                (" was discarded: the task was at its limit of 2 at once (`concurrency.max_running`, `when_full: discard`).", decided)
            }
            Outcome::QueueFull => (" was discarded: the task was at its limit, and its queue was full (`concurrency.max_queue`).", decided),
            Outcome::Disabled => (" passed while the task was disabled (`enabled: false`).", decided),
            Outcome::Withdrawn => {
                (" had come and was not fired yet when the task was edited or removed, and was given up with that.", decided)
            }
            Outcome::ChainTooLong => (
                ": another task had ended, and this one was not fired for it, because too many tasks had fired one another before.",
                decided,
            ),
            Outcome::BlackedOut => (" was left out: it lies in a blackout (`trigger.blackouts`).", decided),
            Outcome::ExcludedDay => (" was left out: its calendar excludes the day (`trigger.calendar`).", decided),
            Outcome::Paused => (" passed while the task was paused. Nothing is made up for after a pause.", decided),
        };
        case.check(outcome.name(), &[&format!("{TOLD}{says}"), second]);
    }
}

#[test]
fn a_run_on_record_speaks_of_its_fire_times_only() {
    let run = Occurrence { last: Timestamp(DUE + 5 * DAY), count: 6, ..occurrence(Outcome::MisfireSkipped) };
    let mut case = Case::new(CRON, "", DUE + DAY);
    case.occurrences = vec![run.clone()];
    let explained = case.explained();
    assert_eq!(explained.verdict, Verdict::NotOnRecord(Outcome::MisfireSkipped));
    assert_eq!(explained.says[2], "It shares that with 5 other fire times, from 2026-11-30T01:00:00Z to 2026-12-05T01:00:00Z.");
    // Of the times between them it says nothing.
    case.at += 3_600_000;
    assert_eq!(case.explained().verdict, Verdict::NotATime);
    // Of two runs around one time the shorter one speaks of it.
    case.at -= 3_600_000;
    let pause = Occurrence { first: Timestamp(case.at), last: Timestamp(case.at), count: 1, ..occurrence(Outcome::Paused) };
    case.occurrences = vec![run, pause];
    assert_eq!(case.explained().verdict, Verdict::NotOnRecord(Outcome::Paused));
    // What lies in a folded run of excluded days and is none of them has another fate.
    let excluded = Occurrence { count: 2, last: Timestamp(DUE + 5 * DAY), ..occurrence(Outcome::ExcludedDay) };
    case.occurrences = vec![excluded];
    assert_eq!(case.explained().verdict, Verdict::Forgotten);
}

#[test]
fn what_was_never_due_is_told_with_the_times_around_it() {
    Case::new(CRON, "", DUE + 3_600_000).check(
        "not_a_fire_time",
        &[
            &format!("The task was not due then: Mon 2026-11-30 03:00:00 in Europe/Berlin is no time of its trigger, at 02:00 every day, by {BY}."),
            "The fire times around it are 2026-11-30T01:00:00Z and 2026-12-01T01:00:00Z.",
        ],
    );
    let mut rate = Case::new("{fixed_rate: 10m}", "", START + 60_000);
    rate.cursor = Some(START + 11 * DAY);
    rate.check(
        "not_a_fire_time",
        &[&format!("The task was not due then, by {BY}."), "The fire times around it are 2026-11-29T17:00:00Z and 2026-11-29T17:10:00Z."],
    );
    rate.cursor = None;
    rate.check(
        "not_a_fire_time",
        &[&format!(
            "The task fires every 10 min by {BY}; it has no fire time ahead now that others could be counted from. Nothing is on record of that time."
        )],
    );
    rate.is_in_force = false;
    rate.check(
        "not_a_fire_time",
        &[&format!(
            "The task fired every 10 min by {BY}; where it counted from is not kept of versions that are no longer in force. Nothing is on record of \
             that time."
        )],
    );
    let next = "The next fire time after it is 2026-12-10T17:00:00Z.";
    Case::new("{fixed_delay: 10m}", "", START).check(
        "not_a_fire_time",
        &[&format!("The task fires 10 min after its last instance has ended, by {BY}; that was not so then."), next],
    );
    Case::new("{delay: 10m}", "", START).check(
        "not_a_fire_time",
        &[&format!("The task fires 10 min after it was made and after each trigger, by {BY}; nothing came of that then."), next],
    );
    Case::new("manual", "", START).check(
        "by_hand_only",
        &[
            &format!("The task has no times of its own by {BY}: it fires by hand."),
            "Nobody triggered it then, and nothing that it fires after ended then.",
        ],
    );
}

/// The hour that is left out is told of where somebody asks for it.
#[test]
fn a_time_that_the_clock_leaves_out_is_told() {
    // 2027-03-28T02:30 in Berlin there is none; the fire time is the first instant after.
    let mut case = Case::new("{cron: \"30 2 * * *\", timezone: Europe/Berlin}", "", 1_806_199_800_000);
    case.now = case.at + DAY;
    let explained = case.explained();
    let is_told = explained.says.iter().any(|says| says.contains("after the gap") && says.ends_with("the clock is moved that day."));
    assert!(explained.verdict == Verdict::NotATime && is_told, "{explained:?}");
}

#[test]
fn before_after_and_without_the_task() {
    let mut case = Case::new(CRON, "", DUE - 30 * DAY);
    case.version = None;
    case.check("before_the_task", &["There was no such task yet: it was made at 2026-11-28T17:00:00Z, 28 d 15 h later."]);
    let mut case = Case::new(CRON, "", DUE);
    (case.was_removed, case.definition) = (true, None);
    case.check("removed", &["The task was removed then, since 2026-11-28T17:00:00Z (version 2)."]);
    case.was_removed = false;
    case.check("unreadable", &["Version 2 was in force then, and this program can't read it; nothing is on record of that time."]);
    Case::new(CRON, ", enabled: false", DUE)
        .check("disabled", &[&format!("The task was disabled (`enabled: false`) by {BY}: it fires by hand only.")]);
    let window = |field: &str| format!("{{cron: \"0 2 * * *\", timezone: Europe/Berlin, {field}}}");
    let explained = Case::new(&window("starts_at: 2026-12-24T00:00:00Z"), "", DUE).explained();
    assert_eq!(explained.verdict, Verdict::OutsideWindow);
    assert_eq!(explained.says[0], format!("The task fires from 2026-12-24T00:00:00Z on, by {BY} (`trigger.starts_at`)."));
    let explained = Case::new(&window("ends_at: 2026-11-29T00:00:00Z"), "", DUE).explained();
    assert_eq!(explained.says[0], format!("The task fires until 2026-11-29T00:00:00Z, by {BY} (`trigger.ends_at`)."));
}

#[test]
fn what_is_left_out_is_told_ahead_too() {
    for (refinement, verdict, why) in [
        ("calendar: {exclude: [2026-11-30]}", "excluded_day", "its calendar excludes the day (`trigger.calendar`)"),
        ("blackouts: [{from: \"01:00\", to: \"03:00\"}]", "blacked_out", "it lies in a blackout (`trigger.blackouts`)"),
    ] {
        let mut case = Case::new(&format!("{{cron: \"0 2 * * *\", timezone: Europe/Berlin, {refinement}}}"), "", DUE);
        let explained = case.explained();
        assert_eq!(explained.verdict.name(), verdict);
        assert_eq!(explained.says[0], format!("{TOLD} is a time of its trigger by {BY}, and was left out: {why}."));
        case.now = START;
        assert!(case.explained().says[0].contains(", and is left out: "));
    }
}

#[test]
fn what_is_ahead_or_has_just_come() {
    let mut case = Case::new(CRON, "", DUE);
    (case.now, case.cursor) = (START, Some(DUE));
    case.check("ahead", &[&format!("That is still ahead: it fires at {TOLD}, in 8 h.")]);
    case.pauses = vec!["everything has been paused since then by ann".to_owned()];
    assert_eq!(case.explained().says[1], "Unless the pause still holds it then: everything has been paused since then by ann.");
    case.now = DUE + 5_000;
    case.check(
        "paused",
        &[
            &format!("{TOLD} came while the task was held, and passes by: it is put on record when the pause ends."),
            "The pause: everything has been paused since then by ann.",
        ],
    );
    case.pauses.clear();
    case.check("just_due", &[&format!("{TOLD} came 5 s ago, and its owner has not come to it yet.")]);
    case.now = DUE + DAY;
    let explained = case.explained();
    assert!(explained.says[1].starts_with("Nobody fires it: no replica runs"), "{explained:?}");
    case.cursor = Some(DUE + 2 * DAY);
    case.check(
        "nothing_on_record",
        &[
            &format!("{TOLD} was a fire time by {BY}, and nothing is on record of it: neither an instance nor why not."),
            "History as old as that may have been dropped (`--keep-months`); or the task's trigger was edited around that time.",
        ],
    );
    let mut jittered = Case::new("{cron: \"0 2 * * *\", timezone: Europe/Berlin, jitter: 30m}", "", DUE);
    (jittered.now, jittered.cursor) = (DUE, Some(DUE));
    let explained = jittered.explained();
    assert!(explained.verdict == Verdict::JustDue && explained.says[0].contains("(`trigger.jitter`)"), "{explained:?}");
}

#[test]
fn a_time_that_only_its_owner_can_count_is_ahead_or_due() {
    for trigger in ["{delay: 10m}", "{fixed_delay: 10m}", "{fixed_delay: 10m, ends_at: 2030-01-01T00:00:00Z}"] {
        let mut case = Case::new(trigger, "", DUE);
        (case.now, case.cursor) = (START, Some(DUE + 512));
        case.check("ahead", &["That is still ahead: it fires at 2026-11-30T01:00:00.512Z, in 8 h."]);
        assert_eq!(case.explained().fire_time, Some(Timestamp(DUE + 512)));
        case.now = DUE + 5_512;
        case.pauses = vec!["the task \"a\" has been paused since then by ann".to_owned()];
        assert_eq!(case.explained().verdict, Verdict::Paused);
        case.pauses.clear();
        case.check("just_due", &["2026-11-30T01:00:00.512Z came 5 s ago, and its owner has not come to it yet."]);
        // What has passed in a pause has no cursor, or one behind it.
        (case.now, case.cursor) = (START + 10 * DAY, None);
        let at = Timestamp(DUE + 512);
        case.occurrences = vec![Occurrence { first: at, last: at, ..occurrence(Outcome::Paused) }];
        let explained = case.explained();
        assert_eq!((explained.verdict.name(), explained.fire_time), ("paused", Some(at)));
        assert!(explained.says[0].starts_with("2026-11-30T01:00:00.512Z passed while the task was paused."), "{explained:?}");
    }
}

#[test]
fn a_disabled_task_is_said_to_be() {
    for trigger in ["{fixed_rate: 10m}", "{fixed_delay: 10m}", "{delay: 10m}"] {
        for is_in_force in [true, false] {
            let mut case = Case::new(trigger, ", enabled: false", START + 60_000);
            (case.cursor, case.is_in_force) = (None, is_in_force);
            case.check("disabled", &[&format!("The task was disabled (`enabled: false`) by {BY}: it fires by hand only.")]);
        }
    }
}

/// Of a fixed rate, too: there a run on record says where its times are.
#[test]
fn only_fire_times_of_a_run_share_its_fate() {
    let run = Occurrence { last: Timestamp(DUE + 600_000), count: 11, ..occurrence(Outcome::Paused) };
    let mut case = Case::new("{fixed_rate: 1m}", "", DUE + 180_000);
    // Its owner has counted from elsewhere since.
    case.cursor = Some(START + 11 * DAY + 7_000);
    case.occurrences = vec![run.clone()];
    let explained = case.explained();
    assert_eq!((explained.verdict.name(), explained.fire_time), ("paused", Some(Timestamp(DUE + 180_000))));
    assert_eq!(
        (&*explained.says[0], &*explained.says[2]),
        (
            "2026-11-30T01:03:00Z passed while the task was paused. Nothing is made up for after a pause.",
            "It shares that with 10 other fire times, from 2026-11-30T01:00:00Z to 2026-11-30T01:10:00Z."
        )
    );
    for (at, trigger, count) in [
        // No fire time of the run, one second beside one.
        (DUE + 181_000, "{fixed_rate: 1m}", 11),
        // The run has its first and last only.
        (DUE + 180_000, "{fixed_rate: 1m}", 2),
        // The run was counted by another interval.
        (DUE + 180_000, "{fixed_rate: 7m}", 11),
    ] {
        let mut case = Case { occurrences: vec![Occurrence { count, ..run.clone() }], ..Case::new(trigger, "", at) };
        case.cursor = Some(START + 11 * DAY + 7_000);
        assert_eq!(case.explained().verdict, Verdict::NotATime, "{trigger} {count}");
    }
    // The last of a run is told as itself.
    case.at = DUE + 600_000;
    assert!(case.explained().says[0].starts_with("2026-11-30T01:10:00Z passed"), "{:?}", case.explained());
    // Nobody can tell without the trigger.
    case.at = DUE + 181_000;
    case.definition = None;
    assert!(
        case.explained().says[0].starts_with("Any of the 11 fire times from 2026-11-30T01:00:00Z to 2026-11-30T01:10:00Z passed"),
        "{:?}",
        case.explained()
    );
}

#[test]
fn the_times_around_are_of_the_version_that_was_in_force() {
    let mut case = Case::new(CRON, "", START + 60_000);
    case.version = Some((Version(1), Timestamp(START)));
    assert_eq!(case.explained().says[1], "The next fire time after it is 2026-11-30T01:00:00Z.");
    assert_eq!(case.explained().before, None);
    let mut rate = Case::new("{fixed_rate: 10m}", "", START + 60_000);
    rate.version = case.version;
    assert_eq!(rate.explained().before, None, "the first is an interval later");
    // In the second in which the task was made, before it was.
    let mut case = Case::new("{cron: \"* * * * *\"}", "", START - DAY);
    case.version = Some((Version(1), Timestamp(START - DAY)));
    assert_eq!(case.explained().verdict, Verdict::BeforeTheTask);
}

#[test]
fn a_trigger_by_hand_of_what_is_no_more_is_told() {
    let mut case = Case::new(CRON, "", DUE);
    case.occurrences = vec![Occurrence { version: Version(0), ..occurrence(Outcome::Withdrawn) }];
    assert!(case.explained().says[0].ends_with(": a trigger by hand came to nothing: there was no such task, or no such node, any more."));
}
