//! `punctual cron explain`.

use expect_test::expect;
use serde_json::Value;

use crate::{check, punctual, repository};

#[test]
fn clock_changes_are_marked() {
    let after = "2026-03-06T12:00:00Z";
    check(
        &["cron", "explain", "0 2 * * *", "--tz", "America/New_York", "--after", after, "--count", "3"],
        "",
        expect![[r#"
        0 2 * * *  in America/New_York (tzdata [TZDATA])
        at 02:00 every day

        local time              offset     UTC
        Sat 2026-03-07 02:00:00 -05:00     2026-03-07T07:00:00Z
        Sun 2026-03-08 03:00:00 -04:00     2026-03-08T07:00:00Z  after the gap
        Mon 2026-03-09 02:00:00 -04:00     2026-03-09T06:00:00Z
        exit code 0
    "#]],
    );
    let after = "2026-10-31T00:00:00-04:00";
    let arguments = ["cron", "explain", "30 1 * * *", "--tz", "America/New_York", "--after", after, "--count", "3", "--overlap", "both"];
    check(
        &arguments,
        "",
        expect![[r#"
        30 1 * * *  in America/New_York (tzdata [TZDATA])
        at 01:30 every day

        local time              offset     UTC
        Sat 2026-10-31 01:30:00 -04:00     2026-10-31T05:30:00Z
        Sun 2026-11-01 01:30:00 -04:00     2026-11-01T05:30:00Z  first pass
        Sun 2026-11-01 01:30:00 -05:00     2026-11-01T06:30:00Z  second pass
        exit code 0
    "#]],
    );
}

#[test]
fn the_answer_is_there_as_json() {
    let arguments =
        ["cron", "explain", "30 1 * * *", "--tz", "America/New_York", "--after", "2026-10-31T12:00:00Z", "--count", "2", "--json"];
    check(
        &arguments,
        "",
        expect![[r#"
            {
              "expression": "30 1 * * *",
              "dialect": "unix5",
              "timezone": "America/New_York",
              "tzdata": "[TZDATA]",
              "description": "at 01:30 every day",
              "next": [
                "2026-11-01T05:30:00Z",
                "2026-11-02T06:30:00Z"
              ],
              "occurrences": [
                {
                  "utc": "2026-11-01T05:30:00Z",
                  "local": "2026-11-01T01:30:00",
                  "offset": "-04:00",
                  "mark": "first_pass"
                },
                {
                  "utc": "2026-11-02T06:30:00Z",
                  "local": "2026-11-02T01:30:00",
                  "offset": "-05:00",
                  "mark": "normal"
                }
              ]
            }
            exit code 0
        "#]],
    );
}

#[test]
fn a_refusal_says_what_to_do() {
    check(
        &["cron", "explain", "0 25 * * *", "--tz", "Asia/Mumbai"],
        "",
        expect![[r#"
        exit code 2
        --- stderr
        PUN-114: `25` in the hour field is out of range: 0 to 23
        PUN-115: there is no time zone `Asia/Mumbai` in tzdata [TZDATA]
            did you mean `Asia/Kolkata`?
    "#]],
    );
    check(
        &["cron", "explain", "-1 * * * *", "--json"],
        "",
        expect![[r#"
        {
          "error": {
            "code": "PUN-114",
            "help": null,
            "message": "`-1` in the minute field is not understood: use `*`, a number, a range `a-b`, a step `*/n`, or a list of these"
          }
        }
        exit code 2
        --- stderr
        PUN-114: `-1` in the minute field is not understood: use `*`, a number, a range `a-b`, a step `*/n`, or a list of these
    "#]],
    );
    check(
        &["cron", "explain", "@daily", "--gap", "later"],
        "",
        expect![[r#"
        exit code 2
        --- stderr
        error: invalid value 'later' for '--gap <GAP>'
          [possible values: after_gap, skip, shift_forward]

          tip: a similar value exists: 'after_gap'

        For more information, try '--help'.
    "#]],
    );
    check(
        &["cron", "explain", "@daily", "--after", "yesterday"],
        "",
        expect![[r#"
        exit code 2
        --- stderr
        error: invalid value 'yesterday' for '--after <INSTANT>': failed to parse four digit integer as year: invalid digit, expected 0-9 but got y

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn a_schedule_may_have_an_end() {
    check(
        &["cron", "explain", "0 0 0 1 1 ? 2026", "--after", "2026-01-01T00:00:00Z"],
        "",
        expect![[r#"
        0 0 0 1 1 ? 2026  in UTC (tzdata [TZDATA])
        at 00:00 on day 1 of the month in January in 2026

        never after 2026-01-01T00:00:00Z
        exit code 0
    "#]],
    );
}

#[test]
fn every_row_of_the_corpus_is_answered() {
    let text = std::fs::read_to_string(repository().join("core/tests/data/cron.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    // A zero character can't be given on a command line.
    for row in rows.iter().filter(|row| !row["expr"].as_str().unwrap().contains('\0') && !row["tz"].as_str().unwrap().contains('\0')) {
        let field = |name: &str| row[name].as_str().unwrap();
        let count = row["expect"].as_array().map_or(1, Vec::len).max(1).to_string();
        let arguments = [
            "cron",
            "explain",
            field("expr"),
            "--tz",
            field("tz"),
            "--dialect",
            field("dialect"),
            "--after",
            field("after"),
            "--count",
            &count,
            "--json",
        ];
        let run = punctual(&arguments, "");
        let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}: {}{}", row["id"], run.stdout, run.stderr));
        if row["expect"]["error"] == true {
            assert!(run.code == Some(2) && answer["error"]["message"].is_string() && !run.stderr.is_empty(), "{}", row["id"]);
        } else {
            assert_eq!((run.code, &answer["next"]), (Some(0), &row["expect"]), "{}", row["id"]);
        }
    }
}

const REFINED: &str = r#"
calendars:
  cn-workdays: {exclude: [2027-02-06..2027-02-12], include: [2027-02-20]}
tasks:
  - name: settle
    trigger:
      cron: "0 9,23 * * 1-5"
      timezone: Asia/Shanghai
      calendar: cn-workdays
      ends_at: 2027-02-23
      blackouts: [{from: "22:00", to: "06:00"}]
      jitter: 30s
    command: "true"
  - name: beat
    trigger: {fixed_rate: 10m, starts_at: 2027-02-20T00:05:00Z}
    command: "true"
"#;

#[test]
fn a_task_of_a_file_is_shown_with_what_it_leaves_out() {
    let arguments = ["cron", "explain", "--after", "2027-02-18T12:00:00Z", "--task", "-", "settle"];
    check(
        &arguments,
        REFINED,
        expect![[r#"
        settle: 0 9,23 * * 1-5  in Asia/Shanghai (tzdata [TZDATA])
          until 2027-02-23T00:00:00 (exclusive)
          not on 2027-02-06..2027-02-12
          also on 2027-02-20
          blackout 22:00 to 06:00
          each start is put off by up to 30s

        local time              offset     UTC
        Thu 2027-02-18 23:00:00 +08:00     2027-02-18T15:00:00Z  left out: blacked out
        Fri 2027-02-19 09:00:00 +08:00     2027-02-19T01:00:00Z
        Fri 2027-02-19 23:00:00 +08:00     2027-02-19T15:00:00Z  left out: blacked out
        Sat 2027-02-20 09:00:00 +08:00     2027-02-20T01:00:00Z  included day
        Sat 2027-02-20 23:00:00 +08:00     2027-02-20T15:00:00Z  left out: blacked out
        Mon 2027-02-22 09:00:00 +08:00     2027-02-22T01:00:00Z
        Mon 2027-02-22 23:00:00 +08:00     2027-02-22T15:00:00Z  left out: blacked out
        exit code 0
    "#]],
    );
    let arguments = ["cron", "explain", "--after", "2027-02-04T12:00:00Z", "--count", "3", "--json", "--task", "-", "settle"];
    check(
        &arguments,
        REFINED,
        expect![[r#"
        {
          "task": "settle",
          "enabled": true,
          "tzdata": "[TZDATA]",
          "trigger": {
            "blackouts": [
              {
                "from": "22:00",
                "to": "06:00"
              }
            ],
            "calendar": {
              "exclude": [
                "2027-02-06..2027-02-12"
              ],
              "include": [
                "2027-02-20"
              ]
            },
            "cron": "0 9,23 * * 1-5",
            "ends_at": "2027-02-23T00:00:00",
            "jitter": "30s",
            "timezone": "Asia/Shanghai"
          },
          "after": "2027-02-04T12:00:00Z",
          "next": [
            {
              "count": 1,
              "fires": false,
              "left_out": "blacked_out",
              "local": "2027-02-04T23:00:00",
              "mark": "normal",
              "offset": "+08:00",
              "until": "2027-02-04T15:00:00Z",
              "utc": "2027-02-04T15:00:00Z"
            },
            {
              "fires": true,
              "included_day": false,
              "local": "2027-02-05T09:00:00",
              "mark": "normal",
              "offset": "+08:00",
              "utc": "2027-02-05T01:00:00Z"
            },
            {
              "count": 1,
              "fires": false,
              "left_out": "blacked_out",
              "local": "2027-02-05T23:00:00",
              "mark": "normal",
              "offset": "+08:00",
              "until": "2027-02-05T15:00:00Z",
              "utc": "2027-02-05T15:00:00Z"
            }
          ]
        }
        exit code 0
    "#]],
    );
    let arguments = ["cron", "explain", "--after", "2027-02-04T12:00:00Z", "--count", "2", "--task", "-", "beat"];
    check(
        &arguments,
        REFINED,
        expect![[r#"
        beat: every 10m (tzdata [TZDATA])
          from 2027-02-20T00:05:00Z

        local time              offset     UTC
                                           2027-02-20T00:05:00Z
                                           2027-02-20T00:15:00Z
        exit code 0
    "#]],
    );
    let arguments = ["cron", "explain", "--task", "-", "other"];
    check(
        &arguments,
        REFINED,
        expect![[r#"
        exit code 2
        --- stderr
        - has no task "other"; it has: settle, beat
    "#]],
    );
}
