//! Drawing what goes wrong.
//!
//! Durations are long compared with noise: what lasts less than a lease is repaired by waiting, and what the machines do when a lease
//! has run out is the interesting part. Several faults may be at work at once.

use std::collections::BTreeSet;

use punctual_core::limits;

use crate::draw::Draw;
use crate::plan::{Family, Fault, FaultKind, Selector, Shape, TaskPlan, downstreams};
use crate::workload;

/// Before this nothing goes wrong: the first leases are taken and the first tasks fire.
const QUIET_MS: u64 = 5_000;
/// A plan that is longer than this has more faults.
const STRETCH_MS: u64 = 480_000;
/// Longest time that the database is away.
const DATABASE_DOWN_MS_MAX: u64 = 60_000;
/// Longest step of the database's clock. What it was ahead when it is set back, nothing fires for.
const DATABASE_STEP_MS_MAX: u64 = 180_000;
/// Longest that a slowed handler takes: the end of a plan waits for it.
const SLOWED_MS_MAX: u64 = 120_000;
/// Submissions of a flood.
const FLOOD: usize = 50_000;

/// What faults are drawn for.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// How many of what there are.
    pub shape: Shape,
    /// The tasks.
    pub tasks: &'a [TaskPlan],
    /// Every fault has ended by then.
    pub heal_at_ms: u64,
}

/// Faults of these families, ordered by when they begin. Each family draws from a stream of its own.
pub fn draw_faults(seed: u64, families: &BTreeSet<Family>, ground: &Ground) -> Vec<Fault> {
    let mut faults = Vec::new();
    for family in families {
        let mut cast = Cast { draw: Draw::new(seed, &format!("swarm faults {}", family.name())), ground, faults: &mut faults };
        cast.family(*family);
    }
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}

struct Cast<'a> {
    draw: Draw,
    ground: &'a Ground<'a>,
    faults: &'a mut Vec<Fault>,
}

