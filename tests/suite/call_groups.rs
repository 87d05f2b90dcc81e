//! Groups of calls over every transport.

use std::time::Duration;

use ringfold::{Buffers, Call, Collective, Communicator, DataType, Error, FailureCause};
use ringfold::{Rank, ReduceOp, Wire};
use ringfold_bench::oracle::Oracle;

use crate::messages::{content, on_all};

#[test]
fn messages_of_a_group_do_not_deadlock_in_any_order() {
    for len in [0, 100, 20_000, 1 << 20] {
        on_all(4, &[], |comm| {
            let (own, size) = (comm.rank(), comm.size());
            // Each rank sends three messages to every rank, itself too, in an order of its own.
            let peers = || (0..size).map(|peer| Rank::at((peer + own.index()) % size));
            let all = |from: Rank, to: Rank| (0..3).map(move |part| content(from, to, part, len));
            let data: Vec<Vec<u8>> = peers().flat_map(|peer| all(own, peer)).collect();
            let mut into = vec![vec![0xa5; len]; 3 * size];
            comm.group(|group| {
                for (data, number) in data.iter().zip(0_u32..) {
                    let to = Rank::at((number as usize / 3 + own.index()) % size);
                    group.send(data, to, number % 3);
                }
                for (into, number) in into.iter_mut().zip(0_u32..) {
                    let from = Rank::at(number as usize / 3);
                    group.recv(into, from, number % 3);
                }
            })
            .unwrap();
            for (number, into) in into.into_iter().enumerate() {
                assert!(into == content(Rank::at(number / 3), own, number % 3, len));
            }
        });
    }
}

#[test]
fn fields_without_a_meaning_do_not_divide_packs() {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        let (own, data_type, wire) = (comm.rank(), DataType::U8, Wire::Element);
        let number = u8::try_from(own.0).unwrap();
        let call = |collective, op, root| Call { collective, count: 4, data_type, op, root, wire };
        let (mut one, mut other) = ([1_u8; 4], [2_u8; 4]);
        let (data, mut all) = ([number; 4], [[0_u8; 4]; 3]);
        let factor = ReduceOp::pre_mul_sum(f64::from(number) + 1.0);
        comm.group(|group| {
            // Each rank names another root, and another factor for a call that reduces nothing.
            for (root, buffer) in [(Rank(0), &mut one), (own, &mut other)] {
                let call = call(Collective::AllReduce, ReduceOp::Sum, root);
                group.perform(&call, Buffers::InPlace(buffer));
            }
            let call = call(Collective::AllGather, factor, own);
            let buffers = Buffers::Apart { input: &data, output: all.as_flattened_mut() };
            group.perform(&call, buffers);
        })
        .unwrap();
        assert_eq!((one, other, all), ([3; 4], [6; 4], [[0; 4], [1; 4], [2; 4]]));
    });
}

/// Calls of every kind that packs, and of some that do not, with lengths on both sides of the
/// limits.
fn calls(size: usize) -> Vec<Call> {
    let mut calls = Vec::new();
    for count in [1, 0, 17, 128, 4096, 5, 20_000, 300] {
        for (collective, op, root) in [
            (Collective::AllReduce, ReduceOp::Sum, 0),
            (Collective::AllReduce, ReduceOp::Max, 0),
            (Collective::AllReduce, ReduceOp::pre_mul_sum(1.0), 0),
            (Collective::AllGather, ReduceOp::Sum, 0),
            (Collective::ReduceScatter, ReduceOp::Sum, 0),
            (Collective::Broadcast, ReduceOp::Sum, size - 1),
            (Collective::Reduce, ReduceOp::Sum, 0),
            (Collective::Reduce, ReduceOp::Sum, size - 1),
        ] {
            let (data_type, root, wire) = (DataType::I32, Rank::at(root), Wire::Element);
            calls.push(Call { collective, count, data_type, op, root, wire });
        }
    }
    calls
}

