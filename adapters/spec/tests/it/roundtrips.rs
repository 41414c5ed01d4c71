//! Properties: what is written reads back, and any text comes to an end without a panic.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use punctual_core::time::Millis;
use punctual_spec::crontab::{Kind, Options, import};
use punctual_spec::emit::to_yaml;
use punctual_spec::handler::{CommandConfig, HttpConfig, Method, Program, Redirects};
use punctual_spec::spec::*;
use punctual_spec::timing::{Blackout, DayRange, Days, Moment, Timing, Weekdays};
use punctual_spec::workflow::{OnFailure, Rule, Test, When, WorkflowNode};

use crate::crontabs::assert_accounted_for;

/// Any text that may stand in a file: all that YAML takes for something special, and the rest of Unicode.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "[ -~]{0,20}",
        "\\PC{0,12}",
        any::<String>().prop_map(|text| text.replace('\0', "")),
        "([ -~]{0,12}\n){1,4}[ -~]{0,4}",
        prop::sample::select(vec![
            "", "~", "null", "true", "no", "1", "1.50", "0x1f", "- a", "a: b", "a #b", "*a", "&a", "!a", "%a", "@a", "{", "]", "'", "\"",
            "\\", "\n", "\r\n", "\u{85}", "\u{2028}", "\u{feff}", "  a  ", "a\tb", ".inf", "10s", "---", "..."
        ])
        .prop_map(str::to_owned),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[^\\pC\\s]{1,3}([^\\pC]{0,20}[^\\pC\\s])?"
}

fn duration() -> impl Strategy<Value = Millis> {
    prop_oneof![100_u64..10_000, 1_000..1_000_000_000_u64].prop_map(Millis)
}

fn trigger() -> impl Strategy<Value = Trigger> {
    let cron = prop::sample::select(vec!["0 2 * * *", "*/5 * * * *", "@daily", "30 0 2 * * MON-FRI"]);
    let zone = prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Etc/GMT+5"]);
    let gap = prop::sample::select(vec![Gap::AfterGap, Gap::Skip, Gap::ShiftForward]);
    let overlap = prop::sample::select(vec![Overlap::First, Overlap::Both, Overlap::Last]);
    let cron = (cron, zone, gap, overlap).prop_map(|(cron, zone, gap, overlap)| CronTrigger {
        timezone: zone.to_owned(),
        gap,
        overlap,
        ..CronTrigger::new(cron)
    });
    prop_oneof![
        cron.prop_map(Trigger::Cron),
        duration().prop_map(Trigger::FixedRate),
        duration().prop_map(Trigger::FixedDelay),
        duration().prop_map(Trigger::Delay),
        Just(Trigger::Manual),
    ]
}

/// What may refine a cron trigger, and in part the others.
fn timing() -> impl Strategy<Value = Timing> {
    fn moment(text: &str) -> Moment {
        text.parse().unwrap()
    }
    let starts_at = prop::sample::select(vec!["2027-01-01T00:00:00", "2027-01-01T05:30:00Z"]).prop_map(moment);
    let ends_at = prop::sample::select(vec!["2030-01-01T00:00:00", "2031-01-01T05:30:01Z"]).prop_map(moment);
    let range = (0..3_000_i32, 0..9_i32).prop_map(|(from, length)| {
        let first = jiff::civil::date(2026, 1, 1).checked_add(jiff::Span::new().days(from)).unwrap();
        DayRange { first, last: first.checked_add(jiff::Span::new().days(length)).unwrap() }
    });
    let calendar = vec(range, 0..6).prop_map(|exclude| Days { exclude, include: Vec::new() });
    let daily = (0..86_400_u32, 1..=86_400_u32, 1..0x80_u8)
        .prop_filter("not empty", |(from, to, _)| from != to)
        .prop_map(|(from, to, days)| Blackout::Daily { from, to, days: Weekdays(days) });
    let span = Just(Blackout::Span { from: moment("2027-06-18T00:00:00"), to: moment("2027-06-19T00:00:00Z") });
    let blackouts = vec(prop_oneof![3 => daily, 1 => span], 0..2);
    (option::of(starts_at), option::of(ends_at), option::of(calendar), blackouts, prop_oneof![Just(0), 1..86_400_000_u64]).prop_map(
        |(starts_at, ends_at, calendar, blackouts, jitter)| Timing { starts_at, ends_at, calendar, blackouts, jitter: Millis(jitter) },
    )
}

fn timing_of(trigger: &Trigger, timing: Timing) -> Timing {
    let Timing { starts_at, ends_at, jitter, .. } = timing;
    match trigger {
        Trigger::Cron(_) => timing,
        Trigger::FixedRate(_) => Timing { starts_at, ends_at, jitter, ..Timing::default() },
        Trigger::FixedDelay(_) => Timing { starts_at, ends_at, ..Timing::default() },
        Trigger::Delay(_) | Trigger::Manual => Timing::default(),
    }
}

