//! Replicas that are alive, and leases: who owns which partition, under which epoch, until when.
//!
//! What is renewed (`leases`) lies apart from what commits are checked against and lock (`fences`): a renewal never waits for a commit. Whoever
//! takes a lease over changes both, in this order, and so waits for a commit that is under way.

use punctual_core::batch::Renewal;
use punctual_core::ids::{Epoch, PartitionId, ReplicaId};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Beat, LeaseAnswer};
use rustc_hash::FxHashMap;
use sqlx::Row;

use crate::mysql::error::Failure;
use crate::mysql::rows::required_text;
use crate::mysql::session::Session;
use crate::mysql::sql::{self, literal};

/// What a time is in SQL that lies `ttl` after `now`.
fn later(now_sql: &str, ttl: Millis) -> String {
    format!("{now_sql} + {}", i64::try_from(ttl.0).unwrap_or(i64::MAX / 2).min(i64::MAX / 2))
}

fn list(partitions: impl IntoIterator<Item = PartitionId>) -> String {
    sql::list(partitions.into_iter().map(|partition| u64::from(partition.0)))
}

fn terms(leases: &[(PartitionId, Epoch)]) -> String {
    let tuples = sql::tuples(leases, |values, (partition, epoch)| values.unsigned(partition.0).unsigned(epoch.0).done());
    // The list by itself is what the key is searched by.
    format!("`partition` IN {} AND (`partition`, epoch) IN {tuples}", list(leases.iter().map(|(partition, _)| *partition)))
}

/// Says that a replica is alive, and forgets those that are not any more. Answers with all that are.
pub(crate) async fn beat(
    session: &mut Session,
    replica: &ReplicaId,
    address: Option<&str>,
    ttl: Millis,
    now_sql: &str,
) -> Result<Beat, Failure> {
    // A delete that finds nothing would still wait for everyone's row.
    let expired = session.rows(format!("SELECT id FROM replicas WHERE expires_at <= {now_sql}")).await?;
    for row in &expired {
        let id = literal(row.try_get(0)?);
        session.run(format!("DELETE FROM replicas WHERE id = {id} AND expires_at <= {now_sql}")).await?;
    }
    let (id, until) = (literal(replica.0.as_bytes()), later(now_sql, ttl));
    let address = address.map_or_else(|| "NULL".to_owned(), |address| literal(address.as_bytes()));
    let put = format!(
        "INSERT INTO replicas (id, address, since, expires_at) VALUES ({id}, {address}, {now_sql}, {until})
         ON DUPLICATE KEY UPDATE address = VALUES(address), expires_at = VALUES(expires_at)"
    );
    session.run(put).await?;
    let rows = session.rows(format!("SELECT id, CAST({now_sql} AS SIGNED) FROM replicas WHERE expires_at > {now_sql} ORDER BY id")).await?;
    let mut beat = Beat { members: Vec::with_capacity(rows.len()), now: None };
    for row in &rows {
        beat.members.push(ReplicaId(required_text(row, 0)?));
        beat.now = Some(Timestamp(row.try_get(1)?));
    }
    Ok(beat)
}

struct Lease {
    owner: Option<ReplicaId>,
    expires_at: Timestamp,
    is_free: bool,
}

/// Reads leases; with `locks`, so that nobody else changes them until the transaction ends.
async fn look(
    session: &mut Session,
    replica: &ReplicaId,
    partitions: &[PartitionId],
    now_sql: &str,
    locks: bool,
) -> Result<FxHashMap<PartitionId, Lease>, Failure> {
    let (partitions, me, lock) = (list(partitions.iter().copied()), literal(replica.0.as_bytes()), if locks { "FOR UPDATE" } else { "" });
    let sql = format!(
        "SELECT `partition`, owner, expires_at, CAST(owner IS NULL OR owner = {me} OR expires_at <= {now_sql} AS SIGNED)
         FROM leases FORCE INDEX (PRIMARY) WHERE `partition` IN {partitions} ORDER BY `partition` {lock}"
    );
    let mut found = FxHashMap::default();
    for row in &session.rows(sql).await? {
        let lease = Lease {
            owner: crate::mysql::rows::text(row, 1)?.map(ReplicaId),
            expires_at: Timestamp(row.try_get(2)?),
            is_free: row.try_get::<i64, _>(3)? != 0,
        };
        found.insert(PartitionId(row.try_get(0)?), lease);
    }
    Ok(found)
}

/// Takes leases that are free. In a transaction.
pub(crate) async fn acquire(
    session: &mut Session,
    replica: &ReplicaId,
    partitions: &[PartitionId],
    most: usize,
    ttl: Millis,
    now_sql: &str,
) -> Result<Vec<LeaseAnswer>, Failure> {
    if partitions.is_empty() || most == 0 {
        return Ok(Vec::new());
    }
    // Leases of others are looked at without a lock: their renewals wait for nobody.
    let mut leases = look(session, replica, partitions, now_sql, false).await?;
    let free: Vec<_> = partitions.iter().copied().filter(|partition| leases.get(partition).is_some_and(|lease| lease.is_free)).collect();
    if !free.is_empty() {
        leases.extend(look(session, replica, &free, now_sql, true).await?);
    }
    let mut answered: Vec<PartitionId> = Vec::new();
    let mut taken: Vec<PartitionId> = Vec::new();
    for &partition in partitions {
        if taken.len() == most {
            break;
        }
        let lease = leases.get(&partition).ok_or_else(|| no_partition(partition))?;
        answered.push(partition);
        if lease.is_free {
            taken.push(partition);
        }
    }
    let granted = grant(session, replica, &taken, ttl, now_sql).await?;
    let answer = |partition| match (granted.get(&partition), &leases[&partition]) {
        (Some(granted), _) => granted.clone(),
        (None, lease) => {
            let owner = lease.owner.clone().unwrap_or_else(|| ReplicaId("".into()));
            LeaseAnswer::Held { partition, owner, expires_at: lease.expires_at }
        }
    };
    Ok(answered.into_iter().map(answer).collect())
}

