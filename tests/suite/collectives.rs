//! Every algorithm with every type, operation and difficult count, over every transport, against
//! an oracle that shares no code with it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod allocations;
mod bits;
mod call_groups;
mod failovers;
mod messages;
mod rdma;
mod registered;
mod requests;
mod uneven;
mod user_ops;
mod via;
mod windows;

use std::thread;
use std::time::Duration;

use ringfold::{Buffers, Call, Collective, Communicator, Config, DataType, Rank, ReduceOp, Wire};
use ringfold_bench::oracle::Oracle;
use ringfold_collectives::Algorithm;
use ringfold_harness::Random;
use via::Via;

const OPS: [ReduceOp; 6] = [
    ReduceOp::Sum,
    ReduceOp::Prod,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Avg,
    ReduceOp::pre_mul_sum(1.0),
];

/// Counts: none, fewer than ranks, odd, a few chunks, and more than a link's eager size.
const COUNTS: [usize; 7] = [0, 1, 3, 17, 1000, 4099, 70_001];

/// Performs a call on bytes. Some ranks start it and wait for it, and the others block in it.
fn perform(comm: &mut Communicator, call: &Call, buffers: Buffers<'_>, seed: u64) {
    if !(seed + u64::from(comm.rank().0)).is_multiple_of(3) {
        return comm.perform(call, buffers).unwrap();
    }
    match buffers {
        Buffers::Apart { input, output } => {
            let both = (input.to_vec(), output.to_vec());
            let request = comm.start(call, both, |(input, output)| (Some(input), output));
            output.copy_from_slice(&request.unwrap().wait().unwrap().1);
        }
        Buffers::InPlace(both) => {
            let request = comm.start(call, both.to_vec(), |both| (None, both)).unwrap();
            both.copy_from_slice(&request.wait().unwrap());
        }
        other => panic!("{other:?}"),
    }
}

/// Performs `call` in new buffers, and counts the wrong elements of this rank.
fn wrong(comm: &mut Communicator, call: &Call, in_place: bool, seed: u64) -> usize {
    let [input, output] = [call.input_len(comm.size()), call.output_len(comm.size())];
    let bytes = input.max(output) * call.data_type.bytes();
    let [input, output] = &mut [vec![0; bytes], vec![0; bytes]];
    wrong_in([input, output], comm, call, in_place, seed)
}

/// Performs `call` in the given memory, and counts the wrong elements of this rank.
fn wrong_in(
    [input, output]: [&mut [u8]; 2],
    comm: &mut Communicator,
    call: &Call,
    in_place: bool,
    seed: u64,
) -> usize {
    let (rank, size, bytes) = (comm.rank(), comm.size(), call.data_type.bytes());
    let oracle = Oracle::new(*call, size, seed);
    let call = Call { op: oracle.op(rank), ..*call };
    let [input_len, output_len, both] =
        [call.input_of(rank, size), call.output_of(rank, size), call.in_place_of(rank, size)]
            .map(|elements| elements * bytes);
    let input = &mut input[..input_len];
    oracle.fill_input(rank, input);
    if !in_place {
        let output = &mut output[..output_len];
        output.fill(0xa5);
        perform(comm, &call, Buffers::Apart { input, output }, seed);
        if call.collective.reduces() && call.summands(rank, size).is_empty() {
            assert!(output.iter().all(|byte| *byte == 0xa5), "{call} wrote an output of nothing");
        }
        return oracle.count_wrong(rank, output);
    }
    let buffer = &mut output[..both];
    buffer.fill(0xa5);
    let [input_at, output_at] = call.in_place_at(rank).map(|at| at * bytes);
    buffer[input_at..input_at + input_len].copy_from_slice(input);
    perform(comm, &call, Buffers::InPlace(buffer), seed);
    let has_result = !call.collective.reduces() || !call.summands(rank, size).is_empty();
    if !call.has_output(rank) || !has_result {
        assert_eq!(buffer, input, "{call} in place wrote to a rank without a result");
    }
    if output_len < input_len {
        let outside = |i: &usize| !(output_at..output_at + output_len).contains(i);
        let intact = (0..input_len).filter(outside).all(|i| buffer[i] == input[i]);
        assert!(intact, "{call} in place wrote beyond its block");
    }
    oracle.count_wrong(rank, &buffer[output_at..output_at + output_len])
}