impl Cast<'_> {
    fn family(&mut self, family: Family) {
        let stretches = self.ground.heal_at_ms.div_ceil(STRETCH_MS).max(1);
        let count = *self.draw.weighted(&[(40, 1), (35, 2), (20, 3), (5, 5)]);
        for _ in 0..count * stretches {
            match family {
                Family::NodeCrash => self.crash(),
                Family::RollingRestart => self.restart(),
                Family::NodePause => self.pause(),
                Family::Network => self.network(),
                Family::Clock => self.clock(),
                Family::DatabaseClock => self.database_clock(),
                Family::DbJitter => self.database(),
                Family::DbUnknown => self.commits(),
                Family::DbFailover | Family::DbLostTail => self.instant(FaultKind::Failover, Selector::World),
                Family::WakeUps => self.wake_ups(),
                Family::Handlers => self.handlers(),
                Family::RetryStorm => self.retry_storm(),
                Family::Flood => self.flood(),
            }
        }
    }

    fn crash(&mut self) {
        match self.draw.below(10) {
            // A burst: the same node again, before or soon after it has settled in.
            0..=2 => {
                let node = self.node();
                let mut at = self.start(self.ground.heal_at_ms / 2);
                for _ in 0..self.draw.between(2, 3) {
                    let lasts = self.draw.between(100, 15_000);
                    self.add(at, lasts, FaultKind::Crash, node);
                    at += lasts + self.draw.between(100, 8_000);
                }
            }
            3 => self.lasting(FaultKind::Crash, Selector::Everybody),
            4 => {
                let all = *self.draw.pick(&[Selector::AllSchedulers, Selector::AllWorkers]);
                self.lasting(FaultKind::Crash, all);
            }
            _ => {
                let on = self.anybody();
                self.lasting(FaultKind::Crash, on);
            }
        }
    }

    fn restart(&mut self) {
        match self.draw.below(10) {
            // One after the other, as a deployment does.
            0..=5 => {
                let workers_too = self.draw.chance(300);
                let schedulers = (0..self.ground.shape.schedulers).map(Selector::Scheduler);
                let workers = (0..if workers_too { self.ground.shape.workers } else { 0 }).map(Selector::Worker);
                let nodes: Vec<Selector> = schedulers.chain(workers).collect();
                let mut at = self.start(self.ground.heal_at_ms / 2);
                for node in nodes {
                    let lasts = self.draw.between(200, 8_000);
                    self.add(at, lasts, FaultKind::Restart, node);
                    at += lasts + self.draw.between(0, 5_000);
                }
            }
            6 => {
                let all = *self.draw.pick(&[Selector::AllSchedulers, Selector::AllWorkers, Selector::Everybody]);
                self.lasting(FaultKind::Restart, all);
            }
            _ => {
                let on = self.anybody();
                self.lasting(FaultKind::Restart, on);
            }
        }
    }

    fn pause(&mut self) {
        let lease = limits::PARTITION_LEASE.0;
        let (on, lasts) = match self.draw.below(10) {
            // Longer than its lease: it comes back to partitions that others own by then.
            0..=4 => (self.owner(), self.draw.between(lease, 3 * lease)),
            5..=7 => (self.busy(), self.draw.between(limits::WORKER_LEASE.0, 2 * limits::WORKER_LEASE.0)),
            8 => (*self.draw.pick(&[Selector::AllSchedulers, Selector::AllWorkers, Selector::Everybody]), self.draw.between(5_000, 40_000)),
            _ => (self.anybody(), self.draw.between(500, lease)),
        };
        let at = self.start(lasts);
        self.add(at, lasts, FaultKind::Pause, on);
    }

    fn network(&mut self) {
        let on = if self.draw.chance(150) { self.many() } else { self.anybody() };
        if self.draw.chance(200) {
            // Longer than an attempt's lease: somebody else is given what the worker goes on with.
            let lease = limits::WORKER_LEASE.0;
            let lasts = self.draw.between(3 * lease / 2, 4 * lease);
            let (at, busy) = (self.start(lasts), self.busy());
            let kind = *self.draw.pick(&[FaultKind::Isolate, FaultKind::CutIncoming]);
            return self.add(at, lasts, kind, busy);
        }
        let kind = match self.draw.below(12) {
            0..=1 => FaultKind::Isolate,
            2..=3 => FaultKind::CutOutgoing,
            4 => FaultKind::CutIncoming,
            5 => {
                let on = self.owner();
                return self.lasting(FaultKind::CutFromDatabase, on);
            }
            6..=7 => FaultKind::Delay { ms: *self.draw.pick(&[50, 200, 1_000, 4_000, 9_500, 15_000]) },
            8 => FaultKind::Lose { per_mille: self.draw.between(1, 30) as u32 * 10 },
            9..=10 => FaultKind::Duplicate { per_mille: self.draw.between(1, 50) as u32 * 10 },
            _ => return self.instant(FaultKind::Reset, on),
        };
        self.lasting(kind, on);
    }

    fn clock(&mut self) {
        let on = if self.draw.chance(100) { self.many() } else { self.anybody() };
        let kind = if self.draw.chance(700) {
            let hour = 3_600_000;
            let by = *self.draw.pick(&[5, 300, 1_500, 10_500, 31_000, 90_000, hour, 26 * hour]);
            FaultKind::ClockStep { by: self.sign(by) }
        } else {
            let per_mille = *self.draw.pick(&[1, 10, 50, 200]);
            FaultKind::ClockDrift { per_mille: self.sign(per_mille) }
        };
        self.lasting(kind, on);
    }

    fn database_clock(&mut self) {
        let by = *self.draw.pick(&[5, 300, 1_500, 10_500, 31_000, 90_000, DATABASE_STEP_MS_MAX as i64]);
        let kind = FaultKind::DatabaseClockStep { by: self.sign(by) };
        self.lasting(kind, Selector::World);
    }

    fn database(&mut self) {
        let (kind, most) = if self.draw.chance(500) {
            (FaultKind::DatabaseSlow { ms: *self.draw.pick(&[20, 200, 1_000, 3_000, 9_500]) }, u64::MAX)
        } else {
            (FaultKind::DatabaseDown, DATABASE_DOWN_MS_MAX)
        };
        let lasts = self.lasts().min(most);
        let at = self.start(lasts);
        self.add(at, lasts, kind, Selector::World);
    }

    fn commits(&mut self) {
        let per_mille = *self.draw.pick(&[10, 50, 100, 200, 300]);
        let kind = match self.draw.below(3) {
            0 => FaultKind::DatabaseAborts { per_mille },
            1 => FaultKind::CommitAppliedAnswerLost { per_mille },
            _ => FaultKind::CommitNotAppliedAnswerLost { per_mille },
        };
        self.lasting(kind, Selector::World);
    }

    fn wake_ups(&mut self) {
        let kind = match self.draw.below(3) {
            0 => FaultKind::WakeUpsDown,
            1 => FaultKind::WakeUpsLost { per_mille: self.draw.between(1, 9) as u32 * 100 },
            _ => FaultKind::WakeUpsDoubled,
        };
        self.lasting(kind, Selector::World);
    }

    fn handlers(&mut self) {
        let on = match self.draw.below(4) {
            0 => Selector::AllWorkers,
            1 => Selector::Worker(self.draw.index(self.ground.shape.workers)),
            _ => self.busy(),
        };
        let kind = match self.draw.below(3) {
            0 => FaultKind::HandlersHang,
            1 => {
                let longest = self.ground.tasks.iter().map(|task| task.handler.takes_ms.1).max().unwrap_or(0).max(1);
                FaultKind::HandlersSlow { times: self.draw.between(2, 20).min(SLOWED_MS_MAX / longest).max(2) }
            }
            _ => FaultKind::HandlersPanic,
        };
        self.lasting(kind, on);
    }

    fn retry_storm(&mut self) {
        let count = downstreams(self.ground.tasks).len();
        if count == 0 {
            return;
        }
        let downstream = self.draw.index(count);
        self.lasting(FaultKind::RetryStorm { downstream }, Selector::World);
    }

    fn flood(&mut self) {
        let manual: Vec<usize> = (0..self.ground.tasks.len()).filter(|&task| workload::takes_floods(&self.ground.tasks[task])).collect();
        if !manual.is_empty() {
            let task = *self.draw.pick(&manual);
            self.instant(FaultKind::Flood { task, count: FLOOD }, Selector::World);
        }
    }

    fn sign(&mut self, number: i64) -> i64 {
        if self.draw.chance(500) { number } else { -number }
    }

    /// A node by its number.
    fn node(&mut self) -> Selector {
        if self.draw.chance(600) {
            Selector::Scheduler(self.draw.index(self.ground.shape.schedulers))
        } else {
            Selector::Worker(self.draw.index(self.ground.shape.workers))
        }
    }

    fn owner(&mut self) -> Selector {
        Selector::Owner(self.draw.index(usize::from(self.ground.shape.partitions)))
    }

    fn busy(&mut self) -> Selector {
        Selector::Busy(self.draw.index(self.ground.shape.workers * self.ground.shape.slots as usize))
    }

    /// A node, by its number or by what it has to do.
    fn anybody(&mut self) -> Selector {
        match self.draw.below(10) {
            0..=3 => self.owner(),
            4..=6 => self.busy(),
            _ => self.node(),
        }
    }

    /// More than one node, where there are more.
    fn many(&mut self) -> Selector {
        let has_minority = self.ground.shape.schedulers >= 3;
        match self.draw.below(10) {
            0..=4 if has_minority => Selector::Minority,
            0..=6 => Selector::AllSchedulers,
            7..=8 => Selector::AllWorkers,
            _ => Selector::Everybody,
        }
    }

    /// How long something lasts: mostly as long as one of the leases or longer.
    fn lasts(&mut self) -> u64 {
        let (low, high) = *self.draw.weighted(&[
            (20, (200, 5_000)),
            (35, (8_000, 20_000)),
            (35, (limits::WORKER_LEASE.0, 50_000)),
            (10, (60_000, 120_000)),
        ]);
        self.draw.between(low, high)
    }

    /// When something begins that lasts this long, so that it ends before the world heals where it can.
    fn start(&mut self, lasts: u64) -> u64 {
        let latest = self.ground.heal_at_ms.saturating_sub(lasts);
        self.draw.between(QUIET_MS.min(latest), latest)
    }

    fn lasting(&mut self, kind: FaultKind, on: Selector) {
        let lasts = self.lasts();
        let at = self.start(lasts);
        self.add(at, lasts, kind, on);
    }

    fn instant(&mut self, kind: FaultKind, on: Selector) {
        // Not at the very end: something is to come of it.
        let at = self.start(self.ground.heal_at_ms / 10);
        self.add(at, 0, kind, on);
    }

    /// Adds a fault, in tenths of a second since somebody is going to read it, cut off where the world heals.
    fn add(&mut self, at: u64, lasts: u64, kind: FaultKind, on: Selector) {
        let heal_at = self.ground.heal_at_ms;
        let (at, lasts) = (tenths(at), tenths(lasts));
        if at < heal_at {
            self.faults.push(Fault { at_ms: at, lasts_ms: lasts.min(heal_at - at), kind, on });
        }
    }
}

/// Rounded down to tenths of a second.
fn tenths(ms: u64) -> u64 {
    ms / 100 * 100
}
