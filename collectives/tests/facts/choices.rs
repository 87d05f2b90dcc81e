//! Choices of algorithms, and the facts and prices behind them, are the reviewed ones.
//!
//! `golden/choices.txt` has the chosen algorithm for each length of a call. `golden/facts.txt` has
//! a digest of each algorithm's costs and prices. An intended change shows there, and in
//! no other line.

use std::fmt::Write;
use std::hash::Hash as _;

use ringfold_collectives::cost::price;
use ringfold_collectives::select::{
    Constraints, Measurements, chunk_len, is_possible, select, select_in_windows,
};
use ringfold_collectives::{Algorithm, Stated};
use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Occupancy, Path, RankReach, Reach};
use ringfold_types::{Call, Collective, DataType, Digest, Rank, ReduceOp, Wire};

/// The kinds of layouts. Each is a line for every collective.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Ranks with CPUs of their own, in an unknown fabric.
    Plain,
    /// Ranks that share 3 CPUs of one machine, whose containers are hosts.
    Crowded,
    /// Hosts that use RDMA.
    Rdma,
    /// Leaf groups of 3 hosts and pods of 6, with unknown rails.
    Fabric,
    /// The same with known rails: the rank at place i of its host reaches rail i alone, of 2.
    Rails,
}

const KINDS: [Kind; 5] = [Kind::Plain, Kind::Crowded, Kind::Rdma, Kind::Fabric, Kind::Rails];

/// Hosts, and ranks on each.
const SHAPES: [[usize; 2]; 7] = [[1, 2], [1, 3], [1, 8], [1, 65], [2, 4], [9, 1], [64, 2]];

fn layout(kind: Kind, [hosts, ranks]: [usize; 2]) -> Layout {
    let size = hosts * ranks;
    let layout = Layout::hosts_of(ranks, size).sharing_memory(hosts == 1);
    match kind {
        Kind::Plain => layout,
        Kind::Crowded => layout.with_occupancy(Occupancy { ranks: size, cpus: 3 }),
        Kind::Rdma => layout.with_rdma(true),
        Kind::Fabric | Kind::Rails => {
            let path =
                |host: u32| Path { order: host, pod: host / 6, group: host / 3, machine: host };
            let paths: Vec<Path> = (0..).take(hosts).map(path).collect();
            let layout = layout.with_paths(&paths);
            if matches!(kind, Kind::Fabric) {
                return layout;
            }
            let rails = [0, 1].map(|rail| Reach::of(Place { rail, plane: 0 }).unwrap());
            let reach = |rank: usize| rails[rank % ranks % 2];
            let reach = (0..size).map(reach).map(|it| RankReach { reaches: it, prefers: it });
            layout.with_reach(&reach.collect::<Vec<_>>())
        }
    }
}

/// A call with `bytes` bytes in the longer of a rank's buffers.
pub(crate) fn call(collective: Collective, data_type: DataType, bytes: usize, size: usize) -> Call {
    let root = Rank::at(if collective.has_root() { size / 2 } else { 0 });
    let one =
        Call { collective, count: 1, data_type, op: ReduceOp::Sum, root, wire: Wire::default() };
    let elements = one.input_len(size).max(one.output_len(size)).max(1);
    Call { count: (bytes / data_type.bytes()).div_ceil(elements), ..one }
}

fn types(collective: Collective) -> &'static [DataType] {
    if collective.reduces() { &[DataType::F32, DataType::Bf16] } else { &[DataType::F32] }
}

/// The choices from 4 bytes to 1 GiB, each with the least number of bytes for which it is made.
fn line(collective: Collective, data_type: DataType, layout: &Layout, in_windows: bool) -> String {
    let (free, nothing) = (Constraints::default(), Measurements::default());
    let mut line = String::new();
    let mut before = "";
    for bytes in (2..=30).map(|power| 1_usize << power) {
        let call = call(collective, data_type, bytes, layout.size());
        let by = if in_windows { select_in_windows } else { select };
        let chosen = by(&call, layout, &free, &nothing).name;
        if chosen != before {
            write!(line, " {bytes} {chosen}").unwrap();
        }
        before = chosen;
    }
    line
}

/// A choice in windows has a line only where it differs.
#[test]
fn choices_are_as_reviewed() {
    let mut now = String::new();
    for collective in Collective::ALL.into_iter().filter(|it| Algorithm::of(*it).len() > 1) {
        for (kind, shape) in KINDS.into_iter().flat_map(|kind| SHAPES.map(|shape| (kind, shape))) {
            let layout = layout(kind, shape);
            for data_type in types(collective) {
                let [ordinary, in_windows] =
                    [false, true].map(|it| line(collective, *data_type, &layout, it));
                let [hosts, ranks] = shape;
                writeln!(now, "{collective} {kind:?} {hosts}x{ranks} {data_type}:{ordinary}")
                    .unwrap();
                if in_windows != ordinary {
                    writeln!(now, "    in windows:{in_windows}").unwrap();
                }
            }
        }
    }
    assert_eq!(now, include_str!("golden/choices.txt"), "now:\n{now}");
}

fn digest(algorithm: &Algorithm) -> u64 {
    let mut digest = Digest::default();
    let collective = algorithm.collective;
    for kind in KINDS {
        for shape in SHAPES {
            let layout = layout(kind, shape);
            for data_type in types(collective) {
                for bytes in [0, 4, 52, 4 << 10, 300_000, 5 << 20, 1 << 30] {
                    let call = call(collective, *data_type, bytes, layout.size());
                    let Stated { steps, sent } = (algorithm.stated)(&call, &layout);
                    (steps as u64, sent as u64).hash(&mut digest);
                    is_possible(algorithm, &call, &layout).hash(&mut digest);
                    for chunk in [16, 1 << 14, chunk_len(&call, &layout)] {
                        price(algorithm, &call, &layout, chunk).hash(&mut digest);
                    }
                }
            }
        }
    }
    digest.finish()
}

#[test]
fn facts_are_as_reviewed() {
    let mut now = String::new();
    for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
        write!(now, "{algorithm} {:016x}", digest(algorithm)).unwrap();
        for (is_so, what) in [
            (algorithm.needs_windows(), "windows"),
            (algorithm.needs_staging(), "stage"),
            (algorithm.needs_provider(), "provider"),
            (algorithm.is_single_copy(), "single_copy"),
            (algorithm.is_hierarchical(), "hierarchical"),
            (algorithm.is_direct(), "direct"),
            (algorithm.works_anywhere(), "anywhere"),
        ] {
            if is_so {
                write!(now, " {what}").unwrap();
            }
        }
        writeln!(now).unwrap();
    }
    assert_eq!(now, include_str!("golden/facts.txt"), "now:\n{now}");
}
