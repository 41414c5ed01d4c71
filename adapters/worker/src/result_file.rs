//! Where a command puts its result: a file for each attempt, named to it by [`RESULT`].
//!
//! The worker has a folder in the system's folder for temporary files, and makes no file in it: a command that has no result costs one
//! look whether there is one. A command that runs as somebody else gets a folder of its own, since it can't write into the worker's. What
//! it left there is read as what it is, somebody else's: no link is followed, nothing but a plain file of that user is read.
//!
//! The folder goes with the worker. One that was killed leaves it behind without its lock, and the next one removes it. The lock also keeps
//! those away who tidy up behind everybody, such as systemd-tmpfiles.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_core::limits::RESULT_BYTES_MAX;
use rustix::fs::OFlags;
use tokio::sync::Mutex;

use crate::user::Account;

/// The variable that names the file.
pub(crate) const RESULT: &str = "PUNCTUAL_RESULT";

/// What the names of the folders begin with.
const PREFIX: &str = "punctual-results-";
/// The folder within for what runs as the worker's own user.
const OWN: &str = "own";
/// How often a name is tried: a second time is rare already.
const TRIES_MAX: usize = 16;

/// Where all attempts of a worker put their results.
#[derive(Debug, Default)]
pub(crate) struct Results {
    folder: Mutex<Option<Arc<Folder>>>,
}

impl Results {
    /// A place for one attempt's result; `account`: whom it runs as, where that is not the worker's own user.
    pub(crate) async fn place(&self, account: Option<&Account>) -> io::Result<ResultFile> {
        let folder = self.folder().await?;
        let number = folder.attempts.fetch_add(1, Ordering::Relaxed).to_string();
        let Some(account) = account else {
            let path = folder.path.join(OWN).join(number);
            return Ok(ResultFile { path, owner: rustix::process::geteuid().as_raw(), own_folder: None, _folder: folder });
        };
        let own_folder = folder.path.join(number);
        DirBuilder::new().mode(0o700).create(&own_folder)?;
        let file =
            ResultFile { path: own_folder.join("result"), owner: account.uid, own_folder: Some(own_folder.clone()), _folder: folder };
        chown(&own_folder, Some(account.uid), Some(account.gid))?;
        Ok(file)
    }

    /// The worker's folder, made where there is none or somebody has tidied it away.
    async fn folder(&self) -> io::Result<Arc<Folder>> {
        let mut current = self.folder.lock().await;
        if let Some(folder) = current.as_ref().filter(|folder| folder.path.join(OWN).is_dir()) {
            return Ok(folder.clone());
        }
        let make = || {
            let parent = env::temp_dir();
            sweep(&parent);
            Folder::make(&parent)
        };
        let folder = Arc::new(tokio::task::spawn_blocking(make).await.map_err(io::Error::other)??);
        Ok(current.insert(folder).clone())
    }
}

/// A worker's folder. Dropping it removes it.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    attempts: AtomicU64,
    /// Says that somebody is there.
    _lock: File,
}

