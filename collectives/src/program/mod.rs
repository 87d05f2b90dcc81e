//! A lowered schedule: the operations that one rank performs in one call.
//!
//! [`lower`] turns a schedule into a program once, and is the only place that picks fast paths. It
//! picks a message and a sum of two ranks at once, and sums of one cache line. Results may go to
//! all ranks while they are combined. It also picks stores past the caches and rendezvous sends. A
//! program means the same as its schedule. `check` proves it, fast paths included. A
//! [`Stepper`](crate::stepper::Stepper) runs it.

mod chunks;
mod expected;
mod lower;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_types::{Buffer, Call, Rank, Slice};

use crate::group::Group;
use crate::schedule::{Form, Source};

pub use lower::{Target, lower};

/// Bytes of a cache line: the most that an exchange sends, and that a sum of lines combines.
pub const LINE_BYTES: usize = 64;

/// How the elements of an operation are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Through the caches.
    Cached,
    /// Past the caches, which keep their content. For results that do not fit them.
    Streaming,
    /// Through the caches, and then down to the cache that all cores share, where another core
    /// finds them sooner.
    Shared,
}

/// One operation of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Performs the next two operations in one, as far as possible at once: a send of all input to
    /// a rank, and the sum of this rank's input and the other's. Never waits.
    Exchange {
        /// The other rank.
        with: Rank,
        /// This rank's input.
        src: Slice,
        /// The place of the sum.
        dst: Slice,
    },
    /// Posts `src` to be sent.
    Send {
        /// The receiving rank.
        to: Rank,
        /// The elements to send. They must not change until the link has accepted them.
        src: Slice,
        /// Whether the receiver copies the elements from here. The send then ends when it has.
        rendezvous: bool,
    },
    /// Waits for elements and stores them in `dst`, in the form in which they were sent.
    Receive {
        /// The sending rank.
        from: Rank,
        /// The place for the elements.
        dst: Slice,
        /// How they are stored.
        stores: Stores,
    },
    /// Copies elements of one form.
    Copy {
        /// The elements to copy.
        src: Slice,
        /// The place of the copy, of the same length.
        dst: Slice,
        /// How the copy is stored.
        stores: Stores,
    },
    /// Combines elements of all sources, in their order, into `dst`. Results outside of `Scratch`
    /// are finished: averages are divided and accumulators are rounded.
    Reduce {
        /// The place of the results.
        dst: Slice,
        /// Indices of the program's sources.
        sources: Range<u32>,
        /// Whether all elements have the call's type, are in this rank's memory or on the wire, and
        /// fit a cache line.
        in_lines: bool,
    },
    /// Like `Reduce`, of the inputs of all ranks at the place of `dst`, into the outputs of all
    /// ranks.
    ReduceToAll {
        /// The place of the results, on every rank.
        dst: Slice,
        /// Indices of the program's sources.
        sources: Range<u32>,
        /// How the results are stored.
        stores: Stores,
    },
    /// Stores elements of this rank's output at the same place of another rank's output.
    Put {
        /// The other rank.
        to: Rank,
        /// The elements to store.
        src: Slice,
    },
    /// Copies elements of another rank's staging buffer.
    Get {
        /// The other rank.
        from: Rank,
        /// The elements in its staging buffer.
        src: Slice,
        /// The place of the copy, of the same length and form.
        dst: Slice,
        /// How the copy is stored.
        stores: Stores,
    },
    /// Signals all other ranks at once. A rank that has seen the signal sees all earlier stores of
    /// this rank.
    Signal,
    /// Waits for the next signal of a rank.
    Wait {
        /// The signalling rank.
        from: Rank,
    },
    /// Swaps the staging buffers of two ranks: from here on each uses the other's as its own.
    Swap,
    /// Hands over `src` as the next chunk of the lane's group, and skips the next `ops` operations.
    /// Without a provider these operations take its place.
    Post {
        /// The number of the chunk in the lane.
        chunk: u32,
        /// This member's elements.
        src: Slice,
        /// The place of the result.
        dst: Slice,
        /// Number of operations in its place.
        ops: u32,
    },
    /// Waits for the result of a chunk, and skips the next `ops` operations. Without a provider
    /// these operations take its place.
    Take {
        /// The number of the chunk in the lane.
        chunk: u32,
        /// The place of the result.
        dst: Slice,
        /// Number of operations in its place.
        ops: u32,
    },
}

impl Op {
    /// Calls `each` with all slices of this rank's memory that the operation uses. Of a send it is
    /// its elements, which must also not change until they have left.
    fn slices(&self, sources: &[Source], mut each: impl FnMut(Slice)) {
        match *self {
            Self::Send { src, .. } | Self::Put { src, .. } => each(src),
            Self::Receive { dst, .. } | Self::Get { dst, .. } | Self::Take { dst, .. } => each(dst),
            Self::Copy { src, dst, .. }
            | Self::Exchange { src, dst, .. }
            | Self::Post { src, dst, .. } => {
                each(src);
                each(dst);
            }
            Self::Reduce { dst, sources: ref of, .. }
            | Self::ReduceToAll { dst, sources: ref of, .. } => {
                for source in &sources[of.start as usize..of.end as usize] {
                    if let Source::Local(slice) = *source {
                        each(slice);
                    }
                }
                each(dst);
            }
            Self::Signal | Self::Wait { .. } | Self::Swap => {}
        }
    }
}

