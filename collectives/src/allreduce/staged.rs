//! Through stages: every rank combines its block straight from the others' stages, and they take the
//! result from its own. Piece by piece:
//!
//! 1. Everyone copies the others' blocks to its stage, and tells everyone so.
//! 2. Rank r, once it has heard so of all, combines block r in rank order, from its own input and
//!    everyone's stage, to its stage and its output, and tells everyone.
//! 3. Everyone, once it has heard of a rank, copies that rank's block to its output.
//!
//! A piece uses one half of the stage and the next the other, so that it is copied there before
//! anyone waits for the one before. Results have a place of their own, which is written only after
//! all have been heard of: by then they have taken what was there before, be it in another call.
//! Short floats are rounded once. Blocks begin at cache lines, so no line has two writers.
//!
//! Steps: 2, of one element each. Read from others' memory by each rank: (n-1)/n of the buffer to
//! combine, and as much again to take; sent: 2(n-1) tokens for each piece.

use alloc::vec::Vec;

use ringfold_types::limits::{STAGE_BYTES, STAGE_QUIET_BYTES};
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use crate::algorithm::{Algorithm, Plan, Stated};
use crate::chunk::{block_of_grains, chunks};
use crate::pattern::ring;
use crate::schedule::{Builder, Schedule, Source};

pub(super) const ALGORITHM: Algorithm =
    Algorithm { collective: Collective::AllReduce, name: "staged", schedule, stated };

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Parts of a chunk: sources and result of a part are together in the first or second cache.
const PARTS: usize = 4;

/// Chunks of a piece: few enough that stages stay in cache, enough for what their messages cost.
const CHUNKS: usize = 8;

fn stated(call: &Call, size: usize) -> Stated {
    let others = size - 1;
    Stated { steps: 2 * others.min(1), sent: call.count / size * others + 2 * others }
}

/// Elements that pass through the stage at a time.
fn piece_len(call: &Call, size: usize, chunk: usize) -> usize {
    let (bytes, grain) = (call.data_type.bytes(), LINE_BYTES / call.data_type.bytes());
    let room = STAGE_QUIET_BYTES / 2 / bytes;
    let results = ((STAGE_BYTES - STAGE_QUIET_BYTES) / 2 / bytes - grain) * size;
    let wanted = chunk.saturating_mul(CHUNKS);
    wanted.min(room).min(results).next_multiple_of(grain)
}

/// How often `call` passes a piece through the stage.
pub(crate) fn pieces(call: &Call, size: usize, chunk: usize) -> usize {
    call.count.div_ceil(piece_len(call, size, chunk))
}

fn schedule(plan: &Plan<'_>) -> Schedule {
    let (size, rank, call) = (plan.size(), plan.rank, plan.call);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let whole = Slice::new(Buffer::Input, 0, call.count);
    if size == 1 {
        let output = Slice { buffer: Buffer::Output, ..whole };
        steps.reduce(output, &[Source::Local(whole)]);
        return steps.build();
    }
    let stage = Stage { plan, token: steps.scratch(1), heard: steps.scratch(1) };
    let pieces: Vec<Slice> = chunks(whole, piece_len(&call, size, plan.chunk)).collect();
    let others = |distance| ring::after(rank, distance, size);
    for index in 0..=pieces.len() {
        let (last, next) = (index.checked_sub(1), pieces.get(index));
        if let Some(last) = last {
            stage.hear_all(&mut steps);
            stage.combine(&mut steps, last, pieces[last]);
            stage.tell_all(&mut steps);
        }
        if let Some(piece) = next {
            for other in (1..size).map(others) {
                let own = stage.block(*piece, other);
                steps.copy(own, stage.place(index, *piece, own));
            }
            stage.tell_all(&mut steps);
        }
        if let Some(last) = last {
            for other in (1..size).map(others) {
                let result = Slice { buffer: Buffer::Output, ..stage.block(pieces[last], other) };
                steps.recv(other, stage.heard);
                steps.get(other, stage.result(last, result.len), result);
            }
        }
    }
    steps.build()
}

/// What is where.
struct Stage<'a> {
    plan: &'a Plan<'a>,
    token: Slice,
    heard: Slice,
}

impl Stage<'_> {
    /// The block of `piece` that `rank` combines.
    fn block(&self, piece: Slice, rank: Rank) -> Slice {
        let grain = LINE_BYTES / self.plan.call.data_type.bytes();
        let size = self.plan.size();
        let block = block_of_grains(piece.buffer, piece.len, size, rank.index(), grain);
        Slice { offset: piece.offset + block.offset, ..block }
    }

    /// Where `block` of piece number `index` is for others to combine.
    fn place(&self, index: usize, piece: Slice, block: Slice) -> Slice {
        let half = STAGE_QUIET_BYTES / 2 / self.plan.call.data_type.bytes();
        let offset = index % 2 * half + block.offset - piece.offset;
        Slice { buffer: Buffer::Stage, offset, ..block }
    }

    /// Where so many results of piece number `index` are for others to take.
    fn result(&self, index: usize, len: usize) -> Slice {
        let bytes = self.plan.call.data_type.bytes();
        let half = (STAGE_BYTES - STAGE_QUIET_BYTES) / 2 / bytes;
        Slice::new(Buffer::Stage, STAGE_QUIET_BYTES / bytes + index % 2 * half, len)
    }

    /// Combines this rank's block of piece number `index`.
    fn combine(&self, steps: &mut Builder, index: usize, piece: Slice) {
        let (size, rank) = (self.plan.size(), self.plan.rank);
        let block = self.block(piece, rank);
        let result = self.result(index, block.len);
        let grain = LINE_BYTES / self.plan.call.data_type.bytes();
        for own in chunks(block, self.plan.chunk.div_ceil(PARTS).next_multiple_of(grain)) {
            let staged = self.place(index, piece, own);
            let source =
                |of| if of == rank { Source::Local(own) } else { Source::Peer(of, staged) };
            let sources: Vec<Source> = (0..size).map(Rank::at).map(source).collect();
            let result = result.skip(own.offset - block.offset).take(own.len);
            steps.reduce(result, &sources);
            steps.copy(result, Slice { buffer: Buffer::Output, ..own });
        }
    }

    fn tell_all(&self, steps: &mut Builder) {
        let (size, rank) = (self.plan.size(), self.plan.rank);
        for distance in 1..size {
            steps.send(ring::after(rank, distance, size), self.token);
        }
    }

    fn hear_all(&self, steps: &mut Builder) {
        let (size, rank) = (self.plan.size(), self.plan.rank);
        for distance in 1..size {
            steps.recv(ring::before(rank, distance, size), self.heard);
        }
    }
}
