//! The setup of communicators between processes: repeatedly, through the named interfaces, and only
//! with equal settings.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fabric;
mod foreign;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringfold_harness::{Folder, Job, Outcome, Ranks, needed, program};

/// The deadline of a job, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Far more than ranks need to learn of a failure, and far less than the join timeout.
const SOON: Duration = Duration::from_secs(30);

fn ringrun(ranks: usize) -> Command {
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", &ranks.to_string(), "--timeout", "60"]);
    command
}

/// Starts ranks with torch's variables, and returns their outcomes.
fn by_hand(ranks: usize, settings: impl Fn(usize, &mut Command)) -> Vec<Outcome> {
    Ranks::start(ranks, settings).finish(DEADLINE)
}

#[test]
fn a_program_makes_several_communicators() {
    let mut command = ringrun(3);
    let outcome = Job::start(command.arg(program::binary("rank")).args(["again", "4"]));
    let outcome = outcome.finish(DEADLINE);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout, "done\n".repeat(3), "{outcome:?}");
    let again = |_, command: &mut Command| {
        command.args(["again", "4"]);
    };
    for outcome in by_hand(3, again) {
        assert!(outcome.status.success(), "{outcome:?}");
    }
}

#[test]
fn the_next_program_of_a_script_joins_again() {
    let rank = program::binary("rank");
    let script = format!("{0} again 1 && {0} again 1", rank.display());
    let outcome = Job::start(ringrun(2).args(["sh", "-c", &script])).finish(DEADLINE);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout, "done\n".repeat(4), "{outcome:?}");
}

/// Runs a job that fails. Returns its outputs. The ranks do not wait until the join timeout.
fn failing(command: &mut Command) -> String {
    let outcome = Job::start(command.env("RINGFOLD_JOIN_TIMEOUT", "60")).finish(DEADLINE);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.took < SOON, "{outcome:?}");
    outcome.stdout + &outcome.stderr
}

#[test]
fn a_rank_that_ends_before_it_joins_is_named_at_once() {
    let rank = program::binary("rank");
    for ended in [1, 0] {
        let script =
            format!("[ $RINGFOLD_RANK = {ended} ] && exit 0; exec {} again 1", rank.display());
        let said = failing(ringrun(3).args(["sh", "-c", &script]));
        let words = format!("rank {ended} cannot join: it ended (exit status 0) before it joined");
        assert!(said.contains(&words), "{said}");
    }
}

/// Rank 0 listens at the address that `MASTER_ADDR` names, of either family.
#[test]
fn ranks_meet_at_every_loopback_address() {
    for address in ["::1", "127.0.0.2", "localhost"] {
        let outcomes = by_hand(2, |_, command| {
            command.args(["again", "1"]).env("MASTER_ADDR", address);
            command.env("RINGFOLD_JOIN_TIMEOUT", "60");
        });
        for outcome in outcomes {
            assert!(outcome.status.success() && outcome.took < SOON, "{address}: {outcome:?}");
        }
    }
}

/// A rank that cannot look at its host, before the ranks meet.
#[test]
fn the_others_get_the_reason_of_a_rank_that_cannot_begin() {
    for who in [1, 0] {
        let outcomes = by_hand(3, |rank, command| {
            if rank == who {
                command.env("RINGFOLD_TOPO_FILE", "/no/such/file");
            }
            command.args(["again", "1"]).env("RINGFOLD_JOIN_TIMEOUT", "60");
        });
        let words = format!("rank {who} cannot join: RINGFOLD_TOPO_FILE cannot be used");
        for (rank, outcome) in outcomes.iter().enumerate() {
            assert!(!outcome.status.success() && outcome.took < SOON, "{outcome:?}");
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert_eq!(said.contains(&words), rank != who, "{outcome:?}");
            assert!(said.contains("/no/such/file"), "{outcome:?}");
        }
    }
}

/// Rank 0 cannot make the shared memory of its host, after the ranks have met.
#[test]
fn the_others_get_the_reason_of_a_rank_whose_setup_fails() {
    let rank = program::binary("rank");
    let script =
        format!("[ $RINGFOLD_RANK = 0 ] && ulimit -f 195; exec {} again 1", rank.display());
    let mut command = ringrun(3);
    let said = failing(command.env("RINGFOLD_TRANSPORT", "shm").args(["sh", "-c", &script]));
    let agreed = said.lines().find(|line| line.contains("the ranks agree: "));
    let agreed = agreed.unwrap_or_else(|| panic!("{said}"));
    assert!(agreed.contains("rank 0 cannot set up shared memory"), "{said}");
    assert!(agreed.contains("raise `ulimit -f`"), "{said}");
    assert!(!said.contains("dropped its communicator"), "{said}");
}

