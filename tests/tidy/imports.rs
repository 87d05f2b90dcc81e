//! The allowed dependencies between the crates of the workspace.

use std::process::Command;

use serde_json::Value;

use crate::Offence;
use crate::tree::{self, Tree};

/// The crates that a crate may use.
enum Uses {
    /// These crates only.
    Only(&'static [&'static str]),
    /// All crates except these.
    AllBut(&'static [&'static str]),
}

use Uses::{AllBut, Only};

/// The common code of all tests.
const HARNESS: &str = "tests/harness";

/// The rule of each crate, by folder. `bench` needs the launcher for `--ranks N`, and its oracle
/// needs `types` and the 8-bit floats. No crate may use `tests`, and the
/// tests of all crates may use `HARNESS`.
const MAY_USE: &[(&str, Uses)] = &[
    ("crates/sources", Only(&[])),
    ("crates/types", Only(&["crates/sources"])),
    ("crates/reduce", Only(&["crates/types"])),
    ("transport", Only(&["crates/types", "crates/sources", "topology"])),
    ("topology", Only(&["crates/types", "crates/sources"])),
    ("collectives", Only(&["crates/types", "crates/sources", "topology"])),
    ("crates/bootstrap", Only(&["crates/types", "crates/sources"])),
    ("crates/lend", Only(&["transport", "collectives"])),
    (
        "crates/ringfold",
        Only(&[
            "crates/types",
            "crates/sources",
            "crates/reduce",
            "transport",
            "topology",
            "collectives",
            "crates/lend",
            "crates/bootstrap",
            "crates/innetwork",
        ]),
    ),
    ("crates/sim", Only(&["crates/types", "topology", "transport", "collectives"])),
    (
        "crates/innetwork",
        Only(&[
            "crates/types",
            "crates/sources",
            "topology",
            "transport",
            "crates/reduce",
            "crates/bootstrap",
        ]),
    ),
    ("crates/launcher", Only(&["crates/types", "topology", "crates/bootstrap", "transport"])),
    ("crates/cli", AllBut(&["tests", HARNESS])),
    (
        "bench",
        Only(&[
            "crates/ringfold",
            "crates/sim",
            "crates/launcher",
            "crates/types",
            "crates/reduce",
        ]),
    ),
    ("crates/foreign", Only(&["crates/ringfold"])),
    ("crates/capi", Only(&["crates/ringfold", "crates/foreign"])),
    ("crates/python", Only(&["crates/ringfold", "crates/foreign"])),
    ("tests", AllBut(&[])),
    (HARNESS, Only(&[])),
];

/// Further crates for a crate's own tests, benches and examples, with the reason.
const TESTS_MAY_USE: &[(&str, &str, &str)] = &[
    ("transport", "crates/lend", "peers write into their registered memory"),
    ("transport", "transport", "its feature `testing` is for tests"),
    ("crates/innetwork", "crates/innetwork", "its features `server` and `testing`"),
];

/// Crates without dependencies outside the workspace, except for those of optional features.
const PURE: &[&str] = &["crates/types", "collectives", "topology"];

/// Returns cargo's metadata of the workspace.
pub(crate) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(tree::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// A dependency.
struct Edge<'a> {
    from: &'a str,
    /// The folder of a crate of the workspace, or the name of an external crate.
    to: &'a str,
    internal: bool,
    /// Whether it is for tests, benches and examples only.
    dev: bool,
    /// Whether it is for an optional feature.
    optional: bool,
}

pub(crate) fn offences(metadata: &Value, tree: &Tree) -> Vec<Offence> {
    let edges = edges(metadata);
    let mut offences: Vec<_> = edges.iter().filter_map(broken).collect();
    let unused = |(from, to, _): &&(&str, &str, &str)| {
        !edges.iter().any(|edge| edge.dev && edge.from == *from && edge.to == *to)
    };
    for (from, to, _) in TESTS_MAY_USE.iter().filter(unused) {
        offences.push(format!("{from}: no longer tests with {to}; remove it from TESTS_MAY_USE"));
    }
    for (folder, name) in packages(metadata) {
        let last = folder.rsplit('/').next().unwrap_or(folder);
        if name != format!("ringfold-{last}") && name != last {
            offences.push(format!("{folder}/Cargo.toml: package {name} is not ringfold-{last}"));
        }
        offences.extend(manifest(folder, tree.text(&format!("{folder}/Cargo.toml"))));
    }
    offences
}

fn broken(edge: &Edge<'_>) -> Option<Offence> {
    let Edge { from, to, internal, dev, optional } = *edge;
    if !internal {
        let kept = dev || optional || !PURE.contains(&from);
        return (!kept)
            .then(|| format!("{from}/Cargo.toml: uses {to}, but depends on nothing outside"));
    }
    let is_listed = || TESTS_MAY_USE.iter().any(|row| row.0 == from && row.1 == to);
    let excused = dev && (to == HARNESS || is_listed());
    let allowed = match MAY_USE.iter().find(|row| row.0 == from) {
        None => return Some(format!("{from}/Cargo.toml: not in the import table of tests/tidy")),
        Some((_, Only(list))) => list.contains(&to),
        Some((_, AllBut(list))) => !list.contains(&to),
    };
    (!allowed && !excused).then(|| format!("{from}/Cargo.toml: may not use {to}"))
}