#[test]
fn packed_calls_have_the_results_of_single_ones() {
    on_all(3, &[], |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let calls = calls(size);
        for seed in 0..3 {
            let oracles: Vec<Oracle> = calls
                .iter()
                .zip(seed..)
                .map(|(call, seed)| Oracle::new(*call, size, seed))
                .collect();
            let bytes = |len: usize| len * DataType::I32.bytes();
            let mut buffers: Vec<(Vec<u8>, Vec<u8>)> = calls
                .iter()
                .zip(&oracles)
                .map(|(call, oracle)| {
                    let mut input = vec![0; bytes(call.input_len(size))];
                    oracle.fill_input(rank, &mut input);
                    (input, vec![0xa5; bytes(call.output_len(size))])
                })
                .collect();
            comm.group(|group| {
                let all = calls.iter().zip(&oracles).zip(&mut buffers).enumerate();
                for (number, ((call, oracle), (input, output))) in all {
                    let call = Call { op: oracle.op(rank), ..*call };
                    // All-reduces are in place now and then.
                    if call.collective == Collective::AllReduce && number % 3 == 0 {
                        output.copy_from_slice(input);
                        group.perform(&call, Buffers::InPlace(output));
                    } else {
                        group.perform(&call, Buffers::Apart { input, output });
                    }
                }
            })
            .unwrap();
            for ((call, oracle), (_, output)) in calls.iter().zip(&oracles).zip(&buffers) {
                if call.collective == Collective::Reduce && rank != call.root {
                    assert!(output.iter().all(|byte| *byte == 0xa5), "{call}");
                } else {
                    assert_eq!(oracle.count_wrong(rank, output), 0, "{call}");
                }
            }
        }
    });
}

#[test]
fn groups_mix_messages_and_collectives() {
    on_all(2, &[], |comm| {
        let peer = Rank(1 - comm.rank().0);
        for round in 0_u32..20 {
            let data = [comm.rank().0 + round; 300];
            let mut into = [0; 300];
            let mut sums = [[round; 128]; 64];
            let (input, mut all, mut block) = ([round; 10], [0; 20], [0; 5]);
            let mut word = [if comm.rank() == Rank(1) { round } else { 0 }];
            comm.group(|group| {
                group.recv(&mut into, peer, round);
                sums.iter_mut().for_each(|sum| group.all_reduce(sum, ReduceOp::Sum));
                group.broadcast(&mut word, Rank(1));
                group.all_gather_into(&input, &mut all);
                group.reduce_scatter_into(&input, &mut block, ReduceOp::Sum);
                group.send(&data, peer, round);
            })
            .unwrap();
            assert_eq!((into, sums), ([peer.0 + round; 300], [[2 * round; 128]; 64]));
            assert_eq!((word, all, block), ([round], [round; 20], [2 * round; 5]));
        }
        comm.group(|_| ()).unwrap();
    });
}

#[test]
fn parts_of_other_lengths_fail_all_ranks() {
    on_all(3, &[], |comm: &mut Communicator| {
        comm.set_timeout(Duration::from_secs(20));
        // The sums of the lengths agree; the lengths of rank 1 do not.
        let first = if comm.rank() == Rank(1) { 40 } else { 60 };
        let mut buffer = [1.0_f32; 100];
        let (one, other) = buffer.split_at_mut(first);
        let result = comm.group(|group| {
            group.all_reduce(one, ReduceOp::Sum);
            group.all_reduce(other, ReduceOp::Sum);
        });
        let result = result.and_then(|()| comm.barrier());
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        let FailureCause::Mismatch { seq: 1, calls } = &*failure.cause else { panic!("{failure}") };
        assert!(calls.iter().all(|it| it.call.contains("packed from 2 calls")), "{failure}");
        // A rank that has not called by then is in neither list.
        let mut lists = calls.iter().map(|it| &it.ranks[..]);
        assert!(calls.len() == 2 && lists.any(|it| it == [Rank(1)]), "{failure}");
    });
}

#[test]
fn a_bad_argument_starts_no_call_of_a_group() {
    on_all(2, &[], |comm| {
        let peer = Rank(1 - comm.rank().0);
        let (data, mut into, mut sum) = ([1_u8], [0_u8], [1_u8]);
        let result = comm.group(|group| {
            group.send(&data, peer, 0);
            group.recv(&mut into, peer, 0);
            group.broadcast(&mut sum, Rank(2));
        });
        assert!(matches!(result, Err(Error::Argument { .. })), "{result:?}");
        comm.send_recv(&data, peer, &mut into, peer, 1).unwrap();
    });
}
