use punctual_core::ids::PartitionId;
use punctual_core::ids::{Fence, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{Links, Part, SlotLink, WorkerRef};
use punctual_spec::file::read_text;
use punctual_spec::zones::Zones;

use super::*;

/// 2026-11-29T17:00:00Z.
const START: i64 = 1_795_971_600_000;

fn definition(fields: &str) -> Arc<TaskDefinition> {
    let file = format!("tasks:\n  - {{name: a, trigger: {{cron: \"* * * * *\"}}, command: x{fields}}}\n");
    read_text("t", &file, &Zones::load()).unwrap_or_else(|problems| panic!("{problems}")).tasks.remove(0).definition
}

struct Story(InstanceRow);

impl Story {
    fn new(origin: Origin) -> Story {
        Story(InstanceRow {
            id: InstanceId::new(PartitionId(43), 17),
            task: TaskId(1),
            version: Version(1),
            fire_time: Timestamp(START),
            ordinal: 0,
            run: 1,
            part: Part::WHOLE,
            origin,
            state: State::Waiting,
            fence: Fence(0),
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: None,
            due_at: None,
            payload: None,
            key: None,
            links: None,
            result: None,
            transitions: Vec::new(),
        })
    }

    /// So many milliseconds after the fire time.
    fn step(mut self, at: i64, to: State, cause: Cause) -> Story {
        if cause == Cause::Assigned {
            self.0.attempt += 1;
        }
        let from = self.0.transitions.last().map(|last| last.to);
        let worker = matches!(cause, Cause::Assigned | Cause::Started | Cause::WorkerLost | Cause::Finished).then(|| WorkerId("w1".into()));
        let (attempt, at) = (self.0.attempt, Timestamp(START + at));
        self.0.transitions.push(Transition { from, to, cause, at, attempt, fence: Fence(0), worker, code: None, detail: None });
        self.0.state = to;
        self
    }

    fn says(mut self, code: Option<i32>, detail: &str) -> Story {
        let last = self.0.transitions.last_mut().expect("a step");
        (last.code, last.detail) = (code, Some(detail).filter(|detail| !detail.is_empty()).map(Arc::from));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut InstanceRow)) -> Story {
        change(&mut self.0);
        self
    }

    fn explained(&self, definition: &Arc<TaskDefinition>, now: i64, live: Live) -> Explanation {
        self.explained_with(definition, now, live, Past::default())
    }

    fn explained_with(&self, definition: &Arc<TaskDefinition>, now: i64, live: Live, past: Past) -> Explanation {
        explain(&Facts { row: &self.0, definition: Some(definition), now: Timestamp(START + now), live, past })
    }

    fn summary(&self, fields: &str, now: i64, live: Live) -> String {
        self.explained(&definition(fields), now, live).summary.join(" ")
    }
}

#[test]
fn a_story_names_its_waits_and_adds_them_up() {
    let story = Story::new(Origin::Schedule)
        .step(12, State::Waiting, Cause::LimitReached)
        .step(3_012, State::Created, Cause::SlotFree)
        .step(3_262, State::Dispatched, Cause::Assigned)
        .step(3_265, State::Running, Cause::Started)
        .step(5_265, State::Retrying, Cause::Finished)
        .says(Some(1), "disk full")
        .step(15_265, State::Created, Cause::BackoffElapsed)
        .step(15_266, State::Dispatched, Cause::Assigned)
        .step(15_267, State::Running, Cause::Started)
        .step(16_267, State::Succeeded, Cause::Finished)
        .with(|row| row.failures = 1);
    let explained = story.explained(&definition(", retry: {max_attempts: 3, first: 10s}"), 99_999, Live::default());
    assert_eq!(
        explained.summary,
        ["It succeeded at attempt 2 (1 failed, 0 lost), 16 s after its fire time: 10 s waiting between attempts, 3 s waiting for a slot, \
          3 s running, 251 ms from ready to dispatched."]
    );
    let told: Vec<_> = explained.steps.iter().map(|step| (&*step.says, step.then.as_deref())).collect();
    assert_eq!(
        told,
        [
            (
                "The task's trigger was due at 2026-11-29T17:00:00Z, and fired 12 ms later. The task was at its limit: 1 may run at once, so it was \
                 put into the queue.",
                Some("waited 3 s for a slot of `max_running: 1`")
            ),
            ("A slot became free.", Some("from ready to dispatched 250 ms")),
            ("Attempt 1 was given to worker w1.", None),
            ("Worker w1 began.", Some("ran 2 s")),
            ("Attempt 1 failed with code 1: disk full.", Some("waited 10 s before the next attempt")),
            ("The wait before the next attempt was over.", None),
            ("Attempt 2 was given to worker w1.", None),
            ("Worker w1 began.", Some("ran 1 s")),
            ("Attempt 2 succeeded.", None),
        ]
    );
    let total: u64 = explained.times.iter().map(|(_, time)| time.0).sum();
    assert_eq!(total, 16_255, "from its making to its end, nothing twice and nothing left out: {:?}", explained.times);
}

