//! Recordings: the files from which a machine was read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::machine;
use super::root::{Root, Seen};
use crate::machine::Machine;

/// Why a machine could not be recorded.
#[derive(Debug)]
pub struct RecordError {
    /// The file or folder that could not be written.
    pub path: PathBuf,
    /// The operating system's error.
    pub error: io::Error,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot record to {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for RecordError {}

/// Reads the machine below `root`, and writes the files that it read to `folder`, which must be
/// empty or not exist. `machine(folder)` then gives an equal value. The recording has only the
/// files that the reader accessed, with their texts, and links among them.
///
/// # Errors
/// `folder` is not empty, or cannot be written.
pub fn record(root: &Path, folder: &Path) -> Result<Machine, RecordError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        |error| RecordError { path, error }
    };
    fs::create_dir_all(folder).map_err(at(folder))?;
    let mut entries = fs::read_dir(folder).map_err(at(folder))?;
    if entries.next().is_some() {
        let error = io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty");
        return Err(RecordError { path: folder.to_owned(), error });
    }
    let root = Root::new(root);
    let machine = machine::read(&root);
    write(folder, &root.into_seen())?;
    Ok(machine)
}

fn write(folder: &Path, seen: &BTreeMap<String, Seen>) -> Result<(), RecordError> {
    for (name, seen) in seen {
        let path = folder.join(name);
        let made = match seen {
            Seen::Text(text) => parent(&path).and_then(|()| fs::write(&path, format!("{text}\n"))),
            Seen::Link(to) => parent(&path).and_then(|()| symlink(relative(name, to), &path)),
            Seen::Entry => fs::create_dir_all(&path),
        };
        made.map_err(|error| RecordError { path, error })?;
    }
    Ok(())
}

fn parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// The relative path from the folder of `from` to `to`. Both are paths from the root of a
/// recording.
fn relative(from: &str, to: &str) -> String {
    "../".repeat(from.matches('/').count()) + to
}
