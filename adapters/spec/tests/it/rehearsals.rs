//! How handlers behave in a rehearsal: read with the task, and no part of it.

use expect_test::{Expect, expect};
use punctual_core::time::Millis;
use punctual_spec::emit::to_yaml;
use punctual_spec::rehearsal::Rehearsal;
use punctual_spec::spec::TaskSpec;

use crate::{read, task};

fn rehearsal(fields: &str) -> Rehearsal {
    let text = task(&format!("trigger: manual\ncommand: x\n{fields}"));
    read(&text).unwrap_or_else(|problems| panic!("{problems}")).tasks[0].rehearsal.clone()
}

#[test]
fn what_is_left_out_is_harmless() {
    let nothing = rehearsal("");
    assert_eq!(nothing, Rehearsal::default());
    assert_eq!(rehearsal("rehearsal: {}"), nothing);
    assert_eq!((nothing.takes, nothing.fails_per_mille), ((Millis(1_000), Millis(5_000)), 10));
    assert_eq!((nothing.obeys_after, nothing.downstream), (Some(Millis::ZERO), None));
}

#[test]
fn every_field_is_read() {
    let all = rehearsal("rehearsal: {takes: [1s, 40s], fails: 0.5%, fails_for_good: true, stubborn: true, downstream: payments}");
    assert_eq!(all.takes, (Millis(1_000), Millis(40_000)));
    assert_eq!((all.fails_per_mille, all.fails_for_good, all.obeys_after), (5, true, None));
    assert_eq!(all.downstream.as_deref(), Some("payments"));
    let other = rehearsal("rehearsal: {takes: 2s, fails: 12, obeys_after: 3s, stubborn: false, downstream: 8080}");
    assert_eq!((other.takes, other.fails_per_mille), ((Millis(2_000), Millis(2_000)), 120));
    assert_eq!((other.obeys_after, other.downstream.as_deref()), (Some(Millis(3_000)), Some("8080")));
}

#[test]
fn defaults_are_filled_up_field_by_field() {
    let text = "defaults:\n  rehearsal: {takes: 9s, stubborn: true, downstream: erp}\ntasks:\n\
                - {name: a, trigger: manual, command: x}\n\
                - {name: b, trigger: manual, command: x, rehearsal: {fails: 3%, obeys_after: 1s}}\n\
                - {name: c, trigger: manual, command: x, rehearsal: {stubborn: false, downstream: ~}}\n";
    let file = read(text).unwrap();
    let seen: Vec<_> = file
        .tasks
        .iter()
        .map(|task| {
            let Rehearsal { takes, fails_per_mille, obeys_after, downstream, .. } = &task.rehearsal;
            (takes.1.0, *fails_per_mille, obeys_after.map(|after| after.0), downstream.as_deref())
        })
        .collect();
    assert_eq!(seen, [(9_000, 10, None, Some("erp")), (9_000, 30, Some(1_000), Some("erp")), (9_000, 10, Some(0), None)]);
}

