//! All-reduce in windows: every type, operation and difficult count, over every transport. Ranks
//! with shared memory use the algorithm for windows. Also tests refused calls.

use ringfold::{
    Call, Collective, Communicator, DataType, Error, Rank, ReduceOp, Window, Windows, Wire,
};
use ringfold_bench::oracle::Oracle;

use crate::via::Via;
use crate::{COUNTS, kinds};

/// Selects the algorithm for windows for calls of every length.
const FORCED: [(&str, &str); 1] = [("RINGFOLD_ALGO", "allreduce:window")];

/// Bytes of each window.
const BYTES: usize = 70_001 * 8 + 128;

type Pair = (Window<u8>, Window<u8>);

fn pair(comm: &mut Communicator) -> Pair {
    (comm.alloc(BYTES).unwrap(), comm.alloc(BYTES).unwrap())
}

/// Performs `call` in shared windows from byte `at`, blocking on one rank and started on another,
/// and counts the wrong elements of this rank.
fn wrong_if_started(
    comm: &mut Communicator,
    (mut input, mut output): Pair,
    call: &Call,
    in_place: bool,
    at: usize,
) -> (usize, Pair) {
    let (rank, size) = (comm.rank(), comm.size());
    let oracle = Oracle::new(*call, size, at as u64);
    let call = Call { op: oracle.op(rank), ..*call };
    let range = at..at + call.count * call.data_type.bytes();
    output.fill(0xa5);
    oracle.fill_input(rank, &mut if in_place { &mut output } else { &mut input }[range.clone()]);
    let (input, output) = (input.share(), output.share());
    let from = (!in_place).then_some(&input);
    if rank.0.is_multiple_of(2) {
        let call = comm.start_in_windows(&call, from, &output, at, ()).unwrap();
        call.wait().unwrap();
    } else {
        comm.perform_in_shared_windows(&call, from, &output, at).unwrap();
    }
    let [input, output] = [input, output].map(|window| window.take().unwrap());
    let outside = output[..at].iter().chain(&output[range.end..]);
    assert!(outside.copied().all(|byte| byte == 0xa5), "{call} wrote beyond its range");
    (oracle.count_wrong(rank, &output[range]), (input, output))
}

/// Performs `call` from byte `at`, and counts the wrong elements of this rank.
fn wrong(
    comm: &mut Communicator,
    (input, output): &mut Pair,
    call: &Call,
    in_place: bool,
    at: usize,
) -> usize {
    let (rank, size) = (comm.rank(), comm.size());
    let oracle = Oracle::new(*call, size, at as u64);
    let call = Call { op: oracle.op(rank), ..*call };
    let range = at..at + call.count * call.data_type.bytes();
    output.fill(0xa5);
    if in_place {
        oracle.fill_input(rank, &mut output[range.clone()]);
        comm.perform_in_windows(&call, Windows::InPlace(output), at).unwrap();
    } else {
        oracle.fill_input(rank, &mut input[range.clone()]);
        let before = input[range.clone()].to_vec();
        comm.perform_in_windows(&call, Windows::Apart { input, output }, at).unwrap();
        assert!(input[range.clone()] == before, "{call} wrote to its input");
    }
    let outside = output[..at].iter().chain(&output[range.end..]);
    assert!(outside.copied().all(|byte| byte == 0xa5), "{call} wrote beyond its range");
    oracle.count_wrong(rank, &output[range])
}

fn all_calls() -> Vec<Call> {
    let (collective, root) = (Collective::AllReduce, Rank(0));
    let mut calls = Vec::new();
    for (kind, (data_type, op)) in kinds(collective).into_iter().enumerate() {
        for (index, count) in COUNTS.into_iter().enumerate() {
            if count < 1000 || (kind + index).is_multiple_of(5) {
                calls.push(Call { collective, count, data_type, op, root, wire: Wire::default() });
            }
        }
    }
    calls
}

fn everything(via: Via, sizes: &[usize]) {
    some_calls(via, sizes, 1);
}

/// Makes one in `of` calls.
pub(crate) fn some_calls(via: Via, sizes: &[usize], of: usize) {
    let calls: Vec<_> = all_calls().into_iter().step_by(of).collect();
    for &size in sizes {
        via.run(size, &FORCED, |comm| {
            let mut pair = pair(comm);
            let forced = comm.algorithm_in(&pair.0, &calls[0]);
            assert_eq!(forced == "window", via == Via::Shm, "{via:?}: {forced}");
            for (index, call) in calls.iter().enumerate() {
                for in_place in [false, true] {
                    // At the start of a cache line, and across two lines.
                    let at = [0, 64, 8][index % 3];
                    let wrong = wrong(comm, &mut pair, call, in_place, at);
                    let rank = comm.rank();
                    assert_eq!(wrong, 0, "{call}, in place {in_place}, rank {rank} of {size}");
                }
            }
        });
    }
}

