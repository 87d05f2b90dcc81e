//! Runs allreduce-perf under real launchers, with no settings except theirs. The tests need root
//! and the launchers, so they are ignored by default:
//!
//! ```text
//! apt-get install mpich openmpi-bin munge slurmctld slurmd slurm-client iproute2
//! cargo test -p ringfold-tests --test launchers -- --ignored --test-threads 1
//! ```
//!
//! A test without its launcher prints that it is skipped.
//! `RINGFOLD_TEST_REQUIRE=mpich,openmpi,slurm,netns` (and `torchrun`, with torch) makes that a
//! failure.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

use std::net::TcpListener;
use std::process::Command;

use ringfold_harness::{Folder, Job, needed, program, secret};

use crate::hosts::Hosts;
use crate::perf::{ARGS, DEADLINE, assert_right, perf};
use crate::slurm::Slurm;

mod hosts;
mod perf;
mod slurm;
mod top;
mod two_machines;

/// Runs `command` to its end with a new home and the ranks' log, and checks its output.
fn run(command: &mut Command, launcher: &str, ranks: usize) {
    let home = Folder::new();
    command.env("HOME", home.path()).env("RINGFOLD_DEBUG", "INFO");
    assert_right(&Job::start(command).finish(DEADLINE), launcher, ranks);
}

/// Runs ranks that make several communicators, started by `command`.
fn run_again(command: &mut Command, ranks: usize) {
    let home = Folder::new();
    command.env("HOME", home.path()).arg(program::binary("rank")).args(["again", "4"]);
    let outcome = Job::start(command).finish(DEADLINE);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("done\n").count(), ranks, "{outcome:?}");
}

#[test]
#[ignore = "wants mpich"]
fn hydra() {
    if !needed::are_there("mpich", &["mpiexec.mpich"]) {
        return;
    }
    for ranks in [1, 3, 4] {
        let mut command = Command::new("mpiexec.mpich");
        command.args(["-n", &ranks.to_string()]).arg(perf()).args(ARGS);
        run(&mut command, "Hydra (PMI-1)", ranks);
        let mut command = Command::new("mpiexec.mpich");
        command.args(["-n", &ranks.to_string()]);
        run_again(&mut command, ranks);
    }
}

#[test]
#[ignore = "wants openmpi-bin"]
fn open_mpi() {
    if !needed::are_there("openmpi", &["mpirun.openmpi"]) {
        return;
    }
    for ranks in [1, 4] {
        let mut command = Command::new("mpirun.openmpi");
        command.args(["--oversubscribe", "--allow-run-as-root", "-n", &ranks.to_string()]);
        run(command.arg(perf()).args(ARGS), "Open MPI", ranks);
        let mut command = Command::new("mpirun.openmpi");
        command.args(["--oversubscribe", "--allow-run-as-root", "-n", &ranks.to_string()]);
        run_again(&mut command, ranks);
    }
}

#[test]
#[ignore = "wants torch for python3"]
fn torchrun() {
    if !needed::succeeds("torchrun", &["python3", "-c", "import torch.distributed.run"]) {
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]);
    run(command.arg("--no-python").arg(perf()).args(ARGS), "torchrun", 4);
}

/// Sets torchrun's variables, with a listener on the port that they name, as torchrun's agent has.
/// Ranks that know the job's secret do not ask for it there.
#[test]
#[ignore = "belongs to the launchers"]
fn variables_of_torchrun() {
    let own_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for address in ["127.0.0.1", "localhost", own_name.trim()] {
        let store = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        let port = store.local_addr().unwrap().port();
        let secret = secret();
        let start = |rank: usize| {
            let settings = [
                ("RINGFOLD_SECRET", secret.clone()),
                ("RANK", rank.to_string()),
                ("LOCAL_RANK", rank.to_string()),
                ("GROUP_RANK", "0".into()),
                ("ROLE_RANK", rank.to_string()),
                ("WORLD_SIZE", "4".into()),
                ("LOCAL_WORLD_SIZE", "4".into()),
                ("MASTER_ADDR", address.into()),
                ("MASTER_PORT", port.to_string()),
                ("TORCHELASTIC_RESTART_COUNT", "0".into()),
                ("TORCHELASTIC_MAX_RESTARTS", "0".into()),
                ("TORCHELASTIC_RUN_ID", "none".into()),
                ("TORCHELASTIC_USE_AGENT_STORE", "True".into()),
                ("RINGFOLD_DEBUG", "INFO".into()),
            ];
            Job::start(Command::new(perf()).args(ARGS).envs(settings))
        };
        let jobs: Vec<Job> = (0..4).map(start).collect();
        let mut outcomes = jobs.into_iter().map(|job| job.finish(DEADLINE));
        let mut all = outcomes.next().unwrap();
        for outcome in outcomes {
            assert!(outcome.status.success(), "{address}: {outcome:?}");
            all.stdout.push_str(&outcome.stdout);
            all.stderr.push_str(&outcome.stderr);
        }
        assert_right(&all, "torchrun", 4);
        store.set_nonblocking(true).unwrap();
        assert!(store.accept().is_err(), "{address}: a rank has called torch's store");
    }
}

