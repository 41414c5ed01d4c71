//! Which worker may have an instance, and which of those gets it.
//!
//! What a task asks for is its [`Routing`]; what a worker has to offer besides its handlers are its [`WorkerTraits`]. Handler and routing
//! together are [`Needs`]: instances of the same needs wait in one queue, so what nobody can run never stands in the way of others.
//!
//! Absent: a source of randomness. [`Strategy::Random`] is a hash of instance and attempt, so whoever decides again decides the same.

use std::fmt;
use std::sync::Arc;

use crate::definition::{Band, Handler, TaskDefinition};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, TaskId, WorkerId};
use crate::instance::InstanceRow;
use crate::limits;

/// What a task asks of the worker that runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Routing {
    /// Which of several workers.
    pub strategy: Strategy,
    /// Tags that the worker has to have, all of them, each `key=value`; sorted, at most [`limits::TAGS_MAX`].
    pub tags: Vec<Arc<str>>,
    /// The oldest version of the worker program that will do. A worker that says none is too old.
    pub min_worker_version: Option<WorkerVersion>,
}

/// Which of several workers that could have an instance gets it. All of them have room: one that is full is not waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The one with the most room.
    #[default]
    LeastLoaded,
    /// Each in turn.
    RoundRobin,
    /// Any of them, by a hash of instance and attempt.
    Random,
    /// By a hash of the task: the same one each time, for as long as it is there and has room. One that goes moves only its own tasks.
    Hash,
    /// This one, and nobody else: it is waited for.
    Pinned(WorkerId),
    /// All of them: a firing is divided into one shard for each worker that may have it when its turn comes, at most
    /// [`limits::BROADCAST_WORKERS_MAX`]. Nobody else is given a worker's shard, and whoever comes later has none.
    Broadcast,
}

/// What routing goes by of a worker, besides its handlers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerTraits {
    /// Its tags, each `key=value`, at most [`limits::TAGS_MAX`].
    pub tags: Vec<Arc<str>>,
    /// The version of its program, where it says one.
    pub version: Option<WorkerVersion>,
    /// Of its slots, so many that are for the urgent band only, and so many that are for the normal band and above. No more than it has.
    pub reserved: [u32; 2],
    /// What it makes of an assignment.
    pub understands: Understanding,
}

/// How much of an assignment a worker understands: each has what those before it have. What it doesn't understand it would pass over, and
/// run the whole where it was given a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Understanding {
    /// Whole firings.
    Firings,
    /// Shards.
    Shards,
    /// Nodes of workflows, and parts that list or reduce what a firing is mapped over.
    #[default]
    Nodes,
}

/// Handler and routing: what instances of one queue have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Needs {
    /// The handler's name.
    pub handler: Arc<str>,
    /// What else is asked for.
    pub routing: Option<Arc<Routing>>,
    /// How much of an assignment the worker has to understand.
    pub understands: Understanding,
    /// The worker that the instance is for, where it is a shard of what was broadcast. It fitted when it was chosen.
    pub worker: Option<WorkerId>,
}

impl Needs {
    /// What an instance of this task needs.
    pub fn of(definition: &TaskDefinition, row: &InstanceRow) -> Needs {
        let Handler { name, .. } = definition.handler_of(row.part);
        let is_broadcast = definition.routing.as_ref().is_some_and(|routing| routing.strategy == Strategy::Broadcast);
        let understands = match row.part {
            part if part.is_list() || part.is_reduce() || part.node_index().is_some() => Understanding::Nodes,
            part if part.is_shard() || is_broadcast => Understanding::Shards,
            _ => Understanding::Firings,
        };
        let worker = row.links.as_ref().filter(|links| links.is_for_worker).and_then(|links| links.shard_key.clone()).map(WorkerId);
        let routing = definition.routing.clone().filter(|_| worker.is_none());
        Needs { handler: name.clone(), routing, understands, worker }
    }

    /// The worker that the task is pinned to, or the shard.
    pub fn pinned(&self) -> Option<&WorkerId> {
        if self.worker.is_some() {
            return self.worker.as_ref();
        }
        match &self.routing.as_ref()?.strategy {
            Strategy::Pinned(worker) => Some(worker),
            _ => None,
        }
    }

    /// The tags that the worker has to have.
    pub fn tags(&self) -> &[Arc<str>] {
        self.routing.as_ref().map_or(&[], |routing| &routing.tags)
    }