impl Folder {
    fn make(parent: &Path) -> io::Result<Folder> {
        for _ in 0..TRIES_MAX {
            let path = parent.join(format!("{PREFIX}{:016x}", RandomState::new().hash_one(std::process::id())));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Another worker that sweeps just now may be quicker, and takes the folder away.
            let Ok(lock) = File::open(&path) else { continue };
            if lock.try_lock().is_err() || !is_there(&path, &lock) {
                continue;
            }
            DirBuilder::new().mode(0o700).create(path.join(OWN))?;
            // Whoever has a folder in it may come through.
            fs::set_permissions(&path, Permissions::from_mode(0o711))?;
            return Ok(Folder { path, attempts: AtomicU64::new(0), _lock: lock });
        }
        Err(io::Error::other("no name for a folder is free"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is removed by the next worker.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether the path still leads to what was opened.
fn is_there(path: &Path, opened: &File) -> bool {
    let identity = |data: &fs::Metadata| (data.dev(), data.ino());
    matches!((fs::symlink_metadata(path), opened.metadata()), (Ok(there), Ok(opened)) if identity(&there) == identity(&opened))
}

/// Removes the folders of workers that are gone.
fn sweep(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if !is_one || !entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == own) {
            continue;
        }
        if let Ok(folder) = File::open(entry.path())
            && folder.try_lock().is_ok()
        {
            // What can't be removed stays, and harms nobody.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Where one attempt puts its result. Dropping it removes what is there.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
    /// Whose file it has to be.
    owner: u32,
    /// Made for this attempt.
    own_folder: Option<PathBuf>,
    _folder: Arc<Folder>,
}

impl ResultFile {
    /// The file's path. Nothing is there.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the command has written: `None` where that is nothing, or why it can't be taken, in words that follow the file's name.
    pub(crate) fn read(&self) -> Result<Option<Arc<str>>, String> {
        self.read_up_to(RESULT_BYTES_MAX)
    }

    /// Puts this there, for the command to read.
    pub(crate) async fn write(&self, text: &str) -> io::Result<()> {
        tokio::fs::write(&self.path, text).await?;
        if self.own_folder.is_some() {
            chown(&self.path, Some(self.owner), None)?;
        }
        Ok(())
    }

    /// As [`read`](Self::read), with a limit of its own.
    pub(crate) fn read_up_to(&self, bytes_max: usize) -> Result<Option<Arc<str>>, String> {
        // Neither a link to somewhere else nor a pipe that nobody writes into.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let file = match OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("can't be opened: {error}")),
        };
        let data = file.metadata().map_err(|error| format!("can't be read: {error}"))?;
        if !data.is_file() || data.uid() != self.owner {
            return Err("is no plain file of the command's user".to_owned());
        }
        let mut bytes = Vec::new();
        // The line's end doesn't count.
        file.take(bytes_max as u64 + 3).read_to_end(&mut bytes).map_err(|error| format!("can't be read: {error}"))?;
        let bytes = bytes.strip_suffix(b"\n").map_or(&bytes[..], |line| line.strip_suffix(b"\r").unwrap_or(line));
        if bytes.len() > bytes_max {
            return Err(format!("has {} bytes, and at most {bytes_max} can be handed on", data.size()));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| format!("is not UTF-8 from byte {} on", error.valid_up_to()))?;
        Ok((!text.is_empty()).then(|| Arc::from(text)))
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        match &self.own_folder {
            Some(folder) => drop(fs::remove_dir_all(folder)),
            // Most commands wrote nothing. A folder in its place is an oddity.
            None => match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => drop(fs::remove_dir_all(&self.path)),
                _ => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_goes_with_its_worker_and_its_last_attempt() {
        let results = Results::default();
        let file = results.place(None).await.expect("a place");
        let folder = file._folder.path.clone();
        assert!(folder.join(OWN).is_dir() && !file.path().exists());
        assert_eq!(fs::metadata(folder.join(OWN)).expect("a folder").permissions().mode() & 0o777, 0o700);
        drop(results);
        assert!(folder.exists());
        drop(file);
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn a_folder_that_was_tidied_away_is_made_anew() {
        let results = Results::default();
        let first = results.place(None).await.expect("a place");
        fs::remove_dir_all(&first._folder.path).expect("removed");
        let second = results.place(None).await.expect("a place");
        fs::write(second.path(), "x").expect("written");
        assert_eq!(second.read(), Ok(Some(Arc::from("x"))));
    }

    #[test]
    fn folders_of_workers_that_are_gone_are_swept_and_no_others() {
        let parent = tempfile::tempdir().expect("a folder");
        let alive = Folder::make(parent.path()).expect("a folder");
        let gone = Folder::make(parent.path()).expect("a folder").path.clone();
        // As a kill leaves it: no lock, with what commands wrote.
        fs::create_dir_all(gone.join(OWN)).expect("a folder");
        fs::write(gone.join(OWN).join("0"), "late").expect("written");
        let other = parent.path().join("somebody-elses");
        fs::create_dir(&other).expect("a folder");
        sweep(parent.path());
        assert!(alive.path.is_dir() && other.is_dir() && !gone.exists());
    }

    #[tokio::test]
    async fn what_was_left_is_removed_with_the_attempt() {
        let results = Results::default();
        for is_folder in [false, true] {
            let file = results.place(None).await.expect("a place");
            let path = file.path().to_owned();
            if is_folder {
                fs::create_dir_all(path.join("deep")).expect("a folder");
                assert!(file.read().is_err());
            } else {
                fs::write(&path, "x").expect("written");
            }
            drop(file);
            assert!(!path.exists());
        }
    }
}
