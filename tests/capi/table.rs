//! The methods of Rust beside the functions of the header.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::declared;

/// The sources of the crate `ringfold`.
const RUST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/ringfold/src");

/// Methods whose functions have other names: their functions.
const RENAMED: &[(&str, &str)] = &[
    ("abort", "ringfold_comm_abort"),
    ("aborter", "ringfold_comm_abort"),
    ("alloc", "ringfold_window_alloc"),
    ("begin_profile", "ringfold_comm_begin_profile"),
    ("duplicate", "ringfold_comm_duplicate"),
    ("end_profile", "ringfold_comm_end_profile"),
    ("wait_for_replacement", "ringfold_comm_wait_for_replacement"),
    ("group", "ringfold_group_start"),
    ("grow", "ringfold_comm_grow"),
    ("init_with", "ringfold_init"),
    ("leave", "ringfold_comm_free"),
    ("perform", "ringfold_all_reduce"),
    ("perform_in_shared_windows", "ringfold_all_reduce_window"),
    ("perform_in_windows", "ringfold_all_reduce_window"),
    ("perform_uneven", "ringfold_all_to_all_v"),
    ("rank", "ringfold_comm_rank"),
    ("register", "ringfold_comm_register"),
    ("register_op", "ringfold_op_create"),
    ("register_op_on_bytes", "ringfold_op_create"),
    ("set_timeout", "ringfold_comm_set_timeout"),
    ("agree", "ringfold_comm_agree"),
    ("failed_ranks", "ringfold_comm_failed_ranks"),
    ("identity", "ringfold_comm_identity"),
    ("revoke", "ringfold_comm_revoke"),
    ("shrink", "ringfold_comm_shrink"),
    ("shrink_without", "ringfold_comm_shrink"),
    ("size", "ringfold_comm_size"),
    ("split", "ringfold_comm_split"),
    ("start", "ringfold_start_all_reduce"),
    ("start_all_reduce_by_in", "ringfold_start_all_reduce_by"),
    ("start_in_windows", "ringfold_start_all_reduce_window"),
    ("start_recv_in", "ringfold_start_recv"),
    ("start_send_of", "ringfold_start_send"),
    ("start_uneven", "ringfold_start_all_to_all_v"),
    ("subset", "ringfold_comm_subset"),
    // The memory of every started call of C is borrowed.
    ("scope", "ringfold_start_all_reduce"),
    // C numbers the ranks of the subset itself, and its wait does not watch a parent.
    ("subset_with_store", "ringfold_init_with_store"),
];

/// Methods without a function. They tell or set the way of a call and not its result, or facts
/// about a failure that the text of its error has too.
const RUST_ONLY: &[&str] = &[
    "algorithm_for",
    "algorithm_in",
    "epoch",
    "former_rank",
    "group_name",
    "interface",
    "layout",
    "possible_algorithms",
    "set_algorithms",
    "set_wait_hook",
    "set_wire",
    "timeout",
    "transport_to",
    "wire",
];

/// The public methods in the blocks `impl Communicator` of a file.
fn methods(text: &str) -> Vec<String> {
    let blocks = text.split("\nimpl Communicator {\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("\n}\n").next().unwrap().lines());
    let names = lines.filter_map(|line| {
        let after = line.strip_prefix("    pub ")?;
        let after = after.strip_prefix("const ").unwrap_or(after).strip_prefix("fn ")?;
        Some(after.split(['(', '<']).next()?.to_owned())
    });
    names.collect()
}

fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_method_of_rust_has_its_function() {
    let mut texts = Vec::new();
    sources(Path::new(RUST), &mut texts);
    let found: BTreeSet<String> = texts.iter().flat_map(|text| methods(text)).collect();
    let is_missing = |name: &&str| !found.contains(*name);
    for known in ["all_reduce", "all_to_all_v_into", "exscan", "send_recv", "split"] {
        assert!(found.contains(known), "{known} was not found in {found:?}");
    }

    let (declared, renamed) = (declared(), RENAMED.iter().copied().collect::<BTreeMap<_, _>>());
    for method in found.iter().filter(|name| !RUST_ONLY.contains(&name.as_str())) {
        let plain = format!("ringfold_{}", method.strip_suffix("_into").unwrap_or(method));
        let function = renamed.get(method.as_str()).map_or(plain, |name| (*name).to_owned());
        assert!(declared.contains(&function), "{method} has no function {function} for C");
    }
    let stale = RENAMED.iter().map(|(name, _)| *name).chain(RUST_ONLY.iter().copied());
    assert_eq!(stale.filter(is_missing).collect::<Vec<_>>(), [""; 0], "no such methods");
}
