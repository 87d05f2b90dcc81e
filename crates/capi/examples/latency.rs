//! Times an all-reduce of 8 bytes by the functions for C and by the methods of Rust, in turn, over
//! communicators of the same ranks. Rank 0 prints the medians and their difference.
//!
//! ```text
//! ringrun -n 2 target/release/examples/latency
//! ```
#![allow(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the program prints its result")]

use std::ptr::{null, null_mut};
use std::time::Instant;

use ringfold::{Communicator, Error, Rank, ReduceOp};
use ringfold_capi::collective::ringfold_all_reduce;
use ringfold_capi::comm::ringfold_comm_free;
use ringfold_capi::init::ringfold_init;
use ringfold_capi::types::{RINGFOLD_VERSION, ringfold_op, ringfold_result, ringfold_type};

/// Calls of a batch, and batches of each kind.
const CALLS: u32 = 20_000;
const BATCHES: usize = 101;

/// Nanoseconds of a call, in a batch.
fn batch(mut call: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let began = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Error> {
    let mut comm = Communicator::init()?;
    let mut handle = null_mut();
    // SAFETY: it points to memory of a handle.
    let made = unsafe { ringfold_init(RINGFOLD_VERSION, &raw mut handle) };
    assert_eq!(made, ringfold_result::RINGFOLD_SUCCESS);
    let (float64, sum) = (ringfold_type::RINGFOLD_FLOAT64 as u32, ringfold_op::RINGFOLD_SUM as u64);
    let (mut rust, mut c, mut value) = (Vec::new(), Vec::new(), [0.0_f64]);
    for _ in 0..BATCHES {
        rust.push(batch(|| comm.all_reduce(&mut value, ReduceOp::Sum))?);
        c.push(batch(|| {
            let pointer = value.as_mut_ptr().cast();
            // SAFETY: it points to one element, which nobody else uses.
            let result = unsafe { ringfold_all_reduce(null(), pointer, 1, float64, sum, handle) };
            assert_eq!(result, ringfold_result::RINGFOLD_SUCCESS);
            Ok(())
        })?);
    }
    let is_first = comm.rank() == Rank(0);
    if is_first {
        let (rust, c) = (median(rust), median(c));
        println!("8 bytes: Rust {rust:.1} ns, C {c:.1} ns, C over Rust {:.1} ns", c - rust);
    }
    assert_eq!(ringfold_comm_free(handle), ringfold_result::RINGFOLD_SUCCESS);
    comm.leave()
}
