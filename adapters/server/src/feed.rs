//! Tells people and the API what has been committed.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use punctual_core::batch::Batch;
use punctual_core::ids::{PartitionId, TaskId};
use punctual_core::instance::{Cause, InstanceRow, Links, MapPhase, State};
use punctual_core::occurrence::Occurrence;
use punctual_core::scheduler::Alert;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Observer, StoreError};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch};

use crate::applied::Applied;
use crate::console::Pulse;
use crate::events::Events;
use crate::printer::Printer;

/// Things that may wait to be put into words; where more come, their number is printed instead.
const QUEUE_MAX: usize = 256;

/// What is told.
#[derive(Debug)]
enum News {
    Committed(Arc<Batch>),
    Reloaded(PartitionId, Arc<str>),
    Ahead { tasks: usize, task: TaskId, until: Timestamp },
    Line(String),
}

/// The observer of a running node.
#[derive(Debug)]
pub(crate) struct Feed {
    commits: watch::Sender<u64>,
    applied: Applied,
    events: Events,
    pulse: Arc<Pulse>,
    trouble: watch::Sender<Option<Arc<str>>>,
    news: Option<(mpsc::Sender<News>, Printer)>,
    tells_commits: bool,
}

impl Feed {
    /// A feed that prints nothing.
    pub(crate) fn quiet() -> Self {
        let (commits, trouble) = (watch::Sender::new(0), watch::Sender::new(None));
        let (applied, events, pulse) = (Applied::default(), Events::new(life()), Arc::default());
        Feed { commits, applied, events, pulse, trouble, news: None, tells_commits: false }
    }

    /// A feed that prints a line for each thing that a person would want to see.
    pub(crate) fn printing<S: Catalog>(store: Arc<S>, console: Printer) -> Self {
        let (news, to_print) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(print(store, console.clone(), to_print));
        Feed { news: Some((news, console)), tells_commits: true, ..Feed::quiet() }
    }

    /// A feed that prints what somebody has to know of, and not each firing.
    pub(crate) fn of_alerts<S: Catalog>(store: Arc<S>, console: Printer) -> Self {
        Feed { tells_commits: false, ..Feed::printing(store, console) }
    }

    /// Changes with each commit.
    pub(crate) fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// The inbox entries that it applies.
    pub(crate) fn applied(&self) -> Applied {
        self.applied.clone()
    }

    /// The changes that it commits.
    pub(crate) fn events(&self) -> Events {
        self.events.clone()
    }

    /// What has ended in the last hour.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// Why the store can't be written, while it can't.
    pub(crate) fn trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.trouble.subscribe()
    }

    fn tell(&self, news: News) {
        // A terminal that can't keep up must not hold the scheduler up.
        if let Some((to_print, console)) = &self.news
            && to_print.try_send(news).is_err()
        {
            console.skip();
        }
    }
}

/// Tells this start of the program from all others.
fn life() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

impl Observer for Feed {
    fn committed(&self, batch: &Arc<Batch>) {
        self.commits.send_modify(|count| *count += 1);
        self.applied.tell(&batch.applied);
        self.events.committed(batch);
        self.pulse.saw(batch);
        if self.tells_commits {
            self.tell(News::Committed(batch.clone()));
        }
    }

    fn alerted(&self, alert: &Alert) {
        self.tell(News::Line(match alert {
            Alert::PartitionReloaded { partition, reason } => return self.tell(News::Reloaded(*partition, reason.clone())),
            Alert::TailLost { partition, known, found } => format!(
                "! the database has forgotten commits of partition {partition} (it has {found}, {known} were confirmed): what they said may happen again"
            ),
            Alert::LateResult { instance, fence } => {
                format!("! {instance}: a result came too late (fence {fence}) and was refused; another attempt has its place")
            }
            // Whoever is told of each firing knows.
            Alert::Failed { .. } if self.tells_commits => return,
            Alert::Failed { instance, state, cause } => {
                format!("! {instance} has {} ({}); see `punctual instance {instance}`", state.name(), cause.name())
            }
            Alert::DeadLettered { instance, cause } => {
                format!("! {instance} is given up ({}); see `punctual instance {instance}`", cause.name())
            }
            Alert::WorkerLost { worker, attempts } => format!("! worker {worker} is lost with {attempts} attempts"),
            Alert::ClockSteppedBack { by } => format!("! the clock was set back by {} ms; nothing fires twice", by.0),
            Alert::FiredAhead { tasks, task, until, .. } => return self.tell(News::Ahead { tasks: *tasks, task: *task, until: *until }),
            Alert::ChainTooLong { task, cause } => {
                format!("! task {task} was not fired after {cause}: too many tasks have fired one another; take one of them out of `after`")
            }
            Alert::NobodyFor { needs, reason } => {
                format!("! {}, so instances that need {} wait", reason.reason(), one_line(&needs.to_string()))
            }
            Alert::BreakerOpened { downstream, failures, probe_in } => format!(
                "! the circuit breaker of {downstream:?} is open after {failures} failures in a row; its instances wait, the first probe is in {}",
                punctual_spec::duration::format(*probe_in)
            ),
            Alert::BreakerClosed { downstream } => format!("  the circuit breaker of {downstream:?} is closed; what waited goes on"),
        }));
    }

    fn store_failed(&self, error: &StoreError) {
        self.trouble.send_replace(Some(Arc::from(error.to_string())));
        self.tell(News::Line(format!("! {error}")));
    }

    fn store_recovered(&self) {
        self.trouble.send_replace(None);
        self.tell(News::Line("  the database works again".to_owned()));
    }
}

