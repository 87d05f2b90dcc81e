//! Collectives whose parts differ in length, over every transport.

use std::time::Duration;

use ringfold::{Buffers, Uneven, UnevenCollective, bf16};
use ringfold::{Communicator, DataType, Error, FailureCause, Operation, Parts, Rank, ReduceOp};

use crate::messages::{content, on_all};

const SIZES: [usize; 5] = [1, 2, 3, 5, 8];

/// The elements from one rank to another: none, few, more than an inline message, or more than a
/// link's eager size.
fn count(from: usize, to: usize) -> usize {
    [0, 1, 7, 0, 333, 1025, 12_345, 64][(3 * from + 5 * to + from * to) % 8]
}

fn counts(size: usize, count: impl Fn(usize) -> usize) -> Vec<usize> {
    (0..size).map(count).collect()
}

/// Displacements of parts in the reverse order of ranks, with a gap of three elements before each,
/// and the elements of such a buffer.
fn reversed(counts: &[usize]) -> (Vec<usize>, usize) {
    let (mut begins, mut end) = (vec![0; counts.len()], 0);
    for (rank, count) in counts.iter().enumerate().rev() {
        begins[rank] = end + 3;
        end += 3 + count;
    }
    (begins, end)
}

/// Writes each part at its place.
fn fill(buffer: &mut [u8], parts: impl Iterator<Item = Vec<u8>>, begins: &[usize]) {
    for (part, begin) in parts.zip(begins) {
        buffer[*begin..][..part.len()].copy_from_slice(&part);
    }
}

fn ranks(size: usize) -> impl Iterator<Item = Rank> + Clone {
    (0..size).map(Rank::at)
}

#[test]
fn all_to_all_v_moves_each_part() {
    for size in SIZES {
        on_all(size, &[], |comm| {
            let (own, at) = (comm.rank(), comm.rank().index());
            let part = |from: Rank, to: Rank| content(from, to, 0, count(from.index(), to.index()));
            let (sent, received) =
                (counts(size, |to| count(at, to)), counts(size, |from| count(from, at)));
            let input: Vec<u8> = ranks(size).flat_map(|to| part(own, to)).collect();
            let (begins, len) = reversed(&received);
            let (mut output, mut wanted) = (vec![0xa5; len], vec![0xa5; len]);
            fill(&mut wanted, ranks(size).map(|from| part(from, own)), &begins);
            let recv = Parts::at(&received, &begins);
            comm.all_to_all_v_into(&input, Parts::new(&sent), &mut output, recv).unwrap();
            assert!(output == wanted, "rank {own} of {size}");
        });
    }
}

#[test]
fn all_to_all_v_in_place_replaces_each_part() {
    for size in SIZES {
        on_all(size, &[], |comm| {
            let (own, at) = (comm.rank(), comm.rank().index());
            let len = |one: usize, other: usize| count(one.min(other), one.max(other));
            let part = |from: Rank, to: Rank| content(from, to, 0, len(from.index(), to.index()));
            let counts = counts(size, |peer| len(at, peer));
            let (begins, len) = reversed(&counts);
            let (mut buffer, mut wanted) = (vec![0xa5; len], vec![0xa5; len]);
            fill(&mut buffer, ranks(size).map(|to| part(own, to)), &begins);
            fill(&mut wanted, ranks(size).map(|from| part(from, own)), &begins);
            comm.all_to_all_v(&mut buffer, Parts::at(&counts, &begins)).unwrap();
            assert!(buffer == wanted, "rank {own} of {size}");
        });
    }
}

