//! `ringfold plan` from the command line: its output and its errors.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfold_collectives::Algorithm;
use ringfold_harness::Folder;
use ringfold_types::Collective;

use crate::{printed, refused};

#[test]
fn every_algorithm_on_five_ranks_is_as_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut wrong = Vec::new();
    for collective in Collective::ALL {
        for Algorithm { name, .. } in Algorithm::of(collective) {
            // Algorithms for several hosts need a longer message to show their levels.
            let hosts = ["-n", "6", "--per-host", "2", "-b", "24K"];
            let has_bytes = collective != Collective::Barrier;
            let hosts = if has_bytes { &hosts[..] } else { &hosts[..4] };
            let place = match *name {
                "hierarchical" => hosts.to_vec(),
                "in_network" => [hosts, &["--aggregators", "1"]].concat(),
                _ => vec!["-n", "5"],
            };
            let head = ["plan", collective.name(), "-a", name];
            let arguments = [&head[..], &place].concat();
            let file = folder.join(format!("{collective}-{name}.txt"));
            let committed = std::fs::read_to_string(&file).unwrap_or_default();
            if printed(&arguments) != committed {
                let arguments = arguments.join(" ");
                wrong.push(format!("ringfold {arguments} > tests/plans/{collective}-{name}.txt"));
            }
        }
    }
    assert!(wrong.is_empty(), "read what changed, then\n{}", wrong.join("\n"));
}

#[test]
fn a_plan_says_what_is_stated_and_what_is_proven() {
    let text = printed(&["plan", "allreduce", "--algorithm", "double_tree", "-n", "6"]);
    assert!(text.starts_with("allreduce [f32 x 24, sum] on 6 ranks by double_tree\n"), "{text}");
    let cost = "4 steps, the busiest rank sends 48 elements";
    assert!(text.contains(&format!("stated   {cost}\n")), "{text}");
    assert!(text.contains(&format!("proven   {cost}, 192 B")), "{text}");
    let columns = "step  rank 0                    rank 1 ";
    assert!(text.contains(columns), "{text}");
}

#[test]
fn counts_give_each_rank_a_block_of_its_own_length() {
    let counts = ["-n", "3", "--counts", "3,0,5"];
    let ring = printed(&[&["plan", "allgather", "-a", "ring"], &counts[..]].concat());
    let head = "allgather [f32 x 5] in blocks of 3, 0, 5 on 3 ranks by ring\n";
    assert!(ring.starts_with(head), "{ring}");
    assert!(ring.contains("proven   2 steps, the busiest rank sends 8 elements, 32 B"), "{ring}");
    assert_eq!(printed(&[&["plan", "allgatherv", "-a", "ring"], &counts[..]].concat()), ring);
    let list = printed(&[&["plan", "reduce_scatter"], &counts[..]].concat());
    for name in ["ring", "direct", "staged"] {
        assert!(list.lines().any(|line| line[2..].starts_with(&format!("{name} "))), "{list}");
    }
    assert!(!list.contains("halving"), "{list}");
    let explained = printed(&[&["explain", "allgather"], &counts[..]].concat());
    assert!(explained.contains("in blocks of 3, 0, 5 on 3 ranks of one host"), "{explained}");
    assert!(explained.contains("* ") && explained.contains("bruck"), "{explained}");
    // One long block goes around a ring once. Elsewhere its rank sends it to each other rank.
    let long = ["explain", "allgather", "--per-host", "1", "-n", "4", "--counts", "9000000,0,0,0"];
    let explained = printed(&long);
    assert!(explained.lines().any(|line| line.starts_with("* ring ")), "{explained}");
}

#[test]
fn chunks_follow_each_other_down_a_chain() {
    let text =
        printed(&["plan", "broadcast", "-a", "chain", "-n", "3", "-b", "32", "--chunk", "16"]);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("step")).collect();
    let expected = [
        "step  rank 0                rank 1           rank 2",
        "   1  in[0..8] -> #1        out[0..4] = #0",
        "      out[0..8] = in[0..8]  out[4..8] = #0",
        "   2                        out[0..4] -> #2",
        "   3                        out[4..8] -> #2  out[0..8] = #1",
        "",
    ];
    assert_eq!(rows[..expected.len()], expected, "{text}");
}

