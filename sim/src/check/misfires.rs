//! `misfire.by_policy`: what becomes of missed fire times.

use punctual_core::cron;
use punctual_core::definition::{MisfireAction, TaskDefinition, Trigger};
use punctual_core::instance::{InstanceRow, Origin};
use punctual_core::limits;
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::time::Timestamp;

use crate::check::facts::{Facts, Fire, Fired};
use crate::check::{Case, SKEW_MS, Verdict};

/// Coalesced only under `fire_once`, and naming the instance that made up for it (unless that firing was itself discarded by the limit);
/// skipped only under `skip`; beyond the limit only under `fire_all`; past the deadline only where there is one, and only later than it. What
/// is made up for was later than the threshold and within the deadline, is never there under `skip`, is one at a time under `fire_once` and
/// at most `limit` under `fire_all`. What counts as on time is no later than the threshold.
///
/// Lateness is what the owner saw when it decided, not what the commit took. Loops go by the time that has passed: their lateness is judged
/// only where no clock was touched, and with [`SKEW_MS`] of room.
pub(super) fn by_policy(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for fires in facts.fires.chunk_by(|a, b| (a.task, a.commit) == (b.task, b.commit)) {
        for fire in fires {
            let Some(definition) = facts.definition(fire.task, fire.version) else { continue };
            let lateness = Lateness::new(facts, definition);
            let why = match fire.outcome {
                Fired::Instance(row) => wrong_instance(definition, row, lateness),
                Fired::Occurrence(occurrence) => wrong_occurrence(facts, definition, occurrence, fires, lateness),
            };
            if let Some(why) = why {
                let record = facts.commits[fire.commit].record;
                let what = match fire.outcome {
                    Fired::Instance(row) => format!("instance {}, {}", row.id, row.origin.name()),
                    Fired::Occurrence(occurrence) => format!("{} fire times {}", fire.count, occurrence.outcome.name()),
                };
                case.violated(|| {
                    format!("task {} ({}): {what} for {} to {}: {why} (record {record})", fire.task, definition.name, fire.first, fire.last)
                });
            }
        }
        too_many(facts, fires, &mut case);
    }
    case.verdict()
}

/// How exactly lateness can be judged.
#[derive(Clone, Copy)]
struct Lateness {
    is_judged: bool,
    slack: u64,
}

impl Lateness {
    fn new(facts: &Facts<'_>, definition: &TaskDefinition) -> Self {
        match definition.trigger {
            Trigger::Cron(_) => Lateness { is_judged: true, slack: 0 },
            Trigger::Timetable(ref timetable) => {
                // Lateness counts from the start, which jitter may have put off.
                let slack = timetable.jitter().0.saturating_add(SKEW_MS);
                Lateness { is_judged: matches!(timetable.series(), cron::Series::Cron(_)) || !facts.clocks.were_touched, slack }
            }
            _ => Lateness { is_judged: !facts.clocks.were_touched, slack: SKEW_MS },
        }
    }

    /// Surely later than this.
    fn is_above(self, late: u64, bound: u64) -> bool {
        self.is_judged && late > bound.saturating_add(self.slack)
    }

    /// Surely not later than this.
    fn is_within(self, late: u64, bound: u64) -> bool {
        self.is_judged && late.saturating_add(self.slack) <= bound
    }
}

fn late(at: Timestamp, fire_time: Timestamp) -> u64 {
    at.since(fire_time).0
}

fn wrong_instance(definition: &TaskDefinition, row: &InstanceRow, lateness: Lateness) -> Option<String> {
    let policy = definition.policies.misfire;
    let (late, threshold) = (late(row.created_at(), row.fire_time), limits::MISFIRE_THRESHOLD.0);
    match row.origin {
        Origin::Manual | Origin::Chain | Origin::Rerun | Origin::Backfill | Origin::Call => None,
        Origin::Schedule => lateness.is_above(late, threshold).then(|| format!("{late} ms late, and taken as on time")),
        Origin::CatchUp if policy.action == MisfireAction::Skip => Some("it was to be skipped".into()),
        Origin::CatchUp if lateness.is_within(late, threshold) => Some(format!("{late} ms late, and taken as missed")),
        Origin::CatchUp => {
            let deadline = policy.deadline.filter(|deadline| lateness.is_above(late, deadline.0))?;
            Some(format!("{late} ms late, and the deadline is {} ms", deadline.0))
        }
    }
}

