//! The overhead of a call: repeated 8-byte all-reduces of 2 ranks over shared memory, compared with
//! a minimal exchange. In the exchange each thread writes a number and a flag into a cache line and
//! waits for the other's. One run alternates between both on two threads, and prints the median of
//! the ratios.
//!
//! `cargo bench -p ringfold-bench --bench exchange`
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ringfold::{Communicator, Config, ReduceOp};
use ringfold_harness::{free_port, secret};

/// Calls or exchanges of a timed batch.
const BATCH: u64 = 20_000;

/// Batches of each kind.
const ROUNDS: usize = 31;

/// A message of one side: a number, and the number of its exchange as a flag.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    flag: AtomicU64,
    value: AtomicU64,
}

/// Two alternating lines for each side: a side may write the next number before the peer has read
/// the last one.
type Lines = [[Line; 2]; 2];

fn main() {
    let port = free_port();
    let lines = Lines::default();
    let mut ratios = std::thread::scope(|scope| {
        let other = scope.spawn(|| side(1, port, &lines));
        let ratios = side(0, port, &lines);
        other.join().unwrap();
        ratios
    });
    ratios.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (ours, bare, ratio) = ratios[ratios.len() / 2];
    println!("8-byte all-reduce, 2 ranks, shm: {ours:.0} ns; by hand: {bare:.0} ns");
    println!(
        "median ratio {ratio:.2} of {ROUNDS}, from {:.2} to {:.2}",
        ratios[0].2,
        ratios[ROUNDS - 1].2
    );
}

/// Returns the nanoseconds of a call and of an exchange, and their ratio, for every round.
fn side(rank: usize, port: u16, lines: &Lines) -> Vec<(f64, f64, f64)> {
    let environment = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("RINGFOLD_TRANSPORT", "shm".to_owned()),
        ("RINGFOLD_SECRET", secret()),
    ];
    let environment: BTreeMap<_, _> =
        environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut comm = Communicator::init_with(&Config::from_map(environment).unwrap()).unwrap();
    let mut exchanges = 0;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        comm.barrier().unwrap();
        let start = Instant::now();
        for number in 0..BATCH {
            let mut value = [number];
            comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
            assert_eq!(value, [2 * number]);
        }
        let ours = start.elapsed().as_nanos() as f64 / BATCH as f64;

        comm.barrier().unwrap();
        let start = Instant::now();
        for _ in 0..BATCH {
            exchanges += 1;
            exchange(rank, exchanges, lines);
        }
        let bare = start.elapsed().as_nanos() as f64 / BATCH as f64;
        ratios.push((ours, bare, ours / bare));
    }
    comm.leave().unwrap();
    ratios
}

fn exchange(rank: usize, number: u64, lines: &Lines) {
    let turn = usize::from(!number.is_multiple_of(2));
    let (own, theirs) = (&lines[rank][turn], &lines[1 - rank][turn]);
    own.value.store(number, Ordering::Relaxed);
    own.flag.store(number, Ordering::Release);
    while theirs.flag.load(Ordering::Acquire) != number {
        spin_loop();
    }
    let sum = theirs.value.load(Ordering::Relaxed) + number;
    assert_eq!(std::hint::black_box(sum), 2 * number);
}
