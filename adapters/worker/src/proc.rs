//! What Linux tells about processes under `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

/// A process's number with the time it was started, in ticks since the machine's start: unlike the number, never given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessKey {
    pub(crate) pid: i32,
    pub(crate) started: u64,
}

/// A process's line in `/proc/PID/stat`, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) key: ProcessKey,
    pub(crate) ended: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
}

impl Stat {
    /// Of this process itself.
    pub(crate) fn own() -> Option<Stat> {
        parse(&fs::read("/proc/self/stat").ok()?)
    }

    /// Of a process; `None` where there is none, or none to be seen.
    pub(crate) fn of(pid: i32) -> Option<Stat> {
        parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Of the process where it is the same one and has not ended.
    pub(crate) fn of_living(key: ProcessKey) -> Option<Stat> {
        Stat::of(key.pid).filter(|stat| stat.key == key && !stat.ended)
    }
}

fn parse(line: &[u8]) -> Option<Stat> {
    // The name in parentheses may hold anything, parentheses and spaces too; what follows the last one are numbers.
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(&line[..line.iter().position(|byte| *byte == b' ')?]).ok()?.parse().ok()?;
    let fields: Vec<&str> = std::str::from_utf8(&line[close + 1..]).ok()?.split_ascii_whitespace().collect();
    Some(Stat {
        key: ProcessKey { pid, started: fields.get(19)?.parse().ok()? },
        ended: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
    })
}

/// The numbers of all processes.
pub(crate) fn all() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// Most of a process's environment that is read; the system allows less.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// The environment that a process was started with.
pub(crate) struct Environment(Vec<u8>);

impl Environment {
    /// Of a process; `None` where it is another user's, or has ended.
    pub(crate) fn of(pid: i32) -> Option<Environment> {
        let mut bytes = Vec::new();
        fs::File::open(format!("/proc/{pid}/environ")).ok()?.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(Environment(bytes))
    }

    /// A variable's value.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")))
            .map(OsStr::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let line = b"4242 (a) R 1 (b) S 7 4240 4239 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 99 0\n";
        let expected = Stat { key: ProcessKey { pid: 4242, started: 987_654 }, ended: false, parent: 7, group: 4240, session: 4239 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 (init"), None);
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let environment = Environment(b"XA=0\0A=1=2\0AB=3\0broken\0".to_vec());
        assert_eq!(environment.get("A"), Some(OsStr::new("1=2")));
        assert_eq!(environment.get("B"), None);
        assert_eq!(environment.get("broken"), None);
    }
}
