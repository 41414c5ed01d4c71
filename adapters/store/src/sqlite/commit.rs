//! The fenced commit: a batch as one transaction, all of it or nothing.
//!
//! Three ends, kept apart: *refused* (something was not as expected: rolled back, trying again would not help), *failed* (the machine was
//! in the way: rolled back, the same batch may be tried again) and *unknown* (COMMIT itself failed in a way that leaves open whether the
//! log has it).

use std::sync::Arc;

use punctual_core::backfill::BackfillWrite;
use punctual_core::batch::{Batch, CommitOutcome, LeaseCheck};
use punctual_core::ids::{InstanceId, PartitionId, ReplicaId};
use punctual_core::instance::State;
use punctual_core::limits;
use punctual_driver::ports::TaskDay;
use punctual_driver::reading::TASK_DAYS;
use rusqlite::{Connection, ErrorCode, OptionalExtension, ffi, params};

use crate::codec;
use crate::codes::Coded;
use crate::guards::Guards;
use crate::reading::days_of;
use crate::refusal::{self, Covered, Held};
use crate::set_aside::KIND_NOTICE;
use crate::sqlite::rows::{self, INSERT_INSTANCE, update_instance_sql};

/// Why a batch was not written.
enum Stop {
    /// Something was not as expected.
    Refused(String),
    /// The database failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Stop::Failed(error)
    }
}

/// Carries the batch out. `Err`: surely nothing was written, and the same batch may succeed later.
pub(crate) fn commit(connection: &Connection, partitions: u16, guards: Guards, batch: &Batch) -> rusqlite::Result<CommitOutcome> {
    begin(connection)?;
    match (Writer { connection, guards, covered: Covered::by(batch, partitions) }).write(batch) {
        Ok(()) => {}
        Err(Stop::Refused(reason)) => {
            rollback(connection)?;
            return Ok(CommitOutcome::Refused { reason: reason.into() });
        }
        Err(Stop::Failed(error)) => {
            rollback(connection)?;
            return Err(error);
        }
    }
    let Err(error) = end(connection) else { return Ok(CommitOutcome::Committed) };
    let rolled_back = rollback(connection);
    match (error.sqlite_error_code(), rolled_back) {
        // The frame that ends the transaction is the last one written: without room it is not in the log.
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull), Ok(())) => Err(error),
        _ => Ok(CommitOutcome::Unknown { reason: Arc::from(error.to_string()) }),
    }
}

/// Begins a writing transaction, after ending one that a panic left open.
pub(crate) fn begin(connection: &Connection) -> rusqlite::Result<()> {
    rollback(connection)?;
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
}

/// Commits.
pub(crate) fn end(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("COMMIT")?.execute([]).map(drop)
}

/// Rolls back, where SQLite has not done so itself: it does after some errors and not after others.
pub(crate) fn rollback(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() { Ok(()) } else { connection.prepare_cached("ROLLBACK")?.execute([]).map(drop) }
}

/// Runs `body` in a writing transaction of its own.
pub(crate) fn transaction<T>(connection: &Connection, body: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    begin(connection)?;
    let done = body(connection).and_then(|answer| end(connection).map(|()| answer));
    if done.is_err() {
        rollback(connection)?;
    }
    done
}

struct Writer<'a> {
    connection: &'a Connection,
    guards: Guards,
    covered: Covered,
}

