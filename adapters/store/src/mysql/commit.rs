//! The fenced commit: a batch as one transaction, all of it or nothing.
//!
//! It first locks the batch's rows in `fences`: until it ends, nobody takes a lease of the batch over. Then everything is written in
//! statements of many rows. All that goes out in one message; its answers say what the fences were and how many rows each statement found,
//! and only where all is as expected is the second question asked, which is COMMIT. An update finds its row by state and fence as well: two
//! locks on one door. Every statement that locks says which index it goes by: a server that takes a short table whole instead would
//! wait for the rows of everyone else's commits.
//!
//! All locks are on rows of partitions that the batch has the leases of, never on the gaps between them, where rows of others may come to
//! lie: under READ COMMITTED neither server locks a gap for a primary key, and no table that a commit writes has another unique one.
//!
//! Four ends, kept apart: *refused* (something was not as expected: rolled back, trying again would not help), *failed* (the server or the
//! network was in the way before COMMIT was sent: nothing was written, the same batch may be tried again), *committed*, and *unknown*: COMMIT
//! was sent, and no clear answer came.

use std::sync::Arc;

use punctual_core::backfill::BackfillWrite;
use punctual_core::batch::{Batch, CommitOutcome, InstanceUpdate};
use punctual_core::ids::{InboxId, InstanceId, PartitionId};
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{StoreError, TaskDay};
use punctual_driver::reading::TASK_DAYS;
use rustc_hash::{FxHashMap, FxHashSet};
use sqlx::Row;

use crate::codec;
use crate::codes::{Coded, LIVE_STATES_END, TROUBLED_STATES_END};
use crate::guards::Guards;
use crate::mysql::catalog::{TAKE_INBOX_TURN, ids_of};
use crate::mysql::error::Failure;
use crate::mysql::rows::{self, INSERT_INSTANCES, put_firing, put_place, text};
use crate::mysql::session::{Answer, Connections, Session};
use crate::mysql::sql::{Many, STATEMENT_ROWS_MAX, Use, list, statements};
use crate::reading::days_of;
use crate::refusal::{self, Covered, Held};
use crate::set_aside::KIND_NOTICE;

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

/// Whether a row in this state waits for a person to settle it.
fn is_dead_letter(state: State, row: &InstanceRow) -> bool {
    state == State::DeadLettered && row.part == Part::WHOLE
}

/// What a statement has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Whatever is there.
    Any,
    /// The fences of the batch's leases.
    Fences,
    /// The inbox entries that it applies.
    Entries,
    /// No row with a key of its own.
    New,
    /// So many instances, each in the state and under the fence that its update says.
    Instances(u64),
}

/// Statements in their order, put together into few messages: the server is asked once a message.
#[derive(Default)]
struct Script {
    messages: Vec<(String, Vec<Expected>)>,
}

/// A message ends with the statement that would make it larger, unless it is its first.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

impl Script {
    fn put(&mut self, expected: Expected, statement: String) {
        match self.messages.last_mut() {
            Some((sql, all)) if sql.len() + statement.len() < MESSAGE_BYTES_MAX => {
                sql.push(';');
                sql.push_str(&statement);
                all.push(expected);
            }
            _ => self.messages.push((statement, vec![expected])),
        }
    }

    fn put_all(&mut self, expected: Expected, statements: Vec<String>) {
        for statement in statements {
            self.put(expected, statement);
        }
    }
}