#[test]
#[ignore = "wants root, munge, slurmctld, slurmd and slurm-client"]
fn slurm_steps() {
    let Some(slurm) = Slurm::start() else { return };
    for (ranks, mpi) in [(4, "--mpi=none"), (1, "--mpi=none"), (4, "--mpi=pmi2")] {
        let mut command = slurm.command("srun");
        command.args([mpi, "-n", &ranks.to_string()]).arg(perf()).args(ARGS);
        run(&mut command, "Slurm", ranks);
        let mut command = slurm.command("srun");
        command.args([mpi, "-n", &ranks.to_string()]);
        run_again(&mut command, ranks);
    }
    let mut command = slurm.command("srun");
    let outcome = Job::start(command.args(["-n", "2"]).arg(perf()).args(["--ranks", "2"]));
    let outcome = outcome.finish(DEADLINE);
    let refusal = "--ranks starts ranks, but SLURM_PROCID says that this process is one already";
    assert!(!outcome.status.success() && outcome.stderr.contains(refusal), "{outcome:?}");
}

#[test]
#[ignore = "wants root and Slurm as above"]
fn top_sees_a_slurm_step() {
    let Some(slurm) = Slurm::start() else { return };
    top::names_the_hung_rank(slurm.command("srun").args(["-n", "4"]));
}

#[test]
#[ignore = "wants torch for python3"]
fn top_sees_a_job_of_torchrun() {
    if !needed::succeeds("torchrun", &["python3", "-c", "import torch.distributed.run"]) {
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]);
    top::names_the_hung_rank(command.arg("--no-python"));
}

#[test]
#[ignore = "wants mpich"]
fn top_sees_a_job_of_hydra() {
    if needed::are_there("mpich", &["mpiexec.mpich"]) {
        top::names_the_hung_rank(Command::new("mpiexec.mpich").args(["-n", "4"]));
    }
}

/// Hydra inside an allocation takes precedence over Slurm's variables.
#[test]
#[ignore = "wants root, Slurm as above, and mpich"]
fn hydra_within_slurm() {
    if !needed::are_there("mpich", &["mpiexec.mpich"]) {
        return;
    }
    let Some(slurm) = Slurm::start() else { return };
    for how in ["fork", "slurm"] {
        let mut command = slurm.command("salloc");
        command.args(["-n", "4", "mpiexec.mpich", "-launcher", how, "-n", "4"]);
        run(command.arg(perf()).args(ARGS), "Hydra (PMI-1)", 4);
    }
}

#[test]
#[ignore = "wants root and ip"]
fn ringrun_on_two_hosts() {
    let Some(hosts) = Hosts::join() else { return };
    run_on(&hosts, hosts.ringrun().arg(perf()).args(ARGS), "ringrun");
    run_on(&hosts, hosts.ringrun_by_interface("=eth0").arg(perf()).args(ARGS), "ringrun");
}

/// Hosts whose addresses are on the loopback interface, of IPv6 alone, beside the equal address of
/// management ports, or of IPv4 networks without a route between them.
#[test]
#[ignore = "wants root and ip"]
fn ringrun_at_addresses_of_every_kind() {
    let on_lo = ["10.77.0.1", "10.77.0.2"];
    let v6 = ["fd00:77::1/64 dev eth0 nodad", "fd00:77::2/64 dev eth0 nodad"];
    for (addresses, routed, at) in [
        ([&["10.77.0.1/32 dev lo"][..], &["10.77.0.2/32 dev lo"]], Some(on_lo), on_lo[0]),
        ([&v6[..1], &v6[1..]], None, "fd00:77::1"),
        ([&["10.5.0.1/24 dev eth0", v6[0]], &["10.6.0.2/24 dev eth0", v6[1]]], None, "fd00:77::1"),
    ] {
        let Some(hosts) = Hosts::join() else { return };
        hosts.move_to(addresses, routed);
        hosts.add_management();
        let mut command = hosts.ringrun_at(at);
        command.env("RINGFOLD_TRANSPORT", "shm,tcp").arg(program::binary("rank"));
        let outcome = Job::start(command.args(["again", "2"])).finish(DEADLINE);
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout.matches("done\n").count(), 4, "{outcome:?}");
    }
}

/// Only loopback addresses are allowed, and they lead to no other host.
#[test]
#[ignore = "wants root and ip"]
fn hosts_without_common_addresses_are_named_with_them() {
    let Some(hosts) = Hosts::join() else { return };
    let mut command = hosts.ringrun();
    command.env("RINGFOLD_SOCKET_IFNAME", "lo").arg(program::binary("rank"));
    let outcome = Job::start(command.args(["again", "1"])).finish(DEADLINE);
    assert!(!outcome.status.success() && outcome.took < DEADLINE / 2, "{outcome:?}");
    let words = "have no addresses to reach each other: rank 0 has 127.0.0.1 on lo (leads to no \
                 other host), ";
    assert!(outcome.stderr.contains(words), "{outcome:?}");
}

