//! Reductions of all types by all operations, whose results must have the same bits each time.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::thread;
use std::time::Duration;

use ringfold::{Buffers, Call, Collective, Communicator, DataType, Error, Rank, ReduceOp, Wire};

/// Elements of the calls: one chunk and many.
const COUNTS: [usize; 3] = [1, 777, 150_001];

/// Sleeps for `seconds`, and then reduces all values, `rounds` times. Prints the rank and a digest
/// of all its results for each round.
pub(crate) fn bits(comm: &mut Communicator, rounds: usize, seconds: u64) -> Result<(), Error> {
    thread::sleep(Duration::from_secs(seconds));
    for _ in 0..rounds {
        let mut digest = DefaultHasher::new();
        for data_type in DataType::ALL {
            let inputs = COUNTS.map(|count| (count, input(comm.rank(), count * data_type.bytes())));
            let ops = ops(comm.rank()).filter(|op| op.fits(data_type));
            for (op, (count, input)) in ops.flat_map(|op| inputs.iter().map(move |it| (op, it))) {
                for collective in [Collective::AllReduce, Collective::Reduce] {
                    let (root, wire) = (Rank(1), Wire::default());
                    let call = Call { collective, count: *count, data_type, op, root, wire };
                    let has_result = collective == Collective::AllReduce || comm.rank() == root;
                    let mut output = vec![0; if has_result { input.len() } else { 0 }];
                    let buffers = Buffers::Apart { input, output: &mut output };
                    comm.perform(&call, buffers)?;
                    output.hash(&mut digest);
                }
            }
        }
        comm.barrier()?;
        println!("bits {} {:x}", comm.rank(), digest.finish());
    }
    Ok(())
}

/// All operations. One has a factor, other for each rank.
fn ops(rank: Rank) -> impl Iterator<Item = ReduceOp> {
    let scaled = ReduceOp::pre_mul_sum(f64::from(rank.0 + 1));
    ReduceOp::PLAIN.into_iter().chain([scaled])
}

/// Bytes that are the same in every run, without values that make all results NaN.
fn input(rank: Rank, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(rank.0) * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).to_le_bytes()[0] & 0x3b
    };
    (0..bytes).map(|_| next()).collect()
}
