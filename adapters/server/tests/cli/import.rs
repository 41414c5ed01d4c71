//! `punctual import crontab`.

use expect_test::expect;
use serde_json::Value;

use crate::{check, punctual};

const CRONTAB: &str = "MAILTO=ops\nCRON_TZ=Europe/Paris\n# Says the date\n0 5 * * * date +\\%F%one%two\n@reboot x\n";

#[test]
fn a_crontab_becomes_a_task_file() {
    check(
        &["import", "crontab", "-"],
        CRONTAB,
        expect![[r##"
            # Imported from the crontab crontab.
            # As under cron, runs may overlap, nothing is caught up or retried, and nothing is run twice. Change `defaults:` for better.
            # cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added
            # line 1: MAILTO is not carried over: output is kept with each run and shown there, it is not mailed
            # line 5: PUN-121: @reboot is not carried over: tasks fire at times; start such a command with the system
            tasks:
              - name: crontab-date
                description: "Says the date"
                trigger: {cron: "0 5 * * *", timezone: Europe/Paris}
                command:
                  shell: "date +%F"
                  stdin: |
                    one
                    two
                misfire: {action: skip}
                concurrency: {max_running: 100000}
                idempotent: false
            exit code 1
            --- stderr
            crontab: info: cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added
            crontab:1: warning: MAILTO is not carried over: output is kept with each run and shown there, it is not mailed
            crontab:5: error: PUN-121: @reboot is not carried over: tasks fire at times; start such a command with the system
        "##]],
    );
    let file = punctual(&["import", "crontab", "-"], CRONTAB).stdout;
    assert_eq!(punctual(&["validate", "-"], &file).code, Some(0));
}

#[test]
fn the_import_is_there_as_json() {
    check(
        &["import", "crontab", "-", "--json"],
        CRONTAB,
        expect![[r#"
            {
              "tasks": [
                {
                  "name": "crontab-date",
                  "description": "Says the date",
                  "trigger": {
                    "cron": "0 5 * * *",
                    "timezone": "Europe/Paris"
                  },
                  "command": {
                    "shell": "date +%F",
                    "stdin": "one\ntwo\n"
                  },
                  "misfire": {
                    "action": "skip"
                  },
                  "concurrency": {
                    "max_running": 100000
                  },
                  "idempotent": false
                }
              ],
              "notes": [
                {
                  "line": 0,
                  "severity": "info",
                  "text": "cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added"
                },
                {
                  "line": 1,
                  "severity": "warning",
                  "text": "MAILTO is not carried over: output is kept with each run and shown there, it is not mailed"
                },
                {
                  "line": 5,
                  "severity": "error",
                  "text": "PUN-121: @reboot is not carried over: tasks fire at times; start such a command with the system"
                }
              ]
            }
            exit code 1
            --- stderr
            crontab: info: cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added
            crontab:1: warning: MAILTO is not carried over: output is kept with each run and shown there, it is not mailed
            crontab:5: error: PUN-121: @reboot is not carried over: tasks fire at times; start such a command with the system
        "#]],
    );
}

#[test]
fn the_form_is_told_by_the_path_or_by_a_flag() {
    let user = |arguments: &[&str], input: &str| {
        let run = punctual(arguments, input);
        let answer: Value = serde_json::from_str(&run.stdout).unwrap();
        answer["tasks"][0]["command"]["user"].as_str().map(str::to_owned)
    };
    let line = "0 5 * * * root x\n";
    assert_eq!(user(&["import", "crontab", "-", "--json"], line), None);
    assert_eq!(user(&["import", "crontab", "-", "--json", "--system"], line).as_deref(), Some("root"));
    let path = "adapters/spec/tests/data/cron.d/filesystem_scrub";
    assert_eq!(user(&["import", "crontab", path, "--json"], "").as_deref(), Some("root"));
    assert_eq!(user(&["import", "crontab", path, "--json", "--user"], ""), None);
}

#[test]
fn what_cannot_be_read_is_refused() {
    check(
        &["import", "crontab", "/nowhere"],
        "",
        expect![[r#"
        exit code 2
        --- stderr
        PUN-101: /nowhere: No such file or directory (os error 2)
    "#]],
    );
    check(
        &["import", "crontab", "-", "--tz", "europe/paris", "--json"],
        "",
        expect![[r#"
            {
              "error": {
                "code": "PUN-115",
                "message": "--tz: there is no time zone `europe/paris` in tzdata [TZDATA] (did you mean `Europe/Paris`?)"
              }
            }
            exit code 2
            --- stderr
            PUN-115: --tz: there is no time zone `europe/paris` in tzdata [TZDATA] (did you mean `Europe/Paris`?)
        "#]],
    );
}
