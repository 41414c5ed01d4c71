//! What people do: pauses, the audit, dead letters, and changes to triggers that are not due yet.

use std::sync::Arc;

use punctual_core::ids::{InboxId, InstanceId, PartitionId, partition_of};
use punctual_core::inbox::{DelayedChange, Request, Submission, ordinal_of};
use punctual_core::instance::{Cause, InstanceRow, Origin, State, Transition};
use punctual_core::pause::PauseScope;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{
    Actor, AuditAction, AuditFilter, Catalog, DeadLetterFilter, Discarded, InstanceAction, InstanceCursor, PauseSet, PauseTarget,
    Rerunning, Store, Submitted, TaskDocument, TriggerChanged,
};

use super::{
    Factory, Owner, PARTITIONS, START, all_partitions, apply, apply_inbox, commit, document, ended, entry_ids, open, tasks_in_force,
};

fn actor(by: &str) -> Actor {
    Actor { by: by.into(), from: Some("a test".into()), why: Some("because".into()) }
}

/// A document with a group.
fn grouped(name: &str, group: Option<&str>) -> TaskDocument {
    let plain = document(name, group.unwrap_or("none"));
    let definition = punctual_core::definition::TaskDefinition { group: group.map(Into::into), ..(*plain.definition).clone() };
    TaskDocument { definition: Arc::new(definition), ..plain }
}

async fn set<S: Catalog>(store: &S, target: &PauseTarget, is_paused: bool, at: i64) -> PauseSet {
    store.set_pause(target.clone(), is_paused, actor("ops"), Timestamp(START.0 + at)).await.expect("an answer")
}

async fn scopes(store: &impl Store, partition: PartitionId) -> Vec<PauseScope> {
    store.snapshot(partition).await.expect("a snapshot").pauses
}

/// Whoever owns a partition from now on finds it, and whoever owns it now is told.
pub async fn a_pause_is_told_to_owners_now_and_to_come<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let target = PauseTarget::Task("one".into());
    let PauseSet::Accepted { entries } = set(&store, &target, true, 5).await else { panic!("it is paused") };
    assert_eq!(entry_ids(&store).await, entries);
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let [entry] = &page.entries[..] else { panic!("{page:?}") };
    assert_eq!((entry.partition, entry.at, &*entry.by), (partition, Timestamp(START.0 + 5), "ops"));
    assert_eq!(entry.request, Request::PauseChanged { scope: PauseScope::Task(task), is_paused: true });
    for other in all_partitions() {
        let expected = if other == partition { vec![PauseScope::Task(task)] } else { Vec::new() };
        assert_eq!(scopes(&store, other).await, expected);
    }
    assert_eq!(set(&store, &target, true, 6).await, PauseSet::Unchanged);
    let pauses = store.pauses().await.expect("pauses");
    assert_eq!(pauses.iter().map(|pause| (&pause.target, pause.since)).collect::<Vec<_>>(), [(&target, Timestamp(START.0 + 5))]);
    assert_eq!(pauses[0].actor, actor("ops"), "the first one is on record");
    apply_inbox(&store, &mut owner, None).await;
    assert!(matches!(set(&store, &target, false, 7).await, PauseSet::Accepted { .. }));
    assert_eq!((scopes(&store, partition).await, store.pauses().await.expect("pauses")), (Vec::new(), Vec::new()));
    assert_eq!(set(&store, &target, false, 8).await, PauseSet::Unchanged);
}