async fn print<S: Catalog>(store: Arc<S>, console: Printer, mut news: mpsc::Receiver<News>) {
    let mut names = Names { store, known: FxHashMap::default() };
    let mut next = None;
    while let Some(item) = match next.take() {
        Some(item) => Some(item),
        None => news.recv().await,
    } {
        let mut text = String::new();
        match item {
            News::Reloaded(partition, reason) => {
                // They come together: a lease is rarely lost alone.
                let mut others = 0;
                loop {
                    match news.try_recv() {
                        Ok(News::Reloaded(_, again)) if again == reason => others += 1,
                        other => break next = other.ok(),
                    }
                }
                let which = if others == 0 { format!("partition {partition} is") } else { format!("{} partitions are", others + 1) };
                text.push_str(&format!("! {which} read anew: {reason}\n"));
            }
            News::Ahead { mut tasks, mut task, mut until } => {
                // One for each partition, and they come together.
                loop {
                    match news.try_recv() {
                        Ok(News::Ahead { tasks: more, task: other, until: later }) => {
                            tasks += more;
                            if later > until {
                                (task, until) = (other, later);
                            }
                        }
                        other => break next = other.ok(),
                    }
                }
                let (name, count) =
                    (names.of(task).await, if tasks == 1 { "1 task was".to_owned() } else { format!("{tasks} tasks were") });
                text.push_str(&format!(
                    "! {count} fired by a clock that was far ahead, and will not fire before it has come there again: {name:?} not until {until}. \
                     See \"A clock that was wrong\" in docs/operating.md\n"
                ));
            }
            News::Line(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            News::Committed(batch) => {
                for row in batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row)) {
                    if let Some(what) = describe(row).map(|what| shard_of(row) + &what) {
                        let name = names.of(row.task).await;
                        let at = clock_time(row);
                        text.push_str(&format!("  {at}  {name:<24}  {:<9}  {what}\n", row.id.to_string()));
                    }
                }
                for occurrence in &batch.occurrences {
                    let name = names.of(occurrence.task).await;
                    text.push_str(&format!("  -             {name:<24}  {}\n", describe_occurrence(occurrence)));
                }
            }
        }
        if !text.is_empty() {
            console.print(text);
        }
    }
}

/// Task names by id, read once each.
struct Names<S> {
    store: Arc<S>,
    known: FxHashMap<TaskId, Arc<str>>,
}

impl<S: Catalog> Names<S> {
    async fn of(&mut self, task: TaskId) -> Arc<str> {
        if let Some(name) = self.known.get(&task) {
            return name.clone();
        }
        let name = self.store.name_of(task).await.ok().flatten().unwrap_or_else(|| Arc::from(format!("task {task}")));
        self.known.insert(task, name.clone());
        name
    }
}

fn clock_time(row: &InstanceRow) -> String {
    let at = row.transitions.last().map_or(row.fire_time, |last| last.at).to_string();
    // 2026-11-29T17:12:01.5Z -> 17:12:01.5
    format!("{:<12}", at.split('T').nth(1).unwrap_or(&at).trim_end_matches('Z'))
}

/// Which part it is that a line is about, in front of what it says.
fn shard_of(row: &InstanceRow) -> String {
    if row.part.is_list() || row.part.is_reduce() {
        return if row.part.is_list() { "list: " } else { "reduce: " }.to_owned();
    }
    let (Some(index), Some(links)) = (row.part.shard_index(), &row.links) else { return String::new() };
    let key = links.shard_key.as_deref().map(|key| format!(", {}", one_line(key))).unwrap_or_default();
    format!("shard {} of {}{key}: ", index + 1, links.shards)
}

/// What the last transition means to a person; nothing for those that only lead from one to the next.
fn describe(row: &InstanceRow) -> Option<String> {
    let last = row.transitions.last()?;
    let attempt = if row.attempt > 1 { format!(" (attempt {})", row.attempt) } else { String::new() };
    let detail = last.detail.as_deref().map(|detail| format!(": {}", one_line(detail))).unwrap_or_default();
    let took = || {
        let begun =
            row.transitions.iter().rev().find(|transition| matches!(transition.cause, Cause::Started | Cause::Assigned | Cause::Divided));
        begun.map_or(0, |begun| last.at.since(begun.at).0)
    };
    Some(match last.to {
        // Its row is written again as its parts end.
        State::Running if last.cause == Cause::Divided => match row.links.as_deref()? {
            Links { map: Some(map), .. } if map.phase == MapPhase::List => format!("lists its items, fire time {}", row.fire_time),
            Links { map: None, shards, .. } if row.failures == 0 => format!("divided into {shards} shards, fire time {}", row.fire_time),
            _ => return None,
        },
        State::Created | State::Running => return None,
        State::Waiting => match row.due_at {
            Some(due) => format!("waits until {due}"),
            None => "waits: the task is at its limit of running instances".to_owned(),
        },
        State::Dispatched => format!("started{attempt}, fire time {}", row.fire_time),
        State::Succeeded => format!("succeeded{attempt} in {} ms", took()),
        State::Retrying => {
            let due = row.due_at.map(|due| format!(", again in {:.1} s", due.since(last.at).0 as f64 / 1000.0)).unwrap_or_default();
            format!("{}{attempt}{detail}{due}", if last.cause == Cause::WorkerLost { "was interrupted" } else { "failed" })
        }
        state => format!("{}{attempt} ({}){detail}", state.name(), last.cause.name()),
    })
}

fn describe_occurrence(occurrence: &Occurrence) -> String {
    let times = match occurrence.count {
        1 => format!("fire time {}", occurrence.first),
        count => format!("{count} fire times from {} to {}", occurrence.first, occurrence.last),
    };
    format!("{times} not fired: {}", occurrence.outcome.name())
}

/// Control characters could write to the terminal; the first line is enough here.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|character| !character.is_control()).take(200).collect()
}
