//! What every store must do, as one suite: SQLite runs it, and so does whatever else implements [`Store`] and [`Catalog`].
//!
//! A store joins with a [`Factory`] and one line:
//!
//! ```ignore
//! punctual_store::conformance_tests!(MyFactory::default(), my_block_on);
//! ```
//!
//! which makes a `#[test]` of each case. Each opens a fresh store. The suite hands it the codec of its own documents.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use punctual_core::batch::{Batch, CommitOutcome, InstanceUpdate, LeaseCheck, Renewal};
use punctual_core::definition::{Handler, TaskDefinition, Trigger};
use punctual_core::ids::{Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::Request;
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition, WorkerRef};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Applied, Catalog, InstanceFilter, LeaseAnswer, Store, StoreError, TaskDocument};

use crate::Decode;

pub mod accounts;
pub mod backfills;
pub mod catalog;
pub mod commits;
pub mod inbox;
pub mod leases;
pub mod logs;
pub mod nodes;
pub mod people;
pub mod reading;

/// Opens stores for the suite.
pub trait Factory {
    /// The store.
    type Store: Store + Catalog;

    /// Opens an empty store. What it is kept in lives at least as long as the factory.
    fn open(&self, partitions: u16, decode: Decode) -> impl Future<Output = Self::Store>;
}