#[test]
fn gather_v_and_scatter_v_undo_each_other() {
    for size in SIZES {
        for root in [0, size - 1].map(Rank::at) {
            on_all(size, &[], |comm| {
                let (own, is_root) = (comm.rank(), comm.rank() == root);
                let part = |of: Rank| content(of, root, 1, count(of.index(), size));
                let counts = counts(size, |from| count(from, size));
                let (begins, len) = reversed(&counts);
                let mut wanted = vec![0xa5; len];
                fill(&mut wanted, ranks(size).map(part), &begins);
                let parts = if is_root { Parts::at(&counts, &begins) } else { Parts::default() };
                let mut whole = if is_root { vec![0xa5; len] } else { Vec::new() };
                comm.gather_v_into(&part(own), &mut whole, parts, root).unwrap();
                assert!(!is_root || whole == wanted, "gather to {root} of {size}");
                let mut back = vec![0; part(own).len()];
                comm.scatter_v_into(&whole, parts, &mut back, root).unwrap();
                assert!(back == part(own), "scatter from {root} to {own} of {size}");
                // In place the root's own part is in its buffer.
                let mut both = if is_root { vec![0xa5; len] } else { part(own) };
                if is_root {
                    both[begins[own.index()]..][..counts[own.index()]].copy_from_slice(&part(own));
                }
                comm.gather_v(&mut both, parts, root).unwrap();
                assert!(both == if is_root { wanted.clone() } else { part(own) });
                if !is_root {
                    both.fill(0);
                }
                comm.scatter_v(&mut both, parts, root).unwrap();
                assert!(both == if is_root { wanted } else { part(own) });
            });
        }
    }
}

#[test]
fn calls_that_differ_only_in_the_places_of_parts_are_told_apart() {
    on_all(3, &[], |comm| {
        let (at, counts) = (comm.rank().index(), [2, 1, 3]);
        let value = |rank: usize| u8::try_from(rank + 1).unwrap();
        for begins in [[0, 2, 3], [0, 2, 3], [4, 3, 0], [0, 2, 3]] {
            let parts = Parts::at(&counts, &begins);
            let (mut all, mut wanted) = ([0; 6], [0; 6]);
            for (rank, begin) in begins.into_iter().enumerate() {
                wanted[begin..][..counts[rank]].fill(value(rank));
            }
            all[begins[at]..][..counts[at]].fill(value(at));
            comm.all_gather_v(&mut all, parts).unwrap();
            assert_eq!(all, wanted, "rank {at}, {begins:?}");
            comm.reduce_scatter_v(&mut all, parts, ReduceOp::Sum).unwrap();
            let own = &all[begins[at]..][..counts[at]];
            assert!(own.iter().all(|it| *it == 3 * value(at)), "rank {at}, {begins:?}");
        }
    });
}

#[test]
fn all_gather_v_gives_all_parts_to_all() {
    for size in SIZES {
        on_all(size, &[], |comm| {
            let own = comm.rank();
            let part = |of: Rank| content(of, of, 2, count(of.index(), 3));
            let counts = counts(size, |from| count(from, 3));
            let (begins, len) = reversed(&counts);
            let mut wanted = vec![0xa5; len];
            fill(&mut wanted, ranks(size).map(part), &begins);
            let (parts, mut output) = (Parts::at(&counts, &begins), vec![0xa5; len]);
            comm.all_gather_v_into(&part(own), &mut output, parts).unwrap();
            assert!(output == wanted, "rank {own} of {size}");
            let mut both = vec![0xa5; len];
            both[begins[own.index()]..][..counts[own.index()]].copy_from_slice(&part(own));
            comm.all_gather_v(&mut both, parts).unwrap();
            assert!(both == wanted, "rank {own} of {size} in place");
        });
    }
}

/// The element of a rank's input. Sums of a few of them are exact in every type.
fn value(rank: usize, at: usize) -> u8 {
    u8::try_from((rank + at * 3 + at / 7) % 5).unwrap()
}

