//! All-reduce in a window: ranks of one host work directly in each other's memory.
//!
//! ```text
//! ringrun -n 4 target/release/examples/windows
//! ```
//!
//! A window is a buffer that every rank allocates together. Calls in windows have their own methods
//! (`all_reduce_window`), and every rank passes the same window and range. The window is also an
//! ordinary slice, for computing on it and for every other call.
#![expect(clippy::print_stdout, reason = "the program prints its result")]

use ringfold::{Communicator, Rank, ReduceOp};

/// Elements of the window.
const LEN: usize = 1 << 20;

fn main() -> Result<(), ringfold::Error> {
    let mut comm = Communicator::init()?;
    let mut gradient = comm.alloc::<f32>(LEN)?;
    gradient.fill(1.0);

    // The two halves are two calls, as of a model whose layers are ready one after the other.
    comm.all_reduce_window(&mut gradient, ..LEN / 2, ReduceOp::Avg)?;
    comm.all_reduce_window(&mut gradient, LEN / 2.., ReduceOp::Sum)?;

    // Every other collective takes the window as a slice.
    comm.broadcast(&mut gradient[..16], Rank(0))?;

    if comm.rank() == Rank(0) {
        let (first, last) = (gradient[0], gradient[LEN - 1]);
        println!("{} ranks: the mean is {first} and the sum {last}", comm.size());
    }
    comm.leave()
}
