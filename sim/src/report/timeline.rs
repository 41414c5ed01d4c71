//! The run over time.

use std::collections::BTreeMap;

use super::numbers::spread;
use super::observe::{Facts, TaskFacts};
use super::{Bucket, Cell, Lane, TaskReport, Timeline};

/// Most buckets: more than this nobody can tell apart on a screen.
const BUCKETS_MAX: u64 = 360;
/// Most tasks that are shown over time.
const LANES_MAX: usize = 12;
/// An instance that begins later than this is late.
const LATE_MS: u64 = 60_000;
/// Lengths that people can count in.
const LENGTHS_MS: [u64; 18] = [
    1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000,
    21_600_000, 43_200_000, 86_400_000,
];

/// The run in buckets.
pub(super) fn of(facts: &Facts, tasks: &[TaskReport]) -> Timeline {
    let bucket_ms = bucket_ms(facts.end_ms());
    let count = usize::try_from(facts.end_ms().div_ceil(bucket_ms).max(1)).unwrap_or(1);
    let place = |at_ms: u64| usize::try_from(at_ms / bucket_ms).unwrap_or(count).min(count - 1);
    Timeline { bucket_ms, buckets: buckets(facts, count, &place), faults: facts.faults.clone(), lanes: lanes(facts, tasks, &place) }
}

/// The shortest length that gives few enough buckets.
fn bucket_ms(end_ms: u64) -> u64 {
    LENGTHS_MS.into_iter().find(|length| end_ms.div_ceil(*length) <= BUCKETS_MAX).unwrap_or_else(|| end_ms.div_ceil(BUCKETS_MAX))
}

fn buckets(facts: &Facts, count: usize, place: &dyn Fn(u64) -> usize) -> Vec<Bucket> {
    let services = facts.plan.downstreams();
    let mut buckets: Vec<Bucket> = vec![Bucket { retries: vec![0; services.len()], ..Bucket::default() }; count];
    let mut lateness: Vec<Vec<u64>> = vec![Vec::new(); count];
    for task in &facts.tasks {
        let service = services.iter().position(|name| task.handler.downstream.as_deref() == Some(name));
        for instance in &task.instances {
            buckets[place(instance.made_ms)].fires += 1;
            if let (Some(began_ms), Some(late_ms)) = (instance.began_ms(), instance.lateness_ms()) {
                lateness[place(began_ms)].push(late_ms);
            }
            if let Some(service) = service {
                for attempt in instance.attempts.iter().filter(|attempt| attempt.number > 1) {
                    buckets[place(attempt.began_ms)].retries[service] += 1;
                }
            }
        }
    }
    for (bucket, lateness) in buckets.iter_mut().zip(lateness) {
        bucket.lateness = spread(lateness);
    }
    // A level holds until the next change, over as many buckets as that takes.
    let mut changes = facts.levels.iter().peekable();
    let (mut backlog, mut running) = (0, 0);
    for (index, bucket) in buckets.iter_mut().enumerate() {
        (bucket.backlog, bucket.running) = (backlog, running);
        while let Some((_, now_backlog, now_running)) = changes.next_if(|(at_ms, ..)| place(*at_ms) <= index) {
            (backlog, running) = (*now_backlog, *now_running);
            bucket.backlog = bucket.backlog.max(backlog);
            bucket.running = bucket.running.max(running);
        }
    }
    buckets
}

/// The tasks with the most trouble, the worst first; without trouble, in the order of the file.
fn lanes(facts: &Facts, tasks: &[TaskReport], place: &dyn Fn(u64) -> usize) -> Vec<Lane> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&task| std::cmp::Reverse(tasks[task].trouble));
    order.truncate(LANES_MAX);
    order.into_iter().map(|task| Lane { task, cells: cells(&facts.tasks[task], place) }).collect()
}

fn cells(task: &TaskFacts, place: &dyn Fn(u64) -> usize) -> Vec<Cell> {
    let mut cells: BTreeMap<usize, Cell> = BTreeMap::new();
    let mut cell = |at_ms: u64, change: &dyn Fn(&mut Cell)| {
        let bucket = place(at_ms);
        change(cells.entry(bucket).or_insert(Cell { bucket, ..Cell::default() }));
    };
    for instance in &task.instances {
        let is_late = instance.lateness_ms().map_or(!instance.state.is_terminal(), |late_ms| late_ms > LATE_MS);
        let is_wrong = instance.has_gone_wrong() || !instance.state.is_terminal();
        cell(instance.made_ms, &|cell| {
            cell.fired += 1;
            cell.late += u64::from(is_late);
            cell.retried += u64::from(instance.attempts.len() > 1);
            cell.wrong += u64::from(is_wrong);
            cell.cancelled += u64::from(instance.was_cancelled());
        });
    }
    for dropped in &task.dropped {
        cell(dropped.at_ms, &|cell| cell.dropped += dropped.count);
    }
    cells.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_lengths_that_people_count_in() {
        for (hours, length) in [(1, 10_000), (24, 300_000), (26, 300_000), (24 * 7, 1_800_000), (24 * 366, 87_840_000)] {
            assert_eq!(bucket_ms(hours * 3_600_000), length, "{hours} hours");
        }
    }
}