#[test]
fn reduce_scatter_v_combines_each_part() {
    for size in SIZES {
        on_all(size, &[], |comm| {
            let (own, at) = (comm.rank(), comm.rank().index());
            let counts = counts(size, |part| count(part, 4) * 3);
            let (begins, len) = reversed(&counts);
            let parts = Parts::at(&counts, &begins);
            let place = begins[at]..begins[at] + counts[at];
            let all = |element: usize| (0..size).map(move |rank| value(rank, element));
            // Sums in 16 bits, out of place and in place.
            let input: Vec<bf16> = (0..len).map(|i| bf16::from_f32(value(at, i).into())).collect();
            let sum = |i| bf16::from_f32(all(i).map(f32::from).sum());
            let wanted: Vec<bf16> = place.clone().map(sum).collect();
            let mut output = vec![bf16::ZERO; counts[at]];
            comm.reduce_scatter_v_into(&input, &mut output, parts, ReduceOp::Sum).unwrap();
            assert!(output == wanted, "rank {own} of {size}");
            let mut both = input.clone();
            comm.reduce_scatter_v(&mut both, parts, ReduceOp::Sum).unwrap();
            assert!(both[place.clone()] == wanted, "rank {own} of {size} in place");
            let outside = |i: &usize| !place.contains(i);
            assert!((0..len).filter(outside).all(|i| both[i] == input[i]));
            // Each rank scales its own elements; an average rounds once.
            let input: Vec<f64> = (0..len).map(|i| value(at, i).into()).collect();
            let mut output = vec![0.0; counts[at]];
            let scale = |rank: usize| f64::from(1 << (rank % 3));
            let op = ReduceOp::pre_mul_sum(scale(at));
            comm.reduce_scatter_v_into(&input, &mut output, parts, op).unwrap();
            let scaled = |i: usize| all(i).enumerate().map(|(r, v)| f64::from(v) * scale(r)).sum();
            assert!(output == place.clone().map(scaled).collect::<Vec<f64>>());
            comm.reduce_scatter_v_into(&input, &mut output, parts, ReduceOp::Avg).unwrap();
            let average = |i: usize| all(i).map(f64::from).sum::<f64>() / size as f64;
            assert!(output == place.map(average).collect::<Vec<f64>>());
        });
    }
}

#[test]
fn a_long_reduction_takes_rounds_and_many_ranks_take_passes() {
    // 1 MiB is the longest round, and a kernel combines 16 operands at once.
    for (size, long) in [(3, 600_001), (18, 5_001)] {
        on_all(size, &[], |comm| {
            let at = comm.rank().index();
            let counts = counts(size, |part| if part == 1 { long } else { part * 11 });
            let parts = Parts::new(&counts);
            let begin: usize = counts[..at].iter().sum();
            let len: usize = counts.iter().sum();
            let input: Vec<u32> = (0..len).map(|i| u32::from(value(at, i)) << (i % 20)).collect();
            let mut output = vec![0; counts[at]];
            comm.reduce_scatter_v_into(&input, &mut output, parts, ReduceOp::Sum).unwrap();
            for (output, i) in output.into_iter().zip(begin..) {
                let sum: u32 = (0..size).map(|rank| u32::from(value(rank, i)) << (i % 20)).sum();
                assert_eq!(output, sum, "element {i} of {size} ranks");
            }
        });
    }
}

