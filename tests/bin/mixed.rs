//! Calls of all kinds in an order that a seed decides, with known results.

use ringfold::{Communicator, Error, Rank, ReduceOp};
use ringfold_harness::Random;

/// Elements of a call: none, one, few, a cache line and one more, a page, and several pieces.
const COUNTS: [usize; 9] = [0, 1, 2, 13, 17, 1000, 4096, 30_011, 262_144];
/// The counts of most calls are among the first `SHORT` of `COUNTS`.
const SHORT: usize = 6;

/// Makes `calls` calls; with 0, calls until one fails. Prints a line for each wrong result. All
/// ranks pass the same seed and number.
pub(crate) fn mixed(comm: &mut Communicator, seed: u64, calls: usize) -> Result<(), Error> {
    let mut random = Random::new(seed);
    let (rank, size) = (comm.rank().index(), comm.size());
    let mut window = comm.alloc::<f32>(COUNTS[COUNTS.len() - 1])?;
    let mut call = 0;
    while calls == 0 || call < calls {
        let kind = random.below(8);
        let range = if random.below(16) == 0 { COUNTS.len() } else { SHORT };
        let count = COUNTS[random.below(range)];
        let root = random.below(size);
        // Small whole numbers: every sum is exact.
        let value = |of: usize, at: usize| ((call * 31 + of * 7 + at) % 512) as f32;
        let sum = |at: usize| (0..size).map(|of| value(of, at)).sum::<f32>();
        let own = |len: usize| -> Vec<f32> { (0..len).map(|at| value(rank, at)).collect() };
        let (what, is_right) = match kind {
            0 | 1 => {
                let mut buffer = own(count);
                comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
                ("all_reduce", buffer.iter().enumerate().all(|(at, x)| *x == sum(at)))
            }
            2 => {
                (0..count).for_each(|at| window[at] = value(rank, at));
                comm.all_reduce_window(&mut window, ..count, ReduceOp::Sum)?;
                ("all_reduce_window", (0..count).all(|at| window[at] == sum(at)))
            }
            3 => {
                let count = count / size;
                let mut all = vec![-1.0; count * size];
                comm.all_gather_into(&own(count), &mut all)?;
                let right = |(at, x): (usize, &f32)| *x == value(at / count, at % count);
                ("all_gather", all.iter().enumerate().all(right))
            }
            4 => {
                let count = count / size;
                let mut part = vec![-1.0; count];
                comm.reduce_scatter_into(&own(count * size), &mut part, ReduceOp::Sum)?;
                let right = |(at, x): (usize, &f32)| *x == sum(rank * count + at);
                ("reduce_scatter", part.iter().enumerate().all(right))
            }
            5 => {
                let mut buffer = own(count);
                comm.broadcast(&mut buffer, Rank::at(root))?;
                ("broadcast", buffer.iter().enumerate().all(|(at, x)| *x == value(root, at)))
            }
            6 => {
                let mut buffer = own(count);
                comm.reduce(&mut buffer, ReduceOp::Sum, Rank::at(root))?;
                let right = buffer.iter().enumerate().all(|(at, x)| *x == sum(at));
                ("reduce", rank != root || right)
            }
            _ => {
                comm.barrier()?;
                ("barrier", true)
            }
        };
        if !is_right {
            println!("wrong {what} of {count} elements, call {call}, root {root}");
        }
        call += 1;
    }
    Ok(())
}
