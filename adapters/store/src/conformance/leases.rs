//! Leases: one owner at a time, under epochs that grow.

use punctual_core::batch::Renewal;
use punctual_core::ids::{Epoch, PartitionId, ReplicaId};
use punctual_core::instance::State;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, LeaseAnswer, PartitionView, ReplicaView, Store};

use super::{Factory, Owner, START, TTL, all_partitions, commit, ended, open, refused, tasks_in_force};

const P: PartitionId = PartitionId(3);

async fn ask(store: &impl Store, replica: &str, now: Timestamp) -> LeaseAnswer {
    let answers = store.acquire(ReplicaId(replica.into()), vec![P], 1, TTL, now).await.expect("an answer");
    assert_eq!(answers.len(), 1);
    answers.into_iter().next().expect("one answer")
}

async fn granted(store: &impl Store, replica: &str, now: Timestamp) -> Epoch {
    match ask(store, replica, now).await {
        LeaseAnswer::Granted { partition, epoch, .. } => {
            assert_eq!(partition, P);
            epoch
        }
        held => panic!("{held:?}"),
    }
}

fn renewal(epoch: Epoch, commit_seq: u64) -> Renewal {
    Renewal { partition: P, epoch, commit_seq }
}

fn a() -> ReplicaId {
    ReplicaId("a".into())
}

fn b() -> ReplicaId {
    ReplicaId("b".into())
}

fn later(millis: u64) -> Timestamp {
    START.saturating_add(Millis(millis))
}

/// Each grant has a higher epoch, also to the same replica.
pub async fn a_lease_is_granted_under_a_growing_epoch<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let first = granted(&store, "a", START).await;
    assert!(first > Epoch(0));
    let second = granted(&store, "a", START).await;
    assert!(second > first);
    let third = granted(&store, "b", later(TTL.0)).await;
    assert!(third > second);
}

/// It is free at the very millisecond at which it ends, not before.
pub async fn a_lease_that_is_held_is_granted_to_nobody_else_until_it_ends<F: Factory>(factory: &F) {
    let store = open(factory).await;
    granted(&store, "a", START).await;
    let held = LeaseAnswer::Held { partition: P, owner: ReplicaId("a".into()), expires_at: later(TTL.0) };
    assert_eq!(ask(&store, "b", START).await, held);
    assert_eq!(ask(&store, "b", later(TTL.0 - 1)).await, held);
    granted(&store, "b", later(TTL.0)).await;
}

/// From the time of the renewal.
pub async fn a_renewed_lease_lasts_longer<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let epoch = granted(&store, "a", START).await;
    assert_eq!(store.renew(a(), vec![renewal(epoch, 0)], TTL, later(6_000)).await.expect("an answer"), []);
    assert!(matches!(ask(&store, "b", later(TTL.0 + 5_999)).await, LeaseAnswer::Held { .. }));
    // Late, but nobody took it meanwhile: it is still the same term.
    assert_eq!(store.renew(a(), vec![renewal(epoch, 0)], TTL, later(60_000)).await.expect("an answer"), []);
    assert!(matches!(ask(&store, "b", later(60_000 + TTL.0 - 1)).await, LeaseAnswer::Held { .. }));
}

/// A failover may have lost the last commits; who has nothing to write would not hear of it.
pub async fn a_lease_is_not_renewed_where_commits_were_forgotten<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::take(&store, "a", vec![P], START).await;
    let batch = owner.batch();
    commit(&store, batch).await;
    let Renewal { epoch, commit_seq, .. } = owner.renewal(P);
    for (commits, lost) in [(commit_seq, vec![]), (commit_seq + 1, vec![P]), (u64::MAX, vec![P])] {
        assert_eq!(store.renew(a(), vec![renewal(epoch, commits)], TTL, later(1)).await.expect("an answer"), lost, "{commits} commits");
    }
}

/// Its old owner is told so.
pub async fn a_lease_that_was_taken_over_is_not_renewed<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let old = granted(&store, "a", START).await;
    let new = granted(&store, "b", later(TTL.0)).await;
    assert_eq!(store.renew(a(), vec![renewal(old, 0)], TTL, later(TTL.0)).await.expect("an answer"), [P]);
    assert_eq!(store.renew(b(), vec![renewal(new, 0)], TTL, later(TTL.0)).await.expect("an answer"), []);
}