/// Every algorithm for such blocks gives the same result as the others, also where it is forced.
#[test]
fn each_algorithm_does_all_gather_v_and_reduce_scatter_v() {
    let rules = ["allgather:ring", "allgather:bruck", "allgather:direct", "allgather:staged"];
    let rules = rules.into_iter().chain(["allgather:single_copy", "reduce_scatter:ring"]);
    let rules = rules.chain(["reduce_scatter:direct", "reduce_scatter:staged"]);
    // The others do not work on such blocks, so the rule leaves the call free.
    let rules = rules.chain(["allgather:recursive_doubling;reduce_scatter:halving"]);
    for (size, rule) in [2, 3, 7].into_iter().flat_map(|size| rules.clone().map(move |r| (size, r)))
    {
        on_all(size, &[("RINGFOLD_ALGO", rule)], |comm| {
            let at = comm.rank().index();
            for long in [0, 9, 70_001] {
                let counts = counts(size, |part| if part == 1 { long } else { part * 3 });
                let (begins, len) = reversed(&counts);
                let parts = Parts::at(&counts, &begins);
                let input: Vec<u32> = (0..len).map(|i| u32::from(value(at, i))).collect();
                let own = begins[at]..begins[at] + counts[at];
                let mut both = input.clone();
                comm.reduce_scatter_v(&mut both, parts, ReduceOp::Sum).unwrap();
                for i in 0..len {
                    let sum = || (0..size).map(|rank| u32::from(value(rank, i))).sum();
                    let wanted = if own.contains(&i) { sum() } else { input[i] };
                    assert_eq!(both[i], wanted, "element {i} of {size} ranks, {rule}");
                }
                comm.all_gather_v(&mut both, parts).unwrap();
                for (rank, begin) in begins.iter().enumerate() {
                    let part = both.iter().enumerate().skip(*begin).take(counts[rank]);
                    for (i, element) in part {
                        let sum: u32 = (0..size).map(|rank| u32::from(value(rank, i))).sum();
                        assert_eq!(*element, sum, "element {i} of {size} ranks, {rule}");
                    }
                }
            }
        });
    }
}

/// Counts that change with each call need a program each. The cache stays bounded, and even calls
/// between them keep theirs.
#[test]
fn counts_may_change_with_each_call() {
    on_all(3, &[], |comm| {
        let at = comm.rank().index();
        for round in 0..2_500_usize {
            let counts = [round % 7, round, 2 + round % 3];
            let begin: usize = counts[..at].iter().sum();
            let mut buffer = vec![0_u8; counts.iter().sum()];
            buffer[begin..][..counts[at]].fill([1, 2, 3][at]);
            comm.all_gather_v(&mut buffer, Parts::new(&counts)).unwrap();
            let wanted = [1, 2, 3].into_iter().zip(counts);
            assert!(buffer.into_iter().eq(wanted.flat_map(|(v, n)| std::iter::repeat_n(v, n))));
            let mut sum = [1_u32];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [3]);
        }
    });
}

#[test]
fn an_operation_registered_again_is_another_one() {
    let add = |into: &mut [u32], from: &[u32]| {
        into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
    };
    let keep_largest = |into: &mut [u32], from: &[u32]| {
        into.iter_mut().zip(from).for_each(|(into, from)| *into = (*into).max(*from));
    };
    let both = |comm: &mut Communicator| -> Result<_, Error> {
        Ok([comm.register_op("merge", add)?, comm.register_op("merge", keep_largest)?])
    };
    on_all(3, &[], |comm| {
        let [sum, largest] = both(comm).unwrap();
        for (op, wanted) in [(&sum, 6), (&largest, 3), (&sum, 6)] {
            let mut word = [comm.rank().0 + 1];
            comm.all_reduce_by(&mut word, op).unwrap();
            assert_eq!(word, [wanted]);
        }
    });
    fails(
        |comm| {
            // A rank may learn of the failure while it registers an operation.
            let [sum, largest] = both(comm)?;
            let op = if comm.rank() == Rank(1) { &largest } else { &sum };
            comm.all_reduce_by(&mut [comm.rank().0; 5], op)
        },
        |cause| matches!(cause, FailureCause::Mismatch { .. }),
    );
}

#[test]
fn uneven_calls_mix_with_other_calls_and_messages() {
    on_all(4, &[], |comm| {
        let own = comm.rank();
        let peer = Rank(own.0 ^ 1);
        for round in 0..20_u32 {
            // These messages wait while the collectives pass them.
            comm.send(&[round], peer, 5).unwrap();
            let mut sum = [own.0 + round; 300];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [6 + 4 * round; 300]);
            let mut all = [own.0 + round; 4];
            comm.all_to_all_v(&mut all, Parts::new(&[1; 4])).unwrap();
            assert_eq!(all, [0, 1, 2, 3].map(|rank| rank + round));
            comm.barrier().unwrap();
            let mut word = [0];
            comm.recv(&mut word, peer, 5).unwrap();
            assert_eq!(word, [round]);
        }
    });
}