/// Calls that were started, each on all ranks or beside blocking ones.
fn some_started(via: Via, sizes: &[usize], of: usize) {
    let calls: Vec<_> = all_calls().into_iter().step_by(of).collect();
    for &size in sizes {
        via.run(size, &FORCED, |comm| {
            let mut pair = pair(comm);
            for (index, call) in calls.iter().enumerate() {
                for in_place in [false, true] {
                    let at = [0, 64, 8][index % 3];
                    let (wrong, again) = wrong_if_started(comm, pair, call, in_place, at);
                    pair = again;
                    let rank = comm.rank();
                    assert_eq!(wrong, 0, "{call}, in place {in_place}, rank {rank} of {size}");
                }
            }
        });
    }
}

#[test]
fn started() {
    some_started(Via::Shm, &[2, 3], 1);
    some_started(Via::Local, &[2], 7);
    some_started(Via::Tcp, &[2], 7);
}

/// Several calls wait for one window, for the same elements and for others, and other collectives
/// come between them.
#[test]
fn many_started_in_one_window() {
    for via in Via::ALL {
        via.run(3, &[], |comm| {
            let mut window = comm.alloc::<u64>(3000).unwrap();
            window.fill(1);
            let shared = window.share();
            let mut requests = Vec::new();
            let mut others = Vec::new();
            for part in [..3000, ..1000] {
                let sum = ReduceOp::Sum;
                requests.push(comm.start_all_reduce_window(&shared, part, sum).unwrap());
                others.push(comm.start_all_reduce(vec![1_u32; 10], sum).unwrap());
                requests.push(comm.start_all_reduce_window(&shared, 2000.., sum).unwrap());
            }
            let mut ranks = [comm.rank().0];
            comm.all_reduce(&mut ranks, ReduceOp::Max).unwrap();
            assert_eq!(ranks, [2]);
            let whole =
                comm.prepare(|comm| comm.start_all_reduce_window(&shared, .., ReduceOp::Max));
            let mut whole = whole.unwrap();
            for _ in 0..3 {
                whole.start(comm).unwrap();
                whole.wait().unwrap();
            }
            // Between its starts the program uses the window.
            assert_eq!(shared.with(|elements| elements[3]), Some(9));
            requests.into_iter().for_each(|request| request.wait().unwrap());
            others.into_iter().for_each(|request| assert_eq!(request.wait().unwrap(), [3; 10]));
            let window = shared.take().unwrap();
            assert_eq!([window[0], window[1500], window[2500]], [9, 3, 27], "{via:?}");
            let refused = comm.start_all_reduce_window(&shared, .., ReduceOp::Sum).unwrap_err();
            assert!(refused.to_string().contains("the program has taken the window"), "{refused}");
            let refused = whole.start(comm).unwrap_err();
            assert!(refused.to_string().contains("the program has taken its window"), "{refused}");
        });
    }
}

/// A call that is refused leaves the window to its peers.
#[test]
fn a_refused_call_leaves_a_shared_window_as_it_was() {
    Via::Shm.run(2, &FORCED, |comm| {
        let mut window = comm.alloc::<f32>(100_000).unwrap();
        window.fill(1.0);
        let window = window.share();
        let (collective, data_type, root) = (Collective::AllReduce, DataType::F32, Rank(0));
        let (count, wire) = (100_000, Wire::default());
        let call = |op| Call { collective, count, data_type, op, root, wire };
        let no = call(ReduceOp::BitAnd);
        comm.perform_in_shared_windows(&no, None, &window, 0).unwrap_err();
        comm.start_in_windows(&no, None, &window, 0, ()).unwrap_err();
        comm.start_in_windows(&call(ReduceOp::Sum), Some(&window), &window, 0, ()).unwrap_err();
        for sum in [2.0, 4.0] {
            comm.perform_in_shared_windows(&call(ReduceOp::Sum), None, &window, 0).unwrap();
            window.with(|elements| assert!(elements.iter().all(|it| *it == sum))).unwrap();
        }
    });
}

#[test]
fn by_threads() {
    everything(Via::Local, &[1, 2, 3]);
}

#[test]
fn over_shared_memory() {
    everything(Via::Shm, &[2, 3, 5]);
}

#[test]
fn over_tcp() {
    everything(Via::Tcp, &[2, 3]);
}

/// With oversubscribed CPUs, calls in windows may use staging buffers, as other calls do.
#[test]
fn through_staging_buffers() {
    let calls = all_calls();
    for size in [2, 7] {
        Via::Shm.run(size, &[("RINGFOLD_ALGO", "allreduce:staged_one_shot")], |comm| {
            let mut pair = pair(comm);
            let chosen = comm.algorithm_in(&pair.0, &calls[0]);
            let is_oversubscribed =
                std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < size);
            assert_eq!(chosen == "staged_one_shot", is_oversubscribed, "{size}: {chosen}");
            for (index, call) in calls.iter().enumerate() {
                let mut ranks = [comm.rank().0, 1];
                for in_place in [false, true] {
                    let wrong = wrong(comm, &mut pair, call, in_place, [0, 64, 8][index % 3]);
                    assert_eq!(wrong, 0, "{call}, in place {in_place}, of {size}");
                    comm.all_reduce(&mut ranks[usize::from(in_place)..], ReduceOp::Max).unwrap();
                }
                assert_eq!(ranks.map(usize::try_from), [Ok(size - 1), Ok(1)]);
            }
        });
    }
}