fn wrong_occurrence(
    facts: &Facts<'_>,
    definition: &TaskDefinition,
    occurrence: &Occurrence,
    beside: &[Fire<'_>],
    lateness: Lateness,
) -> Option<String> {
    let policy = definition.policies.misfire;
    let late = late(occurrence.at, occurrence.last);
    let is_by_policy = match occurrence.outcome {
        Outcome::Coalesced => policy.action == MisfireAction::FireOnce,
        Outcome::MisfireSkipped => policy.action == MisfireAction::Skip,
        Outcome::CatchUpLimit => matches!(policy.action, MisfireAction::FireAll { .. }),
        Outcome::DeadlinePassed => policy.deadline.is_some(),
        Outcome::LimitReached | Outcome::QueueFull | Outcome::Disabled | Outcome::Withdrawn | Outcome::ChainTooLong => return None,
        Outcome::BlackedOut | Outcome::ExcludedDay | Outcome::Paused => return None,
    };
    if !is_by_policy {
        return Some("that is not the task's policy".into());
    }
    if let (Outcome::DeadlinePassed, Some(deadline)) = (occurrence.outcome, policy.deadline) {
        return lateness.is_within(late, deadline.0).then(|| format!("{late} ms late, and the deadline is {} ms", deadline.0));
    }
    if lateness.is_within(late, limits::MISFIRE_THRESHOLD.0) {
        return Some(format!("{late} ms late, and taken as missed"));
    }
    if occurrence.outcome != Outcome::Coalesced {
        return None;
    }
    match occurrence.instance {
        Some(id) => {
            let row = facts.last_row(id).filter(|row| row.task == occurrence.task && row.fire_time > occurrence.last);
            row.is_none().then(|| format!("instance {id} does not make up for it"))
        }
        None => {
            let was_discarded = |fire: &Fire<'_>| {
                let is_discarded = |outcome| matches!(outcome, Outcome::LimitReached | Outcome::QueueFull);
                fire.first > occurrence.last && matches!(fire.outcome, Fired::Occurrence(other) if is_discarded(other.outcome))
            };
            (!beside.iter().any(was_discarded)).then(|| "it names no instance that makes up for it".into())
        }
    }
}

/// Those that one look at the cursor made up for: they have one time of decision.
fn too_many(facts: &Facts<'_>, fires: &[Fire<'_>], case: &mut Case) {
    let made_up = |fire: &Fire<'_>| match fire.outcome {
        Fired::Instance(row) if row.origin == Origin::CatchUp => Some((row.created_at(), row.id)),
        _ => None,
    };
    let mut made_up: Vec<_> = fires.iter().filter_map(|fire| made_up(fire).map(|(at, id)| (fire.version, at, id))).collect();
    made_up.sort_unstable();
    for together in made_up.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (version, at, id) = together[together.len() - 1];
        let Some(definition) = facts.definition(fires[0].task, version) else { continue };
        let most = match definition.policies.misfire.action {
            MisfireAction::FireOnce => 1,
            MisfireAction::FireAll { limit } => limit.clamp(1, limits::CATCH_UP_MAX) as usize,
            MisfireAction::Skip => continue,
        };
        if together.len() > most {
            let (task, count, record) = (fires[0].task, together.len(), facts.commits[fires[0].commit].record);
            case.violated(|| {
                format!(
                    "task {task}: {count} fire times were made up for at {at}, up to instance {id}, allowed are {most} (record {record})"
                )
            });
        }
    }
}