    /// The oldest version of the worker program that will do.
    pub fn min_worker_version(&self) -> Option<&WorkerVersion> {
        self.routing.as_ref()?.min_worker_version.as_ref()
    }
}

impl fmt::Display for Needs {
    /// `handler shell, tags gpu=true zone=eu, worker version 1.4.0 or newer, understands shards, worker w1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler {}", self.handler)?;
        if !self.tags().is_empty() {
            f.write_str(if self.tags().len() == 1 { ", tag" } else { ", tags" })?;
            self.tags().iter().try_for_each(|tag| write!(f, " {tag}"))?;
        }
        if let Some(version) = self.min_worker_version() {
            write!(f, ", worker version {version} or newer")?;
        }
        match self.understands {
            Understanding::Firings => {}
            Understanding::Shards => f.write_str(", understands shards")?,
            Understanding::Nodes => f.write_str(", understands nodes")?,
        }
        self.pinned().map_or(Ok(()), |worker| write!(f, ", worker {worker}"))
    }
}

/// Why no worker can be given an instance, whatever room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nobody {
    /// No worker is connected.
    NotConnected,
    /// The one that the task is pinned to is not connected.
    PinnedWorkerAway,
    /// None of them knows the handler.
    UnknownHandler,
    /// None of those that know the handler has the tags.
    LacksTags,
    /// All of those are older than the task asks for, or don't say how old they are.
    TooOld,
    /// None of those understands shards: they speak a version of the worker protocol from before there were any.
    NoShards,
    /// None of those can list or reduce for a firing that is mapped, for the same reason.
    NoNodes,
    /// All of those are draining.
    Draining,
    /// None of those has a slot that is not reserved for a band above.
    Reserved,
}

impl Nobody {
    /// In words, as the end of a sentence about what waits.
    pub const fn reason(self) -> &'static str {
        match self {
            Nobody::NotConnected => "no worker is connected",
            Nobody::PinnedWorkerAway => "the worker that it is pinned to is not connected",
            Nobody::UnknownHandler => "no worker that is connected knows the handler",
            Nobody::LacksTags => "no worker that knows the handler has the tags",
            Nobody::TooOld => "every worker that would do otherwise is too old",
            Nobody::NoShards => "no worker that would do otherwise understands shards (upgrade the workers)",
            Nobody::NoNodes => "no worker that would do otherwise understands nodes and maps (upgrade the workers)",
            Nobody::Reserved => "all slots of the workers that would do are reserved for bands above",
            Nobody::Draining => "every worker that would do is draining",
        }
    }

    /// In one word, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Nobody::NotConnected => "not_connected",
            Nobody::PinnedWorkerAway => "pinned_worker_away",
            Nobody::UnknownHandler => "unknown_handler",
            Nobody::LacksTags => "lacks_tags",
            Nobody::TooOld => "too_old",
            Nobody::NoShards => "no_shards",
            Nobody::NoNodes => "no_nodes",
            Nobody::Reserved => "reserved",
            Nobody::Draining => "draining",
        }
    }
}

/// What is asked about a connected worker.
pub trait Candidate {
    /// Whether it is of this id.
    fn is_worker(&self, worker: &WorkerId) -> bool;
    /// Whether it knows this handler.
    fn knows(&self, handler: &str) -> bool;
    /// What routing goes by.
    fn traits(&self) -> &WorkerTraits;
    /// Whether it takes nothing more.
    fn is_draining(&self) -> bool;
}

/// What is asked of a worker, behind the reason that it is where nobody meets it.
type Step<'a, C> = (Nobody, &'a dyn Fn(&C) -> bool);

/// Of all that are connected, those that may have an instance of these needs, or why there is none.
pub fn eligible<C: Candidate>(needs: &Needs, connected: &[(usize, &C)]) -> Result<Vec<usize>, Nobody> {
    let mut left: Vec<(usize, &C)> = connected.to_vec();
    let nobody_understands = if needs.understands == Understanding::Nodes { Nobody::NoNodes } else { Nobody::NoShards };
    let steps: [Step<'_, C>; 7] = [
        (Nobody::NotConnected, &|_| true),
        (Nobody::PinnedWorkerAway, &|worker| needs.pinned().is_none_or(|pinned| worker.is_worker(pinned))),
        (Nobody::UnknownHandler, &|worker| worker.knows(&needs.handler)),
        (Nobody::LacksTags, &|worker| needs.tags().iter().all(|tag| worker.traits().tags.contains(tag))),
        (Nobody::TooOld, &|worker| {
            needs.min_worker_version().is_none_or(|least| worker.traits().version.as_ref().is_some_and(|has| has.is_at_least(least)))
        }),
        (nobody_understands, &|worker| guard!(Guard::PartsUnderstood, worker.traits().understands >= needs.understands)),
        (Nobody::Draining, &|worker| !worker.is_draining()),
    ];
    for (otherwise, is_met) in steps {
        left.retain(|(_, worker)| is_met(worker));
        if left.is_empty() {
            return Err(otherwise);
        }
    }
    Ok(left.into_iter().map(|(index, _)| index).collect())
}

