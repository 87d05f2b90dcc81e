//! The required contents of the documents: crates, folders, algorithms, variables, limits.

use std::collections::BTreeSet;

use crate::Offence;
use crate::place::is_test;
use crate::tree::{File, Tree};

/// Files outside the configuration that may name an environment variable. They set it for other
/// processes, or read it from the configuration's environment.
const MAY_NAME: &[&str] = &[
    "crates/ringfold/src/config",
    "crates/launcher/",
    "crates/bootstrap/",
    "bench/",
    "crates/cli/src/aggregate.rs",
];

pub(crate) fn offences(tree: &Tree) -> Vec<Offence> {
    let mut offences = map(tree);
    offences.extend(algorithms(tree));
    offences.extend(variables(tree));
    offences.extend(limits(tree));
    offences
}

/// Checks that ARCHITECTURE.md mentions every crate and every transport.
fn map(tree: &Tree) -> Vec<Offence> {
    let text = tree.text("ARCHITECTURE.md");
    let mut places = BTreeSet::new();
    for file in &tree.0 {
        if let Some(folder) = file.path.strip_suffix("/Cargo.toml") {
            places.insert(folder);
        }
        if let Some(place) = file.path.strip_prefix("transport/src/")
            && let Some((folder, _)) = place.split_once('/')
        {
            places.insert(&file.path[.."transport/src/".len() + folder.len()]);
        }
    }
    let is_lost = |place: &&str| !text.contains(&format!("`{place}`"));
    let lost = places.into_iter().filter(is_lost);
    lost.map(|place| format!("ARCHITECTURE.md: does not mention `{place}`")).collect()
}

/// Checks that an algorithm's file is in its folder's list and states its costs, and that the
/// README's table has its name.
fn algorithms(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for folder in collectives(tree) {
        let list = tree.text(&format!("{folder}/mod.rs"));
        let collective = folder.rsplit('/').next().unwrap_or_default();
        let row = row(tree.text("README.md"), collective);
        let files: Vec<_> = tree.rust().filter(|file| is_algorithm(file, folder)).collect();
        for file in &files {
            let (path, name) = (&file.path, file.stem());
            let mut check = |holds: bool, what: &str| {
                if !holds {
                    offences.push(format!("{path}: {what}"));
                }
            };
            check(list.contains(&format!("{name}::ALGORITHM")), "not in its folder's ALGORITHMS");
            check(file.text.contains(&format!("name: \"{name}\"")), "not named as its file");
            check(row.contains(&format!("`{name}`")), "not in the README's table of algorithms");
            let head: Vec<_> =
                file.text.lines().take_while(|line| line.starts_with("//!")).collect();
            let says = |word| head.iter().any(|line| line.contains(word));
            check(says("Steps") && says("Sent"), "its head does not state `Steps` and `Sent`");
        }
        let names = row.split('`').skip(1).step_by(2).skip(1);
        let invented = names.filter(|name| !files.iter().any(|file| file.stem() == *name));
        offences.extend(invented.map(|name| format!("README.md: there is no {collective}/{name}")));
    }
    offences
}

/// Returns the folders of collectives/src that list algorithms.
fn collectives(tree: &Tree) -> Vec<&str> {
    let lists = tree.rust().filter(|file| file.text.contains("const ALGORITHMS"));
    lists.filter_map(|file| file.path.strip_suffix("/mod.rs")).collect()
}

fn is_algorithm(file: &File, folder: &str) -> bool {
    let name = file.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    let name = name.map(|name| name.strip_suffix("/mod.rs").unwrap_or(name));
    name.is_some_and(|name| name != "mod.rs" && name != "tests.rs" && !name.contains('/'))
}

/// Returns the line of a table that begins with the name.
fn row<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap_or_default()
}

/// The page with the tables of variables.
const ENVIRONMENT: &str = "docs/environment.md";

