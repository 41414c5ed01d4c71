//! What is wrong with a file: where, what, and what to do.

use expect_test::{Expect, expect};
use punctual_spec::limits;
use punctual_spec::problem::Code;

use crate::{read, task};

fn check(text: &str, expected: Expect) {
    match read(text) {
        Ok(file) => panic!("accepted: {file:?}"),
        Err(problems) => expected.assert_eq(&problems.to_string()),
    }
}

#[test]
fn everything_is_said_at_once() {
    check(
        "\
defaults:
  retry: {max_attempts: 0}
  timezone: UTC
tasks:
  - name: a
    trigger: {cron: \"0 25 * * *\", timezone: Asia/Mumbai}
    command: echo hi
    retrry: 3
  - name: a
    trigger: {fixed_rate: 10ms}
    command: [ls, -l]
  - name: \" x \"
    trigger: {every: 10}
    http: {url: \"ftp://x\", method: get}
  - trigger: \"0 5 * * *\"
    name: z
    name: y
  - name: b
    trigger: manual
    handler: foo
    timeout: -5s
  - [1]
  - trigger: {fixed_rate: 1s, delay: 2s, timezone: UTC}
    command: x
    http: http://x
",
        expect![[r#"
            tasks.yaml:2:25: PUN-111 defaults.retry.max_attempts: 0 is out of range
                1 to 1000
            tasks.yaml:3:3: PUN-106 defaults: there is no field `timezone`
                allowed: description, owner, enabled, trigger, after, command, http, handler, nodes, payload, payload_schema, misfire, concurrency, shards, map, retry, downstream, circuit_breaker, timeout, idempotent, priority, rate_limit, routing, group, group_limits, rehearsal
            tasks.yaml:6:21: PUN-114 tasks[0].trigger.cron: `25` in the hour field is out of range: 0 to 23
            tasks.yaml:6:45: PUN-115 tasks[0].trigger.timezone: there is no time zone `Asia/Mumbai` in tzdata 2026f
                did you mean `Asia/Kolkata`?
            tasks.yaml:8:5: PUN-106 tasks[0]: there is no field `retrry`
                did you mean `retry`? Allowed: name, description, owner, enabled, trigger, after, command, http, handler, nodes, payload, payload_schema, misfire, concurrency, shards, map, retry, downstream, circuit_breaker, timeout, idempotent, priority, rate_limit, routing, group, group_limits, rehearsal
            tasks.yaml:9:11: PUN-113 tasks[1].name: two tasks are named `a`: here and on line 5
                give each task a name of its own
            tasks.yaml:10:27: PUN-110 tasks[1].trigger.fixed_rate: 10ms is out of range
                100ms to 36600d
            tasks.yaml:12:11: PUN-112 tasks[2].name: it begins or ends with a blank
                1 to 255 characters, none of them control characters
            tasks.yaml:13:14: PUN-107 tasks[2].trigger: the trigger doesn't say when
                add one of cron, fixed_rate, fixed_delay, delay
            tasks.yaml:13:15: PUN-106 tasks[2].trigger: there is no field `every`
                write fixed_rate (from fire time to fire time) or fixed_delay (from the end of a run)
            tasks.yaml:14:17: PUN-118 tasks[2].http.url: `ftp://x` is not an http or https URL
                write http://host/path or https://host/path
            tasks.yaml:14:36: PUN-109 tasks[2].http.method: `get` is not one of the values
                did you mean `GET`? Allowed: GET, HEAD, POST, PUT, PATCH, DELETE
            tasks.yaml:15:5: PUN-107 tasks[3]: the task runs nothing
                add one of command, http, handler, nodes
            tasks.yaml:15:14: PUN-108 tasks[3].trigger: `0 5 * * *` is not a trigger
                write `trigger: {cron: "0 5 * * *"}`
            tasks.yaml:17:5: PUN-103 tasks[3]: the key `name` is there twice; the first one is on line 16
                remove one of them
            tasks.yaml:21:14: PUN-110 tasks[4].timeout: `-5s`: it is negative: durations run forwards
                a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
            tasks.yaml:22:5: PUN-108 tasks[5]: a list where a map is wanted
                a map with name, description, owner, enabled, trigger, after, command, http, handler, nodes, payload, payload_schema, misfire, concurrency, shards, map, retry, downstream, circuit_breaker, timeout, idempotent, priority, rate_limit, routing, group, group_limits, rehearsal
            tasks.yaml:23:5: PUN-107 tasks[6]: the task has no `name`
                add `name: ...`
            tasks.yaml:23:31: PUN-116 tasks[6].trigger: a trigger is of one kind: it has `fixed_rate` and `delay`
                keep one, or make two tasks
            tasks.yaml:25:5: PUN-116 tasks[6]: a task runs one thing: it has `command` and `http`
                keep one of command, http, handler, or make two tasks
        "#]],
    );
}

#[test]
fn a_file_without_tasks() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "~", "\u{feff}"] {
        assert_eq!(only_code(text), Code::NoTasks, "{text:?}");
    }
    check(
        "",
        expect![[r#"
        tasks.yaml:1:1: PUN-105: the file is empty
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
}

#[test]
fn a_file_of_another_shape() {
    check(
        "- a\n",
        expect![[r#"
        tasks.yaml:1:1: PUN-105: the file is a list
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
    check(
        "hello",
        expect![[r#"
        tasks.yaml:1:1: PUN-105: the file is `hello`
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
    check(
        "tasks:\n",
        expect![[r#"
        tasks.yaml:1:6: PUN-105: `tasks:` is empty
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
    check(
        "tasks: []\n",
        expect![[r#"
        tasks.yaml:1:8: PUN-105: `tasks:` is empty
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
    check(
        "tasks: {a: 1}\n",
        expect![[r#"
        tasks.yaml:1:8: PUN-108: a map where a list of tasks is wanted
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
    check(
        "name: a\n",
        expect![[r#"
        tasks.yaml:1:1: PUN-106: there is no field `name`
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
        tasks.yaml:1:1: PUN-105: the file has no `tasks:`
            write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
    "#]],
    );
    check(
        "task: []\n",
        expect![[r#"
            tasks.yaml:1:1: PUN-106: there is no field `task`
                did you mean `tasks`? Allowed: calendars, groups, defaults, tasks
            tasks.yaml:1:1: PUN-105: the file has no `tasks:`
                write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md
        "#]],
    );
    check(
        "tasks:\n- {name: a, trigger: manual, command: x}\ndefaults: {owner: me}\n",
        expect![[r#"
        tasks.yaml:3:1: PUN-116: `defaults:` stands below `tasks:`
            move it above
    "#]],
    );
    check(
        "tasks:\n- {name: a, trigger: manual, command: x}\n---\ntasks: []\n",
        expect![[r#"
        tasks.yaml:3:1: PUN-102: a second document begins here
            put all tasks under one `tasks:`, or into several files
    "#]],
    );
    check(
        "tasks:\n- {name: a, trigger: manual, command: x}\ntasks: []\n",
        expect![[r#"
        tasks.yaml:3:1: PUN-103: the key `tasks` is there twice; the first one is on line 1
            remove one of them
    "#]],
    );
}

#[test]
fn broken_yaml() {
    check(
        "tasks:\n  - name: [a\n",
        expect![[r#"
        tasks.yaml:3:1: PUN-102: not YAML: while parsing a flow sequence, expected ',' or ']'
            a text with `: `, ` #`, or a sign such as `*`, `&`, `@`, `%` or `{` in front is to be quoted
    "#]],
    );
    check(
        "tasks:\n\t- name: a\n",
        expect![[r#"
        tasks.yaml:2:2: PUN-102: not YAML: tabs disallowed within this context (block indentation)
            indent with blanks, not with tabs
    "#]],
    );
    check(
        "tasks:\n- name: a: b\n",
        expect![[r#"
        tasks.yaml:2:10: PUN-102: not YAML: mapping values are not allowed in this context
            a text with `: `, ` #`, or a sign such as `*`, `&`, `@`, `%` or `{` in front is to be quoted
    "#]],
    );
    check(
        "tasks:\n- *missing\n",
        expect![[r#"
        tasks.yaml:2:3: PUN-102: not YAML: while parsing node, found unknown anchor
            an alias needs its anchor above it
    "#]],
    );
    check(
        "tasks:\n- &a [*a]\n",
        expect![[r#"
        tasks.yaml:2:7: PUN-102: an alias stands inside of what it stands for
            write the value out
    "#]],
    );
    check(
        &task("trigger: manual\ncommand: !run x"),
        expect![[r#"
        tasks.yaml:4:12: PUN-102 tasks[0]: the tag `!run` has no meaning here
            remove it, or quote the text that begins with `!`
    "#]],
    );
    check(
        &task("trigger: manual\ncommand: x\npayload: {a: 1, a: 2}\n? [k]\n: v"),
        expect![[r#"
        tasks.yaml:5:19: PUN-103 tasks[0]: the key `a` is there twice; the first one is on line 5
            remove one of them
        tasks.yaml:6:5: PUN-108 tasks[0]: a key is a list or a map
            a key is a word
    "#]],
    );
    check(
        &task("<<: {owner: b}\ntrigger: manual\ncommand: x"),
        expect![[r#"
        tasks.yaml:3:3: PUN-106 tasks[0]: there is no field `<<`
            merge keys are not read; put what tasks share under `defaults:`
    "#]],
    );
}

#[test]
fn wrong_values() {
    check(
        &task(
            "description: [a]\nowner:\nenabled: yes\ntrigger: {cron: , gap: later, fixed_rate: 5}\ncommand: {argv: x, env: [a], success_codes: [256, a]}\n\
             payload: {a: .nan, b: 99999999999999999999}\nmisfire: fire\nconcurrency: 3\nretry: {max_attempts: -1, factor: fast, first: 1w}\n\
             timeout: [1]\nidempotent: 1\npriority: hihg",
        ),
        expect![[r#"
            tasks.yaml:3:16: PUN-108 tasks[0].description: a list where a text is wanted
                a text
            tasks.yaml:4:8: PUN-108 tasks[0].owner: nothing where a text is wanted
                write "" for an empty text, or leave the field out
            tasks.yaml:5:12: PUN-108 tasks[0].enabled: `yes` where a truth is wanted
                write true or false
            tasks.yaml:6:17: PUN-108 tasks[0].trigger.cron: nothing where a text is wanted
                write "" for an empty text, or leave the field out
            tasks.yaml:6:26: PUN-109 tasks[0].trigger.gap: `later` is not one of the values
                allowed: after_gap, skip, shift_forward
            tasks.yaml:6:33: PUN-116 tasks[0].trigger: a trigger is of one kind: it has `cron` and `fixed_rate`
                keep one, or make two tasks
            tasks.yaml:6:45: PUN-110 tasks[0].trigger.fixed_rate: `5`: it has no unit: write 5s for seconds, or one of ms, s, m, h, d
                a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
            tasks.yaml:7:19: PUN-108 tasks[0].command.argv: `x` where a list is wanted
                a list
            tasks.yaml:7:27: PUN-108 tasks[0].command.env: a list where a map is wanted
                a map from names to texts
            tasks.yaml:7:48: PUN-111 tasks[0].command.success_codes[0]: 256 is out of range
                0 to 255
            tasks.yaml:7:53: PUN-111 tasks[0].command.success_codes[1]: `a` where a whole number is wanted
                digits only, at most 4294967295
            tasks.yaml:8:16: PUN-111 tasks[0].payload.a: `.nan` is a number that JSON can't hold
                quote it to pass it as a text
            tasks.yaml:8:25: PUN-111 tasks[0].payload.b: `99999999999999999999` is a number that JSON can't hold
                quote it to pass it as a text
            tasks.yaml:9:12: PUN-109 tasks[0].misfire: `fire` is not one of the values
                allowed: fire_once, fire_all, skip; or a map with `action`
            tasks.yaml:10:16: PUN-108 tasks[0].concurrency: `3` where a map is wanted
                a map with max_running, when_full, max_queue, key
            tasks.yaml:11:25: PUN-111 tasks[0].retry.max_attempts: `-1` where a whole number is wanted
                digits only, at most 4294967295
            tasks.yaml:11:37: PUN-111 tasks[0].retry.factor: `fast` is not a factor
                a number with at most three decimals, such as 2 or 1.5
            tasks.yaml:11:50: PUN-110 tasks[0].retry.first: `1w`: `w` is not a unit: use ms, s, m, h or d
                a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m
            tasks.yaml:12:12: PUN-108 tasks[0].timeout: a list where a map is wanted
                a map with after, grace, action
            tasks.yaml:13:15: PUN-108 tasks[0].idempotent: `1` where a truth is wanted
                write true or false
            tasks.yaml:14:13: PUN-109 tasks[0].priority: `hihg` is not one of the values
                allowed: urgent, normal, low; or a level, 0 to 9; or a map with band and level
        "#]],
    );
}

#[test]
fn values_out_of_range() {
    check(
        &task(
            "trigger: {fixed_delay: 0s}\ncommand: {argv: []}\nmisfire: {action: fire_all, limit: 0, deadline: 0s}\n\
             concurrency: {max_running: 0, when_full: discard, max_queue: 5}\n\
             retry: {max_attempts: 1001, backoff: fixed, factor: 2, first: 2m, cap: 1m}\ntimeout: {after: 99999d}",
        ),
        expect![[r#"
            tasks.yaml:3:26: PUN-110 tasks[0].trigger.fixed_delay: 0s is out of range
                100ms to 36600d
            tasks.yaml:4:19: PUN-118 tasks[0].command.argv: there is no program to run
                a list: the program, then its arguments
            tasks.yaml:5:38: PUN-111 tasks[0].misfire.limit: 0 is out of range
                1 to 10000
            tasks.yaml:5:51: PUN-110 tasks[0].misfire.deadline: 0s is out of range
                1ms to 36600d
            tasks.yaml:6:30: PUN-111 tasks[0].concurrency.max_running: 0 is out of range
                1 to 100000
            tasks.yaml:6:64: PUN-116 tasks[0].concurrency.max_queue: only `when_full: queue` has a queue
                leave it out
            tasks.yaml:7:25: PUN-111 tasks[0].retry.max_attempts: 1001 is out of range
                1 to 1000
            tasks.yaml:7:55: PUN-116 tasks[0].retry.factor: only `backoff: exponential` has a factor
                leave it out
            tasks.yaml:7:74: PUN-116 tasks[0].retry.cap: the longest wait (1m) is shorter than the first (2m)
                raise `cap` or lower `first`
            tasks.yaml:8:20: PUN-110 tasks[0].timeout.after: 99999d is out of range
                1ms to 36600d
        "#]],
    );
}

#[test]
fn what_is_wrong_about_retries_and_breakers() {
    check(
        "\
tasks:
- name: a
  trigger: manual
  command: x
  retry: {on: {exit_codes: [], statuses: [500], timeouts: maybe}, budget: {ratio: 10.5, min_per_minute: 1000001}}
  circuit_breaker: {failures: 0, within: 2d, open: 0s}
- name: b
  trigger: manual
  http: http://x
  retry: {on: {exit_codes: [75], statuses: [99, 600, 599-500, 5xx, 100-600, '']}, budget: {ratio: lots}}
  downstream: ''
- name: c
  trigger: manual
  handler: own
  retry: {on: [75], budget: {ratio: 0, min_per_minute: 0}}
  downstream: \" mail\"
  circuit_breaker: {}
- name: d
  trigger: manual
  command: x
  retry: {on: {exit_codes: [256, 1-2-3, -1], codes: [1]}, budget: 3}
  downstream: \"a\\tb\"
- name: e
  trigger: manual
  command: x
  circuit_breaker: {}
",
        expect![[r#"
            tasks.yaml:5:28: PUN-111 tasks[0].retry.on.exit_codes: it is empty: no code would be retried
                leave it out for all of them, or name some
            tasks.yaml:5:42: PUN-116 tasks[0].retry.on.statuses: only an `http` call has statuses
                leave it out
            tasks.yaml:5:59: PUN-108 tasks[0].retry.on.timeouts: `maybe` where a truth is wanted
                write true or false
            tasks.yaml:5:83: PUN-111 tasks[0].retry.budget.ratio: 10.5 is out of range
                0 to 10
            tasks.yaml:5:105: PUN-111 tasks[0].retry.budget.min_per_minute: 1000001 is out of range
                0 to 1000000
            tasks.yaml:6:20: PUN-116 tasks[0].circuit_breaker: a circuit breaker stands before a downstream, and the task names none
                add `downstream: ...`, or leave it out
            tasks.yaml:6:31: PUN-111 tasks[0].circuit_breaker.failures: 0 is out of range
                1 to 1000
            tasks.yaml:6:42: PUN-110 tasks[0].circuit_breaker.within: 2d is out of range
                1ms to 1d
            tasks.yaml:6:52: PUN-110 tasks[0].circuit_breaker.open: 0s is out of range
                1ms to 1d
            tasks.yaml:10:28: PUN-116 tasks[1].retry.on.exit_codes: only a `command` has exit codes
                leave it out
            tasks.yaml:10:45: PUN-111 tasks[1].retry.on.statuses[0]: `99` is out of range
                100 to 599
            tasks.yaml:10:49: PUN-111 tasks[1].retry.on.statuses[1]: `600` is out of range
                100 to 599
            tasks.yaml:10:54: PUN-111 tasks[1].retry.on.statuses[2]: `599-500` runs backwards
                write the smaller code first
            tasks.yaml:10:63: PUN-111 tasks[1].retry.on.statuses[3]: `5xx` is neither a code nor a range of codes
                write one as a number, several as a range such as 100-110
            tasks.yaml:10:68: PUN-111 tasks[1].retry.on.statuses[4]: `100-600` is out of range
                100 to 599
            tasks.yaml:10:77: PUN-111 tasks[1].retry.on.statuses[5]: `` is neither a code nor a range of codes
                write one as a number, several as a range such as 100-110
            tasks.yaml:10:99: PUN-111 tasks[1].retry.budget.ratio: `lots` is not a ratio
                a number with at most three decimals, such as 0.2
            tasks.yaml:11:15: PUN-117 tasks[1].downstream: it is empty
                a name of 1 to 128 characters, such as payments
            tasks.yaml:15:15: PUN-108 tasks[2].retry.on: a list where a map is wanted
                a map with exit_codes, statuses, timeouts
            tasks.yaml:15:29: PUN-116 tasks[2].retry.budget: it allows no retry at all
                raise `ratio` or `min_per_minute`; without `max_attempts` a task has no retries
            tasks.yaml:16:15: PUN-117 tasks[2].downstream: it begins or ends with a blank
                a name of 1 to 128 characters, such as payments
            tasks.yaml:21:29: PUN-111 tasks[3].retry.on.exit_codes[0]: `256` is out of range
                0 to 255
            tasks.yaml:21:34: PUN-111 tasks[3].retry.on.exit_codes[1]: `1-2-3` is neither a code nor a range of codes
                write one as a number, several as a range such as 100-110
            tasks.yaml:21:41: PUN-111 tasks[3].retry.on.exit_codes[2]: `-1` is neither a code nor a range of codes
                write one as a number, several as a range such as 100-110
            tasks.yaml:21:46: PUN-106 tasks[3].retry.on: there is no field `codes`
                allowed: exit_codes, statuses, timeouts
            tasks.yaml:21:67: PUN-108 tasks[3].retry.budget: `3` where a map is wanted
                a map with ratio, min_per_minute
            tasks.yaml:22:15: PUN-117 tasks[3].downstream: it has control characters
                a name of 1 to 128 characters, such as payments
            tasks.yaml:26:20: PUN-116 tasks[4].circuit_breaker: a circuit breaker stands before a downstream, and the task names none
                add `downstream: ...`, or leave it out
        "#]],
    );
    check(
        &task(&format!("trigger: manual\ncommand: x\ndownstream: {}", "m".repeat(limits::DOWNSTREAM_CHARS_MAX + 1))),
        expect![[r#"
        tasks.yaml:5:15: PUN-117 tasks[0].downstream: it has 129 characters
            a name of 1 to 128 characters, such as payments
    "#]],
    );
}

#[test]
fn names() {
    check(
        &format!(
            "tasks:\n- {{name: '', trigger: manual, command: x}}\n- {{name: '  ', trigger: manual, command: x}}\n\
             - {{name: {}, trigger: manual, command: x}}\n- {{name: \"a\\0b\", trigger: manual, command: x}}\n\
             - {{name: a, trigger: manual, command: x}}\n- {{trigger: manual, command: x}}\n- {{name: a, trigger: manual, command: x}}\n",
            "x".repeat(256)
        ),
        expect![[r#"
            tasks.yaml:2:10: PUN-112 tasks[0].name: it is empty
                1 to 255 characters, none of them control characters
            tasks.yaml:3:10: PUN-112 tasks[1].name: it is blank
                1 to 255 characters, none of them control characters
            tasks.yaml:4:10: PUN-112 tasks[2].name: it has 256 characters
                1 to 255 characters, none of them control characters
            tasks.yaml:5:10: PUN-112 tasks[3].name: it has control characters
                1 to 255 characters, none of them control characters
            tasks.yaml:7:3: PUN-107 tasks[5]: the task has no `name`
                add `name: ...`
            tasks.yaml:8:10: PUN-113 tasks[6].name: two tasks are named `a`: here and on line 6
                give each task a name of its own
        "#]],
    );
}

#[test]
fn zones_and_expressions() {
    check(
        "tasks:\n- {name: a, trigger: {cron: '* * * * * * * *'}, command: x}\n- {name: b, trigger: {cron: '0 0 30 2 *'}, command: x}\n\
         - {name: c, trigger: {cron: '@daily', timezone: europe/berlin}, command: x}\n- {name: d, trigger: {cron: '@daily', timezone: localtime}, command: x}\n\
         - {name: e, trigger: {cron: '@daily', timezone: GMT+5}, command: x}\n- {name: f, trigger: {cron: '@daily', timezone: ../../etc/passwd}, command: x}\n\
         - {name: g, trigger: {cron: '0 2 * * *', dialect: unix}, command: x}\n- {name: h, trigger: {cron: '0 0 2 * * *', dialect: unix5}, command: x}\n",
        expect![[r#"
            tasks.yaml:2:29: PUN-114 tasks[0].trigger.cron: 8 fields, separated by blanks: give five (minute hour day month weekday), six (seconds first) or seven (Quartz, with a year)
            tasks.yaml:3:29: PUN-114 tasks[1].trigger.cron: no date ever matches day-of-month `30` in month `2` (weekday `*`, year `*`): check these fields
            tasks.yaml:4:49: PUN-115 tasks[2].trigger.timezone: there is no time zone `europe/berlin` in tzdata 2026f
                did you mean `Europe/Berlin`?
            tasks.yaml:5:49: PUN-115 tasks[3].trigger.timezone: `localtime` is not a time zone: it does not name a place; schedules never follow the machine's own zone
            tasks.yaml:6:49: PUN-115 tasks[4].trigger.timezone: `GMT+5` is not a time zone: an offset is not a zone name and its sign is easily misread; name a city, or `Etc/GMT-5` for five hours ahead of UTC
            tasks.yaml:7:49: PUN-115 tasks[5].trigger.timezone: `../../etc/passwd` is not a time zone: it is not an IANA zone name such as `Europe/Berlin`
            tasks.yaml:8:51: PUN-109 tasks[6].trigger.dialect: `unix` is not one of the values
                did you mean `unix5`? Allowed: unix5, seconds6, quartz
            tasks.yaml:9:29: PUN-114 tasks[7].trigger.cron: six fields where unix5 has five (minute hour day month weekday): drop the seconds field `0` in front, or choose the dialect seconds6
        "#]],
    );
}

#[test]
fn handlers() {
    check(
        "tasks:\n- {name: a, trigger: manual, command: ' '}\n- {name: b, trigger: manual, command: {env: {'A=B': c, D: \"\\0\"}, shell: \"x\\0\", user: ''}}\n\
         - {name: c, trigger: manual, http: {url: 'http://', headers: {'a b': c, d: \"e\\nf\"}, success_statuses: [2xx, 99, 200-100]}}\n\
         - {name: d, trigger: manual, http: {}}\n- {name: e, trigger: manual, http: 'http://x:99999/'}\n- {name: f, trigger: manual, http: 'http://a b/'}\n\
         - {name: g, trigger: manual, handler: {config: []}}\n- {name: h, trigger: manual, handler: command}\n- {name: i, trigger: manual, command: {argv: [x], shell: y}}\n\
         - {name: j, trigger: manual, handler: {name: x, config: {a: [1, {b: .inf}]}}}\n",
        expect![[r#"
            tasks.yaml:2:39: PUN-118 tasks[0].command.shell: there is nothing to run
                write a line for the shell
            tasks.yaml:3:53: PUN-118 tasks[1].command.env["A=B"]: it is no name for an environment variable
                no `=`, not empty
            tasks.yaml:3:59: PUN-118 tasks[1].command.env.D: a zero character can't be passed to a program
                remove it
            tasks.yaml:3:73: PUN-118 tasks[1].command.shell: a zero character can't be passed to a program
                remove it
            tasks.yaml:3:86: PUN-118 tasks[1].command.user: it is empty or has line breaks
                leave it out, or name one
            tasks.yaml:4:42: PUN-118 tasks[2].http.url: it names no host
                write http://host/path or https://host/path
            tasks.yaml:4:70: PUN-118 tasks[2].http.headers["a b"]: `a b` is no name for a header
                letters, digits and hyphens
            tasks.yaml:4:76: PUN-118 tasks[2].http.headers.d: it has control characters
                a header is one line
            tasks.yaml:4:103: PUN-118 tasks[2].http.success_statuses: "200-100" is neither a status, such as 404, nor a range of them, such as 200-299
                100 to 599
            tasks.yaml:5:36: PUN-107 tasks[3].http: the call has no `url`
                add `url: ...`
            tasks.yaml:6:36: PUN-118 tasks[4].http.url: `99999` is no port
                write http://host/path or https://host/path
            tasks.yaml:7:36: PUN-118 tasks[5].http.url: it has blanks or control characters
                write http://host/path or https://host/path
            tasks.yaml:8:39: PUN-107 tasks[6].handler: the handler has no `name`
                add the name under which workers announce it
            tasks.yaml:8:48: PUN-108 tasks[6].handler.config: a list where a map is wanted
                a map, handed to the handler as JSON
            tasks.yaml:9:39: PUN-118 tasks[7].handler.name: `command` is built in
                write `command: ...` in place of `handler: ...`
            tasks.yaml:10:39: PUN-116 tasks[8].command: a command has either `argv` or `shell`
                keep one of them
            tasks.yaml:11:69: PUN-111 tasks[9].handler.config.a[1].b: `.inf` is a number that JSON can't hold
                quote it to pass it as a text
        "#]],
    );
}

#[test]
fn what_is_wrong_with_the_defaults_is_said_once() {
    check(
        "defaults:\n  timeout: {after: 0s}\n  command: {argv: []}\ntasks:\n- {name: a, trigger: manual}\n- {name: b, trigger: manual}\n",
        expect![[r#"
            tasks.yaml:2:20: PUN-110 defaults.timeout.after: 0s is out of range
                1ms to 36600d
            tasks.yaml:3:19: PUN-118 defaults.command.argv: there is no program to run
                a list: the program, then its arguments
        "#]],
    );
}

#[test]
fn what_a_task_fires_after_is_refused_where_it_makes_no_sense() {
    check(
        "tasks:\n\
         - {name: a, after: a, command: x}\n\
         - {name: b, after: [{on: any}, {task: ' x'}, c, {task: c, on: failed}], command: x}\n\
         - {name: c, after: [d, d], command: x}\n\
         - {name: e, after: [], command: x}\n",
        expect![[r#"
            tasks.yaml:2:20: PUN-116 tasks[0].after[0]: the task would fire after itself, for ever
                use `trigger: {fixed_delay: ...}` for a task that runs again and again
            tasks.yaml:3:21: PUN-107 tasks[1].after[0]: it doesn't say after which task
                add `task:` with the task's name
            tasks.yaml:3:21: PUN-112 tasks[1].after[0].task: it begins or ends with a blank
                1 to 255 characters, none of them control characters
            tasks.yaml:3:46: PUN-116 tasks[1].after[2]: `c` is named twice
                keep one; `on: any` stands for success and failure
            tasks.yaml:3:63: PUN-109 tasks[1].after[3].on: `failed` is not one of the values
                allowed: success, failure, any
            tasks.yaml:4:24: PUN-116 tasks[2].after[1]: `d` is named twice
                keep one; `on: any` stands for success and failure
        "#]],
    );
}

/// C356.
#[test]
fn shards_are_refused_where_they_make_no_sense() {
    check(
        "tasks:\n\
         - {name: a, trigger: manual, shards: 0, command: x}\n\
         - {name: b, trigger: manual, shards: 10001, command: x}\n\
         - {name: c, trigger: manual, shards: [], command: x}\n\
         - {name: d, trigger: manual, shards: [a, '', a], command: x}\n\
         - {name: e, trigger: manual, shards: {by: 3}, command: x}\n",
        expect![[r#"
            tasks.yaml:2:38: PUN-111 tasks[0].shards: 0 is out of range
                1 to 10000
            tasks.yaml:3:38: PUN-111 tasks[1].shards: 10001 is out of range
                1 to 10000
            tasks.yaml:4:38: PUN-111 tasks[2].shards: 0 is out of range
                1 to 10000
            tasks.yaml:5:42: PUN-117 tasks[3].shards[1]: `` is no key for a shard
                1 to 256 bytes, no control characters
            tasks.yaml:5:46: PUN-116 tasks[3].shards[2]: `a` is there twice
                give each shard a key of its own
            tasks.yaml:6:38: PUN-111 tasks[4].shards: a map where a whole number is wanted
                digits only, at most 4294967295
        "#]],
    );
}

#[test]
fn maps_are_refused_where_they_make_no_sense() {
    check(
        "tasks:\n\
         - {name: a, trigger: manual, map: {parallel: 3}, command: x}\n\
         - {name: b, trigger: manual, map: {list: {command: x}, parallel: 0}, command: x}\n\
         - {name: c, trigger: manual, map: {list: {command: x}, reduce: {http: 'http://a/'}}, command: x}\n\
         - {name: d, trigger: manual, map: {list: {command: x}}, shards: 3, command: x}\n\
         - {name: e, trigger: manual, map: {list: {command: x, handler: y}}, command: x}\n\
         - {name: f, trigger: manual, map: {list: {}}, command: x}\n\
         - {name: g, trigger: manual, map: {list: {handler: command}}, command: x}\n\
         - {name: h, trigger: manual, routing: broadcast, shards: 3, command: x}\n\
         - {name: i, trigger: manual, map: 3, command: x}\n",
        expect![[r#"
            tasks.yaml:2:35: PUN-107 tasks[0].map: nothing lists the items
                add `list:` with one of command, http, handler
            tasks.yaml:3:66: PUN-111 tasks[1].map.parallel: 0 is out of range
                1 to 1000
            tasks.yaml:4:64: PUN-118 tasks[2].map.reduce: a call can't be given the results
                reduce with a command or a handler of your own
            tasks.yaml:5:35: PUN-116 tasks[3].map: a firing is divided in one way: by its items, in shards, or among workers
                leave out `map`, or `shards` and `strategy: broadcast`
            tasks.yaml:6:55: PUN-116 tasks[4].map.list: a task runs one thing: it has `command` and `handler`
                keep one of command, http, handler, or make two tasks
            tasks.yaml:7:42: PUN-107 tasks[5].map.list: it runs nothing
                add one of command, http, handler
            tasks.yaml:8:52: PUN-118 tasks[6].map.list.handler.name: `command` is built in
                write `command: ...` in place of `handler: ...`
            tasks.yaml:9:58: PUN-116 tasks[7].shards: what is broadcast has a shard for each worker, and no others
                leave out `shards`, or take another strategy
            tasks.yaml:10:35: PUN-108 tasks[8].map: `3` where a map is wanted
                a map with list, reduce, parallel
        "#]],
    );
}

#[test]
fn a_ring_of_tasks_is_shown_where_it_closes() {
    check(
        "tasks:\n\
         - {name: extract, after: [elsewhere, load], command: x}\n\
         - {name: check, after: {task: extract, on: any}, command: x}\n\
         - name: load\n  command: x\n  after:\n  - extract\n  - {task: check}\n\
         - {name: report, after: [load, check], command: x}\n",
        expect![[r#"
            tasks.yaml:8:5: PUN-152 tasks[2].after[1]: these tasks would fire each other for ever: `extract`, then `check`, then `load`, then `extract`
                take one of them out of another one's `after`
        "#]],
    );
    // What all have of the defaults is shown there.
    check(
        "defaults:\n  after: b\ntasks:\n- {name: a, command: x}\n- {name: b, after: a, command: x}\n",
        expect![[r#"
        tasks.yaml:5:20: PUN-152 tasks[1].after[0]: these tasks would fire each other for ever: `b`, then `a`, then `b`
            take one of them out of another one's `after`
    "#]],
    );
    check(
        "defaults:\n  after: [b]\ntasks:\n- {name: b, after: a, command: x}\n- {name: a, command: x}\n",
        expect![[r#"
        tasks.yaml:2:11: PUN-152 defaults.after[0]: these tasks would fire each other for ever: `a`, then `b`, then `a`
            take one of them out of another one's `after`
    "#]],
    );
}

#[test]
fn a_long_ring_is_found_at_once_and_named_in_part() {
    let count = 20_000;
    let mut text = "tasks:\n".to_owned();
    (0..count).for_each(|i| text.push_str(&format!("- {{name: t{i}, after: t{}, command: x}}\n", (i + count - 1) % count)));
    check(
        &text,
        expect![[r#"
        tasks.yaml:20001:25: PUN-152 tasks[19999].after[0]: these tasks would fire each other for ever: `t19999`, then `t0`, then `t1`, then `t2`, then `t3`, then `t4`, then `t5`, then `t6` and so on, 20000 tasks
            take one of them out of another one's `after`
    "#]],
    );
}

#[test]
fn so_many_tasks_may_fire_after_one_and_no_more() {
    let file = |count: usize| {
        let tasks = (0..count).map(|i| format!("- {{name: t{i}, after: elsewhere, command: x}}\n"));
        format!("tasks:\n{}", tasks.collect::<String>())
    };
    assert_eq!(read(&file(1_024)).map(|file| file.tasks.len()).ok(), Some(1_024));
    check(
        &file(1_025),
        expect![[r#"
        tasks.yaml:1026:24: PUN-153 tasks[1024].after[0]: 1025 tasks would fire after `elsewhere`
            at most 1024; let some of them fire after another one of them
    "#]],
    );
}

#[test]
fn what_multiplies_on_each_step_is_refused_where_it_becomes_too_much() {
    let mut text = "tasks:\n- {name: t0, trigger: manual, command: x}\n".to_owned();
    for number in 1..=17 {
        let called = number - 1;
        text.push_str(&format!(
            "- {{name: t{number}, trigger: manual, nodes: [{{name: a, task: t{called}}}, {{name: b, task: t{called}}}]}}\n"
        ));
    }
    check(
        &text,
        expect![[r#"
        tasks.yaml:18:78: PUN-155 tasks[16].nodes[1].task: each time that `t16` fires, 131070 firings of other tasks could follow
            at most 100000; give a task that it calls the work at once, in `shards` or a `map`
    "#]],
    );
}

fn only_code(text: &str) -> Code {
    let problems = read(text).expect_err("refused").problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].code
}

#[test]
fn limits_hold() {
    // A billion laughs.
    let mut text =
        "tasks:\n- name: a\n  trigger: manual\n  command: x\n  payload:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let previous = format!("*a{}", level - 1);
        text.push_str(&format!("    a{level}: &a{level} [{}]\n", [previous.as_str(); 10].join(", ")));
    }
    assert_eq!(only_code(&text), Code::TooLarge);
    // The same large value in many tasks.
    let large = vec!["x"; 50_000].join(", ");
    let mut text = format!("defaults: {{handler: {{name: a, config: {{a: &a [{large}]}}}}}}\ntasks:\n");
    for task in 0..300 {
        text.push_str(&format!("- {{name: t{task}, trigger: manual, handler: {{name: b, config: {{a: *a}}}}}}\n"));
    }
    let problems = read(&text).expect_err("refused").problems;
    assert!(problems.iter().any(|problem| problem.code == Code::TooLarge), "{:?}", problems.last());
    // Depth, in flow style and in blocks.
    assert_eq!(only_code(&task(&format!("trigger: manual\ncommand: x\npayload: {}", "[".repeat(100)))), Code::TooLarge);
    let blocks: String = (0..100).map(|depth| format!("{}a:\n", " ".repeat(depth + 4))).collect();
    assert_eq!(only_code(&format!("tasks:\n- name: a\n  payload:\n{blocks}")), Code::TooLarge);
    // The payload and the configuration.
    let text = "x".repeat(70_000);
    assert_eq!(only_code(&task(&format!("trigger: manual\ncommand: x\npayload: {text}"))), Code::Text);
    let text = "x".repeat(300_000);
    assert_eq!(only_code(&task(&format!("trigger: manual\ncommand: {text}"))), Code::Handler);
}

#[test]
fn problems_are_counted_beyond_what_is_kept() {
    let text = format!("tasks:\n{}", "- {name: a, trigger: manual, command: x}\n".repeat(limits::PROBLEMS_MAX + 6));
    let problems = read(&text).expect_err("refused");
    assert_eq!((problems.problems.len(), problems.left_out), (limits::PROBLEMS_MAX, 5));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let zones = punctual_spec::zones::Zones::bundled();
    let problems = punctual_spec::file::read_bytes_of("tasks.yaml", b"tasks:\n- name: \xff\n", &zones).expect_err("refused");
    assert_eq!((problems.problems[0].code, problems.problems[0].line), (Code::Unreadable, 2));
    let problems = punctual_spec::file::read_file(std::path::Path::new("/nowhere.yaml"), &zones).expect_err("refused");
    assert_eq!(problems.problems[0].code, Code::Unreadable);
}

#[test]
fn queueing_and_routing() {
    check(
        &task(
            "trigger: manual\ncommand: x\npriority: 10\nrate_limit: {starts: 0, per: 2h}\nrouting: {worker: w1, tags: {a b: c}, min_worker_version: v1}",
        ),
        expect![[r#"
            tasks.yaml:5:13: PUN-111 tasks[0].priority: 10 is out of range
                0 to 9
            tasks.yaml:6:24: PUN-111 tasks[0].rate_limit.starts: 0 is out of range
                1 to 1000000
            tasks.yaml:6:32: PUN-110 tasks[0].rate_limit.per: 2h is out of range
                100ms to 1h
            tasks.yaml:7:21: PUN-116 tasks[0].routing.worker: only `strategy: pinned` has a worker
                write `strategy: pinned` to mean this worker only, or leave it out
            tasks.yaml:7:37: PUN-141 tasks[0].routing.tags["a b"]: `a b=c` is not a tag
                letters, digits and _ - . / on both sides, the value may have : too, neither is empty, 128 bytes in all
            tasks.yaml:7:61: PUN-142 tasks[0].routing.min_worker_version: `v1` is not a version
                one to four numbers with dots between them, such as 1.4.0 or 1.4.0-rc.1; in quotes, or YAML may read a number
        "#]],
    );
    check(
        &task("trigger: manual\ncommand: x\npriority: {band: urgent, level: 12}\nrate_limit: {starts: 1, per: 10ms}\nrouting: pinned"),
        expect![[r#"
            tasks.yaml:5:35: PUN-111 tasks[0].priority.level: 12 is out of range
                0 to 9
            tasks.yaml:6:32: PUN-110 tasks[0].rate_limit.per: 10ms is out of range
                100ms to 1h
            tasks.yaml:7:12: PUN-107 tasks[0].routing.worker: a pinned task names its worker
                add `worker: NAME`, the name as `punctual status` shows it
        "#]],
    );
    check(
        &task(
            "trigger: manual\ncommand: x\npriority: {level: high}\nrate_limit: {starts: 1}\nrouting: {strategy: round_robbin, tags: [zone, a=b, a=c]}",
        ),
        expect![[r#"
            tasks.yaml:5:21: PUN-111 tasks[0].priority.level: `high` where a whole number is wanted
                digits only, at most 4294967295
            tasks.yaml:6:15: PUN-107 tasks[0].rate_limit: the rate limit has no `per`
                write both, as in `rate_limit: {starts: 10, per: 1s}`
            tasks.yaml:7:23: PUN-109 tasks[0].routing.strategy: `round_robbin` is not one of the values
                did you mean `round_robin`? Allowed: least_loaded, round_robin, random, hash, pinned, broadcast
            tasks.yaml:7:44: PUN-141 tasks[0].routing.tags[0]: `zone` is not a tag
                write `key=value`, such as zone=eu
            tasks.yaml:7:55: PUN-116 tasks[0].routing.tags: there are two tags `a`
                keep one: a worker has to have all tags of the list
        "#]],
    );
    check(
        &task("trigger: manual\ncommand: x\nrate_limit: 10\nrouting: rand"),
        expect![[r#"
            tasks.yaml:5:15: PUN-108 tasks[0].rate_limit: `10` where a map is wanted
                a map with starts, per
            tasks.yaml:6:12: PUN-109 tasks[0].routing: `rand` is not one of the values
                allowed: least_loaded, round_robin, random, hash, pinned, broadcast; or a map with `strategy`
        "#]],
    );
    check(
        &task("trigger: manual\ncommand: x\nrouting: {strategy: pinned, worker: '', tags: {'a=b': c}}"),
        expect![[r#"
        tasks.yaml:5:39: PUN-143 tasks[0].routing.worker: `` is no name for a worker
            the worker's name as `punctual status` shows it, 1 to 512 bytes
        tasks.yaml:5:57: PUN-141 tasks[0].routing.tags["a=b"]: `a=b=c` is not a tag
            letters, digits and _ - . / on both sides, the value may have : too, neither is empty, 128 bytes in all
    "#]],
    );
}

/// The limits of groups are said once, and hold for all tasks of the file.
#[test]
fn groups_keys_and_rates_that_make_no_sense_are_refused() {
    check(
        "\
groups:
  empty: {}
  none: {max_running: 0}
  billing: {max_running: 5}
tasks:
  - {name: a, trigger: manual, command: x, group: billing, concurrency: {key: customer}}
  - {name: b, trigger: manual, command: x, group: billing, group_limits: {max_running: 7}}
  - {name: c, trigger: manual, command: x, group_limits: {max_running: 7}}
  - {name: d, trigger: manual, command: x, group: ' ', concurrency: {key: /a~2}}
  - {name: e, trigger: manual, command: x, misfire: {action: skip, rate: {starts: 1, per: 1s}}}
  - {name: f, trigger: manual, command: x, misfire: {action: fire_all, rate: {starts: 0, per: 1ms}}}
",
        expect![[r#"
            tasks.yaml:2:10: PUN-145 groups.empty: the group has no limit
                write `max_running: 5`, or a `rate_limit`, or both
            tasks.yaml:3:9: PUN-111 groups.none: 0 is out of range
                1 to 100000
            tasks.yaml:6:79: PUN-144 tasks[0].concurrency.key: `customer` is no pointer: it doesn't begin with a slash
                a JSON pointer into the payload, such as /customer/id: a slash before each step, ~1 for a slash in a name
            tasks.yaml:7:51: PUN-145 tasks[1].group: the group `billing` has other limits here than on line 6
                write its limits once, under `groups:` at the top of the file, and no `group_limits` with the tasks
            tasks.yaml:8:58: PUN-145 tasks[2].group_limits: they are limits of a group, and the task is in none
                add `group: ...`, or leave them out
            tasks.yaml:9:51: PUN-145 tasks[3].group: it begins or ends with a blank
                a name of 1 to 128 characters, such as billing
            tasks.yaml:9:75: PUN-144 tasks[3].concurrency.key: `/a~2` is no pointer: a ~ in it is neither ~0 nor ~1
                a JSON pointer into the payload, such as /customer/id: a slash before each step, ~1 for a slash in a name
            tasks.yaml:10:74: PUN-116 tasks[4].misfire.rate: a rate is for `action: fire_all` only
                leave it out
            tasks.yaml:11:87: PUN-111 tasks[5].misfire.rate.starts: 0 is out of range
                1 to 1000000
            tasks.yaml:11:95: PUN-110 tasks[5].misfire.rate.per: 1ms is out of range
                100ms to 1h
        "#]],
    );
}

#[test]
fn tasks_get_the_limits_of_their_group() {
    let text = "\
groups:
  billing: {max_running: 5, rate_limit: {starts: 10, per: 1s}}
defaults: {group: billing}
tasks:
  - {name: a, trigger: manual, command: x}
  - {name: b, trigger: manual, command: x, group: other}
  - {name: c, trigger: manual, command: x, group: null}
";
    let file = read(text).expect("a good file");
    let of = |index: usize| {
        (file.tasks[index].definition.group.as_deref(), file.tasks[index].definition.policies.group.map(|limits| limits.max_running))
    };
    assert_eq!((of(0), of(1), of(2)), ((Some("billing"), Some(Some(5))), (Some("other"), None), (None, None)));
    assert!(
        file.tasks[0]
            .spec
            .to_json()
            .ends_with(r#""group":"billing","group_limits":{"max_running":5,"rate_limit":{"starts":10,"per":"1s"}}}"#)
    );
}
