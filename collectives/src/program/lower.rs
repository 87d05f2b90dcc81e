//! Turns a schedule into a program, with its fast paths.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_types::limits::SOURCES_MAX;
use ringfold_types::{Buffer, Rank, Slice};

use super::chunks::Chunks;
use super::expected::expected;
use super::{LINE_BYTES, Op, Program, Stores};
use crate::schedule::{Form, Schedule, Source, Step};

/// Bytes of a result from which its elements are stored past the caches, if they come from staging
/// buffers or from a reduction to all ranks. With two ranks, longer results leave no room for the
/// inputs in 32 MiB of cache.
const STREAMING_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of all ranks' buffers together from which the same holds. With less, the reader of the
/// result loses more than the call gains.
const STREAMING_BYTES_OF_ALL: usize = 64 * 1024 * 1024;

/// Bytes of a result from which received elements are stored past the caches too. With less, the
/// next reader, or the next send of them, loses as much as that gains.
const RECEIVED_STREAMING_BYTES: usize = 48 * 1024 * 1024;

/// Bytes of a copy to the staging buffer up to which its lines are moved to the cache that both
/// cores share. For longer copies the other core fetches many lines at a time, and is faster
/// without.
const SHARED_BYTES: usize = 1024;

/// Bytes of the longest reduction to all ranks, in place, that goes in pieces from its end to its
/// beginning. In longer runs CPUs would prefetch lines that another rank writes.
const BACKWARD_BYTES: usize = 4096;

/// Bytes of such a piece.
const PIECE_BYTES: usize = 20 * LINE_BYTES;

/// The conditions that a program is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Whether receivers copy messages from their senders' memory.
    pub rendezvous: bool,
    /// Whether messages from all peers arrive in memory that this rank reads at no cost.
    pub shares_memory: bool,
    /// The bytes of the shortest stretch of received elements that is announced; none is without.
    pub announces: Option<usize>,
}

/// Makes the program of a schedule.
#[must_use]
pub fn lower(schedule: &Schedule, target: Target) -> Program {
    let mut lowering = Lowering::new(schedule, target);
    let lanes = schedule.lanes().iter().enumerate();
    let lanes: Vec<_> = lanes.map(|(lane, steps)| lowering.lane(lane, steps)).collect();
    let shift = |form: Form| form.data_type(schedule.call()).bytes().trailing_zeros();
    let overlay = target.in_place.then(|| schedule.overlay());
    let announced = |least| {
        // A provider may take the place of receives. Ranks that use each other's memory send only
        // tokens.
        let is_fit = |lane: usize| {
            schedule.group(lane).is_none()
                && !schedule.needs_windows()
                && !schedule.needs_staging()
                && !target.rendezvous
        };
        let of_lane = |(lane, ops): (usize, &Vec<Op>)| match is_fit(lane) {
            true => expected(ops, &lowering.sources, least, overlay, shift),
            false => Vec::new(),
        };
        let all: Vec<_> = lanes.iter().enumerate().map(of_lane).collect();
        if all.iter().all(Vec::is_empty) { Vec::new() } else { all }
    };
    let expected = target.announces.map_or_else(Vec::new, announced);
    Program {
        call: *schedule.call(),
        rank: schedule.rank(),
        size: schedule.size(),
        algorithm: schedule.algorithm(),
        lanes,
        expected,
        sources: lowering.sources,
        scratch_len: schedule.scratch_len(),
        rounded_len: schedule.rounded_len(),
        overlay,
        in_place_at: schedule.in_place_at(),
        flips_staging: schedule.flips_staging(),
        groups: (0..schedule.lanes().len()).map(|lane| schedule.group(lane).cloned()).collect(),
        element: shift(Form::Element),
        accumulator: shift(Form::Accumulator),
    }
}

struct Lowering<'s> {
    schedule: &'s Schedule,
    target: Target,
    /// The sources of the schedule, and then those of operations that lowering has added.
    sources: Vec<Source>,
    /// How elements of other ranks' memory are stored.
    taken: Stores,
    received: Stores,
}

