//! Rules of place: root folders, names, `unsafe`, the environment, orphaned tests.

use std::collections::BTreeSet;

use crate::Offence;
use crate::rust::has_word;
use crate::tree::{File, Tree};

/// The folders in the root, which are the architecture.
const ROOMS: &[&str] =
    &["bench", "collectives", "crates", "docs", "tests", "topology", "transport"];

/// Files and folders that may have `unsafe`.
const DOORS: &[&str] = &[
    "transport/src/sys/",
    "transport/src/shm/",
    "transport/src/rdma/sys/",
    "crates/reduce/src/simd/",
    "crates/lend/",
    "crates/foreign/",
    "crates/capi/",
    "crates/python/",
];

/// File names without a meaning.
const DRAWERS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager"];

pub(crate) fn offences(tree: &Tree) -> Vec<Offence> {
    let mut offences = rooms(tree);
    offences.extend(orphans(tree));
    for file in tree.rust() {
        offences.extend(names(file));
        offences.extend(doors(file));
        offences.extend(environment(file));
    }
    offences
}

fn rooms(tree: &Tree) -> Vec<Offence> {
    let folders: BTreeSet<&str> = tree
        .0
        .iter()
        .filter_map(|file| Some(file.path.split_once('/')?.0))
        .filter(|folder| !folder.starts_with('.'))
        .collect();
    let rooms: BTreeSet<&str> = ROOMS.iter().copied().collect();
    let stray = folders.difference(&rooms).map(|folder| format!("{folder}/: is no room"));
    let gone = rooms.difference(&folders).map(|room| format!("{room}/: is missing"));
    stray.chain(gone).collect()
}

/// Reports suites in tests/ that Cargo.toml does not name. `autotests` is off, so they never run.
fn orphans(tree: &Tree) -> Vec<Offence> {
    let manifest = tree.text("tests/Cargo.toml");
    let folder =
        |file: &File| Some(file.path.strip_prefix("tests/")?.split_once('/')?.0.to_owned());
    let folders: BTreeSet<_> = tree.rust().filter_map(folder).collect();
    // These folders are separate crates.
    let is_outside =
        |folder: &String| ["abi", "fuzz", "harness", "loom"].contains(&folder.as_str());
    let is_orphan =
        |folder: &String| !is_outside(folder) && !manifest.contains(&format!("path = \"{folder}/"));
    let orphans = folders.into_iter().filter(is_orphan);
    orphans.map(|folder| format!("tests/{folder}/: tests/Cargo.toml does not name it")).collect()
}

fn names(file: &File) -> Vec<Offence> {
    let parts = file.path.split(['/', '.']);
    let drawers = parts
        .filter(|part| DRAWERS.contains(part))
        .map(|part| format!("{}: {part} names nothing; say what it is", file.path));
    let is_getter = |line: &str| has_prefixed_word(line, "fn get_");
    let getters = file
        .code()
        .lines()
        .enumerate()
        .filter(|(_, line)| is_getter(line))
        .map(|(index, _)| format!("{}:{}: drop the `get_`", file.path, index + 1))
        .collect::<Vec<_>>();
    drawers.chain(getters).collect()
}

/// Returns whether a name in `line` begins with the last word of `prefix`.
fn has_prefixed_word(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix)
        .any(|(at, _)| !line[..at].chars().next_back().is_some_and(crate::rust::is_word))
}

fn doors(file: &File) -> Vec<Offence> {
    if DOORS.iter().any(|door| file.path.starts_with(door)) {
        return Vec::new();
    }
    let opens = |line: &str| {
        has_word(line, "unsafe")
            || line.contains("allow(unsafe_")
            || line.contains("expect(unsafe_")
    };
    let code = file.code();
    let found = code.lines().enumerate().filter(|(_, line)| opens(line));
    found
        .map(|(index, _)| format!("{}:{}: unsafe outside its doors", file.path, index + 1))
        .collect()
}

/// Returns whether a file is part of a suite, of the workspace or of one crate.
pub(crate) fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/")
}

/// Reports code that reads the environment outside the configuration and binaries.
fn environment(file: &File) -> Vec<Offence> {
    let path = &file.path;
    let is_binary = path.ends_with("src/main.rs") || path.contains("src/bin/");
    let may = is_binary
        || path.starts_with("crates/ringfold/src/config")
        || path.contains("/examples/")
        || is_test(path);
    if may {
        return Vec::new();
    }
    let code = file.code();
    let reads = |line: &str| line.contains("env::var") || has_word(line, "environ");
    let found = code.lines().enumerate().filter(|(_, line)| reads(line));
    found.map(|(index, _)| format!("{path}:{}: reads the environment", index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn the_set_of_rooms_is_closed() {
        let mut files: Vec<_> = ROOMS.iter().map(|room| file(&format!("{room}/x"), "")).collect();
        files.extend([file("README.md", ""), file(".ci/run", "")]);
        assert!(rooms(&Tree(files)).is_empty());
        assert_eq!(rooms(&Tree::of(&[("scripts/x", "")])).len(), 1 + ROOMS.len());
    }

    #[test]
    fn suites_must_be_named() {
        let manifest = ("tests/Cargo.toml", "path = \"tidy/main.rs\"");
        let suites = [manifest, ("tests/tidy/main.rs", ""), ("tests/lost/main.rs", "")];
        assert_eq!(orphans(&Tree::of(&suites)).len(), 1);
    }

    #[test]
    fn names_must_name() {
        assert_eq!(names(&file("bench/src/util.rs", "fn get_x() {}")).len(), 2);
        assert!(names(&file("bench/src/stats.rs", "fn target_x() {} // fn get_x")).is_empty());
    }

    #[test]
    fn unsafe_stays_behind_its_doors() {
        let text = "unsafe { f() }";
        assert_eq!(doors(&file("transport/src/tcp/mod.rs", text)).len(), 1);
        assert!(doors(&file("transport/src/sys/mod.rs", text)).is_empty());
        assert!(doors(&file("bench/src/x.rs", "#![forbid(unsafe_code)] // unsafe")).is_empty());
        assert_eq!(doors(&file("bench/src/x.rs", "#![allow(unsafe_code)]")).len(), 1);
    }

    #[test]
    fn the_environment_is_read_in_one_place() {
        let text = "let x = std::env::var(NAME);";
        assert_eq!(environment(&file("transport/src/tcp/mod.rs", text)).len(), 1);
        assert!(environment(&file("crates/launcher/src/main.rs", text)).is_empty());
        assert!(environment(&file("crates/ringfold/src/config.rs", text)).is_empty());
    }
}