impl Writer<'_> {
    async fn write(mut self) -> Result<(), Stop> {
        self.check_covered()?;
        let fire_times = self.fire_times_of_outputs().await?;
        let mut script = Script::default();
        let mut count_changes = [0_i64; State::ALL.len()];
        self.put_beginning(&mut script);
        self.put_fences(&mut script);
        self.put_inserts(&mut script, &mut count_changes);
        self.put_updates(&mut script, &mut count_changes);
        self.put_counts(&mut script, &count_changes);
        self.put_days(&mut script);
        self.put_tasks(&mut script);
        self.put_occurrences(&mut script);
        self.put_outputs(&mut script, &fire_times);
        self.put_slots(&mut script);
        self.put_backfills(&mut script);
        let inbox = Many { table: "inbox", uses: &[Use::Match("id")] };
        script.put_all(Expected::Any, inbox.deletes(&self.batch.applied, |values, entry| values.unsigned(entry.0).done()));
        let mut sequences = FxHashMap::default();
        for (sql, expected) in script.messages {
            let (answers, ran) = self.session.run_each(sql).await;
            for (answer, expected) in answers.iter().zip(&expected) {
                match expected {
                    Expected::Fences => sequences = self.check_fences(answer)?,
                    Expected::Entries => self.check_entries(answer)?,
                    // What comes behind an update that found nothing may be there already, and fail.
                    Expected::Instances(count) if *count != answer.found => return Err(self.not_as_expected().await),
                    Expected::Instances(_) | Expected::New | Expected::Any => {}
                }
            }
            if let Err(failure) = ran {
                return Err(match expected.get(answers.len()) {
                    Some(Expected::New) if failure.is_duplicate() => Stop::Refused(format!("a new instance is there already: {failure}")),
                    _ => Stop::Failed(failure),
                });
            }
        }
        self.check_ids(&sequences).await?;
        self.write_messages().await
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
        for write in &batch.slots {
            covered.check(write.partition, || format!("the slot of instance {}", write.instance)).map_err(Stop::Refused)?;
        }
        for BackfillWrite { row, .. } in &batch.backfills {
            covered.check(row.partition, || format!("backfill {}", row.id)).map_err(Stop::Refused)?;
        }
        for message in &batch.messages {
            covered.check(message.from, || format!("a message to partition {}", message.partition)).map_err(Stop::Refused)?;
        }
        Ok(())
    }

    /// Begins the transaction, and locks the fences and the inbox entries.
    fn put_beginning(&self, script: &mut Script) {
        let batch = self.batch;
        script.put(Expected::Any, "START TRANSACTION".to_owned());
        if !batch.leases.is_empty() {
            let partitions = list(batch.leases.iter().map(|lease| u64::from(lease.partition.0)));
            let sql = format!(
                "SELECT `partition`, owner, epoch, commit_seq, sequence FROM fences FORCE INDEX (PRIMARY) \
                 WHERE `partition` IN {partitions} ORDER BY `partition` FOR UPDATE"
            );
            script.put(Expected::Fences, sql);
        }
        if !batch.applied.is_empty() {
            let ids = list(batch.applied.iter().map(|entry| entry.0));
            script.put(Expected::Entries, format!("SELECT id, `partition` FROM inbox FORCE INDEX (PRIMARY) WHERE id IN {ids} FOR UPDATE"));
        }
    }

    /// Answers with the last numbers of the sequences before the batch.
    fn check_fences(&self, answer: &Answer) -> Result<FxHashMap<PartitionId, u64>, Stop> {
        let (mut fences, mut sequences) = (FxHashMap::default(), FxHashMap::default());
        for row in &answer.rows {
            let partition = PartitionId(row.try_get(0)?);
            fences.insert(partition, (text(row, 1)?, row.try_get::<u64, _>(2)?, row.try_get::<u64, _>(3)?));
            sequences.insert(partition, row.try_get(4)?);
        }
        let (replica, Guards { lease_epoch, lease_owner, lease_commits, .. }) = (&self.batch.replica, self.guards);
        for lease in &self.batch.leases {
            let Some((owner, epoch, commits)) = fences.get_mut(&lease.partition) else {
                return Err(Stop::Refused(refusal::not_held(replica, lease, None)));
            };
            let is_held = (*epoch == lease.epoch.0 || !lease_epoch)
                && (owner.as_deref() == Some(&*replica.0) || !lease_owner)
                && (commits.checked_add(1) == Some(lease.commit_seq) || !lease_commits);
            if !is_held {
                let held = Held { owner: owner.as_deref(), epoch: *epoch, commits: *commits };
                return Err(Stop::Refused(refusal::not_held(replica, lease, Some(held))));
            }
            *commits = lease.commit_seq;
        }
        Ok(sequences)
    }

    fn check_entries(&self, answer: &Answer) -> Result<(), Stop> {
        let mut entries = FxHashMap::default();
        for row in &answer.rows {
            entries.insert(InboxId(row.try_get(0)?), PartitionId(row.try_get(1)?));
        }
        for entry in &self.batch.applied {
            match entries.remove(entry) {
                Some(partition) if self.guards.lease_relied_on => {
                    self.covered.check(partition, || format!("inbox entry {entry}")).map_err(Stop::Refused)?;
                }
                None if self.guards.inbox_entry => return Err(Stop::Refused(refusal::applied_before(*entry))),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes how far the batch comes.
    fn put_fences(&self, script: &mut Script) {
        // The rows are there and locked: nothing is inserted.
        let bumps = statements(
            "INSERT INTO fences (`partition`, epoch, commit_seq, sequence) VALUES ",
            &self.batch.leases,
            " ON DUPLICATE KEY UPDATE commit_seq = VALUES(commit_seq), sequence = VALUES(sequence)",
            |values, lease| {
                values.unsigned(lease.partition.0).unsigned(lease.epoch.0).unsigned(lease.commit_seq).unsigned(lease.sequence).done()
            },
        );
        script.put_all(Expected::Any, bumps);
    }

    fn put_inserts(&mut self, script: &mut Script, count_changes: &mut [i64; State::ALL.len()]) {
        let rows = &self.batch.inserts;
        let packed = &mut self.packed;
        script.put_all(Expected::New, statements(INSERT_INSTANCES, rows, "", |values, row| rows::put_instance(values, row, packed)));
        put_live(script, rows.iter().filter(|row| is_live(row.state)));
        put_troubled(script, rows.iter().filter(|row| is_troubled(row.state)));
        put_dead_letters(script, rows.iter().filter(|row| is_dead_letter(row.state, row)));
        let keys = statements(
            "INSERT INTO submission_keys (submission_key, fire_time, task, ordinal, run) VALUES ",
            rows.iter().filter_map(|row| row.key.as_ref().map(|key| (key, row))),
            "",
            |values, (key, row)| put_firing(values.bytes(key.as_bytes()), row).done(),
        );
        script.put_all(Expected::Any, keys);
        let submissions = statements(
            "INSERT INTO submissions (fire_time, task, ordinal, run) VALUES ",
            rows.iter().filter(|row| row.ordinal != 0 && row.part == Part::WHOLE),
            "",
            |values, row| put_firing(values, row).done(),
        );
        script.put_all(Expected::Any, submissions);
        for row in rows {
            count_changes[usize::from(row.state.code())] += 1;
        }
    }

    /// An id is given out once: one that is not above all that were given out before must have one row now. The table's own key can't tell, as
    /// a unique one would have to contain the month.
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
            .rows(format!(
                "SELECT id FROM instances FORCE INDEX (instances_by_id) WHERE id IN {} GROUP BY id HAVING COUNT(*) > 1 LIMIT 1",
                list(doubtful)
            ))
            .await?;
        match found.first() {
            Some(row) => Err(Stop::Refused(format!("instance {} is there already", InstanceId(row.try_get(0)?)))),
            None => Ok(()),
        }
    }

    fn put_updates(&mut self, script: &mut Script, count_changes: &mut [i64; State::ALL.len()]) {
        // An instance that is updated twice goes into two rounds: the second finds what the first wrote.
        let mut rounds: Vec<Vec<&InstanceUpdate>> = Vec::new();
        let mut lives: FxHashMap<InstanceId, Life<'_>> = FxHashMap::default();
        for update in &self.batch.updates {
            // What was expected is what was there, or nothing is written.
            let life = lives.entry(update.row.id).or_insert(Life { before: update.expected_state, after: &update.row, updates: 0 });
            life.after = &update.row;
            if rounds.len() == life.updates {
                rounds.push(Vec::new());
            }
            rounds[life.updates].push(update);
            life.updates += 1;
        }
        let uses = rows::change_uses(self.guards);
        let packed = &mut self.packed;
        for round in rounds {
            let changes = Many { table: "instances", uses: &uses };
            for (statement, count) in changes.updates(round, |values, update| rows::put_change(values, update, packed)) {
                script.put(Expected::Instances(count), statement);
            }
        }
        let (mut ended, mut calmed, mut revived, mut troubled) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut dead, mut undead) = (Vec::new(), Vec::new());
        // In the order of the batch: no two runs of a test differ.
        for update in &self.batch.updates {
            let Some(Life { before, after, .. }) = lives.remove(&update.row.id) else { continue };
            match (is_live(before), is_live(after.state)) {
                (true, false) => ended.push(after.id.0),
                (false, true) => revived.push(after),
                _ => {}
            }
            if before != after.state && is_troubled(before) {
                calmed.push((before, after));
            }
            if before != after.state && is_troubled(after.state) {
                troubled.push(after);
            }
            match (is_dead_letter(before, after), is_dead_letter(after.state, after)) {
                (false, true) => dead.push(after),
                (true, false) => undead.push(after.id.0),
                _ => {}
            }
            count_changes[usize::from(before.code())] -= 1;
            count_changes[usize::from(after.state.code())] += 1;
        }
        let dead_letters = Many { table: "dead_letters", uses: &[Use::Match("id")] };
        script.put_all(Expected::Any, dead_letters.deletes(undead, |values, id| values.unsigned(id).done()));
        put_dead_letters(script, dead.into_iter());
        let live = Many { table: "live", uses: &[Use::Match("id")] };
        script.put_all(Expected::Any, live.deletes(ended, |values, id| values.unsigned(id).done()));
        put_live(script, revived.into_iter());
        let key = ["state", "fire_time", "task", "ordinal", "run", "part"].map(Use::Match);
        let no_more = Many { table: "troubled", uses: &key };
        script.put_all(Expected::Any, no_more.deletes(calmed, |values, (state, row)| put_place(values.unsigned(state.code()), row).done()));
        put_troubled(script, troubled.into_iter());
    }

    /// Rolls back, and looks for the update whose row was not as expected.
    async fn not_as_expected(&mut self) -> Stop {
        match self.look_for_it().await {
            Ok(Some(update)) => Stop::Refused(refusal::not_as_expected(update)),
            Ok(None) => Stop::Refused("an instance was not as expected, and is now".to_owned()),
            Err(failure) => Stop::Failed(failure),
        }
    }

    async fn look_for_it(&mut self) -> Result<Option<&InstanceUpdate>, Failure> {
        self.session.run("ROLLBACK".to_owned()).await?;
        let mut stored = FxHashMap::default();
        for some in self.batch.updates.chunks(STATEMENT_ROWS_MAX) {
            let ids = list(some.iter().map(|update| update.row.id.0));
            let sql = format!(
                "SELECT id, state, fence, fire_time, task, ordinal, run, part FROM instances FORCE INDEX (instances_by_id) WHERE id IN {ids}"
            );
            for row in &self.session.rows(sql).await? {
                let firing = (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
                stored.insert(InstanceId(row.try_get(0)?), (rows::coded(row, 1)?, row.try_get(2)?, firing));
            }
        }
        let batch = self.batch;
        let firing = |row: &InstanceRow| -> (i64, u64, u64, u32, u64) { (row.fire_time.0, row.task.0, row.ordinal, row.run, row.part.0) };
        for row in &batch.inserts {
            stored.insert(row.id, (row.state, row.fence.0, firing(row)));
        }
        let guards = self.guards;
        Ok(batch.updates.iter().find(|update| {
            let row = &update.row;
            let is_as_expected = stored.get(&row.id).is_some_and(|(state, fence, place)| {
                *place == firing(row)
                    && (*state == update.expected_state || !guards.instance_state)
                    && (*fence == update.expected_fence.0 || !guards.instance_fence)
            });
            stored.insert(row.id, (row.state, row.fence.0, firing(row)));
            !is_as_expected
        }))
    }

    fn put_counts(&self, script: &mut Script, changes: &[i64; State::ALL.len()]) {
        // Whose lease the batch has: nobody else writes the row.
        let partition = self.batch.leases.first().map_or(0, |lease| lease.partition.0);
        let changed = (0_u8..).zip(changes).filter(|(_, change)| **change != 0);
        let puts = statements(
            "INSERT INTO counts (`partition`, state, instances) VALUES ",
            changed,
            " ON DUPLICATE KEY UPDATE instances = instances + VALUES(instances)",
            |values, (state, change)| values.unsigned(partition).unsigned(state).signed(*change).done(),
        );
        script.put_all(Expected::Any, puts);
    }

    /// Counts how firings ended. A day takes the place of the one that had it a round of days ago. The rows are of tasks whose partitions the
    /// batch has the leases of. Assignments are carried out from left to right: the day comes last.
    fn put_days(&self, script: &mut Script) {
        let added = |column: &str| {
            format!(
                "{column} = CASE WHEN day = VALUES(day) THEN {column} + VALUES({column}) WHEN day < VALUES(day) THEN VALUES({column}) ELSE {column} END"
            )
        };
        let add = ["succeeded", "failed", "stopped"].map(added).join(", ");
        let puts = statements(
            "INSERT INTO task_days (task, place, day, succeeded, failed, stopped) VALUES ",
            days_of(self.batch),
            &format!(" ON DUPLICATE KEY UPDATE {add}, day = GREATEST(day, VALUES(day))"),
            |values, ((task, day), TaskDay { succeeded, failed, stopped, .. })| {
                let place = day.rem_euclid(TASK_DAYS).unsigned_abs();
                values.unsigned(task.0).unsigned(place).signed(day).unsigned(succeeded).unsigned(failed).unsigned(stopped).done()
            },
        );
        script.put_all(Expected::Any, puts);
    }

    fn put_tasks(&self, script: &mut Script) {
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
        script.put_all(Expected::Any, puts);
    }

    fn put_occurrences(&self, script: &mut Script) {
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
        script.put_all(Expected::Any, inserts);
    }

    fn put_slots(&self, script: &mut Script) {
        let slots = self.batch.slots.iter().filter_map(|write| Some((write, write.slot.as_ref()?)));
        let head = "INSERT INTO group_slots (`partition`, instance, body) VALUES ";
        let puts = statements(head, slots, " ON DUPLICATE KEY UPDATE body = VALUES(body)", |values, (write, slot)| {
            values.unsigned(write.partition.0).unsigned(write.instance.0).bytes(&codec::pack_slot(slot));
        });
        script.put_all(Expected::Any, puts);
        let gone = self.batch.slots.iter().filter(|write| write.slot.is_none());
        let table = Many { table: "group_slots", uses: &[Use::Match("partition"), Use::Match("instance")] };
        script.put_all(
            Expected::Any,
            table.deletes(gone, |values, write| values.unsigned(write.partition.0).unsigned(write.instance.0).done()),
        );
    }

    fn put_backfills(&self, script: &mut Script) {
        let new = self.batch.backfills.iter().filter(|write| write.is_new);
        let head = "INSERT INTO backfills (id, `partition`, asked_at, asked_by, task, state, made, ended, body) VALUES ";
        let inserts = statements(head, new, "", |values, BackfillWrite { row, .. }| {
            let values = values.unsigned(row.id.0).unsigned(row.partition.0).signed(row.at.0).bytes(row.by.as_bytes());
            let values = values.unsigned(row.plan.task.0).unsigned(row.state.code()).unsigned(row.made).unsigned(row.ended);
            values.bytes(&codec::pack_backfill(&row.plan));
        });
        script.put_all(Expected::Any, inserts);
        let mut tasks: Vec<u64> = self.batch.backfills.iter().filter(|write| write.is_new).map(|write| write.row.plan.task.0).collect();
        tasks.sort_unstable();
        tasks.dedup();
        for task in tasks {
            // A statement may read the table that it changes only by way of another one.
            let last = format!(
                "SELECT id FROM (SELECT id FROM backfills FORCE INDEX (backfills_by_task) WHERE task = {task} ORDER BY id DESC LIMIT 1 OFFSET {}) o",
                limits::BACKFILLS_KEPT_MAX
            );
            script.put(
                Expected::Any,
                format!("DELETE FROM backfills WHERE task = {task} AND state <> 0 AND NOT (state = 2 AND ended < made) AND id <= ({last})"),
            );
        }
        for BackfillWrite { row, .. } in self.batch.backfills.iter().filter(|write| !write.is_new) {
            let (id, state, made, ended) = (row.id, row.state.code(), row.made, row.ended);
            script.put(Expected::Any, format!("UPDATE backfills SET state = {state}, made = {made}, ended = {ended} WHERE id = {id}"));
        }
    }

    /// Writes inbox entries of others. The last thing before COMMIT, and on its own: from here on nobody else writes entries, see the catalog
    /// module, and a batch that is refused takes no numbers.
    async fn write_messages(&mut self) -> Result<(), Stop> {
        if self.batch.messages.is_empty() {
            return Ok(());
        }
        // Looked up on its own: within the statement that writes, it would lock what a writer of tasks has, who waits for the turn.
        let names = self.batch.messages.iter().filter_map(|message| message.notice.name_of_task().cloned());
        let named = ids_of(self.session, names.collect()).await?;
        let inserts = statements(
            "INSERT INTO inbox (`partition`, made_at, made_by, kind, task, body) VALUES ",
            &self.batch.messages,
            "",
            |values, message| {
                let values = values.unsigned(message.partition.0).signed(message.at.0).bytes(message.by.as_bytes()).unsigned(KIND_NOTICE);
                let named = message.notice.name_of_task().and_then(|name| named.get(name).copied());
                values.optional(named.or(message.notice.task().map(|task| task.0))).bytes(&codec::pack_notice(&message.notice));
            },
        );
        let script = [TAKE_INBOX_TURN.to_owned()].into_iter().chain(inserts).collect::<Vec<_>>().join("; ");
        self.session.answers(script).await?;
        Ok(())
    }

    /// The fire times of the instances whose outputs are written.
    async fn fire_times_of_outputs(&mut self) -> Result<FxHashMap<InstanceId, Timestamp>, Stop> {
        let batch = self.batch;
        if batch.outputs.is_empty() {
            return Ok(FxHashMap::default());
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
        Ok(fire_times)
    }

    fn put_outputs(&self, script: &mut Script, fire_times: &FxHashMap<InstanceId, Timestamp>) {
        let puts = statements(
            "INSERT INTO outputs (instance, attempt, fire_time, dropped, bytes) VALUES ",
            &self.batch.outputs,
            " ON DUPLICATE KEY UPDATE dropped = VALUES(dropped), bytes = VALUES(bytes)",
            |values, written| {
                let fire_time = fire_times.get(&written.instance).copied().unwrap_or(Timestamp(0));
                let values = values.unsigned(written.instance.0).unsigned(written.attempt).signed(fire_time.0);
                values.unsigned(written.output.dropped).bytes(&written.output.bytes);
            },
        );
        script.put_all(Expected::Any, puts);
    }
}

/// What becomes of an instance in a batch.
struct Life<'a> {
    before: State,
    after: &'a InstanceRow,
    updates: usize,
}

fn put_live<'a>(script: &mut Script, rows: impl Iterator<Item = &'a InstanceRow>) {
    let sql = "INSERT INTO live (id, fire_time, task, ordinal, run, part) VALUES ";
    script.put_all(Expected::New, statements(sql, rows, "", |values, row| put_place(values.unsigned(row.id.0), row).done()));
}

fn put_dead_letters<'a>(script: &mut Script, rows: impl Iterator<Item = &'a InstanceRow>) {
    let sql = "INSERT INTO dead_letters (id, fire_time, task, ordinal, run) VALUES ";
    script.put_all(Expected::New, statements(sql, rows, "", |values, row| put_firing(values.unsigned(row.id.0), row).done()));
}

fn put_troubled<'a>(script: &mut Script, rows: impl Iterator<Item = &'a InstanceRow>) {
    let sql = "INSERT INTO troubled (state, fire_time, task, ordinal, run, part) VALUES ";
    let inserts = statements(sql, rows, "", |values, row| put_place(values.unsigned(row.state.code()), row).done());
    script.put_all(Expected::Any, inserts);
}