/// Checks that versions, paths and lints are in the root manifest only. A dev-dependency may have a
/// path: without a version, cargo leaves it out of packages, which a cycle between crates needs.
fn manifest(folder: &str, text: &str) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let is_cyclic = section == "[dev-dependencies]" && line.contains("= { path = ");
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies")
            && !is_cyclic
            && line.contains('=')
            && !line.contains("workspace")
        {
            let line_number = index + 1;
            offences.push(format!("{folder}/Cargo.toml:{line_number}: belongs in the root"));
        }
    }
    if !text.contains("[lints]\nworkspace = true") {
        offences.push(format!("{folder}/Cargo.toml: lacks the lints of the workspace"));
    }
    offences
}

fn edges(metadata: &Value) -> Vec<Edge<'_>> {
    let packages = packages(metadata);
    let folder_of = |name| packages.iter().find(|package| package.1 == name).map(|found| found.0);
    let mut edges = Vec::new();
    for package in list(&metadata["packages"]) {
        for dependency in list(&package["dependencies"]) {
            let name = text(&dependency["name"]);
            edges.push(Edge {
                from: folder(metadata, package),
                to: folder_of(name).unwrap_or(name),
                internal: folder_of(name).is_some(),
                dev: text(&dependency["kind"]) == "dev",
                optional: dependency["optional"].as_bool().unwrap_or(false),
            });
        }
    }
    edges
}

/// Returns the folder and name of every crate.
pub(crate) fn packages(metadata: &Value) -> Vec<(&str, &str)> {
    let packages = list(&metadata["packages"]).iter();
    packages.map(|package| (folder(metadata, package), text(&package["name"]))).collect()
}

/// Returns the folder of every crate, with the root file of each of its targets.
pub(crate) fn targets(metadata: &Value) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        let targets = list(&package["targets"]).iter();
        let roots = targets.map(|target| in_workspace(metadata, text(&target["src_path"])));
        found.push((folder(metadata, package), roots.collect()));
    }
    found
}

fn folder<'a>(metadata: &Value, package: &'a Value) -> &'a str {
    in_workspace(metadata, text(&package["manifest_path"])).trim_end_matches("/Cargo.toml")
}

/// Returns a path relative to the root of the workspace.
fn in_workspace<'a>(metadata: &Value, path: &'a str) -> &'a str {
    let inside = path.strip_prefix(text(&metadata["workspace_root"])).unwrap_or(path);
    inside.trim_start_matches('/')
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a workspace in which `from` uses `to`.
    fn using(from: &str, to: &str, kind: Option<&str>) -> Vec<Offence> {
        let package = |folder: &str, dependencies: Value| {
            let last = folder.rsplit('/').next().unwrap();
            json!({"name": format!("ringfold-{last}"), "dependencies": dependencies,
                "manifest_path": format!("/w/{folder}/Cargo.toml")})
        };
        let to_name = to.rsplit('/').next().unwrap();
        let edge = json!([{"name": format!("ringfold-{to_name}"), "kind": kind}]);
        let packages = [package(from, edge), package(to, json!([]))];
        let metadata = json!({"workspace_root": "/w", "packages": packages});
        edges(&metadata).iter().filter_map(broken).collect()
    }

    #[test]
    fn the_heart_knows_no_transport() {
        assert_eq!(using("collectives", "transport", None).len(), 1);
        assert_eq!(using("collectives", "transport", Some("dev")).len(), 1);
        assert!(using("collectives", "topology", None).is_empty());
    }

    #[test]
    fn nobody_uses_the_tests_and_nobody_is_unknown() {
        assert_eq!(using("crates/cli", "tests", None).len(), 1);
        assert_eq!(using("crates/cli", HARNESS, None).len(), 1);
        assert!(using("crates/types", HARNESS, Some("dev")).is_empty());
        assert!(using("crates/cli", "bench", None).is_empty());
        assert_eq!(using("crates/newcomer", "crates/types", None).len(), 1);
    }

    #[test]
    fn the_words_need_nobody() {
        let edge = |dev, optional| {
            let (from, to, internal) = ("crates/types", "serde", false);
            Edge { from, to, internal, dev, optional }
        };
        assert!(broken(&edge(false, false)).is_some());
        assert!(broken(&edge(true, false)).is_none());
        assert!(broken(&edge(false, true)).is_none());
    }

    #[test]
    fn versions_live_in_the_root() {
        let good = "[lints]\nworkspace = true\n\n[dependencies]\nserde.workspace = true\n";
        assert!(manifest("m", good).is_empty());
        assert_eq!(manifest("m", &good.replace(".workspace = true", " = \"1\"")).len(), 1);
        assert_eq!(manifest("m", "[dependencies]\n").len(), 1);
    }
}
