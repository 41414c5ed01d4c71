//! Each trigger rule with all that two upstreams may come to.

use super::*;

/// What a node makes of two upstreams. `S` succeeded, `F` failed, `K` was skipped, `-` still runs.
const TABLE: &str = "
    upstreams  all_succeeded  all_done  one_failed  one_succeeded  none_failed
    --         wait           wait      wait        wait           wait
    S-         wait           wait      wait        start          wait
    F-         skip           wait      start       wait           skip
    K-         skip           wait      wait        wait           wait
    SS         start          start     skip        start          start
    SF         skip           start     start       start          skip
    SK         skip           start     skip        start          start
    FF         skip           start     start       skip           skip
    FK         skip           start     start       skip           skip
    KK         skip           start     skip        skip           start
";

/// The states that count as what a letter of the table says, and the policy under which they do.
fn meanings(letter: char) -> Vec<Option<(NodeState, FailurePolicy)>> {
    use FailurePolicy::{Continue, SkipDownstream};
    use NodeState::{Cancelled, Failed, Skipped, Succeeded};
    match letter {
        '-' => vec![None],
        'S' => vec![Some((Succeeded, SkipDownstream)), Some((Failed, Continue)), Some((Cancelled, Continue))],
        'F' => vec![Some((Failed, SkipDownstream)), Some((Cancelled, SkipDownstream))],
        'K' => vec![Some((Skipped, SkipDownstream)), Some((Skipped, Continue)), Some((Skipped, FailurePolicy::FailRun))],
        _ => panic!("{letter}?"),
    }
}

/// What the node under a rule does when its upstreams have ended like this, the one named first ending first.
fn decision(rule: TriggerRule, ends: [(&str, Option<(NodeState, FailurePolicy)>); 2]) -> &'static str {
    let mut upstreams: Vec<NodeSpec> = ends.iter().map(|(name, _)| node(name, "")).collect();
    for (spec, (_, end)) in upstreams.iter_mut().zip(&ends) {
        spec.on_failure = end.map_or(FailurePolicy::SkipDownstream, |(_, policy)| policy);
    }
    upstreams.push(ruled(rule, node("x", "a b")));
    let (mut run, _) = ByName::begin(upstreams);
    for (name, end) in ends {
        if let Some((state, _)) = end {
            run.ends(name, state);
        }
    }
    match run.state("x") {
        NodeState::Waiting => "wait",
        NodeState::Started => "start",
        NodeState::Skipped => "skip",
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_rule_decides_as_the_table_says_whichever_upstream_ends_first() {
    let mut lines = TABLE.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rules: Vec<_> = lines.next().expect("a head").split_off(1);
    assert_eq!(rules, TriggerRule::ALL.map(TriggerRule::name));
    let mut checked = 0;
    for line in lines {
        let letters: Vec<char> = line[0].chars().collect();
        for (rule, expected) in TriggerRule::ALL.into_iter().zip(&line[1..]) {
            for first in meanings(letters[0]) {
                for second in meanings(letters[1]) {
                    assert_eq!(decision(rule, [("a", first), ("b", second)]), *expected, "{rule}: a {first:?}, then b {second:?}");
                    assert_eq!(decision(rule, [("b", second), ("a", first)]), *expected, "{rule}: b {second:?}, then a {first:?}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn a_node_without_upstreams_starts_at_once_whatever_its_rule() {
    for rule in TriggerRule::ALL {
        let (_, steps) = ByName::begin([ruled(rule, node("a", ""))]);
        assert_eq!(steps, ["start a"], "{rule}");
    }
}

#[test]
fn names_lead_back_to_what_they_name() {
    for rule in TriggerRule::ALL {
        assert_eq!(TriggerRule::from_name(&rule.to_string()), Some(rule));
    }
    for policy in FailurePolicy::ALL {
        assert_eq!(FailurePolicy::from_name(policy.name()), Some(policy));
    }
    for state in NodeState::ALL {
        assert_eq!(NodeState::from_name(state.name()), Some(state));
    }
    for end in RunEnd::ALL {
        assert_eq!(RunEnd::from_name(end.name()), Some(end));
    }
    assert_eq!(TriggerRule::from_name("all_success"), None);
    assert_eq!(TriggerRule::default().name(), "all_succeeded");
    assert_eq!(FailurePolicy::default().name(), "skip_downstream");
}