#[test]
fn what_it_waits_for_now_is_named() {
    let created = || Story::new(Origin::Schedule).step(0, State::Created, Cause::Fired);
    let on = |route: Route| Live { route, ..Live::default() };
    let definition_with_tag = definition(", routing: {tags: {gpu: a100}, min_worker_version: 2.0.0}");
    let needs = Needs::of(&definition_with_tag, &created().0);
    for (route, expected) in [
        (Route::Nothing, "It has waited 34 s for a worker: nothing is known to be in its way."),
        (
            Route::Nobody(Nobody::LacksTags, needs),
            "It has waited 34 s for a worker: no worker that knows the handler has the tags (it asks for handler \"command\", tag \"gpu=a100\", \
             version 2.0.0 or newer).",
        ),
        (Route::Full { waiting: 1 }, "It has waited 34 s for a worker: all slots of the workers that may have it are taken."),
        (
            Route::Full { waiting: 3 },
            "It has waited 34 s for a worker: all slots of the workers that may have it are taken; 2 others wait beside it.",
        ),
        (
            Route::Breaker { downstream: "db".into(), failures: 5, probe_in: Some(Millis(2_000)) },
            "It has waited 34 s for a worker: the circuit breaker of \"db\" is open after 5 failures; it is tried again in 2 s.",
        ),
        (
            Route::Elsewhere { replica: "b".to_owned(), address: Some("b:8650".to_owned()) },
            "It has waited 34 s for a worker: the replica b at b:8650 owns it, and knows which worker it waits for: ask there.",
        ),
        (
            Route::NoOwner { partition: 43 },
            "It has waited 34 s for a worker: nobody owns its partition, 43: no replica runs, or one is taking it over; see `punctual status`.",
        ),
    ] {
        assert_eq!(created().summary("", 34_000, on(route)), expected);
    }
    let limited = ", rate_limit: {starts: 2, per: 1m}";
    for (fields, now, expected) in [
        ("", 3_000, "It has waited 3 s for a worker: one is about to have it."),
        (limited, 3_000, "It has waited 3 s for a worker: one is about to have it, or it waits for the rate limit of 2 starts in 1 min."),
        (limited, 34_000, "It has waited 34 s for a worker: nothing is known to be in its way but the rate limit of 2 starts in 1 min."),
    ] {
        assert_eq!(created().summary(fields, now, on(Route::Nothing)), expected);
    }
    let waiting = || Story::new(Origin::Schedule).step(0, State::Waiting, Cause::LimitReached);
    let ids = |count: u64| (0..count).map(|id| InstanceId::new(PartitionId(43), id)).collect();
    assert_eq!(
        waiting().summary("", 5_000, Live { holders: ids(1), ..Live::default() }),
        "It has waited 5 s for a slot of `max_running: 1`; in progress: 43-0."
    );
    assert_eq!(
        waiting().summary(", concurrency: {max_running: 5}", 5_000, Live { holders: ids(5), ..Live::default() }),
        "It has waited 5 s for a slot of `max_running: 5`; in progress: 43-0, 43-1, 43-2 and 2 more."
    );
    let grouped = waiting().with(|row| {
        let slot = Some(SlotLink { group: "db".into(), is_granted: false });
        row.links = Some(Box::new(Links { slot, ..Links::default() }));
    });
    assert_eq!(grouped.summary("", 5_000, Live::default()), "It has waited 5 s for a slot of the group \"db\".");
    let later =
        Story::new(Origin::Manual).step(0, State::Waiting, Cause::Triggered).with(|row| row.due_at = Some(Timestamp(START + 65_000)));
    assert_eq!(later.summary("", 5_000, Live::default()), "It waits for its time, 2026-11-29T17:01:05Z, which comes in 1 min.");
    let spaced =
        Story::new(Origin::CatchUp).step(0, State::Waiting, Cause::CaughtUp).with(|row| row.due_at = Some(Timestamp(START + 60_000)));
    assert!(spaced.summary("", 5_000, Live::default()).starts_with("It waits for its turn until 2026-11-29T17:01:00Z: missed fire times"));
    let retrying = created()
        .step(1, State::Dispatched, Cause::Assigned)
        .step(2, State::Running, Cause::Started)
        .step(3, State::Retrying, Cause::WorkerLost)
        .with(|row| row.due_at = Some(Timestamp(START + 10_000)));
    assert_eq!(retrying.summary("", 5_000, Live::default()), "It waits for attempt 2 until 2026-11-29T17:00:10Z, 5 s from now.");
    let worker = |row: &mut InstanceRow| row.worker = Some(WorkerRef { id: WorkerId("w1".into()), life: WorkerLife(1) });
    let dispatched = created().step(1_000, State::Dispatched, Cause::Assigned).with(worker);
    assert_eq!(
        dispatched.summary("", 5_000, Live::default()),
        "Worker w1 was given attempt 1 4 s ago, and has not said yet that it began."
    );
    let running = dispatched.step(2_000, State::Running, Cause::Started);
    assert_eq!(
        running.summary(", timeout: 1m", 5_000, Live::default()),
        "Attempt 1 has run on worker w1 for 3 s; its timeout ends it at 2026-11-29T17:01:02Z."
    );
    // Above all the rest: nothing of it starts.
    let pauses = vec!["the task \"a\" has been paused since 2026-11-29T16:00:00Z by ann".to_owned()];
    let held = created().summary("", 5_000, Live { pauses, ..Live::default() });
    let expected = "It is held by a pause: the task \"a\" has been paused since 2026-11-29T16:00:00Z by ann. It has been ready for 5 s.";
    assert_eq!(held, expected, "no worker is about to have it");
    let divided = created().step(1, State::Running, Cause::Divided).with(|row| {
        row.links = Some(Box::new(Links { shards: 3, ..Links::default() }));
    });
    assert_eq!(divided.summary("", 5_000, Live::default()), "Its 3 shards have run 4.9 s in its place.");
}

