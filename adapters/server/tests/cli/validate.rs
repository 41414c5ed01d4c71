//! `punctual validate`.

use expect_test::expect;
use serde_json::Value;

use crate::{check, punctual};

#[test]
fn a_good_file_is_good() {
    check(
        &["validate", "examples/quickstart.yaml"],
        "",
        expect![[r#"
        examples/quickstart.yaml: 11 tasks, no problems (tzdata [TZDATA])
        exit code 0
    "#]],
    );
    check(
        &["validate", "examples/quickstart.yaml", "--json"],
        "",
        expect![[r#"
        {
          "ok": true,
          "tzdata": "[TZDATA]",
          "files": [
            {
              "file": "examples/quickstart.yaml",
              "tasks": 11,
              "problems": [],
              "problems_left_out": 0
            }
          ]
        }
        exit code 0
    "#]],
    );
}

#[test]
fn findings_have_places_codes_and_help() {
    let text = "tasks:\n- {name: a, trigger: {cron: '0 25 * * *', timezone: Asia/Mumbai}, comand: x}\n";
    check(
        &["validate", "-"],
        text,
        expect![[r#"
            -:2:3: PUN-107 tasks[0]: the task runs nothing
                add one of command, http, handler, nodes
            -:2:29: PUN-114 tasks[0].trigger.cron: `25` in the hour field is out of range: 0 to 23
            -:2:53: PUN-115 tasks[0].trigger.timezone: there is no time zone `Asia/Mumbai` in tzdata [TZDATA]
                did you mean `Asia/Kolkata`?
            -:2:67: PUN-106 tasks[0]: there is no field `comand`
                did you mean `command`? Allowed: name, description, owner, enabled, trigger, after, command, http, handler, nodes, payload, payload_schema, misfire, concurrency, shards, map, retry, downstream, circuit_breaker, timeout, idempotent, priority, rate_limit, routing, group, group_limits, rehearsal
            -: 4 problems
            exit code 1
        "#]],
    );
    let run = punctual(&["validate", "-", "--json"], text);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &report["ok"]), (Some(1), &Value::Bool(false)));
    let problem = &report["files"][0]["problems"][0];
    assert_eq!((problem["code"].as_str(), problem["line"].as_u64(), problem["column"].as_u64()), (Some("PUN-107"), Some(2), Some(3)));
}

#[test]
fn a_ring_of_tasks_is_a_finding_and_a_task_of_another_file_is_none() {
    check(
        &["validate", "-"],
        "tasks:\n- {name: a, after: c, command: x}\n- {name: b, after: a, command: x}\n- {name: c, after: [elsewhere, b], command: x}\n",
        expect![[r#"
            -:4:32: PUN-152 tasks[2].after[1]: these tasks would fire each other for ever: `c`, then `a`, then `b`, then `c`
                take one of them out of another one's `after`
            -: 1 problem
            exit code 1
        "#]],
    );
    check(
        &["validate", "-"],
        "tasks:\n- {name: b, after: elsewhere, command: x}\n",
        expect![[r#"
        -: 1 task, no problems (tzdata [TZDATA])
        exit code 0
    "#]],
    );
}

#[test]
fn names_are_unique_over_files() {
    let text = "tasks:\n- {name: sweep, trigger: manual, command: x}\n";
    check(
        &["validate", "examples/quickstart.yaml", "-", "missing.yaml"],
        text,
        expect![[r#"
        examples/quickstart.yaml: 11 tasks, no problems (tzdata [TZDATA])
        -:2: PUN-113 tasks[0].name: two tasks are named "sweep": here and in examples/quickstart.yaml, line 25
            give each task a name of its own
        -: 1 problem
        missing.yaml: PUN-101: the file can't be read: No such file or directory (os error 2)
            check its name and its permissions
        missing.yaml: 1 problem
        exit code 1
    "#]],
    );
}
