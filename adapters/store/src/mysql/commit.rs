//! The fenced commit: a batch as one transaction, all of it or nothing.
//!
//! It first locks the batch's rows in `fences` and checks them: until it ends, nobody takes a lease of the batch over, and nobody who did
//! before gets this far. Updates lock their rows and compare state and fence: two locks on one door. Then everything is written in statements of
//! many rows. Every statement that locks says which index it goes by: a server that takes a short table whole instead would wait for the
//! rows of everyone else's commits.
//!
//! Four ends, kept apart: *refused* (something was not as expected: rolled back, trying again would not help), *failed* (the server or the
//! network was in the way before COMMIT was sent: nothing was written, the same batch may be tried again), *committed*, and *unknown*: COMMIT
//! was sent, and no clear answer came.

use std::sync::Arc;

use punctual_core::batch::{Batch, CommitOutcome, InstanceUpdate};
use punctual_core::ids::{InboxId, InstanceId, PartitionId};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::time::Timestamp;
use punctual_driver::ports::StoreError;
use rustc_hash::{FxHashMap, FxHashSet};
use sqlx::Row;

use crate::codes::{Coded, LIVE_STATES_END, TROUBLED_STATES_END};
use crate::guards::Guards;
use crate::mysql::error::Failure;
use crate::mysql::rows::{self, CHANGE_INSTANCES, CHANGED, INSERT_INSTANCES, put_firing, text};
use crate::mysql::session::{Connections, Session};
use crate::mysql::sql::{list, statements, tuples};
use crate::refusal::{self, Covered, Held};

/// Why a batch was not written.
enum Stop {
    /// Something was not as expected.
    Refused(String),
    /// The database failed.
    Failed(Failure),
}

impl<F: Into<Failure>> From<F> for Stop {
    fn from(failure: F) -> Self {
        Stop::Failed(failure.into())
    }
}

/// Carries the batch out. `Err`: surely nothing was written, and the same batch may succeed later.
pub(crate) async fn commit(connections: &Connections, partitions: u16, guards: Guards, batch: &Batch) -> Result<CommitOutcome, StoreError> {
    let mut session = connections.session().await?;
    let covered = Covered::by(batch, partitions);
    let written = Writer { session: &mut session, guards, covered, batch, packed: Vec::with_capacity(256) }.write().await;
    match written {
        Ok(()) => {}
        Err(Stop::Refused(reason)) => {
            // Where even that fails the connection is closed, which rolls back too.
            if session.run("ROLLBACK".to_owned()).await.is_ok() {
                session.give_back();
            }
            return Ok(CommitOutcome::Refused { reason: reason.into() });
        }
        Err(Stop::Failed(failure)) => {
            session.roll_back(&failure).await;
            return Err(connections.error(failure));
        }
    }
    match session.run("COMMIT".to_owned()).await {
        Ok(_) => {
            session.give_back();
            Ok(CommitOutcome::Committed)
        }
        // A cluster that certifies commits says so when another one came first.
        Err(failure) if failure.is_conflict() => {
            session.roll_back(&failure).await;
            Err(connections.error(failure))
        }
        Err(failure) => Ok(CommitOutcome::Unknown { reason: Arc::from(format!("COMMIT was sent and not confirmed: {failure}")) }),
    }
}

struct Writer<'a> {
    session: &'a mut Session,
    guards: Guards,
    covered: Covered,
    batch: &'a Batch,
    packed: Vec<u8>,
}

/// Which rows stand where [`LIVE_STATES_END`] and [`TROUBLED_STATES_END`] say.
fn is_live(state: State) -> bool {
    state.code() < LIVE_STATES_END
}

fn is_troubled(state: State) -> bool {
    (LIVE_STATES_END..TROUBLED_STATES_END).contains(&state.code())
}