#[test]
fn every_origin_is_told() {
    for (origin, cause, detail, expected) in [
        (Origin::Schedule, Cause::Fired, "", "The task's trigger was due at 2026-11-29T17:00:00Z, and fired 5 s later."),
        (Origin::CatchUp, Cause::CaughtUp, "", "The fire time 2026-11-29T17:00:00Z was missed, and made up for 5 s later (`misfire`)."),
        (Origin::Manual, Cause::Triggered, "ann", "It was triggered by ann."),
        (Origin::Chain, Cause::Chained, "", "Instance 43-3 of a task that this one fires `after` had ended."),
        (Origin::Rerun, Cause::RerunRequested, "by ann", "Instance 43-3 was to run once more, by ann."),
        (
            Origin::Backfill,
            Cause::Backfilled,
            "ann",
            "The fire time 2026-11-29T17:00:00Z was made up for by a backfill that ann asked for.",
        ),
        (Origin::Call, Cause::Called, "", "The node 43-3 of another task's run called the task."),
    ] {
        let story = Story::new(origin).step(5_000, State::Created, cause).says(None, detail).with(|row| {
            row.links = Some(Box::new(Links { cause: Some(InstanceId::new(PartitionId(43), 3)), ..Links::default() }));
        });
        assert_eq!(story.explained(&definition(""), 5_000, Live::default()).steps[0].says, expected);
    }
    assert_eq!(Origin::ALL.len(), 7, "a new one wants its line above");
}

