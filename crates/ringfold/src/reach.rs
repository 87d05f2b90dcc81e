//! The windows of one call: what a schedule's steps read and write where it lies, on this rank and
//! on others.

use std::ops::Range;

use ringfold_collectives::{Form, Schedule, Source, Step};
use ringfold_reduce::{Kernel, Operand};
use ringfold_transport::{Exposure, OwnPart, ReadExposure};
use ringfold_types::limits::SOURCES_MAX;
use ringfold_types::{Buffer, Rank, Slice};

use crate::engine::kernel_form;

/// Bytes of the longest step in place that goes from its end to its beginning, so many at a time.
/// So a call of 4 KiB takes 0.66 of the time, presumably as CPUs fetch what follows longer runs of
/// lines, which is another rank's to write.
const SHORT_BYTES: usize = 4096;
const FEW_BYTES: usize = 20 * 64;

/// The windows that a call's input and output are in.
pub(crate) struct Reach<'a> {
    /// Out of place.
    pub(crate) input: Option<ReadExposure<'a>>,
    /// The output, and in place the input.
    pub(crate) output: Exposure<'a>,
    /// The byte of both at which the call's elements begin.
    pub(crate) at: usize,
    /// How far to shift a number of elements to get their bytes,
    pub(crate) element: u32,
    /// and for elements of scratch.
    pub(crate) accumulator: u32,
    /// Whether every result goes to all ranks as it is combined, rather than step by step.
    pub(crate) spreads: bool,
    /// Whether these results are written past the caches.
    pub(crate) past: bool,
}

/// Whether every result is combined of the inputs at its place into the output, and stored to all
/// other ranks right away: so that both can be done in one pass.
pub(crate) fn spreads(schedule: &Schedule) -> bool {
    let [steps] = schedule.lanes() else { return false };
    if !schedule.needs_windows() || schedule.size() > SOURCES_MAX {
        return false;
    }
    let mut steps = steps.iter();
    while let Some(step) = steps.next() {
        match step {
            Step::Reduce { dst, sources } => {
                let in_place = |source: &Source| match source {
                    Source::Local(slice) | Source::Peer(_, slice) => {
                        slice.buffer == Buffer::Input
                            && (slice.offset, slice.len) == (dst.offset, dst.len)
                    }
                    Source::Wire(..) => false,
                };
                let fits = schedule.sources(sources).iter().all(in_place);
                if dst.buffer != Buffer::Output || !fits {
                    return false;
                }
                let mut missing: Vec<usize> = (0..schedule.size()).collect();
                missing.retain(|rank| *rank != schedule.rank().index());
                for put in steps.by_ref().take(missing.len()) {
                    let Step::Put { to, src } = put else { return false };
                    if src != dst {
                        return false;
                    }
                    missing.retain(|rank| *rank != to.index());
                }
                if !missing.is_empty() {
                    return false;
                }
            }
            Step::Put { .. } => return false,
            _ => {}
        }
    }
    true
}

impl Reach<'_> {
    /// All steps of the call are done.
    pub(crate) fn complete(&mut self) {
        self.output.complete();
        if let Some(input) = &mut self.input {
            input.complete();
        }
    }

    /// Combines all elements of a step that waits for nothing.
    pub(crate) fn reduce(
        &mut self,
        kernel: &Kernel,
        scratch: &mut [u8],
        dst: Slice,
        sources: &[Source],
    ) {
        if self.spreads {
            let is_short = self.input.is_none() && dst.len << self.element <= SHORT_BYTES;
            let few = if is_short { FEW_BYTES >> self.element } else { dst.len.max(1) };
            let mut rest = dst;
            while rest.len > 0 {
                let last = rest.skip((rest.len - 1) / few * few);
                self.reduce_to_all(kernel, last, sources);
                rest = rest.take(rest.len - last.len);
            }
            return;
        }
        let (at, element, accumulator) = (self.at, self.element, self.accumulator);
        let in_window = |slice: Slice| bytes(at, element, slice);
        let in_scratch = |slice: Slice| bytes(0, accumulator, slice);
        let Exposure { own, peers, .. } = &mut self.output;
        let far = self.input.as_ref().map_or(&**peers, |window| window.peers);
        // What the destination is not in. Partial results are combined where they lie.
        let (into, near, scratch): (&mut [u8], Option<&OwnPart>, &[u8]) =
            if dst.buffer == Buffer::Scratch {
                let near = self.input.as_ref().map_or(&**own, |window| window.own);
                (&mut scratch[in_scratch(dst)], Some(near), &[])
            } else {
                let near = self.input.as_ref().map(|window| window.own);
                (own.write(in_window(dst)), near, scratch)
            };
        let mut operands = [Operand::Destination; SOURCES_MAX];
        for (operand, source) in operands.iter_mut().zip(sources) {
            let (bytes, form) = match *source {
                Source::Local(slice) if slice == dst => continue,
                Source::Local(slice) if slice.buffer == Buffer::Scratch => {
                    (&scratch[in_scratch(slice)], Form::Accumulator)
                }
                Source::Local(slice) => match near {
                    Some(own) => (own.read(in_window(slice)), Form::Element),
                    None => {
                        debug_assert_eq!(slice.offset, dst.offset, "in place, where it lies");
                        continue;
                    }
                },
                Source::Peer(of, slice) if slice.buffer == Buffer::Input => {
                    (far.read(of, in_window(slice)), Form::Element)
                }
                Source::Peer(of, slice) => (peers.read(of, in_window(slice)), Form::Element),
                Source::Wire(..) => unreachable!("a step in windows waits for nothing"),
            };
            *operand = Operand::Bytes { bytes, form: kernel_form(form) };
        }
        let form = kernel_form(Form::of(dst.buffer));
        kernel.combine(into, form, &operands[..sources.len()]);
    }

    /// Combines elements into the outputs of all ranks at once.
    fn reduce_to_all(&mut self, kernel: &Kernel, dst: Slice, sources: &[Source]) {
        let range = bytes(self.at, self.element, dst);
        let Exposure { own, peers, .. } = &mut self.output;
        let mut operands = [Operand::Destination; SOURCES_MAX];
        for (operand, source) in operands.iter_mut().zip(sources) {
            *operand = match (*source, &self.input) {
                (Source::Local(_), None) => Operand::Destination,
                (Source::Peer(of, _), None) => Operand::Other(peers.place(of)),
                (Source::Local(_), Some(input)) => Operand::elements(input.own.read(range.clone())),
                (Source::Peer(of, _), Some(input)) => {
                    Operand::elements(input.peers.read(of, range.clone()))
                }
                (Source::Wire(..), _) => unreachable!("a step in windows waits for nothing"),
            };
        }
        let mut others: [&mut [u8]; SOURCES_MAX] = Default::default();
        let mut count = 0;
        for (other, part) in others.iter_mut().zip(peers.write_all(&range)) {
            *other = part;
            count += 1;
        }
        let into = own.write(range.clone());
        kernel.combine_to_all(into, &mut others[..count], &operands[..sources.len()], self.past);
    }

    /// Stores elements of the output into that of `to`.
    pub(crate) fn put(&mut self, to: Rank, src: Slice) {
        if self.spreads {
            // It is there.
            return;
        }
        let range = bytes(self.at, self.element, src);
        let Exposure { own, peers, .. } = &mut self.output;
        peers.put(to, range.start, own.read(range));
    }
}

fn bytes(at: usize, shift: u32, slice: Slice) -> Range<usize> {
    at + (slice.offset << shift)..at + (slice.end() << shift)
}