/// All owners are concerned by that of a group, and by that of everything.
pub async fn groups_and_everything_are_paused<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    apply(&store, vec![grouped("a", Some("g")), grouped("b", Some("h")), grouped("c", None)], START).await;
    apply_inbox(&store, &mut owner, None).await;
    let group = PauseTarget::Group("g".into());
    assert_eq!(set(&store, &PauseTarget::Group("none".into()), true, 0).await, PauseSet::NoSuchGroup);
    for target in [&group, &PauseTarget::All] {
        let PauseSet::Accepted { entries } = set(&store, target, true, 1).await else { panic!("it is paused") };
        assert_eq!(entries.len(), usize::from(PARTITIONS));
        let page = store.read_inbox(all_partitions(), InboxId(0), 100).await.expect("a page");
        let told: Vec<_> = page.entries.iter().filter(|entry| entries.contains(&entry.id)).map(|entry| entry.partition).collect();
        assert_eq!(told, all_partitions());
    }
    for partition in all_partitions() {
        assert_eq!(scopes(&store, partition).await, [PauseScope::All, PauseScope::Group("g".into())]);
    }
    let targets: Vec<_> = store.pauses().await.expect("pauses").into_iter().map(|pause| pause.target).collect();
    assert_eq!(targets, [PauseTarget::All, group.clone()]);
    // An edit takes the last task out of its group: the pause stays, and can be lifted.
    apply(&store, vec![grouped("a", None), grouped("b", Some("h")), grouped("c", None)], START).await;
    assert_eq!(set(&store, &group, true, 2).await, PauseSet::NoSuchGroup);
    assert!(matches!(set(&store, &group, false, 2).await, PauseSet::Accepted { .. }));
}

/// All owners are concerned by a drained worker, of which no store knows whether it is there; and the audit says whom.
pub async fn workers_are_drained<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let target = PauseTarget::Worker("w1".into());
    let PauseSet::Accepted { entries } = set(&store, &target, true, 1).await else { panic!("it is drained") };
    let page = store.read_inbox(all_partitions(), InboxId(0), 100).await.expect("a page");
    let scope = PauseScope::Worker(punctual_core::ids::WorkerId("w1".into()));
    for entry in page.entries.iter().filter(|entry| entries.contains(&entry.id)) {
        assert_eq!(entry.request, Request::PauseChanged { scope: scope.clone(), is_paused: true });
    }
    assert_eq!(entries.len(), usize::from(PARTITIONS));
    for partition in all_partitions() {
        assert_eq!(scopes(&store, partition).await, std::slice::from_ref(&scope));
    }
    assert_eq!(set(&store, &target, true, 2).await, PauseSet::Unchanged);
    assert!(matches!(set(&store, &target, false, 3).await, PauseSet::Accepted { .. }));
    let audit = store.audit(AuditFilter { limit: 10, ..AuditFilter::default() }).await.expect("the audit");
    let told: Vec<_> = audit.iter().map(|view| (view.action, view.subject.as_deref())).collect();
    assert_eq!(told, [(AuditAction::Undrain, Some("w1")), (AuditAction::Drain, Some("w1"))]);
}

/// It is beside the task.
pub async fn a_pause_outlives_edits_and_removals<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("one", "v1")], START).await;
    let target = PauseTarget::Task("one".into());
    assert_eq!(set(&store, &PauseTarget::Task("never".into()), true, 0).await, PauseSet::NoSuchTask);
    assert_eq!(set(&store, &PauseTarget::Task("never".into()), false, 0).await, PauseSet::NoSuchTask);
    set(&store, &target, true, 0).await;
    apply(&store, vec![document("one", "v2")], START).await;
    apply(&store, vec![], START).await;
    let partition = partition_of("one", PARTITIONS);
    assert_eq!(scopes(&store, partition).await.len(), 1);
    assert_eq!(set(&store, &target, true, 1).await, PauseSet::NoSuchTask, "what is removed is not paused");
    assert!(matches!(set(&store, &target, false, 1).await, PauseSet::Accepted { .. }));
    assert_eq!(set(&store, &target, false, 2).await, PauseSet::Unchanged);
}

/// A task in force, and an instance of it that has become a dead letter.
async fn dead_letter<S: Store + Catalog>(
    store: &S,
    owner: &mut Owner,
    of: (punctual_core::ids::TaskId, PartitionId),
    at: i64,
) -> InstanceRow {
    let row = owner.dispatched(of.1, of.0, Timestamp(START.0 + at));
    let mut batch = owner.batch_on(&[of.1]);
    batch.inserts.push(row.clone());
    commit(store, batch).await;
    let mut batch = owner.batch_on(&[of.1]);
    batch.updates.push(ended(&row, State::DeadLettered, START));
    commit(store, batch).await;
    row
}