/// Returns all types with one operation, and all operations with two types.
fn kinds(collective: Collective) -> Vec<(DataType, ReduceOp)> {
    if !collective.reduces() {
        return [DataType::U8, DataType::F32].map(|t| (t, ReduceOp::Sum)).to_vec();
    }
    let types = DataType::ALL.iter().map(|t| (*t, ReduceOp::Sum));
    let ops = OPS.iter().flat_map(|op| [DataType::Bf16, DataType::I32].map(|t| (t, *op)));
    let bits = [
        (DataType::U8, ReduceOp::BitAnd),
        (DataType::I64, ReduceOp::BitXor),
        (DataType::I32, ReduceOp::LogicalXor),
    ];
    types.chain(ops).chain(bits).collect()
}

fn calls(collective: Collective, size: usize) -> Vec<Call> {
    let roots = if collective.has_root() { vec![0, size - 1] } else { vec![0] };
    let mut calls = Vec::new();
    for root in roots {
        for (kind, (data_type, op)) in kinds(collective).into_iter().enumerate() {
            for (index, count) in COUNTS.into_iter().enumerate() {
                // Every kind has large counts now and then.
                if count < 1000 || (kind + index).is_multiple_of(5) {
                    let (root, wire) = (Rank::at(root), Wire::Element);
                    let call = Call { collective, count, data_type, op, root, wire };
                    calls.push(call);
                    if call.has_wire() {
                        calls.push(Call { wire: Wire::Accumulator, ..call });
                    }
                }
            }
        }
    }
    calls
}

/// Makes all calls of threads, and elsewhere one in three of the many calls that reduce. With
/// `RINGFOLD_EVERY_CALL` at build time all transports carry all calls.
fn all_algorithms(via: Via, collective: Collective, sizes: &[usize]) {
    let is_short = option_env!("RINGFOLD_EVERY_CALL").is_none();
    let of = if is_short && via != Via::Local && collective.reduces() { 3 } else { 1 };
    some_calls(via, collective, sizes, of);
}

/// Runs all algorithms, each with one in `of` calls. Each size has others.
fn some_calls(via: Via, collective: Collective, sizes: &[usize], of: usize) {
    for (place, &size) in sizes.iter().enumerate() {
        // `windows` tests the algorithms for windows.
        let is_available =
            |algorithm: &&Algorithm| via.carries(algorithm) && !algorithm.needs_windows();
        for algorithm in Algorithm::of(collective).iter().filter(is_available) {
            let settings = [("RINGFOLD_ALGO", &*format!("{collective}:{}", algorithm.name))];
            let calls: Vec<_> =
                calls(collective, size).into_iter().skip(place % of).step_by(of).collect();
            via.run(size, &settings, |comm| {
                assert_eq!(comm.algorithm_for(&calls[0]), algorithm.name);
                for (index, call) in calls.iter().enumerate() {
                    for in_place in [false, true] {
                        let wrong = wrong(comm, call, in_place, index as u64);
                        let (rank, name) = (comm.rank(), algorithm.name);
                        assert_eq!(
                            wrong, 0,
                            "{call} by {name}, in place {in_place}, rank {rank} of {size}, {via:?}"
                        );
                    }
                }
            });
        }
    }
}

macro_rules! suite {
    ($($name:ident: $via:expr, $sizes:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn allreduce() {
                all_algorithms($via, Collective::AllReduce, &$sizes);
            }

            #[test]
            fn allgather() {
                all_algorithms($via, Collective::AllGather, &$sizes);
            }

            #[test]
            fn reduce_scatter() {
                all_algorithms($via, Collective::ReduceScatter, &$sizes);
            }

            #[test]
            fn broadcast() {
                all_algorithms($via, Collective::Broadcast, &$sizes);
            }

            #[test]
            fn reduce() {
                all_algorithms($via, Collective::Reduce, &$sizes);
            }

            #[test]
            fn alltoall() {
                all_algorithms($via, Collective::AllToAll, &$sizes);
            }

            #[test]
            fn gather() {
                all_algorithms($via, Collective::Gather, &$sizes);
            }

            #[test]
            fn scatter() {
                all_algorithms($via, Collective::Scatter, &$sizes);
            }

            #[test]
            fn scan() {
                all_algorithms($via, Collective::Scan, &$sizes);
            }

            #[test]
            fn exscan() {
                all_algorithms($via, Collective::Exscan, &$sizes);
            }
        }
    )*};
}

