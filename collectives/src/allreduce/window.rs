//! In windows: every rank combines its block straight from everyone's input, and stores the result
//! straight into everyone's output.
//!
//! 1. Everyone tells everyone that its input is ready and its output may be written, and waits to
//!    hear the same.
//! 2. Rank r combines block r in rank order, piece by piece, and stores each piece everywhere
//!    before the next, so that it may do both in one pass.
//! 3. Everyone tells everyone that it is done, and waits to hear the same.
//!
//! Short floats are rounded once. Blocks begin at cache lines, so no line has two writers.
//!
//! Steps: 2, of one element each. Sent or stored by each rank: (n-1)/n of the buffer and 2 tells;
//! read from others' memory: (n-1)/n of the buffer.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Plan, Stated, Way};
use crate::chunk::{block_of_grains, chunks};
use crate::pattern::ring;
use crate::schedule::{Builder, Schedule, Source};
use crate::stage::Word;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "window",
    needs: Needs::Windows,
    way: Way::Direct,
    schedule,
    stated,
    moved: Moved::sums_then_results,
    messages: |messages| messages.all_signal(),
};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Pieces of a chunk: sources and result of a piece are together in the first or second cache.
const PIECES: usize = 4;

fn stated(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let others = size - 1;
    let steps = 2 * others.min(1);
    Stated { steps, sent: call.count / size * others + steps }
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    if count == 0 {
        return steps.build();
    }
    let word = Word::new(plan, &mut steps);
    let everyone = |steps: &mut Builder| {
        word.tell_all(steps);
        word.hear_all(steps);
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
