//! Whether a set of schedules is right, and what it costs.

use ringfold_collectives::check::{Conditions, Flaw, check};
use ringfold_collectives::schedule::{Form, Step};
use ringfold_collectives::{Schedule, Stated};
use ringfold_types::Collective;
use ringfold_types::limits::LINK_BYTES_MIN;

/// What came out.
#[derive(Debug)]
pub(super) enum Verdict {
    Proven(Cost),
    Flawed { in_place: bool, flaw: Flaw },
}

/// What proven schedules cost.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) measured: Stated,
    pub(super) bytes_busiest: usize,
    pub(super) bytes_all: usize,
}

/// Runs the schedules of all ranks symbolically, out of place and in place.
pub(super) fn prove(schedules: &[Schedule]) -> Verdict {
    let mut measured = None;
    for in_place in [false, true] {
        match check(schedules, Conditions { in_place, window_bytes: LINK_BYTES_MIN, offers: false })
        {
            Ok(cost) => measured = measured.or(Some(cost)),
            Err(flaw) => return Verdict::Flawed { in_place, flaw },
        }
    }
    let bytes: Vec<usize> = schedules.iter().map(bytes_sent).collect();
    Verdict::Proven(Cost {
        measured: measured.unwrap_or(Stated { steps: 0, sent: 0 }),
        bytes_busiest: bytes.iter().copied().max().unwrap_or(0),
        bytes_all: bytes.iter().sum(),
    })
}

/// What a proof of this collective shows, in words.
pub(super) const fn meaning(collective: Collective) -> &'static str {
    match collective {
        Collective::Barrier => "nobody leaves before all have entered, and nobody waits for ever",
        collective if collective.reduces() => {
            "every input counts once in every result, in place or not; nobody waits for ever"
        }
        _ => "every result holds the right inputs, in place or not; nobody waits for ever",
    }
}

/// Bytes that one rank puts on the wire, or stores into other ranks' memory, or takes from there.
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
    use ringfold_collectives::{Builder, Plan};
    use ringfold_topology::Layout;
    use ringfold_types::{Buffer, Call, DataType, Rank, ReduceOp, Slice};

    use super::*;

    #[test]
    fn a_schedule_that_waits_for_ever_is_flawed() {
        let (collective, layout) = (Collective::Broadcast, Layout::one_host(2));
        let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(0));
        let call = Call { collective, count: 3, data_type, op, root };
        let schedules = [Rank(0), Rank(1)].map(|rank| {
            let plan = Plan { call, layout: &layout, rank, chunk: 8, window_bytes: LINK_BYTES_MIN };
            let mut steps = Builder::new(&plan, "wrong", 1);
            if rank == Rank(1) {
                steps.recv(Rank(0), Slice::new(Buffer::Output, 0, 3));
            }
            steps.build()
        });
        let verdict = prove(&schedules);
        let Verdict::Flawed { in_place: false, flaw: Flaw::Deadlock { waiting } } = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(waiting, [(Rank(1), 0, 0)]);
    }
}