suite! {
    local: Via::Local, [1, 2, 3, 5, 8];
    shm: Via::Shm, [2, 3, 6];
    shm_attached: Via::ShmAttached, [2, 5];
    tcp: Via::Tcp, [2, 3, 6];
    hosts: Via::Hosts(2), [4, 6, 5];
    more_hosts: Via::Hosts(3), [6, 7];
}

/// Includes long calls, whose pieces alternate within and between hosts. Checks the layout, too.
#[test]
fn hosts_of_several_ranks_work_among_themselves_first() {
    for (hosts, size) in [(2, 4), (2, 6), (3, 6), (2, 5), (4, 8)] {
        let settings = [("RINGFOLD_ALGO", "hierarchical"), ("RINGFOLD_CHUNK", "16K")];
        Via::Hosts(hosts).run(size, &settings, |comm| {
            assert_eq!(comm.layout().hosts(), hosts);
            for (data_type, count) in
                [(DataType::F32, 1_000_003), (DataType::Bf16, 2_500_001), (DataType::I8, 40_000)]
            {
                for collective in Collective::ALL {
                    let (op, root) = (ReduceOp::Sum, Rank::at(size - 1));
                    let root = if collective.has_root() { root } else { Rank(0) };
                    let count = match collective {
                        Collective::Barrier => 0,
                        collective if collective.has_blocks() => count / size,
                        _ => count,
                    };
                    let call =
                        Call { collective, count, data_type, op, root, wire: Wire::default() };
                    for in_place in [false, true] {
                        let wrong = wrong(comm, &call, in_place, 7);
                        assert_eq!(wrong, 0, "{call}, in place {in_place}, {size} on {hosts}");
                    }
                }
            }
        });
    }
}

/// Makes long calls in lanes with a connection each.
#[test]
fn channels_carry_parts_of_long_calls() {
    for (via, size, channels) in
        [(Via::Tcp, 2, "2"), (Via::Tcp, 3, "8"), (Via::Hosts(2), 4, "3"), (Via::Shm, 3, "5")]
    {
        let settings = [
            ("RINGFOLD_ALGO", "ring;broadcast:chain;barrier:dissemination"),
            ("RINGFOLD_CHANNELS", channels),
            ("RINGFOLD_CHUNK", "4K"),
        ];
        via.run(size, &settings, |comm| {
            assert_eq!(comm.layout().channels().to_string(), channels);
            for count in [0, 1, 5_003, 70_001, 300_007] {
                for collective in Collective::ALL {
                    let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(1));
                    let root = if collective.has_root() { root } else { Rank(0) };
                    let count = if collective == Collective::Barrier { 0 } else { count };
                    let call =
                        Call { collective, count, data_type, op, root, wire: Wire::default() };
                    for in_place in [false, true] {
                        let wrong = wrong(comm, &call, in_place, count as u64);
                        assert_eq!(wrong, 0, "{call}, in place {in_place}, {size}, {via:?}");
                    }
                }
            }
        });
    }
}

#[test]
fn numbers_of_channels_are_clamped() {
    for (asked, given) in [(0, 1), (3, 3), (200, 8)] {
        let mut config = Config::default();
        config.channels = Some(asked);
        let channels = ringfold::local::run_with(&config, 2, |comm| comm.layout().channels());
        assert_eq!(channels.unwrap(), [given; 2]);
    }
}