/// Checks that the tables of `ENVIRONMENT` have exactly the variables in the code, and that only
/// the allowed files name a variable.
fn variables(tree: &Tree) -> Vec<Offence> {
    let page = tree.text(ENVIRONMENT);
    let mut offences = Vec::new();
    let mut named = BTreeSet::new();
    for file in tree.rust() {
        let code = file.code_and_strings();
        // A suite sets the variables of its jobs, and has settings of its own.
        let is_test = is_test(&file.path);
        let may_name = is_test || MAY_NAME.iter().any(|place| file.path.starts_with(place));
        for (index, line) in code.lines().enumerate() {
            for name in quoted_variables(line) {
                if !may_name {
                    let line = index + 1;
                    offences.push(format!("{}:{line}: {name} belongs elsewhere", file.path));
                }
                if !is_test || name.starts_with("RINGFOLD_TEST_") {
                    named.insert(name.to_owned());
                }
            }
        }
    }
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let written: BTreeSet<_> = rows
        .flat_map(|names| names.split('`'))
        .filter(|name| name.starts_with(PREFIX))
        .map(str::to_owned)
        .collect();
    let missing = named.difference(&written);
    offences.extend(missing.map(|name| format!("{ENVIRONMENT}: {name} is in no table")));
    let invented = written.difference(&named);
    offences.extend(invented.map(|name| format!("{ENVIRONMENT}: there is no {name}")));
    offences
}

/// The prefix of ringfold's environment variables.
const PREFIX: &str = "RINGFOLD_";

/// Returns the variables on a line that are whole strings, as code reads and sets them. Longer
/// strings with a variable are messages.
fn quoted_variables(line: &str) -> impl Iterator<Item = &str> {
    let is_variable = |text: &&str| {
        text.strip_prefix(PREFIX).is_some_and(|rest| {
            !rest.is_empty()
                && !rest.ends_with('_')
                && rest.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    line.split('"').skip(1).step_by(2).filter(is_variable)
}

/// Checks that every limit has a use.
fn limits(tree: &Tree) -> Vec<Offence> {
    const HOME: &str = "crates/types/src/limits.rs";
    let names = tree
        .text(HOME)
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let is_unread = |name: &&str| {
        let mut others = tree.rust().filter(|file| file.path != HOME);
        !others.any(|file| crate::rust::has_word(&file.code(), name))
    };
    let mut offences: Vec<_> =
        names.filter(is_unread).map(|name| format!("{HOME}: nobody reads {name}")).collect();
    if !tree.text(HOME).contains("const _: () = assert!") {
        offences.push(format!("{HOME}: lacks assertions on how the limits relate"));
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_and_transports_are_on_the_map() {
        let places = [("crates/a/Cargo.toml", ""), ("transport/src/b/mod.rs", "")];
        assert_eq!(map(&Tree::of(&places)).len(), 2);
        let text = ("ARCHITECTURE.md", "`crates/a` and `transport/src/b`");
        assert!(map(&Tree::of(&[places[0], places[1], text])).is_empty());
    }

    #[test]
    fn algorithms_are_listed_named_stated_and_written() {
        let mut files = [
            ("collectives/src/c/mod.rs", "const ALGORITHMS: [ring::ALGORITHM]"),
            ("collectives/src/c/ring.rs", "//! Steps: 1. Sent: 2.\nname: \"ring\""),
            ("README.md", "| `c` | `ring` |"),
        ];
        assert_eq!(algorithms(&Tree::of(&files)), Vec::<Offence>::new());
        files[0].1 = "const ALGORITHMS: []";
        files[1].1 = "//! Steps: 1\nname: \"circle\"";
        files[2].1 = "| `c` | `bruck` |";
        assert_eq!(algorithms(&Tree::of(&files)).len(), 5);
    }

    #[test]
    fn variables_are_written_and_kept_at_home() {
        let config = ("crates/ringfold/src/config.rs", "f(\"RINGFOLD_A\"); // \"RINGFOLD_Z\"");
        let page = (ENVIRONMENT, "| `RINGFOLD_A` | a |");
        let advice = ("transport/src/x.rs", "g(\"set RINGFOLD_A\")");
        assert_eq!(variables(&Tree::of(&[config, page, advice])), Vec::<Offence>::new());
        assert_eq!(variables(&Tree::of(&[config])).len(), 1);
        assert_eq!(variables(&Tree::of(&[page])).len(), 1);
        let stray = ("transport/src/x.rs", "g(\"RINGFOLD_A\")");
        assert_eq!(variables(&Tree::of(&[config, page, stray])).len(), 1);
    }

    #[test]
    fn limits_are_read_and_related() {
        let home = ("crates/types/src/limits.rs", "pub const A_MAX: u8 = 1;");
        let reader = ("transport/src/x.rs", "limits::A_MAX");
        assert_eq!(limits(&Tree::of(&[home])).len(), 2);
        assert_eq!(limits(&Tree::of(&[home, reader])).len(), 1);
        let related = (home.0, "pub const A_MAX: u8 = 1;\nconst _: () = assert!(A_MAX > 0);");
        assert!(limits(&Tree::of(&[related, reader])).is_empty());
    }
}
