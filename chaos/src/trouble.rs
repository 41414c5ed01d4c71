//! Faults: beginning, ending, and for whom.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_core::ids::{PartitionId, ReplicaId};
use punctual_sim::draw::Draw;
use punctual_sim::history::{What, Who};
use punctual_sim::plan::{Fault, FaultKind, Selector};
use punctual_sim::trouble::{PATIENCE_MS, is_on_record_as_cut, select};
use punctual_testbed::Problem;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::database::Pair;

/// How often connections to Redis may break while wake-ups are lost.
const REDIS_BREAKS_EVERY: Duration = Duration::from_millis(500);
/// How often a database that does not start is tried again, and how far apart.
const STARTS_MAX: u32 = 60;
const START_AGAIN: Duration = Duration::from_secs(2);

/// What became of a fault.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Done {
    /// Its place in the plan.
    pub index: usize,
    /// What it was.
    pub kind: FaultKind,
    /// On whom, in words.
    pub on: String,
    /// When it began, in milliseconds.
    pub from_ms: u64,
    /// When it was over, which may take longer than the plan says.
    pub until_ms: u64,
    /// Why it did not take place.
    pub skipped: Option<String>,
    /// What else is to be said.
    pub remark: Option<&'static str>,
}

/// Lets each fault happen at its time; ends when all are over.
pub async fn carry_out(cluster: &Arc<Cluster>) -> Vec<Done> {
    let mut faults = JoinSet::new();
    for (index, fault) in cluster.plan.faults.iter().enumerate() {
        if fault.at_ms < cluster.plan.heal_at_ms {
            let (cluster, fault) = (cluster.clone(), fault.clone());
            faults.spawn(async move {
                cluster.sleep_until(fault.at_ms).await;
                cluster.fault(index, &fault).await
            });
        }
    }
    let mut done = faults.join_all().await;
    done.sort_by_key(|done| (done.from_ms, done.index));
    done
}

impl Cluster {
    /// Sleeps until so many milliseconds after the beginning.
    pub async fn sleep_until(&self, at_ms: u64) {
        sleep(Duration::from_millis(at_ms.saturating_sub(self.origin.at_ms()))).await;
    }

    async fn fault(self: &Arc<Self>, index: usize, fault: &Fault) -> Done {
        let on = self.select(fault.on).await;
        let from_ms = self.origin.at_ms();
        let in_words = if on.is_empty() { "world".to_owned() } else { on.iter().map(word).collect::<Vec<_>>().join(" ") };
        let mut done =
            Done { index, kind: fault.kind, on: in_words, from_ms, until_ms: from_ms, skipped: None, remark: remark(fault.kind) };
        if let Some(why) = self.why_not(fault.kind) {
            done.skipped = Some(why);
            return self.say(done);
        }
        self.notes.note(Who::World, What::FaultBegan(index));
        self.note_links(&on, fault, What::Cut);
        if let Err(why) = self.begin(index, &on, fault).await {
            done.skipped = Some(why);
            self.notes.note(Who::World, What::FaultEnded(index));
            return self.say(done);
        }
        self.during(fault).await;
        self.finish(&on, fault).await;
        self.note_links(&on, fault, What::Mended);
        self.notes.note(Who::World, What::FaultEnded(index));
        done.until_ms = self.origin.at_ms();
        self.say(done)
    }

    fn say(&self, done: Done) -> Done {
        eprintln!("{}", line(&done));
        done
    }

    /// What can't be done here at all.
    fn why_not(&self, kind: FaultKind) -> Option<String> {
        match kind {
            FaultKind::Duplicate { .. } => Some("TCP repeats nothing".to_owned()),
            FaultKind::WakeUpsDoubled => Some("Redis repeats nothing".to_owned()),
            FaultKind::DatabaseClockStep { .. } => Some("the database's clock is the machine's".to_owned()),
            FaultKind::Failover if !self.plan.knobs.semi_synchronous => Some("the pair is semi-synchronous and loses no tail".to_owned()),
            FaultKind::ClockStep { .. } | FaultKind::ClockDrift { .. } => self.clocks.clone().err(),
            FaultKind::WakeUpsDown | FaultKind::WakeUpsLost { .. } if !self.plan.knobs.wake_ups => {
                Some("the plan is without Redis".to_owned())
            }
            _ => None,
        }
    }

