//! `ringfold simulate` from the command line, and its page.

use crate::{printed, refused, tables_of};

fn simulate(arguments: &str) -> Vec<&str> {
    ["simulate"].into_iter().chain(arguments.split_whitespace()).collect()
}

#[test]
fn the_page_has_what_its_commands_print() {
    assert_eq!(tables_of("docs/simulator.md", "simulate"), 4);
}

/// A failed cable changes the time, and a slow one is named.
#[test]
fn cables_that_fail_or_are_slow_are_seen() {
    let usual = "reduce_scatter --fabric fat:16x1:100G:radix=4 -b 16M -a halving --json";
    let time = |more: &str| {
        let words = format!("{usual} {more}");
        let answer: serde_json::Value = serde_json::from_str(&printed(&simulate(&words))).unwrap();
        let cell = &answer["cells"][0];
        let link = cell["links"][0]["link"].as_str().unwrap_or_default().to_owned();
        (cell["seconds"].as_f64().unwrap(), link)
    };
    let (whole, _) = time("");
    assert!(time("--fail leaf0.0").0 > whole);
    let (slow, link) = time("--slow leaf0.0=0.1");
    assert!(slow > whole && link.contains("leaf0.0"), "{link}");
    assert_eq!(time("--routing ecmp --seed 3"), time("--routing ecmp --seed 3"));
}

#[test]
fn wrong_arguments_are_refused_with_the_reason() {
    for (arguments, reason) in [
        ("allreduce", "--fabric <SHAPE>"),
        ("allreduce --fabric mesh:8x1:1G", "no kind of fabric"),
        ("allreduce --fabric fat:8x1:1G -n 9", "9 ranks: the fabric has 8 hosts"),
        ("allreduce --fabric fat:8x1:1G --per-host 0", "--per-host: 1 to"),
        ("allreduce --fabric fat:8x1:1G -b 0", "--bytes 0"),
        ("allreduce --fabric fat:8x1:1G -b 16 -e 8", "--bytes 16 to 8"),
        ("allreduce --fabric fat:8x1:1G -b 1 -e 99999999G -f 2", "too many to count"),
        ("allreduce --fabric fat:8x1:1G -a rings", "allreduce has ring"),
        ("allreduce --fabric fat:8x1:1G -a window", "only links"),
        ("allreduce --fabric fat:8x1:1G -a in_network", "give --aggregators too"),
        ("allreduce --fabric fat:1x1:1G --aggregators", "one host needs no aggregators"),
        ("allreduce --fabric rail-only:8x1:1G --aggregators --fail host0.0", "no switch joins"),
        ("allreduce --fabric fat:8x1:1G --routing best", "--routing best"),
        ("allreduce --fabric fat:8x1:1G --fail leaf9.0", "no cable leaf9.0"),
        ("allreduce --fabric fat:8x1:1G --fail host0.0", "no way through the fabric"),
        ("allreduce --fabric fat:8x1:1G --slow leaf0.0=2", "CABLE=PART"),
        ("alltoall --fabric fat:48895x1:1G -a linear", "too many to simulate"),
        ("broadcast --fabric fat:8x1:1G --slow host0.0=0.000000008 -b 64M -a linear", "53 days"),
        ("allreduce --from no-such-file", "no-such-file"),
        ("broadcast --fabric fat:8x1:1G --root 8", "only 8 ranks"),
    ] {
        let error = refused(&simulate(arguments));
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}
