//! Newtypes for everything that has an identity.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::limits::PARTITIONS_MAX;

macro_rules! number_newtype {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_newtype!(
    /// A task, for ever: a task that is removed and added again under its name keeps its id.
    TaskId(u64)
);
number_newtype!(
    /// A version of a task's definition, counted from 1.
    Version(u32)
);
/// An instance. Its upper 15 bits are its partition, the rest a number from that partition's sequence; people see both, as `43-17`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.partition(), self.0 & ((1 << SEQUENCE_BITS) - 1))
    }
}

impl FromStr for InstanceId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (partition, sequence) = text.split_once('-').ok_or(())?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(partition) || !is_number(sequence) {
            return Err(());
        }
        let partition: u16 = partition.parse().map_err(|_| ())?;
        let sequence: u64 = sequence.parse().map_err(|_| ())?;
        if partition >= PARTITIONS_MAX || sequence >= 1 << SEQUENCE_BITS {
            return Err(());
        }
        Ok(InstanceId::new(PartitionId(partition), sequence))
    }
}

number_newtype!(
    /// A fixed slice of the tasks, the unit of ownership; at most [`PARTITIONS_MAX`](crate::limits::PARTITIONS_MAX).
    PartitionId(u16)
);
number_newtype!(
    /// A term of ownership of one partition; each new owner, and each new beginning of the same one, has a higher epoch.
    Epoch(u64)
);
number_newtype!(
    /// An attempt's token. It comes from its partition's sequence, so it grows strictly over the life of a task, and whoever holds an
    /// older one is refused.
    Fence(u64)
);
number_newtype!(
    /// An entry of a partition's inbox, in the order of arrival.
    InboxId(u64)
);
number_newtype!(
    /// One life of a worker process: a worker that starts again under the same id has another one.
    WorkerLife(u64)
);
number_newtype!(
    /// One connection of a worker to this replica, numbered by the shell.
    ConnectionId(u64)
);
number_newtype!(
    /// One commit that this replica has handed out, counted from 1 over the replica's life.
    CommitId(u64)
);

const SEQUENCE_BITS: u32 = 48;

impl InstanceId {
    /// The id made of a partition and a number of its sequence (below 2^48: nine years of a million a second).
    pub fn new(partition: PartitionId, sequence: u64) -> Self {
        assert!(sequence < 1 << SEQUENCE_BITS, "partition {partition} has used up its sequence");
        InstanceId(u64::from(partition.0) << SEQUENCE_BITS | sequence)
    }

    /// The partition that the instance belongs to.
    pub const fn partition(self) -> PartitionId {
        PartitionId((self.0 >> SEQUENCE_BITS) as u16)
    }
}

/// The id of a worker, chosen by whoever runs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub Arc<str>);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a scheduler replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub Arc<str>);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The partition of a task of this name, by FNV-1a over its bytes: the same for ever, on every machine.
pub fn partition_of(task_name: &str, partitions: u16) -> PartitionId {
    let hash = task_name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    PartitionId((hash % u64::from(partitions.max(1))) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_id_knows_its_partition() {
        let id = InstanceId::new(PartitionId(63), 1 << 40);
        assert_eq!(id.partition(), PartitionId(63));
        assert!(id.0 <= i64::MAX as u64, "ids fit a signed SQL integer");
        assert!(InstanceId::new(PartitionId(crate::limits::PARTITIONS_MAX - 1), 7).0 <= i64::MAX as u64);
    }

    #[test]
    fn an_instance_id_is_read_as_it_is_shown() {
        for id in [InstanceId::new(PartitionId(43), 17), InstanceId::new(PartitionId(0), 0)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "-", "1", "1-", "-1", "1-2-3", "+1-2", "1- 2", "99999-1", "1-281474976710656", "1-99999999999999999999"] {
            assert!(text.parse::<InstanceId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_task_keeps_its_partition_for_ever() {
        // Written down once: a change of the hash would orphan every stored task.
        assert_eq!(partition_of("nightly-report", 64), PartitionId(43));
        assert_eq!(partition_of("每日对账", 64), PartitionId(8));
    }
}
