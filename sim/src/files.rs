//! Files that people name: read only where they are ordinary ones, and written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads a text. What is no ordinary file is refused: reading from a pipe might never end.
///
/// # Errors
///
/// Why it can't be read.
pub fn read_text(path: &Path) -> io::Result<String> {
    must_be_ordinary(path)?;
    fs::read_to_string(path)
}

/// Refuses folders, pipes and devices.
///
/// # Errors
///
/// There is no such file, or it is no ordinary one.
pub fn must_be_ordinary(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(io::Error::other("it is a folder")),
        _ => Err(io::Error::other("it is no ordinary file")),
    }
}

/// A place that a file is going to be written to, looked at before the work begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it was named.
    named: PathBuf,
    /// Without links.
    place: PathBuf,
    /// What is there is written into, as for a device or a pipe.
    is_special: bool,
}

impl Target {
    /// The place of this name; its folder is there and can be written to.
    ///
    /// # Errors
    ///
    /// Nothing could be written there, and why.
    pub fn new(path: &Path) -> io::Result<Target> {
        if path == Path::new("-") {
            return Err(io::Error::other("the name of a file is wanted; ./- is one that is called so"));
        }
        let named = path.to_owned();
        if let Ok(metadata) = fs::metadata(path) {
            if metadata.is_dir() {
                return Err(io::Error::other("it is a folder"));
            }
            let place = fs::canonicalize(path).unwrap_or_else(|_| named.clone());
            let is_special = !metadata.is_file();
            if is_special {
                return Ok(Target { named, place, is_special });
            }
            // What may not be written to is not replaced either.
            OpenOptions::new().append(true).open(path)?;
            check_folder(place.parent().unwrap_or(Path::new("/")))?;
            return Ok(Target { named, place, is_special });
        }
        let Some(name) = path.file_name() else { return Err(io::Error::other("it names no file")) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = fs::canonicalize(folder).map_err(|error| io::Error::new(error.kind(), format!("its folder: {error}")))?;
        check_folder(&folder)?;
        Ok(Target { named, place: folder.join(name), is_special: false })
    }

    /// As it was named.
    pub fn path(&self) -> &Path {
        &self.named
    }

    /// Whether writing there would change this file.
    pub fn is(&self, other: &Path) -> bool {
        let place = fs::canonicalize(other);
        if !self.is_special && place.is_ok_and(|place| place == self.place) {
            return true;
        }
        match (fs::metadata(&self.place), fs::metadata(other)) {
            (Ok(one), Ok(two)) => !self.is_special && (one.dev(), one.ino()) == (two.dev(), two.ino()),
            _ => false,
        }
    }

    /// Whether both are the same place.
    pub fn is_same(&self, other: &Target) -> bool {
        !self.is_special && (self.place == other.place || self.is(&other.place))
    }

    /// Writes the whole text, or leaves what was there.
    ///
    /// # Errors
    ///
    /// It can't be written.
    pub fn write(&self, text: &str) -> io::Result<()> {
        if self.is_special {
            return OpenOptions::new().write(true).open(&self.place)?.write_all(text.as_bytes());
        }
        let beside = beside(&self.place);
        let written = write_new(&beside, text).and_then(|()| {
            if let Ok(before) = fs::metadata(&self.place) {
                fs::set_permissions(&beside, before.permissions())?;
            }
            fs::rename(&beside, &self.place)
        });
        if written.is_err() {
            // What is half a file helps nobody.
            let _ = fs::remove_file(&beside);
        }
        written
    }
}

/// Whether files can be made in a folder.
///
/// # Errors
///
/// Why they can't.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::Error::other("it is no folder"));
    }
    let beside = beside(&folder.join("check"));
    write_new(&beside, "")?;
    fs::remove_file(&beside)
}

/// A name in the same folder that nobody else uses.
fn beside(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{}.{}.part", name.chars().take(40).collect::<String>(), std::process::id()))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