/// Each is a sentence of its own, whatever it says of how the attempt ended.
#[test]
fn every_cause_is_told() {
    let mut told = std::collections::BTreeMap::new();
    for cause in Cause::ALL {
        let to = match cause {
            Cause::Assigned => State::Dispatched,
            Cause::Started | Cause::Divided | Cause::Calls => State::Running,
            Cause::Returned | Cause::SlotFree | Cause::DelayElapsed | Cause::BackoffElapsed | Cause::RuleMet => State::Created,
            Cause::WorkerLost => State::Retrying,
            Cause::Rescheduled => State::Waiting,
            _ => State::Failed,
        };
        for (code, detail) in [(None, ""), (Some(7), "why")] {
            let story = Story::new(Origin::Schedule).step(0, State::Created, Cause::Fired).step(1, to, cause).says(code, detail);
            let explained = story.explained(&definition(", timeout: 5m, retry: {max_attempts: 2}"), 2, Live::default());
            let says = &explained.steps[1].says;
            assert!(says.ends_with('.') && !says.contains(".."), "{cause:?}: {says}");
            if code.is_none() {
                let other = told.insert(says.clone(), cause);
                assert_eq!(other, None, "{cause:?} says what another cause says: {says}");
            }
        }
    }
}

#[test]
fn how_it_ended_is_told_with_what_the_task_says() {
    let end = |state, cause, code, detail: &str, fields: &str| {
        let story = Story::new(Origin::Schedule)
            .step(0, State::Created, Cause::Fired)
            .step(1, State::Dispatched, Cause::Assigned)
            .step(2, State::Running, Cause::Started)
            .step(3_002, state, cause)
            .says(code, detail)
            .with(|row| (row.failures, row.losses) = (1, 4));
        story.explained(&definition(fields), 9_999, Live::default()).summary.remove(1)
    };
    for (state, cause, code, detail, fields, expected) in [
        (
            State::Failed,
            Cause::Finished,
            Some(3),
            "x",
            "",
            "Attempt 1 failed with code 3: x. No other attempt follows: the task has no `retry`.",
        ),
        (
            State::DeadLettered,
            Cause::AttemptsExhausted,
            Some(3),
            "",
            ", retry: {max_attempts: 2}",
            "Attempt 1 failed with code 3, and no attempt was left (`max_attempts: 2`).",
        ),
        (State::TimedOut, Cause::TimedOut, None, "", ", timeout: 3s", "Attempt 1 ran out of time (`timeout: 3 s`)."),
        (
            State::DeadLettered,
            Cause::Quarantined,
            None,
            "its lease ended",
            "",
            "Its worker was lost as well: its lease ended: it has lost 4 workers, and is kept from taking more with it.",
        ),
        (
            State::DeadLettered,
            Cause::OutcomeUnknown,
            None,
            "its lease ended",
            ", idempotent: false",
            "Its worker was lost: its lease ended, and may have begun: the task is not `idempotent`, so it is not run again without a person.",
        ),
        (
            State::Failed,
            Cause::NotRetried,
            Some(2),
            "",
            "",
            "Attempt 1 failed with code 2. The task doesn't retry such failures (`retry.on`).",
        ),
        (State::Cancelled, Cause::CancelRequested, None, "by ann: wrong customer", "", "It was cancelled by ann: wrong customer."),
        (State::Cancelled, Cause::Replaced, None, "", "", "A newer instance took its place (`when_full: replace`)."),
    ] {
        assert_eq!(end(state, cause, code, detail, fields), expected);
    }
    let discarded = Story::new(Origin::Manual)
        .step(0, State::Waiting, Cause::Triggered)
        .step(0, State::Skipped, Cause::LimitReached)
        .says(None, "the task's queue is full");
    assert_eq!(
        discarded.summary("", 9_999, Live::default()),
        "It was skipped without an attempt, 0 ms after it was made. It was discarded: the task's queue is full."
    );
}

