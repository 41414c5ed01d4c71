//! What refines a trigger, in files and documents.

use std::sync::Arc;

use punctual_core::definition::Trigger;
use punctual_core::time::{Millis, Timestamp};
use punctual_spec::emit::to_yaml;
use punctual_spec::problem::Code;
use punctual_spec::spec::TaskSpec;

use crate::{read, task, zones};

const FILE: &str = r#"
calendars:
  cn-workdays: {exclude: [2027-01-01, 2027-02-07..2027-02-12, 2027-02-06], include: [2027-02-20]}
  empty: {}
defaults:
  trigger: {timezone: Asia/Shanghai, calendar: cn-workdays, jitter: 30s}
tasks:
  - name: all
    trigger:
      cron: "0 9 * * 1-5"
      starts_at: 2027-01-01
      ends_at: "2028-01-01T00:00:00+08:00"
      blackouts: [{from: "22:00", to: "06:00", days: [mon, tue-fri]}, {from: 2027-06-18T00:00:00, to: 2027-06-19T00:00:00}]
    command: x
  - name: rate
    trigger: {fixed_rate: 10m, starts_at: 2027-01-01T00:05:00Z}
    command: x
  - name: loop
    trigger: {fixed_delay: 10m}
    command: x
  - name: plain
    trigger: {cron: "0 9 * * *", calendar: null, jitter: 0s, blackouts: []}
    command: x
  - name: emptied
    trigger: {cron: "0 9 * * *", calendar: empty, jitter: 0s}
    command: x
  - name: by-hand
    trigger: manual
    command: x
"#;

#[test]
fn documents_hold_the_days_themselves_in_one_form() {
    let file = read(FILE).unwrap_or_else(|problems| panic!("{problems}"));
    let triggers: Vec<_> = file
        .tasks
        .iter()
        .map(|task| serde_json::from_str::<serde_json::Value>(&task.spec.to_json()).unwrap()["trigger"].to_string())
        .collect();
    let expected = [
        r#"{"cron":"0 9 * * 1-5","timezone":"Asia/Shanghai","starts_at":"2027-01-01T00:00:00","ends_at":"2027-12-31T16:00:00Z","calendar":{"exclude":["2027-01-01","2027-02-06..2027-02-12"],"include":["2027-02-20"]},"blackouts":[{"from":"22:00","to":"06:00","days":"mon-fri"},{"from":"2027-06-18T00:00:00","to":"2027-06-19T00:00:00"}],"jitter":"30s"}"#,
        r#"{"fixed_rate":"10m","starts_at":"2027-01-01T00:05:00Z","jitter":"30s"}"#,
        r#"{"fixed_delay":"10m"}"#,
        r#"{"cron":"0 9 * * *","timezone":"Asia/Shanghai"}"#,
        r#"{"cron":"0 9 * * *","timezone":"Asia/Shanghai"}"#,
        r#""manual""#,
    ];
    let parsed = |text: &&str| serde_json::from_str::<serde_json::Value>(text).unwrap().to_string();
    assert_eq!(triggers, expected.iter().map(parsed).collect::<Vec<_>>());
    for task in &file.tasks {
        let document = task.spec.to_json();
        let spec = TaskSpec::from_json(&document).unwrap();
        assert_eq!((spec.to_json(), &spec), (document, &task.spec));
        assert_eq!(spec.to_definition(zones()).unwrap().trigger, task.definition.trigger);
    }
    let specs: Vec<_> = file.tasks.iter().map(|task| task.spec.clone()).collect();
    let again = read(&to_yaml(&specs, &[])).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(again.tasks.into_iter().map(|task| task.spec).collect::<Vec<_>>(), specs);
}

