//! The smallest program: every rank adds its number, and rank 0 prints the sum.
//!
//! ```text
//! ringrun -n 4 target/release/examples/hello
//! ```
#![expect(clippy::print_stdout, reason = "the program prints its result")]

use ringfold::{Communicator, Rank, ReduceOp};

fn main() -> Result<(), ringfold::Error> {
    let mut comm = Communicator::init()?;
    let mut sum = [comm.rank().0];
    comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    if comm.rank() == Rank(0) {
        println!("hello from {} ranks: the sum of their numbers is {}", comm.size(), sum[0]);
    }
    comm.leave()
}