fn in_group(story: Story, is_granted: bool) -> Story {
    story.with(|row| {
        let slot = Some(SlotLink { group: "g".into(), is_granted });
        row.links = Some(Box::new(Links { slot, ..Links::default() }));
    })
}

#[test]
fn a_slot_of_a_group_is_waited_for_when_it_is_ready() {
    let ready = || Story::new(Origin::Schedule).step(0, State::Created, Cause::Fired);
    let waiting = in_group(ready(), false);
    assert_eq!(waiting.summary("", 5_500, Live::default()), "It has waited 5.5 s for a slot of the group \"g\".");
    let run = |story: Story| story.step(5_500, State::Dispatched, Cause::Assigned).step(5_501, State::Running, Cause::Started);
    let explained = in_group(run(ready()), true)
        .step(6_501, State::Retrying, Cause::Finished)
        .step(7_501, State::Created, Cause::BackoffElapsed)
        .step(9_501, State::Dispatched, Cause::Assigned)
        .explained(&definition(""), 9_502, Live::default());
    let then = |index: usize| explained.steps[index].then.as_deref().expect("it took long");
    assert_eq!(
        then(0),
        "from ready to dispatched 5.5 s: no worker was free for it, a pause or the limit of the group \"g\" held it, or no scheduler ran; records do \
         not keep which"
    );
    // The slot is kept over attempts.
    assert_eq!(
        then(4),
        "from ready to dispatched 2 s: no worker was free for it, a pause held it, or no scheduler ran; records do not keep which"
    );
}

#[test]
fn no_more_is_claimed_of_a_wait_than_is_known() {
    let story = Story::new(Origin::Schedule)
        .step(0, State::Created, Cause::Fired)
        .step(34_000, State::Dispatched, Cause::Assigned)
        .step(34_001, State::Running, Cause::Started)
        .step(35_001, State::Succeeded, Cause::Finished);
    let told = |fields: &str, past: Past| {
        let explained = story.explained_with(&definition(fields), 99_999, Live::default(), past);
        (explained.steps[0].then.clone().expect("it took long"), explained.summary)
    };
    let all = || Past { are_all_pauses: true, ..Past::default() };
    for (fields, past, expected) in [
        ("", all(), "no worker was free for it, or no scheduler ran"),
        ("", Past::default(), "no worker was free for it, a pause held it, or no scheduler ran"),
        (
            ", downstream: db, rate_limit: {starts: 2, per: 1m}",
            all(),
            "no worker was free for it, a breaker or the rate limit of 2 starts in 1 min held it, or no scheduler ran",
        ),
    ] {
        assert_eq!(told(fields, past).0, format!("from ready to dispatched 34 s: {expected}; records do not keep which"));
    }
    assert_eq!(told("", all()).1, ["It succeeded, 35 s after its fire time: 34 s from ready to dispatched, 1 s running."]);
    let pause = |from: i64, until: i64| Span {
        what: "the task \"a\"".to_owned(),
        from: Some((Timestamp(START + from), "ann".into())),
        until: Some((Timestamp(START + until), "bob".into())),
    };
    let (then, summary) = told("", Past { pauses: vec![pause(-5_000, 33_900), pause(34_500, 34_800)], ..all() });
    assert_eq!(then, "from ready to dispatched 34 s: a pause held it for 33 s");
    assert_eq!(
        summary[1..],
        [
            "A pause of the task \"a\" that ann made at 2026-11-29T16:59:55Z held it for 33 s, until bob lifted it at 2026-11-29T17:00:33.9Z."
        ]
    );
    let (then, _) = told("", Past { pauses: vec![pause(0, 4_000)], ..all() });
    assert_eq!(
        then,
        "from ready to dispatched 34 s: a pause held it for 4 s; for the rest no worker was free for it, or no scheduler ran; records do not keep which"
    );
}

