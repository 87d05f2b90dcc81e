//! The core with eight children, beside the memory-bound limit of this machine: `limit.c` of
//! `bench/compare`, which sums as many inputs into one output by all cores. Both sides alternate,
//! and the ratio is the median of all rounds.
//!
//! ```text
//! cargo bench -p ringfold-innetwork
//! ```
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Instant;
use std::{env, fs, thread};

use rayon::{ThreadPool, ThreadPoolBuilder};
use ringfold_innetwork::server::core::{Group, Shape};
use ringfold_innetwork::wire::header::{Header, Kind};
use ringfold_types::{DataType, limits};

const CHILDREN: usize = 8;
const ROUNDS: usize = 15;
/// Bytes of one child's parts in a round. Those of all children exceed the caches.
const BYTES: usize = 32 << 20;

/// A group whose window of chunks lasts for a round.
struct Core {
    group: Group,
    data_type: DataType,
    /// Chunks of the rounds before.
    chunks: u64,
}

impl Core {
    fn new(data_type: DataType, chunk: usize, bytes: usize, pool: Option<Arc<ThreadPool>>) -> Self {
        let shape = Shape {
            first: 0,
            members: vec![1; CHILDREN],
            ranks: CHILDREN,
            window: bytes / chunk,
            chunk_bytes_max: chunk,
            is_top: true,
        };
        assert!(shape.is_sound(), "a window of {} chunks", shape.window);
        Self { group: Group::new(shape, pool), data_type, chunks: 0 }
    }

    /// Hands a child's parts over. Those of the last child let the group combine them.
    fn post(&mut self, child: usize) {
        let shape = self.group.shape();
        let (window, bytes) = (shape.window as u64, shape.chunk_bytes_max);
        for chunk in self.chunks..self.chunks + window {
            let bytes = u32::try_from(bytes).expect("a chunk within its limit");
            let plain = Header::plain(Kind::AllReduce, bytes);
            let header = Header { chunk, data_type: self.data_type, ..plain };
            let part = self.group.begin(child, &header).expect("a part in order");
            self.group.finish(child, &header, part).expect("equal parts");
        }
    }

    /// Prepares a round up to the parts of the last child.
    fn prepare(&mut self) {
        (0..CHILDREN - 1).for_each(|child| self.post(child));
    }

    /// Takes the results of a round.
    fn end(&mut self) {
        for child in 0..CHILDREN {
            while self.group.result(child).is_some() {
                self.group.deliver(child);
            }
        }
        self.chunks += self.group.shape().window as u64;
    }
}

/// Seconds in which the groups, each in a thread, combine their parts: from the start of the first
/// to the end of the last.
fn combine(cores: &mut [Core]) -> f64 {
    cores.iter_mut().for_each(Core::prepare);
    let barrier = Barrier::new(cores.len());
    let run = |core: &mut Core| {
        barrier.wait();
        let start = Instant::now();
        core.post(CHILDREN - 1);
        (start, Instant::now())
    };
    let spans: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = cores.iter_mut().map(|core| scope.spawn(|| run(core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    cores.iter_mut().for_each(Core::end);
    let start = spans.iter().map(|(start, _)| *start).min().expect("a group");
    let end = spans.iter().map(|(_, end)| *end).max().expect("a group");
    (end - start).as_secs_f64()
}

/// Compiles `limit.c`, as `bench/compare` does.
fn limit_program() -> PathBuf {
    let folder = env::temp_dir().join(format!("ringfold-limit-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/compare/programs/limit.c");
    let program = folder.join("limit");
    let mut compiler = Command::new("cc");
    compiler.args(["-O3", "-march=native", "-pthread", source, "-o"]).arg(&program);
    assert!(compiler.status().is_ok_and(|status| status.success()), "cc cannot compile limit.c");
    program
}

/// Seconds in which `limit.c` reduces as many inputs of `BYTES` bytes.
fn limit(program: &PathBuf) -> f64 {
    let (children, sizes) = (CHILDREN.to_string(), format!("{BYTES}:1"));
    let mut command = Command::new(program);
    let output = command.args(["reduce", &children, "out", "0.2", "9", &sizes]).output();
    let output = String::from_utf8(output.expect("limit runs").stdout).expect("plain text");
    // cell PLACE SIZE BYTES CALLS BATCHES MICROSECONDS ERRORS
    let micros = output.split_whitespace().nth(6).and_then(|micros| micros.parse::<f64>().ok());
    micros.expect("a time") / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let program = limit_program();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let pool = Arc::new(pool);
    println!("{CHILDREN} children, {threads} threads\ntype  chunk   groups  GB/s  of the limit");
    for data_type in [DataType::F32, DataType::Bf16] {
        for (chunk, groups) in [(limits::OFFLOAD_CHUNK_BYTES_MAX, 1), (1 << 20, 1)]
            .into_iter()
            .chain([(limits::OFFLOAD_CHUNK_BYTES, threads.next_power_of_two().max(4))])
        {
            let bytes = BYTES / groups;
            let mut cores: Vec<_> = (0..groups)
                .map(|_| Core::new(data_type, chunk, bytes, Some(Arc::clone(&pool))))
                .collect();
            combine(&mut cores);
            let (mut ratios, mut rates) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let bound = limit(&program);
                // The limit is the best batch of several, so this is as well.
                let best = (0..9).map(|_| combine(&mut cores)).fold(f64::MAX, f64::min);
                ratios.push(bound / best);
                rates.push(((CHILDREN + 1) * BYTES) as f64 / best / 1e9);
            }
            let (rate, ratio) = (median(rates), median(ratios));
            println!("{data_type:<5} {chunk:>7} {groups:>6} {rate:>5.1} {ratio:>6.2}");
        }
    }
    fs::remove_dir_all(program.parent().expect("its folder")).ok();
}
