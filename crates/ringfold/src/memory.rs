//! The buffers of one call, as a schedule's slices address them.

use std::ops::Range;

use ringfold_collectives::Form;
use ringfold_transport::{Exposure, OwnPart, PeerParts, copy, copy_past, hand_over};
use ringfold_types::limits::STAGE_HALF_BYTES;
use ringfold_types::{Buffer, Rank, Slice};

use crate::reach::Reach;
use crate::rows::{Rows, TAKEN_BYTES};

/// Bytes of a result from which what it takes from stages, and what is combined of other windows,
/// is written past the caches. Two ranks' results of that length leave nothing in them for the
/// inputs: as measured for all-gathers of two ranks (`bench/peers`), with 32 MiB of cache.
const PAST_BYTES: usize = 16 * 1024 * 1024;

/// Or bytes of what all ranks of a host have together. With less, who reads the result after the
/// call loses more than the call gains, as measured with 4 and 8 ranks.
const PAST_BYTES_OF_ALL: usize = 64 * 1024 * 1024;

/// Bytes of a result from which what comes of messages is written past the caches too. With less,
/// whoever passes it on, or sends it again in the next call, loses as much as that gains.
const RECEIVED_PAST_BYTES: usize = 48 * 1024 * 1024;

/// Bytes of a copy to the stage that are handed over at most: of more, the other rank fetches many
/// lines at a time, and is faster where they are.
const HANDED_BYTES: usize = 1024;

/// Whether a result of so many bytes is written past the caches, on ranks that have so many in all.
pub(crate) const fn goes_past(result: usize, all: usize) -> bool {
    result >= PAST_BYTES || all >= PAST_BYTES_OF_ALL
}

/// How a call uses stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staging {
    /// Whether the halves have changed places.
    pub(crate) is_turned: bool,
    /// Whether parts lie in rows: the last `TAKEN_BYTES` of scratch are for what is taken of these.
    pub(crate) in_rows: bool,
    /// How many ranks use them.
    pub(crate) ranks: usize,
}

/// The caller's buffers, and where the parts of a call begin in them.
pub(crate) enum User<'a> {
    /// Out of place.
    Apart {
        /// What the rank contributes; empty where it contributes nothing.
        input: &'a [u8],
        /// What the rank receives; empty where it receives nothing.
        output: &'a mut [u8],
    },
    /// In place: one buffer holds both.
    Together {
        /// The buffer.
        bytes: &'a mut [u8],
        /// Where `Input` begins in it, in bytes.
        input_at: usize,
        /// Where `Output` begins in it, in bytes.
        output_at: usize,
    },
}

impl User<'_> {
    /// The same, for one of several runs.
    pub(crate) fn again(&mut self) -> User<'_> {
        match self {
            Self::Apart { input, output } => User::Apart { input, output },
            Self::Together { bytes, input_at, output_at } => {
                User::Together { bytes, input_at: *input_at, output_at: *output_at }
            }
        }
    }
}

/// How long the caller's buffers are, in bytes, and whether they are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) in_place: bool,
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// All memory of one call. Three regions of bytes, of which the last two are written:
/// the input (empty in place), the user's (output, or both in place), and scratch.
pub(crate) struct Memory<'a> {
    input: &'a [u8],
    user: &'a mut [u8],
    scratch: &'a mut [u8],
    /// In whose place the user's buffers are empty.
    reach: Option<Reach<'a>>,
    /// What ranks pass the call through, if they do.
    stage: Option<Exposure<'a>>,
    /// Whether what the user's memory gets of others' stages is written past the caches.
    past: bool,
    /// The longest copy to the stage of which the other rank finds the lines in a cache of both.
    handed_bytes: usize,
    map: Map,
}

/// Where slices are.
#[derive(Clone, Copy)]
struct Map {
    /// The byte of the user's region at which `Input` begins, in place.
    input_at: Option<usize>,
    /// The byte of the user's region at which `Output` begins.
    output_at: usize,
    /// How far the halves of the stage have changed places, in bytes.
    stage_by: usize,
    /// Where in scratch that is which is taken of parts that lie in rows, if some do.
    taken_at: Option<usize>,
    /// How far to shift a number of elements to get their bytes, of which there is a power of two,
    element: u32,
    /// and for elements of scratch.
    accumulator: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Input,
    User,
    Scratch,
    Stage,
}