#[test]
fn what_refines_nothing_stays_what_it_was_and_equal_timetables_are_shared() {
    let file = read(FILE).unwrap();
    let trigger = |index: usize| &file.tasks[index].definition.trigger;
    assert!(matches!(trigger(2), Trigger::FixedDelay { .. }));
    assert!(matches!(trigger(3), Trigger::Cron(_)) && matches!(trigger(4), Trigger::Cron(_)));
    let again = read(FILE).unwrap();
    match (trigger(0), &again.tasks[0].definition.trigger) {
        (Trigger::Timetable(one), Trigger::Timetable(other)) => assert!(Arc::ptr_eq(one, other)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn civil_times_are_those_of_the_zone() {
    let file = read(FILE).unwrap();
    let Trigger::Timetable(timetable) = &file.tasks[0].definition.trigger else { panic!() };
    let at = |text: &str| Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
    assert_eq!(timetable.window().starts_at, Some(at("2026-12-31T16:00:00Z")));
    assert_eq!(timetable.jitter(), Millis::from_secs(30));
    assert_eq!(timetable.next_after(at("2020-01-01T00:00:00Z")), Some(at("2027-01-04T01:00:00Z")), "New Year's Day is excluded");
    assert_eq!(timetable.next_after(at("2027-02-19T02:00:00Z")), Some(at("2027-02-20T01:00:00Z")), "a Saturday to work on");
    assert_eq!(timetable.next_after(at("2027-06-17T02:00:00Z")), Some(at("2027-06-21T01:00:00Z")), "a blacked-out Friday");
}

#[test]
fn what_makes_no_sense_is_refused_where_it_stands() {
    let cases = [
        (r#"trigger: {cron: "0 9 * * *", blackouts: [{from: "22:00", to: "22:00"}]}"#, Code::Conflict, "trigger.blackouts[0].to"),
        (r#"trigger: {cron: "0 9 * * *", blackouts: [{from: "25:00", to: "22:00"}]}"#, Code::Moment, "trigger.blackouts[0].from"),
        (r#"trigger: {cron: "0 9 * * *", blackouts: [{from: "22:00"}]}"#, Code::MissingField, "trigger.blackouts[0]"),
        (
            r#"trigger: {cron: "0 9 * * *", blackouts: [{from: "22:00", to: "23:00", days: monday}]}"#,
            Code::UnknownValue,
            "trigger.blackouts[0].days",
        ),
        (r#"trigger: {cron: "0 9 * * *", blackouts: [{from: 2027-01-02, to: 2027-01-01}]}"#, Code::Conflict, "trigger.blackouts"),
        (r#"trigger: {cron: "0 9 * * *", blackouts: [{from: 2027-01-01, to: "22:00"}]}"#, Code::Moment, "trigger.blackouts[0].to"),
        (
            r#"trigger: {cron: "0 9 * * *", blackouts: [{from: "00:00", to: "12:00"}, {from: "12:00", to: "24:00"}]}"#,
            Code::NeverFires,
            "trigger.blackouts",
        ),
        (r#"trigger: {cron: "0 23 * * *", blackouts: [{from: "22:00", to: "06:00"}]}"#, Code::NeverFires, "trigger.cron"),
        (
            r#"trigger: {cron: "0 9 * * *", starts_at: 2027-01-01T10:00:00, ends_at: 2027-01-02T09:00:00}"#,
            Code::NeverFires,
            "trigger.ends_at",
        ),
        (
            r#"trigger: {cron: "0 9 * * *", starts_at: 2027-01-01, ends_at: 2027-01-03, calendar: {exclude: [2027-01-01..2027-01-02]}}"#,
            Code::NeverFires,
            "trigger.cron",
        ),
        (r#"trigger: {cron: "0 9 * * *", starts_at: 2027-01-02, ends_at: 2027-01-01}"#, Code::Conflict, "trigger.ends_at"),
        (r#"trigger: {fixed_rate: 1m, starts_at: 2027-01-02, ends_at: 2027-01-02}"#, Code::Conflict, "trigger.ends_at"),
        (r#"trigger: {cron: "0 9 * * *", starts_at: 2027-02-30T00:00:00}"#, Code::Moment, "trigger.starts_at"),
        (r#"trigger: {cron: "0 9 * * *", calendar: {exclude: [2027-02-30]}}"#, Code::Moment, "trigger.calendar.exclude[0]"),
        (r#"trigger: {cron: "0 9 * * *", calendar: {exclude: [2027-02-12..2027-02-06]}}"#, Code::Moment, "trigger.calendar.exclude[0]"),
        (
            r#"trigger: {cron: "0 9 * * *", calendar: {exclude: [2027-02-06..2027-02-12], include: [2027-02-12]}}"#,
            Code::Calendar,
            "trigger.calendar",
        ),
        (r#"trigger: {cron: "0 9 * * *", calendar: {exclude: [2027-02-06..2047-02-12]}}"#, Code::Calendar, "trigger.calendar"),
        (r#"trigger: {cron: "0 9 * * *", calendar: holidays}"#, Code::Calendar, "trigger.calendar"),
        (r#"trigger: {cron: "0 9 * * *", jitter: 25h}"#, Code::Duration, "trigger.jitter"),
        (r#"trigger: {fixed_delay: 1m, jitter: 5s}"#, Code::Conflict, "trigger"),
        (r#"trigger: {delay: 1m, jitter: 5s}"#, Code::Conflict, "trigger"),
        (r#"trigger: {delay: 1m, starts_at: 2027-01-01}"#, Code::Conflict, "trigger"),
        (r#"trigger: {fixed_rate: 1m, calendar: {exclude: [2027-01-01]}}"#, Code::Conflict, "trigger"),
    ];
    for (trigger, code, field) in cases {
        let problems = read(&task(&format!("{trigger}\ncommand: x"))).expect_err(trigger);
        let [problem] = problems.problems.as_slice() else { panic!("{trigger}: {problems}") };
        assert_eq!((problem.code, problem.field.as_str()), (code, format!("tasks[0].{field}").as_str()), "{trigger}: {problem}");
        assert!(problem.help.is_some(), "{trigger}: {problem}");
    }
}

#[test]
fn an_unknown_calendar_comes_with_the_nearest_name() {
    let text = FILE.replace("calendar: empty", "calendar: cn-workday");
    let problems = read(&text).unwrap_err();
    assert_eq!(problems.problems[0].help.as_deref(), Some("did you mean `cn-workdays`?"), "{problems}");
}

#[test]
fn a_calendar_that_is_refused_is_said_once_and_calendars_stand_above() {
    let text = FILE.replace("include: [2027-02-20]", "include: [2027-02-08]");
    let problems = read(&text).unwrap_err();
    assert_eq!(problems.count(), 1, "{problems}");
    assert_eq!((problems.problems[0].code, problems.problems[0].field.as_str()), (Code::Calendar, "calendars.cn-workdays"));
    let below = "tasks:\n- {name: a, trigger: manual, command: x}\ncalendars: {a: {exclude: [2027-01-01]}}\n";
    assert_eq!(read(below).unwrap_err().problems[0].code, Code::Conflict);
}

#[test]
fn a_stored_document_gets_the_same_verdict() {
    for (trigger, code) in [
        (r#"{"fixed_delay":"1m","jitter":"5s"}"#, Code::Conflict),
        (r#"{"delay":"1m","starts_at":"2027-01-01T00:00:00Z"}"#, Code::Conflict),
        (r#"{"cron":"0 9 * * *","calendar":{"exclude":["2027-01-01"],"include":["2027-01-01"]}}"#, Code::Calendar),
        (r#"{"cron":"0 9 * * *","calendar":"cn-workdays"}"#, Code::Document),
        (r#"{"cron":"0 9 * * *","blackouts":[{"from":"22:00","to":"22:00"}]}"#, Code::Document),
        (r#"{"cron":"0 9 * * *","jitter":"2d"}"#, Code::Duration),
    ] {
        let document = format!(r#"{{"name":"a","trigger":{trigger},"command":{{"argv":["x"]}}}}"#);
        let findings = punctual_spec::decode(&document, zones()).expect_err(trigger);
        assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [code], "{trigger}");
    }
}
