//! The bytes that hosts send, by the data type and by the form of partial results.

use rayon::prelude::*;
use ringfold_collectives::schedule::{Form, Step};
use ringfold_collectives::select::{Constraints, Measurements, chunk_len, select};
use ringfold_collectives::{Algorithm, Schedule, ScheduleParams};
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

/// The most bytes that a host sends to others.
pub(crate) fn sent_by_a_host(schedules: impl Iterator<Item = Schedule>, layout: &Layout) -> usize {
    let mut sent = vec![0; layout.hosts()];
    for schedule in schedules {
        for step in schedule.lanes().iter().flatten() {
            if let Step::Send { to, src } = step
                && !layout.same_host(schedule.rank(), *to)
            {
                let bytes = Form::of(src.buffer).data_type(schedule.call()).bytes();
                sent[layout.host(schedule.rank()) as usize] += src.len * bytes;
            }
        }
    }
    sent.into_iter().max().unwrap()
}

pub(crate) fn schedules(
    algorithm: &Algorithm,
    call: Call,
    layout: &Layout,
) -> impl Iterator<Item = Schedule> {
    let (chunk, window_bytes) = (chunk_len(&call, layout), LINK_BYTES_MIN);
    let plan =
        move |rank| ScheduleParams { call, layout, rank: Rank::at(rank), chunk, window_bytes };
    (0..layout.size()).map(move |rank| (algorithm.schedule)(&plan(rank)))
}

/// A call whose whole buffer, or one rank's block of it, has `bytes` bytes.
fn call(collective: Collective, data_type: DataType, bytes: usize) -> Call {
    let (count, op) = (bytes / data_type.bytes(), ReduceOp::Sum);
    Call { collective, count, data_type, op, root: Rank(0), wire: Wire::Element }
}

fn layouts(hosts: &[usize]) -> Vec<Layout> {
    let both = |hosts: &usize| [1, 8].map(|ranks| Layout::hosts_of(ranks, hosts * ranks));
    hosts.iter().flat_map(both).collect()
}

const SHORT: [DataType; 4] = [DataType::F16, DataType::Bf16, DataType::F8E4M3, DataType::F8E5M2];

/// Buffers of as many bytes cost a host as many bytes on the wire, with every type.
#[test]
fn short_floats_send_no_more_bytes_than_others() {
    layouts(&[2, 3, 4, 7, 8, 64]).into_par_iter().for_each(|layout| {
        for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
            let is_costly = algorithm.is_direct() && layout.size() > 64;
            if !algorithm.collective.reduces() || !algorithm.works_anywhere() || is_costly {
                continue;
            }
            // Divides into blocks, shards and halves of every type.
            let bytes = 4096 * layout.size();
            let sent = |data_type| {
                let call = call(algorithm.collective, data_type, bytes);
                sent_by_a_host(schedules(algorithm, call, &layout), &layout)
            };
            let whole = sent(DataType::F32);
            for data_type in SHORT {
                let (sent, most) = (sent(data_type), whole + whole / 20);
                assert!(sent <= most, "{algorithm}, {data_type}, {layout:?}: {sent} > {most}");
            }
        }
    });
}

/// Accumulators take more bytes, so the form on the wire is not the same by accident.
#[test]
fn accumulators_send_more_bytes() {
    let layout = Layout::hosts_of(2, 16);
    for (collective, name) in [
        (Collective::AllReduce, "ring"),
        (Collective::AllReduce, "tree"),
        (Collective::AllReduce, "double_tree"),
        (Collective::AllReduce, "recursive_doubling"),
        (Collective::AllReduce, "halving_doubling"),
        (Collective::AllReduce, "hierarchical"),
        (Collective::ReduceScatter, "ring"),
        (Collective::ReduceScatter, "halving"),
        (Collective::Reduce, "binomial"),
        (Collective::Reduce, "ring"),
    ] {
        let algorithm = Algorithm::named(collective, name).unwrap();
        let sent = |wire| {
            let call = Call { wire, ..call(collective, DataType::F8E5M2, 1 << 20) };
            sent_by_a_host(schedules(algorithm, call, &layout), &layout)
        };
        let [element, accumulator] = Wire::ALL.map(sent);
        assert!(2 * element < accumulator * 3 / 2, "{algorithm}: {element}, {accumulator}");
    }
}

/// The sum before the division of an average may be beyond the range of a short float, so it
/// travels as an accumulator. The range of `bf16` is that of `f32`.
#[test]
fn averages_do_not_overflow_on_the_way() {
    let layout = Layout::apart(8);
    let ring = Algorithm::named(Collective::AllReduce, "ring").unwrap();
    for (data_type, is_rounded) in SHORT.map(|it| (it, it == DataType::Bf16)) {
        let call = Call { op: ReduceOp::Avg, ..call(Collective::AllReduce, data_type, 4096) };
        let rounds = schedules(ring, call, &layout).any(|it| it.rounded_len() > 0);
        assert_eq!(rounds, is_rounded, "{data_type}");
    }
}

/// A long all-reduce sends each host's share: the buffer twice, but for one part of as many parts
/// as there are hosts.
#[test]
fn long_reductions_send_the_least() {
    layouts(&[2, 7, 64]).into_par_iter().for_each(|layout| {
        for data_type in [DataType::F32, DataType::Bf16, DataType::F8E4M3] {
            let call = call(Collective::AllReduce, data_type, 64 << 20);
            let (free, nothing) = (Constraints::default(), Measurements::default());
            let chosen = select(&call, &layout, &free, &nothing);
            let sent = sent_by_a_host(schedules(chosen, call, &layout), &layout);
            let hosts = layout.hosts();
            // The ring between ranks of all hosts sends the share of each rank.
            let parts = if chosen.is_hierarchical() { hosts } else { layout.size() };
            let least = 2 * (64 << 20) / parts * (parts - 1);
            let what = format!("{chosen}, {data_type}, {layout:?}");
            assert!(sent <= least + least / 20, "{what}: {sent} > {least}");
        }
    });
}