/// All ranks of a group get the reason of the one that cannot join, also if it is the group's rank
/// 0, at whatever moment it lacks a descriptor. The whole communicator goes on.
#[test]
fn a_group_that_lacks_a_rank_fails_on_all_ranks_at_once() {
    for (who, spare) in [(0, 0), (0, 2), (1, 2), (1, 4), (2, 6), (0, 8)] {
        let mut command = ringrun(3);
        command.env("RINGFOLD_JOIN_TIMEOUT", "60").arg(program::binary("rank"));
        let outcome = Job::start(command.args(["short", &who.to_string(), &spare.to_string()]));
        let outcome = outcome.finish(DEADLINE);
        assert!(outcome.status.success() && outcome.took < SOON, "{outcome:?}");
        assert_eq!(outcome.stdout.matches("barrier passed").count(), 3, "{outcome:?}");
        let (made, failed) = ("group made", "group failed: ");
        let count = |word| outcome.stdout.matches(word).count();
        assert!([(0, 3), (3, 0)].contains(&(count(made), count(failed))), "{spare}: {outcome:?}");
        let names_it = ["Too many open files", "file descriptor"];
        let names_it = names_it.iter().any(|words| outcome.stdout.contains(words));
        assert!(count(failed) == 0 || names_it, "{outcome:?}");
        assert!(spare > 2 || count(failed) == 3, "{outcome:?}");
    }
}

#[test]
fn ranks_with_separate_homes_warn_early() {
    let homes = Folder::new();
    let outcomes = by_hand(2, |rank, command| {
        let home = homes.path().join(rank.to_string());
        std::fs::create_dir_all(&home).unwrap();
        command.env_remove("RINGFOLD_SECRET").env_remove("RINGFOLD_DEBUG").env("HOME", home);
        command.env("RINGFOLD_JOIN_TIMEOUT", "4").args(["again", "1"]);
    });
    let ways = ["RINGFOLD_SECRET_FILE", "RINGFOLD_SECRET (", "a launcher that carries one"];
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert!(!outcome.status.success(), "{outcome:?}");
        let is_early = |line: &&str| line.contains(" has waited ") || line.contains("keeps trying");
        let warning = outcome.stderr.lines().filter(|line| line.contains("WARN")).find(is_early);
        let warning = warning.unwrap_or_else(|| panic!("rank {rank} has not warned: {outcome:?}"));
        let error = outcome.stderr.lines().last().unwrap();
        for text in [warning, error] {
            assert!(ways.iter().all(|way| text.contains(way)), "{text}");
        }
    }
    let [zero, one] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(zero.stderr.contains(" has waited 2s for rank 1; 1 of 2 ranks have joined; "));
    assert!(one.stderr.contains("rank 1 has not joined: 127.0.0.1:"), "{one:?}");
}

#[test]
fn prices_that_rank_0_cannot_use_are_the_same_error_on_every_rank() {
    let settings = |rank: usize, command: &mut Command| {
        if rank == 0 {
            command.env("RINGFOLD_PRICES", "/nowhere/prices");
        }
    };
    for (rank, outcome) in by_hand(3, settings).into_iter().enumerate() {
        let cause =
            "cause on rank 0, RINGFOLD_PRICES=\"/nowhere/prices\" cannot be used: No such file";
        assert!(outcome.stdout.starts_with(cause), "{rank}: {outcome:?}");
        assert_eq!(outcome.status.code(), Some(3));
        assert!(outcome.took < Duration::from_secs(20), "before the join timeout: {outcome:?}");
    }
}

#[test]
fn ranks_with_different_settings_are_refused() {
    for (name, value, has) in [
        ("RINGFOLD_CHUNK", "64K", "65536"),
        ("RINGFOLD_CHANNELS", "2", "2"),
        ("RINGFOLD_ALGO", "allreduce:ring", "allreduce:ring"),
    ] {
        let settings = |rank: usize, command: &mut Command| {
            if rank == 1 {
                command.env(name, value);
            }
        };
        for (rank, outcome) in by_hand(3, settings).into_iter().enumerate() {
            let cause = format!(
                "cause ranks differ in {name}: ranks 0, 2 have unset, rank 1 has {has}; give all \
                 of them the same\n"
            );
            assert!(outcome.stdout.starts_with(&cause), "{rank}: {outcome:?}");
            assert_eq!(outcome.status.code(), Some(3));
        }
    }
}