/// Everything but one destination.
pub(crate) struct Rest<'m> {
    input: &'m [u8],
    /// The destination's region, before and after it.
    before: &'m [u8],
    after: &'m [u8],
    hole: (Region, Range<usize>),
    /// The user's memory and scratch, but for the one that the destination is in.
    user: &'m [u8],
    scratch: &'m [u8],
    /// This rank's stage, unless the destination is in it, and the others'.
    own_stage: Option<&'m OwnPart>,
    stages: Option<&'m PeerParts>,
    map: Map,
}

/// Where a local source is.
pub(crate) enum Place<'m> {
    /// It is the destination itself.
    Destination,
    /// Elsewhere.
    Bytes(&'m [u8]),
}

impl<'a> Memory<'a> {
    /// Puts together the memory of a call whose elements have `element` bytes, and those of scratch
    /// `accumulator` bytes.
    pub(crate) fn new(
        user: User<'a>,
        scratch: &'a mut [u8],
        element: usize,
        accumulator: usize,
    ) -> Self {
        let (input, user, input_at, output_at): (&[u8], _, _, _) = match user {
            User::Apart { input, output } => (input, output, None, 0),
            User::Together { bytes, input_at, output_at } => {
                (&[], bytes, Some(input_at), output_at)
            }
        };
        debug_assert!(element.is_power_of_two() && accumulator.is_power_of_two());
        let (element, accumulator) = (element.trailing_zeros(), accumulator.trailing_zeros());
        let map = Map { input_at, output_at, stage_by: 0, taken_at: None, element, accumulator };
        let (reach, stage) = (None, None);
        Self { input, user, scratch, reach, stage, past: false, handed_bytes: 0, map }
    }

    /// The same with the stage, if the call passes through it.
    pub(crate) fn with_stage(
        self,
        stage: Option<Exposure<'a>>,
        Staging { is_turned, in_rows, ranks }: Staging,
    ) -> Self {
        let stage_by = if is_turned { STAGE_HALF_BYTES } else { 0 };
        let past = goes_past(self.user.len(), (self.input.len() + self.user.len()) * ranks);
        let handed_bytes = if ranks == 2 { HANDED_BYTES } else { 0 };
        let taken_at = in_rows.then(|| self.scratch.len() - TAKEN_BYTES);
        let map = Map { stage_by, taken_at, ..self.map };
        Self { stage, past, handed_bytes, map, ..self }
    }

    /// Whether what the user's memory gets of messages, and of itself, is written past the caches.
    pub(crate) const fn receives_past(&self) -> bool {
        self.user.len() >= RECEIVED_PAST_BYTES
    }

    /// The memory of a call in windows: there its schedule's steps are `reach`'s, but for messages,
    /// which go from and to scratch.
    pub(crate) fn in_windows(reach: Reach<'a>, scratch: &'a mut [u8]) -> Self {
        let (element, accumulator) = (reach.element, reach.accumulator);
        let map =
            Map { input_at: None, output_at: 0, stage_by: 0, taken_at: None, element, accumulator };
        let (input, user): (&[u8], &mut [u8]) = (&[], &mut []);
        let (reach, stage) = (Some(reach), None);
        Self { input, user, scratch, reach, stage, past: false, handed_bytes: 0, map }
    }

    /// All steps of the call are done.
    #[inline]
    pub(crate) fn complete(&mut self) {
        if let Some(reach) = &mut self.reach {
            reach.complete();
        }
        if let Some(stage) = &mut self.stage {
            stage.complete();
        }
    }

    /// The windows, if the call is in some, and scratch.
    #[inline]
    pub(crate) fn reach(&mut self) -> Option<(&mut Reach<'a>, &mut [u8])> {
        self.reach.as_mut().map(|reach| (reach, &mut *self.scratch))
    }

    /// Where `Output` begins in `Input`, in elements, if they are the same memory.
    pub(crate) fn overlay(&self) -> Option<isize> {
        let Map { input_at, output_at, element, .. } = self.map;
        let begin = |at: usize| (at >> element).cast_signed();
        input_at.map(|input_at| begin(output_at) - begin(input_at))
    }

    /// How far to shift a number of elements of `form` to get their bytes.
    #[inline]
    pub(crate) const fn shift(&self, form: Form) -> u32 {
        match form {
            Form::Element => self.map.element,
            Form::Accumulator => self.map.accumulator,
        }
    }