/// Makes a `#[test]` of each case: of a factory, and of a function that runs a future to its end.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr, $block_on:expr) => {
        $crate::conformance_tests!(@cases $factory, $block_on, leases {
            a_lease_is_granted_under_a_growing_epoch
            a_lease_that_is_held_is_granted_to_nobody_else_until_it_ends
            a_renewed_lease_lasts_longer
            a_lease_is_not_renewed_where_commits_were_forgotten
            a_lease_that_was_taken_over_is_not_renewed
            a_released_lease_is_free_at_once_and_nobodys
            a_release_under_an_old_epoch_does_nothing
            a_new_owner_is_told_how_far_the_last_one_came
            leases_of_several_partitions_are_answered_in_the_order_asked_for
            no_more_leases_are_granted_than_are_wanted
            a_lease_is_renewed_and_given_up_by_its_owner_only
            a_replica_is_alive_until_its_beat_is_too_old
            a_replica_that_leaves_is_gone_at_once
            replicas_are_listed_with_when_they_came_and_how_long_they_count
            partitions_are_listed_with_their_owners_and_what_waits_there
        });
        $crate::conformance_tests!(@cases $factory, $block_on, commits {
            all_of_a_committed_batch_is_there
            a_batch_under_an_old_epoch_is_refused_whole
            a_batch_of_somebody_else_is_refused
            a_batch_that_knows_of_too_many_or_too_few_commits_is_refused
            a_batch_is_refused_if_one_of_its_leases_is_lost
            a_write_in_a_partition_not_relied_on_is_refused
            an_update_of_another_state_is_refused
            an_update_to_what_an_instance_is_already_is_refused
            an_update_under_another_fence_is_refused
            an_update_of_what_is_not_there_is_refused
            a_firing_that_is_there_is_refused
            an_id_that_is_there_is_refused
            a_batch_finds_what_it_has_written_itself
            an_inbox_entry_that_is_gone_is_refused
            a_refused_batch_leaves_no_trace
            an_update_changes_what_happens_to_an_instance_and_not_what_it_is
            rows_come_back_as_they_were
            counts_follow_the_states
            an_output_that_is_written_again_takes_the_place_of_the_first
            an_owner_reads_what_was_written_before_page_by_page
            a_snapshot_has_what_is_live_with_the_definition_it_runs_by
            a_removed_task_leaves_the_snapshot
            slots_of_groups_are_written_with_the_batch_and_read_with_their_partition
            a_slot_of_a_partition_not_relied_on_is_refused
            whoever_calls_a_task_by_its_name_is_put_through
        });
        $crate::conformance_tests!(@cases $factory, $block_on, backfills {
            a_backfill_comes_to_its_owner_and_its_row_back
            a_task_has_one_backfill_at_a_time
            fire_times_that_have_an_instance_are_told_with_the_cursor
            so_many_backfills_of_a_task_are_remembered
            a_backfill_is_cancelled_by_its_id
        });
        $crate::conformance_tests!(@cases $factory, $block_on, inbox {
            entries_come_in_order_up_to_the_limit_and_stay_until_applied
            only_entries_of_the_asked_partitions_come
            requests_come_back_as_they_were
            a_document_that_cannot_be_decoded_stops_nobody_else
            entries_behind_one_that_cannot_be_decoded_wait
            a_cancellation_of_what_cannot_be_decoded_waits
            the_watermark_outlives_the_task
            a_watermark_that_is_not_written_stays
            an_edit_helps_a_document_that_cannot_be_decoded
            a_key_makes_a_trigger_repeatable
            a_key_that_was_used_for_something_else_is_taken
            without_a_key_each_trigger_counts
            what_is_not_there_is_neither_triggered_nor_cancelled
            a_rerun_has_what_its_owner_needs
            an_instance_has_one_rerun_however_often_it_is_asked_for
            only_the_newest_run_of_what_has_ended_is_run_again
            of_what_was_divided_only_what_has_not_succeeded_runs_again
        });
        $crate::conformance_tests!(@cases $factory, $block_on, nodes {
            a_snapshot_has_the_nodes_that_have_ended_of_runs_that_have_not
            the_nodes_of_a_run_are_listed
            a_rerun_from_nodes_comes_with_what_the_nodes_have_come_to
            only_runs_of_workflows_are_run_again_from_nodes
            what_is_said_of_a_node_comes_to_the_owner_of_its_run
        });
        $crate::conformance_tests!(@cases $factory, $block_on, catalog {
            documents_are_made_changed_and_removed
            what_does_not_differ_is_not_written
            a_dry_run_writes_nothing
            a_task_that_comes_back_keeps_its_id
            a_source_removes_only_its_own_tasks
            tasks_that_fire_after_others_are_told_to_their_owners
            tasks_that_nodes_call_are_there_and_make_no_ring
            calls_that_multiply_are_refused_where_they_are_too_many
            a_source_takes_a_task_over
            an_application_removes_and_takes_over_only_where_it_may
            of_two_documents_of_one_name_the_later_one_counts
            any_name_will_do
            tasks_are_paged_by_name
            instances_are_paged_newest_first
            instances_are_filtered
            a_submission_leads_to_its_instance
            occurrences_come_newest_first
        });
        $crate::conformance_tests!(@cases $factory, $block_on, reading {
            instances_are_found_by_whatever_is_asked_of_them
            a_page_looks_at_so_many_rows_and_says_where_it_has_come_to
            tasks_are_found_by_name_and_group
            tasks_that_fire_next_come_first
            the_days_of_a_task_are_counted_and_the_last_ones_kept
            one_task_is_edited_and_no_other
            an_edit_of_what_is_not_as_expected_writes_nothing
            documents_are_applied_to_what_their_author_has_seen
            an_answer_is_kept_for_a_call_that_comes_again
        });
        $crate::conformance_tests!(@cases $factory, $block_on, people {
            a_pause_is_told_to_owners_now_and_to_come
            groups_and_everything_are_paused
            workers_are_drained
            a_pause_outlives_edits_and_removals
            dead_letters_are_listed_until_they_are_settled
            what_is_written_contradicts_nothing
            what_people_write_is_on_record
            kills_and_skips_come_back_as_they_were
            a_trigger_that_is_not_due_is_changed_by_its_key
        });
    };
    (@cases $factory:expr, $block_on:expr, $module:ident { $($case:ident)* }) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $case() {
                    let factory = $factory;
                    $block_on($crate::conformance::$module::$case(&factory));
                }
            )*
        }
    };
}

/// The same of the accounts' side, for stores that have it: of a factory whose store is an
/// [`Accounts`](punctual_driver::accounts::Accounts) as well.
#[macro_export]
macro_rules! accounts_conformance_tests {
    ($factory:expr, $block_on:expr) => {
        $crate::conformance_tests!(@cases $factory, $block_on, accounts {
            users_come_back_as_they_were
            there_is_one_first_user
            somebody_who_may_change_users_is_left
            a_session_ends_by_itself
            a_session_is_ended
            a_user_has_so_many_sessions
            a_token_is_good_until_it_is_not
            a_user_has_so_many_tokens
            what_is_done_to_accounts_is_on_record
        });
    };
}