/// Nor can whoever gave it up go on under it.
pub async fn a_released_lease_is_free_at_once_and_nobodys<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::take(&store, "a", vec![P], START).await;
    let epoch = owner.lease(P).epoch;
    store.release(a(), vec![(P, epoch)], false).await.expect("a release");
    assert_eq!(store.renew(a(), vec![renewal(epoch, 0)], TTL, START).await.expect("an answer"), [P]);
    refused(&store, owner.batch(), "partition 3").await;
    assert!(granted(&store, "b", START).await > epoch);
}

/// A release that comes late takes nothing from the new owner.
pub async fn a_release_under_an_old_epoch_does_nothing<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let old = granted(&store, "a", START).await;
    granted(&store, "b", later(TTL.0)).await;
    store.release(a(), vec![(P, old)], false).await.expect("a release");
    assert!(matches!(ask(&store, "c", later(TTL.0)).await, LeaseAnswer::Held { .. }));
}

/// Commits and sequence are the partition's own and outlive its owners.
pub async fn a_new_owner_is_told_how_far_the_last_one_came<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    for _ in 0..5 {
        owner.next(P);
    }
    let batch = owner.batch_on(&[P]);
    commit(&store, batch).await;
    let batch = owner.batch_on(&[P, PartitionId(4)]);
    commit(&store, batch).await;
    let other = Owner::take(&store, "b", super::all_partitions(), later(TTL.0)).await;
    assert_eq!((other.lease(P).commit_seq, other.lease(P).sequence), (2, 5));
    assert_eq!((other.lease(PartitionId(4)).commit_seq, other.lease(PartitionId(4)).sequence), (1, 0));
    assert_eq!((other.lease(PartitionId(0)).commit_seq, other.lease(PartitionId(0)).sequence), (0, 0));
}

/// Some granted, some held.
pub async fn leases_of_several_partitions_are_answered_in_the_order_asked_for<F: Factory>(factory: &F) {
    let store = open(factory).await;
    granted(&store, "a", START).await;
    let asked = vec![PartitionId(5), P, PartitionId(1)];
    let answers = store.acquire(ReplicaId("b".into()), asked.clone(), asked.len(), TTL, START).await.expect("answers");
    let answered: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            LeaseAnswer::Granted { partition, .. } => (partition, true),
            LeaseAnswer::Held { partition, .. } => (partition, false),
        })
        .collect();
    assert_eq!(answered, [(asked[0], true), (asked[1], false), (asked[2], true)]);
}

/// Those asked for first are granted first; those that are held cost nothing of what is wanted.
pub async fn no_more_leases_are_granted_than_are_wanted<F: Factory>(factory: &F) {
    let store = open(factory).await;
    granted(&store, "a", START).await;
    let asked = vec![P, PartitionId(6), PartitionId(1), PartitionId(2)];
    let answers = store.acquire(b(), asked, 2, TTL, START).await.expect("answers");
    let granted: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            LeaseAnswer::Granted { partition, .. } => Some(partition.0),
            LeaseAnswer::Held { .. } => None,
        })
        .collect();
    assert_eq!(granted, [6, 1]);
    let rest = store.acquire(a(), vec![PartitionId(2)], 0, TTL, START).await.expect("answers");
    assert_eq!(rest, []);
}

/// Another replica that has the epoch right, as after a failover that lost who was granted it, is not its owner.
pub async fn a_lease_is_renewed_and_given_up_by_its_owner_only<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let epoch = granted(&store, "a", START).await;
    assert_eq!(store.renew(b(), vec![renewal(epoch, 0)], TTL, later(5_000)).await.expect("an answer"), [P]);
    store.release(b(), vec![(P, epoch)], false).await.expect("an answer");
    assert!(matches!(ask(&store, "c", later(TTL.0 - 1)).await, LeaseAnswer::Held { .. }));
    assert_eq!(store.renew(a(), vec![renewal(epoch, 0)], TTL, later(5_000)).await.expect("an answer"), []);
}

/// It is gone at the very millisecond at which its time ends.
pub async fn a_replica_is_alive_until_its_beat_is_too_old<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let members = async |replica, now| store.beat(replica, TTL, now).await.expect("a beat").members;
    assert_eq!(members(b(), START).await, [b()]);
    assert_eq!(members(a(), later(1)).await, [a(), b()]);
    assert_eq!(members(a(), later(TTL.0 - 1)).await, [a(), b()]);
    assert_eq!(members(a(), later(TTL.0)).await, [a()]);
    assert_eq!(members(b(), later(TTL.0)).await, [a(), b()], "and it may come back");
}