#[test]
fn ranks_use_the_named_interface() {
    let rank = program::binary("rank");
    let with = |name: &str| {
        let mut command = ringrun(2);
        command.arg(&rank).env("RINGFOLD_TRANSPORT", "shm").env("RINGFOLD_SOCKET_IFNAME", name);
        Job::start(&mut command).finish(DEADLINE)
    };
    assert!(with("=lo").status.success());
    // The control plane uses named interfaces only, too.
    let outcome = with("=nosuch");
    let cause = "cause no network interface to use: no interface matches `=nosuch`";
    assert_eq!(outcome.stdout.matches(cause).count(), 2, "{outcome:?}");
}

/// Returns the descriptors and mappings of each rank, from the output of `rank footprint`.
fn footprints(outcome: &Outcome) -> Vec<[usize; 2]> {
    let after = |line: &str, word: &str| {
        let mut words = line.split(' ').skip_while(|it| *it != word).skip(1);
        words.next().unwrap().parse().unwrap()
    };
    let lines = outcome.stdout.lines().filter(|line| line.starts_with("footprint "));
    lines.map(|line| ["descriptors", "mappings"].map(|word| after(line, word))).collect()
}

/// Through staging buffers, and by messages.
#[test]
fn a_rank_holds_little_for_each_of_many_peers() {
    for (bytes, algorithms) in [("1048576", "staged"), ("8", "recursive_doubling")] {
        let mut command = ringrun(64);
        command.arg(program::binary("rank")).args(["footprint", bytes]);
        command.env("RINGFOLD_TRANSPORT", "shm");
        command.env("RINGFOLD_ALGO", format!("allreduce:{algorithms}"));
        let outcome = Job::start(&mut command).finish(DEADLINE);
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout.matches("sums true").count(), 64, "{outcome:?}");
        let mut found = footprints(&outcome);
        assert_eq!(found.len(), 64);
        // Rank 0 has the control connections of all ranks.
        found.sort_unstable();
        found.pop();
        let few = found.iter().all(|[descriptors, mappings]| *descriptors < 64 && *mappings < 150);
        assert!(few, "{algorithms}: descriptors and mappings {found:?}");
    }
}

#[test]
fn few_descriptors_of_an_ordinary_user_are_enough_for_many_ranks() {
    let name = "ordinary user";
    if !needed::is_root(name) || !needed::are_there(name, &["setpriv", "sh"]) {
        return;
    }
    let (ringrun, rank) = (program::binary("ringrun"), program::binary("rank"));
    let [ringrun, rank] = [ringrun, rank].map(|path| path.display().to_string());
    let become_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let may_run = ["test", "-x", &rank];
    if !needed::succeeds(name, &[&become_nobody[..], &may_run].concat()) {
        return;
    }
    let script = format!("ulimit -n 256; exec {ringrun} -n 64 --timeout 60 {rank} footprint 8");
    let mut command = Command::new(become_nobody[0]);
    command.args(&become_nobody[1..]).args(["sh", "-c", &script]);
    let outcome = Job::start(command.env("RINGFOLD_TRANSPORT", "shm")).finish(DEADLINE);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("sums true").count(), 64, "{outcome:?}");
}

/// A change of any of these sources must show.
#[test]
fn each_crate_names_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (folder, named) in [
        ("crates/types", ringfold_types::SOURCES),
        ("topology", ringfold_topology::SOURCES),
        ("collectives", ringfold_collectives::SOURCES),
        ("transport", ringfold_transport::SOURCES),
        ("crates/bootstrap", ringfold_bootstrap::SOURCES),
    ] {
        let digest = ringfold_sources::digest(&root.join(folder).join("src")).unwrap();
        assert_eq!(format!("{digest:016x}"), named, "{folder}");
    }
}

/// Pods and containers may share a network and not a PID namespace.
#[test]
fn ranks_of_separate_pid_namespaces_meet() {
    let alone = ["unshare", "-pf", "--mount-proc"];
    if !needed::succeeds("pid namespaces", &[&alone[..], &["true"]].concat()) {
        return;
    }
    for transport in ["shm", "shm,tcp"] {
        let mut command = ringrun(2);
        command.args(alone).arg(program::binary("rank")).args(["again", "2"]);
        let outcome = Job::start(command.env("RINGFOLD_TRANSPORT", transport)).finish(DEADLINE);
        assert!(outcome.status.success(), "{transport}: {outcome:?}");
        assert_eq!(outcome.stdout, "done\n".repeat(2), "{transport}: {outcome:?}");
    }
}