/// The same of a store of lines, a [`LogStore`](punctual_driver::logs::LogStore): of a [`LogFactory`](logs::LogFactory).
#[macro_export]
macro_rules! logs_conformance_tests {
    ($factory:expr, $block_on:expr) => {
        $crate::conformance_tests!(@cases $factory, $block_on, logs {
            lines_come_back_as_they_were
            what_is_sent_twice_is_there_once
            lines_are_paged_in_order
            lines_are_searched
            what_was_looked_at_is_told
            what_lies_on_two_days_is_read_once
            old_days_are_dropped
        });
    };
}

/// How many partitions the suite's stores have.
pub const PARTITIONS: u16 = 8;
/// When the suite begins.
pub const START: Timestamp = Timestamp(1_790_000_000_000);
/// How long its leases last.
pub const TTL: Millis = Millis::from_secs(10);

/// The codec of the suite's documents.
pub fn decode() -> Decode {
    Arc::new(|document| {
        let fields: serde_json::Value = serde_json::from_str(document).map_err(|error| error.to_string())?;
        let text = |name: &str| fields[name].as_str().ok_or_else(|| format!("no {name}"));
        if !fields["broken"].is_null() {
            return Err("it is broken".to_owned());
        }
        if let Some(listed) = fields["nodes"].as_array() {
            let listed: Vec<_> = listed.iter().filter_map(serde_json::Value::as_str).collect();
            return Ok(nodes::workflow(text("name")?, text("payload")?, &listed));
        }
        Ok(definition(text("name")?, text("payload")?))
    })
}

/// A definition as [`decode`] makes it.
pub fn definition(name: &str, payload: &str) -> TaskDefinition {
    let handler = Handler { name: "command".into(), config: "{}".into() };
    TaskDefinition { payload: Some(payload.into()), ..TaskDefinition::new(name, Trigger::Manual, handler) }
}

/// A document of the suite's.
pub fn document(name: &str, payload: &str) -> TaskDocument {
    let document = serde_json::json!({ "name": name, "payload": payload }).to_string();
    TaskDocument { definition: Arc::new(definition(name, payload)), document: document.into() }
}

/// A document that can't be decoded.
pub fn broken_document(name: &str) -> TaskDocument {
    let document = serde_json::json!({ "name": name, "broken": true }).to_string();
    TaskDocument { definition: Arc::new(definition(name, "")), document: document.into() }
}

/// Opens a store with the suite's layout.
pub async fn open<F: Factory>(factory: &F) -> F::Store {
    let store = factory.open(PARTITIONS, decode()).await;
    assert_eq!(store.partitions(), PARTITIONS);
    store
}

/// All partitions.
pub fn all_partitions() -> Vec<PartitionId> {
    (0..PARTITIONS).map(PartitionId).collect()
}

/// Applies documents as the source `files`.
pub async fn apply(store: &impl Catalog, documents: Vec<TaskDocument>, now: Timestamp) -> Applied {
    store.apply("files".into(), "tester".into(), documents, false, now).await.expect("the documents are applied")
}

/// An owner of partitions, who counts as one does.
#[derive(Clone, Debug)]
pub struct Owner {
    replica: ReplicaId,
    leases: BTreeMap<PartitionId, LeaseCheck>,
}

impl Owner {
    /// Takes these partitions, all of which must be free.
    pub async fn take(store: &impl Store, replica: &str, partitions: Vec<PartitionId>, now: Timestamp) -> Self {
        Owner::try_take(store, replica, partitions, now).await.expect("an answer")
    }