/// Others need not wait for its beat to be too old. Its leases it gives up by name.
pub async fn a_replica_that_leaves_is_gone_at_once<F: Factory>(factory: &F) {
    let store = open(factory).await;
    store.beat(a(), TTL, START).await.expect("a beat");
    store.beat(b(), TTL, START).await.expect("a beat");
    let epoch = granted(&store, "a", START).await;
    store.release(a(), vec![(P, epoch)], true).await.expect("a release");
    assert_eq!(store.beat(b(), TTL, START).await.expect("a beat").members, [b()]);
    assert!(matches!(ask(&store, "b", START).await, LeaseAnswer::Granted { .. }));
}

/// In the order of their names. One that comes back after its time was over is a new one.
pub async fn replicas_are_listed_with_when_they_came_and_how_long_they_count<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let beat = async |replica, millis| store.beat(replica, TTL, later(millis)).await.expect("a beat");
    let listed = async || store.replicas().await.expect("replicas");
    let view = |id, since, last_beat| ReplicaView { id, address: None, since: later(since), expires_at: later(last_beat + TTL.0) };
    assert_eq!(listed().await, []);
    beat(b(), 0).await;
    beat(a(), 1).await;
    beat(b(), 5_000).await;
    beat(a(), 9_000).await;
    assert_eq!(listed().await, [view(a(), 1, 9_000), view(b(), 0, 5_000)]);
    beat(a(), 5_000 + TTL.0).await;
    assert_eq!(listed().await, [view(a(), 1, 5_000 + TTL.0)]);
    beat(b(), 16_000).await;
    assert_eq!(listed().await, [view(a(), 1, 5_000 + TTL.0), view(b(), 16_000, 16_000)]);
    store.release(a(), vec![], true).await.expect("a release");
    assert_eq!(listed().await, [view(b(), 16_000, 16_000)]);
}

/// Also where nobody has them, or their owner's time is over.
pub async fn partitions_are_listed_with_their_owners_and_what_waits_there<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let listed = async || {
        let mut views = store.partition_views().await.expect("partitions");
        views.iter_mut().filter(|view| view.owner.is_none()).for_each(|view| view.expires_at = Timestamp(0));
        views
    };
    let nobodys =
        |partition| PartitionView { partition, owner: None, epoch: Epoch(0), expires_at: Timestamp(0), commit_seq: 0, inbox: 0, live: 0 };
    let mut expected: Vec<_> = all_partitions().into_iter().map(nobodys).collect();
    assert_eq!(listed().await, expected);

    let mut owner = Owner::of_all(&store).await;
    let (task, at) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    for view in &mut expected {
        (view.owner, view.epoch, view.expires_at, view.commit_seq) = (Some(a()), Epoch(1), later(TTL.0), 1);
    }
    assert_eq!(listed().await, expected);

    let rows: Vec<_> = (0..3).map(|number| owner.dispatched(at, task, later(number))).collect();
    let mut batch = owner.batch_on(&[at]);
    batch.inserts.clone_from(&rows);
    commit(&store, batch).await;
    let mut batch = owner.batch_on(&[at]);
    batch.updates.push(ended(&rows[0], State::Succeeded, START));
    commit(&store, batch).await;
    for row in &rows[1..] {
        store.cancel(row.id, "me".into(), None, START).await.expect("an answer");
    }
    let busy = usize::from(at.0);
    (expected[busy].commit_seq, expected[busy].inbox, expected[busy].live) = (3, 2, 2);
    assert_eq!(listed().await, expected);

    // A renewal, a release, and one that was taken over.
    let [renewed, released, taken] = [busy, (busy + 1) % 8, (busy + 2) % 8];
    let partition = |index: usize| expected[index].partition;
    let (renewal, given_up) = (owner.renewal(partition(renewed)), owner.lease(partition(released)).epoch);
    let taken_over = partition(taken);
    store.renew(a(), vec![renewal], TTL, later(500)).await.expect("an answer");
    store.release(a(), vec![(partition(released), given_up)], false).await.expect("a release");
    Owner::take(&store, "b", vec![taken_over], later(TTL.0)).await;
    expected[renewed].expires_at = later(500 + TTL.0);
    (expected[released].owner, expected[released].expires_at) = (None, Timestamp(0));
    (expected[taken].owner, expected[taken].epoch, expected[taken].expires_at) = (Some(b()), Epoch(2), later(2 * TTL.0));
    assert_eq!(listed().await, expected);
}