    /// The bytes of `slice`.
    #[inline]
    pub(crate) fn read(&self, slice: Slice) -> &[u8] {
        let (region, range) = self.map.place(slice);
        match region {
            Region::Input => &self.input[range],
            Region::User => &self.user[range],
            Region::Scratch => &self.scratch[range],
            Region::Stage => staged(self.stage.as_ref()).own.read(range),
        }
    }

    /// The bytes of `slice`, to be written.
    #[inline]
    pub(crate) fn write(&mut self, slice: Slice) -> &mut [u8] {
        let (region, range) = self.map.place(slice);
        match region {
            Region::User => &mut self.user[range],
            Region::Scratch => &mut self.scratch[range],
            Region::Stage => staged(self.stage.as_mut()).own.write(range),
            Region::Input => unreachable!("proven schedules do not write their input"),
        }
    }

    /// Copies `src` to `dst`.
    pub(crate) fn copy(&mut self, src: Slice, dst: Slice) {
        let (from, to) = (self.map.place(src), self.map.place(dst));
        if from == to {
            return;
        }
        if let (Region::Stage, Some(rows)) = (to.0, self.map.rows(from.1.len())) {
            return self.copy_in_rows(from, to.1.start, rows);
        }
        let overlap = from.1.start < to.1.end && to.1.start < from.1.end;
        match (from.0, to.0) {
            (Region::User, Region::User) if overlap => self.user.copy_within(from.1, to.1.start),
            (Region::Scratch, Region::Scratch) if overlap => {
                self.scratch.copy_within(from.1, to.1.start);
            }
            _ => {
                let is_past = to.0 == Region::User && self.receives_past();
                let copy = if is_past { copy_past } else { copy };
                let handed_bytes = self.handed_bytes;
                let (bytes, rest) = self.split(dst);
                if let Place::Bytes(source) = rest.at(from) {
                    copy(bytes, source);
                }
                if to.0 == Region::Stage && bytes.len() <= handed_bytes {
                    hand_over(bytes);
                }
            }
        }
    }

    /// Copies what is at `from` to byte `start` of the stage.
    fn copy_in_rows(&mut self, (region, range): (Region, Range<usize>), start: usize, rows: Rows) {
        let bytes = match region {
            Region::Input => &self.input[range],
            Region::User => &self.user[range],
            Region::Scratch => &self.scratch[range],
            Region::Stage => unreachable!("what lies in rows is not copied within a stage"),
        };
        let stage = staged(self.stage.as_mut()).own.write(Rows::span(start));
        rows.places().for_each(|(row, place)| copy(&mut stage[place], &bytes[row]));
    }

    /// Copies `src` of the stage of `from` to `dst`.
    pub(crate) fn get(&mut self, from: Rank, src: Slice, dst: Slice) {
        let (_, range) = self.map.place(src);
        let copy = if self.past { copy_past } else { copy };
        let rows = self.map.rows(range.len());
        let (bytes, rest) = self.split(dst);
        if let Some(rows) = rows {
            let stage = staged(rest.stages).read(from, Rows::span(range.start));
            return rows.places().for_each(|(row, place)| copy(&mut bytes[row], &stage[place]));
        }
        copy(bytes, staged(rest.stages).read(from, range));
    }

    /// Takes `src` of the stage of `from` together, if it lies in rows, for a reduction.
    #[inline]
    pub(crate) fn take(&mut self, from: Rank, src: Slice) {
        let (_, range) = self.map.place(src);
        let (Some(rows), Some(at)) = (self.map.rows(range.len()), self.map.taken_at) else {
            return;
        };
        let stage = staged(self.stage.as_ref()).peers.read(from, Rows::span(range.start));
        let taken = &mut self.scratch[at..];
        rows.places().for_each(|(row, place)| copy(&mut taken[row], &stage[place]));
    }

    /// Trades stages with the other rank.
    pub(crate) fn trade(&mut self) {
        staged(self.stage.as_mut()).trade();
    }

