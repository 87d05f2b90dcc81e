//! Times many short all-reduces one by one and in one group of calls, in turn.
//!
//! `group-timing [CALLS] [BYTES] [ROUNDS]`; the defaults are 64 calls of 512 bytes and 200 rounds.
//! `ringrun` starts it. Rank 0 prints the median microseconds of both, and their ratio.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use ringfold::{Communicator, Error, Rank, ReduceOp};
use ringfold_launcher::{Stream, failed};

/// Repetitions of a round that are timed together.
const REPETITIONS: usize = 10;

fn main() -> ExitCode {
    run().map_or_else(|error| failed("error", &*error, 1), |()| ExitCode::SUCCESS)
}

fn run() -> anyhow::Result<()> {
    let mut given = std::env::args().skip(1);
    let mut next = |default| match given.next() {
        Some(text) => text.parse().context("group-timing [CALLS] [BYTES] [ROUNDS]"),
        None => Ok::<usize, _>(default),
    };
    let (calls, bytes, rounds) = (next(64)?, next(512)?, next(200)?.max(1));
    let mut comm = Communicator::init()?;
    let mut buffers = vec![vec![0.0_f32; bytes / size_of::<f32>()]; calls];
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for (is_group, times) in times.iter_mut().enumerate() {
            comm.barrier()?;
            let start = Instant::now();
            for _ in 0..REPETITIONS {
                perform(&mut comm, &mut buffers, is_group == 1)?;
            }
            let mut slowest = [start.elapsed().as_secs_f64()];
            comm.all_reduce(&mut slowest, ReduceOp::Max)?;
            times.push(slowest[0] / REPETITIONS as f64 * 1e6);
        }
    }
    let [single, group] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    if comm.rank() == Rank(0) {
        Stream::Out.write_all(
            format!(
                "one by one {single:.2} us, group {group:.2} us, ratio {:.2}\n",
                single / group
            )
            .as_bytes(),
        )?;
    }
    Ok(comm.leave()?)
}

fn perform(comm: &mut Communicator, buffers: &mut [Vec<f32>], is_group: bool) -> Result<(), Error> {
    if !is_group {
        return buffers.iter_mut().try_for_each(|it| comm.all_reduce(it, ReduceOp::Sum));
    }
    comm.group(|group| buffers.iter_mut().for_each(|it| group.all_reduce(it, ReduceOp::Sum)))
}