/// Makes calls of no, one or several pieces with different algorithms. Each call uses one half of
/// the staging buffer while peers may still read the other half. Broadcasts come between; after
/// one, the root has no signal from a peer.
#[test]
fn calls_through_staging_buffers_run_in_any_order() {
    const CALLS: usize = 300;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed =
        option_env!("RINGFOLD_STAGING_SEED").map_or_else(|| now.into(), |s| s.parse().unwrap());
    println!("RINGFOLD_STAGING_SEED={seed}");
    let all = Collective::ALL.into_iter().flat_map(Algorithm::of);
    let staged: Vec<&Algorithm> = all.filter(|algorithm| algorithm.needs_staging()).collect();
    let some: Vec<_> =
        staged.into_iter().chain(Algorithm::of(Collective::Broadcast).iter().take(1)).collect();
    for size in [2, 3, 4] {
        // All ranks share one random stream for the calls. Each has its own for its delays.
        Via::Shm.run(size, &[("RINGFOLD_CHUNK", "4K")], |comm| {
            let (mut what, mut when) =
                (Random::new(seed), Random::new(seed + 1 + u64::from(comm.rank().0)));
            for call in 0..CALLS {
                let algorithm = some[what.below(some.len())];
                let count = [0, 1, 300, 5000, 9000, 20_000][what.below(6)];
                let (collective, data_type) = (algorithm.collective, DataType::F32);
                comm.set_algorithms(format!("{collective}:{}", algorithm.name).parse().unwrap());
                let call_made = Call {
                    collective,
                    count,
                    data_type,
                    op: ReduceOp::Sum,
                    root: Rank(0),
                    wire: Wire::default(),
                };
                if when.below(8) == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
                let wrong = wrong(comm, &call_made, what.below(2) == 0, call as u64);
                assert_eq!(wrong, 0, "call {call}, {call_made} by {algorithm}, {size} ranks");
            }
        });
    }
}

/// Covers sizes around the strided layout of staging buffers between two ranks.
#[test]
fn strided_parts_of_staging_buffers_are_whole() {
    let staged = "allreduce:staged_one_shot;allgather:staged;reduce_scatter:staged";
    Via::Shm.run(2, &[("RINGFOLD_ALGO", staged)], |comm| {
        for collective in [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter]
        {
            for (data_type, op) in kinds(collective) {
                for bytes in [4095, 4096, 4104, 8 << 10, 10_001, 16 << 10, (16 << 10) + 8] {
                    let count = bytes / data_type.bytes();
                    let call = Call {
                        collective,
                        count,
                        data_type,
                        op,
                        root: Rank(0),
                        wire: Wire::default(),
                    };
                    for in_place in [false, true] {
                        let wrong = wrong(comm, &call, in_place, bytes as u64);
                        assert_eq!(wrong, 0, "{call}, in place {in_place}");
                    }
                }
            }
        }
    });
}

/// The sender of a rendezvous send waits for the receiver. A ring would accept a message of this
/// length at once.
#[test]
fn a_rendezvous_send_waits_for_its_receiver() {
    const LATE: Duration = Duration::from_millis(100);
    let settings = [("RINGFOLD_ALGO", "broadcast:single_copy")];
    let spent = Via::ShmTried.run(2, &settings, |comm| {
        let mut buffer = vec![0_u8; 200_000];
        // In the first call the peer may not know yet whether it can read this process.
        comm.broadcast(&mut buffer, Rank(0)).unwrap();
        comm.barrier().unwrap();
        let begin = std::time::Instant::now();
        if comm.rank() != Rank(0) {
            thread::sleep(LATE);
        }
        comm.broadcast(&mut buffer, Rank(0)).unwrap();
        begin.elapsed()
    });
    assert!(spent[0] > LATE / 2, "{spent:?}");
}