    /// The bytes of `dst`, to be written, and the memory around them.
    #[inline]
    pub(crate) fn split(&mut self, dst: Slice) -> (&mut [u8], Rest<'_>) {
        let (region, range) = self.map.place(dst);
        let stage = self.stage.as_mut().map(|stage| (&mut *stage.own, &*stage.peers));
        let (own, stages) = stage.unzip();
        let mut rest = Rest {
            input: self.input,
            before: &[],
            after: &[],
            hole: (region, range.clone()),
            user: &[],
            scratch: &[],
            own_stage: None,
            stages,
            map: self.map,
        };
        let whole: &mut [u8] = match region {
            Region::User => {
                (rest.scratch, rest.own_stage) = (&*self.scratch, own.map(|own| &*own));
                self.user
            }
            Region::Scratch => {
                (rest.user, rest.own_stage) = (&*self.user, own.map(|own| &*own));
                self.scratch
            }
            Region::Stage => {
                (rest.user, rest.scratch) = (&*self.user, &*self.scratch);
                return (staged(own).write(range), rest);
            }
            Region::Input => unreachable!("proven schedules do not write their input"),
        };
        let (before, tail) = whole.split_at_mut(range.start);
        let (bytes, after) = tail.split_at_mut(range.len());
        (rest.before, rest.after) = (before, after);
        (bytes, rest)
    }
}

impl Map {
    /// How so many bytes of a stage lie, if it is in rows.
    #[inline]
    fn rows(self, part: usize) -> Option<Rows> {
        self.taken_at.and_then(|_| Rows::of(part))
    }

    #[inline]
    fn place(self, slice: Slice) -> (Region, Range<usize>) {
        let (region, start, shift) = match (slice.buffer, self.input_at) {
            (Buffer::Scratch, _) => (Region::Scratch, 0, self.accumulator),
            (Buffer::Stage, _) => {
                let start = slice.offset << self.element;
                // No slice has elements of both halves.
                let start = if start < STAGE_HALF_BYTES {
                    start + self.stage_by
                } else {
                    start - self.stage_by
                };
                return (Region::Stage, start..start + (slice.len << self.element));
            }
            (Buffer::Output, _) => (Region::User, self.output_at, self.element),
            (Buffer::Input, Some(at)) => (Region::User, at, self.element),
            (Buffer::Input, None) => (Region::Input, 0, self.element),
        };
        let start = start + (slice.offset << shift);
        (region, start..start + (slice.len << shift))
    }
}

impl<'m> Rest<'m> {
    /// Finds a local source, which is the destination or disjoint from it.
    #[inline]
    pub(crate) fn find(&self, slice: Slice) -> Place<'m> {
        self.at(self.map.place(slice))
    }

    /// What `slice` of the stage of `of` holds: taken before, if it lies in rows.
    #[inline]
    pub(crate) fn peer(&self, of: Rank, slice: Slice) -> &'m [u8] {
        let (_, range) = self.map.place(slice);
        match (self.map.rows(range.len()), self.map.taken_at) {
            (Some(_), Some(at)) => &self.scratch[at..at + range.len()],
            _ => staged(self.stages).read(of, range),
        }
    }

    #[inline]
    fn at(&self, (region, range): (Region, Range<usize>)) -> Place<'m> {
        let (hole_region, hole) = &self.hole;
        Place::Bytes(match region {
            Region::Input => &self.input[range],
            Region::Stage => staged(self.own_stage).read(range),
            Region::User if *hole_region != Region::User => &self.user[range],
            Region::Scratch if *hole_region != Region::Scratch => &self.scratch[range],
            _ if range == *hole => return Place::Destination,
            _ if range.end <= hole.start => &self.before[range],
            _ => &self.after[range.start - hole.end..range.end - hole.end],
        })
    }
}

/// What a call with such steps has.
#[inline]
fn staged<T>(stage: Option<T>) -> T {
    stage.expect("only calls through stages use theirs")
}

#[cfg(test)]
mod tests {
    use super::{Memory, Staging, User, goes_past};

    #[test]
    fn long_results_go_past_the_caches_by_what_all_ranks_have() {
        fn past(user: User<'_>) -> bool {
            let staging = Staging { is_turned: false, in_rows: false, ranks: 8 };
            Memory::new(user, &mut [], 1, 1).with_stage(None, staging).past
        }
        let mib = |count: usize| count << 20;
        assert!(goes_past(mib(16), mib(32)) && goes_past(mib(4), mib(64)));
        assert!(!goes_past(mib(15), mib(63)));
        let (input, mut bytes) = (vec![0; mib(4)], vec![0; mib(4)]);
        let in_place = User::Together { bytes: &mut bytes, input_at: 0, output_at: 0 };
        assert!(!past(in_place), "one buffer of each rank");
        assert!(past(User::Apart { input: &input, output: &mut bytes }), "two");
    }
}
