//! `ringfold tune` and `ringfold explain` from the command line.

use std::path::Path;
use std::time::Duration;

use ringfold_collectives::select::Measurements;
use ringfold_harness::{Folder, Outcome, Ranks};
use ringfold_topology::prices::Profile;
use ringfold_types::Collective;

use crate::{printed, refused};

#[test]
fn measurements_are_written_explained_and_kept() {
    let folder = Folder::new();
    let file = folder.path().join("here.plan");
    let text = tune(2, &file);
    assert!(text.contains("RINGFOLD_PLAN="), "{text}");
    let two: Measurements = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    for collective in Collective::ALL {
        let of = |row: &&ringfold_collectives::select::Row| row.collective == collective;
        let rows: Vec<_> = two.rows().iter().filter(of).collect();
        assert!(!rows.is_empty(), "{collective}");
        assert!(rows.iter().all(|row| (row.ranks, row.hosts) == (2, 1) && row.nanos > 0));
    }
    tune(3, &file);
    let both: Measurements = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    assert!(two.rows().iter().all(|row| both.rows().contains(row)), "those of 2 ranks are kept");

    let plan = file.to_str().unwrap();
    let text = printed(&["explain", "allreduce", "-n", "3", "-b", "1K", "--plan", plan]);
    let fastest = both
        .rows()
        .iter()
        .filter(|row| (row.collective, row.ranks, row.bytes) == (Collective::AllReduce, 3, 1024));
    let fastest = fastest.min_by_key(|row| row.nanos).unwrap();
    assert!(text.contains(&format!("* {} is chosen", fastest.algorithm)), "{text}");
    let without = printed(&["explain", "allreduce", "-n", "3", "-b", "1K"]);
    assert!(without.contains("its estimate is the lowest;"), "{without}");
    // Several ranks of a host that send to a root of another were slower than their price.
    let reduce = ["explain", "reduce", "-n", "8", "--per-host", "2", "-b", "1K"];
    let exempt = "hierarchical is chosen: its estimate is the lowest after linear, whose estimates";
    assert!(printed(&reduce).contains(exempt), "{}", printed(&reduce));
    let is_single_copy = |bytes: &str| {
        let question = ["explain", "broadcast", "-n", "2", "--cpus", "2", "-b", bytes];
        printed(&question).contains("from each other's memory")
    };
    assert_eq!(["1K", "64K", "64M"].map(is_single_copy), [false, true, false]);
    let with_cpus = |cpus| printed(&["explain", "barrier", "-n", "4", "--cpus", cpus]);
    let (free, crowded) = (with_cpus("4"), with_cpus("1"));
    assert!(crowded.starts_with("barrier on 4 ranks of one host with 1 CPU\n"), "{crowded}");
    assert_ne!(free.lines().nth(2), crowded.lines().nth(2), "ranks that share a CPU take longer");
}

#[test]
fn prices_are_measured_explained_and_kept() {
    let folder = Folder::new();
    let file = folder.path().join("here.prices");
    std::fs::write(&file, "ringfold-prices 1\nrdma-400 2000 300 25\n").unwrap();
    let text = run(2, &["--machine", "-o", file.to_str().unwrap()]);
    assert!(text.contains("RINGFOLD_PRICES=") && text.contains("(ranks 0 and 1)"), "{text}");
    let profile: Profile = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    let found: Vec<_> = profile.links().filter(|(class, _)| !class.is_between_hosts()).collect();
    let [(class, price)] = found[..] else { panic!("{text}") };
    // A busy machine is slow, but a wrong unit is a thousandfold.
    assert!(price.latency_ps < 1_000_000_000 && price.byte_ps < 100_000, "{price:?}");
    assert!(profile.combining_ps().is_some_and(|byte_ps| byte_ps < 100_000));
    assert!(profile.links().any(|(class, _)| class.to_string() == "rdma-400"), "others are kept");

    let prices = file.to_str().unwrap();
    let question = ["explain", "allreduce", "-n", "4", "--per-host", "2", "-b", "1M"];
    let text = printed(&[&question[..], &["--prices", prices]].concat());
    let from = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split("   ").last().unwrap().to_owned()
    };
    assert_eq!((from(&class.to_string()), from("combining")), ("profile".into(), "profile".into()));
    assert_ne!(from("tcp"), "profile");
    let plain = printed(&question);
    assert!(plain.contains(" default\n") && !plain.contains("profile"), "{plain}");
    let given = printed(&[&question[..], &["--cpus", "3"]].concat());
    let cpus = |text: &str| text.lines().last().unwrap().trim().to_owned();
    assert!(cpus(&given).ends_with(" 3   --cpus"), "{given}");
    assert!(cpus(&plain).ends_with("   this machine"), "{plain}");
}

#[test]
fn plans_follow_the_prices_of_a_file() {
    let folder = Folder::new();
    let file = folder.path().join("slow.prices");
    let chosen = |byte_ps: u64| {
        let text = format!("ringfold-prices 1\ntcp 20000 2000 {byte_ps}\n");
        std::fs::write(&file, text).unwrap();
        let question = "plan allreduce -n 8 --per-host 1 --cpus 4 -b 8K --prices";
        let question: Vec<&str> = question.split(' ').chain(file.to_str()).collect();
        let text = printed(&question);
        let line = text.lines().find(|line| line.starts_with("* ")).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!([400, 80_000].map(chosen), ["one_shot", "ring"], "few steps, then few bytes");
    let error = refused(&["explain", "allreduce", "-n", "2", "--prices", "/dev/zero"]);
    assert!(error.contains("it has more than"), "{error}");
    std::fs::write(&file, "ringfold-prices 1\ntcp 20000\n").unwrap();
    let error = refused(&["plan", "allreduce", "-n", "2", "--prices", file.to_str().unwrap()]);
    assert!(error.contains("slow.prices") && error.contains("line 2: expected class"), "{error}");
}

#[test]
fn a_file_that_is_no_plan_is_refused_by_line() {
    let folder = Folder::new();
    let file = folder.path().join("bad.plan");
    std::fs::write(&file, "# a plan\nallreduce 2 1 8 teleport 5\n").unwrap();
    let plan = file.to_str().unwrap();
    // An endless file is refused as too long.
    let error = refused(&["explain", "allreduce", "-n", "2", "--plan", "/dev/zero"]);
    assert!(error.contains("more than"), "{error}");
    let error = refused(&["explain", "allreduce", "-n", "2", "--plan", plan]);
    assert!(error.contains("bad.plan") && error.contains("line 2"), "{error}");
}

#[test]
fn one_rank_has_nothing_to_tune() {
    let error = refused(&["tune", "-o", "/nonexistent/plan"]);
    assert!(error.contains("several ranks"), "{error}");
}

/// Runs a short `tune` with `ranks` ranks, and returns rank 0's output.
fn tune(ranks: usize, file: &Path) -> String {
    run(ranks, &["-b", "64", "-e", "1K", "-f", "16", "-o", file.to_str().unwrap()])
}

/// Runs `tune` with `ranks` ranks, and returns rank 0's output.
fn run(ranks: usize, arguments: &[&str]) -> String {
    let jobs = Ranks::of(env!("CARGO_BIN_EXE_ringfold"), ranks, |_, command| {
        command.arg("tune").args(arguments);
    });
    let mut texts = jobs.finish(Duration::from_secs(120)).into_iter().map(Outcome::printed);
    let first = texts.next().unwrap();
    assert!(texts.all(|text| text.is_empty()), "only rank 0 reports");
    first
}