/// How many more instances of this band a worker may hold that holds so many of each.
///
/// Slots that are reserved for a band are used by it and those above it, and by nobody else.
pub fn room(slots: usize, reserved: [u32; 2], held: [usize; 3], band: Band) -> usize {
    let [urgent, normal] = reserved.map(|count| count as usize);
    let [_, normal_held, low_held] = held;
    let all = slots.saturating_sub(held.iter().sum());
    let below_urgent = || slots.saturating_sub(urgent).saturating_sub(normal_held + low_held);
    match band {
        Band::Urgent => all,
        Band::Normal => all.min(below_urgent()),
        Band::Low => all.min(below_urgent()).min(slots.saturating_sub(urgent + normal).saturating_sub(low_held)),
    }
}

/// The task's worker by rendezvous: each pair of task and worker has a number, and the worker with the highest one has the task. So one that
/// goes moves only the tasks that it had, and one that comes takes only those that are its own from then on.
pub fn rendezvous<'a>(task: TaskId, workers: impl Iterator<Item = (usize, &'a WorkerId)>) -> Option<usize> {
    let number = |worker: &WorkerId| mixed(mixed(task.0) ^ fnv(worker.0.as_bytes()));
    workers.max_by_key(|(index, worker)| (number(worker), std::cmp::Reverse(*index))).map(|(index, _)| index)
}

/// One of so many: the same for the same attempt of the same instance, and evenly spread over all of them. `count` is at least 1.
pub fn drawn(instance: InstanceId, attempt: u32, count: usize) -> usize {
    let number = mixed(instance.0 ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ((u128::from(number) * count as u128) >> 64) as usize
}

/// The step of splitmix64.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The version of a worker program: one to four numbers with dots between them. What follows behind a `-` makes it a preview, older than
/// the version without it; what follows behind a `+` says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerVersion {
    text: Arc<str>,
    numbers: [u32; 4],
    is_preview: bool,
}

/// Not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a version: one to four numbers with dots between them, such as 1.4.0 or 1.4.0-rc.1, at most {} characters",
    limits::WORKER_VERSION_BYTES_MAX
)]
pub struct VersionSyntax;

impl WorkerVersion {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// [`VersionSyntax`] where it is none.
    pub fn parse(text: &str) -> Result<WorkerVersion, VersionSyntax> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        if text.len() > limits::WORKER_VERSION_BYTES_MAX || !text.chars().all(is_plain) {
            return Err(VersionSyntax);
        }
        let without_build = text.split('+').next().unwrap_or(text);
        let (numbers_text, preview) = without_build.split_once('-').map_or((without_build, None), |(numbers, rest)| (numbers, Some(rest)));
        let mut numbers = [0; 4];
        for (place, part) in numbers_text.split('.').enumerate() {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = part.parse().ok().filter(|_| is_number).ok_or(VersionSyntax)?;
            *numbers.get_mut(place).ok_or(VersionSyntax)? = number;
        }
        if preview == Some("") {
            return Err(VersionSyntax);
        }
        Ok(WorkerVersion { text: Arc::from(text), numbers, is_preview: preview.is_some() })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is this one or a newer one. Numbers that are not there count as 0; previews of one version are all the same.
    pub fn is_at_least(&self, least: &WorkerVersion) -> bool {
        (self.numbers, !self.is_preview) >= (least.numbers, !least.is_preview)
    }
}

impl fmt::Display for WorkerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Not a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a tag: `key=value`, the key of letters, digits and `_ - . /`, the value of those and `:`, neither empty, at most {} bytes in all",
    limits::TAG_BYTES_MAX
)]
pub struct TagSyntax;

