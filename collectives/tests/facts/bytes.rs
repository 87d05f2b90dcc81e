//! Hosts send hardly more bytes than they must: long calls by the algorithms that `select` chooses.

use rayon::prelude::*;
use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Constraints, Measurements, select};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::wire::{schedules, sent_by_a_host};

/// Bytes of the longer buffer of a rank.
const BYTES: usize = 64 << 20;

const COLLECTIVES: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
];

const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F8E4M3];

/// Ranks on hosts one after the other, and ranks dealt to the hosts in turn.
fn placements(hosts: usize, ranks: usize) -> [Layout; 2] {
    let dealt: Vec<usize> = (0..hosts * ranks).map(|rank| rank % hosts).collect();
    [Layout::hosts_of(ranks, hosts * ranks), Layout::from_host_names(&dealt)]
}

/// The most bytes that any host sends to others in `call`, and the algorithm.
fn most_sent(call: Call, layout: &Layout) -> (usize, &'static Algorithm) {
    let chosen = select(&call, layout, &Constraints::default(), &Measurements::default());
    (sent_by_a_host(schedules(chosen, call, layout), layout), chosen)
}

/// A long call, and the bytes that some host must send at least; of an all-reduce, the buffer.
fn long_call(collective: Collective, data_type: DataType, layout: &Layout) -> (Call, usize) {
    let (size, hosts) = (layout.size(), layout.hosts());
    let root = Rank::at(if collective.has_root() { size / 2 } else { 0 });
    let (op, wire) = (ReduceOp::Sum, Wire::Element);
    let one = Call { collective, count: 1, data_type, op, root, wire };
    let elements = one.input_len(size).max(one.output_len(size));
    let call = Call { count: BYTES / data_type.bytes() / elements, ..one };
    let bytes = call.count * elements * data_type.bytes();
    let shared = bytes - bytes / hosts;
    let least = match collective {
        Collective::AllGather | Collective::ReduceScatter => shared,
        _ => bytes,
    };
    (call, least)
}

#[test]
fn hosts_send_hardly_more_than_they_must() {
    let mut cases = Vec::new();
    for hosts in [64, 33, 16, 8, 7, 4, 3, 2] {
        for layout in [1, 8].into_iter().flat_map(|ranks| placements(hosts, ranks)) {
            for collective in COLLECTIVES {
                for data_type in TYPES {
                    cases.push((layout.clone(), collective, data_type));
                }
            }
        }
    }
    let lines = cases.into_par_iter().map(|(layout, collective, data_type)| {
        let (call, least) = long_call(collective, data_type, &layout);
        let (most, chosen) = most_sent(call, &layout);
        // Twice all blocks but one's own. A flat algorithm has a block for each rank, not for each
        // host, and so hosts of several ranks send up to two blocks of a host more.
        let twice = |blocks| match collective {
            Collective::AllReduce => 2 * (least - least / blocks),
            _ => least,
        };
        let of_hosts = most as f64 / twice(layout.hosts()) as f64;
        let blocks = if chosen.is_hierarchical() { layout.hosts() } else { layout.size() };
        let least = twice(blocks);
        let (hosts, ranks) = (layout.hosts(), layout.ranks_per_host().1);
        let order =
            if layout.host(Rank::at(layout.size() / hosts - 1)) == 0 { "" } else { "dealt" };
        let factor = most as f64 / least as f64;
        let line = format!(
            "{hosts:>2} x {ranks} {order:<5} {data_type} {chosen}: {factor:.3}, {of_hosts:.3}"
        );
        (factor <= 1.05 && of_hosts <= 1.15, line)
    });
    let lines: Vec<(bool, String)> = lines.collect();
    lines.iter().for_each(|(_, line)| println!("{line}"));
    let wrong: Vec<&str> = lines.iter().filter(|it| !it.0).map(|it| it.1.as_str()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
