//! Which worker dials: all come from the loopback, and the system knows which process has the other end of a connection.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The processes of the workers, `None` for those that don't run.
pub type Pids = Arc<Mutex<Vec<Option<u32>>>>;

/// How often, and how far apart, the system's tables are looked through.
const TRIES: usize = 5;
const BETWEEN: Duration = Duration::from_millis(20);

/// The worker whose connection goes from this port to that one.
pub(super) fn worker_of(pids: &Pids, from: u16, to: u16) -> Option<usize> {
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(BETWEEN);
        }
        let pids = pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(inode) = inode_of(from, to) else { continue };
        let socket = format!("socket:[{inode}]");
        let found = pids.iter().position(|pid| pid.is_some_and(|pid| has_open(pid, &socket)));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The number of the socket that has these ports.
fn inode_of(from: u16, to: u16) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let (local, remote) = (format!("0100007F:{from:04X}"), format!("0100007F:{to:04X}"));
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut row = row.filter(|row| row.len() > 9 && row[1] == local && row[2] == remote);
    row.next()?[9].parse().ok()
}

fn has_open(pid: u32, socket: &str) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.to_str() == Some(socket)))
}