fn refused(text: &str, expected: Expect) {
    match read(text) {
        Ok(file) => panic!("accepted: {file:?}"),
        Err(problems) => expected.assert_eq(&problems.to_string()),
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once_and_where() {
    let long = "x".repeat(129);
    refused(
        &format!(
            "defaults:\n  rehearsal: {{takes: never}}\ntasks:\n\
             - {{name: a, trigger: manual, command: x, rehearsal: {{takes: [40s, 1s], fails: 101%, fails_for_good: maybe, donwstream: y}}}}\n\
             - {{name: b, trigger: manual, command: x, rehearsal: {{takes: [1s], fails: -1, stubborn: true, obeys_after: 3s}}}}\n\
             - {{name: c, trigger: manual, command: x, rehearsal: {{takes: 0s, fails: 0.25%, obeys_after: 99999d, downstream: ''}}}}\n\
             - {{name: d, trigger: manual, command: x, rehearsal: {{takes: [1s, soon], fails: [], stubborn: 1, downstream: {long}}}}}\n\
             - {{name: e, trigger: {{cron: '61 * * * *'}}, command: x, rehearsal: 5s}}\n"
        ),
        expect![[r#"
            tasks.yaml:2:22: PUN-110 defaults.rehearsal.takes: `never`: it is not a duration: write numbers and units, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
                a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
            tasks.yaml:4:61: PUN-116 tasks[0].rehearsal.takes: the longest (1s) is shorter than the shortest (40s)
                the shortest first
            tasks.yaml:4:79: PUN-111 tasks[0].rehearsal.fails: `101%` is not a percentage
                a percentage from 0% to 100% with at most one decimal, such as 5% or 0.5%
            tasks.yaml:4:101: PUN-108 tasks[0].rehearsal.fails_for_good: `maybe` where a truth is wanted
                write true or false
            tasks.yaml:4:108: PUN-106 tasks[0].rehearsal: there is no field `donwstream`
                did you mean `downstream`? Allowed: takes, fails, fails_for_good, stubborn, obeys_after, downstream
            tasks.yaml:5:61: PUN-108 tasks[1].rehearsal.takes: a list of 1 where one or two durations are wanted
                a duration such as 2s, or a list of the shortest and the longest, such as [1s, 40s]
            tasks.yaml:5:74: PUN-111 tasks[1].rehearsal.fails: `-1` is not a percentage
                a percentage from 0% to 100% with at most one decimal, such as 5% or 0.5%
            tasks.yaml:5:94: PUN-116 tasks[1].rehearsal: what is `stubborn` obeys only the kill, and here it `obeys_after` a while
                keep one of stubborn, obeys_after
            tasks.yaml:6:61: PUN-110 tasks[2].rehearsal.takes: 0s is out of range
                1ms to 36600d
            tasks.yaml:6:72: PUN-111 tasks[2].rehearsal.fails: `0.25%` is not a percentage
                a percentage from 0% to 100% with at most one decimal, such as 5% or 0.5%
            tasks.yaml:6:92: PUN-110 tasks[2].rehearsal.obeys_after: 99999d is out of range
                0s to 36600d
            tasks.yaml:6:112: PUN-117 tasks[2].rehearsal.downstream: it is empty or has control characters
                a name of 1 to 128 characters, such as payments
            tasks.yaml:7:66: PUN-110 tasks[3].rehearsal.takes[1]: `soon`: it is not a duration: write numbers and units, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
                a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
            tasks.yaml:7:80: PUN-111 tasks[3].rehearsal.fails: a list is not a percentage
                a percentage from 0% to 100% with at most one decimal, such as 5% or 0.5%
            tasks.yaml:7:94: PUN-108 tasks[3].rehearsal.stubborn: `1` where a truth is wanted
                write true or false
            tasks.yaml:7:109: PUN-117 tasks[3].rehearsal.downstream: it has 129 characters
                a name of 1 to 128 characters, such as payments
            tasks.yaml:8:29: PUN-114 tasks[4].trigger.cron: `61` in the minute field is out of range: 0 to 59
            tasks.yaml:8:67: PUN-108 tasks[4].rehearsal: `5s` where a map is wanted
                a map with takes, fails, fails_for_good, stubborn, obeys_after, downstream
        "#]],
    );
}

#[test]
fn an_edit_of_it_alone_makes_no_new_version() {
    let with = |rehearsal: &str| {
        let text = task(&format!("trigger: {{fixed_rate: 10s}}\ncommand: echo hi\n{rehearsal}"));
        read(&text).unwrap().tasks.remove(0)
    };
    let (without, one) = (with(""), with("rehearsal: {takes: 9s, fails: 50%, downstream: payments}"));
    assert_ne!(without.rehearsal, one.rehearsal);
    assert_eq!((without.spec.to_json(), &without.definition), (one.spec.to_json(), &one.definition));
}

#[test]
fn neither_documents_nor_written_files_know_it() {
    let text = task("trigger: manual\ncommand: x\nrehearsal: {takes: 9s}");
    let specs: Vec<TaskSpec> = read(&text).unwrap().tasks.into_iter().map(|task| task.spec).collect();
    assert!(!specs[0].to_json().contains("rehearsal") && !to_yaml(&specs, &[]).contains("rehearsal"));
    let document = r#"{"name":"a","trigger":"manual","command":{"shell":"x"},"rehearsal":{}}"#;
    assert!(TaskSpec::from_json(document).is_err());
}