/// Every rank of three makes `call`, and fails with a cause that `is_expected`.
fn fails(
    call: impl Fn(&mut Communicator) -> Result<(), Error> + Sync,
    is_expected: impl Fn(&FailureCause) -> bool + Sync,
) {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        // A rank that has done its part learns of the failure in its next call.
        let result = call(comm).and_then(|()| comm.barrier());
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        assert!(is_expected(&failure.cause), "{failure}");
        let again = comm.all_gather_v(&mut [0; 3], Parts::new(&[1; 3]));
        assert!(matches!(again, Err(Error::Failed(_))), "{again:?}");
    });
}

#[test]
fn ranks_that_disagree_about_a_part_fail_by_name() {
    for (sent, received) in [(5, 6), (0, 1), (1, 0), (3000, 2999)] {
        let recv = format!("recv [{received} bytes from rank 0, tag 0]");
        let text = format!("{recv} met a message of {sent} bytes");
        let is_expected = |cause: &FailureCause| match cause {
            FailureCause::Message { cause, .. } => cause.contains(&text),
            _ => false,
        };
        fails(
            |comm| {
                // Rank 0 sends `sent` bytes to rank 2, which expects others.
                let own = comm.rank().index();
                let len = |from, to, special| if (from, to) == (0, 2) { special } else { 2 };
                let send: Vec<_> = (0..3).map(|to| len(own, to, sent)).collect();
                let recv: Vec<_> = (0..3).map(|from| len(from, own, received)).collect();
                let (send, recv) = (Parts::new(&send), Parts::new(&recv));
                let (input, mut output) = ([1_u8; 4000], [0_u8; 4000]);
                comm.all_to_all_v_into(&input, send, &mut output, recv)
            },
            is_expected,
        );
        fails(
            |comm| {
                let counts = [received, 2, 2];
                let input = vec![1_u8; if comm.rank() == Rank(0) { sent } else { 2 }];
                comm.gather_v_into(&input, &mut [0; 4000], Parts::new(&counts), Rank(2))
            },
            is_expected,
        );
    }
}

#[test]
fn other_counts_and_other_calls_are_mismatches() {
    let is_mismatch = |cause: &FailureCause| matches!(cause, FailureCause::Mismatch { .. });
    fails(
        |comm| {
            // The sum of the counts is the same on all ranks.
            let counts = if comm.rank() == Rank(1) { [2, 3, 4] } else { [2, 4, 3] };
            let input = vec![0_u8; counts[comm.rank().index()]];
            comm.all_gather_v_into(&input, &mut [0; 9], Parts::new(&counts))
        },
        is_mismatch,
    );
    fails(
        |comm| {
            let counts = if comm.rank() == Rank(1) { [2, 3, 4] } else { [2, 4, 3] };
            comm.reduce_scatter_v(&mut [0_f32; 9], Parts::new(&counts), ReduceOp::Sum)
        },
        is_mismatch,
    );
    fails(
        |comm| match comm.rank() {
            Rank(2) => comm.all_reduce(&mut [0_u8; 3], ReduceOp::Sum),
            _ => comm.all_to_all_v(&mut [0_u8; 3], Parts::new(&[1; 3])),
        },
        is_mismatch,
    );
    fails(
        |comm| {
            // Two roots wait for each other until the timeout. A rank that is late is absent.
            comm.set_timeout(Duration::from_millis(300));
            let root = Rank(u32::from(comm.rank() == Rank(1)));
            comm.gather_v_into(&[1_u8], &mut [0_u8; 3], Parts::new(&[1; 3]), root)
        },
        |cause| matches!(cause, FailureCause::Mismatch { .. } | FailureCause::Absent { .. }),
    );
}