#[test]
fn one_rank_of_many_and_many_ranks() {
    let one = printed(&["plan", "barrier", "-a", "dissemination", "-n", "100", "--rank", "99"]);
    assert!(one.contains("step  rank 99\n   1  s[0..1] -> #0\n      s[1..2] = #98\n"), "{one}");
    assert!(one.contains("   7  s[0..1] -> #63\n      s[1..2] = #35\n"), "{one}");
    assert!(!one.contains("rank 98 "), "{one}");
    let all = printed(&["plan", "broadcast", "-a", "binomial", "-n", "9", "-r", "2", "-c", "3"]);
    assert!(all.contains("step 3\n  rank    0  out[0..3] = #8\n"), "{all}");
}

#[test]
fn without_an_algorithm_all_are_listed_and_one_is_chosen() {
    for collective in Collective::ALL {
        let text = printed(&["plan", collective.name(), "-n", "6"]);
        for algorithm in Algorithm::of(collective) {
            let name = format!("{} ", algorithm.name);
            let lines = text.lines().filter(|line| line[2..].starts_with(&name));
            let is_there = usize::from(!algorithm.needs_provider());
            assert_eq!(lines.count(), is_there, "{algorithm}: {text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("* ")).count(), 2, "{text}");
    }
    let peers = |name: &str| {
        let text = printed(&["plan", "allreduce", "-n", "20"]);
        let line = text.lines().find(|line| line[2..].starts_with(&format!("{name} ")));
        line.unwrap()[2..].split_whitespace().nth(2).unwrap().parse::<usize>().unwrap()
    };
    // Four rounds among 16 ranks, and one more peer for each of the 4 ranks beyond 16.
    let known = [("ring", 2), ("recursive_doubling", 5), ("one_shot", 19), ("window", 19)];
    assert_eq!(known.map(|(name, _)| (name, peers(name))), known);
    // Three peers on other hosts, and two on the own host. One host exceeds a power of two.
    let levels = printed(&["plan", "allreduce", "-n", "15", "--per-host", "3", "-b", "12K"]);
    let line = levels.lines().find(|line| line.contains("hierarchical")).unwrap_or_default();
    let columns: Vec<&str> = line[2..].split_whitespace().take(4).collect();
    assert_eq!(columns, ["hierarchical", "5", "5", "3"], "{levels}");
    assert!(levels.contains(" on 15 ranks on 5 hosts of 3 with "), "{levels}");
    let crowded = ["plan", "allreduce", "-n", "6", "--cpus", "1", "-b", "6M", "-d", "bf16"];
    let text = printed(&crowded);
    let head = "allreduce [bf16 x 3145728, sum] on 6 ranks of one host with 1 CPU\n";
    assert!(text.starts_with(head), "{text}");
    // Of five blocks to reduce, one is sent as bf16 and four as sums of twice the width.
    let ring = text.lines().find(|line| line.contains(" ring ")).unwrap_or_default();
    let bytes = (2 + 4 * 4 + 5 * 2) * 3_145_728 / 6;
    assert!(ring.contains(&format!(" {bytes} B = 2.33 x")), "{text}");
}

#[test]
fn a_layout_shows_what_crosses_leaf_groups_spines_and_rails() {
    let folder = Folder::new();
    // Neighbours in this order are in different groups.
    let hosts = "a g0 2 each\nb g1 2 each\nc g0 2 each\nd g1 2 each\n";
    let file = folder.file("layout.txt", hosts);
    let text = printed(&["plan", "allreduce", "--layout", &file, "-b", "1K"]);
    assert!(text.contains(" on 8 ranks on 4 hosts of 2 with "), "{text}");
    let crossing = |name: &str| -> Vec<u64> {
        let lines = text.lines().skip_while(|line| !line.contains("bytes of all ranks"));
        let line = lines.into_iter().find(|line| line.contains(&format!("  {name} "))).unwrap();
        line.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect()
    };
    // Of the ring's 8 edges 4 are between hosts, and 2 of these between groups: 14 blocks of 128 B.
    assert_eq!(crossing("ring"), [4 * 14 * 128, 2 * 14 * 128, 2 * 14 * 128, 0, 0], "{text}");
    assert!(crossing("one_shot")[4] > 0, "{text}");
    let text = printed(&["plan", "allreduce", "-a", "ring", "--layout", &file, "-b", "1K"]);
    assert!(text.contains("  crosses  within hosts        56 messages, 7168 B\n"), "{text}");
    assert!(text.contains("           across spines       28 messages, 3584 B\n"), "{text}");
    folder.file("layout.txt", "a g0 2 each\nb g1 two each\n");
    let error = refused(&["plan", "allreduce", "--layout", &file]);
    assert!(error.contains("line 2: 'two' is not a number of ranks"), "{error}");
    let error = refused(&["plan", "allreduce", "--layout", &file, "-n", "4"]);
    assert!(error.contains("cannot be used with"), "{error}");
}

/// Eight hosts with 10 Gbit/s each: a byte takes 800 ps.
#[test]
fn aggregators_are_chosen_where_their_links_are_fast_enough() {
    let folder = Folder::new();
    let prices = folder.file("prices", "ringfold-prices 1\ntcp 20000 5000 800\n");
    let call = ["explain", "allreduce", "-n", "8", "--per-host", "1", "-b", "64M"];
    let place = ["--aggregators", "1", "--prices", &prices];
    let rates: [(&[&str], _, _); 3] = [
        (&[], false, "1.25 Gbit/s"),
        (&["--aggregator-gbps", "40"], false, "5 Gbit/s"),
        (&["--aggregator-gbps", "80"], true, "10 Gbit/s"),
    ];
    for (rate, is_chosen, byte) in rates {
        let text = printed(&[&call[..], &place, rate].concat());
        let is_it = text.lines().any(|line| line.starts_with("* in_network "));
        assert_eq!(is_it, is_chosen, "{rate:?}: {text}");
        let line = text.lines().find(|line| line.starts_with("  aggregators ")).unwrap();
        assert!(line.contains(&format!(" {byte} ")), "{line}");
    }
}

#[test]
fn a_supposed_network_changes_the_estimates() {
    let call = ["explain", "all_reduce", "-n", "16", "--per-host", "8", "-b", "64MB"];
    let tcp = printed(&[&call[..], &["--link", "tcp-25"]].concat());
    let rdma = printed(&[&call[..], &["--link", "RDMA 400G", "--cpus", "64"]].concat());
    let line = |text: &str, start: &str| {
        text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned()
    };
    assert!(line(&tcp, "  tcp ").ends_with("25 Gbit/s   --link"), "{tcp}");
    assert!(line(&rdma, "  rdma-400 ").ends_with("400 Gbit/s   --link"), "{rdma}");
    assert!(
        rdma.starts_with("allreduce [f32 x 16777216, sum] on 16 ranks on 2 hosts of 8 with 64")
    );
    assert!(tcp.contains(" ms ") && rdma.contains(" ms "), "{tcp}{rdma}");
    let of_ring = |text: &str| line(&text.replace("* ", "  "), "  ring ");
    assert_ne!(of_ring(&tcp), of_ring(&rdma));
    let within = printed(&["explain", "allreduce", "-n", "4", "--link", "socket"]);
    assert!(line(&within, "  socket ").ends_with("   --link"), "{within}");
}

/// A large job is answered by a sample of its ranks, line by line.
#[test]
fn large_jobs_are_answered_soon() {
    for (ranks, is_sampled) in [("1000", false), ("10000", true)] {
        let arguments = ["plan", "allreduce", "-n", ranks];
        // A busy machine may delay the first line of a run. It does not delay that of each run.
        let mut runs = (0..3).map(|_| timed(&arguments));
        let soon = runs.find(|(_, first, all)| *first < *all / 4);
        let Some((text, _, all)) = soon else { panic!("{ranks} ranks: the first line is late") };
        // The schedules of all ranks would take many times as long.
        assert!(all < Duration::from_secs(60), "{ranks} ranks: {all:?}");
        let sample = text.lines().nth(1).unwrap();
        assert_eq!(sample.ends_with("of the ranks, a sample"), is_sampled, "{text}");
        let ring = text.lines().find(|line| line[2..].starts_with("ring ")).unwrap();
        assert_eq!(ring.split_whitespace().nth(2), Some("2"), "{text}");
    }
}

#[test]
fn averages_are_divided_in_the_end() {
    let text = printed(&["plan", "reduce_scatter", "-a", "direct", "-n", "2", "-o", "avg"]);
    assert!(text.contains("out[0..4] = (in[0..4]"), "{text}");
    assert!(text.contains("+ #1) / 2"), "{text}");
}

#[test]
fn an_empty_call_has_nothing_to_do() {
    let text = printed(&["plan", "allreduce", "-a", "ring", "-n", "3", "-b", "0"]);
    assert!(text.ends_with("\n\nnothing to do\n"), "{text}");
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    for (arguments, reason) in [
        ("allsum -n 3", "unknown collective; one of allreduce allgather"),
        ("alreduce -n 3", "unknown collective (did you mean allreduce?); one of allreduce"),
        ("alltoallv -n 3", "it has no schedule: its parts are messages"),
        ("allgatherv -n 3", "--counts: give one for each of 3 ranks"),
        ("allreduce", "--ranks <RANKS>"),
        ("allreduce -n 0", "-n: 1 to 65536 ranks, not 0"),
        (
            "allreduce -n 4 -a rign",
            "--algorithm rign: unknown (did you mean ring?); allreduce has ring, ",
        ),
        ("allreduce -n 4 -a ring --rank 4", "--rank 4: there are only 4 ranks"),
        ("allreduce -n 4 --rank 3", "--rank: name the --algorithm"),
        ("allreduce -n 4 --per-host 0", "--per-host: at least 1"),
        ("allreduce -n 4 --root 1", "--root: no rank is special in allreduce"),
        ("broadcast -n 4 --root 4", "--root 4: there are only 4 ranks"),
        ("broadcast -n 4 -o sum", "--op: broadcast does not combine elements"),
        ("barrier -n 4 -b 4", "--bytes: a barrier moves no elements"),
        ("allreduce -n 4 -b 7", "--bytes 7: not a whole number of f32 elements"),
        ("allreduce -n 4 -b 1.3M", "that is no whole number"),
        ("allreduce -n 4 -b 4 -c 1", "cannot be used with"),
        ("allreduce -n 4 -d f33", "unknown data type (did you mean f32?); one of i8"),
        ("allreduce -n 4 -o smu", "unknown reduction (did you mean sum?); one of sum"),
        ("allreduce -n 4 --link rdma-400", "--link rdma-400: one host has no network"),
        (
            "allreduce -n 4 --per-host 2 --link pigeon",
            "'pigeon' for '--link <CLASS>': give a network",
        ),
        ("allreduce -n 4 -c 4KB", "'4KB' for '--count"),
        ("allreduce -n 4 --channels 9", "9 is not in 1..=8"),
        ("allreduce -n 4 --chunk 3", "--chunk: at least one partial result of 4 B"),
        ("allreduce -n 4 -c 9999999G", "too many to count"),
        ("allreduce -n 4 -a ring -b 1G --chunk 4", "more than 2000000 steps to prove and print"),
        ("allgather -n 4096 -a direct", "more than 2000000 steps to prove and print"),
    ] {
        let error = refused(&[&["plan"], &arguments.split(' ').collect::<Vec<_>>()[..]].concat());
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}

/// The output of a run, with the times to its first line and to its end.
fn timed(arguments: &[&str]) -> (String, Duration, Duration) {
    let begin = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfold"));
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    let first = begin.elapsed();
    out.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{arguments:?}: {text}");
    (text, first, begin.elapsed())
}