#[test]
fn later_runs_and_failed_nodes_are_named() {
    let id = |number| InstanceId::new(PartitionId(43), number);
    let rerun = |number, run, state| Rerun { id: id(number), run, state };
    let story = Story::new(Origin::Schedule)
        .step(0, State::Running, Cause::Divided)
        .step(5_000, State::Failed, Cause::PartsEnded)
        .says(None, "load");
    let past = Past {
        reruns: vec![rerun(20, 2, State::Failed), rerun(30, 3, State::Running)],
        failed_nodes: vec![("load".into(), id(18))],
        ..Past::default()
    };
    assert_eq!(
        story.explained_with(&definition(""), 9_999, Live::default(), past).summary,
        [
            "It failed without an attempt, 5 s after its fire time: 5 s running its parts.",
            "All its parts had ended: load.",
            "Its node \"load\" failed, as instance 43-18.",
            "It was run again, as instance 43-30 (run 3, after 1 other run between), which is running.",
        ]
    );
    let past = Past { failed_nodes: (0..5).map(|number| ("n".into(), id(number))).collect(), ..Past::default() };
    assert_eq!(story.explained_with(&definition(""), 9_999, Live::default(), past).summary.last().expect("some"), "So did 2 others.");
}

/// By the very words that the core puts on record.
#[test]
fn what_kept_a_node_from_starting_is_told() {
    use punctual_core::workflow::{SkipReason, Unmet};
    let file = "tasks:\n  - name: w\n    trigger: manual\n    nodes:\n      - {name: load, command: x}\n      - {name: send, after: load, when: {node: load, \
                pointer: /left, less_than: 10}, command: x}\n";
    let read = read_text("t", file, &Zones::load()).unwrap_or_else(|problems| panic!("{problems}"));
    let definition = &read.tasks[0].definition;
    let graph = definition.workflow.as_ref().expect("it has nodes").graph();
    let (load, send) = (graph.node("load").expect("it is there"), graph.node("send").expect("it is there"));
    for (reason, expected) in [
        (SkipReason::UpstreamFailed(load), "its rule keeps it from that: upstream `load` failed."),
        (SkipReason::UpstreamSkipped(load), "its rule keeps it from that: upstream `load` was skipped."),
        (SkipReason::NoneFailed, "its rule keeps it from that: no upstream failed."),
        (SkipReason::NoneSucceeded, "its rule keeps it from that: no upstream succeeded."),
        (
            SkipReason::Condition(Unmet::NoResult),
            "its condition keeps it from that: its condition reads the result of `load`, and there is none.",
        ),
        (
            SkipReason::Condition(Unmet::NotJson),
            "its condition keeps it from that: its condition reads the result of `load`, which is no JSON.",
        ),
        (
            SkipReason::Condition(Unmet::NoValue),
            "its condition keeps it from that: its condition reads `/left` of the result of `load`, and there is nothing.",
        ),
        (
            SkipReason::Condition(Unmet::Differs { found: "12".into() }),
            "its condition keeps it from that: `/left` of the result of `load` is 12, and `less_than` does not hold.",
        ),
        (SkipReason::RunFailed(load), "the end of the run keeps it from that: the failure of `load` ended the run."),
        (SkipReason::RunCancelled, "the end of the run keeps it from that: the run was cancelled."),
    ] {
        let cause = if reason == SkipReason::RunCancelled { Cause::ParentEnded } else { Cause::NodeSkipped };
        let story = Story::new(Origin::Schedule).step(0, State::Skipped, cause).says(None, &reason.explain(graph, send)).with(|row| {
            row.part = Part::node(send.0);
            row.links = Some(Box::new(Links { parent: Some(InstanceId::new(PartitionId(43), 1)), ..Links::default() }));
        });
        let told = story.explained(definition, 1, Live::default()).summary.remove(1);
        assert_eq!(told, format!("It did not start: {expected}"));
    }
}
