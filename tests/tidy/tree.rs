//! The files of the workspace, read once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rust;

/// A file.
pub(crate) struct File {
    /// The path from the root, with `/`.
    pub(crate) path: String,
    /// The contents; empty if they are not text.
    pub(crate) text: String,
}

impl File {
    /// Returns whether it is Rust source.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the source with comments and the contents of strings blanked. Lines stay.
    pub(crate) fn code(&self) -> String {
        rust::blanked(&self.text, rust::Keep::Code)
    }

    /// Returns the source with comments blanked.
    pub(crate) fn code_and_strings(&self) -> String {
        rust::blanked(&self.text, rust::Keep::CodeAndStrings)
    }

    /// Returns the name without folders and extension.
    pub(crate) fn stem(&self) -> &str {
        let path = self.path.strip_suffix("/mod.rs").unwrap_or(&self.path);
        let name = path.rsplit('/').next().unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }
}

/// All files, in the order of their paths.
pub(crate) struct Tree(pub(crate) Vec<File>);

impl Tree {
    /// Reads the tree in which this test was compiled.
    pub(crate) fn read() -> Self {
        let root = root();
        let mut paths = tracked(&root).unwrap_or_else(|| walked(&root, Path::new("")));
        paths.sort();
        let read = |path: String| {
            // A tracked file may be deleted on disk.
            let bytes = fs::read(root.join(&path)).ok()?;
            Some(File { path, text: String::from_utf8(bytes).unwrap_or_default() })
        };
        Self(paths.into_iter().filter_map(read).collect())
    }

    /// Returns a tree for the test of a rule.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        Self(files.iter().map(file).collect())
    }

    /// Returns the Rust sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.0.iter().filter(|file| file.is_rust())
    }

    /// Returns the text of a file; empty if there is none.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.0.iter().find(|file| file.path == path).map_or("", |file| &file.text)
    }
}

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the files that git tracks or would add.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(listing.stdout).ok()?;
    let paths: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    (listing.status.success() && !paths.is_empty()).then_some(paths)
}

/// Returns the files of an unpacked archive, without hidden folders and cargo's output.
fn walked(root: &Path, folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let path = folder.join(&name);
        let name = name.to_string_lossy();
        if !entry.path().is_dir() {
            paths.push(path.to_string_lossy().into_owned());
        } else if !name.starts_with('.') && name != "target" {
            paths.extend(walked(root, &path));
        }
    }
    paths
}

#[test]
fn both_ways_of_reading_find_the_sources() {
    let root = root();
    let walked = walked(&root, Path::new(""));
    for path in ["Cargo.toml", "tests/tidy/tree.rs", "crates/types/src/limits.rs"] {
        assert!(walked.iter().any(|found| found == path), "{path}");
        assert!(!Tree::read().text(path).is_empty(), "{path}");
    }
}
