//! Proves the schedules of all ranks, and counts their costs.

use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, Flaw, check};
use ringfold_collectives::schedule::{Form, Step};
use ringfold_collectives::{Schedule, Stated};
use ringfold_types::Collective;
use ringfold_types::limits::LINK_BYTES_MIN;

/// The result of a proof.
#[derive(Debug)]
pub(super) enum Proof {
    Proven(Cost),
    Flawed { in_place: bool, offers: bool, flaw: Flaw },
}

/// The costs of proven schedules.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) measured: Stated,
    pub(super) bytes_busiest: usize,
    pub(super) bytes_all: usize,
}

/// Runs the schedules of all ranks symbolically, out of place and in place. Each is run over links
/// that copy on send, and over links with rendezvous sends of long messages. The proofs run
/// concurrently. The result is the first flaw in that order.
pub(super) fn prove(schedules: &[Schedule]) -> Proof {
    let window_bytes = LINK_BYTES_MIN;
    let conditions = [(false, false), (true, false), (false, true), (true, true)];
    // Schedules with window access never use rendezvous sends.
    let reaches = |it: &Schedule| it.needs_windows() || it.needs_staging();
    let offered = if schedules.iter().any(reaches) { 2 } else { 4 };
    let proofs: Vec<_> = conditions[..offered]
        .par_iter()
        .map(|&(in_place, offers)| {
            check(schedules, Conditions { in_place, window_bytes, offers })
                .map_err(|flaw| Proof::Flawed { in_place, offers, flaw })
        })
        .collect();
    let mut measured = None;
    for proof in proofs {
        match proof {
            Ok(cost) => measured = measured.or(Some(cost)),
            Err(flawed) => return flawed,
        }
    }
    let bytes: Vec<usize> = schedules.iter().map(bytes_sent).collect();
    Proof::Proven(Cost {
        measured: measured.unwrap_or(Stated { steps: 0, sent: 0 }),
        bytes_busiest: bytes.iter().copied().max().unwrap_or(0),
        bytes_all: bytes.iter().sum(),
    })
}

/// Says what a proof of this collective shows.
pub(super) const fn meaning(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => {
            "every input counts once, all ranks have the same bits, in place or not; no rank waits \
             for ever"
        }
        Collective::Barrier => "no rank leaves before all have entered, and none waits for ever",
        collective if collective.is_scan() => {
            "every input counts once in the results of its ranks, in rank order, in place or not; \
             no rank waits for ever"
        }
        collective if collective.reduces() => {
            "every input counts once in every result, in place or not; no rank waits for ever"
        }
        _ => "every result holds the right inputs, in place or not; no rank waits for ever",
    }
}

/// Counts the bytes that one rank sends, puts or gets.
pub(super) fn bytes_sent(schedule: &Schedule) -> usize {
    let call = schedule.call();
    let sent = schedule.lanes().iter().flatten().filter_map(|step| match step {
        Step::Send { src, .. } | Step::Put { src, .. } | Step::Get { src, .. } => {
            Some(src.len * Form::of(src.buffer).data_type(call).bytes())
        }
        _ => None,
    });
    sent.sum()
}

#[cfg(test)]
mod tests {
    use ringfold_collectives::{Builder, ScheduleParams, Source};
    use ringfold_topology::Layout;
    use ringfold_types::{Buffer, Call, DataType, Rank, ReduceOp, Slice, Wire};

    use super::*;

    #[test]
    fn a_schedule_that_waits_for_ever_is_flawed() {
        let (collective, layout) = (Collective::Broadcast, Layout::one_host(2));
        let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(0));
        let call = Call { collective, count: 3, data_type, op, root, wire: Wire::default() };
        let schedules = [Rank(0), Rank(1)].map(|rank| {
            let plan = ScheduleParams {
                call,
                layout: &layout,
                rank,
                chunk: 8,
                window_bytes: LINK_BYTES_MIN,
            };
            let mut steps = Builder::new(&plan, "wrong", 1);
            if rank == Rank(1) {
                steps.recv(Rank(0), Slice::new(Buffer::Output, 0, 3));
            }
            steps.build()
        });
        let proof = prove(&schedules);
        let Proof::Flawed { in_place: false, offers: false, flaw: Flaw::Deadlock { waiting } } =
            proof
        else {
            panic!("{proof:?}");
        };
        assert_eq!(waiting, [(Rank(1), 0, 0)]);
    }

    /// Two ranks exchange two halves with rendezvous sends. In place, each rank receives the second
    /// half only after a step that waits until its peer has received both.
    #[test]
    fn a_schedule_that_needs_links_that_copy_is_flawed() {
        let (collective, layout) = (Collective::AllReduce, Layout::one_host(2));
        let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(0));
        // Twice the eager size of a link.
        let half = LINK_BYTES_MIN / data_type.bytes();
        let call = Call { collective, count: 2 * half, data_type, op, root, wire: Wire::default() };
        let schedules = [Rank(0), Rank(1)].map(|rank| {
            let plan = ScheduleParams {
                call,
                layout: &layout,
                rank,
                chunk: half,
                window_bytes: LINK_BYTES_MIN,
            };
            let other = Rank(1 - rank.0);
            let mut steps = Builder::new(&plan, "single_copy", 1);
            let (input, output) =
                (Slice::new(Buffer::Input, 0, 2 * half), Slice::new(Buffer::Output, 0, 2 * half));
            let (wire, first) = (Source::Wire(other, Form::Element), steps.scratch(half));
            steps.send(other, input);
            steps.reduce(first, &[wire]);
            steps.reduce(output.skip(half), &[Source::Local(input.skip(half)), wire]);
            let sources = [Source::Local(input.take(half)), Source::Local(first)];
            steps.reduce(output.take(half), &sources);
            steps.build()
        });
        let proof = prove(&schedules);
        let right = matches!(
            proof,
            Proof::Flawed { in_place: true, offers: true, flaw: Flaw::Deadlock { .. } }
        );
        assert!(right, "{proof:?}");
    }
}