impl<'s> Lowering<'s> {
    fn new(schedule: &'s Schedule, target: Target) -> Self {
        let bytes = UserBytes::of(schedule, target.in_place);
        let streaming = |holds| if holds { Stores::Streaming } else { Stores::Cached };
        Self {
            schedule,
            target,
            sources: schedule.all_sources().to_vec(),
            taken: streaming(bytes.exceed_caches(schedule)),
            received: streaming(bytes.result >= RECEIVED_STREAMING_BYTES),
        }
    }

    fn lane(&mut self, lane: usize, steps: &[Step]) -> Vec<Op> {
        let mut chunks =
            Chunks::new(self.schedule, self.target.in_place.then(|| self.schedule.overlay()), lane);
        let mut ops = Vec::with_capacity(steps.len());
        ops.extend(self.exchange(steps));
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            at += 1;
            chunks.take_before(step, |step| self.op(step), &mut ops);
            match step {
                Step::Offload { src, dst } => {
                    chunks.post(*src, *dst, |step| self.op(step), &mut ops)
                }
                Step::Reduce { dst, sources } if self.goes_to_all(*dst, sources, &steps[at..]) => {
                    at += self.schedule.size() - 1;
                    self.reduce_to_all(*dst, sources, &mut ops);
                }
                step => ops.push(self.op(step)),
            }
        }
        chunks.take_all(|step| self.op(step), &mut ops);
        ops
    }

    /// The operation of a step by itself.
    fn op(&self, step: &Step) -> Op {
        let is_user = |slice: Slice| matches!(slice.buffer, Buffer::Input | Buffer::Output);
        match *step {
            Step::Send { to, src } => Op::Send { to, src, rendezvous: self.target.rendezvous },
            Step::Recv { from, dst } => {
                let is_lent = self.target.shares_memory && !self.target.rendezvous && is_user(dst);
                let stores = if is_lent { self.received } else { Stores::Cached };
                Op::Receive { from, dst, stores }
            }
            Step::Copy { src, dst } if dst.buffer == Buffer::Staging => {
                let bytes = dst.len * self.element_bytes();
                let is_shared = self.schedule.size() == 2 && bytes <= SHARED_BYTES;
                let stores = if is_shared { Stores::Shared } else { Stores::Cached };
                Op::Copy { src, dst, stores }
            }
            Step::Copy { src, dst } => {
                let stores = if is_user(dst) { self.received } else { Stores::Cached };
                Op::Copy { src, dst, stores }
            }
            Step::Reduce { dst, ref sources } => {
                let in_lines = self.fits_lines(dst, sources);
                Op::Reduce { dst, sources: sources.clone(), in_lines }
            }
            Step::Put { to, src } => Op::Put { to, src },
            Step::Get { from, src, dst } => Op::Get { from, src, dst, stores: self.taken },
            Step::Signal => Op::Signal,
            Step::Wait { from } => Op::Wait { from },
            Step::Swap => Op::Swap,
            Step::Offload { .. } => unreachable!("chunks are not handed over by members"),
        }
    }

    /// An exchange, if the lane is just a send of all input and the sum of both inputs.
    fn exchange(&self, steps: &[Step]) -> Option<Op> {
        let schedule = self.schedule;
        let count = schedule.call().count;
        let whole = |buffer| Slice { buffer, offset: 0, len: count };
        let [Step::Send { to, src }, Step::Reduce { dst, sources }] = steps else { return None };
        let (own, theirs) = (Source::Local(*src), Source::Wire(*to, Form::Element));
        let sources = schedule.sources(sources);
        let are_both = sources == [own, theirs] || sources == [theirs, own];
        let fits = (1..=LINE_BYTES / self.element_bytes()).contains(&count);
        let is_whole = *src == whole(Buffer::Input) && *dst == whole(Buffer::Output);
        let is_alone = schedule.lanes().len() == 1 && !self.target.rendezvous;
        let is_one = are_both && fits && is_whole && is_alone;
        is_one.then_some(Op::Exchange { with: *to, src: *src, dst: *dst })
    }

    /// Whether a reduction fits cache lines: each source fits one, and none is another rank's
    /// memory.
    fn fits_lines(&self, dst: Slice, sources: &Range<u32>) -> bool {
        let sources = self.schedule.sources(sources);
        let is_element = |source: &Source| match *source {
            Source::Local(slice) => Form::of(slice.buffer) == Form::Element,
            Source::Wire(_, form) => form == Form::Element,
            Source::Peer(..) => false,
        };
        Form::of(dst.buffer) == Form::Element
            && dst.len <= LINE_BYTES / self.element_bytes()
            && sources.len() <= SOURCES_MAX
            && sources.iter().all(is_element)
    }

    /// Whether a reduction combines inputs at the place of its result, and the next steps put that
    /// to all other ranks.
    fn goes_to_all(&self, dst: Slice, sources: &Range<u32>, next: &[Step]) -> bool {
        let size = self.schedule.size();
        let is_beside = |source: &Source| match source {
            Source::Local(slice) | Source::Peer(_, slice) => {
                *slice == Slice { buffer: Buffer::Input, ..dst }
            }
            Source::Wire(..) => false,
        };
        let sources = self.schedule.sources(sources);
        let is_alone = !(2..=SOURCES_MAX).contains(&size) || next.len() < size - 1;
        if is_alone || dst.buffer != Buffer::Output {
            return false;
        }
        let puts = &next[..size - 1];
        let is_put_to = |rank: Rank| {
            let put = Step::Put { to: rank, src: dst };
            rank == self.schedule.rank() || puts.contains(&put)
        };
        sources.iter().all(is_beside) && (0..size).map(Rank::at).all(is_put_to)
    }

    fn reduce_to_all(&mut self, dst: Slice, sources: &Range<u32>, ops: &mut Vec<Op>) {
        let bytes = self.element_bytes();
        if !self.target.in_place || dst.len * bytes > BACKWARD_BYTES {
            let stores = if self.target.in_place { Stores::Cached } else { self.taken };
            return ops.push(Op::ReduceToAll { dst, sources: sources.clone(), stores });
        }
        let piece = PIECE_BYTES / bytes;
        let of_all = self.schedule.sources(sources).to_vec();
        for at in (0..dst.len).step_by(piece).rev() {
            let part = |slice: Slice| slice.skip(at).take(piece);
            let start = self.sources.len();
            self.sources.extend(of_all.iter().map(|source| match *source {
                Source::Local(slice) => Source::Local(part(slice)),
                Source::Peer(of, slice) => Source::Peer(of, part(slice)),
                wire @ Source::Wire(..) => wire,
            }));
            let index = |at| u32::try_from(at).unwrap_or(u32::MAX);
            let sources = index(start)..index(self.sources.len());
            ops.push(Op::ReduceToAll { dst: part(dst), sources, stores: Stores::Cached });
        }
    }

    const fn element_bytes(&self) -> usize {
        self.schedule.call().data_type.bytes()
    }
}

/// Bytes of the caller's buffers.
struct UserBytes {
    /// Bytes of the buffer that holds the result.
    result: usize,
    /// Bytes of both buffers; of the single one, in place.
    both: usize,
}

impl UserBytes {
    fn of(schedule: &Schedule, in_place: bool) -> Self {
        let element = schedule.call().data_type.bytes();
        let [input, output] = schedule.lens().map(|len| len.saturating_mul(element));
        if in_place {
            let both = input.max(output);
            return Self { result: both, both };
        }
        Self { result: output, both: input + output }
    }

    /// Whether the result of this rank, or the buffers of all ranks, do not fit the caches. For
    /// windows only the inputs count.
    fn exceed_caches(&self, schedule: &Schedule) -> bool {
        let each = if schedule.needs_windows() { self.result } else { self.both };
        let all = each.saturating_mul(schedule.size());
        self.result >= STREAMING_BYTES || all >= STREAMING_BYTES_OF_ALL
    }
}
