//! All sources as one history.
//!
//! Four sources, each with a clock of its own: the run's notes and the handlers' accounts go by the machine's monotonic clock, the
//! database's records by its wall clock, which is the machine's too. Records of the database keep their order, whatever their times say:
//! none is earlier than the one before it. What
//! people asked for says when it was made by the database's clock, since that is what its owner goes by.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::ids::{InboxId, InstanceId, TaskId};
use punctual_core::time::Timestamp;
use punctual_sim::history::{Answer, Ask, History, Left, Record, What, Who};
use punctual_store::recorder::{Logged, Seen};

use crate::clock::{Origin, millis};
use crate::told::Note;
use crate::truth::Line;

/// Stands for an entry whose number the API does not tell: the one that the database has.
pub const ENTRY_UNTOLD: InboxId = InboxId(0);

/// Everything that was seen of a run.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The run's beginning.
    pub origin: Origin,
    /// Its end, by the monotonic clock, in microseconds. What came later does not count.
    pub end_us: i64,
    /// What the run wrote down itself.
    pub notes: Vec<Note>,
    /// The handlers' accounts, by worker.
    pub accounts: Vec<Vec<Line>>,
    /// What the database recorded.
    pub logged: Vec<Logged>,
    /// Instances that had not ended and entries that nobody had applied.
    pub left: (Vec<InstanceId>, Vec<InboxId>),
}

/// The history of a run.
pub fn merge(sources: Sources) -> History {
    let origin = sources.origin;
    let end = origin.of_monotonic(sources.end_us);
    let mut timed: Vec<(i64, Record)> = Vec::new();
    let record = |us: i64, who, what| (us, Record { at: millis(us), wall: origin.wall(millis(us)), who, what });
    let mut last = i64::MIN;
    for logged in sources.logged {
        last = last.max(origin.of_wall(logged.at_micros));
        let (us, mut seen) = record(last, Who::Database, carried_out(origin, logged.seen));
        seen.wall = logged.made_at.unwrap_or(seen.wall);
        timed.push((us, seen));
    }
    for note in sources.notes {
        timed.push(record(origin.of_monotonic(note.us), note.who, note.what));
    }
    for (worker, lines) in sources.accounts.into_iter().enumerate() {
        for line in lines {
            let (us, mut seen) = record(origin.of_monotonic(line.us), Who::Worker(worker), line.told.what());
            seen.wall.0 = line.wall_us.div_euclid(1_000);
            timed.push((us, seen));
        }
    }
    timed.retain(|(us, _)| *us <= end);
    let (live, inbox) = sources.left;
    timed.push(record(end, Who::Database, What::Left(Left::InDatabase { live, inbox })));
    // Stable: what comes from one source keeps its order.
    timed.sort_by_key(|(us, _)| *us);
    let mut history = History { records: timed.into_iter().map(|(_, record)| record).collect() };
    name_entries(&mut history);
    history
}

/// What the database carried out, in the history's words.
fn carried_out(origin: Origin, seen: Seen) -> What {
    let until_ms = |until: Timestamp| millis(origin.of_wall(until.0.saturating_mul(1_000)));
    match seen {
        Seen::Committed(batch) => What::Committed(batch),
        Seen::Defined { entry, task, partition, version, definition } => What::Defined { entry, task, partition, version, definition },
        Seen::Submitted { entry, task, submissions, key } => What::Submitted { entry, task, submissions, key },
        Seen::CancelSubmitted { entry, instance } => What::CancelSubmitted { entry, instance },
        Seen::RerunSubmitted { entry, instance } => What::RerunSubmitted { entry, instance },
        Seen::SkipSubmitted { entry, instance } => What::SkipSubmitted { entry, instance },
        Seen::DelayedChanged { entry, task, ordinal } => What::DelayedChanged { entry, task, ordinal },
        Seen::PauseChanged { entry, partition, scope, is_paused } => What::PauseChanged { entry, partition, scope, is_paused },
        Seen::MarkSubmitted { entry, instance } => What::MarkSubmitted { entry, instance },
        Seen::Noticed { entry, partition, notice } => What::Noticed { entry, partition, notice },
        Seen::ReferencesChanged { entry, task } => What::ReferencesChanged { entry, task },
        Seen::LeaseGranted { partition, owner, epoch, until } => What::LeaseGranted { partition, owner, epoch, until: until_ms(until) },
        Seen::LeaseRenewed { partition, epoch, until } => What::LeaseRenewed { partition, epoch, until: until_ms(until) },
        Seen::LeaseReleased { partition, epoch } => What::LeaseReleased { partition, epoch },
    }
}

/// Finds for each call that was accepted without an entry's number the entry that it wrote: the first of its kind and target that came
/// while it was under way and that no other call is answered with. An accepted cancellation that wrote none was one that there was already.
fn name_entries(history: &mut History) {
    let mut names: BTreeMap<TaskId, String> = BTreeMap::new();
    let mut entries: Vec<(usize, InboxId, Target)> = Vec::new();
    for (index, record) in history.records.iter().enumerate() {
        match &record.what {
            What::Defined { entry, task, definition, .. } => {
                if let Some(definition) = definition {
                    names.insert(*task, definition.name.to_string());
                }
                entries.push((index, *entry, Target::Task(names.get(task).cloned().unwrap_or_default())));
            }
            What::CancelSubmitted { entry, instance } => entries.push((index, *entry, Target::Instance(*instance))),
            _ => {}
        }
    }
    let mut named: BTreeSet<InboxId> = BTreeSet::new();
    let mut asked: BTreeMap<u64, (usize, Target)> = std::collections::BTreeMap::new();
    for index in 0..history.records.len() {
        match &history.records[index].what {
            What::Asked { call, ask: Ask::Define { task } } => {
                asked.insert(*call, (index, Target::Task(task.to_string())));
            }
            What::Asked { call, ask: Ask::Cancel { instance } } => {
                asked.insert(*call, (index, Target::Instance(*instance)));
            }
            What::Answered { call, answer: Answer::Accepted(ENTRY_UNTOLD) } => {
                let (call, Some((since, target))) = (*call, asked.remove(call)) else { continue };
                let of_target = |(_, _, other): &&(usize, InboxId, Target)| *other == target;
                let mut own = entries.iter().filter(of_target).filter(|(at, ..)| (since..index).contains(at));
                let answer = match own.find(|(_, id, _)| !named.contains(id)) {
                    Some((_, id, _)) => {
                        named.insert(*id);
                        Answer::Accepted(*id)
                    }
                    None => {
                        let earlier = entries.iter().filter(of_target).rfind(|(at, ..)| *at < index);
                        let is_cancel = matches!(target, Target::Instance(_));
                        earlier.filter(|_| is_cancel).map_or(Answer::Accepted(ENTRY_UNTOLD), |(_, id, _)| Answer::Repeated(*id))
                    }
                };
                history.records[index].what = What::Answered { call, answer };
            }
            _ => {}
        }
    }
}

/// What an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Task(String),
    Instance(InstanceId),
}
