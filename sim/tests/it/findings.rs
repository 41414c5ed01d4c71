//! Each rule, with a history that it speaks about and one on which it is silent.

use expect_test::{Expect, expect};
use punctual_core::instance::{Cause, State};
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_sim::rehearsal::Options;
use punctual_sim::report::{Report, Severity};

use crate::told::{HOUR, MINUTE, SECOND, Story};

/// What the report says by this rule.
fn check(story: &Story, rule: &str, expected: Expect) {
    let report = story.report();
    let said = report.findings.iter().filter(|finding| finding.rule == rule).map(|finding| {
        let about = finding.about.as_deref().unwrap_or("the file");
        let field = finding.field.as_deref().unwrap_or("-");
        format!("{} [{field}] {about}: {}\n-> {}\n", finding.severity.name(), finding.what, finding.advice)
    });
    expected.assert_eq(&said.collect::<String>());
}

fn is_silent(story: &Story, rule: &str) {
    let report = story.report();
    assert!(!says(&report, rule), "{:#?}", report.findings);
}

fn says(report: &Report, rule: &str) -> bool {
    report.findings.iter().any(|finding| finding.rule == rule)
}

fn one(fields: &str) -> Story {
    Story::of(&format!("tasks:\n- name: task\n  command: x\n  {}\n", fields.replace('\n', "\n  ")), 1)
}

/// Runs one after the other, each as long as this: fires every minute wait for the one before.
fn queueing(takes_ms: u64) -> Story {
    let mut story = one("trigger: {fixed_rate: 1m}\nconcurrency: {max_queue: 20}");
    let mut free_ms = 0;
    for minute in 1..30 {
        let fire_ms = minute * MINUTE;
        if free_ms <= fire_ms {
            let fire = story.fired("task", fire_ms);
            story.succeeds(fire, fire_ms, fire_ms + takes_ms);
            free_ms = fire_ms + takes_ms;
        } else {
            let fire = story.made("task", fire_ms, fire_ms, State::Waiting, Cause::LimitReached);
            story.becomes(fire, free_ms, State::Created, Cause::SlotFree);
            story.succeeds(fire, free_ms, free_ms + takes_ms);
            free_ms += takes_ms;
        }
    }
    story
}