async fn letters(store: &impl Catalog, task: Option<&str>, before: Option<&InstanceRow>, limit: usize) -> Vec<InstanceId> {
    let filter = DeadLetterFilter { task: task.map(Into::into), before: before.map(InstanceCursor::of), limit };
    store.dead_letters(filter).await.expect("dead letters").into_iter().map(|view| view.row.id).collect()
}

/// Whatever owners and people have written, and after each of it.
pub async fn what_is_written_contradicts_nothing<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let look = async |what: &str| {
        for thorough in [false, true] {
            assert_eq!(store.inconsistencies(START, thorough).await.expect("an answer"), [], "{what}");
        }
    };
    look("nothing").await;
    let mut owner = Owner::of_all(&store).await;
    let [one, two] = tasks_in_force(&store, &mut owner, &["one", "two"]).await[..] else { panic!("two tasks") };
    look("tasks").await;
    let first = dead_letter(&store, &mut owner, one, 0).await;
    let second = dead_letter(&store, &mut owner, two, 1).await;
    look("dead letters").await;
    let well = owner.dispatched(one.1, one.0, Timestamp(START.0 + 9));
    let mut batch = owner.batch_on(&[one.1]);
    batch.inserts.push(well.clone());
    commit(&store, batch).await;
    look("what runs").await;
    let mut batch = owner.batch_on(&[one.1]);
    batch.updates.push(ended(&well, State::Succeeded, START));
    commit(&store, batch).await;
    store.discard(first.id, "me".into(), START).await.expect("an answer");
    store.rerun(second.id, "me".into(), Rerunning::Unsuccessful, START).await.expect("an answer");
    store.set_pause(PauseTarget::Task("two".into()), true, "me".into(), START).await.expect("an answer");
    store.trigger("one".into(), "me".into(), None, vec![Submission::default()], START).await.expect("an answer");
    look("what people have asked for").await;
}

/// Page by page, newest first; those that are settled are not among them.
pub async fn dead_letters_are_listed_until_they_are_settled<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let [one, two] = tasks_in_force(&store, &mut owner, &["one", "two"]).await[..] else { panic!("two tasks") };
    let mut rows = Vec::new();
    for (at, of) in [one, two, one, two].into_iter().enumerate() {
        rows.push(dead_letter(&store, &mut owner, of, at as i64).await);
    }
    // What ends otherwise is none, nor is what is inserted and ends in one batch as something else.
    let well = owner.dispatched(one.1, one.0, Timestamp(START.0 + 9));
    let mut batch = owner.batch_on(&[one.1]);
    batch.inserts.push(well.clone());
    batch.updates.push(ended(&well, State::Failed, START));
    commit(&store, batch).await;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!(letters(&store, None, None, 10).await, [ids[3], ids[2], ids[1], ids[0]]);
    assert_eq!(letters(&store, None, None, 2).await, [ids[3], ids[2]]);
    assert_eq!(letters(&store, None, Some(&rows[2]), 2).await, [ids[1], ids[0]]);
    assert_eq!(letters(&store, Some("one"), None, 10).await, [ids[2], ids[0]]);
    assert_eq!(letters(&store, Some("one"), Some(&rows[2]), 10).await, [ids[0]]);
    assert_eq!(letters(&store, Some("never"), None, 10).await, []);
    let rerun = store.rerun(ids[0], actor("ops"), Rerunning::Unsuccessful, START).await.expect("an answer");
    assert!(matches!(rerun, Submitted::Accepted { .. }));
    let discard = |id: InstanceId| store.discard(id, actor("ops"), START);
    assert_eq!(discard(ids[3]).await.expect("an answer"), Discarded::Done);
    assert_eq!(discard(ids[3]).await.expect("an answer"), Discarded::Settled);
    assert_eq!(discard(ids[0]).await.expect("an answer"), Discarded::Settled, "it is run again");
    assert_eq!(discard(well.id).await.expect("an answer"), Discarded::NotDead);
    let nowhere = InstanceId::new(PartitionId(1), 1 << 40);
    assert_eq!(discard(nowhere).await.expect("an answer"), Discarded::NoSuchInstance);
    assert_eq!(letters(&store, None, None, 10).await, [ids[2], ids[1]]);
    // A discarded one may be run again all the same.
    assert!(matches!(
        store.rerun(ids[3], actor("ops"), Rerunning::Unsuccessful, START).await.expect("an answer"),
        Submitted::Accepted { .. }
    ));
}

