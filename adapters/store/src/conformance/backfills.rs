//! Backfills: what is to be known before one is asked for, asking for it, and how they stand.

use punctual_core::backfill::{BackfillPlan, BackfillRow, BackfillState, BackfillWrite};
use punctual_core::ids::{InboxId, PartitionId, TaskId};
use punctual_core::inbox::Request;
use punctual_core::instance::{InstanceRow, Origin, Part};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Actor, Catalog, Store, Submitted};

use super::{Factory, Owner, START, all_partitions, commit, entry_ids, open, tasks_in_force};

fn plan(task: TaskId, fire_times: &[i64]) -> BackfillPlan {
    let fire_times = fire_times.iter().map(|at| Timestamp(*at)).collect();
    BackfillPlan { task, fire_times, concurrency: 3, reason: Some("pourquoi".into()) }
}

async fn ask(store: &impl Catalog, task: TaskId, after: Option<InboxId>) -> Submitted {
    store.backfill(plan(task, &[9, -5, 7]), after, "me".into(), START).await.expect("an answer")
}

fn accepted(submitted: Submitted) -> InboxId {
    match submitted {
        Submitted::Accepted { entry } => entry,
        other => panic!("{other:?}"),
    }
}

/// Takes the backfills in the inbox up as an owner does.
async fn take_up(store: &impl Store, owner: &mut Owner) -> Vec<BackfillRow> {
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let mut batch = owner.batch();
    for entry in page.entries {
        batch.applied.push(entry.id);
        if let Request::Backfill { plan } = entry.request {
            let (id, partition, at, by) = (entry.id, entry.partition, entry.at, entry.by);
            let row = BackfillRow { id, partition, at, by, plan, state: BackfillState::Running, made: 0, ended: 0 };
            batch.backfills.push(BackfillWrite { row, is_new: true });
        }
    }
    let rows = batch.backfills.iter().map(|write| write.row.clone()).collect();
    commit(store, batch).await;
    rows
}

async fn change(store: &impl Store, owner: &mut Owner, row: &BackfillRow, state: BackfillState, made: u32, ended: u32) -> BackfillRow {
    let row = BackfillRow { state, made, ended, ..row.clone() };
    let mut batch = owner.batch();
    batch.backfills.push(BackfillWrite { row: row.clone(), is_new: false });
    commit(store, batch).await;
    row
}

/// A new owner finds those that run, with how far they have come.
pub async fn a_backfill_comes_to_its_owner_and_its_row_back<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let id = accepted(ask(&store, task, None).await);
    let rows = take_up(&store, &mut owner).await;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.id, row.partition, &*row.by, row.at, &*row.plan), (id, partition, "me", START, &plan(task, &[9, -5, 7])));
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").backfills, rows);
    assert_eq!(store.backfills(None, 10).await.expect("backfills"), rows);
    let row = change(&store, &mut owner, row, BackfillState::Running, 2, 1).await;
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").backfills, std::slice::from_ref(&row));
    let row = change(&store, &mut owner, &row, BackfillState::Cancelled, 2, 1).await;
    let found = store.snapshot(partition).await.expect("a snapshot").backfills;
    assert_eq!(found, std::slice::from_ref(&row), "one of its instances still runs");
    let row = change(&store, &mut owner, &row, BackfillState::Cancelled, 2, 2).await;
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").backfills, []);
    let row = change(&store, &mut owner, &row, BackfillState::Done, 3, 3).await;
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").backfills, []);
    assert_eq!(store.backfills(Some(task), 10).await.expect("backfills"), [row]);
    assert_eq!(store.backfills(Some(TaskId(task.0 + 1)), 10).await.expect("backfills"), []);
    let mut batch = owner.batch_on(&[PartitionId((partition.0 + 1) % super::PARTITIONS)]);
    batch.backfills.push(BackfillWrite { row: rows[0].clone(), is_new: false });
    owner.refused(&store, batch, &format!("partition {partition}")).await;
}

/// From the moment on at which it was asked for.
pub async fn a_task_has_one_backfill_at_a_time<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let (one, two) = (made[0].0, made[1].0);
    let first = accepted(ask(&store, one, None).await);
    assert_eq!(ask(&store, one, None).await, Submitted::BackfillRuns { backfill: first });
    accepted(ask(&store, two, None).await);
    let rows = take_up(&store, &mut owner).await;
    assert_eq!(ask(&store, one, Some(first)).await, Submitted::BackfillRuns { backfill: first });
    let row = rows.iter().find(|row| row.id == first).expect("the first one");
    change(&store, &mut owner, row, BackfillState::Cancelled, 0, 0).await;
    assert_eq!(ask(&store, one, None).await, Submitted::Outdated, "what the caller has read is from before the first one");
    let second = accepted(ask(&store, one, Some(first)).await);
    assert_eq!(entry_ids(&store).await, [second]);
    assert_eq!(ask(&store, TaskId(99), None).await, Submitted::NoSuchTask);
    let fired = store.fired("one".into(), START, START).await.expect("an answer").expect("the task");
    assert_eq!(fired.newest, Some(second));
}

