//! Times all-reduce by size. Rank 0 prints the slowest rank's mean time and the bus bandwidth,
//! which is the bandwidth of the data that a ring would move over each link.
//!
//! ```text
//! ringrun -n 4 target/release/examples/bandwidth
//! ```
//!
//! `allreduce-perf` of the `bench` folder measures with more care and more options.
#![expect(clippy::print_stdout, reason = "the program prints its results")]

use std::time::Instant;

use ringfold::{Communicator, Rank, ReduceOp};

/// Calls of each size before the timed ones.
const WARM_UP: usize = 5;

/// Timed calls of each size.
const CALLS: u32 = 20;

fn main() -> Result<(), ringfold::Error> {
    let mut comm = Communicator::init()?;
    let size = comm.size() as f64;
    for count in [1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 22] {
        let mut buffer = vec![0.0_f32; count];
        for _ in 0..WARM_UP {
            comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
        }
        let begin = Instant::now();
        for _ in 0..CALLS {
            comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
        }
        let mut seconds = [begin.elapsed().as_secs_f64() / f64::from(CALLS)];
        comm.reduce(&mut seconds, ReduceOp::Max, Rank(0))?;
        if comm.rank() == Rank(0) {
            let bytes = size_of_val(&buffer[..]);
            let moved = bytes as f64 * 2.0 * (size - 1.0) / size;
            let (micros, rate) = (seconds[0] * 1e6, moved / seconds[0] / 1e9);
            println!("{bytes:>10} bytes {micros:>10.1} us {rate:>8.2} GB/s");
        }
    }
    comm.leave()
}
