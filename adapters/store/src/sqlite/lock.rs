//! One process a database: locks of the operating system's, held for as long as the store is open. They end with the process, however
//! that ends. Whoever gets them knows therefore that the previous owner is dead.
//!
//! There are two. The one on `<path>.lock` names its holder. The one on the database itself holds whatever the database is called:
//! through a link, or after somebody has removed the other file. It is of the kind that SQLite's own locks don't meet. A descriptor of
//! the database that is closed would end SQLite's locks in this process, so the store gives this up last.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual_driver::ports::StoreError;

use crate::sqlite::error::Database;

/// How often a lock is asked for, and how long in between: a process that was killed just now may have left one that it was about to
/// start, which shares the locks until it runs its program.
const TRIES: u32 = 10;
const TRY_INTERVAL: Duration = Duration::from_millis(20);

/// The locks; dropping them gives them up.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    files: [File; 2],
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // Closing the files would do, were it not for child processes: one that another thread has just forked shares the locks until it
        // runs its program.
        for file in &self.files {
            let _ = file.unlock();
        }
    }
}

impl ProcessLock {
    pub(crate) fn take(database: &Database, path: &Path) -> Result<Self, StoreError> {
        let mut note = open(database, &lock_path(path))?;
        lock(database, &note, Some(&note))?;
        let data = open(database, path)?;
        lock(database, &data, None)?;
        // Who holds it is a courtesy: the lock holds without.
        let _ = note.set_len(0).and_then(|()| note.rewind()).and_then(|()| writeln!(note, "process {}", std::process::id()));
        Ok(ProcessLock { files: [note, data] })
    }
}

fn open(database: &Database, path: &Path) -> Result<File, StoreError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.map_err(|error| database.io(&error))
}

/// Locks a file; where another process has it, `note` says which.
fn lock(database: &Database, file: &File, note: Option<&File>) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(TRY_INTERVAL),
            Err(TryLockError::Error(error)) => return Err(database.io(&error)),
        }
    }
    let mut holder = String::new();
    let known = note.is_some_and(|mut note| note.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty());
    Err(StoreError::InUse { database: database.name(), holder: known.then(|| holder.trim().to_owned()) })
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lock");
    PathBuf::from(name)
}
