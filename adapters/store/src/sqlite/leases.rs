//! Replicas that are alive, and leases: who owns which partition, under which epoch, until when.

use punctual_core::batch::Renewal;
use punctual_core::ids::{Epoch, PartitionId, ReplicaId};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::LeaseAnswer;
use rusqlite::{Connection, OptionalExtension, params};

use crate::sqlite::commit::transaction;
use crate::sqlite::rows::{text, unsigned};

/// Says that a replica is alive, and forgets those that are not any more. Answers with all that are.
pub(crate) fn beat(connection: &Connection, replica: &ReplicaId, ttl: Millis, now: Timestamp) -> rusqlite::Result<Vec<ReplicaId>> {
    transaction(connection, |connection| {
        connection.prepare_cached("DELETE FROM replicas WHERE expires_at <= ?1")?.execute([now.0])?;
        connection
            .prepare_cached(
                "INSERT INTO replicas (id, expires_at, since) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET expires_at = ?2",
            )?
            .execute(params![&*replica.0, now.saturating_add(ttl).0, now.0])?;
        let mut alive = connection.prepare_cached("SELECT id FROM replicas ORDER BY id")?;
        alive.query_map([], |row| Ok(ReplicaId(text(row, 0)?.unwrap_or_default())))?.collect()
    })
}

pub(crate) fn acquire(
    connection: &Connection,
    replica: &ReplicaId,
    partitions: &[PartitionId],
    most: usize,
    ttl: Millis,
    now: Timestamp,
) -> rusqlite::Result<Vec<LeaseAnswer>> {
    transaction(connection, |connection| {
        let mut take = connection.prepare_cached(
            "UPDATE leases SET owner = ?2, epoch = epoch + 1, expires_at = ?3
             WHERE partition = ?1 AND (owner IS NULL OR owner = ?2 OR expires_at <= ?4)
             RETURNING epoch, commit_seq, sequence",
        )?;
        let mut look = connection.prepare_cached("SELECT owner, expires_at FROM leases WHERE partition = ?1")?;
        let expires_at = now.saturating_add(ttl);
        let mut answers = Vec::with_capacity(partitions.len());
        let mut granted_so_far = 0;
        for &partition in partitions {
            if granted_so_far == most {
                break;
            }
            let granted = take
                .query_row(params![partition.0, &*replica.0, expires_at.0, now.0], |row| {
                    let (epoch, commit_seq, sequence) = (Epoch(unsigned(row, 0)?), unsigned(row, 1)?, unsigned(row, 2)?);
                    Ok(LeaseAnswer::Granted { partition, epoch, commit_seq, sequence })
                })
                .optional()?;
            granted_so_far += usize::from(granted.is_some());
            answers.push(match granted {
                Some(granted) => granted,
                None => look.query_row([partition.0], |row| {
                    let owner = ReplicaId(text(row, 0)?.unwrap_or_default());
                    Ok(LeaseAnswer::Held { partition, owner, expires_at: Timestamp(row.get(1)?) })
                })?,
            });
        }
        Ok(answers)
    })
}

pub(crate) fn renew(
    connection: &Connection,
    replica: &ReplicaId,
    leases: &[Renewal],
    ttl: Millis,
    now: Timestamp,
) -> rusqlite::Result<Vec<PartitionId>> {
    transaction(connection, |connection| {
        let mut extend = connection
            .prepare_cached("UPDATE leases SET expires_at = ?3 WHERE partition = ?1 AND epoch = ?2 AND owner = ?4 AND commit_seq >= ?5")?;
        let expires_at = now.saturating_add(ttl);
        let mut lost = Vec::new();
        for Renewal { partition, epoch, commit_seq } in leases {
            let commits = i64::try_from(*commit_seq).unwrap_or(i64::MAX);
            if extend.execute(params![partition.0, epoch.0.cast_signed(), expires_at.0, &*replica.0, commits])? == 0 {
                lost.push(*partition);
            }
        }
        Ok(lost)
    })
}

pub(crate) fn release(connection: &Connection, replica: &ReplicaId, leases: &[(PartitionId, Epoch)], leaves: bool) -> rusqlite::Result<()> {
    transaction(connection, |connection| {
        let mut give_up = connection
            .prepare_cached("UPDATE leases SET owner = NULL, expires_at = 0 WHERE partition = ?1 AND epoch = ?2 AND owner = ?3")?;
        for (partition, epoch) in leases {
            give_up.execute(params![partition.0, epoch.0.cast_signed(), &*replica.0])?;
        }
        if leaves {
            connection.prepare_cached("DELETE FROM replicas WHERE id = ?1")?.execute([&*replica.0])?;
        }
        Ok(())
    })
}
