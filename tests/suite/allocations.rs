//! A repeated call allocates nothing.

use allocation_counter::{AllocationInfo, measure};
use ringfold::{Communicator, Parts, Rank, ReduceOp};

use crate::via::Via;

/// Calls before counting, in which the communicator allocates the memory that it keeps.
const WARM: usize = 20;
/// Counted calls of a round.
const COUNTED: usize = 10;
/// Rounds. Where ranks wait for CPUs, a queue may reach its greatest length after the first.
const ROUNDS: usize = 3;

/// The allocations of a repeated call, in the round with the fewest.
fn steady(mut call: impl FnMut()) -> AllocationInfo {
    (0..WARM).for_each(|_| call());
    let rounds = (0..ROUNDS).map(|_| measure(|| (0..COUNTED).for_each(|_| call())));
    rounds.min_by_key(|it| it.count_total).unwrap()
}

/// Makes one call of every kind.
fn call_all(comm: &mut Communicator, input: &[f32], output: &mut [f32]) {
    let (ranks, count) = (comm.size(), input.len() / comm.size());
    comm.all_reduce(output, ReduceOp::Max).unwrap();
    comm.all_reduce_into(input, output, ReduceOp::Sum).unwrap();
    comm.all_gather_into(&input[..count], &mut output[..count * ranks]).unwrap();
    comm.reduce_scatter_into(&input[..count * ranks], &mut output[..count], ReduceOp::Sum).unwrap();
    comm.broadcast(output, Rank(0)).unwrap();
    comm.reduce(output, ReduceOp::Max, Rank(0)).unwrap();
    comm.barrier().unwrap();
}

/// Checks that no rank allocates in repeated calls, in ordinary buffers, in the communicator's
/// buffers, and in windows.
pub(crate) fn none_in_repeated_calls(via: Via, ranks: usize, elements: usize) {
    let counted = via.run(ranks, &[], |comm| {
        let (input, mut output) = (vec![1.0_f32; elements], vec![0.0; elements]);
        let [given, mut got] = [(); 2].map(|()| comm.alloc::<f32>(elements).unwrap());
        steady(|| {
            call_all(comm, &input, &mut output);
            call_all(comm, &given, &mut got);
            comm.all_reduce_window_into(&given, &mut got, .., ReduceOp::Sum).unwrap();
        })
    });
    for (rank, AllocationInfo { count_total, bytes_total, .. }) in counted.iter().enumerate() {
        let what = format!("{via:?}, rank {rank} of {ranks}, {elements} elements");
        assert_eq!(*count_total, 0, "{what}: {bytes_total} bytes");
    }
}

/// The kinds of calls that `call_uneven` makes.
const UNEVEN: usize = 6;

/// Makes one call with uneven parts, or exchanges two messages. The part of rank r has r + 1
/// elements.
fn call_uneven(kind: usize, comm: &mut Communicator, counts: &[usize], memory: &mut [Vec<f32>; 2]) {
    let (rank, size, root) = (comm.rank().index(), comm.size(), Rank(0));
    let (parts, own) = (Parts::new(counts), counts[rank]);
    let total = counts.iter().sum::<usize>();
    let root_only = if rank == 0 { total } else { 0 };
    let [input, output] = memory;
    match kind {
        0 => {
            let equal = [own; 8];
            let (send, output) = (Parts::new(&equal[..size]), &mut output[..total]);
            comm.all_to_all_v_into(&input[..own * size], send, output, parts)
        }
        1 => comm.gather_v_into(&input[..own], &mut output[..root_only], parts, root),
        2 => comm.scatter_v_into(&input[..root_only], parts, &mut output[..own], root),
        3 => comm.all_gather_v_into(&input[..own], &mut output[..total], parts),
        4 => {
            let (input, output) = (&input[..total], &mut output[..own]);
            comm.reduce_scatter_v_into(input, output, parts, ReduceOp::Sum)
        }
        _ => {
            let [to, from] = [rank + 1, rank + size - 1].map(|it| Rank::at(it % size));
            comm.send_recv(&input[..], to, &mut output[..], from, 0).map(drop)
        }
    }
    .unwrap();
}

#[test]
fn repeated_uneven_calls_and_messages_allocate_nothing() {
    for via in [Via::Shm, Via::Tcp] {
        for ranks in [2, 3, 8] {
            let counted = via.run(ranks, &[], |comm| {
                let counts: Vec<usize> = (1..=ranks).collect();
                let mut memory = [1.0, 0.0].map(|value| vec![value; ranks * ranks]);
                let mut count =
                    |kind| steady(|| call_uneven(kind, comm, &counts, &mut memory)).count_total;
                std::array::from_fn(&mut count)
            });
            assert_eq!(counted, vec![[0; UNEVEN]; ranks], "{via:?}, {ranks} ranks");
        }
    }
}

#[test]
fn repeated_calls_allocate_nothing() {
    for via in [Via::Shm, Via::Tcp, Via::Hosts(2)] {
        for (ranks, elements) in [(2, 8), (2, 5_000), (2, 600_000), (3, 8), (3, 200_000)] {
            none_in_repeated_calls(via, ranks, elements);
        }
    }
}
