//! Commands that outlived the process that started them.
//!
//! A scheduler that is killed with its commands running leaves them behind, and its next life will start some of them again. So that nothing
//! runs twice, it ends what its earlier lives left, before it starts anything.
//!
//! Each command's environment, which its descendants inherit, has [`OWNER`]: the marker of the store or worker that it belongs to, with the
//! process that started it (number, start time, session). A process is an orphan if
//!
//! - it carries the marker,
//! - the process that started it is gone (told by the start time too, as numbers are given out again), and
//! - its attempt was still going on: some process of the same attempt is left in the session that the command was started in. What has
//!   made a session of its own has left the run, as it has for a cancellation; a daemon that a finished command started on purpose
//!   is not ended because the scheduler starts again. While the command itself goes on, though, they end together.
//!
//! An orphan's process group is ended with it, where the group's leader carries the marker or is gone: then the group is the command's, and
//! its members belong to the run even if they cleared their environment. No other process without the marker is touched. Neither are
//! this process, its ancestors and its process group, whatever is in their environment.

use std::time::Duration;
use std::{fmt, io};

use punctual_core::ids::{Fence, InstanceId};

/// The variable that says whose a command is: `<marker>/<pid>.<start time>.<session>`.
pub const OWNER: &str = "PUNCTUAL_OWNER";

/// A process that was left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its number.
    pub pid: i32,
    /// Its process group.
    pub pgid: i32,
    /// The instance that it ran for, where its environment says so.
    pub instance: Option<InstanceId>,
    /// The attempt.
    pub attempt: Option<u32>,
    /// The attempt's fence.
    pub fence: Option<Fence>,
    /// Whether it is gone; one that is not could not be killed.
    pub ended: bool,
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let (Some(instance), Some(attempt)) = (self.instance, self.attempt) {
            write!(f, " of instance {instance}, attempt {attempt}")?;
        }
        Ok(())
    }
}

/// Ends the processes that carry `marker` and whose owner is gone: a signal to end, `grace`, a kill. Answers with all that it found.
///
/// # Errors
///
/// On systems other than Linux, which don't tell one process another's environment, [`io::ErrorKind::Unsupported`]; else what reading
/// `/proc` said.
pub async fn end_orphans(marker: &str, grace: Duration) -> io::Result<Vec<Orphan>> {
    #[cfg(target_os = "linux")]
    return linux::end_orphans(marker, grace).await;
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (marker, grace);
        Err(io::Error::new(io::ErrorKind::Unsupported, "commands of an earlier life can be found on Linux only"))
    }
}

