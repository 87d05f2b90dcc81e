//! `ringfold precision` from the command line, and the page with its tables.

use crate::{printed, refused, tables_of};

#[test]
fn the_page_has_the_tables_that_its_commands_print() {
    let tables = tables_of("docs/precision.md", "precision");
    assert_eq!(tables, 3, "all-reduce, reduce-scatter and reduce");
}

#[test]
fn a_host_alone_rounds_results_only() {
    let text = printed(&precision("allreduce -n 4 -c 1M"));
    assert!(text.contains("* staged             left out: within a host"), "{text}");
    let ring = text.lines().find(|line| line.contains(" ring ")).unwrap();
    assert_eq!(ring.split_whitespace().nth(2), Some("1"), "{text}");
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    for (arguments, reason) in [
        ("broadcast -n 4", "broadcast does not add: there is no rounding error"),
        ("allreduce", "--ranks <RANKS>"),
        ("allreduce -n 2,0", "-n 0: all ranks are executed here, so 1 to 512"),
        ("allreduce -n 513", "-n 513: all ranks are executed here, so 1 to 512"),
        ("allreduce -n 4 --per-host 0", "--per-host: at least 1"),
        ("allreduce -n 4 -c 0", "--count: at least 1"),
        ("reduce_scatter -n 4 -c 4M", "more than 16777216 inputs on 4 ranks"),
        ("allreduce -n 4 -d bf16,f64", "--data-type f64: give f16, bf16, "),
        ("allreduce -n 4 --wire f32", "unknown form of partial results"),
    ] {
        let error = refused(&precision(arguments));
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}

fn precision(arguments: &str) -> Vec<&str> {
    ["precision"].into_iter().chain(arguments.split(' ')).collect()
}
