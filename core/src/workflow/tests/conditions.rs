//! Conditions on results.

use serde_json::{Number, json};

use super::super::Unmet;
use super::*;

const RESULT: &str = r#"{"rows": 12, "ratio": 0.5, "big": 9007199254740993, "name": "a/b", "a/b": {"m~n": [10, 20]}, "none": null,
    "": "empty", "deep": {"x": [1, {"y": 2.0}]}}"#;

fn check(pointer: &str, test: Comparison) -> Result<(), Unmet> {
    Condition { node: Arc::from("a"), pointer: Arc::from(pointer), test }.check(Some(RESULT))
}

fn differs(found: &str) -> Result<(), Unmet> {
    Err(Unmet::Differs { found: Arc::from(found) })
}

#[test]
fn values_are_compared_as_json() {
    use Comparison::{Equals, Exists, GreaterThan, LessThan, NotEquals};
    let number = |value: f64| Number::from_f64(value).expect("a finite number");
    let cases = [
        ("/rows", Equals(json!(12)), Ok(())),
        ("/rows", Equals(json!(12.0)), Ok(())),
        ("/rows", Equals(json!("12")), differs("12")),
        ("/rows", NotEquals(json!(13)), Ok(())),
        ("/rows", NotEquals(json!(12.0)), differs("12")),
        ("/rows", GreaterThan(11.into()), Ok(())),
        ("/rows", GreaterThan(12.into()), differs("12")),
        ("/rows", LessThan(12.into()), differs("12")),
        ("/rows", LessThan(number(12.5)), Ok(())),
        ("/rows", GreaterThan((-1).into()), Ok(())),
        ("/ratio", GreaterThan(0.into()), Ok(())),
        ("/big", GreaterThan(9_007_199_254_740_992_i64.into()), Ok(())),
        ("/big", Equals(json!(9_007_199_254_740_992_i64)), differs("9007199254740993")),
        ("/name", GreaterThan(0.into()), differs("\"a/b\"")),
        ("/none", Exists, Ok(())),
        ("/none", Equals(json!(null)), Ok(())),
        ("/nothing", Exists, Err(Unmet::NoValue)),
        ("/nothing", NotEquals(json!(1)), Err(Unmet::NoValue)),
        ("/a~1b/m~0n/1", Equals(json!(20)), Ok(())),
        ("/a~1b/m~0n/01", Exists, Err(Unmet::NoValue)),
        ("/a~1b/m~0n/-", Exists, Err(Unmet::NoValue)),
        ("/", Equals(json!("empty")), Ok(())),
        ("/deep", Equals(json!({"x": [1.0, {"y": 2}]})), Ok(())),
        ("/deep", Equals(json!({"x": [1, {"y": 3}]})), differs(r#"{"x":[1,{"y":2.0}]}"#)),
        ("", Exists, Ok(())),
    ];
    for (pointer, test, expected) in cases {
        assert_eq!(check(pointer, test.clone()), expected, "{pointer} {test:?}");
    }
}

#[test]
fn without_a_json_result_every_condition_is_false() {
    for test in [Comparison::Exists, Comparison::NotEquals(json!(1)), Comparison::LessThan(1.into())] {
        let condition = Condition { node: Arc::from("a"), pointer: Arc::from(""), test };
        assert_eq!(condition.check(None), Err(Unmet::NoResult));
        assert_eq!(condition.check(Some("")), Err(Unmet::NotJson));
        assert_eq!(condition.check(Some("done in 3 s")), Err(Unmet::NotJson));
        assert_eq!(condition.check(Some(&"[".repeat(100_000))), Err(Unmet::NotJson), "no depth of nesting is an overflow");
    }
}

#[test]
fn of_a_long_value_the_beginning_is_kept() {
    let condition = Condition { node: Arc::from("a"), pointer: Arc::from(""), test: Comparison::Equals(json!(1)) };
    let Err(Unmet::Differs { found }) = condition.check(Some(&format!("\"{}\"", "ä".repeat(500)))) else { panic!("it differs") };
    assert!(found.len() <= crate::limits::CONDITION_FOUND_BYTES_MAX && found.len() > 120 && found.starts_with("\"ää"), "{found}");
}

#[test]
fn comparisons_have_their_names() {
    let all = [
        Comparison::Equals(json!(1)),
        Comparison::NotEquals(json!(1)),
        Comparison::GreaterThan(1.into()),
        Comparison::LessThan(1.into()),
        Comparison::Exists,
    ];
    assert_eq!(all.each_ref().map(Comparison::name), Comparison::NAMES);
}

#[test]
fn a_false_condition_skips_the_node_and_says_why() {
    let nodes = || [node("a", ""), if_equal("a", "/ok", json!(true), node("b", "a")), node("c", "b")];
    let (mut run, _) = ByName::begin(nodes());
    run.leaves("a", r#"{"ok": true}"#);
    assert_eq!(run.succeeds("a"), ["start b"]);

    let (mut run, _) = ByName::begin(nodes());
    run.leaves("a", r#"{"ok": "no"}"#);
    assert_eq!(run.succeeds("a"), ["skip b: condition", "skip c: upstream_skipped", "end succeeded"]);

    for (result, expected) in [
        (None, "its condition reads the result of `a`, and there is none"),
        (Some("7"), "its condition reads `/ok` of the result of `a`, and there is nothing"),
        (Some("ok"), "its condition reads the result of `a`, which is no JSON"),
        (Some(r#"{"ok": 3}"#), "`/ok` of the result of `a` is 3, and `equals` does not hold"),
    ] {
        let graph = graph(nodes());
        let (mut run, _) = Run::begin(&graph);
        let steps = run.node_ended(&graph, NodeIndex(0), NodeState::Succeeded, &|_| result);
        let Step::Skip(skipped, reason) = &steps[0] else { panic!("{steps:?}") };
        assert_eq!(reason.explain(&graph, *skipped), expected);
    }
}

#[test]
fn a_rule_that_skips_comes_before_the_condition() {
    let (mut run, _) = ByName::begin([node("a", ""), node("b", ""), if_equal("a", "", json!(1), node("c", "a b"))]);
    run.leaves("a", "1");
    assert_eq!(run.succeeds("a"), [""; 0]);
    assert_eq!(run.fails("b"), ["skip c: upstream_failed", "end failed"]);
}

/// The rule is met by the first upstream, but what is to be read has not ended.
#[test]
fn a_condition_waits_for_the_node_that_it_reads() {
    let join = |reads| if_equal(reads, "", json!(1), ruled(TriggerRule::OneSucceeded, node("d", "b c")));
    let nodes = |reads| [node("a", ""), node("b", ""), node("c", "a"), join(reads)];

    let (mut run, _) = ByName::begin(nodes("c"));
    assert_eq!(run.succeeds("b"), [""; 0], "c has not ended");
    assert_eq!(run.succeeds("a"), ["start c"]);
    run.leaves("c", "1");
    assert_eq!(run.fails("c"), ["start d"], "a failed node may leave a result too");

    let (mut run, _) = ByName::begin(nodes("a"));
    assert_eq!(run.succeeds("b"), [""; 0], "a, further up, has not ended");
    run.leaves("a", "1");
    assert_eq!(run.succeeds("a"), ["start c", "start d"]);
}