/// The first call that reads peers' memory tests whether that is possible. If not, all ranks choose
/// another algorithm, and the call still gives the right result.
#[test]
fn ranks_choose_again_if_peers_memory_is_closed() {
    for (collective, settings) in [
        (Collective::Broadcast, vec![]),
        (Collective::AllGather, vec![]),
        (Collective::AllGather, vec![("RINGFOLD_ALGO", "allgather:single_copy")]),
    ] {
        for via in [Via::Shm, Via::ShmTried] {
            let names = via.run(2, &settings, |comm| {
                if comm.size() > thread::available_parallelism().map_or(1, usize::from) {
                    return [""; 2];
                }
                let (count, data_type) = (200_000, DataType::U8);
                let call = Call {
                    collective,
                    count,
                    data_type,
                    op: ReduceOp::Sum,
                    root: Rank(1),
                    wire: Wire::default(),
                };
                let before = comm.algorithm_for(&call);
                for in_place in [false, true, false] {
                    assert_eq!(wrong(comm, &call, in_place, 5), 0, "{call} over {via:?}");
                }
                [before, comm.algorithm_for(&call)]
            });
            assert_eq!(names[0], names[1], "ranks agree");
            let [before, after] = names[0];
            assert!(matches!(before, "single_copy" | ""), "{before}");
            let is_closed = via == Via::Shm && settings.is_empty() && !before.is_empty();
            assert!(!is_closed || after != "single_copy", "{collective} over {via:?}: {after}");
        }
    }
}

/// Very long results are written with non-temporal stores.
#[test]
fn very_long_results_are_right() {
    for size in [2, 3] {
        Via::Shm.run(size, &[("RINGFOLD_ALGO", "^staged")], |comm| {
            for (collective, count) in [
                (Collective::Broadcast, 49 * 1024 * 1024 + 3),
                (Collective::AllGather, 49 * 1024 * 1024 / size + 5),
            ] {
                let (data_type, op, root) = (DataType::U8, ReduceOp::Sum, Rank(1));
                let call = Call { collective, count, data_type, op, root, wire: Wire::default() };
                for in_place in [false, true] {
                    let wrong = wrong(comm, &call, in_place, 11);
                    assert_eq!(wrong, 0, "{call}, in place {in_place}, {size} ranks");
                }
            }
        });
    }
}

#[test]
fn a_barrier_holds_all_ranks_back() {
    Via::ALL.into_iter().for_each(|via| barriers(via, &[1, 2, 3, 6]));
}

fn barriers(via: Via, sizes: &[usize]) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for &size in sizes {
        let entered = AtomicUsize::new(0);
        via.run(size, &[], |comm| {
            for round in 1..=20 {
                entered.fetch_add(1, Ordering::SeqCst);
                comm.barrier().unwrap();
                assert!(entered.load(Ordering::SeqCst) >= round * size, "{via:?}, {size} ranks");
            }
        });
    }
}

/// Short repeated calls take the fast path.
#[test]
fn calls_that_repeat_are_right_too() {
    for (via, size) in [(Via::Local, 2), (Via::Shm, 2), (Via::Tcp, 2), (Via::Shm, 3)] {
        repeats(via, size);
    }
}

fn repeats(via: Via, size: usize) {
    via.run(size, &[], |comm| {
        for (data_type, op) in kinds(Collective::AllReduce) {
            for count in [1, 2, 3, 7, 16] {
                let (collective, root) = (Collective::AllReduce, Rank(0));
                let call = Call { collective, count, data_type, op, root, wire: Wire::default() };
                for round in 0..8_u64 {
                    // Each rank is late now and then, to make the others wait in every way.
                    if round % 4 == u64::from(comm.rank().0) {
                        thread::sleep(Duration::from_micros(100 * round));
                    }
                    let wrong = wrong(comm, &call, count % 2 == 0, round);
                    assert_eq!(wrong, 0, "{call}, round {round}, {via:?}, {size} ranks");
                }
            }
        }
    });
}

#[test]
fn a_call_that_differs_after_repeats_is_named() {
    Via::ALL.into_iter().for_each(differs_after_repeats);
}

fn differs_after_repeats(via: Via) {
    for mine in 0..2 {
        via.run(2, &[], |comm| {
            let mut buffer = [1.0_f32, 2.0];
            for _ in 0..100 {
                comm.all_reduce(&mut buffer, ReduceOp::Max).unwrap();
            }
            let op = if comm.rank().0 == mine { ReduceOp::Min } else { ReduceOp::Max };
            let error = comm.all_reduce(&mut buffer, op).unwrap_err().to_string();
            assert!(error.contains("min") && error.contains("#101"), "{via:?}: {error}");
            let again = comm.all_reduce(&mut buffer, op).unwrap_err().to_string();
            assert_eq!(again, error, "{via:?}");
        });
    }
}
