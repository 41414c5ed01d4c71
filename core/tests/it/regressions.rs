//! Sequences that random tests have found, made small.

use crate::tabletop::{Op, check};
use punctual_sim::tabletop::Fate;

#[test]
fn an_account_from_before_an_assignment_does_not_speak_of_it() {
    let ops = [
        Op::Pass(3),
        Op::HoldStore,
        Op::Pass(4_685),
        Op::Trigger(1, None),
        Op::Pass(8_051),
        Op::HoldMessages(0),
        Op::Pass(4_660),
        Op::ReleaseStore,
        Op::Trigger(5, None),
        Op::Pass(504),
    ];
    check(1, &ops);
}

#[test]
fn a_trigger_without_a_delay_does_not_wait_for_a_clock_that_was_set_back() {
    check(1, &[Op::Trigger(0, None), Op::StepWall(-328_994)]);
}

#[test]
fn a_short_delay_stays_short_over_a_step_of_the_clock_and_a_reload() {
    let ops = [Op::Pass(3), Op::Commit(Fate::UnknownApplied), Op::Trigger(0, Some(1)), Op::StepWall(-385_539), Op::Pass(4)];
    check(2, &ops);
}

#[test]
fn a_store_that_does_not_answer_is_no_reason_to_ask_for_ever() {
    check(1, &[Op::HoldStore, Op::Pass(8_900)]);
}

#[test]
fn a_task_that_comes_back_does_not_fire_again_what_it_had_fired() {
    check(1, &[Op::Pass(4_083), Op::Pass(56_919), Op::Remove(4), Op::Define(4, true, 1), Op::StepWall(-1_003)]);
}

/// Partitions that come while the inbox is being read have older entries than where it would be read on.
#[test]
fn the_inbox_is_read_from_its_beginning_for_partitions_that_come_late() {
    check(1, &[Op::HoldStore, Op::Define(0, true, 1), Op::Remove(0), Op::Pass(8_899)]);
}
