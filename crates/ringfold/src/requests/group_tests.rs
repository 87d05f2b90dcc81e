//! Tests of started groups of calls and of started operations of the user, among threads.

use std::sync::Barrier;

use crate::{ANY_SOURCE, CallGroup, Communicator, Error, Rank, ReduceOp, UserOp, local, wait_any};

/// The buffers of a group: data to send and to receive, sums, and blocks of all ranks.
type Buffers = (Vec<u64>, Vec<Vec<u64>>, [Vec<u64>; 4], Vec<u64>);

fn buffers(comm: &Communicator, len: usize) -> Buffers {
    let (own, size) = (u64::from(comm.rank().0), comm.size());
    let sums = [own; 4].map(|own| vec![own + 1; len]);
    (vec![own; len], vec![vec![99; len]; size], sums, vec![99; 2 * size])
}

/// Adds messages to all ranks and from them, sums of several lengths, and a gathering.
fn add<'b>(comm: (Rank, usize), buffers: &'b mut Buffers, group: &mut CallGroup<'b>) {
    let (data, from, sums, blocks) = buffers;
    let (own, size) = comm;
    for peer in 0..size {
        group.send(data, Rank(u32::try_from(peer).unwrap()), 3);
    }
    for (peer, from) in (0..).zip(from) {
        group.recv(from, Rank(peer), 3);
    }
    for (cut, sum) in sums.iter_mut().enumerate() {
        let len = sum.len();
        group.all_reduce(&mut sum[..len.saturating_sub(cut)], ReduceOp::Sum);
    }
    let at = 2 * own.index();
    blocks[at..at + 2].fill(u64::from(own.0));
    group.perform(
        &crate::Call {
            collective: crate::Collective::AllGather,
            count: 2,
            data_type: crate::DataType::U64,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: crate::Wire::Element,
        },
        crate::Buffers::InPlace(bytemuck::cast_slice_mut(blocks)),
    );
}

#[test]
fn a_started_group_has_the_results_of_a_blocking_one() {
    for size in [1, 2, 3] {
        local::run(size, |comm| {
            let ranks = (comm.rank(), comm.size());
            for len in [0, 1, 50, 5000] {
                let mut expected = buffers(comm, len);
                comm.group(|group| add(ranks, &mut expected, group)).unwrap();
                for round in 0..3 {
                    let given = buffers(comm, len);
                    // A started group meets a blocking one.
                    let found = if round == 1 && ranks.0 == Rank(0) {
                        let mut given = given;
                        comm.group(|group| add(ranks, &mut given, group)).unwrap();
                        given
                    } else {
                        let started = comm.start_group(given, |it, group| add(ranks, it, group));
                        let request = started.unwrap();
                        comm.barrier().unwrap();
                        request.wait().unwrap()
                    };
                    if round == 1 && ranks.0 == Rank(0) {
                        comm.barrier().unwrap();
                    }
                    assert_eq!(found, expected, "{len} {round}");
                }
            }
        })
        .unwrap();
    }
}

#[test]
fn a_group_ends_with_its_last_call() {
    let may_send = Barrier::new(2);
    local::run(2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let empty = comm.start_group((), |(), _| ()).unwrap();
        assert!(empty.test());
        let started = comm.start_group(([1_u32], [0_u32]), |(sum, got), group| {
            group.all_reduce(sum, ReduceOp::Sum);
            group.recv(got, ANY_SOURCE, 5);
        });
        let request = started.unwrap();
        comm.barrier().unwrap();
        assert!(!request.test() && request.take_result().is_none());
        may_send.wait();
        comm.send(&[7_u32], peer, 5).unwrap();
        assert_eq!(wait_any(&[&request]), Some(0));
        assert_eq!(request.wait().unwrap(), ([2], [7]));
    })
    .unwrap();
}

