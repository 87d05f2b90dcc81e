//! All-reduce in windows: every rank combines one block straight from all inputs, and stores the
//! result straight into all outputs.
//!
//! 1. Each rank signals that its input is ready and its output may be written, and waits for the
//!    same signal of all others.
//! 2. Rank r combines block r in rank order, piece by piece. It stores each piece to all ranks
//!    before it begins the next, so one pass can do both.
//! 3. Each rank signals that it is done, and waits for the same signal of all others.
//!
//! Short floats are rounded once. Blocks begin at cache lines, so no line has two writers.
//!
//! Steps: 2. Sent or stored by each rank: (n-1)/n of the buffer, and 2 signals, counted as one
//! element each. It reads (n-1)/n of the buffer from others' memory.
//!
//! Source: `two_shot`, in windows.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{block_of_grains, chunks};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule, Source};
use crate::staging::Signals;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "window",
    needs: Needs::Windows,
    pattern: Pattern::Direct,
    schedule,
    stated,
    moved: Moved::sums_then_results,
    stays_on_rail: rails::always,
};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Pieces of a chunk. Sources and result of a piece fit the first or second cache together.
const PIECES: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    let steps = 2 * others.min(1);
    Stated { steps, sent: call.count / size * others + steps }
}

fn schedule(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    if count == 0 {
        return steps.build();
    }
    let signals = Signals::new(plan, &mut steps);
    let everyone = |steps: &mut Builder| {
        signals.signal_all(steps);
        signals.wait_all(steps);
    };
    everyone(&mut steps);
    let grain = LINE_BYTES / plan.call.data_type.bytes();
    let block = block_of_grains(Buffer::Input, count, size, rank.index(), grain);
    for own in chunks(block, plan.chunk.div_ceil(PIECES).next_multiple_of(grain)) {
        let source = |of: Rank| if of == rank { Source::Local(own) } else { Source::Peer(of, own) };
        let sources: Vec<Source> = (0..size).map(Rank::at).map(source).collect();
        let result = Slice { buffer: Buffer::Output, ..own };
        steps.reduce(result, &sources);
        for distance in 1..size {
            steps.put(ring::after(rank, distance, size), result);
        }
    }
    everyone(&mut steps);
    steps.build()
}
