//! A provider that behaves like libsharp or a CollNet plugin. It sums, and finds minima and maxima,
//! of `f32`, in fixed point and a whole piece at a time.

#[path = "mock_tests.rs"]
mod mock;
#[path = "scripted_tests.rs"]
mod scripted;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use ringfold_innetwork::{Device, Group, OffloadError, Properties, Provider, Reduction};
use ringfold_topology::{Aggregation, Layout, Occupancy};
use ringfold_transport::local::Local;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire, limits};

use self::mock::Network;
use super::ready;
use crate::setup::ThreadGroups;
use crate::{Communicator, Config};
use ringfold_bootstrap::Respondent as _;
use ringfold_innetwork::member::{Offload, Shared};

const HOSTS: usize = 3;

/// The timeout of calls, for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The time after which a group counts as held up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Values of one are this much in fixed point.
const ONE: f32 = 16.0;

const PROPERTIES: Properties = Properties { chunk_bytes_max: 1 << 16, window: 1, exact: false };

fn supports(reduction: &Reduction) -> bool {
    reduction.collective == Collective::AllReduce
        && reduction.data_type == DataType::F32
        && matches!(reduction.op, ReduceOp::Sum | ReduceOp::Min | ReduceOp::Max)
}

/// Combines values in fixed point, so results are inexact.
fn combine(reduction: &Reduction, inputs: &[&[u8]], result: &mut [u8]) {
    let value = |bytes: &[u8], at: usize| {
        let bytes = bytes[4 * at..4 * at + 4].try_into().unwrap();
        (f32::from_le_bytes(bytes) * ONE).round()
    };
    for (at, result) in result.chunks_exact_mut(4).enumerate() {
        let values = inputs.iter().map(|bytes| value(bytes, at));
        let combined = match reduction.op {
            ReduceOp::Min => values.fold(f32::INFINITY, f32::min),
            ReduceOp::Max => values.fold(f32::NEG_INFINITY, f32::max),
            _ => values.sum(),
        };
        result.copy_from_slice(&(combined / ONE).to_le_bytes());
    }
}

/// Runs `rank_main` on ranks of hosts of their own, which share the plugin's tree. Returns the
/// chunks that it has combined.
fn with_plugin(
    algorithms: &str,
    is_automatic: bool,
    rank_main: impl Fn(&mut Communicator, &Network) + Sync,
) -> usize {
    let chunks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&chunks);
    let counting = move |reduction: &Reduction, inputs: &[&[u8]], result: &mut [u8]| {
        counted.fetch_add(1, Ordering::Relaxed);
        combine(reduction, inputs, result);
    };
    let network = Network::new(HOSTS, supports, counting);
    let provider = || Box::new(network.provider(PROPERTIES)) as Box<dyn Provider>;
    with_provider(algorithms, is_automatic, provider, |comm| rank_main(comm, &network));
    chunks.load(Ordering::Relaxed)
}

/// Runs `rank_main` on ranks of hosts of their own, each with a provider.
fn with_provider(
    algorithms: &str,
    is_automatic: bool,
    provider: impl Fn() -> Box<dyn Provider> + Sync,
    rank_main: impl Fn(&mut Communicator) + Sync,
) {
    let algorithms = algorithms.parse().unwrap();
    let config = Arc::new(Config { algorithms, timeout: TIMEOUT, ..Config::default() });
    let ends = Local::mesh(HOSTS).unwrap().into_iter().map(|end| Box::new(end) as _).collect();
    let parts = ThreadGroups::new(Occupancy { ranks: HOSTS, cpus: HOSTS }, 1).parts(ends).unwrap();
    thread::scope(|scope| {
        for mut parts in parts {
            let (provider, config, rank_main) = (&provider, &config, &rank_main);
            scope.spawn(move || {
                let rank = parts.control.rank();
                let mut provider = provider();
                let member = u16::try_from(rank.0).unwrap();
                let end = provider.connect(0, member).and_then(ready).unwrap();
                let shared = Shared::new(rank, provider, vec![Some(end)]).unwrap();
                let aggregation = Aggregation {
                    window: PROPERTIES.window,
                    chunk_bytes: PROPERTIES.chunk_bytes_max,
                    is_automatic,
                    latency_ps: 0,
                    ..Aggregation::star(HOSTS)
                };
                parts.layout = Layout::apart(HOSTS).with_aggregation(Some(aggregation));
                parts.control.answer_by(Arc::clone(&shared) as _);
                parts.router.set_offload(Offload::new(shared, parts.control.inquirer()));
                let mut comm = Communicator::new(config, parts);
                rank_main(&mut comm);
                comm.leave().unwrap();
            });
        }
    });
}

const FORCED: &str = "allreduce:in_network";

fn all_reduce(op: ReduceOp, count: usize) -> Call {
    let (collective, data_type) = (Collective::AllReduce, DataType::F32);
    Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() }
}

/// Values that fixed point does not hold, and their sum over all ranks.
fn sum(comm: &mut Communicator, op: ReduceOp, count: usize) -> Vec<f32> {
    let mut values = vec![1.01; count];
    comm.all_reduce(&mut values, op).unwrap();
    values
}

