//! The cost of waiting: the CPU time of a rank's process in a barrier while its peer is 100 ms
//! late, over shared memory and over TCP.
//!
//! `cargo bench -p ringfold-bench --bench waiting`
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::collections::BTreeMap;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringfold::{Communicator, Config};
use ringfold_harness::{free_port, secret};
use rustix::time::{ClockId, clock_gettime};

/// The delay of the peer.
const LATE: Duration = Duration::from_millis(100);

/// The most CPU time for a wait of that length.
const CPU_MAX_MS: f64 = 5.0;

const ROUNDS: usize = 11;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    // This program starts itself as the late rank.
    if let [_, role, transport, port] = &words[..]
        && role == "late"
    {
        return come_late(transport, port);
    }
    let within = ["shm", "tcp"].map(wait);
    assert!(within.iter().all(|good| *good), "waiting costs too much");
}

fn join(rank: usize, transport: &str, port: &str) -> Communicator {
    let environment = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_owned()),
        ("RINGFOLD_TRANSPORT", transport.to_owned()),
        ("RINGFOLD_SECRET", secret()),
    ];
    let environment: BTreeMap<_, _> =
        environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Communicator::init_with(&Config::from_map(environment).unwrap()).unwrap()
}

fn come_late(transport: &str, port: &str) {
    let mut comm = join(1, transport, port);
    for _ in 0..ROUNDS {
        comm.barrier().unwrap();
        sleep(LATE);
        comm.barrier().unwrap();
    }
    comm.leave().unwrap();
}

/// Prints the CPU time of waiting, and returns whether it is within `CPU_MAX_MS`.
fn wait(transport: &str) -> bool {
    let port = free_port();
    let port = port.to_string();
    let mut late = Command::new(std::env::current_exe().unwrap())
        .args(["late", transport, &port])
        .spawn()
        .unwrap();
    let mut comm = join(0, transport, &port);
    let mut spent: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            comm.barrier().unwrap();
            let (start, before) = (Instant::now(), cpu_ms());
            comm.barrier().unwrap();
            (cpu_ms() - before, start.elapsed().as_secs_f64() * 1e3)
        })
        .collect();
    comm.leave().unwrap();
    assert!(late.wait().unwrap().success());
    spent.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((middle, wall), (most, _)) = (spent[ROUNDS / 2], spent[ROUNDS - 1]);
    println!(
        "{transport}: {middle:.2} ms of CPU in a wait of {wall:.0} ms (median of {ROUNDS}, at most \
         {most:.2}); {CPU_MAX_MS} ms are allowed"
    );
    middle < CPU_MAX_MS
}

/// Returns the CPU time of this process in milliseconds.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