    /// The same, of a store that may fail.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn try_take(store: &impl Store, replica: &str, partitions: Vec<PartitionId>, now: Timestamp) -> Result<Self, StoreError> {
        let replica = ReplicaId(replica.into());
        let most = partitions.len();
        let answers = store.acquire(replica.clone(), partitions, most, TTL, now).await?;
        let leases = answers.into_iter().map(|answer| match answer {
            LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } => {
                (partition, LeaseCheck { partition, epoch, commit_seq, sequence })
            }
            LeaseAnswer::Held { partition, owner, .. } => panic!("partition {partition} is held by {}", owner.0),
        });
        Ok(Owner { replica, leases: leases.collect() })
    }

    /// Takes all partitions.
    pub async fn of_all(store: &impl Store) -> Self {
        Owner::take(store, "a", all_partitions(), START).await
    }

    /// The lease of a partition.
    pub fn lease(&self, partition: PartitionId) -> LeaseCheck {
        self.leases[&partition]
    }

    /// What a renewal of its lease on a partition says.
    pub fn renewal(&self, partition: PartitionId) -> Renewal {
        let LeaseCheck { epoch, commit_seq, .. } = self.lease(partition);
        Renewal { partition, epoch, commit_seq }
    }

    /// A batch that relies on these partitions' leases and says nothing yet.
    pub fn batch_on(&mut self, partitions: &[PartitionId]) -> Batch {
        let mut leases = Vec::new();
        for partition in partitions {
            let lease = self.leases.get_mut(partition).expect("an own partition");
            lease.commit_seq += 1;
            leases.push(*lease);
        }
        Batch { replica: self.replica.clone(), leases, ..Batch::default() }
    }

    /// A batch that relies on all leases.
    pub fn batch(&mut self) -> Batch {
        let all: Vec<_> = self.leases.keys().copied().collect();
        self.batch_on(&all)
    }

    /// The store must refuse this batch and say so with this in its words. The owner counts on as if it had never been.
    pub async fn refused<S: Store + Catalog>(&mut self, store: &S, batch: Batch, words: &str) {
        for lease in &batch.leases {
            self.leases.get_mut(&lease.partition).expect("an own partition").commit_seq -= 1;
        }
        refused(store, batch, words).await;
    }

    /// The next number of a partition's sequence.
    pub fn next(&mut self, partition: PartitionId) -> u64 {
        let lease = self.leases.get_mut(&partition).expect("an own partition");
        lease.sequence += 1;
        lease.sequence
    }

    /// A new instance, dispatched to a worker.
    pub fn dispatched(&mut self, partition: PartitionId, task: TaskId, fire_time: Timestamp) -> InstanceRow {
        let id = InstanceId::new(partition, self.next(partition));
        let fence = Fence(self.next(partition));
        let worker = WorkerId("w1".into());
        let transition = |from, to, cause| Transition {
            from,
            to,
            cause,
            at: fire_time,
            attempt: u32::from(to == State::Dispatched),
            fence: if to == State::Dispatched { fence } else { Fence(0) },
            worker: (to == State::Dispatched).then(|| worker.clone()),
            code: None,
            detail: None,
        };
        InstanceRow {
            id,
            task,
            version: Version(1),
            fire_time,
            ordinal: 0,
            run: 1,
            part: Part::WHOLE,
            links: None,
            result: None,
            origin: Origin::Schedule,
            state: State::Dispatched,
            fence,
            attempt: 1,
            failures: 0,
            losses: 0,
            worker: Some(WorkerRef { id: worker.clone(), life: WorkerLife(u64::MAX) }),
            due_at: None,
            payload: None,
            key: None,
            transitions: vec![
                transition(None, State::Waiting, Cause::Fired),
                transition(Some(State::Waiting), State::Created, Cause::SlotFree),
                transition(Some(State::Created), State::Dispatched, Cause::Assigned),
            ],
        }
    }
}

/// The end of an instance.
pub fn ended(row: &InstanceRow, state: State, at: Timestamp) -> InstanceUpdate {
    let mut next = row.clone();
    next.state = state;
    next.worker = None;
    next.transitions.push(Transition {
        from: Some(row.state),
        to: state,
        cause: Cause::Finished,
        at,
        attempt: row.attempt,
        fence: row.fence,
        worker: row.worker.as_ref().map(|worker| worker.id.clone()),
        code: Some(0),
        detail: Some("it is over".into()),
    });
    InstanceUpdate { expected_state: row.state, expected_fence: row.fence, row: next }
}