/// Those of the trigger and of backfills, each once; by hand doesn't count.
pub async fn fire_times_that_have_an_instance_are_told_with_the_cursor<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let at = |seconds: i64| Timestamp(START.0 + seconds * 1_000);
    let mut batch = owner.batch();
    for (seconds, origin, ordinal) in [
        (1, Origin::Schedule, 0),
        (2, Origin::CatchUp, 0),
        (3, Origin::Backfill, 3 << 10),
        (3, Origin::Backfill, 4 << 10),
        (4, Origin::Manual, 5 << 10),
        (5, Origin::Schedule, 0),
    ] {
        batch.inserts.push(InstanceRow { origin, ordinal, ..owner.dispatched(partition, task, at(seconds)) });
    }
    let shard = InstanceRow { part: Part::shard(0), ..owner.dispatched(partition, task, at(0)) };
    batch.inserts.push(shard);
    let next_fire = Some(at(60));
    let cursor =
        punctual_core::batch::TaskWrite { task, partition, version: Some(punctual_core::ids::Version(1)), next_fire, fired_until: None };
    batch.tasks.push(cursor);
    commit(&store, batch).await;
    let fired = store.fired("one".into(), at(0), at(5)).await.expect("an answer").expect("the task");
    assert_eq!((fired.view.task, fired.view.next_fire, fired.newest), (task, next_fire, None));
    assert_eq!(fired.fired, [at(1), at(2), at(3)]);
    assert!(store.fired("none".into(), at(0), at(5)).await.expect("an answer").is_none());
}

/// The newest of each task, and whatever runs.
pub async fn so_many_backfills_of_a_task_are_remembered<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let (id, kept) = (|number: usize| InboxId(1_000 + number as u64), limits::BACKFILLS_KEPT_MAX);
    let row = |number: usize, (task, partition): (TaskId, PartitionId), state: BackfillState| BackfillRow {
        id: id(number),
        partition,
        at: START,
        by: "me".into(),
        plan: plan(task, &[number as i64]).into(),
        state,
        made: 1,
        ended: 1,
    };
    let write = |row: BackfillRow| BackfillWrite { row, is_new: true };
    let mut batch = owner.batch();
    batch.backfills.push(write(row(0, made[1], BackfillState::Done)));
    batch.backfills.push(write(row(1, made[0], BackfillState::Running)));
    // Its instances still run: what becomes of them is counted.
    batch.backfills.push(write(BackfillRow { made: 2, ..row(2, made[0], BackfillState::Cancelled) }));
    batch.backfills.extend((3..=kept).map(|number| write(row(number, made[0], BackfillState::Done))));
    commit(&store, batch).await;
    let ids = async |task| store.backfills(Some(task), 1_000).await.expect("backfills").iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(ids(made[0].0).await.len(), kept);
    let mut batch = owner.batch();
    batch.backfills.extend((kept + 1..kept + 4).map(|number| write(row(number, made[0], BackfillState::Cancelled))));
    commit(&store, batch).await;
    let mut expected: Vec<_> = (4..kept + 4).rev().map(id).collect();
    expected.extend([id(2), id(1)]);
    assert_eq!(ids(made[0].0).await, expected, "the oldest that have ended are gone");
    assert_eq!(ids(made[1].0).await, [id(0)], "another task's stay");
}

/// Also one that nobody has taken up.
pub async fn a_backfill_is_cancelled_by_its_id<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, _) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let cancel =
        async |id| store.cancel_backfill(id, Actor { why: Some("why".into()), ..Actor::from("you") }, START).await.expect("an answer");
    assert_eq!(cancel(InboxId(77_777)).await, Submitted::NoSuchBackfill);
    let id = accepted(ask(&store, task, None).await);
    let early = accepted(cancel(id).await);
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let last = page.entries.last().expect("an entry");
    let request = Request::CancelBackfill { backfill: id, task, reason: Some("why".into()) };
    assert_eq!((last.id, &*last.by, &last.request), (early, "you", &request));
    take_up(&store, &mut owner).await;
    accepted(cancel(id).await);
}
