//! Documents: one text for each meaning, and the definition that comes of it.

use expect_test::{Expect, expect};
use punctual_core::definition::{Blocking, Trigger};
use punctual_core::limits;
use punctual_core::time::Millis;
use punctual_spec::decode;
use punctual_spec::problem::Code;
use punctual_spec::spec::{Band, Priority, TaskSpec};
use punctual_spec::zones::Zones;

use crate::{read, task};

fn document(text: &str) -> String {
    let file = read(text).unwrap_or_else(|problems| panic!("{problems}"));
    file.tasks.iter().map(|task| task.spec.to_json()).collect::<Vec<_>>().join("\n")
}

fn check(text: &str, expected: Expect) {
    let document = document(text);
    expected.assert_eq(&document);
    for line in document.lines() {
        let spec = TaskSpec::from_json(line).unwrap();
        assert_eq!(spec.to_json(), line, "a document reads back as itself");
    }
}

#[test]
fn defaults_are_left_out() {
    check(
        &task("trigger: {fixed_rate: 10s}\ncommand: echo hi"),
        expect![[r#"{"name":"a","trigger":{"fixed_rate":"10s"},"command":{"shell":"echo hi"}}"#]],
    );
}

#[test]
fn everything_else_is_in_it() {
    check(
        &task(
            "description: d\nowner: o\nenabled: false\ntrigger: {cron: '0  2 * * *', timezone: Europe/Berlin, gap: skip, overlap: both}\n\
             command: {argv: [a, b], env: {B: 1, A: x}, working_directory: /w, stdin: in, user: u, success_codes: [3, 0, 3]}\n\
             payload: {b: [1, 2.50, null, true], a: 007}\nmisfire: {action: fire_all, limit: 5, deadline: 90s}\n\
             concurrency: {max_running: 2, when_full: queue, max_queue: 7}\n\
             retry: {max_attempts: 3, max_losses: 0, backoff: exponential, first: 1s, cap: 1m, factor: 1.5, jitter: full}\n\
             timeout: {after: 1h30m, grace: 0s, action: wait}\nidempotent: false\npriority: {level: 7, band: urgent}\n\
             rate_limit: {per: 1m, starts: 10}\n\
             routing: {strategy: pinned, worker: w1, tags: [zone=eu, gpu=true], min_worker_version: 1.4}",
        ),
        expect![[
            r#"{"name":"a","description":"d","owner":"o","enabled":false,"trigger":{"cron":"0 2 * * *","timezone":"Europe/Berlin","gap":"skip","overlap":"both"},"command":{"argv":["a","b"],"env":{"A":"x","B":"1"},"working_directory":"/w","stdin":"in","user":"u","success_codes":[0,3]},"payload":"{\"a\":7,\"b\":[1,2.5,null,true]}","misfire":{"action":"fire_all","limit":5,"deadline":"1m30s"},"concurrency":{"max_running":2,"max_queue":7},"retry":{"max_attempts":3,"max_losses":0,"first":"1s","cap":"1m","factor":1.5,"jitter":"full"},"timeout":{"after":"1h30m","grace":"0s","action":"wait"},"idempotent":false,"priority":{"band":"urgent","level":7},"rate_limit":{"starts":10,"per":"1m"},"routing":{"strategy":"pinned","worker":"w1","tags":{"gpu":"true","zone":"eu"},"min_worker_version":"1.4"}}"#
        ]],
    );
}

#[test]
fn chains_and_shards_have_documents_too() {
    check(
        &task("after: b\nshards: 1\ncommand: x"),
        expect![[r#"{"name":"a","trigger":"manual","after":[{"task":"b"}],"command":{"shell":"x"},"shards":1}"#]],
    );
    check(
        &task("trigger: {delay: 1s}\nafter: [{task: b, on: success}, {task: c, on: any}]\nshards: [eu, 1, true]\ncommand: x"),
        expect![[
            r#"{"name":"a","trigger":{"delay":"1s"},"after":[{"task":"b"},{"task":"c","on":"any"}],"command":{"shell":"x"},"shards":["eu","1","true"]}"#
        ]],
    );
}

#[test]
fn calls_and_handlers_have_documents_too() {
    check(
        "tasks:\n- {name: a, trigger: manual, http: 'https://x/y'}\n\
         - {name: b, trigger: {delay: 1m}, http: {url: 'http://[::1]:80/', method: POST, headers: {A: b}, body: c, success_statuses: [404, 200-299], redirects: none}}\n\
         - {name: c, trigger: {fixed_delay: 100ms}, handler: noop}\n\
         - {name: 每日对账, trigger: manual, handler: {name: mine, config: {z: 1, a: [x]}}}",
        expect![[r#"
            {"name":"a","trigger":"manual","http":{"url":"https://x/y","method":"GET","redirects":"same_origin"}}
            {"name":"b","trigger":{"delay":"1m"},"http":{"url":"http://[::1]:80/","method":"POST","headers":{"A":"b"},"body":"c","success_statuses":["200-299","404"],"redirects":"none"}}
            {"name":"c","trigger":{"fixed_delay":"100ms"},"handler":{"name":"noop"}}
            {"name":"每日对账","trigger":"manual","handler":{"name":"mine","config":{"a":["x"],"z":1}}}"#]],
    );
}

#[test]
fn equal_meaning_gives_equal_text() {
    let groups: [&[&str]; 10] = [
        &["trigger: manual", "trigger: manual\npriority: 5", "trigger: manual\npriority: {band: normal, level: 5}\nrouting: least_loaded"],
        &["trigger: manual\npriority: low", "trigger: manual\npriority: {band: low}"],
        &["trigger: manual\npriority: 8", "trigger: manual\npriority: {level: 8}"],
        &["trigger: manual\nrouting: {tags: {a: 1, b: x}}", "trigger: manual\nrouting: {strategy: least_loaded, tags: [b=x, a=1]}"],
        &[
            "trigger: {cron: '0 2 * * *'}",
            "trigger: {cron: ' 0  2\t* * * ', timezone: UTC, dialect: unix5, gap: after_gap, overlap: first}",
        ],
        &["trigger: manual\ntimeout: 90s", "trigger: manual\ntimeout: {after: 1m30s, grace: 10s, action: kill}"],
        &["trigger: manual\nmisfire: fire_all", "trigger: manual\nmisfire: {action: fire_all, limit: 100}"],
        &[
            "trigger: manual",
            "trigger: manual\nconcurrency: {max_running: 1, when_full: queue, max_queue: 100}\ndescription: ''\npriority: normal",
        ],
        &[
            "trigger: manual",
            "trigger: manual\nretry: {max_losses: 3, backoff: exponential, first: 30s, cap: 30m, factor: 2.0, jitter: equal}",
        ],
        &[
            "trigger: manual\npayload: {a: 1, b: 2}",
            "trigger: manual\npayload:\n  b: 2\n  a: 0x1",
            "trigger: manual\npayload: '{\"a\":1,\"b\":2}'",
        ],
    ];
    for group in groups {
        let documents: Vec<String> = group.iter().map(|fields| document(&task(&format!("{fields}\ncommand: x")))).collect();
        assert!(documents.iter().all(|document| *document == documents[0]), "{documents:#?}");
    }
}

#[test]
fn a_byte_order_mark_and_crlf_change_nothing() {
    let text = task("trigger: manual\ncommand: x\ndescription: |\n  one\n  two");
    let dos = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(document(&text), document(&dos));
}

#[test]
fn defaults_fill_what_tasks_leave_out() {
    check(
        "defaults:\n  owner: team\n  trigger: {timezone: Asia/Tokyo, gap: skip}\n  retry: {max_attempts: 5, first: 1s}\n  timeout: 1m\n  \
         misfire: {action: fire_all, limit: 9}\ntasks:\n- {name: a, trigger: {cron: '@daily'}, command: x}\n\
         - {name: b, trigger: {fixed_rate: 1s}, command: x, owner: me, retry: {first: 2s}, misfire: skip, timeout: {grace: 1s}}\n",
        expect![[r#"
            {"name":"a","owner":"team","trigger":{"cron":"@daily","timezone":"Asia/Tokyo","gap":"skip"},"command":{"shell":"x"},"misfire":{"action":"fire_all","limit":9},"retry":{"max_attempts":5,"first":"1s"},"timeout":{"after":"1m"}}
            {"name":"b","owner":"me","trigger":{"fixed_rate":"1s"},"command":{"shell":"x"},"misfire":{"action":"skip"},"retry":{"max_attempts":5,"first":"2s"},"timeout":{"after":"1m","grace":"1s"}}"#]],
    );
}

#[test]
fn anchors_stand_for_what_they_name() {
    let text = "tasks:\n- &a {name: a, trigger: manual, command: &c [x, y]}\n- {name: b, trigger: manual, command: *c}\n";
    let file = read(text).unwrap();
    assert_eq!(file.tasks[0].spec.handler, file.tasks[1].spec.handler);
}

#[test]
fn a_definition_has_what_the_document_says() {
    let text = task("trigger: {fixed_rate: 100ms}\ncommand: x\nconcurrency: {max_running: 3, when_full: replace}\nretry: {first: 1h}");
    let file = read(&text).unwrap();
    let definition = &file.tasks[0].definition;
    assert_eq!(definition.trigger, Trigger::FixedRate { interval: Millis(100) });
    assert_eq!((definition.policies.concurrency.max_running, definition.policies.concurrency.blocking), (3, Blocking::Replace));
    assert_eq!(definition.policies.retry.backoff.cap, Millis::from_secs(3_600), "the longest wait follows the first");
    assert_eq!(&*definition.handler.config, r#"{"shell":"x"}"#);
    let decoded = decode(&file.tasks[0].spec.to_json(), &Zones::bundled()).unwrap();
    assert_eq!(decoded, **definition, "a stored document gives the same definition");
}

#[test]
fn a_task_that_says_nothing_has_the_defaults_of_the_core() {
    let definition = decode(r#"{"name":"a","trigger":"manual","command":{"shell":"x"}}"#, &Zones::bundled()).unwrap();
    assert_eq!(definition.policies.misfire, Default::default());
    assert_eq!(definition.policies.concurrency, Default::default());
    assert_eq!(definition.policies.retry, Default::default());
    assert_eq!(definition.policies.timeout, Default::default());
    assert!(definition.enabled && definition.idempotent && definition.payload.is_none());
}

#[test]
fn equal_schedules_are_shared() {
    let zones = Zones::bundled();
    let document = |name: &str| {
        format!(r#"{{"name":"{name}","trigger":{{"cron":"0 2 * * *","timezone":"Europe/Berlin"}},"command":{{"shell":"x"}}}}"#)
    };
    let schedules: Vec<_> = ["a", "b"].map(|name| decode(&document(name), &zones).unwrap().trigger).into();
    match &schedules[..] {
        [Trigger::Cron(one), Trigger::Cron(other)] => assert!(std::sync::Arc::ptr_eq(one, other)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn stored_documents_get_the_same_checks() {
    let zones = Zones::bundled();
    let with = |fields: &str| format!(r#"{{"name":"a","trigger":"manual","command":{{"shell":"x"}}{fields}}}"#);
    for (document, code) in [
        ("{".to_owned(), Code::Document),
        ("[]".to_owned(), Code::Document),
        (with(r#","colour":"red""#), Code::Document),
        (with(r#","http":{"url":"http://x"}"#), Code::Document),
        (with(r#","timeout":{"after":"soon"}"#), Code::Document),
        (with(r#","priority":"high""#), Code::Document),
        (with(r#","timeout":{"after":"0s"}"#), Code::Duration),
        (with(r#","misfire":{"action":"skip","limit":3}"#), Code::Conflict),
        (r#"{"name":"a","trigger":{"cron":"* * * * *","delay":"1s"},"command":{"shell":"x"}}"#.to_owned(), Code::Document),
        (r#"{"name":"a","trigger":{"cron":"61 * * * *"},"command":{"shell":"x"}}"#.to_owned(), Code::Cron),
        (r#"{"name":"a","trigger":{"cron":"* * * * *","timezone":"Asia/Mumbai"},"command":{"shell":"x"}}"#.to_owned(), Code::Zone),
    ] {
        let findings = decode(&document, &zones).expect_err(&document);
        assert_eq!(findings[0].code, code, "{document}: {findings:?}");
    }
}

/// C339: what is longer is refused (`names` of the refusals), nothing is cut.
#[test]
fn names_keep_to_their_limits() {
    let longest = "é".repeat(limits::NAME_CHARS_MAX);
    for name in ["x", "每日对账", "a b", &longest] {
        let file = read(&format!("tasks:\n- {{name: {name:?}, trigger: manual, command: x}}")).unwrap();
        assert_eq!(file.tasks[0].spec.name, name, "unchanged");
    }
}

/// Documents that were stored before there were levels.
#[test]
fn a_band_by_itself_still_means_the_band() {
    for (word, band) in [("urgent", Band::Urgent), ("normal", Band::Normal), ("low", Band::Low)] {
        let document = format!(r#"{{"name":"a","trigger":"manual","handler":{{"name":"noop"}},"priority":"{word}"}}"#);
        let spec = TaskSpec::from_json(&document).unwrap();
        assert_eq!(spec.priority, Priority { band, level: 5 });
        let definition = spec.to_definition(&Zones::bundled()).unwrap();
        assert_eq!((definition.level, definition.routing, definition.policies.rate), (5, None, None));
    }
}

#[test]
fn defaults_of_queueing_are_filled_up_field_by_field() {
    let file = "defaults:\n  priority: {band: low, level: 2}\n  rate_limit: {starts: 10, per: 1s}\n  \
        routing: {strategy: pinned, worker: w1, tags: {zone: eu}}\ntasks:\n- {name: a, trigger: manual, command: x, priority: urgent, rate_limit: {starts: 3}}\n\
        - {name: b, trigger: manual, command: x, priority: 9, routing: hash}\n";
    check(
        file,
        expect![[r#"
            {"name":"a","trigger":"manual","command":{"shell":"x"},"priority":{"band":"urgent","level":2},"rate_limit":{"starts":3,"per":"1s"},"routing":{"strategy":"pinned","worker":"w1","tags":{"zone":"eu"}}}
            {"name":"b","trigger":"manual","command":{"shell":"x"},"priority":{"band":"low","level":9},"rate_limit":{"starts":10,"per":"1s"},"routing":{"strategy":"hash","tags":{"zone":"eu"}}}"#]],
    );
}

#[test]
fn what_is_retried_is_in_one_canonical_form() {
    check(
        &task(
            "trigger: manual\ncommand: x\nretry: {on: {exit_codes: [110, 75, 100-109, 100-105, 7 - 8], timeouts: false}, budget: {ratio: 0.25}}\n\
             downstream: mail\ncircuit_breaker: {failures: 3, within: 60s, open: 2m}",
        ),
        expect![[
            r#"{"name":"a","trigger":"manual","command":{"shell":"x"},"retry":{"on":{"exit_codes":["7-8","75","100-110"],"timeouts":false},"budget":{"ratio":0.25}},"downstream":"mail","circuit_breaker":{"failures":3,"open":"2m"}}"#
        ]],
    );
    check(
        &task("trigger: manual\nhttp: http://x\nretry: {on: {statuses: [503, 500-599]}, budget: {min_per_minute: 10, ratio: 0.20}}"),
        expect![[
            r#"{"name":"a","trigger":"manual","http":{"url":"http://x","method":"GET","redirects":"same_origin"},"retry":{"on":{"statuses":["500-599"]},"budget":{}}}"#
        ]],
    );
    check(
        &task("trigger: manual\ncommand: x\nretry: {on: {timeouts: true}}\ndownstream: 7\ncircuit_breaker: {failures: 5}"),
        expect![[r#"{"name":"a","trigger":"manual","command":{"shell":"x"},"downstream":"7"}"#]],
    );
}

#[test]
fn what_is_retried_is_what_the_definition_says() {
    let of = |fields: &str| crate::read(&task(fields)).unwrap().tasks.remove(0).definition;
    let command = of(
        "trigger: manual\ncommand: x\nretry: {on: {exit_codes: [75, 100-110]}, budget: {}}\ndownstream: mail\ncircuit_breaker: {open: 1s}",
    );
    let codes = command.policies.retry.on.codes.unwrap();
    let listed: Vec<_> = (-1..700).filter(|code| codes.contains(*code)).collect();
    assert_eq!(listed, [75].into_iter().chain(100..=110).collect::<Vec<_>>());
    assert_eq!(command.policies.retry.budget, Some(Default::default()));
    assert_eq!(command.downstream.as_deref(), Some("mail"));
    assert_eq!((command.policies.breaker.failures, command.policies.breaker.open), (5, Millis::from_secs(1)));
    let plain = of("trigger: manual\ncommand: x");
    assert_eq!((plain.policies.retry, plain.policies.breaker, plain.downstream.clone()), Default::default());
}

#[test]
fn inherited_lists_count_for_the_tasks_that_they_are_about() {
    let text = "\
defaults:
  retry: {max_attempts: 3, on: {exit_codes: [75], statuses: [500-599], timeouts: false}, budget: {ratio: 1}}
  downstream: mail
  circuit_breaker: {failures: 9}
tasks:
- {name: a, trigger: manual, command: x}
- {name: b, trigger: manual, http: 'http://x', retry: {on: {statuses: [429]}, budget: {min_per_minute: 5}}, circuit_breaker: {open: 1s}}
- {name: c, trigger: manual, handler: own, downstream: ~, retry: {budget: ~}}
";
    let documents: Vec<_> = crate::read(text).unwrap().tasks.iter().map(|task| task.spec.to_json()).collect();
    expect![[r#"
        {"name":"a","trigger":"manual","command":{"shell":"x"},"retry":{"max_attempts":3,"on":{"exit_codes":["75"],"timeouts":false},"budget":{"ratio":1}},"downstream":"mail","circuit_breaker":{"failures":9}}
        {"name":"b","trigger":"manual","http":{"url":"http://x","method":"GET","redirects":"same_origin"},"retry":{"max_attempts":3,"on":{"statuses":["429"],"timeouts":false},"budget":{"ratio":1,"min_per_minute":5}},"downstream":"mail","circuit_breaker":{"failures":9,"open":"1s"}}
        {"name":"c","trigger":"manual","handler":{"name":"own"},"retry":{"max_attempts":3,"on":{"timeouts":false}}}"#]].assert_eq(&documents.join("\n"));
}

/// It was checked when it was applied: a stored document is read without making its schema again.
#[test]
fn the_schema_of_a_stored_payload_is_not_made_for_each_read() {
    let document = r#"{"name":"a","trigger":"manual","command":{"shell":"x"},"payload_schema":{"type":"whole"}}"#;
    let zones = Zones::bundled();
    assert!(decode(document, &zones).unwrap().takes.is_some());
    let findings = TaskSpec::from_json(document).unwrap().to_definition(&zones).unwrap_err();
    assert_eq!(findings[0].code, Code::PayloadSchema);
}

/// Documents that people send may be as short as in a task file.
#[test]
fn a_command_may_be_a_text_or_a_list() {
    let read = |command: &str| {
        let node = format!(r#"{{"name":"n","command":{command}}}"#);
        let spec = TaskSpec::from_json(&format!(r#"{{"name":"a","trigger":"manual","command":{command}}}"#)).map(|spec| spec.to_json());
        let flow = TaskSpec::from_json(&format!(r#"{{"name":"a","trigger":"manual","nodes":[{node}]}}"#)).map(|spec| spec.to_json());
        (spec.map_err(|finding| finding.to_string()), flow.map_err(|finding| finding.to_string()))
    };
    for (short, long) in [("\"x | y\"", "{\"shell\":\"x | y\"}"), ("[\"x\", \"y\"]", "{\"argv\":[\"x\",\"y\"]}")] {
        let (task, flow) = read(short);
        assert_eq!((task, flow), read(long), "{short}");
        assert!(read(short).0.unwrap().contains(long), "{short}");
    }
    for bad in ["1", "true", "[1]", "{}", "{\"shell\":\"x\",\"argv\":[\"x\"]}", "{\"shell\":\"x\",\"more\":1}"] {
        let (task, flow) = read(bad);
        assert!(task.is_err() && flow.is_err(), "{bad}: {task:?} {flow:?}");
    }
}