/// A stretch of the elements that a lane receives from one rank. They land side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expected {
    /// The sending rank.
    pub from: Rank,
    /// The place for the elements.
    pub dst: Slice,
    /// The index of the operation from which on only their receives touch that place.
    pub after: usize,
    /// The bytes that the lane receives from that rank between that operation and the elements.
    pub skip: usize,
}

/// The operations of one rank in one call, made by [`lower`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    call: Call,
    rank: Rank,
    size: usize,
    algorithm: &'static str,
    lanes: Vec<Vec<Op>>,
    /// By lane, the receives that are announced; empty if there are none.
    expected: Vec<Vec<Expected>>,
    sources: Vec<Source>,
    scratch_len: usize,
    rounded_len: usize,
    overlay: Option<isize>,
    in_place_at: [usize; 2],
    flips_staging: bool,
    /// By lane, the group to which it hands over chunks.
    groups: Vec<Option<Group>>,
    /// Binary logarithm of the bytes of an element.
    element: u32,
    /// Binary logarithm of the bytes of an accumulator.
    accumulator: u32,
}

impl Program {
    /// The call that the program performs.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The rank that performs it.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The name of the algorithm, without the collective's.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The operations of each lane.
    #[must_use]
    #[inline]
    pub fn lanes(&self) -> &[Vec<Op>] {
        &self.lanes
    }

    /// The stretches of elements that a lane announces before it receives them, in their order.
    #[must_use]
    #[inline]
    pub fn expected(&self, lane: usize) -> &[Expected] {
        self.expected.get(lane).map_or(&[], Vec::as_slice)
    }

    /// The sources of a reduction.
    ///
    /// # Panics
    /// If the range is not one of this program's operations'.
    #[must_use]
    #[inline]
    pub fn sources(&self, range: &Range<u32>) -> &[Source] {
        &self.sources[range.start as usize..range.end as usize]
    }

    /// Elements of scratch that the operations use.
    #[must_use]
    pub const fn scratch_len(&self) -> usize {
        self.scratch_len
    }

    /// Elements of rounded partial results that the operations use.
    #[must_use]
    pub const fn rounded_len(&self) -> usize {
        self.rounded_len
    }

    /// The offset of `Output` in `Input`, in elements, if both are the same memory.
    #[must_use]
    pub const fn overlay(&self) -> Option<isize> {
        self.overlay
    }

    /// The elements of the one buffer of a call in place at which this rank's input and output
    /// begin.
    #[must_use]
    #[inline]
    pub const fn in_place_at(&self) -> [usize; 2] {
        self.in_place_at
    }

    /// Whether the halves of the staging buffer swap places after the call.
    #[must_use]
    pub const fn flips_staging(&self) -> bool {
        self.flips_staging
    }

    /// The group to which a lane hands over chunks.
    #[must_use]
    pub fn group(&self, lane: usize) -> Option<&Group> {
        self.groups[lane].as_ref()
    }

    /// The exchange that the program begins with, if it does: the other rank, the input and the
    /// result.
    #[must_use]
    #[inline]
    pub fn exchange(&self) -> Option<(Rank, Slice, Slice)> {
        match self.lanes.first()?.first()? {
            Op::Exchange { with, src, dst } => Some((*with, *src, *dst)),
            _ => None,
        }
    }

    /// Whether two slices have memory in common.
    pub(crate) fn overlap(&self, a: Slice, b: Slice) -> bool {
        overlap(self.overlay, a, b)
    }

    /// Binary logarithm of the bytes of an element of `form`.
    #[must_use]
    #[inline]
    pub const fn shift(&self, form: Form) -> u32 {
        match form {
            Form::Element => self.element,
            Form::Accumulator => self.accumulator,
        }
    }
}

/// Whether two slices have memory in common. `overlay` is as for [`Program::overlay`].
pub(crate) fn overlap(overlay: Option<isize>, a: Slice, b: Slice) -> bool {
    let ((memory_a, start_a), (memory_b, start_b)) = (place(overlay, a), place(overlay, b));
    memory_a == memory_b
        && start_a < start_b + b.len.cast_signed()
        && start_b < start_a + a.len.cast_signed()
}

/// The memory of a slice, and its first element there.
const fn place(overlay: Option<isize>, slice: Slice) -> (Buffer, isize) {
    match (slice.buffer, overlay) {
        (Buffer::Output, Some(at)) => (Buffer::Input, slice.offset.cast_signed() + at),
        (buffer, _) => (buffer, slice.offset.cast_signed()),
    }
}
