//! The same input gives the same bits on every rank and in every run, with every algorithm over
//! every transport that can carry it.

use std::collections::{BTreeMap, BTreeSet};

use ringfold::{
    Buffers, Call, Collective, Communicator, DataType, Rank, ReduceOp, Window, Windows, Wire,
};
use ringfold_collectives::Algorithm;

use crate::via::Via;

/// The transports. `Via::Rdma` needs devices: see `rdma`.
const VIAS: [Via; 5] = [Via::Local, Via::Shm, Via::ShmAttached, Via::Tcp, Via::Hosts(2)];

/// Elements of a call: less than a cache line, several blocks, and more than the eager size.
const COUNTS: [usize; 4] = [1, 13, 3001, 20_011];

/// A type that is summed in its own precision, and one that is summed in a wider type and rounded,
/// between hosts at each hop or not.
const TYPES: [(DataType, Wire); 3] = [
    (DataType::F32, Wire::Element),
    (DataType::Bf16, Wire::Element),
    (DataType::Bf16, Wire::Accumulator),
];

/// The bytes of every output of a rank, by algorithm and call.
type Bits = BTreeMap<(String, String), Vec<u8>>;

#[test]
fn every_rank_gets_the_same_bits_in_every_run() {
    let mut done = BTreeSet::new();
    for via in VIAS {
        for size in [2, 5] {
            done.extend(same_bits(via, size));
        }
    }
    let all = Collective::ALL.into_iter().flat_map(Algorithm::of);
    let forgotten: Vec<_> = all
        .filter(|algorithm| algorithm.collective != Collective::Barrier)
        // `ringfold::setup::in_network::tests` compares bits with and without a provider.
        .filter(|algorithm| !algorithm.needs_provider())
        .filter(|algorithm| !done.contains(&algorithm.to_string()))
        .collect();
    assert!(forgotten.is_empty(), "no transport here carries {forgotten:?}");
}

/// Compares the bits of all algorithms that `via` carries, in two runs. Returns the algorithms.
pub(crate) fn same_bits(via: Via, size: usize) -> BTreeSet<String> {
    let runs = [run(via, size), run(via, size)];
    let mut sums = BTreeSet::new();
    for (rank, bits) in runs[0].iter().enumerate() {
        for ((algorithm, call), bits) in bits {
            let what = format!("{algorithm}, {call}, rank {rank} of {size}, {via:?}");
            let key = &(algorithm.clone(), call.clone());
            assert!(runs[1][rank][key] == *bits, "{what}: bits differ between runs");
            if algorithm.starts_with("allreduce/") {
                assert!(runs[0][0][key] == *bits, "{what}: bits are not those of rank 0");
                sums.insert((call, bits));
            }
        }
    }
    let calls: BTreeSet<_> = sums.iter().map(|(call, _)| call).collect();
    // Two operands have one sum. With more, some algorithms differ in the order.
    assert!(size == 2 || sums.len() > calls.len(), "{via:?}: the order of sums changes nothing");
    runs[0][0].keys().map(|(algorithm, _)| algorithm.clone()).collect()
}

/// Returns the bits of all ranks for all algorithms, in place and out of place. Each call runs
/// three times.
fn run(via: Via, size: usize) -> Vec<Bits> {
    let all = Collective::ALL.into_iter().flat_map(Algorithm::of);
    let carried: Vec<_> = all
        .filter(|algorithm| algorithm.collective != Collective::Barrier && via.carries(algorithm))
        .collect();
    via.run(size, &[], |comm| {
        let mut bits = Bits::new();
        let bytes = COUNTS.into_iter().max().unwrap() * size_of::<f32>();
        let mut windows = [(); 2].map(|()| comm.alloc::<u8>(bytes).unwrap());
        for algorithm in &carried {
            let (collective, name) = (algorithm.collective, algorithm.name);
            comm.set_algorithms(format!("{collective}:{name}").parse().unwrap());
            for (count, (data_type, wire)) in
                COUNTS.into_iter().flat_map(|it| TYPES.map(|ty| (it, ty)))
            {
                let root = Rank::at(if collective.has_root() { size - 1 } else { 0 });
                let op = ReduceOp::Sum;
                let call = Call { collective, count, data_type, op, root, wire };
                for in_place in [false, true] {
                    let what = format!("{call}, in place {in_place}");
                    let mut one = || match algorithm.needs_windows() {
                        true => in_windows(comm, &mut windows, &call, in_place),
                        false => {
                            assert_eq!(comm.algorithm_for(&call), name, "{via:?}");
                            in_buffers(comm, &call, in_place)
                        }
                    };
                    let first = one();
                    // A repeated call may take the fast path.
                    let same = (0..2).all(|_| one() == first);
                    assert!(same, "{algorithm}, {what}, {via:?}: bits differ when repeated");
                    bits.insert((algorithm.to_string(), what), first);
                }
            }
        }
        bits
    })
}

/// Returns inputs whose sum depends on the order of addition.
fn input(call: &Call, rank: Rank, size: usize) -> Vec<u8> {
    let value = |at: usize| {
        let (rank, at) = (rank.0 as f32, at as f32);
        (rank * 7919.0 + at).sin() * 10_f32.powf(3.0 * (rank * 1.7 + at).sin())
    };
    let values = (0..call.input_len(size)).map(value);
    match call.data_type {
        DataType::Bf16 => {
            values.flat_map(|it| (it.to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect()
        }
        _ => values.flat_map(f32::to_le_bytes).collect(),
    }
}

fn in_buffers(comm: &mut Communicator, call: &Call, in_place: bool) -> Vec<u8> {
    let (rank, size, bytes) = (comm.rank(), comm.size(), call.data_type.bytes());
    let input = input(call, rank, size);
    let input = &input[..call.input_of(rank, size) * bytes];
    let output_len = call.output_of(rank, size) * bytes;
    let mut output = vec![0; output_len];
    if in_place {
        let mut buffer = vec![0; call.in_place_of(rank, size) * bytes];
        let [begin, output_begin] = call.in_place_at(rank).map(|at| at * bytes);
        buffer[begin..begin + input.len()].copy_from_slice(input);
        comm.perform(call, Buffers::InPlace(&mut buffer)).unwrap();
        output.copy_from_slice(&buffer[output_begin..output_begin + output_len]);
    } else {
        comm.perform(call, Buffers::Apart { input, output: &mut output }).unwrap();
    }
    output
}

fn in_windows(
    comm: &mut Communicator,
    [given, got]: &mut [Window<u8>; 2],
    call: &Call,
    in_place: bool,
) -> Vec<u8> {
    assert_eq!(comm.algorithm_in(given, call), "window");
    let bytes = input(call, comm.rank(), comm.size());
    if in_place {
        got[..bytes.len()].copy_from_slice(&bytes);
        comm.perform_in_windows(call, Windows::InPlace(got), 0).unwrap();
    } else {
        given[..bytes.len()].copy_from_slice(&bytes);
        comm.perform_in_windows(call, Windows::Apart { input: given, output: got }, 0).unwrap();
    }
    got[..bytes.len()].to_vec()
}
