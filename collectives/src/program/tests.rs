//! The fast paths that lowering picks for schedules of the real algorithms.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice, Wire};

use super::{Op, Program, Stores, Target, lower};
use crate::algorithm::{Algorithm, ScheduleParams};

const APART: Target =
    Target { in_place: false, rendezvous: false, shares_memory: true, announces: None };
const IN_PLACE: Target = Target { in_place: true, ..APART };

fn program(
    collective: Collective,
    algorithm: &str,
    (ranks, count): (usize, usize),
    target: Target,
) -> Program {
    let call = Call {
        collective,
        count,
        data_type: DataType::F32,
        op: ReduceOp::Sum,
        root: Rank(0),
        wire: Wire::default(),
    };
    let layout = Layout::one_host(ranks).sharing_memory(true);
    let chunk = 1 << 20;
    let plan = ScheduleParams { call, layout: &layout, rank: Rank(1), chunk, window_bytes: 4096 };
    let algorithm = Algorithm::named(collective, algorithm).unwrap();
    lower(&(algorithm.schedule)(&plan), target)
}

fn all_ops(program: &Program) -> Vec<&Op> {
    program.lanes().iter().flatten().collect()
}

#[test]
fn two_ranks_exchange_a_line_and_no_more() {
    let all_reduce = |of, target| program(Collective::AllReduce, "one_shot", of, target);
    for target in [APART, IN_PLACE] {
        assert!(all_reduce((2, 1), target).exchange().is_some());
        assert!(all_reduce((2, 16), target).exchange().is_some());
        assert!(all_reduce((2, 17), target).exchange().is_none(), "more than a line");
        assert!(all_reduce((3, 1), target).exchange().is_none(), "three ranks");
        assert!(all_reduce((2, 0), target).exchange().is_none(), "nothing");
        let rendezvous = Target { rendezvous: true, ..target };
        assert!(all_reduce((2, 1), rendezvous).exchange().is_none());
    }
    assert!(program(Collective::Reduce, "binomial", (2, 1), APART).exchange().is_none());
}

#[test]
fn short_sums_are_in_lines() {
    let in_lines = |of| {
        let program = program(Collective::AllReduce, "one_shot", of, APART);
        let ops = all_ops(&program);
        let is = |op: &&&Op| matches!(op, Op::Reduce { in_lines: true, .. });
        let sums = ops.iter().filter(|op| matches!(op, Op::Reduce { .. })).count();
        (ops.iter().filter(is).count(), sums)
    };
    assert_eq!(in_lines((3, 16)), (1, 1));
    assert_eq!(in_lines((3, 17)), (0, 1));
    // Reductions with more sources than one step takes use scratch, in accumulators.
    assert!(in_lines((20, 16)).0 < in_lines((20, 16)).1);
}

#[test]
fn windows_are_combined_to_all_ranks_at_once() {
    let of =
        |ranks, count, target| program(Collective::AllReduce, "window", (ranks, count), target);
    for (target, pieces) in [(APART, 1), (IN_PLACE, 4)] {
        let program = of(3, 3 * 1024, target);
        let ops = all_ops(&program);
        assert!(!ops.iter().any(|op| matches!(op, Op::Reduce { .. } | Op::Put { .. })));
        let parts: Vec<Slice> = ops
            .iter()
            .filter_map(|op| if let Op::ReduceToAll { dst, .. } = op { Some(*dst) } else { None })
            .collect();
        assert_eq!(parts.len(), pieces);
        assert_eq!(parts.iter().map(|part| part.len).sum::<usize>(), 1024);
        assert!(parts.windows(2).all(|two| two[1].end() == two[0].offset), "from the end");
        let Op::ReduceToAll { dst, sources, .. } =
            ops.iter().find(|op| matches!(op, Op::ReduceToAll { .. })).unwrap()
        else {
            unreachable!()
        };
        for source in program.sources(sources) {
            let (crate::Source::Local(slice) | crate::Source::Peer(_, slice)) = source else {
                panic!("{source:?}")
            };
            assert_eq!(*slice, Slice { buffer: Buffer::Input, ..*dst });
        }
    }
    let many = of(20, 20 * 1024, APART);
    assert!(!all_ops(&many).iter().any(|op| matches!(op, Op::ReduceToAll { .. })));
}

#[test]
fn long_results_go_past_the_caches() {
    let stores = |collective, algorithm, of, target| {
        let program = program(collective, algorithm, of, target);
        let of = |op: &Op| match op {
            Op::Get { stores, .. } => Some(*stores),
            Op::Receive { dst, stores, .. } if dst.buffer == Buffer::Output => Some(*stores),
            _ => None,
        };
        let mut all: Vec<Stores> = program.lanes().iter().flatten().filter_map(of).collect();
        all.dedup();
        all
    };
    let mib = |count: usize| count << 18;
    let staged =
        |ranks, each, target| stores(Collective::AllGather, "staged", (ranks, mib(each)), target);
    assert_eq!(staged(2, 7, APART), [Stores::Cached]);
    assert_eq!(staged(2, 8, APART), [Stores::Streaming], "16 MiB of result");
    assert_eq!(staged(8, 1, IN_PLACE), [Stores::Streaming], "64 MiB of all");
    assert_eq!(staged(7, 1, IN_PLACE), [Stores::Cached]);
    let ring = |each, target| stores(Collective::AllGather, "ring", (2, mib(each)), target);
    assert_eq!(ring(23, APART), [Stores::Cached]);
    assert_eq!(ring(24, APART), [Stores::Streaming]);
    assert_eq!(ring(24, Target { shares_memory: false, ..APART }), [Stores::Cached]);
    assert_eq!(ring(24, Target { rendezvous: true, ..APART }), [Stores::Cached]);
}

#[test]
fn long_stretches_of_receives_are_announced() {
    let announces = |least| Target { announces: Some(least), ..APART };
    let stretches = |collective, algorithm, of, target| {
        let program = program(collective, algorithm, of, target);
        let all = program.expected(0).iter();
        all.map(|it| (it.dst.offset, it.dst.len, it.after, it.skip)).collect::<Vec<_>>()
    };
    let chunks = 3 << 20;
    let broadcast = |target| stretches(Collective::Broadcast, "chain", (2, chunks), target);
    assert_eq!(broadcast(announces(4 * chunks)), [(0, chunks, 0, 0)], "chunks in a row");
    assert_eq!(broadcast(announces(4 * chunks + 1)), []);
    assert_eq!(broadcast(APART), []);
    assert_eq!(broadcast(Target { rendezvous: true, ..announces(1) }), []);
    let gather = |target| stretches(Collective::AllGather, "ring", (4, 8), target);
    assert_eq!(gather(announces(1)), [(0, 8, 0, 0), (24, 8, 0, 32), (16, 8, 0, 64)]);
    let window = stretches(Collective::AllReduce, "window", (4, 1 << 20), announces(1));
    assert_eq!(window, [], "its messages are tokens");
}