/// With more ranks than sources of a reduction, partial results are needed.
#[test]
fn of_many_ranks() {
    Via::Shm.run(19, &FORCED, |comm| {
        let mut window = comm.alloc::<i32>(5003).unwrap();
        let rank = comm.rank().0.cast_signed();
        for (element, i) in window.iter_mut().zip(0..) {
            *element = i + rank;
        }
        comm.all_reduce_window(&mut window, .., ReduceOp::Sum).unwrap();
        let right = |(i, element): (usize, &i32)| *element == 19 * i32::try_from(i).unwrap() + 171;
        assert!(window.iter().enumerate().all(right));
    });
}

/// Long results are written with non-temporal stores, and are readable when the call returns.
#[test]
fn of_many_elements() {
    let len = (16 << 20) / size_of::<u32>() + 777;
    Via::Shm.run(3, &[], |comm| {
        let (mut input, mut output) = (comm.alloc(len).unwrap(), comm.alloc(len).unwrap());
        for round in 0..3 {
            let mine = (comm.rank().0 + 1) * (round + 1);
            input.iter_mut().zip(0_u32..).for_each(|(element, i)| *element = i.wrapping_mul(mine));
            comm.all_reduce_window_into(&input, &mut output, 5.., ReduceOp::Sum).unwrap();
            let right = |(i, element): (u32, &u32)| *element == i.wrapping_mul(6 * (round + 1));
            assert!((0..).zip(output.iter()).skip(5).all(right));
            assert!(output[..5].iter().all(|element| *element == 0));
        }
    });
}

#[test]
fn windows_are_zero_outlive_each_other_and_serve_other_calls() {
    Via::ALL.into_iter().for_each(outlive_each_other);
}

pub(crate) fn outlive_each_other(via: Via) {
    via.run(3, &[], |comm| {
        let rank = comm.rank();
        let mut kept = comm.alloc::<f32>(3000).unwrap();
        assert!(kept.iter().all(|value| *value == 0.0));
        for round in 0..20_u32 {
            let mut window = comm.alloc::<u32>(1000 + round as usize).unwrap();
            window.fill(round + rank.0);
            comm.all_reduce_window(&mut window, 1.., ReduceOp::Sum).unwrap();
            assert!(window[1..].iter().all(|value| *value == 3 * round + 3), "{via:?}");
            assert_eq!(window[0], round + rank.0);
        }
        // One rank drops its window while the others still use theirs.
        let other = comm.alloc::<f32>(3000).unwrap();
        if rank == Rank(1) {
            drop(other);
        } else {
            assert!(other.iter().all(|value| *value == 0.0));
        }
        kept.fill(1.0);
        comm.all_reduce(&mut kept, ReduceOp::Sum).unwrap();
        assert!(kept.iter().all(|value| *value == 3.0));
        let mut none = comm.alloc::<f64>(0).unwrap();
        comm.all_reduce_window(&mut none, .., ReduceOp::Sum).unwrap();
        assert!(none.is_empty());
    });
}

#[test]
fn different_requests_are_refused_on_all_ranks() {
    Via::ALL.into_iter().for_each(ask_differently);
}

pub(crate) fn ask_differently(via: Via) {
    via.run(3, &[], |comm| {
        let rank = comm.rank();
        let error = comm.alloc::<f32>(10 + rank.index() / 2).unwrap_err();
        let says = ["rank 2 asks for f32 x 11", "rank 0 for f32 x 10", "same"];
        assert!(says.iter().all(|word| error.to_string().contains(word)), "{error}");
        let error = comm.alloc::<f32>(usize::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("more than"), "{error}");
        assert!(comm.alloc::<f32>(10).is_ok(), "the communicator still works");
    });
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    Via::Local.run(2, &[], |comm| {
        let mut window = comm.alloc::<f32>(10).unwrap();
        let refused = |error: Result<(), Error>, why: &str| {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Argument { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        refused(comm.all_reduce_window(&mut window, 5..11, ReduceOp::Sum), "window of 10");
        let (collective, data_type, root) = (Collective::Broadcast, DataType::F32, Rank(0));
        let call = Call {
            collective,
            count: 1,
            data_type,
            op: ReduceOp::Sum,
            root,
            wire: Wire::default(),
        };
        let broadcast = comm.perform_in_windows(&call, Windows::InPlace(&mut window), 0);
        refused(broadcast, "only all-reduce");
        let call = Call { collective: Collective::AllReduce, count: 9, ..call };
        let beyond = comm.perform_in_windows(&call, Windows::InPlace(&mut window), 8);
        refused(beyond, "exceed");
        let others = ringfold::local::run(1, |other| {
            let mut own = other.alloc::<f32>(10).unwrap();
            other.all_reduce_window(&mut own, .., ReduceOp::Sum).unwrap();
            own
        });
        let mut others = others.unwrap().remove(0);
        refused(comm.all_reduce_window(&mut others, .., ReduceOp::Sum), "another communicator");
    });
}