fn handler() -> impl Strategy<Value = Handler> {
    let program = prop_oneof![
        (name(), vec(text(), 0..4)).prop_map(|(program, rest)| Program::Argv(std::iter::once(program).chain(rest).collect())),
        (name(), text()).prop_map(|(word, rest)| Program::Shell(format!("{word} {rest}"))),
    ];
    let environment = btree_map("[A-Z]{1,3}|\\w{1,4}", text(), 0..4);
    let command = (program, environment, option::of(name()), option::of(text()), option::of(name()), vec(any::<u8>(), 1..4)).prop_map(
        |(program, env, working_directory, stdin, user, success_codes)| {
            Handler::Command(CommandConfig { program, env, working_directory, stdin, user, success_codes })
        },
    );
    let http = ("[a-z]{1,9}", option::of(text())).prop_map(|(host, body)| {
        let headers = BTreeMap::from([("X-Test".to_owned(), "a: b".to_owned())]);
        let success_statuses = vec!["404".to_owned(), "200-299".to_owned()];
        Handler::Http(HttpConfig {
            url: format!("http://{host}/?a=b#c"),
            method: Method::Put,
            headers,
            body,
            success_statuses,
            redirects: Redirects::None,
        })
    });
    let custom = ("[a-z]{1,6}x", json()).prop_map(|(name, value)| {
        let config = serde_json::Map::from_iter([("value".to_owned(), value)]);
        Handler::Custom(CustomHandler { name, config })
    });
    prop_oneof![command, http, custom]
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e6..1e6_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn after() -> impl Strategy<Value = Vec<After>> {
    let on = prop::sample::select(vec![On::Success, On::Failure, On::Any]);
    btree_map(name(), on, 0..3).prop_map(|tasks| tasks.into_iter().map(|(task, on)| After { task, on }).collect())
}

fn shards() -> impl Strategy<Value = Shards> {
    let keys = btree_map(text().prop_map(|text| text.chars().filter(|c| !c.is_control()).collect::<String>() + "k"), Just(()), 1..4);
    prop_oneof![
        Just(Shards::None),
        (1_u32..=10_000).prop_map(Shards::Count),
        keys.prop_map(|keys| Shards::Keys(keys.into_keys().collect())),
    ]
}

fn map_over() -> impl Strategy<Value = Map> {
    let reduce = option::of(handler().prop_filter("a call can't be given the results", |reduce| !matches!(reduce, Handler::Http(_))));
    (handler(), reduce, 1_u32..=1_000).prop_map(|(list, reduce, parallel)| Map { list, reduce, parallel })
}

fn routing() -> impl Strategy<Value = Routing> {
    let strategies = vec![
        RoutingStrategy::LeastLoaded,
        RoutingStrategy::RoundRobin,
        RoutingStrategy::Random,
        RoutingStrategy::Hash,
        RoutingStrategy::Broadcast,
    ];
    let strategy = prop_oneof![
        prop::sample::select(strategies).prop_map(|strategy| (strategy, None)),
        name().prop_map(|worker| (RoutingStrategy::Pinned, Some(worker))),
    ];
    let tags = btree_map("[a-zA-Z0-9_./-]{1,9}", "[a-zA-Z0-9_./:-]{1,9}", 0..4);
    (strategy, tags, option::of("[0-9]{1,3}([.][0-9]{1,3}){0,3}(-rc[.]1)?"))
        .prop_map(|((strategy, worker), tags, min_worker_version)| Routing { strategy, worker, tags, min_worker_version })
}

fn nodes() -> impl Strategy<Value = Vec<WorkflowNode>> {
    let words = (option::of(handler()), option::of(text()), option::of(name()), option::of(any::<bool>()));
    let rules = prop::sample::select(vec![Rule::AllSucceeded, Rule::AllDone, Rule::OneFailed]);
    let policies = prop::sample::select(vec![OnFailure::SkipDownstream, OnFailure::FailRun, OnFailure::Continue]);
    let test = prop_oneof![
        json().prop_map(Test::Equals),
        json().prop_map(Test::NotEquals),
        any::<i64>().prop_map(|number| Test::GreaterThan(number.into())),
        (-1e6..1e6_f64).prop_map(|number| Test::LessThan(serde_json::Number::from_f64(number).unwrap())),
        Just(Test::Exists(true)),
    ];
    let when = option::of((prop_oneof![Just(String::new()), "(/[a-z]{1,3}){1,3}"], test));
    let timeout = option::of((option::of(duration()), duration()));
    let node = (words, rules, policies, when, shards(), timeout, (option::of(1_u32..9), routing(), any::<u8>()));
    let node = node.prop_map(
        |((handler, payload, downstream, idempotent), rule, on_failure, when, shards, timeout, (attempts, routing, bits))| {
            let retry = attempts.map(|attempts| Retry { max_attempts: Some(attempts), ..Retry::default() });
            let timeout = timeout.map(|(after, grace)| Timeout { after, grace, action: TimeoutAction::Wait });
            let read = WorkflowNode {
                handler,
                payload,
                downstream,
                idempotent,
                rule,
                on_failure,
                shards,
                timeout,
                retry,
                ..WorkflowNode::new("", None)
            };
            let read = match bits % 5 {
                // Another task, which has all else of its own.
                0 => WorkflowNode {
                    task: Some("another task".into()),
                    payload: read.payload,
                    rule,
                    on_failure,
                    ..WorkflowNode::new("", None)
                },
                _ => WorkflowNode { routing: (bits & 1 > 0).then_some(routing), ..read },
            };
            (read, when, bits)
        },
    );
    vec(node, 0..4).prop_map(|drawn| {
        let mut nodes = Vec::new();
        for (index, (mut node, when, bits)) in drawn.into_iter().enumerate() {
            node.name = format!("n{index}");
            node.after = (0..index).filter(|before| bits >> before & 2 > 0).map(|before| format!("n{before}")).collect();
            node.when = when.zip(node.after.first().cloned()).map(|((pointer, test), node)| When { node, pointer, test });
            nodes.push(node);
        }
        nodes
    })
}

/// Its parts are boxed: as one type they are more than a test's stack holds.
fn spec() -> impl Strategy<Value = TaskSpec> {
    let words = (
        option::of(text().prop_map(|text| text.chars().filter(|c| !c.is_control()).collect::<String>())),
        option::of(name()),
        option::of(text()),
    );
    let band = prop::sample::select(vec![Band::Urgent, Band::Normal, Band::Low]);
    let priority = (band, 0_u32..=9).prop_map(|(band, level)| Priority { band, level });
    let rate = || option::of((1_u32..50, 100_u64..3_600_000));
    let group = option::of((name(), option::of(1_u32..9), rate(), any::<bool>())).boxed();
    let queueing = (priority, rate(), routing(), group).boxed();
    let flags = (any::<bool>(), any::<bool>(), queueing);
    let misfire = prop_oneof![
        option::of(duration()).prop_map(|deadline| Misfire { action: MisfireAction::Skip, limit: None, deadline, rate: None }),
        (option::of(1_u32..200), option::of(1_u32..9)).prop_map(|(limit, starts)| Misfire {
            action: MisfireAction::FireAll,
            limit,
            deadline: None,
            rate: starts.map(|starts| RateLimit { starts, per: Millis(1_000) }),
        }),
        Just(Misfire::default()),
    ];
    let concurrency = (1_u32..4, option::of(99_u32..102), option::of("/[a-z~0-1é]{0,5}")).prop_map(|(max_running, max_queue, key)| {
        Concurrency { max_running, when_full: WhenFull::Queue, max_queue, key: key.map(|key| key.replace('~', "~1")) }
    });
    let codes = option::of(vec((100_u32..200, 0_u32..50).prop_map(|(first, length)| format!("{first}-{}", first + length)), 1..3));
    let on = (codes, any::<bool>()).prop_map(|(exit_codes, timeouts)| RetryOn { exit_codes, statuses: None, timeouts });
    let budget =
        option::of((0_u32..5_000, 1_u32..20).prop_map(|(ratio, min_per_minute)| RetryBudget { ratio: Factor(ratio), min_per_minute }));
    let breaker = option::of((1_u32..9, duration(), 1_u64..9).prop_map(|(failures, within, open)| CircuitBreaker {
        failures,
        within: within.min(Millis::from_secs(86_400)),
        open: Millis::from_secs(open * 10),
    }));
    let protection = (on, budget, option::of(name()), breaker).boxed();
    let retry = (option::of(1_u32..9), 1_000_u32..5_000, duration()).prop_map(|(max_attempts, factor, first)| Retry {
        max_attempts,
        factor: Some(Factor(factor)),
        first,
        cap: first.saturating_mul(3),
        jitter: Jitter::None,
        ..Retry::default()
    });
    let timeout = (option::of(duration()), duration()).prop_map(|(after, grace)| Timeout { after, grace, action: TimeoutAction::Wait });
    let when =
        (trigger(), prop_oneof![Just(Timing::default()), timing()], after(), shards(), (nodes().boxed(), option::of(map_over()).boxed()))
            .prop_map(|(trigger, timing, after, shards, (nodes, map))| {
                let timing = timing_of(&trigger, timing);
                // A workflow is not divided.
                let (shards, map) = if nodes.is_empty() { (shards, map) } else { (Shards::None, None) };
                (trigger, timing, after, shards, (nodes, map))
            });
    let when = when.boxed();
    (name(), when, handler(), words, flags, misfire, concurrency, (retry, protection), timeout).prop_map(
        |(
            name,
            (trigger, timing, after, shards, (nodes, map)),
            handler,
            (description, owner, payload),
            (enabled, idempotent, queueing),
            misfire,
            concurrency,
            retry,
            timeout,
        )| {
            let (priority, rate, routing, group) = queueing;
            let rate_limit = |rate: Option<(u32, u64)>| rate.map(|(starts, per)| RateLimit { starts, per: Millis(per) });
            let group_limits = group.clone().filter(|(.., has_limits)| *has_limits).map(|(_, max_running, rate, _)| GroupLimits {
                max_running: max_running.or(rate.is_none().then_some(3)),
                rate_limit: rate_limit(rate),
            });
            let (retry, (mut on, budget, downstream, breaker)) = retry;
            on.exit_codes = on.exit_codes.filter(|_| matches!(handler, Handler::Command(_)));
            let circuit_breaker = breaker.filter(|_| downstream.is_some());
            let mut spec = TaskSpec {
                timing,
                // Not after itself, and each once.
                after: after.into_iter().filter(|after| after.task != name).collect(),
                map: map.filter(|_| shards == Shards::None && routing.strategy != RoutingStrategy::Broadcast),
                shards: if routing.strategy == RoutingStrategy::Broadcast { Shards::None } else { shards },
                nodes,
                description,
                owner,
                payload,
                enabled,
                idempotent,
                priority,
                rate_limit: rate_limit(rate),
                routing,
                group: group.map(|(group, ..)| group),
                group_limits,
                misfire,
                concurrency,
                retry: Retry { on, budget, ..retry },
                downstream,
                circuit_breaker,
                timeout,
                ..TaskSpec::new(name, trigger, handler)
            };
            spec.normalise();
            spec
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn specs_survive_their_documents(spec in spec()) {
        let document = spec.to_json();
        let read = TaskSpec::from_json(&document).unwrap();
        prop_assert_eq!(read.to_json(), document);
        prop_assert_eq!(read, spec);
    }

    #[test]
    fn specs_survive_their_task_file(specs in vec(spec(), 1..4)) {
        let mut specs = specs;
        for (index, spec) in specs.iter_mut().enumerate() {
            spec.name = format!("{index}{}", spec.name);
            // Tasks of one group agree on its limits.
            spec.group = spec.group.take().map(|group| format!("{index}{}", group.chars().take(100).collect::<String>()));
        }
        prop_assume!(specs.iter().all(|spec| spec.to_definition(crate::zones()).is_ok()));
        let yaml = to_yaml(&specs, &["made by a test".to_owned()]);
        let file = crate::read(&yaml).map_err(|problems| TestCaseError::fail(format!("{problems}{yaml}")))?;
        let read: Vec<TaskSpec> = file.tasks.into_iter().map(|task| task.spec).collect();
        prop_assert_eq!(read, specs, "{}", yaml);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), yaml in "(tasks|defaults|name|trigger|cron|command|[-:&*!|>{}\\[\\],'\"#%@~ \n\t]|[a-z0-9]){0,80}") {
        let _ = crate::read(&text);
        let _ = crate::read(&yaml);
        let _ = crate::read(&format!("tasks:\n- {yaml}"));
        let _ = punctual_spec::duration::parse(&text);
        let _ = TaskSpec::from_json(&text);
    }

    #[test]
    fn any_crontab_is_imported_or_accounted_for(bytes in vec(any::<u8>(), 0..200), text in "([0-9*/,@#=%\\\\ \t\r\n~-]|[a-zA-Z]|CRON_TZ=|@daily ){0,120}") {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            for kind in [Kind::User, Kind::System] {
                let options = Options { file: "c".to_owned(), kind, timezone: "UTC".to_owned() };
                let import = import(bytes, &options, crate::zones());
                assert_accounted_for(bytes, &import);
            }
        }
    }

    #[test]
    fn what_is_imported_survives_its_task_file(commands in vec(("[0-9]{1,2}|\\*", "\\PC{1,30}"), 1..6)) {
        let text: String = commands.iter().map(|(minute, command)| format!("{minute} * * * * {command}\n")).collect();
        let options = Options { file: "c".to_owned(), kind: Kind::User, timezone: "Europe/Berlin".to_owned() };
        let import = import(text.as_bytes(), &options, crate::zones());
        if !import.tasks.is_empty() {
            let yaml = import.to_yaml("c");
            let file = crate::read(&yaml).map_err(|problems| TestCaseError::fail(format!("{problems}{yaml}")))?;
            let read: Vec<TaskSpec> = file.tasks.into_iter().map(|task| task.spec).collect();
            prop_assert_eq!(read, import.tasks, "{}", yaml);
        }
    }
}
