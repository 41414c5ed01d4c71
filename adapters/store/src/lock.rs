//! One process a database: a lock of the operating system's on `<path>.lock`, held for as long as the store is open. It ends with the
//! process, however that ends. Whoever gets it knows therefore that the previous owner is dead.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use punctual_driver::ports::StoreError;

use crate::error::Database;

/// The lock; dropping it gives it up.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    file: File,
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // Closing the file would do, were it not for child processes: one that another thread has just forked shares the lock until it
        // runs its program.
        let _ = self.file.unlock();
    }
}

impl ProcessLock {
    pub(crate) fn take(database: &Database, path: &Path) -> Result<Self, StoreError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(lock_path(path))
            .map_err(|error| database.io(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
                let holder = known.then(|| holder.trim().to_owned());
                return Err(StoreError::InUse { database: database.name(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(database.io(&error)),
        }
        // Who holds it is a courtesy: the lock holds without.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "process {}", std::process::id()));
        Ok(ProcessLock { file })
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lock");
    PathBuf::from(name)
}