impl Writer<'_> {
    fn write(&self, batch: &Batch) -> Result<(), Stop> {
        self.check_leases(batch)?;
        self.write_instances(batch)?;
        self.write_days(batch)?;
        self.write_tasks(batch)?;
        self.write_occurrences(batch)?;
        self.write_outputs(batch)?;
        self.write_slots(batch)?;
        self.write_backfills(batch)?;
        self.write_messages(batch)?;
        self.remove_applied(batch)
    }

    fn check_covered(&self, partition: PartitionId, what: impl FnOnce() -> String) -> Result<(), Stop> {
        let covered = self.covered.check(partition, what);
        if self.guards.lease_relied_on { covered.map_err(Stop::Refused) } else { Ok(()) }
    }

    fn check_instance_covered(&self, id: InstanceId) -> Result<(), Stop> {
        self.check_covered(id.partition(), || format!("instance {id}"))
    }

    fn check_leases(&self, batch: &Batch) -> Result<(), Stop> {
        let Guards { lease_epoch, lease_owner, lease_commits, .. } = self.guards;
        let mut check = self.connection.prepare_cached(
            "UPDATE leases SET commit_seq = ?2, sequence = ?3
             WHERE partition = ?1 AND (epoch = ?4 OR NOT ?6) AND (owner = ?5 OR NOT ?7) AND (commit_seq = ?2 - 1 OR NOT ?8)",
        )?;
        for lease in &batch.leases {
            let changed = check.execute(params![
                lease.partition.0,
                lease.commit_seq.cast_signed(),
                lease.sequence.cast_signed(),
                lease.epoch.0.cast_signed(),
                &*batch.replica.0,
                lease_epoch,
                lease_owner,
                lease_commits,
            ])?;
            if changed == 0 {
                return Err(Stop::Refused(self.why_not_held(&batch.replica, lease)?));
            }
        }
        Ok(())
    }

    fn why_not_held(&self, replica: &ReplicaId, lease: &LeaseCheck) -> rusqlite::Result<String> {
        let mut look = self.connection.prepare_cached("SELECT owner, epoch, commit_seq FROM leases WHERE partition = ?1")?;
        let found = look.query_row([lease.partition.0], |row| Ok((rows::text(row, 0)?, rows::unsigned(row, 1)?, rows::unsigned(row, 2)?)));
        let found = found.optional()?;
        let held = found.as_ref().map(|(owner, epoch, commits)| Held { owner: owner.as_deref(), epoch: *epoch, commits: *commits });
        Ok(refusal::not_held(replica, lease, held))
    }

    fn write_instances(&self, batch: &Batch) -> Result<(), Stop> {
        let mut packed = Vec::with_capacity(256);
        let mut count_changes = [0_i64; State::ALL.len()];
        let mut insert = self.connection.prepare_cached(INSERT_INSTANCE)?;
        for row in &batch.inserts {
            self.check_instance_covered(row.id)?;
            rows::insert_instance(&mut insert, row, &mut packed).map_err(|error| match unique_violation(&error) {
                true => Stop::Refused(format!("instance {} of task {} at {} is there already", row.id, row.task, row.fire_time)),
                false => Stop::Failed(error),
            })?;
            count_changes[usize::from(row.state.code())] += 1;
        }
        let mut change = self.connection.prepare_cached(match (self.guards.instance_state, self.guards.instance_fence) {
            (true, true) => update_instance_sql!("AND state = ?11 AND fence = ?12"),
            (false, true) => update_instance_sql!("AND ?11 IS NOT NULL AND fence = ?12"),
            (true, false) => update_instance_sql!("AND state = ?11 AND ?12 IS NOT NULL"),
            (false, false) => update_instance_sql!("AND ?11 IS NOT NULL AND ?12 IS NOT NULL"),
        })?;
        for update in &batch.updates {
            self.check_instance_covered(update.row.id)?;
            if !rows::update_instance(&mut change, update, &mut packed)? {
                return Err(Stop::Refused(refusal::not_as_expected(update)));
            }
            count_changes[usize::from(update.expected_state.code())] -= 1;
            count_changes[usize::from(update.row.state.code())] += 1;
        }
        let mut count = self.connection.prepare_cached("UPDATE counts SET count = count + ?2 WHERE state = ?1")?;
        for (state, change) in (0_i64..).zip(count_changes).filter(|(_, change)| *change != 0) {
            count.execute(params![state, change])?;
        }
        Ok(())
    }

    /// Counts how firings ended. A day takes the place of the one that had it a round of days ago.
    fn write_days(&self, batch: &Batch) -> Result<(), Stop> {
        let days = days_of(batch);
        if days.is_empty() {
            return Ok(());
        }
        let mut add = self.connection.prepare_cached(
            "INSERT INTO task_days (task, place, day, succeeded, failed, stopped) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (task, place) DO UPDATE SET day = excluded.day,
                 succeeded = excluded.succeeded + iif(day = excluded.day, succeeded, 0),
                 failed = excluded.failed + iif(day = excluded.day, failed, 0),
                 stopped = excluded.stopped + iif(day = excluded.day, stopped, 0)
             WHERE day <= excluded.day",
        )?;
        for ((task, day), TaskDay { succeeded, failed, stopped, .. }) in days {
            let counts = [succeeded, failed, stopped].map(u64::cast_signed);
            add.execute(params![task.0.cast_signed(), day.rem_euclid(TASK_DAYS), day, counts[0], counts[1], counts[2]])?;
        }
        Ok(())
    }

    fn write_tasks(&self, batch: &Batch) -> Result<(), Stop> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO task_states (partition, task, version, next_fire, fired_until) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (partition, task) DO UPDATE
             SET version = excluded.version, next_fire = excluded.next_fire,
                 fired_until = coalesce(excluded.fired_until, fired_until)",
        )?;
        for write in &batch.tasks {
            self.check_covered(write.partition, || format!("task {}", write.task))?;
            let (partition, task) = (write.partition.0, write.task.0.cast_signed());
            let (version, millis) =
                (write.version.map(|version| version.0), |at: Option<punctual_core::time::Timestamp>| at.map(|at| at.0));
            put.execute(params![partition, task, version, millis(write.next_fire), millis(write.fired_until)])?;
        }
        Ok(())
    }

    fn write_occurrences(&self, batch: &Batch) -> Result<(), Stop> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO occurrences (task, version, first, last, count, outcome, instance, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        for occurrence in &batch.occurrences {
            insert.execute(params![
                occurrence.task.0.cast_signed(),
                occurrence.version.0,
                occurrence.first.0,
                occurrence.last.0,
                occurrence.count.cast_signed(),
                occurrence.outcome.code(),
                occurrence.instance.map(|id| id.0.cast_signed()),
                occurrence.at.0,
            ])?;
        }
        Ok(())
    }

    fn write_outputs(&self, batch: &Batch) -> Result<(), Stop> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO outputs (instance, attempt, dropped, bytes) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (instance, attempt) DO UPDATE SET dropped = excluded.dropped, bytes = excluded.bytes",
        )?;
        for written in &batch.outputs {
            self.check_instance_covered(written.instance)?;
            put.execute(params![
                written.instance.0.cast_signed(),
                written.attempt,
                written.output.dropped.cast_signed(),
                &*written.output.bytes
            ])?;
        }
        Ok(())
    }

    fn write_slots(&self, batch: &Batch) -> Result<(), Stop> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO group_slots (partition, instance, body) VALUES (?1, ?2, ?3)
             ON CONFLICT (partition, instance) DO UPDATE SET body = excluded.body",
        )?;
        let mut remove = self.connection.prepare_cached("DELETE FROM group_slots WHERE partition = ?1 AND instance = ?2")?;
        for write in &batch.slots {
            self.check_covered(write.partition, || format!("the slot of instance {}", write.instance))?;
            let (partition, instance) = (write.partition.0, write.instance.0.cast_signed());
            match &write.slot {
                Some(slot) => put.execute(params![partition, instance, codec::pack_slot(slot)])?,
                None => remove.execute(params![partition, instance])?,
            };
        }
        Ok(())
    }

    fn write_backfills(&self, batch: &Batch) -> Result<(), Stop> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO backfills (id, partition, at, by, task, state, made, ended, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut change = self.connection.prepare_cached("UPDATE backfills SET state = ?2, made = ?3, ended = ?4 WHERE id = ?1")?;
        let mut forget = self.connection.prepare_cached(
            "DELETE FROM backfills WHERE task = ?1 AND state <> 0 AND NOT (state = 2 AND ended < made)
             AND id <= (SELECT id FROM backfills WHERE task = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        )?;
        for BackfillWrite { row, is_new } in &batch.backfills {
            self.check_covered(row.partition, || format!("backfill {}", row.id))?;
            let (id, state) = (row.id.0.cast_signed(), row.state.code());
            match is_new {
                true => {
                    let (task, body) = (row.plan.task.0.cast_signed(), codec::pack_backfill(&row.plan));
                    insert.execute(params![id, row.partition.0, row.at.0, &*row.by, task, state, row.made, row.ended, body])?;
                    forget.execute(params![task, limits::BACKFILLS_KEPT_MAX as i64])?
                }
                false => change.execute(params![id, state, row.made, row.ended])?,
            };
        }
        Ok(())
    }

    fn write_messages(&self, batch: &Batch) -> Result<(), Stop> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO inbox (partition, at, by, kind, task, body)
                 VALUES (?1, ?2, ?3, ?4, coalesce(?5, (SELECT id FROM tasks WHERE name = ?7)), ?6)",
        )?;
        for message in &batch.messages {
            self.check_covered(message.from, || format!("a message to partition {}", message.partition))?;
            insert.execute(params![
                message.partition.0,
                message.at.0,
                &*message.by,
                KIND_NOTICE,
                message.notice.task().map(|task| task.0.cast_signed()),
                codec::pack_notice(&message.notice),
                message.notice.name_of_task().map(|name| &**name)
            ])?;
        }
        Ok(())
    }

    fn remove_applied(&self, batch: &Batch) -> Result<(), Stop> {
        let mut remove = self.connection.prepare_cached("DELETE FROM inbox WHERE id = ?1 RETURNING partition")?;
        for entry in &batch.applied {
            let partition = remove.query_row([entry.0.cast_signed()], |row| row.get(0)).optional()?;
            match partition.map(PartitionId) {
                Some(partition) => self.check_covered(partition, || format!("inbox entry {entry}"))?,
                None if self.guards.inbox_entry => return Err(Stop::Refused(refusal::applied_before(*entry))),
                None => {}
            }
        }
        Ok(())
    }
}

fn unique_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|failure| {
        matches!(failure.extended_code, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID)
    })
}