/// Who, when, what, why and from where; in the order of the writes, and nothing of what was refused.
pub async fn what_people_write_is_on_record<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let row = dead_letter(&store, &mut owner, (task, partition), 0).await;
    let submission = || vec![Submission::default()];
    let key: Option<Arc<str>> = Some("k".into());
    for _ in 0..2 {
        store.trigger("one".into(), actor("me"), key.clone(), submission(), START).await.expect("an answer");
    }
    store.trigger("never".into(), actor("me"), None, submission(), START).await.expect("an answer");
    let live = owner.dispatched(partition, task, Timestamp(START.0 + 7));
    let mut batch = owner.batch_on(&[partition]);
    batch.inserts.push(live.clone());
    commit(&store, batch).await;
    for action in [InstanceAction::Cancel, InstanceAction::Kill, InstanceAction::Skip] {
        store.act(live.id, action, actor("me"), Timestamp(START.0 + 3)).await.expect("an answer");
    }
    for _ in 0..2 {
        store
            .rerun(row.id, Actor { why: Some("once more".into()), ..actor("me") }, Rerunning::Unsuccessful, START)
            .await
            .expect("an answer");
    }
    set(&store, &PauseTarget::All, true, 0).await;
    set(&store, &PauseTarget::All, false, 0).await;
    apply(&store, vec![document("one", "v2")], START).await;
    apply(&store, vec![], START).await;
    let filter = |task: Option<&str>, instance, before, limit| AuditFilter { task: task.map(Into::into), instance, before, limit };
    let all = store.audit(filter(None, None, None, 100)).await.expect("the audit");
    use AuditAction::*;
    let actions: Vec<_> = all.iter().rev().map(|audit| audit.action).collect();
    assert_eq!(actions, [Create, Trigger, Cancel, Kill, Skip, Rerun, Pause, Resume, Change, Remove]);
    assert!(all.windows(2).all(|pair| pair[0].id > pair[1].id));
    let of = |action| all.iter().find(|audit| audit.action == action).expect("it is there");
    assert_eq!((of(Trigger).task.as_deref(), of(Trigger).subject.as_deref(), &of(Trigger).actor), (Some("one"), Some("k"), &actor("me")));
    assert_eq!((of(Kill).at, of(Kill).instance, of(Kill).task.as_deref()), (Timestamp(START.0 + 3), Some(live.id), Some("one")));
    assert_eq!((of(Rerun).actor.why.as_deref(), of(Rerun).instance), (Some("once more"), Some(row.id)));
    assert_eq!((of(Pause).task.as_deref(), of(Create).subject.as_deref(), &*of(Create).actor.by), (None, Some("files"), "tester"));
    let count = |found: &[punctual_driver::ports::AuditView]| found.len();
    assert_eq!(count(&store.audit(filter(Some("one"), None, None, 100)).await.expect("the audit")), 8);
    assert_eq!(count(&store.audit(filter(Some("never"), None, None, 100)).await.expect("the audit")), 0);
    assert_eq!(count(&store.audit(filter(None, Some(live.id), None, 100)).await.expect("the audit")), 3);
    let page = store.audit(filter(None, None, Some(all[3].id), 2)).await.expect("the audit");
    assert_eq!(page.iter().map(|audit| audit.id).collect::<Vec<_>>(), [all[4].id, all[5].id]);
}