/// The value of [`OWNER`] for commands that this process starts.
pub(crate) fn owner_value(marker: &str) -> String {
    #[cfg(target_os = "linux")]
    if let Some(own) = crate::proc::Stat::own() {
        return format!("{marker}/{}.{}.{}", own.key.pid, own.key.started, own.session);
    }
    format!("{marker}/{}.0.0", std::process::id())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, HashMap, HashSet};
    use std::time::{Duration, Instant};
    use std::{ffi::OsStr, io, str::FromStr};

    use punctual_core::ids::Fence;
    use rustix::process::{Pid, PidfdFlags, Signal};

    use super::{OWNER, Orphan};
    use crate::proc::{self, Environment, ProcessKey, Stat};

    /// How long killed processes may take to go.
    const KILL_WAIT: Duration = Duration::from_secs(5);
    /// From one look at the processes to the next.
    const LOOK_INTERVAL: Duration = Duration::from_millis(50);

    pub(super) async fn end_orphans(marker: &str, grace: Duration) -> io::Result<Vec<Orphan>> {
        let begun = Instant::now();
        let mut found: BTreeMap<ProcessKey, Orphan> = BTreeMap::new();
        let mut condemned: HashSet<AttemptKey> = HashSet::new();
        let mut asked: HashSet<ProcessKey> = HashSet::new();
        let mut asked_groups: HashSet<i32> = HashSet::new();
        // A process that forks while the list is read may escape one look, so one that finds nothing is followed by another.
        let mut empty_looks = 0;
        loop {
            let owned_marker = marker.to_owned();
            let look = tokio::task::spawn_blocking(move || find(&owned_marker, &mut condemned).map(|seen| (seen, condemned)));
            let seen;
            (seen, condemned) = look.await.map_err(io::Error::other)??;
            let kill = begun.elapsed() >= grace;
            let given_up = begun.elapsed() >= grace.saturating_add(KILL_WAIT);
            let left: HashSet<ProcessKey> = seen.iter().map(|process| process.stat.key).collect();
            let asked_before = asked_groups.clone();
            for process in &seen {
                found.entry(process.stat.key).or_insert_with(|| process.orphan());
                let group = process.stat.group;
                if kill {
                    process.signal(&[Signal::KILL], process.group_is_ours);
                } else if asked.insert(process.stat.key) {
                    // Once each: many programs take a second signal for impatience. One that has joined a group since is asked alone.
                    let whole_group = process.group_is_ours && !asked_before.contains(&group);
                    if !whole_group || asked_groups.insert(group) {
                        process.signal(&[Signal::TERM, Signal::CONT], whole_group);
                    }
                }
            }
            empty_looks = if left.is_empty() { empty_looks + 1 } else { 0 };
            if empty_looks == 2 || given_up {
                for (key, orphan) in &mut found {
                    orphan.ended = !left.contains(key);
                    tracing::info!(pid = orphan.pid, ended = orphan.ended, "{orphan} of an earlier life");
                }
                return Ok(found.into_values().collect());
            }
            if !left.is_empty() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
    }

    /// A process that carries the marker.
    struct Marked {
        stat: Stat,
        /// The session that its command was started in.
        home_session: i32,
        attempt: AttemptKey,
        /// Whether its group is a command's own.
        group_is_ours: bool,
        environment: Environment,
    }

    /// Tells attempts of one owner's life apart: owner, instance and fence, as they stand in the environment.
    type AttemptKey = [Vec<u8>; 3];

    impl Marked {
        fn orphan(&self) -> Orphan {
            Orphan {
                pid: self.stat.key.pid,
                pgid: self.stat.group,
                instance: parsed(&self.environment, "PUNCTUAL_INSTANCE"),
                attempt: parsed(&self.environment, "PUNCTUAL_ATTEMPT"),
                fence: parsed(&self.environment, "PUNCTUAL_FENCE").map(Fence),
                ended: false,
            }
        }

        fn signal(&self, signals: &[Signal], whole_group: bool) {
            let Some(pid) = Pid::from_raw(self.stat.key.pid) else { return };
            // Opened first, compared then: the descriptor stands for the same process whatever becomes of the number.
            let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty());
            let Some(stat) = Stat::of_living(self.stat.key) else { return };
            for signal in signals {
                // The group exists while this member of it does.
                let group = Pid::from_raw(stat.group).filter(|_| whole_group && stat.group == self.stat.group);
                let group_sent = group.map(|group| rustix::process::kill_process_group(group, *signal));
                if !matches!(group_sent, Some(Ok(()))) {
                    let _ = match &descriptor {
                        Ok(descriptor) => rustix::process::pidfd_send_signal(descriptor, *signal),
                        Err(_) => rustix::process::kill_process(pid, *signal),
                    };
                }
            }
        }
    }

    fn parsed<T: FromStr>(environment: &Environment, name: &str) -> Option<T> {
        environment.get(name)?.to_str()?.parse().ok()
    }

    fn bytes(value: Option<&OsStr>) -> Vec<u8> {
        value.map(|value| value.as_encoded_bytes().to_vec()).unwrap_or_default()
    }

    /// Splits the value of [`OWNER`] into the marker, the owner's process and its session.
    fn parse_owner(value: &OsStr) -> Option<(&str, ProcessKey, i32)> {
        let (marker, process) = value.to_str()?.rsplit_once('/')?;
        let mut numbers = process.split('.');
        let key = ProcessKey { pid: numbers.next()?.parse().ok()?, started: numbers.next()?.parse().ok()? };
        Some((marker, key, numbers.next()?.parse().ok()?))
    }

    fn marked(pid: i32, marker: &str) -> Option<Marked> {
        let stat = Stat::of(pid).filter(|stat| !stat.ended)?;
        let environment = Environment::of(pid)?;
        let owner = environment.get(OWNER)?;
        let (its_marker, owner_process, home_session) = parse_owner(owner)?;
        if its_marker != marker || Stat::of_living(owner_process).is_some() {
            return None;
        }
        // The number may have been given to somebody else between the two readings.
        Stat::of_living(stat.key)?;
        let attempt = [bytes(Some(owner)), bytes(environment.get("PUNCTUAL_INSTANCE")), bytes(environment.get("PUNCTUAL_FENCE"))];
        Some(Marked { stat, home_session, attempt, group_is_ours: false, environment })
    }

    /// The orphans. Once an attempt is `condemned`, all that is left of it is an orphan, whatever its session.
    fn find(marker: &str, condemned: &mut HashSet<AttemptKey>) -> io::Result<Vec<Marked>> {
        let own = Stat::own().ok_or_else(|| io::Error::other("/proc/self/stat can't be read"))?;
        let mut untouchable: HashSet<i32> = HashSet::from([own.key.pid, 1]);
        let mut ancestor = own.parent;
        while ancestor > 1 && untouchable.insert(ancestor) {
            ancestor = Stat::of(ancestor).map_or(0, |stat| stat.parent);
        }
        let mut all: Vec<Marked> = proc::all()?.into_iter().filter_map(|pid| marked(pid, marker)).collect();
        condemned.extend(all.iter().filter(|process| process.stat.session == process.home_session).map(|process| process.attempt.clone()));
        all.retain(|process| condemned.contains(&process.attempt) && !untouchable.contains(&process.stat.key.pid));

        let leaders: HashSet<i32> = all.iter().map(|process| process.stat.key.pid).collect();
        let mut groups: HashMap<i32, bool> = HashMap::new();
        for process in &mut all {
            let group = process.stat.group;
            process.group_is_ours = *groups.entry(group).or_insert_with(|| {
                let leader_gone = || Stat::of(group).is_none_or(|leader| leader.ended);
                group > 1 && group != own.group && (leaders.contains(&group) || leader_gone())
            });
        }
        Ok(all)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_marker_may_hold_anything() {
            let value = super::super::owner_value("/var/lib/a.b/x 1");
            let (marker, owner, session) = parse_owner(OsStr::new(&value)).expect("an owner");
            let own = Stat::own().expect("itself");
            assert_eq!((marker, owner, session), ("/var/lib/a.b/x 1", own.key, own.session));
            assert!(parse_owner(OsStr::new("x/1.2")).is_none());
            assert!(parse_owner(OsStr::new("")).is_none());
        }
    }
}
