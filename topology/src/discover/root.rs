//! A folder that has `sys` and `proc`: `/` on the live system, or a recording.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of one file of `/sys` or `/proc`, or of its recording, that describes the machine.
const MACHINE_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Entries of one such folder.
const MACHINE_ENTRIES_MAX: usize = 8192;

/// The folder. Paths are relative to it and begin with `sys` or `proc`. Its methods never fail: a
/// path that is missing, unreadable or not a file gives `None`.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    seen: RefCell<BTreeMap<String, Seen>>,
}

/// A result of the reader, for recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The text of a file.
    Text(String),
    /// The path that a symbolic link leads to.
    Link(String),
    /// An entry of a listed folder.
    Entry,
}

impl Root {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: RefCell::default() }
    }

    /// The text of a file without white space around it. Bytes beyond the limit are left out.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let file = self.path.join(path);
        // A pipe would block.
        if !fs::metadata(&file).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(file).ok()?.take(MACHINE_FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        self.note(path, Seen::Text(text.clone()));
        Some(text)
    }

    /// The number that is the whole text of a file.
    pub(super) fn number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// The number in base 16, with or without `0x`, that is the whole text of a file.
    pub(super) fn hex(&self, path: &str) -> Option<u32> {
        let text = self.text(path)?;
        u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
    }

    /// The entries of a folder from whose names `wanted` makes a value, sorted by that value.
    /// Entries beyond the limit are left out.
    pub(super) fn list<T: Ord>(
        &self,
        path: &str,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Vec<(T, String)> {
        let entries = fs::read_dir(self.path.join(path)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let known = names.filter_map(|name| Some((wanted(&name)?, name)));
        let mut found: Vec<(T, String)> = known.take(MACHINE_ENTRIES_MAX).collect();
        found.sort();
        for (_, name) in &found {
            self.note(&format!("{path}/{name}"), Seen::Entry);
        }
        found
    }

    /// The path that a symbolic link leads to. `None` if there is no such link.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target =
            fs::read_link(self.path.join(path)).ok()?.into_os_string().into_string().ok()?;
        let start = if target.starts_with('/') { "" } else { path };
        let mut parts: Vec<&str> = start.split('/').collect();
        parts.pop();
        for part in target.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let to = parts.join("/");
        self.note(path, Seen::Link(to.clone()));
        Some(to)
    }

    /// The path that a symbolic link leads to, or the path itself if it is a folder.
    pub(super) fn resolved(&self, path: &str) -> String {
        self.link(path).unwrap_or_else(|| path.to_owned())
    }

    /// Every result so far, by path.
    pub(super) fn into_seen(self) -> BTreeMap<String, Seen> {
        self.seen.into_inner()
    }

    fn note(&self, path: &str, seen: Seen) {
        let mut all = self.seen.borrow_mut();
        if seen != Seen::Entry || !all.contains_key(path) {
            all.insert(path.to_owned(), seen);
        }
    }
}