#[test]
fn a_rank_that_never_comes_is_named() {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        comm.set_timeout(Duration::from_millis(300));
        let result = match comm.rank() {
            Rank(2) => {
                let aborter = comm.aborter();
                while aborter.failure_cause().is_none() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                comm.barrier()
            }
            _ => comm.all_to_all_v(&mut [0_u8; 3], Parts::new(&[1; 3])),
        };
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        // On a busy machine another rank may be late.
        assert!(failure.cause.culprits().contains(&Rank(2)), "{failure}");
        let is_uneven = matches!(&failure.operation, Operation::Uneven { call, .. }
            if call.collective == UnevenCollective::AllToAllV);
        assert_eq!(is_uneven, comm.rank() != Rank(2), "{failure}");
    });
}

#[test]
fn arguments_are_checked_before_anything_moves() {
    on_all(2, &[], |comm| {
        let mut buffer = [comm.rank().0; 4];
        let own = comm.rank().index();
        let uneven = |counts, begins| Parts::at(counts, begins);
        let mut refused = vec![
            comm.all_to_all_v(&mut buffer, uneven(&[2, 3], &[0, 1])),
            comm.all_to_all_v(&mut buffer, Parts::new(&[2, 3])),
            comm.all_to_all_v(&mut buffer, Parts::new(&[4])),
            comm.all_gather_v(&mut buffer, uneven(&[1, 1], &[0, usize::MAX])),
            comm.all_gather_v(&mut buffer, uneven(&[usize::MAX, 2], &[2, 0])),
            comm.all_gather_v_into(&[1; 2], &mut buffer, Parts::new(&[1, 1])),
            comm.reduce_scatter_v(&mut buffer, uneven(&[2, 2], &[1, 0]), ReduceOp::Sum),
            comm.gather_v(&mut buffer, Parts::new(&[1, 1]), Rank(2)),
            comm.scatter_v(&mut buffer, Parts::new(&[1, 1]), Rank(9)),
            comm.gather_v_into(&[1; 2], &mut buffer, Parts::new(&[1, 1]), Rank::at(own)),
            comm.scatter_v_into(&[1; 2], Parts::new(&[1, 1]), &mut buffer, Rank::at(own)),
        ];
        let mut ints = [1_i32; 2];
        let op = ReduceOp::pre_mul_sum(0.5);
        refused.push(comm.reduce_scatter_v(&mut ints, Parts::new(&[1, 1]), op));
        refused.push(comm.all_reduce(&mut [1.0_f32], ReduceOp::BitAnd));
        refused.push(comm.all_reduce(&mut [1.0_f64], ReduceOp::LogicalXor));
        let op = ReduceOp::BitOr;
        refused.push(comm.reduce_scatter_v(&mut [0.0_f32; 2], Parts::new(&[1, 1]), op));
        for result in &refused {
            assert!(matches!(result, Err(Error::Argument { .. })), "{result:?}");
        }
        // The communicator works on. Inputs may overlap.
        let recv = Parts::new(&[2, 2]);
        let input = [comm.rank().0, 7];
        comm.all_to_all_v_into(&input, Parts::at(&[2, 2], &[0, 0]), &mut buffer, recv).unwrap();
        assert_eq!(buffer, [0, 7, 1, 7]);
    });
}

#[test]
fn bytes_of_any_type_go_through_the_untyped_call() {
    on_all(2, &[], |comm| {
        let mut both = [u8::from(comm.rank() == Rank(1)); 8];
        let uneven = Uneven::AllGather { parts: Parts::new(&[1, 1]) };
        comm.perform_uneven(&uneven, DataType::F32, Buffers::InPlace(&mut both)).unwrap();
        assert_eq!(both, [0, 0, 0, 0, 1, 1, 1, 1]);
    });
}