#[test]
fn a_refused_group_begins_nothing_and_returns_its_buffers() {
    local::run(2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let wrong = comm.start_group([[1_u32; 2]; 2], |[data, sum], group| {
            group.send(data, peer, 1);
            group.broadcast(sum, Rank(9));
        });
        let failed = wrong.unwrap_err();
        assert!(matches!(failed.error, Error::Argument { .. }), "{failed}");
        assert_eq!(failed.buffers, [[1; 2]; 2]);
        for wrong in [Rank(2), Rank(9)] {
            let nobody = comm.start_group([1_u8], |data, group| group.send(data, wrong, 1));
            assert_eq!(nobody.unwrap_err().buffers, [1]);
            let nobody = comm.start_group([1_u8], |data, group| group.recv(data, wrong, 1));
            assert_eq!(nobody.unwrap_err().buffers, [1]);
        }
        let prepared = comm.prepare(|comm| {
            comm.start_group([1_u8], |data, group| group.all_reduce(data, ReduceOp::Sum))
        });
        assert!(prepared.unwrap_err().to_string().contains("cannot be prepared"));
        // A message that is too long fails the group after its other calls.
        let mut buffers = ([3_u32; 4], [0_u32; 2], [1_u32]);
        let started = comm.start_group(buffers, |(data, short, sum), group| {
            group.send(data, peer, 2);
            group.recv(short, peer, 2);
            group.all_reduce(sum, ReduceOp::Sum);
        });
        let failed = started.unwrap().wait().unwrap_err();
        assert!(matches!(failed.error, Error::Truncated { buffer: 8, .. }), "{failed}");
        assert_eq!(failed.buffers.2, [2]);
        comm.recv(&mut buffers.0, peer, 2).unwrap();
        assert_eq!(comm.probe(peer, None).unwrap(), None, "no message of a refused group came");
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn larger(comm: &mut Communicator) -> UserOp<[u32; 2]> {
    let larger = |into: &mut [[u32; 2]], from: &[[u32; 2]]| {
        for (into, from) in into.iter_mut().zip(from) {
            *into = (*into).max(*from);
        }
    };
    comm.register_op("larger", larger).unwrap()
}

#[test]
fn started_operations_of_the_user_have_the_results_of_blocking_ones() {
    for size in [1, 2, 3] {
        local::run(size, |comm| {
            let (op, rank) = (larger(comm), comm.rank().0);
            // The last one takes several rounds.
            for len in [0_usize, 1, 5, 3000, 700_001] {
                let number = |at: usize| u32::try_from(at).unwrap().wrapping_mul(rank + 7) % 1013;
                let own: Vec<_> = (0..len).map(|at| [number(at), rank]).collect();
                let mut expected = own.clone();
                comm.all_reduce_by(&mut expected, &op).unwrap();
                let first = comm.start_all_reduce_by(own.clone(), &op).unwrap();
                let sum = comm.start_all_reduce(vec![1_u32; 9], ReduceOp::Sum).unwrap();
                let mut second = own.clone();
                if rank == 1 {
                    comm.all_reduce_by(&mut second, &op).unwrap();
                } else {
                    let second_of = comm.start_all_reduce_by(second, &op).unwrap();
                    second = second_of.wait().unwrap();
                }
                assert!(first.wait().unwrap() == expected && second == expected, "{len}");
                assert_eq!(sum.wait().unwrap(), vec![u32::try_from(size).unwrap(); 9]);
            }
            let own = vec![[rank, 0]; 5];
            let mut prepared = comm.prepare(|comm| comm.start_all_reduce_by(own, &op)).unwrap();
            for _ in 0..3 {
                prepared.start(comm).unwrap();
                assert_eq!(prepared.wait().unwrap()[4], [u32::try_from(size).unwrap() - 1, 0]);
                prepared.buffers().unwrap().fill([rank, 0]);
            }
        })
        .unwrap();
    }
}

#[test]
fn a_panic_of_a_started_operation_fails_the_call_by_its_text() {
    let texts = local::run(2, |comm| {
        let rank = comm.rank();
        let op = comm.register_op("bad", move |_: &mut [u8], _: &[u8]| {
            assert_ne!(rank, Rank(1), "on purpose");
        });
        let failed = comm.start_all_reduce_by(vec![0_u8; 64], &op.unwrap()).unwrap().wait();
        let failed = failed.unwrap_err();
        assert_eq!(failed.buffers.len(), 64);
        format!("{:?}", failed.error)
    });
    for text in texts.unwrap() {
        assert!(text.contains("\"bad\" panicked") && text.contains("on purpose"), "{text}");
    }
}
