//! The way to the database: latencies, lost answers, and the store's port on top.
//!
//! A request that has left is carried out whatever becomes of its sender. Answers come unless something is cut, the database went down or
//! has failed over meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use madsim::time::sleep;
use punctual_core::batch::{Batch, CommitOutcome, Output, Renewal, Snapshot};
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId};
use punctual_core::instance::Part;
use punctual_core::scheduler::Firings;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Beat, InboxPage, LeaseAnswer, Store, StoreError};
use rand_chacha::ChaCha8Rng;
use tokio::sync::oneshot;

use crate::calls::Failed;
use crate::history::Who;
use crate::model::Database;
use crate::trouble::{ANSWER_TIMEOUT_MS, NOTICED_AFTER_MS, Way};
use crate::world::env::{Env, lock};

/// Somebody's connection to the database.
pub(super) struct Connection {
    env: Arc<Env>,
    who: Who,
    random: Mutex<ChaCha8Rng>,
}

impl Connection {
    pub(super) fn new(env: &Arc<Env>, who: Who, name: &str) -> Connection {
        Connection { env: env.clone(), who, random: Mutex::new(env.plan.stream(&format!("database/{name}"))) }
    }

    /// Asks the database. `writes`: it may be aborted, and its answer waits for the database's replica where replication is
    /// semi-synchronous.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        writes: bool,
        operation: impl FnOnce(&mut Database, u64) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let env = self.env.clone();
        let way = self.way(writes);
        let takes_ms = way.there_ms + way.back_ms;
        let who = self.who;
        let (answer, answered) = oneshot::channel();
        self.env.database_node.spawn(async move {
            sleep(Duration::from_millis(way.there_ms)).await;
            let is_cut = |outgoing: bool| {
                let node = env.node(who);
                let cut = if outgoing { node.outgoing_cut } else { node.incoming_cut };
                cut > 0 || node.database_cut > 0 || lock(&env.trouble).database_down > 0
            };
            if is_cut(true) {
                return;
            }
            if let Some(failed) = way.surely_fails() {
                let _ = answer.send(Err(failed));
                return;
            }
            if way.request_is_lost {
                env.probe("commit.unknown_not_applied");
                return;
            }
            let (done, generation) = {
                let mut database = lock(&env.database);
                let at = env.at();
                (operation(&mut database, at), database.generation())
            };
            sleep(Duration::from_millis(way.back_ms)).await;
            if way.answer_is_lost {
                env.probe("commit.unknown_applied");
                return;
            }
            if !is_cut(false) && lock(&env.database).generation() == generation {
                let _ = answer.send(Ok(done));
            }
        });
        if takes_ms > ANSWER_TIMEOUT_MS {
            sleep(Duration::from_millis(ANSWER_TIMEOUT_MS)).await;
            return Err(Failed::NoAnswer);
        }
        match answered.await {
            Ok(done) => done,
            // The request is gone with its connection: that is noticed at once only where somebody says so.
            Err(_) => {
                sleep(Duration::from_millis(NOTICED_AFTER_MS)).await;
                Err(Failed::NoAnswer)
            }
        }
    }

    fn way(&self, writes: bool) -> Way {
        let trouble = lock(&self.env.trouble).clone();
        let delay_ms = self.env.node(self.who).delay_ms;
        Way::draw(&mut *lock(&self.random), &self.env.plan.knobs, &trouble, delay_ms, writes)
    }
}

fn error(failed: Failed) -> StoreError {
    let database = "simulated".to_owned();
    match failed {
        Failed::Aborted => StoreError::Busy { database, reason: "deadlock; the transaction was rolled back".into() },
        Failed::Full => StoreError::Full { database, reason: "the disk is full".into() },
        Failed::NoAnswer => StoreError::Other { database, reason: "no answer came in time".into() },
    }
}

impl Store for Connection {
    fn partitions(&self) -> u16 {
        self.env.plan.shape.partitions
    }

    async fn beat(&self, replica: ReplicaId, ttl: Millis, _: Timestamp) -> Result<Beat, StoreError> {
        self.ask(true, move |database, at| database.beat(at, &replica, ttl)).await.map_err(error)
    }

    async fn acquire(
        &self,
        replica: ReplicaId,
        partitions: Vec<PartitionId>,
        most: usize,
        ttl: Millis,
        _: Timestamp,
    ) -> Result<Vec<LeaseAnswer>, StoreError> {
        // What a node that trusts its own wall clock would say.
        let own_clock = self.env.wall(self.who, self.env.at());
        self.ask(true, move |database, at| database.acquire(at, &replica, &partitions, most, ttl, own_clock)).await.map_err(error)
    }

    async fn renew(&self, replica: ReplicaId, leases: Vec<Renewal>, ttl: Millis, _: Timestamp) -> Result<Vec<PartitionId>, StoreError> {
        self.ask(true, move |database, at| database.renew(at, &replica, &leases, ttl)).await.map_err(error)
    }

    async fn release(&self, replica: ReplicaId, leases: Vec<(PartitionId, Epoch)>, leaves: bool) -> Result<(), StoreError> {
        self.ask(true, move |database, at| database.release(at, &replica, &leases, leaves)).await.map_err(error)
    }

    async fn snapshot(&self, partition: PartitionId) -> Result<Snapshot, StoreError> {
        self.ask(false, move |database, at| database.snapshot(at, partition)).await.map_err(error)
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<CommitOutcome, StoreError> {
        match self.ask(true, move |database, at| database.commit(at, &batch)).await {
            Ok(Ok(())) => Ok(CommitOutcome::Committed),
            Ok(Err(refusal)) => Ok(CommitOutcome::Refused { reason: Arc::from(refusal.reason()) }),
            Err(Failed::NoAnswer) => Ok(CommitOutcome::Unknown { reason: Arc::from("no answer came in time") }),
            Err(failed) => Err(error(failed)),
        }
    }

    async fn read_inbox(&self, partitions: Vec<PartitionId>, after: InboxId, limit: usize) -> Result<InboxPage, StoreError> {
        let (entries, more) =
            self.ask(false, move |database, at| database.read_inbox(at, &partitions, after, limit)).await.map_err(error)?;
        Ok(InboxPage { entries, more })
    }

    async fn output(&self, instance: InstanceId, attempt: u32) -> Result<Option<Output>, StoreError> {
        self.ask(false, move |database, _| database.data().output_of(instance, attempt)).await.map_err(error)
    }

    async fn results(&self, of: Firings, from: Part, until: Part, limit: usize) -> Result<Vec<Option<Arc<str>>>, StoreError> {
        self.ask(false, move |database, _| database.data().results_of(of, from, until, limit)).await.map_err(error)
    }
}