#[test]
fn a_task_that_can_not_keep_up() {
    check(
        &queueing(100 * SECOND),
        "overload",
        expect![[r#"
            serious [concurrency.max_running] task: It fires every 1m and a run takes 1m 40s on average, up to 1m 40s, but only one may be in progress: 28 fires waited, and so they pile up without end. The longest wait was 18m 40s.
            -> Use `max_running: 4` if runs may overlap; if not, fire less often than a run takes. `when_full: discard` ends the queue, and leaves out the fire times that come too soon.
        "#]],
    );
    let mut full = queueing(100 * SECOND);
    full.dropped("task", 31 * MINUTE, Outcome::QueueFull, 12);
    check(
        &full,
        "overload",
        expect![[r#"
            serious [concurrency.max_running] task: It fires every 1m and a run takes 1m 40s on average, up to 1m 40s, but only one may be in progress: its queue of 20 fills up, and 12 of 59 fire times (20%) were discarded. The longest wait was 18m 40s.
            -> Use `max_running: 4` if runs may overlap; if not, fire less often than a run takes. `when_full: discard` ends the queue, and leaves out the fire times that come too soon.
        "#]],
    );
    assert!(!says(&full.report(), "discarded") && !says(&full.report(), "starved"), "one cause is said once");
    is_silent(&queueing(40 * SECOND), "overload");
}

#[test]
fn runs_that_are_often_longer_than_the_interval() {
    let often = |longer: u64| {
        let mut story = one("trigger: {fixed_rate: 2m}");
        for fire in 1..=20 {
            let takes_ms = if fire <= longer { 150 * SECOND } else { 30 * SECOND };
            let (fire_ms, state, cause) = (fire * 2 * MINUTE, State::Waiting, Cause::LimitReached);
            let instance = story.made("task", fire_ms, fire_ms, state, cause);
            story.becomes(instance, fire_ms + 20 * SECOND, State::Created, Cause::SlotFree);
            story.succeeds(instance, fire_ms + 20 * SECOND, fire_ms + 20 * SECOND + takes_ms);
        }
        story
    };
    check(
        &often(5),
        "runs-over-interval",
        expect![[r#"
            warning [concurrency.max_running] task: It fires every 2m and a run takes 1m on average, up to 2m 30s: 5 of 20 runs (25%) took longer than the interval, and 20 fires had to wait, up to 20s.
            -> Use `max_running: 2` if runs may overlap; if not, leave more time between fires.
        "#]],
    );
    is_silent(&often(1), "runs-over-interval");
}

#[test]
fn fire_times_that_are_discarded() {
    let discarding = |count: u64| {
        let mut story = one("trigger: {fixed_rate: 1m}\nconcurrency: {when_full: discard}");
        let fire = story.fired("task", MINUTE);
        story.succeeds(fire, MINUTE, 3 * MINUTE);
        story.dropped("task", 2 * MINUTE, Outcome::LimitReached, count);
        story
    };
    check(
        &discarding(6),
        "discarded",
        expect![[r#"
            note [concurrency.max_running] task: 6 of 59 fire times (10%) were discarded because another run was still in progress. Runs take up to 2m.
            -> That is what `when_full: discard` is for. If each fire time counts, raise `max_running`, or fire less often.
        "#]],
    );
    check(
        &discarding(30),
        "discarded",
        expect![[r#"
            note [concurrency.max_running] task: 30 of 59 fire times (50%) were discarded because another run was still in progress. Runs take up to 2m.
            -> That is what `when_full: discard` is for. If each fire time counts, raise `max_running`, or fire less often.
        "#]],
    );
    is_silent(&discarding(2), "discarded");
    let mut full = one("trigger: manual\nconcurrency: {max_queue: 1}");
    full.dropped("task", MINUTE, Outcome::QueueFull, 3);
    check(
        &full,
        "discarded",
        expect![[r#"
        serious [concurrency.max_queue] task: 3 of 3 fire times (100%) were discarded because the queue was full. Runs take up to 0ms.
        -> Raise `max_queue` if these are peaks, or `max_running` if it is always so.
    "#]],
    );
}

#[test]
fn runs_that_are_replaced() {
    let replacing = |replaced: u64| {
        let mut story = one("trigger: {fixed_rate: 1m}\nconcurrency: {when_full: replace}");
        for minute in 1..=20 {
            let fire = story.fired("task", minute * MINUTE);
            if minute <= replaced {
                story.begins(fire, minute * MINUTE);
                story.handler_ends(fire, (minute + 1) * MINUTE, Some(End::Cancelled));
                story.becomes(fire, (minute + 1) * MINUTE, State::Cancelled, Cause::Replaced);
            } else {
                story.succeeds(fire, minute * MINUTE, minute * MINUTE + SECOND);
            }
        }
        story
    };
    check(
        &replacing(4),
        "replaced",
        expect![[r#"
            warning [concurrency.max_running] task: 4 of 20 instances (20%) were cancelled because the next one came. Runs take up to 1m.
            -> That is what `when_full: replace` is for, but a run that is always replaced never ends: raise `max_running`, or fire less often than a run takes.
        "#]],
    );
    is_silent(&replacing(0), "replaced");
}

#[test]
fn tasks_that_never_ran() {
    let mut skipping = one("trigger: {fixed_rate: 1m}\nmisfire: skip");
    skipping.dropped("task", 30 * MINUTE, Outcome::MisfireSkipped, 60);
    check(
        &skipping,
        "never-ran",
        expect![[r#"
            serious [misfire] task: Not one of its 59 fire times led to a run.
            -> See what became of them below, and change the policy that dropped them.
        "#]],
    );
    check(
        &one("trigger: {cron: '0 2 * * *'}"),
        "never-due",
        expect![[r#"
            note [trigger] task: It has no fire time in this rehearsal of 1 hour, so nothing is known of it.
            -> Rehearse more hours, or begin nearer to its fire time with --start.
        "#]],
    );
    is_silent(&one("trigger: {fixed_rate: 1m}\nenabled: false"), "never-due");
    let ran = queueing(SECOND);
    is_silent(&ran, "never-ran");
    is_silent(&ran, "never-due");
}

#[test]
fn instances_that_fail_for_good() {
    let failing = |fields: &str, failures: u64| {
        let mut story = one(&format!("trigger: {{fixed_rate: 1m}}\n{fields}"));
        for minute in 1..=40 {
            let fire = story.fired("task", minute * MINUTE);
            if minute <= failures {
                story.fails_for_good(fire, minute * MINUTE, minute * MINUTE + SECOND);
            } else {
                story.succeeds(fire, minute * MINUTE, minute * MINUTE + SECOND);
            }
        }
        story
    };
    check(
        &failing("", 4),
        "no-retries",
        expect![[r#"
        warning [retry.max_attempts] task: 4 of 40 instances (10%) failed for good: it has no retries, so the first failure is final.
        -> Set `max_attempts` to 3 or more with a `first` wait that outlasts a hiccup.
    "#]],
    );
    check(
        &failing("retry: {max_attempts: 3}", 4),
        "retries-exhausted",
        expect![[r#"
        warning [retry] task: 4 of 40 instances (10%) failed for good after up to 3 attempts.
        -> Raise `max_attempts` or the waits, so that retries outlast an outage; or see why it fails so often.
    "#]],
    );
    for rule in ["no-retries", "retries-exhausted"] {
        is_silent(&failing("", 1), rule);
    }
    let unheard = "retry: {max_attempts: 3}\nidempotent: false";
    check(
        &failing(unheard, 4),
        "retries-without-effect",
        expect![[r#"
        warning [idempotent] task: 4 of 40 instances failed at the first attempt and were not tried again: it has 3 attempts, but a task that is not idempotent is never repeated.
        -> Have the handler use its idempotency key and set `idempotent: true`; or say what is so, with `max_attempts: 1`.
    "#]],
    );
    is_silent(&failing(unheard, 4), "retries-exhausted");
    is_silent(&failing(unheard, 0), "retries-without-effect");
    is_silent(&failing("retry: {max_attempts: 1}\nidempotent: false", 4), "retries-without-effect");
}

#[test]
fn dead_letters_after_a_lost_worker() {
    let losing = |fields: &str, state, cause| {
        let mut story = one(&format!("trigger: {{fixed_rate: 10m}}\n{fields}"));
        let fire = story.fired("task", 10 * MINUTE);
        story.is_lost(fire, 10 * MINUTE, 11 * MINUTE, state, cause);
        story
    };
    let lost = losing("idempotent: false", State::DeadLettered, Cause::OutcomeUnknown);
    check(
        &lost,
        "dead-letters-after-loss",
        expect![[r#"
            warning [idempotent] task: 1 of 1 instance ended in the dead letters, for a person to look at: a worker was lost while it may have been at work, and the task is not idempotent.
            -> Have the handler use its idempotency key and set `idempotent: true`; until then make sure that somebody looks at the dead letters.
        "#]],
    );
    is_silent(&losing("idempotent: true", State::Retrying, Cause::WorkerLost), "dead-letters-after-loss");
}

#[test]
fn timeouts_that_are_shorter_than_runs() {
    let timing_out = |after: &str, count: u64| {
        let mut story = one(&format!("trigger: {{fixed_rate: 5m}}\ntimeout: {after}\nrehearsal: {{takes: [20s, 2m]}}"));
        for fire in 1..=10 {
            let fire_ms = fire * 5 * MINUTE;
            let instance = story.fired("task", fire_ms);
            if fire <= count {
                story.begins(instance, fire_ms);
                story.handler_ends(instance, fire_ms + MINUTE, Some(End::TimedOut));
                story.becomes(instance, fire_ms + MINUTE, State::TimedOut, Cause::TimedOut);
            } else {
                story.succeeds(instance, fire_ms, fire_ms + MINUTE);
            }
        }
        story
    };
    check(
        &timing_out("1m", 5),
        "timeout-too-short",
        expect![[r#"
            serious [timeout.after] task: It may run for 1m, and by its `rehearsal.takes` a run takes 20s to 2m, 60% of them longer than that; 5 of 10 attempts ran out of time.
            -> Raise `timeout.after` well above the longest run, to 4m or so, or correct `rehearsal.takes`.
        "#]],
    );
    assert_eq!(timing_out("90s", 5).report().findings[0].severity, Severity::Warning);
    is_silent(&timing_out("1m", 0), "timeout-too-short");
    is_silent(&timing_out("5m", 5), "timeout-too-short");
}

#[test]
fn a_deadline_that_no_takeover_can_meet() {
    let late = |deadline: &str, count: u64| {
        let mut story = one(&format!("trigger: {{fixed_rate: 5m}}\nmisfire: {{deadline: {deadline}}}"));
        let fire = story.fired("task", 5 * MINUTE);
        story.succeeds(fire, 5 * MINUTE, 6 * MINUTE);
        if count > 0 {
            story.dropped("task", 10 * MINUTE, Outcome::DeadlinePassed, count);
        }
        story
    };
    check(
        &late("6s", 2),
        "misfire-deadline-too-short",
        expect![[r#"
            warning [misfire.deadline] task: Its deadline of 6s gave up 2 fire times: it is over before the 15s in which another scheduler takes over.
            -> Set the deadline to 30s or more.
        "#]],
    );
    is_silent(&late("6s", 0), "misfire-deadline-too-short");
    is_silent(&late("5m", 2), "misfire-deadline-too-short");
}

#[test]
fn instances_that_starve() {
    let waiting = |wait_ms: u64| {
        let mut story = one("trigger: {fixed_rate: 5m}\npriority: low");
        let fire = story.fired("task", 5 * MINUTE);
        story.succeeds(fire, 5 * MINUTE + wait_ms, 5 * MINUTE + wait_ms + SECOND);
        story
    };
    check(
        &waiting(11 * MINUTE),
        "starved",
        expect![[r#"
            warning [-] task: An instance waited 11m for its first worker; 99 of a hundred waited 11m at most, half 11m.
            -> The workers had room: see in the timeline what was wrong then.
        "#]],
    );
    is_silent(&waiting(9 * MINUTE), "starved");
}

#[test]
fn who_takes_all_the_slots_is_named() {
    let yaml = "tasks:\n- {name: short, trigger: {fixed_rate: 5m}, command: x}\n- {name: long, trigger: manual, command: x}\n";
    let mut options = Options { seed: 1, hours: 1, families: Default::default(), ..Options::default() };
    (options.shape.workers, options.shape.slots) = (1, 1);
    let mut story = Story::with(yaml, options);
    let long = story.made("long", MINUTE, MINUTE, State::Created, Cause::Triggered);
    story.succeeds(long, MINUTE, 30 * MINUTE);
    let short = story.fired("short", 5 * MINUTE);
    story.succeeds(short, 30 * MINUTE, 31 * MINUTE);
    check(
        &story,
        "starved",
        expect![[r#"
        warning [-] short: An instance waited 25m for its first worker; 99 of a hundred waited 25m at most, half 25m. All the workers have 1 slot, and they were taken meanwhile, most of the time by `long`.
        -> Run more workers, or give them more slots: --workers and --slots show here how many it takes.
    "#]],
    );
}

#[test]
fn runs_that_were_cut_short_say_nothing_about_how_long_a_run_takes() {
    let mut story = queueing(100 * SECOND);
    for minute in 31..50 {
        let fire = story.fired("task", minute * MINUTE);
        story.begins(fire, minute * MINUTE);
        story.handler_ends(fire, minute * MINUTE + 1, None);
    }
    let report = story.report();
    let overload = report.findings.iter().find(|finding| finding.rule == "overload").expect("it can't keep up");
    assert!(overload.what.contains("1m 40s on average"), "{}", overload.what);
    assert!(overload.advice.contains("`max_running: 4`"), "{}", overload.advice);
}

#[test]
fn one_run_is_judged_by_what_the_file_says() {
    let timed_out = |takes: &str| {
        let mut story = one(&format!("trigger: {{fixed_rate: 50m}}\ntimeout: 1m\nrehearsal: {{takes: {takes}}}"));
        let instance = story.fired("task", 50 * MINUTE);
        story.begins(instance, 50 * MINUTE);
        story.handler_ends(instance, 51 * MINUTE, Some(End::TimedOut));
        story.becomes(instance, 51 * MINUTE, State::TimedOut, Cause::TimedOut);
        story
    };
    is_silent(&timed_out("[1s, 61s]"), "timeout-too-short");
    assert_eq!(timed_out("[1s, 70s]").report().findings[0].severity, Severity::Warning);
}

#[test]
fn instances_that_are_left_over() {
    let leaving = |is_left: bool| {
        let mut story = one("trigger: {fixed_rate: 50m}");
        story.plan.horizon_ms += 10 * MINUTE;
        let fire = story.fired("task", 50 * MINUTE);
        if !is_left {
            story.succeeds(fire, 50 * MINUTE, 51 * MINUTE);
        }
        story
    };
    check(
        &leaving(true),
        "unfinished",
        expect![[r#"
        warning [-] task: 1 instance from before the healing had not ended 10m after it.
        -> See in its line of the timeline when it fell behind.
    "#]],
    );
    is_silent(&leaving(false), "unfinished");
}

/// A day that begins at this instant, with a cron task of a zone.
fn night(starts_at: i64, trigger: &str) -> Story {
    let options = Options { hours: 24, families: Default::default(), starts_at, ..Options::default() };
    Story::with(&format!("tasks:\n- {{name: task, trigger: {{timezone: Europe/Berlin, {trigger}}}, command: x}}\n"), options)
}

#[test]
fn nights_on_which_the_clock_is_moved() {
    // 2026-03-29 and 2026-10-25, both of them a Sunday: begin at noon of the day before.
    let (spring, autumn) = (1_774_699_200_000, 1_792_843_200_000);
    check(
        &night(spring, "cron: '30 2 * * *'"),
        "daylight-gap",
        expect![[r#"
        note [trigger.gap] task: In Europe/Berlin the clock jumps on 2026-03-29 over a time at which it would fire: it fires once, right after the gap.
        -> If that is not what you mean, choose another `gap`, or an hour that is never left out.
    "#]],
    );
    check(
        &night(spring, "cron: '30 2 * * *', gap: skip"),
        "daylight-gap",
        expect![[r#"
        warning [trigger.gap] task: In Europe/Berlin the clock jumps on 2026-03-29 over a time at which it would fire: it does not fire that day.
        -> If that is not what you mean, choose another `gap`, or an hour that is never left out.
    "#]],
    );
    check(
        &night(autumn, "cron: '30 2 * * *', overlap: both"),
        "daylight-overlap",
        expect![[r#"
        note [trigger.overlap] task: In Europe/Berlin 02:30 comes twice on 2026-10-25, and it fires both times.
        -> If once is enough, use `overlap: first` or `last`.
    "#]],
    );
    for (begin, trigger) in [(spring, "cron: '30 4 * * *'"), (spring, "cron: '*/30 * * * *'"), (autumn, "cron: '30 2 * * *'")] {
        for rule in ["daylight-gap", "daylight-overlap"] {
            is_silent(&night(begin, trigger), rule);
        }
    }
    is_silent(&night(spring + 7 * 24 * HOUR as i64, "cron: '30 2 * * *'"), "daylight-gap");
}

/// A service that gets one call a minute, and then so many retries in one minute, of two tasks.
fn storm(retries: u64) -> Story {
    let yaml = "tasks:\n- {name: calm, trigger: {fixed_rate: 1m}, command: x, rehearsal: {downstream: bank}}\n\
        - {name: wild, trigger: manual, command: x, concurrency: {max_running: 50}, retry: {max_attempts: 50}, rehearsal: {downstream: bank}}\n";
    let mut story = Story::of(yaml, 1);
    for minute in 1..60 {
        let fire = story.fired("calm", minute * MINUTE);
        story.succeeds(fire, minute * MINUTE, minute * MINUTE + SECOND);
    }
    let fire = story.made("wild", 20 * MINUTE, 20 * MINUTE, State::Created, Cause::Triggered);
    for attempt in 0..retries {
        let at_ms = 20 * MINUTE + attempt * 500;
        story.fails(fire, at_ms, at_ms + 200, at_ms + 400);
    }
    story
}

#[test]
fn retries_that_come_down_on_a_service_all_at_once() {
    check(
        &storm(40),
        "retry-amplification",
        expect![[r#"
            warning [retry] bank: At 08:20 it got 41 calls in a minute, 39 of them retries; 1 is usual. Over the whole run it was called 1.7 times for each instance.
            -> Most of them come from `wild`: let it wait longer between attempts with `retry.first` and `cap`, and spread them with `jitter: full`.
        "#]],
    );
    is_silent(&storm(5), "retry-amplification");
    is_silent(&storm(25), "retry-amplification");
    let severity =
        |retries| storm(retries).report().findings.iter().find(|finding| finding.rule == "retry-amplification").unwrap().severity;
    assert_eq!((severity(40), severity(110)), (Severity::Warning, Severity::Serious));
}

#[test]
fn what_fails_by_itself_is_usual() {
    let usual = |fails: &str| {
        let yaml = format!(
            "tasks:\n- {{name: task, trigger: {{fixed_rate: 20s}}, command: x, retry: {{max_attempts: 9}}, \
             rehearsal: {{fails: {fails}, downstream: bank}}}}\n"
        );
        let mut story = Story::of(&yaml, 1);
        for fire in 3..170 {
            let instance = story.fired("task", fire * 20 * SECOND);
            story.succeeds(instance, fire * 20 * SECOND, fire * 20 * SECOND + SECOND);
        }
        story.report().downstreams[0].usual_per_minute
    };
    assert_eq!((usual("0%"), usual("40%")), (3, 5));
}

/// So many tasks at the full hour, on so few slots.
fn herd(tasks: usize, slots: u32) -> Story {
    let list: String = (0..tasks).map(|task| format!("- {{name: t{task:02}, trigger: {{cron: '0 * * * *'}}, command: x}}\n")).collect();
    let mut options = Options { hours: 2, families: Default::default(), ..Options::default() };
    (options.shape.workers, options.shape.slots) = (1, slots);
    let mut story = Story::with(&format!("tasks:\n{list}"), options);
    for task in 0..tasks {
        let fire = story.fired(&format!("t{task:02}"), HOUR);
        story.succeeds(fire, HOUR, HOUR + SECOND);
    }
    story
}

#[test]
fn many_tasks_in_the_same_second() {
    check(
        &herd(12, 4),
        "herd",
        expect![[r#"
        warning [trigger.cron] the file: 12 tasks fire in the same second, more than the 4 that run at once, 1 time in this run, first at 09:00: t00, t01, t02 and others.
        -> Spread them over minutes that nobody else uses, such as 7 and 23 in place of 0.
    "#]],
    );
    assert_eq!(herd(12, 64).report().findings[0].severity, Severity::Note);
    is_silent(&herd(9, 4), "herd");
}

#[test]
fn the_worst_comes_first() {
    let mut story = queueing(100 * SECOND);
    story.plan.tasks[0].handler.downstream = Some("bank".to_owned());
    let severities: Vec<Severity> =
        herd(12, 4).report().findings.iter().chain(&story.report().findings).map(|finding| finding.severity).collect();
    assert!(severities.contains(&Severity::Serious) && severities.contains(&Severity::Warning));
    assert!(story.report().findings.is_sorted_by_key(|finding| finding.severity));
}

#[test]
fn every_rule_is_on_the_page_about_rehearsals() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/rehearsal.md")).unwrap();
    let tests = std::fs::read_to_string(root.join("tests/it/findings.rs")).unwrap();
    let source = std::fs::read_to_string(root.join("src/report/rules.rs")).unwrap();
    // The names of rules are the only words with hyphens, or alone, that stand in quotes after a severity or an assignment.
    let rules: Vec<&str> =
        source.split("Severity::").skip(1).filter_map(|rest| rest.split('"').nth(1)).filter(|word| !word.contains(' ')).collect();
    assert!(rules.len() >= 12, "{rules:?}");
    for rule in rules {
        let is_rule = rule.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(!is_rule || page.contains(&format!("| `{rule}` |")), "{rule} is not in docs/rehearsal.md");
        assert!(!is_rule || tests.contains(&format!("\"{rule}\"")), "{rule} has no test");
    }
}
