//! `retry.bounded`: how many attempts, and how far apart.

use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::definition::TaskDefinition;
use punctual_core::instance::{Cause, InstanceRow, State, Transition};
use punctual_core::limits;

use crate::check::facts::{Facts, Instance};
use crate::check::{Case, Verdict};

/// How much shorter a wait may be than it was decided to be: clocks of two owners, when the second one ends it.
const WAIT_SLACK_MS: u64 = 100;

/// How the attempts have gone so far.
#[derive(Clone, Copy, Default)]
struct Score {
    attempts: u32,
    failures: u32,
    losses: u32,
}

/// By the definition that an instance is run by: attempts, those given back aside, are at most `max_attempts` (without it, one and as many
/// as workers may be lost); no attempt follows the last failure or loss that is allowed, nor a failure of a task that is not idempotent; the
/// wait that was decided lies between what the backoff's policy and jitter give, and the wait that was kept is no shorter, neither by the
/// log nor between the handlers themselves.
///
/// How much later than due an attempt begins is for `heal.converges` to say: until then there may be nobody to begin it. Where clocks were
/// touched, the wait that was kept is not judged.
pub(super) fn bounded(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for instance in &facts.instances {
        let Some(row) = instance.last.map(|last| facts.versions[last].row) else { continue };
        let Some(definition) = facts.definition_of(row) else { continue };
        if row.transitions.iter().any(|transition| transition.to == State::Retrying) || row.attempt > 1 {
            judge(facts, &mut case, instance, row, definition);
        }
    }
    case.verdict()
}

fn judge(facts: &Facts<'_>, case: &mut Case, instance: &Instance, row: &InstanceRow, definition: &TaskDefinition) {
    let record = instance.last.map_or(0, |last| facts.commit_of(&facts.versions[last]).record);
    let retry = definition.policies.retry;
    let most = retry.max_attempts.unwrap_or(retry.max_losses.saturating_add(1)).min(limits::ATTEMPTS_MAX);
    let mut bad = |what: String| case.violated(|| format!("instance {} of task {}: {what} (record {record})", row.id, row.task));
    let mut score = Score::default();
    for (index, transition) in row.transitions.iter().enumerate() {
        match transition.to {
            State::Dispatched => {
                score.attempts += 1;
                if score.attempts > most {
                    return bad(format!("attempt {} at {}, allowed are {most}", score.attempts, transition.at));
                }
            }
            State::Created if transition.cause == Cause::Returned => score.attempts = score.attempts.saturating_sub(1),
            State::Retrying => {
                let is_loss = transition.cause == Cause::WorkerLost;
                score.failures += u32::from(!is_loss);
                score.losses += u32::from(is_loss);
                if let Some(why) = why_no_more(definition, score, is_loss) {
                    return bad(format!("it is retried at {} after {why}", transition.at));
                }
                let range = match (is_loss, score.losses) {
                    (true, 0 | 1) => (0, 0),
                    (true, losses) => wait(&retry.backoff, losses - 1),
                    (false, _) => wait(&retry.backoff, score.failures),
                };
                if let Some(what) = wrong_wait(facts, instance, row, index, range) {
                    return bad(what);
                }
            }
            _ => {}
        }
    }
    if row.attempt > most || row.losses > retry.max_losses.saturating_add(1) {
        bad(format!("attempt {} with {} lost workers, allowed are {most} and {}", row.attempt, row.losses, retry.max_losses));
    }
}

fn why_no_more(definition: &TaskDefinition, score: Score, is_loss: bool) -> Option<String> {
    let retry = definition.policies.retry;
    let ended = score.failures + score.losses;
    if is_loss {
        if score.losses > retry.max_losses {
            return Some(format!("{} lost workers", score.losses));
        }
        let is_last = retry.max_attempts.is_some_and(|most| ended >= most) || ended >= limits::ATTEMPTS_MAX;
        return is_last.then(|| format!("{ended} attempts"));
    }
    if !definition.idempotent {
        return Some("a failure, and is not idempotent".into());
    }
    (ended >= retry.max_attempts.unwrap_or(1).min(limits::ATTEMPTS_MAX)).then(|| format!("{ended} attempts"))
}

/// What is wrong with the wait that begins with the transition of this index.
fn wrong_wait(facts: &Facts<'_>, instance: &Instance, row: &InstanceRow, index: usize, (least, most): (u64, u64)) -> Option<String> {
    let begin = &row.transitions[index];
    let decided = facts.versions[instance.versions.clone()].iter().find(|version| {
        let is_then = version.row.transitions.len() == index + 1 && version.row.state == State::Retrying;
        is_then && version.row.transitions.last() == Some(begin)
    });
    if let Some(due_at) = decided.and_then(|version| version.row.due_at) {
        let wait = due_at.since(begin.at).0;
        if wait < least || wait > most {
            return Some(format!("the wait from {} is {wait} ms, allowed are {least} to {most}", begin.at));
        }
    }
    let next = row.transitions.get(index + 1).filter(|next| next.to == State::Created)?;
    if facts.clocks.were_touched {
        return None;
    }
    let kept = next.at.since(begin.at).0;
    if kept.saturating_add(WAIT_SLACK_MS) < least {
        return Some(format!("the wait from {} was over after {kept} ms, at least {least} are due", begin.at));
    }
    between_handlers(facts, row, begin, &row.transitions[index + 1..])
        .filter(|kept| kept.saturating_add(WAIT_SLACK_MS) < least)
        .map(|kept| format!("the next handler began {kept} ms after fence {} had ended, at least {least} are due", begin.fence))
}

/// From the end of a handler to the beginning of the next one.
fn between_handlers(facts: &Facts<'_>, row: &InstanceRow, ended: &Transition, after: &[Transition]) -> Option<u64> {
    if ended.cause == Cause::WorkerLost {
        return None;
    }
    let next = after.iter().find(|transition| transition.to == State::Dispatched)?.fence;
    let runs = facts.runs_of(row.id);
    let until = runs.iter().find(|run| run.fence == next)?.began_at;
    let from = runs.iter().find(|run| run.fence == ended.fence)?.ended.map(|(record, _)| facts.records[record].at)?;
    Some(until.saturating_sub(from))
}

/// The shortest and the longest delay after so many failures, in milliseconds.
fn wait(policy: &BackoffPolicy, failures: u32) -> (u64, u64) {
    let (first, cap, steps) = (policy.first.0 as f64, policy.cap.0 as f64, failures.saturating_sub(1));
    let grown = match policy.kind {
        Backoff::Fixed => first,
        Backoff::Linear => first * (f64::from(steps) + 1.0),
        Backoff::Exponential { factor_permille } => first * (f64::from(factor_permille.max(1_000)) / 1_000.0).powf(f64::from(steps)),
    };
    let grown = grown.min(cap);
    let share = match policy.jitter {
        Jitter::Proportional { permille } => grown * f64::from(permille.min(1_000)) / 1_000.0,
        _ => 0.0,
    };
    let least = match policy.jitter {
        Jitter::None => grown,
        Jitter::Full => 0.0,
        Jitter::Equal => grown / 2.0,
        Jitter::Proportional { .. } => grown - share,
    };
    // The engine rounds to whole milliseconds, and multiplies exactly.
    let error = 2.0 + grown * 1e-9;
    ((least - error).max(0.0) as u64, (grown + share + error).min(cap) as u64)
}