async fn grant(
    session: &mut Session,
    replica: &ReplicaId,
    partitions: &[PartitionId],
    ttl: Millis,
    now_sql: &str,
) -> Result<FxHashMap<PartitionId, LeaseAnswer>, Failure> {
    let mut granted = FxHashMap::default();
    if partitions.is_empty() {
        return Ok(granted);
    }
    let (list, me, until) = (list(partitions.iter().copied()), literal(replica.0.as_bytes()), later(now_sql, ttl));
    session
        .run(format!(
            "UPDATE leases FORCE INDEX (PRIMARY) SET owner = {me}, epoch = epoch + 1, expires_at = {until} WHERE `partition` IN {list}"
        ))
        .await?;
    // Here it waits for a commit that is under way.
    session.run(format!("UPDATE fences FORCE INDEX (PRIMARY) SET owner = {me}, epoch = epoch + 1 WHERE `partition` IN {list}")).await?;
    let sql = format!("SELECT `partition`, epoch, commit_seq, sequence FROM fences FORCE INDEX (PRIMARY) WHERE `partition` IN {list}");
    for row in &session.rows(sql).await? {
        let partition = PartitionId(row.try_get(0)?);
        let (epoch, commit_seq, sequence) = (Epoch(row.try_get(1)?), row.try_get(2)?, row.try_get(3)?);
        granted.insert(partition, LeaseAnswer::Granted { partition, epoch, commit_seq, sequence });
    }
    Ok(granted)
}

fn no_partition(partition: PartitionId) -> Failure {
    Failure::Sql(sqlx::Error::Protocol(format!("there is no partition {partition}")))
}

/// Extends leases; answers with those that are somebody else's by now.
pub(crate) async fn renew(
    session: &mut Session,
    replica: &ReplicaId,
    renewals: &[Renewal],
    ttl: Millis,
    now_sql: &str,
) -> Result<Vec<PartitionId>, Failure> {
    if renewals.is_empty() {
        return Ok(Vec::new());
    }
    // Without a lock: the renewal must not wait for a commit, and commits only become more.
    let asked = renewals.iter().map(|renewal| renewal.partition.to_string()).collect::<Vec<_>>().join(", ");
    let mut commits = FxHashMap::default();
    for row in &session.rows(format!("SELECT `partition`, commit_seq FROM fences WHERE `partition` IN ({asked})")).await? {
        commits.insert(PartitionId(row.try_get(0)?), row.try_get::<u64, _>(1)?);
    }
    let has_all = |renewal: &&Renewal| commits.get(&renewal.partition).is_some_and(|found| *found >= renewal.commit_seq);
    let leases: Vec<_> = renewals.iter().filter(has_all).map(|renewal| (renewal.partition, renewal.epoch)).collect();
    let mut lost: Vec<_> = renewals.iter().map(|renewal| (renewal.partition, renewal.epoch)).collect();
    if leases.is_empty() {
        return Ok(lost.into_iter().map(|(partition, _)| partition).collect());
    }
    let (until, own) = (later(now_sql, ttl), format!("owner = {} AND {}", literal(replica.0.as_bytes()), terms(&leases)));
    let extended = session.run(format!("UPDATE leases FORCE INDEX (PRIMARY) SET expires_at = {until} WHERE {own}")).await?;
    if extended == renewals.len() as u64 {
        return Ok(Vec::new());
    }
    for row in &session.rows(format!("SELECT `partition`, epoch FROM leases FORCE INDEX (PRIMARY) WHERE {own}")).await? {
        let held = (PartitionId(row.try_get(0)?), Epoch(row.try_get(1)?));
        lost.retain(|lease| *lease != held);
    }
    Ok(lost.into_iter().map(|(partition, _)| partition).collect())
}

/// Gives leases up. In a transaction.
pub(crate) async fn release(
    session: &mut Session,
    replica: &ReplicaId,
    leases: &[(PartitionId, Epoch)],
    leaves: bool,
) -> Result<(), Failure> {
    let me = literal(replica.0.as_bytes());
    if !leases.is_empty() {
        let own = format!("owner = {me} AND {}", terms(leases));
        session.run(format!("UPDATE leases FORCE INDEX (PRIMARY) SET owner = NULL, expires_at = 0 WHERE {own}")).await?;
        session.run(format!("UPDATE fences FORCE INDEX (PRIMARY) SET owner = NULL WHERE {own}")).await?;
    }
    if leaves {
        session.run(format!("DELETE FROM replicas WHERE id = {me}")).await?;
    }
    Ok(())
}