/// The one host has no IPv4, not even on the loopback interface.
#[test]
#[ignore = "wants root and ip"]
fn one_host_without_ipv4() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.move_to([&[], &[]], None);
    hosts.ip("-n @a addr del 127.0.0.1/8 dev lo");
    for transport in ["shm", "tcp"] {
        let mut command = hosts.on_first(program::binary("ringrun"));
        command.args(["-n", "3"]).env("RINGFOLD_TRANSPORT", transport);
        let outcome = Job::start(command.arg(program::binary("rank")).args(["again", "2"]));
        let outcome = outcome.finish(DEADLINE);
        assert!(outcome.status.success(), "{outcome:?}");
    }
}

#[test]
#[ignore = "wants root, ip and mpich"]
fn hydra_on_two_hosts() {
    if !needed::are_there("mpich", &["mpiexec.mpich"]) {
        return;
    }
    let Some(hosts) = Hosts::join() else { return };
    let mut command = hosts.on_first("mpiexec.mpich");
    command.args(["-launcher", "ssh", "-launcher-exec"]).arg(hosts.agent());
    command.args(["-localhost", hosts::INSIDE[0], "-hosts", &hosts.slots(), "-n", "4"]);
    run_on(&hosts, command.arg(perf()).args(ARGS), "Hydra (PMI-1)");
}

#[test]
#[ignore = "wants root, ip and openmpi-bin"]
fn open_mpi_on_two_hosts() {
    if !needed::are_there("openmpi", &["mpirun.openmpi"]) {
        return;
    }
    let Some(hosts) = Hosts::join() else { return };
    let mut command = hosts.on_first("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--mca", "plm_rsh_agent"]).arg(hosts.agent());
    command.args(["-x", "RINGFOLD_DEBUG", "--host", &hosts.slots(), "-n", "4"]);
    run_on(&hosts, command.arg(perf()).args(ARGS), "Open MPI");
    // Rank 0 is on another host than mpirun.
    let mut command = hosts.on_first("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--mca", "plm_rsh_agent"]).arg(hosts.agent());
    command.args(["--host", &hosts.names[1], "-n", "1", perf().to_str().unwrap()]).args(ARGS);
    command.args([":", "--host", &hosts.names[0], "-n", "1"]).arg(perf()).args(ARGS);
    let outcome = Job::start(&mut command).finish(DEADLINE);
    let remedy = format!("mpirun -x MASTER_ADDR={} ...", hosts::INSIDE[1]);
    assert!(!outcome.status.success() && outcome.stderr.contains(&remedy), "{outcome:?}");
}

/// Runs `command`, which starts two ranks on each host. Ranks use shared memory on a host and TCP
/// between hosts.
fn run_on(hosts: &Hosts, command: &mut Command, launcher: &str) {
    let outcome = Job::start(command).finish(DEADLINE);
    assert_right(&outcome, launcher, 4);
    for rank in 0..4 {
        for peer in (0..4).filter(|peer| *peer != rank) {
            let transport = if rank / 2 == peer / 2 { "shm" } else { "tcp" };
            let line = format!("rank {rank}: rank {peer} by {transport}\n");
            assert_eq!(outcome.stderr.matches(&line).count(), 1, "{line}{outcome:?}");
        }
    }
    hosts.assert_deserted();
}

#[test]
#[ignore = "wants root and ip"]
fn a_rank_killed_on_the_other_host_is_named() {
    let Some(hosts) = Hosts::join() else { return };
    let endless = ["-b", "8", "-e", "8", "-n", "100000000", "-c", "0"];
    let job = Job::start(hosts.ringrun().arg(perf()).args(endless));
    let line = job.wait_for_line(DEADLINE, |line| line.starts_with("#  Rank  3 "));
    job.wait_for_line(DEADLINE, |line| line.trim_end().ends_with("(GB/s)"));
    let pid = line.split_whitespace().skip_while(|word| *word != "Pid").nth(1).unwrap();
    hosts.kill(pid.parse().unwrap());
    let outcome = job.finish(DEADLINE);
    assert_eq!(outcome.status.code(), Some(128 + 9), "{outcome:?}");
    let fate = format!("rank 3 (pid {pid}, host {}) was killed by signal 9", hosts.names[1]);
    assert!(outcome.stderr.trim_end().lines().last().unwrap().contains(&fate), "{outcome:?}");
    for rank in 0..3 {
        let cause = format!("on rank {rank}: the process of rank 3 is gone");
        assert!(outcome.stderr.contains(&cause), "{cause}: {outcome:?}");
    }
    hosts.assert_deserted();
}