/// Their owner gets them as they were asked for.
pub async fn kills_and_skips_come_back_as_they_were<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let row = owner.dispatched(partition, task, START);
    let mut batch = owner.batch_on(&[partition]);
    batch.inserts.push(row.clone());
    commit(&store, batch).await;
    for action in [InstanceAction::Kill, InstanceAction::Skip] {
        store.act(row.id, action, actor("me"), START).await.expect("an answer");
    }
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let (instance, reason): (_, Option<Arc<str>>) = (row.id, Some("because".into()));
    let expected = [Request::Kill { instance, reason: reason.clone() }, Request::Skip { instance, reason }];
    assert_eq!(page.entries.into_iter().map(|entry| entry.request).collect::<Vec<_>>(), expected);
    let nowhere = InstanceId::new(PartitionId(1), 1 << 40);
    let answer = store.act(nowhere, InstanceAction::Kill, actor("me"), START).await.expect("an answer");
    assert_eq!(answer, Submitted::NoSuchInstance);
}

/// Found by its key in the inbox, and as the instance that its owner has made of it, until its time has come.
pub async fn a_trigger_that_is_not_due_is_changed_by_its_key<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let (task, partition) = made[0];
    let submissions = vec![Submission { key: Some("k".into()), payload: None, delay: Some(Millis(60_000)) }];
    let triggered = store.trigger("one".into(), actor("me"), Some("k".into()), submissions, START).await.expect("an answer");
    let Submitted::Accepted { entry: asked } = triggered else { panic!("{triggered:?}") };
    let ordinal = ordinal_of(asked, 0);
    let change = |name: &str, key: &str, change| store.change_trigger(name.into(), key.into(), change, actor("me"), START);
    let put_off = DelayedChange::Reschedule(Timestamp(START.0 + 90_000));
    let answer = change("one", "k", put_off).await.expect("an answer");
    let TriggerChanged::Accepted { entry, ordinal: told } = answer else { panic!("{answer:?}") };
    assert_eq!(told, ordinal);
    let page = store.read_inbox(all_partitions(), asked, 10).await.expect("a page");
    let [found] = &page.entries[..] else { panic!("{page:?}") };
    let expected = Request::Delayed { task, ordinal, change: put_off, reason: Some("because".into()) };
    assert_eq!((found.id, found.partition, &found.request), (entry, partition, &expected));
    assert_eq!(change("two", "k", DelayedChange::Cancel).await.expect("an answer"), TriggerChanged::NoSuchTrigger);
    assert_eq!(change("one", "other", DelayedChange::Cancel).await.expect("an answer"), TriggerChanged::NoSuchTrigger);
    assert_eq!(change("never", "k", DelayedChange::Cancel).await.expect("an answer"), TriggerChanged::NoSuchTask);
    // Its owner makes an instance of it.
    let fresh = owner.dispatched(partition, task, Timestamp(START.0 + 60_000));
    let made_at = Transition { to: State::Waiting, cause: Cause::Triggered, from: None, ..fresh.transitions[0].clone() };
    let row = InstanceRow {
        ordinal,
        origin: Origin::Manual,
        state: State::Waiting,
        fence: punctual_core::ids::Fence(0),
        attempt: 0,
        worker: None,
        due_at: Some(fresh.fire_time),
        key: Some("k".into()),
        transitions: vec![made_at],
        ..fresh
    };
    let mut batch = owner.batch();
    batch.inserts.push(row.clone());
    batch.applied = entry_ids(&store).await;
    commit(&store, batch).await;
    assert!(matches!(change("one", "k", DelayedChange::Cancel).await.expect("an answer"), TriggerChanged::Accepted { .. }));
    // Its time comes.
    let mut next = row.clone();
    (next.state, next.due_at) = (State::Created, None);
    let mut batch = owner.batch_on(&[partition]);
    let (expected_state, expected_fence) = (row.state, row.fence);
    batch.updates.push(punctual_core::batch::InstanceUpdate { expected_state, expected_fence, row: next });
    commit(&store, batch).await;
    assert_eq!(change("one", "k", DelayedChange::Cancel).await.expect("an answer"), TriggerChanged::Over { ordinal });
}
