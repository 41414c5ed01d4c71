//! Simpler numbers, selectors and kinds.

use crate::plan::{FaultKind, Selector};

/// Smaller and rounder numbers to try in place of this one, none below `floor`, the boldest first.
pub(super) fn lower_values(value: u64, floor: u64) -> Vec<u64> {
    let unit = unit(value);
    let step = (unit / 10).max(1);
    let bold = [floor, value / 2, value / 4 * 3].map(|lower| round(lower, 2));
    let careful = [round(value, 1), round(value, 2), round(value.saturating_sub(step), 2), value.saturating_sub(1)];
    // One less is a step only for what is counted, not for what is measured.
    let careful = &careful[..if value < 100 { 4 } else { 3 }];
    let mut values = Vec::new();
    for lower in bold.into_iter().chain(careful.iter().copied()).map(|lower| lower.max(floor)) {
        if lower < value && !values.contains(&lower) {
            values.push(lower);
        }
    }
    values
}

/// The largest power of ten that is not above a number.
fn unit(value: u64) -> u64 {
    if value < 10 { 1 } else { 10_u64.pow(value.ilog10()) }
}

/// Rounded down to so many figures.
fn round(value: u64, figures: u32) -> u64 {
    let unit = (unit(value) / 10_u64.pow(figures - 1)).max(1);
    value / unit * unit
}

/// For whom a fault could be in place of this, the simplest first. A node by its number is simpler than one by what it does.
pub(super) fn simpler_selectors(on: Selector) -> Vec<Selector> {
    use Selector::{AllSchedulers, AllWorkers, Busy, Everybody, Minority, Owner, Scheduler, Worker, World};
    let lower = |number: usize, selector: fn(usize) -> Selector| {
        lower_values(number as u64, 0).into_iter().map(|number| selector(number as usize)).collect::<Vec<_>>()
    };
    match on {
        World | Scheduler(0) | Worker(0) => vec![],
        Scheduler(number) => lower(number, Scheduler),
        Worker(number) => lower(number, Worker),
        Owner(number) => [vec![Scheduler(0)], lower(number, Owner)].concat(),
        Busy(number) => [vec![Worker(0)], lower(number, Busy)].concat(),
        Minority | AllSchedulers => vec![Scheduler(0), Owner(0)],
        AllWorkers => vec![Worker(0), Busy(0)],
        Everybody => vec![Scheduler(0), Worker(0), Owner(0), Busy(0), AllSchedulers, AllWorkers],
    }
}

/// The number in a kind of fault, and how small it may get. The sign of a step or a drift is no part of it.
pub(super) fn number_of(kind: FaultKind) -> Option<(u64, u64)> {
    match kind {
        FaultKind::Delay { ms } | FaultKind::DatabaseSlow { ms } => Some((ms, 1)),
        FaultKind::Lose { per_mille }
        | FaultKind::Duplicate { per_mille }
        | FaultKind::DatabaseAborts { per_mille }
        | FaultKind::CommitAppliedAnswerLost { per_mille }
        | FaultKind::CommitNotAppliedAnswerLost { per_mille }
        | FaultKind::WakeUpsLost { per_mille } => Some((u64::from(per_mille), 1)),
        FaultKind::ClockStep { by } | FaultKind::DatabaseClockStep { by } => Some((by.unsigned_abs(), 1)),
        FaultKind::ClockDrift { per_mille } => Some((per_mille.unsigned_abs(), 1)),
        FaultKind::HandlersSlow { times } => Some((times, 2)),
        FaultKind::Flood { count, .. } => Some((count as u64, 1)),
        FaultKind::Crash
        | FaultKind::Restart
        | FaultKind::Pause
        | FaultKind::Isolate
        | FaultKind::CutOutgoing
        | FaultKind::CutIncoming
        | FaultKind::CutFromDatabase
        | FaultKind::Reset
        | FaultKind::DatabaseDown
        | FaultKind::DatabaseFull
        | FaultKind::Failover
        | FaultKind::WakeUpsDown
        | FaultKind::WakeUpsDoubled
        | FaultKind::HandlersHang
        | FaultKind::HandlersPanic
        // The number of a service is a name.
        | FaultKind::RetryStorm { .. } => None,
    }
}

/// The kind with another number, which is not above the one that it has.
pub(super) fn with_number(mut kind: FaultKind, number: u64) -> FaultKind {
    match &mut kind {
        FaultKind::Delay { ms } | FaultKind::DatabaseSlow { ms } => *ms = number,
        FaultKind::Lose { per_mille }
        | FaultKind::Duplicate { per_mille }
        | FaultKind::DatabaseAborts { per_mille }
        | FaultKind::CommitAppliedAnswerLost { per_mille }
        | FaultKind::CommitNotAppliedAnswerLost { per_mille }
        | FaultKind::WakeUpsLost { per_mille } => *per_mille = number as u32,
        FaultKind::ClockStep { by } | FaultKind::DatabaseClockStep { by } | FaultKind::ClockDrift { per_mille: by } => {
            *by = by.signum() * number as i64;
        }
        FaultKind::HandlersSlow { times } => *times = number,
        FaultKind::Flood { count, .. } => *count = number as usize,
        _ => {}
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_smaller_and_rounder() {
        assert_eq!(lower_values(53_217, 0), [0, 26_000, 39_000, 50_000, 53_000, 52_000]);
        assert_eq!(lower_values(10_000, 0), [0, 5_000, 7_500, 9_000]);
        assert_eq!(lower_values(3, 1), [1, 2]);
        assert_eq!(lower_values(1, 1), [0; 0]);
        for value in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert!(lower_values(value, 0).iter().all(|lower| *lower < value));
        }
    }

    #[test]
    fn a_kind_keeps_its_sign() {
        assert_eq!(with_number(FaultKind::ClockStep { by: -90_000 }, 300), FaultKind::ClockStep { by: -300 });
        assert_eq!(number_of(FaultKind::ClockStep { by: i64::MIN }), Some((1 << 63, 1)));
    }
}