/// Commits what must be accepted.
pub async fn commit(store: &impl Store, batch: Batch) {
    let outcome = store.commit(Arc::new(batch)).await.expect("an outcome");
    assert_eq!(outcome, CommitOutcome::Committed);
}

/// Commits what must be refused, for a reason that has `why` in it, and looks that nothing was written.
pub async fn refused(store: &(impl Store + Catalog), batch: Batch, why: &str) {
    let before = dump(store).await;
    match store.commit(Arc::new(batch)).await.expect("an outcome") {
        CommitOutcome::Refused { reason } => assert!(reason.contains(why), "{reason:?} does not say {why:?}"),
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(dump(store).await, before, "a refused batch left a trace");
}

/// All that can be read of a store, but for leases.
pub async fn dump(store: &(impl Store + Catalog)) -> String {
    let mut dump = String::new();
    let mut add = |what: &dyn std::fmt::Debug| dump.push_str(&format!("{what:#?}\n"));
    for partition in all_partitions() {
        add(&store.snapshot(partition).await.expect("a snapshot"));
    }
    add(&store.read_inbox(all_partitions(), InboxId(0), usize::MAX).await.expect("a page"));
    let tasks = store.tasks(None, usize::MAX).await.expect("tasks");
    for task in &tasks {
        add(&store.task(Arc::clone(&task.name)).await.expect("a task"));
        add(&store.occurrences(Arc::clone(&task.name), usize::MAX).await.expect("occurrences"));
    }
    let instances = store.instances(InstanceFilter { limit: usize::MAX, ..InstanceFilter::default() }).await.expect("instances");
    for instance in instances {
        add(&instance);
        add(&store.outputs(instance.row.id).await.expect("outputs"));
    }
    add(&store.counts().await.expect("counts"));
    dump
}

/// Makes tasks of these names and applies their entries as an owner does. Answers with their ids and partitions.
pub async fn tasks_in_force(store: &(impl Store + Catalog), owner: &mut Owner, names: &[&str]) -> Vec<(TaskId, PartitionId)> {
    apply(store, names.iter().map(|name| document(name, "v1")).collect(), START).await;
    apply_inbox(store, owner, None).await;
    let mut made = Vec::new();
    for name in names {
        let (view, _) = store.task((*name).into()).await.expect("an answer").expect("the task");
        made.push((view.task, punctual_core::ids::partition_of(name, PARTITIONS)));
    }
    made
}

/// Applies all definitions in the inbox, and removes all other entries.
pub async fn apply_inbox(store: &impl Store, owner: &mut Owner, next_fire: Option<Timestamp>) {
    let page = store.read_inbox(all_partitions(), InboxId(0), usize::MAX).await.expect("a page");
    let mut batch = owner.batch();
    for entry in page.entries {
        batch.applied.push(entry.id);
        if let Request::DefinitionChanged { task, version, definition, .. } = entry.request {
            let version = definition.map(|_| version);
            batch.tasks.push(punctual_core::batch::TaskWrite {
                task,
                partition: entry.partition,
                version,
                next_fire,
                fired_until: next_fire,
            });
        }
    }
    commit(store, batch).await;
}

/// The entries of the inbox.
pub async fn entry_ids(store: &impl Store) -> Vec<InboxId> {
    let page = store.read_inbox(all_partitions(), InboxId(0), usize::MAX).await.expect("a page");
    page.entries.into_iter().map(|entry| entry.id).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_list() {
        let list = include_str!("mod.rs");
        let sources = [
            include_str!("leases.rs"),
            include_str!("backfills.rs"),
            include_str!("commits.rs"),
            include_str!("inbox.rs"),
            include_str!("catalog.rs"),
            include_str!("nodes.rs"),
            include_str!("people.rs"),
            include_str!("reading.rs"),
        ];
        let mut cases = 0;
        for line in sources.iter().flat_map(|source| source.lines()) {
            let Some(case) = line.strip_prefix("pub async fn ").and_then(|rest| rest.split('<').next()) else { continue };
            assert!(list.lines().any(|listed| listed.trim() == case), "{case} is forgotten");
            cases += 1;
        }
        assert!(cases > 40);
    }
}