/// Checks a tag, `key=value`.
///
/// # Errors
///
/// [`TagSyntax`] where it is none.
pub fn check_tag(tag: &str) -> Result<(), TagSyntax> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let (key, value) = tag.split_once('=').ok_or(TagSyntax)?;
    let is_tag = tag.len() <= limits::TAG_BYTES_MAX
        && !key.is_empty()
        && !value.is_empty()
        && key.chars().all(is_plain)
        && value.chars().all(|c| is_plain(c) || c == ':');
    if is_tag { Ok(()) } else { Err(TagSyntax) }
}

/// More slots are reserved than there are, or a band has none to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reserved} slots are reserved and the worker has {slots}: reserve no more than it has, or give it more slots")]
pub struct ReservedTooMany {
    /// How many are reserved.
    pub reserved: u64,
    /// How many there are.
    pub slots: u32,
}

/// What is wrong with a worker's traits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraitsError {
    /// One of the tags.
    #[error(transparent)]
    Tag(#[from] TagSyntax),
    /// Too many tags.
    #[error("{count} tags: a worker has at most {}", limits::TAGS_MAX)]
    TooManyTags {
        /// How many there are.
        count: usize,
    },
    /// The reserved slots.
    #[error(transparent)]
    Reserved(#[from] ReservedTooMany),
}

impl WorkerTraits {
    /// Checks what a worker with so many slots says of itself.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self, slots: u32) -> Result<(), TraitsError> {
        if self.tags.len() > limits::TAGS_MAX {
            return Err(TraitsError::TooManyTags { count: self.tags.len() });
        }
        self.tags.iter().try_for_each(|tag| check_tag(tag))?;
        let reserved = self.reserved.iter().map(|count| u64::from(*count)).sum();
        if reserved > u64::from(slots) {
            return Err(ReservedTooMany { reserved, slots }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Strategy, *};
    use crate::ids::PartitionId;

    fn version(text: &str) -> WorkerVersion {
        WorkerVersion::parse(text).expect("a version")
    }

    #[test]
    fn versions_compare_by_their_numbers() {
        let ordered = ["0.9", "1.4.0-rc.1", "1.4", "1.4.0.1", "1.10", "2"];
        for (place, older) in ordered.iter().enumerate() {
            for newer in &ordered[place..] {
                assert!(version(newer).is_at_least(&version(older)), "{newer} and {older}");
            }
            for newer in &ordered[place + 1..] {
                assert!(!version(older).is_at_least(&version(newer)), "{older} and {newer}");
            }
        }
        assert!(version("1.4.0+linux").is_at_least(&version("1.4.0")));
        assert!(version("1.4").is_at_least(&version("1.4.0.0")));
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "v1", "1.", ".1", "1..2", "1.2.3.4.5", "1.4-", "one", "1,4", "-1", "99999999999", "1.4 ", "1.4.0-rü"] {
            assert_eq!(WorkerVersion::parse(text), Err(VersionSyntax), "{text}");
        }
        assert!(WorkerVersion::parse(&"1".repeat(limits::WORKER_VERSION_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn tags_are_pairs() {
        for tag in ["zone=eu", "gpu=true", "example.com/pool=a-1", "image=repo:1.2"] {
            assert_eq!(check_tag(tag), Ok(()), "{tag}");
        }
        for tag in ["", "zone", "=eu", "zone=", "zo ne=eu", "zone=eu west", "zone=a=b", "zöne=eu", "zone=eu\n"] {
            assert_eq!(check_tag(tag), Err(TagSyntax), "{tag}");
        }
        assert_eq!(check_tag(&format!("k={}", "v".repeat(limits::TAG_BYTES_MAX))), Err(TagSyntax));
    }

    #[test]
    fn traits_are_checked_as_a_whole() {
        let traits = WorkerTraits { reserved: [2, 2], ..WorkerTraits::default() };
        assert_eq!(traits.check(4), Ok(()));
        assert_eq!(traits.check(3), Err(TraitsError::Reserved(ReservedTooMany { reserved: 4, slots: 3 })));
        let traits = WorkerTraits { reserved: [u32::MAX, u32::MAX], ..WorkerTraits::default() };
        assert!(traits.check(u32::MAX).is_err());
        let traits = WorkerTraits { tags: vec![Arc::from("zone")], ..WorkerTraits::default() };
        assert_eq!(traits.check(4), Err(TraitsError::Tag(TagSyntax)));
        let traits = WorkerTraits { tags: vec![Arc::from("a=b"); limits::TAGS_MAX + 1], ..WorkerTraits::default() };
        assert_eq!(traits.check(4), Err(TraitsError::TooManyTags { count: limits::TAGS_MAX + 1 }));
    }

    fn rooms(slots: usize, reserved: [u32; 2], held: [usize; 3]) -> [usize; 3] {
        Band::ALL.map(|band| room(slots, reserved, held, band))
    }

    #[test]
    fn reserved_slots_are_for_their_band_and_those_above() {
        assert_eq!(rooms(4, [0, 0], [0, 0, 0]), [4, 4, 4]);
        assert_eq!(rooms(4, [2, 0], [0, 0, 0]), [4, 2, 2]);
        assert_eq!(rooms(4, [1, 1], [0, 0, 0]), [4, 3, 2]);
        assert_eq!(rooms(4, [1, 1], [0, 0, 2]), [2, 1, 0]);
        assert_eq!(rooms(4, [1, 1], [0, 3, 0]), [1, 0, 0]);
        assert_eq!(rooms(4, [1, 1], [3, 0, 0]), [1, 1, 1], "what urgent ones hold beyond their slots is taken from all");
        assert_eq!(rooms(4, [4, 0], [0, 0, 0]), [4, 0, 0]);
        assert_eq!(rooms(2, [1, 0], [0, 3, 3]), [0, 0, 0], "a worker that was made smaller holds more than it has");
    }

    #[derive(Debug)]
    struct One {
        id: WorkerId,
        traits: WorkerTraits,
        is_draining: bool,
    }

    impl Candidate for One {
        fn is_worker(&self, worker: &WorkerId) -> bool {
            self.id == *worker
        }
        fn knows(&self, handler: &str) -> bool {
            handler == "shell"
        }
        fn traits(&self) -> &WorkerTraits {
            &self.traits
        }
        fn is_draining(&self) -> bool {
            self.is_draining
        }
    }

    fn one(id: &str) -> One {
        One { id: WorkerId(Arc::from(id)), traits: WorkerTraits::default(), is_draining: false }
    }

    fn needs(routing: Routing) -> Needs {
        Needs { handler: Arc::from("shell"), routing: Some(Arc::new(routing)), understands: Understanding::Firings, worker: None }
    }

    #[track_caller]
    fn check(needs: &Needs, workers: &[One], expected: Result<&[usize], Nobody>) {
        let connected: Vec<_> = workers.iter().enumerate().collect();
        assert_eq!(eligible(needs, &connected), expected.map(<[usize]>::to_vec));
    }

    #[test]
    fn the_reason_is_the_last_thing_that_nobody_met() {
        let tagged = |id, tag: &str| {
            let traits = WorkerTraits { tags: vec![Arc::from(tag)], version: Some(version("1.4.0")), ..WorkerTraits::default() };
            One { traits, ..one(id) }
        };
        let zone = |version_text: &str| {
            let min_worker_version = Some(version(version_text));
            needs(Routing { tags: vec![Arc::from("zone=eu")], min_worker_version, ..Routing::default() })
        };
        check(&zone("1"), &[], Err(Nobody::NotConnected));
        let python = Needs { handler: Arc::from("python"), routing: None, understands: Understanding::Firings, worker: None };
        check(&python, &[one("a")], Err(Nobody::UnknownHandler));
        let old = |name, understands| One { traits: WorkerTraits { understands, ..WorkerTraits::default() }, ..one(name) };
        let shard = Needs { handler: Arc::from("shell"), understands: Understanding::Shards, ..python.clone() };
        let map = Needs { understands: Understanding::Nodes, ..shard.clone() };
        check(&shard, &[old("a", Understanding::Firings)], Err(Nobody::NoShards));
        check(&shard, &[old("a", Understanding::Firings), old("b", Understanding::Shards)], Ok(&[1]));
        check(&map, &[old("a", Understanding::Firings), old("b", Understanding::Shards)], Err(Nobody::NoNodes));
        check(&map, &[old("b", Understanding::Shards), one("a")], Ok(&[1]));
        let broadcast = Needs { worker: Some(WorkerId(Arc::from("b"))), ..shard };
        check(&broadcast, &[one("a")], Err(Nobody::PinnedWorkerAway));
        check(&broadcast, &[one("a"), one("b")], Ok(&[1]));
        check(&zone("1"), &[one("a"), tagged("b", "zone=us")], Err(Nobody::LacksTags));
        check(&zone("1.5"), &[one("a"), tagged("b", "zone=eu")], Err(Nobody::TooOld));
        check(&zone("1.4"), &[one("a"), tagged("b", "zone=eu")], Ok(&[1]));
        check(&zone("1.4"), &[one("a"), One { is_draining: true, ..tagged("b", "zone=eu") }], Err(Nobody::Draining));
        let unversioned = One { traits: WorkerTraits { tags: vec![Arc::from("zone=eu")], ..WorkerTraits::default() }, ..one("a") };
        check(&zone("0.1"), &[unversioned], Err(Nobody::TooOld));
        let pinned = needs(Routing { strategy: Strategy::Pinned(WorkerId(Arc::from("b"))), ..Routing::default() });
        check(&pinned, &[one("a")], Err(Nobody::PinnedWorkerAway));
        check(&pinned, &[one("a"), one("b")], Ok(&[1]));
    }

    fn ids(names: &[u8]) -> Vec<WorkerId> {
        names.iter().map(|name| WorkerId(Arc::from(format!("w{name}")))).collect()
    }

    #[test]
    fn draws_are_spread_evenly() {
        let mut drawn_of = [0_u32; 7];
        for sequence in 0..7_000 {
            drawn_of[drawn(InstanceId::new(PartitionId(3), sequence), 1, 7)] += 1;
        }
        assert!(drawn_of.iter().all(|count| (850..1_150).contains(count)), "{drawn_of:?}");
        let of_attempts: std::collections::BTreeSet<_> = (1..20).map(|attempt| drawn(InstanceId(1), attempt, 7)).collect();
        assert!(of_attempts.len() >= 5, "another attempt comes to another worker: {of_attempts:?}");
    }

    #[test]
    fn tasks_are_spread_evenly_over_workers() {
        let workers = ids(&[1, 2, 3, 4, 5]);
        let mut of_worker = [0_u32; 5];
        for task in 0..5_000 {
            of_worker[rendezvous(TaskId(task), workers.iter().enumerate()).expect("there are workers")] += 1;
        }
        assert!(of_worker.iter().all(|count| (850..1_150).contains(count)), "{of_worker:?}");
    }

    proptest! {
        #[test]
        fn a_worker_that_leaves_moves_only_its_own_tasks(
            names in proptest::collection::btree_set(any::<u8>(), 2..20),
            leaves in any::<prop::sample::Index>(),
            task in any::<u64>(),
        ) {
            let workers = ids(&names.into_iter().collect::<Vec<_>>());
            let leaves = leaves.index(workers.len());
            let before = rendezvous(TaskId(task), workers.iter().enumerate());
            let after = rendezvous(TaskId(task), workers.iter().enumerate().filter(|(index, _)| *index != leaves));
            prop_assert!(before == after || before == Some(leaves), "{before:?} became {after:?} when {leaves} left");
        }

        #[test]
        fn the_order_of_workers_decides_nothing(names in proptest::collection::btree_set(any::<u8>(), 1..20), task in any::<u64>()) {
            let workers = ids(&names.into_iter().collect::<Vec<_>>());
            let one_way = rendezvous(TaskId(task), workers.iter().enumerate());
            prop_assert_eq!(one_way, rendezvous(TaskId(task), workers.iter().enumerate().rev()));
        }

        #[test]
        fn a_draw_is_one_of_them(instance in any::<u64>(), attempt in any::<u32>(), count in 1..1_000_usize) {
            prop_assert!(drawn(InstanceId(instance), attempt, count) < count);
        }

        /// Whoever is given only what there is room for never holds more than it has, nor takes what is kept for bands above.
        #[test]
        fn room_holds_what_is_reserved(
            slots in 1..20_usize, urgent in 0..10_u32, normal in 0..10_u32, bands in proptest::collection::vec(0..3_usize, 0..40),
        ) {
            prop_assume!((urgent + normal) as usize <= slots);
            let mut held = [0; 3];
            for band in bands {
                held[band] += usize::from(room(slots, [urgent, normal], held, Band::ALL[band]) > 0);
            }
            prop_assert!(held.iter().sum::<usize>() <= slots);
            prop_assert!(held[1] + held[2] <= slots - urgent as usize);
            prop_assert!(held[2] <= slots - (urgent + normal) as usize);
        }
    }
}