#[test]
fn auto_never_takes_an_inexact_provider() {
    let chunks = with_plugin("", PROPERTIES.exact, |comm, _| {
        for count in [1, 1000, 1 << 20, 1 << 26] {
            for op in [ReduceOp::Sum, ReduceOp::Max] {
                let call = all_reduce(op, count);
                assert_ne!(comm.algorithm_for(&call), "in_network", "{call}");
            }
        }
        assert!(sum(comm, ReduceOp::Sum, 100_000).iter().all(|it| *it == 1.01 + 1.01 + 1.01));
    });
    assert_eq!(chunks, 0);
}

#[test]
fn users_may_choose_it_for_the_operations_that_it_has() {
    let chunks = with_plugin(FORCED, PROPERTIES.exact, |comm, _| {
        // 16 times 1.01 is 16 in fixed point.
        assert!(sum(comm, ReduceOp::Sum, 100_000).iter().all(|it| *it == 3.0));
        assert!(sum(comm, ReduceOp::Max, 7).iter().all(|it| *it == 1.0));
    });
    assert_eq!(chunks, 100_000_usize.div_ceil(PROPERTIES.chunk_bytes_max / 4) + 1);
    let chunks = with_plugin(FORCED, PROPERTIES.exact, |comm, _| {
        // The ranks multiply themselves, and combine other types.
        assert!(sum(comm, ReduceOp::Prod, 1000).iter().all(|it| *it == 1.01 * 1.01 * 1.01));
        let mut values = vec![1.01_f64; 1000];
        comm.all_reduce(&mut values, ReduceOp::Sum).unwrap();
        assert!(values.iter().all(|it| *it == 1.01 + 1.01 + 1.01));
    });
    assert_eq!(chunks, 0);
}

#[test]
fn a_tree_that_is_lost_leaves_the_ranks_own_steps() {
    with_plugin(FORCED, PROPERTIES.exact, |comm, network| {
        assert!(sum(comm, ReduceOp::Sum, 10).iter().all(|it| *it == 3.0));
        network.kill();
        for _ in 0..3 {
            assert!(sum(comm, ReduceOp::Sum, 10).iter().all(|it| *it == 1.01 + 1.01 + 1.01));
        }
    });
}

/// Ranks choose again in the same call, however far apart they are when the tree is lost.
#[test]
fn calls_that_nobody_forced_do_without_a_lost_tree() {
    let count = 1 << 18;
    let call = all_reduce(ReduceOp::Sum, count);
    for after in [0, 3] {
        let chunks = with_plugin("", true, |comm, network| {
            assert_eq!(comm.algorithm_for(&call), "in_network");
            for turn in 0..12 {
                let rank = comm.rank().index();
                if turn == after && rank == 0 {
                    network.kill();
                }
                if turn % HOSTS == rank {
                    thread::sleep(Duration::from_millis(5));
                }
                let mut values = vec![1.0_f32; count];
                comm.all_reduce(&mut values, ReduceOp::Sum).unwrap();
                assert!(values.iter().all(|it| *it == 3.0), "turn {turn}");
            }
            assert_ne!(comm.algorithm_for(&call), "in_network");
        });
        assert!((chunks > 0) == (after > 0), "{chunks} chunks");
    }
}

/// A tree that waits for a late rank is not given up.
#[test]
fn a_late_rank_is_no_fault_of_the_tree() {
    with_plugin(FORCED, PROPERTIES.exact, |comm, _| {
        if comm.rank() == Rank(1) {
            thread::sleep(Duration::from_millis(5 * limits::OFFLOAD_RESULT_MS / 2));
        }
        for _ in 0..3 {
            assert!(sum(comm, ReduceOp::Sum, 10).iter().all(|it| *it == 3.0));
        }
    });
}

#[test]
fn groups_are_left_side_by_side_and_hold_nobody_up() {
    /// Drops of groups that have begun, and whether they may end.
    type Gate = (Mutex<(usize, bool)>, Condvar);
    let wait = |gate: &Gate, until: fn(&(usize, bool)) -> bool| {
        let is_early = |it: &mut (usize, bool)| !until(it);
        let state = gate.0.lock().unwrap();
        let (state, _) = gate.1.wait_timeout_while(state, PATIENCE, is_early).unwrap();
        until(&state)
    };
    let gate = Arc::new(Gate::default());
    let late = Arc::new(AtomicUsize::new(0));
    let leave = {
        let (gate, late) = (Arc::clone(&gate), Arc::clone(&late));
        move || {
            gate.0.lock().unwrap().0 += 1;
            gate.1.notify_all();
            late.fetch_add((!wait(&gate, |it| it.1)).into(), Ordering::Relaxed);
        }
    };
    let network = Network::new(2, supports, combine).with_leave(leave);
    let mut provider = network.provider(PROPERTIES);
    let ends = (0..2).map(|member| provider.connect(0, member).ok()).collect();
    let shared = Shared::new(Rank(0), Box::new(provider), ends).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| shared.close());
        assert!(wait(&gate, |it| it.0 == 2), "one group waits for the other");
        // The control thread can answer meanwhile.
        shared.answer(&[0, 2, 0]);
        gate.0.lock().unwrap().1 = true;
        gate.1.notify_all();
    });
    assert_eq!(late.load(Ordering::Relaxed), 0, "the state is locked meanwhile");
}