    /// For whom a fault is, as things stand now.
    async fn select(&self, on: Selector) -> Vec<Who> {
        let owner: Option<ReplicaId> = match on {
            Selector::Owner(partition) => self.owner(PartitionId((partition % usize::from(self.plan.shape.partitions)) as u16)).await,
            _ => None,
        };
        select(on, self.plan.shape, |_| owner, &self.busy())
    }

    fn note_links(&self, on: &[Who], fault: &Fault, what: What) {
        if is_on_record_as_cut(fault.kind) {
            on.iter().for_each(|who| self.notes.note(*who, what.clone()));
        }
    }

    /// Works on the database in a thread of its own, one after the other.
    async fn with_database<T: Send + 'static>(&self, work: impl FnOnce(&mut Pair) -> T + Send + 'static) -> T {
        let pair = self.pair.clone();
        let worked = tokio::task::spawn_blocking(move || work(&mut pair.lock().unwrap_or_else(PoisonError::into_inner)));
        worked.await.expect("no panic in it")
    }

    async fn begin(self: &Arc<Self>, index: usize, on: &[Who], fault: &Fault) -> Result<(), String> {
        let at = self.origin.at_ms();
        let kind = fault.kind;
        let nodes: Vec<_> = on.iter().filter_map(|who| self.node(*who)).cloned().collect();
        let is_first = |count: fn(&crate::weather::Weather) -> u32| count(&self.sky.borrow()) == 0;
        match kind {
            FaultKind::Crash => nodes.iter().for_each(|node| node.crash()),
            FaultKind::Restart => {
                let patience = Duration::from_millis(PATIENCE_MS.min(fault.lasts_ms / 2));
                for node in nodes {
                    tokio::spawn(async move { node.stop(patience).await });
                }
            }
            FaultKind::Pause => nodes.iter().for_each(|node| node.pause()),
            FaultKind::ClockStep { by } => on.iter().for_each(|who| self.notes.note(*who, What::ClockStepped { by })),
            // Alternately it dies and stands still.
            FaultKind::DatabaseDown if is_first(|weather| weather.world.database_down) => {
                self.with_database(move |pair| pair.down(index % 2 == 1)).await;
            }
            FaultKind::DatabaseFull if is_first(|weather| weather.world.database_full) => {
                self.with_database(Pair::fill).await.map_err(words)??;
            }
            FaultKind::Failover => self.fail_over().await?,
            FaultKind::WakeUpsDown if is_first(|weather| weather.world.wake_ups_down) => self.redis_down().await,
            FaultKind::WakeUpsLost { .. } => self.flush_redis().await,
            FaultKind::Flood { task, count } => self.flood(task, count).await,
            _ => {}
        }
        self.sky.send_modify(|weather| weather.begin(on, kind, at));
        Ok(())
    }

    /// Waits for the fault's end.
    async fn during(&self, fault: &Fault) {
        let until = (fault.at_ms + fault.lasts_ms).min(self.plan.heal_at_ms);
        if let FaultKind::WakeUpsLost { per_mille } = fault.kind {
            let mut draw = Draw::new(self.plan.seed, &format!("chaos wake-ups {}", fault.at_ms));
            while self.origin.at_ms() < until {
                for scheduler in 0..self.replicas.len() {
                    if draw.chance(u64::from(per_mille)) {
                        self.sky.send_modify(|weather| weather.reset_redis(scheduler));
                    }
                }
                sleep(REDIS_BREAKS_EVERY).await;
            }
        }
        self.sleep_until(until).await;
    }

    async fn finish(&self, on: &[Who], fault: &Fault) {
        let kind = fault.kind;
        self.sky.send_modify(|weather| weather.end(on, kind));
        let nodes = on.iter().filter_map(|who| self.node(*who));
        let is_last = |count: fn(&crate::weather::Weather) -> u32| count(&self.sky.borrow()) == 0;
        match kind {
            FaultKind::Crash | FaultKind::Restart => {
                for node in nodes {
                    if let Err(problem) = node.start_again() {
                        self.find(format!("{:?} can't be started again: {problem}", node.who));
                    }
                }
            }
            FaultKind::Pause => nodes.for_each(|node| node.resume()),
            FaultKind::ClockStep { by } => on.iter().for_each(|who| self.notes.note(*who, What::ClockStepped { by: -by })),
            FaultKind::DatabaseDown if is_last(|weather| weather.world.database_down) => self.database_up().await,
            FaultKind::DatabaseFull if is_last(|weather| weather.world.database_full) => {
                if let Err(problem) = self.with_database(Pair::make_room).await {
                    self.find(format!("the database has room again and does not write: {problem}"));
                }
            }
            FaultKind::WakeUpsDown if is_last(|weather| weather.world.wake_ups_down) => {
                let redis = self.redis.clone();
                let started = tokio::task::spawn_blocking(move || lock(&redis).start_again()).await;
                if let Ok(Err(problem)) = started {
                    self.find(format!("Redis does not start again: {problem}"));
                }
            }
            // Those who come later have a replica to go to.
            FaultKind::Failover => {
                if let Err(problem) = self.with_database(Pair::replace).await {
                    self.find(format!("the primary gets no new replica: {problem}"));
                }
            }
            _ => {}
        }
    }

    async fn fail_over(&self) -> Result<(), String> {
        let port = match self.with_database(|pair| pair.fail_over().map(|done| done.map(|()| pair.port()))).await {
            Ok(done) => done?,
            Err(problem) => {
                self.find(format!("the failover got stuck: {problem}"));
                return Err(words(problem));
            }
        };
        self.sky.send_modify(|weather| weather.database_port = port);
        Ok(())
    }

    async fn database_up(&self) {
        for _ in 0..STARTS_MAX {
            match self.with_database(Pair::up).await {
                Ok(()) => return,
                // One whose disk is full starts when it has room.
                Err(problem) => eprintln!("the database does not start yet: {problem}"),
            }
            sleep(START_AGAIN).await;
        }
        self.find("the database does not start again".to_owned());
    }

    async fn redis_down(&self) {
        let redis = self.redis.clone();
        let killed = tokio::task::spawn_blocking(move || lock(&redis).kill()).await;
        killed.expect("no panic in it");
    }

    async fn flush_redis(&self) {
        let port = self.sky.borrow().redis_port;
        // It may be down just now, and has nothing to flush then.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await {
            let _ = stream.write_all(b"FLUSHALL\r\n").await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words(problem: Problem) -> String {
    problem.to_string()
}

fn word(who: &Who) -> String {
    match who {
        Who::Scheduler(index) => format!("s{}", index + 1),
        Who::Worker(index) => format!("w{}", index + 1),
        other => format!("{other:?}"),
    }
}

/// Where a fault is done another way than its name says.
fn remark(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::Lose { .. } => Some("as resets: TCP loses nothing"),
        FaultKind::WakeUpsLost { .. } => Some("as a flush, and connections that break"),
        FaultKind::Failover => Some("with a new replica behind it"),
        _ => None,
    }
}

/// A fault as a line of text.
pub fn line(done: &Done) -> String {
    let Done { index, kind, on, from_ms, until_ms, skipped, remark } = done;
    let seconds = |ms: &u64| *ms as f64 / 1_000.0;
    let what = format!("{kind:?}");
    let end = match skipped {
        Some(why) => format!("skipped: {why}"),
        None => format!("until {:.1} s{}", seconds(until_ms), remark.map(|remark| format!(" ({remark})")).unwrap_or_default()),
    };
    format!("{:>7.1} s  fault {index:<3} {what:<44} {on:<14} {end}", seconds(from_ms))
}