impl Writer<'_> {
    async fn write(mut self) -> Result<(), Stop> {
        self.check_covered()?;
        let sequences = self.check_fences().await?;
        let mut count_changes = [0_i64; State::ALL.len()];
        self.insert_instances(&sequences, &mut count_changes).await?;
        self.update_instances(&mut count_changes).await?;
        self.write_counts(&count_changes).await?;
        self.write_tasks().await?;
        self.write_occurrences().await?;
        self.write_outputs().await?;
        self.remove_applied().await
    }

    fn check_covered(&self) -> Result<(), Stop> {
        if !self.guards.lease_relied_on {
            return Ok(());
        }
        let (batch, covered) = (self.batch, &self.covered);
        let ids = batch.inserts.iter().map(|row| row.id);
        let ids = ids.chain(batch.updates.iter().map(|update| update.row.id)).chain(batch.outputs.iter().map(|output| output.instance));
        for id in ids {
            covered.check_instance(id).map_err(Stop::Refused)?;
        }
        for write in &batch.tasks {
            covered.check(write.partition, || format!("task {}", write.task)).map_err(Stop::Refused)?;
        }
        Ok(())
    }

    /// Begins the transaction, locks the fences, checks them, and writes how far the batch comes. Answers with the last numbers of the
    /// sequences before it.
    async fn check_fences(&mut self) -> Result<FxHashMap<PartitionId, u64>, Stop> {
        let batch = self.batch;
        if batch.leases.is_empty() {
            self.session.run("START TRANSACTION".to_owned()).await?;
            return Ok(FxHashMap::default());
        }
        let partitions = list(batch.leases.iter().map(|lease| u64::from(lease.partition.0)));
        let sql = format!(
            "START TRANSACTION; SELECT `partition`, owner, epoch, commit_seq, sequence FROM fences FORCE INDEX (PRIMARY) \
             WHERE `partition` IN {partitions} ORDER BY `partition` FOR UPDATE"
        );
        let mut fences = FxHashMap::default();
        for row in &self.session.rows(sql).await? {
            let (owner, epoch, commits) = (text(row, 1)?, row.try_get::<u64, _>(2)?, row.try_get::<u64, _>(3)?);
            fences.insert(PartitionId(row.try_get(0)?), (owner, epoch, commits, row.try_get::<u64, _>(4)?));
        }
        let sequences = fences.iter().map(|(partition, fence)| (*partition, fence.3)).collect();
        let Guards { lease_epoch, lease_owner, lease_commits, .. } = self.guards;
        for lease in &batch.leases {
            let Some((owner, epoch, commits, _)) = fences.get_mut(&lease.partition) else {
                return Err(Stop::Refused(refusal::not_held(&batch.replica, lease, None)));
            };
            let is_held = (*epoch == lease.epoch.0 || !lease_epoch)
                && (owner.as_deref() == Some(&*batch.replica.0) || !lease_owner)
                && (commits.checked_add(1) == Some(lease.commit_seq) || !lease_commits);
            if !is_held {
                let held = Held { owner: owner.as_deref(), epoch: *epoch, commits: *commits };
                return Err(Stop::Refused(refusal::not_held(&batch.replica, lease, Some(held))));
            }
            *commits = lease.commit_seq;
        }
        // The rows are there and locked: nothing is inserted.
        let bumps = statements(
            "INSERT INTO fences (`partition`, epoch, commit_seq, sequence) VALUES ",
            &batch.leases,
            " ON DUPLICATE KEY UPDATE commit_seq = VALUES(commit_seq), sequence = VALUES(sequence)",
            |values, lease| {
                values.unsigned(lease.partition.0).unsigned(lease.epoch.0).unsigned(lease.commit_seq).unsigned(lease.sequence).done()
            },
        );
        self.session.run_all(bumps).await?;
        Ok(sequences)
    }

    async fn insert_instances(
        &mut self,
        sequences: &FxHashMap<PartitionId, u64>,
        count_changes: &mut [i64; State::ALL.len()],
    ) -> Result<(), Stop> {
        let rows = &self.batch.inserts;
        if rows.is_empty() {
            return Ok(());
        }
        self.check_ids(sequences).await?;
        let packed = &mut self.packed;
        let inserts = statements(INSERT_INSTANCES, rows, "", |values, row| rows::put_instance(values, row, packed));
        self.session.run_all(inserts).await.map_err(there_already)?;
        self.put_live(rows.iter().filter(|row| is_live(row.state))).await.map_err(there_already)?;
        self.put_troubled(rows.iter().filter(|row| is_troubled(row.state))).await?;
        let keys = statements(
            "INSERT INTO submission_keys (submission_key, fire_time, task, ordinal, run) VALUES ",
            rows.iter().filter_map(|row| row.key.as_ref().map(|key| (key, row))),
            "",
            |values, (key, row)| put_firing(values.bytes(key.as_bytes()), row).done(),
        );
        self.session.run_all(keys).await?;
        let submissions = statements(
            "INSERT INTO submissions (fire_time, task, ordinal, run) VALUES ",
            rows.iter().filter(|row| row.ordinal != 0),
            "",
            |values, row| put_firing(values, row).done(),
        );
        self.session.run_all(submissions).await?;
        for row in rows {
            count_changes[usize::from(row.state.code())] += 1;
        }
        Ok(())
    }

    /// An id is given out once: one that is not above all that were given out before is looked for. The table's own key can't tell, as a
    /// unique one would have to contain the month.
    async fn check_ids(&mut self, sequences: &FxHashMap<PartitionId, u64>) -> Result<(), Stop> {
        let after: FxHashMap<_, _> = self.batch.leases.iter().map(|lease| (lease.partition, lease.sequence)).collect();
        let (mut ids, mut doubtful) = (FxHashSet::default(), Vec::new());
        for row in &self.batch.inserts {
            if !ids.insert(row.id) {
                return Err(Stop::Refused(format!("instance {} is there already: twice in one batch", row.id)));
            }
            let (partition, number) = (row.id.partition(), InstanceId(row.id.0 & ((1 << 48) - 1)).0);
            let is_new = |last: Option<&u64>, next: Option<&u64>| {
                last.is_some_and(|last| number > *last) && next.is_some_and(|next| number <= *next)
            };
            if !is_new(sequences.get(&partition), after.get(&partition)) {
                doubtful.push(row.id.0);
            }
        }
        if doubtful.is_empty() {
            return Ok(());
        }
        let found = self
            .session
            .rows(format!("SELECT id FROM instances FORCE INDEX (instances_by_id) WHERE id IN {} LIMIT 1", list(doubtful)))
            .await?;
        match found.first() {
            Some(row) => Err(Stop::Refused(format!("instance {} is there already", InstanceId(row.try_get(0)?)))),
            None => Ok(()),
        }
    }

    async fn put_live(&mut self, rows: impl Iterator<Item = &InstanceRow>) -> Result<(), Failure> {
        let sql = "INSERT INTO live (id, fire_time, task, ordinal, run) VALUES ";
        let inserts = statements(sql, rows, "", |values, row| put_firing(values.unsigned(row.id.0), row).done());
        self.session.run_all(inserts).await.map(drop)
    }

    async fn put_troubled(&mut self, rows: impl Iterator<Item = &InstanceRow>) -> Result<(), Failure> {
        let sql = "INSERT INTO troubled (state, fire_time, task, ordinal, run) VALUES ";
        let inserts = statements(sql, rows, "", |values, row| put_firing(values.unsigned(row.state.code()), row).done());
        self.session.run_all(inserts).await.map(drop)
    }

    async fn update_instances(&mut self, count_changes: &mut [i64; State::ALL.len()]) -> Result<(), Stop> {
        // An instance that is updated twice goes into two rounds: the second finds what the first wrote.
        let mut rounds: Vec<Vec<&InstanceUpdate>> = Vec::new();
        let mut times: FxHashMap<InstanceId, usize> = FxHashMap::default();
        for update in &self.batch.updates {
            let round = times.entry(update.row.id).or_default();
            if rounds.len() == *round {
                rounds.push(Vec::new());
            }
            rounds[*round].push(update);
            *round += 1;
        }
        for round in rounds {
            self.update_once(&round, count_changes).await?;
        }
        Ok(())
    }

    /// Updates rows, each at most once.
    async fn update_once(&mut self, updates: &[&InstanceUpdate], count_changes: &mut [i64; State::ALL.len()]) -> Result<(), Stop> {
        let mut stored = FxHashMap::default();
        for some in updates.chunks(crate::mysql::sql::STATEMENT_ROWS_MAX) {
            let firings = tuples(some, |values, update| put_firing(values, &update.row).done());
            let sql = format!(
                "SELECT id, state, fence FROM instances FORCE INDEX (PRIMARY) WHERE (fire_time, task, ordinal, run) IN {firings} FOR UPDATE"
            );
            for row in &self.session.rows(sql).await? {
                stored.insert(InstanceId(row.try_get(0)?), (rows::coded::<State>(row, 1)?, row.try_get::<u64, _>(2)?));
            }
        }
        let (mut ended, mut revived, mut calmed) = (Vec::new(), Vec::new(), Vec::new());
        for update in updates {
            let row = &update.row;
            let is_as_expected = |(state, fence): &&(State, u64)| {
                (*state == update.expected_state || !self.guards.instance_state)
                    && (*fence == update.expected_fence.0 || !self.guards.instance_fence)
            };
            let Some((before, _)) = stored.get(&row.id).filter(is_as_expected) else {
                return Err(Stop::Refused(refusal::not_as_expected(update)));
            };
            match (is_live(*before), is_live(row.state)) {
                (true, false) => ended.push(row.id.0),
                (false, true) => revived.push(row),
                _ => {}
            }
            if is_troubled(*before) {
                calmed.push((*before, row));
            }
            count_changes[usize::from(before.code())] -= 1;
            count_changes[usize::from(row.state.code())] += 1;
        }
        let packed = &mut self.packed;
        let changes = statements(CHANGE_INSTANCES, updates, CHANGED, |values, update| rows::put_change(values, &update.row, packed));
        self.session.run_all(changes).await?;
        if !ended.is_empty() {
            self.session.run(format!("DELETE l FROM live l FORCE INDEX (PRIMARY) WHERE l.id IN {}", list(ended))).await?;
        }
        self.put_live(revived.into_iter()).await?;
        if !calmed.is_empty() {
            let rows = tuples(calmed, |values, (state, row)| put_firing(values.unsigned(state.code()), row).done());
            self.session
                .run(format!(
                    "DELETE t FROM troubled t FORCE INDEX (PRIMARY) WHERE (t.state, t.fire_time, t.task, t.ordinal, t.run) IN {rows}"
                ))
                .await?;
        }
        self.put_troubled(updates.iter().map(|update| &update.row).filter(|row| is_troubled(row.state))).await?;
        Ok(())
    }

    async fn write_counts(&mut self, changes: &[i64; State::ALL.len()]) -> Result<(), Stop> {
        // Whose lease the batch has: nobody else writes the row.
        let partition = self.batch.leases.first().map_or(0, |lease| lease.partition.0);
        let changed = (0_u8..).zip(changes).filter(|(_, change)| **change != 0);
        let puts = statements(
            "INSERT INTO counts (`partition`, state, instances) VALUES ",
            changed,
            " ON DUPLICATE KEY UPDATE instances = instances + VALUES(instances)",
            |values, (state, change)| values.unsigned(partition).unsigned(state).signed(*change).done(),
        );
        self.session.run_all(puts).await?;
        Ok(())
    }

    async fn write_tasks(&mut self) -> Result<(), Stop> {
        let puts = statements(
            "INSERT INTO task_states (`partition`, task, version, next_fire, fired_until) VALUES ",
            &self.batch.tasks,
            " ON DUPLICATE KEY UPDATE version = VALUES(version), next_fire = VALUES(next_fire), \
             fired_until = COALESCE(VALUES(fired_until), fired_until)",
            |values, write| {
                let version = write.version.map(|version| version.0);
                values.unsigned(write.partition.0).unsigned(write.task.0).optional(version).at(write.next_fire).at(write.fired_until);
            },
        );
        self.session.run_all(puts).await?;
        Ok(())
    }

    async fn write_occurrences(&mut self) -> Result<(), Stop> {
        let inserts = statements(
            "INSERT INTO occurrences (task, version, fire_time, last_fire_time, fire_times, outcome, instance, made_at) VALUES ",
            &self.batch.occurrences,
            "",
            |values, occurrence| {
                values
                    .unsigned(occurrence.task.0)
                    .unsigned(occurrence.version.0)
                    .signed(occurrence.first.0)
                    .signed(occurrence.last.0)
                    .unsigned(occurrence.count)
                    .unsigned(occurrence.outcome.code())
                    .optional(occurrence.instance.map(|id| id.0))
                    .signed(occurrence.at.0);
            },
        );
        self.session.run_all(inserts).await?;
        Ok(())
    }

    async fn write_outputs(&mut self) -> Result<(), Stop> {
        let batch = self.batch;
        if batch.outputs.is_empty() {
            return Ok(());
        }
        let rows = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row));
        let mut fire_times: FxHashMap<InstanceId, Timestamp> = rows.map(|row| (row.id, row.fire_time)).collect();
        let elsewhere: Vec<_> =
            batch.outputs.iter().filter(|output| !fire_times.contains_key(&output.instance)).map(|output| output.instance.0).collect();
        if !elsewhere.is_empty() {
            let sql = format!("SELECT id, fire_time FROM instances FORCE INDEX (instances_by_id) WHERE id IN {}", list(elsewhere));
            for row in &self.session.rows(sql).await? {
                fire_times.insert(InstanceId(row.try_get(0)?), Timestamp(row.try_get(1)?));
            }
        }
        let puts = statements(
            "INSERT INTO outputs (instance, attempt, fire_time, dropped, bytes) VALUES ",
            &batch.outputs,
            " ON DUPLICATE KEY UPDATE dropped = VALUES(dropped), bytes = VALUES(bytes)",
            |values, written| {
                let fire_time = fire_times.get(&written.instance).copied().unwrap_or(Timestamp(0));
                let values = values.unsigned(written.instance.0).unsigned(written.attempt).signed(fire_time.0);
                values.unsigned(written.output.dropped).bytes(&written.output.bytes);
            },
        );
        self.session.run_all(puts).await?;
        Ok(())
    }

    async fn remove_applied(&mut self) -> Result<(), Stop> {
        let applied = &self.batch.applied;
        if applied.is_empty() {
            return Ok(());
        }
        let ids = list(applied.iter().map(|entry| entry.0));
        let mut stored: FxHashMap<InboxId, PartitionId> = FxHashMap::default();
        for row in
            &self.session.rows(format!("SELECT id, `partition` FROM inbox FORCE INDEX (PRIMARY) WHERE id IN {ids} FOR UPDATE")).await?
        {
            stored.insert(InboxId(row.try_get(0)?), PartitionId(row.try_get(1)?));
        }
        for entry in applied {
            match stored.remove(entry) {
                Some(partition) if self.guards.lease_relied_on => {
                    self.covered.check(partition, || format!("inbox entry {entry}")).map_err(Stop::Refused)?;
                }
                None if self.guards.inbox_entry => return Err(Stop::Refused(refusal::applied_before(*entry))),
                _ => {}
            }
        }
        self.session.run(format!("DELETE e FROM inbox e FORCE INDEX (PRIMARY) WHERE e.id IN {ids}")).await?;
        Ok(())
    }
}

fn there_already(failure: Failure) -> Stop {
    if failure.is_duplicate() { Stop::Refused(format!("a new instance is there already: {failure}")) } else { Stop::Failed(failure) }
}
