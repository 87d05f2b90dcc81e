//! All memory of one call: the translation of a program's slices to bytes.
//!
//! Each buffer is private to this rank, or shared: a window that every rank of the host has mapped.
//! Shared buffers also give access to the other ranks' parts.

use std::ops::Range;

use ringfold_collectives::{Form, Program, Stores};
use ringfold_lend::{expose, expose_to_readers};
use ringfold_transport::{
    Exposure, OwnPart, PeerParts, ReadExposure, Window, copy, copy_non_temporal, demote,
};
use ringfold_types::limits::STAGING_HALF_BYTES;
use ringfold_types::{Buffer, Rank, Slice};

use crate::buffers::{Buffers, Offsets, Place, User};

/// All memory of one call.
pub(super) struct BufferMap<'a> {
    input: Input<'a>,
    output: Output<'a>,
    scratch: &'a mut [u8],
    /// The staging buffer, if the call passes through it.
    staging: Option<Exposure<'a>>,
    map: Map,
}

enum Input<'a> {
    /// Input and output are the same buffer.
    InPlace,
    Private(&'a [u8]),
    Shared(ReadExposure<'a>),
}

enum Output<'a> {
    Private(&'a mut [u8]),
    Shared(Exposure<'a>),
}

/// Translates slices to spans of regions.
#[derive(Clone, Copy)]
struct Map {
    /// The region of `Buffer::Input`, and the byte of the region where it begins.
    input: (Region, usize),
    /// The byte of the output's region where `Buffer::Output` begins.
    output_at: usize,
    /// The bytes by which the first half of the staging buffer moves when it is flipped, or 0.
    flipped_by: usize,
    /// The binary logarithm of the size of an element.
    element: u32,
    /// The binary logarithm of the size of an element of scratch.
    accumulator: u32,
    /// The byte of the scratch's region where `Buffer::Rounded` begins.
    rounded_at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Input,
    Output,
    Scratch,
    Staging,
}

/// A range of bytes of a region.
type Span = (Region, Range<usize>);

/// A source of a reduction in this rank's memory.
pub(super) enum LocalSource<'m> {
    /// The destination itself.
    Destination,
    /// Bytes that are disjoint from the destination.
    Bytes(&'m [u8]),
}

impl<'a> BufferMap<'a> {
    /// The buffers of a call of `program`: only `scratch` yet.
    #[inline]
    pub(super) fn new(program: &Program, scratch: &'a mut [u8]) -> Self {
        let map = Map {
            input: (Region::Output, 0),
            output_at: 0,
            flipped_by: 0,
            element: program.shift(Form::Element),
            accumulator: program.shift(Form::Accumulator),
            rounded_at: program.scratch_len() << program.shift(Form::Accumulator),
        };
        let output = Output::Private(&mut []);
        Self { input: Input::InPlace, output, scratch, staging: None, map }
    }

    /// Adds the caller's memory, which is at `place`. With `in_windows`, ranks use each other's
    /// windows.
    ///
    /// The fields are written in place, and lengths come from `place`. Moving a structure that was
    /// just written in parts would stall the processor until all stores have finished.
    #[inline]
    pub(super) fn add_user(
        &mut self,
        program: &Program,
        in_windows: bool,
        user: &'a mut User<'_, '_>,
        place: Place,
    ) {
        match user {
            User::Private(Buffers::Apart { input, output }) => {
                self.input = Input::Private(&input[..place.input]);
                self.output = Output::Private(&mut output[..place.output]);
                self.map.input.0 = Region::Input;
            }
            User::Private(Buffers::InPlace(both)) => {
                let offsets = Offsets::of(program);
                self.output = Output::Private(&mut both[..place.output]);
                (self.map.input.1, self.map.output_at) = (offsets.input, offsets.output);
            }
            User::Windows { input, output, range } => {
                if let Some(input) = input {
                    self.map.input.0 = Region::Input;
                    self.input = if in_windows {
                        Input::Shared(expose_to_readers(program, input))
                    } else {
                        Input::Private(input.read(range.clone()))
                    };
                }
                if in_windows {
                    self.output = Output::Shared(expose(program, output));
                    (self.map.input.1, self.map.output_at) = (range.start, range.start);
                } else {
                    self.output = Output::Private(output.write(range.clone()));
                }
            }
        }
    }

    /// Adds the staging buffer. `is_flipped` says whether its halves are flipped.
    #[inline]
    pub(super) fn add_staging(
        &mut self,
        program: &Program,
        staging: &'a mut Window,
        is_flipped: bool,
    ) {
        self.staging = Some(expose(program, staging));
        self.map.flipped_by = if is_flipped { STAGING_HALF_BYTES } else { 0 };
    }

    /// The memory that only this rank uses: the input, and then what is written.
    #[inline]
    pub(super) fn private(&mut self) -> (&[u8], [&mut [u8]; 2]) {
        let input: &[u8] = if let Input::Private(input) = self.input { input } else { &[] };
        let output =
            if let Output::Private(output) = &mut self.output { output } else { &mut [][..] };
        (input, [output, self.scratch])
    }

    /// Ends the exposure of shared buffers. The program must be done, so that no peer uses them.
    #[inline]
    pub(super) fn complete(&mut self) {
        if let Output::Shared(output) = &mut self.output {
            output.complete();
        }
        if let Input::Shared(input) = &mut self.input {
            input.complete();
        }
        if let Some(staging) = &mut self.staging {
            staging.complete();
        }
    }

    /// Ends the loans of windows in the middle of a call.
    pub(super) fn suspend(&mut self) {
        if let Output::Shared(output) = &mut self.output {
            output.suspend();
        }
        if let Input::Shared(input) = &mut self.input {
            input.suspend();
        }
        if let Some(staging) = &mut self.staging {
            staging.suspend();
        }
    }

    /// The binary logarithm of the size of an element of `form`.
    #[inline]
    pub(super) const fn shift(&self, form: Form) -> u32 {
        match form {
            Form::Element => self.map.element,
            Form::Accumulator => self.map.accumulator,
        }
    }

    /// The bytes of `slice`.
    #[inline]
    pub(super) fn read(&self, slice: Slice) -> &[u8] {
        let (region, range) = self.map.span(slice);
        match region {
            Region::Input => match &self.input {
                Input::Private(input) => &input[range],
                Input::Shared(input) => input.own.read(range),
                Input::InPlace => unreachable!("input is in the output's region"),
            },
            Region::Output => match &self.output {
                Output::Private(output) => &output[range],
                Output::Shared(output) => output.own.read(range),
            },
            Region::Scratch => &self.scratch[range],
            Region::Staging => staged(self.staging.as_ref()).own.read(range),
        }
    }

    /// The bytes of `slice`, for writing.
    #[inline]
    pub(super) fn write(&mut self, slice: Slice) -> &mut [u8] {
        let (region, range) = self.map.span(slice);
        match region {
            Region::Output => match &mut self.output {
                Output::Private(output) => &mut output[range],
                Output::Shared(output) => output.own.write(range),
            },
            Region::Scratch => &mut self.scratch[range],
            Region::Staging => staged(self.staging.as_mut()).own.write(range),
            Region::Input => unreachable!("proven programs do not write their input"),
        }
    }

    /// Copies `src` to `dst`.
    pub(super) fn copy(&mut self, src: Slice, dst: Slice, stores: Stores) {
        let (from, to) = (self.map.span(src), self.map.span(dst));
        if from == to {
            return;
        }
        let overlap = from.1.start < to.1.end && to.1.start < from.1.end;
        if from.0 == to.0 && overlap {
            let region = match (to.0, &mut self.output) {
                (Region::Output, Output::Private(output)) => &mut **output,
                (Region::Scratch, _) => &mut *self.scratch,
                _ => unreachable!("proven programs move nothing within shared buffers"),
            };
            return region.copy_within(from.1, to.1.start);
        }
        let parts = self.split(dst);
        if let LocalSource::Bytes(source) = parts.find(src) {
            store(parts.bytes, source, stores);
        }
    }

    /// Copies `src` of the shared buffer of `from` to `dst`.
    pub(super) fn get(&mut self, from: Rank, src: Slice, dst: Slice, stores: Stores) {
        let parts = self.split(dst);
        store(parts.bytes, parts.peer(from, src), stores);
    }

    /// Stores `src` of the output into that of `to`.
    pub(super) fn put(&mut self, to: Rank, src: Slice) {
        let (_, range) = self.map.span(src);
        let Output::Shared(Exposure { own, peers, .. }) = &mut self.output else {
            unreachable!("only programs for windows store into peers' memory");
        };
        peers.put(to, range.start, own.read(range));
    }

    /// Swaps staging buffers with the other rank of a pair.
    pub(super) fn swap(&mut self) {
        staged(self.staging.as_mut()).swap();
    }

    /// The windows, for a reduction whose result goes to `dst` on all ranks.
    pub(super) fn windows_of_all(&mut self, dst: Slice) -> ToAll<'_> {
        let (_, range) = self.map.span(dst);
        let Output::Shared(Exposure { own, peers, .. }) = &mut self.output else {
            unreachable!("only programs for windows store into peers' memory");
        };
        let input = match &self.input {
            Input::Shared(input) => Some((input.own, input.peers)),
            Input::InPlace | Input::Private(_) => None,
        };
        ToAll { input, own, peers, range }
    }

    /// Splits the memory into the bytes of `dst`, for writing, and the rest.
    #[inline]
    pub(super) fn split(&mut self, dst: Slice) -> Parts<'_> {
        let destination = self.map.span(dst);
        let range = destination.1.clone();
        let (staging, staging_peers) = match &mut self.staging {
            Some(Exposure { own, peers, .. }) => (Some(&mut **own), Some(&**peers)),
            None => (None, None),
        };
        let input = match &self.input {
            Input::InPlace => Part::None,
            Input::Private(input) => Part::Bytes(input),
            Input::Shared(input) => Part::Own(input.own),
        };
        let input_peers = match &self.input {
            Input::Shared(input) => Some(input.peers),
            Input::InPlace | Input::Private(_) => None,
        };
        let (output, output_peers) = match &mut self.output {
            Output::Private(output) => (Area::Private(output), None),
            Output::Shared(Exposure { own, peers, .. }) => (Area::Shared(own), Some(&**peers)),
        };
        let scratch = Area::Private(self.scratch);
        let staging = staging.map_or(Area::Private(&mut []), Area::Shared);
        let (bytes, [output, scratch, staging]) = match destination.0 {
            Region::Output => {
                let (bytes, around) = output.split(range);
                (bytes, [around, scratch.rest(), staging.rest()])
            }
            Region::Scratch => {
                let (bytes, around) = scratch.split(range);
                (bytes, [output.rest(), around, staging.rest()])
            }
            Region::Staging => {
                let (bytes, around) = staging.split(range);
                (bytes, [output.rest(), scratch.rest(), around])
            }
            Region::Input => unreachable!("proven programs do not write their input"),
        };
        let peers = Peers {
            input: input_peers.or(output_peers),
            output: output_peers,
            staging: staging_peers,
        };
        Parts { bytes, input, output, scratch, staging, peers, destination, map: self.map }
    }
}

/// Copies to memory of this rank, by the kind of stores that suits its next reader.
fn store(dst: &mut [u8], src: &[u8], stores: Stores) {
    match stores {
        Stores::Cached => copy(dst, src),
        Stores::Streaming => copy_non_temporal(dst, src),
        Stores::Shared => {
            copy(dst, src);
            demote(dst);
        }
    }
}

/// The windows of a reduction to all ranks.
pub(super) struct ToAll<'m> {
    /// The inputs of this rank and the others. `None` in place: the outputs are the inputs.
    pub(super) input: Option<(&'m OwnPart, &'m PeerParts)>,
    pub(super) own: &'m mut OwnPart,
    pub(super) peers: &'m mut PeerParts,
    /// The bytes of the reduction in each window.
    pub(super) range: Range<usize>,
}

/// A region to split into a destination and the rest.
enum Area<'m> {
    Private(&'m mut [u8]),
    Shared(&'m mut OwnPart),
}

/// The rest of a region.
enum Part<'m> {
    None,
    Bytes(&'m [u8]),
    Own(&'m OwnPart),
    Around { before: &'m [u8], after: &'m [u8] },
}

impl<'m> Area<'m> {
    #[inline]
    fn split(self, range: Range<usize>) -> (&'m mut [u8], Part<'m>) {
        match self {
            Self::Private(bytes) => {
                let (before, tail) = bytes.split_at_mut(range.start);
                let (bytes, after) = tail.split_at_mut(range.len());
                (bytes, Part::Around { before, after })
            }
            // Peers may use the rest of the window.
            Self::Shared(own) => (own.write(range), Part::None),
        }
    }

    #[inline]
    fn rest(self) -> Part<'m> {
        match self {
            Self::Private(bytes) => Part::Bytes(bytes),
            Self::Shared(own) => Part::Own(own),
        }
    }
}

struct Peers<'m> {
    input: Option<&'m PeerParts>,
    output: Option<&'m PeerParts>,
    staging: Option<&'m PeerParts>,
}

/// A destination, and the rest of the call's memory.
pub(super) struct Parts<'m> {
    /// The destination.
    pub(super) bytes: &'m mut [u8],
    input: Part<'m>,
    output: Part<'m>,
    scratch: Part<'m>,
    staging: Part<'m>,
    peers: Peers<'m>,
    destination: Span,
    map: Map,
}

impl<'m> Parts<'m> {
    /// Finds a source in this rank's memory. It is the destination or disjoint from it.
    #[inline]
    pub(super) fn find(&self, slice: Slice) -> LocalSource<'m> {
        let (region, range) = self.map.span(slice);
        if (region, &range) == (self.destination.0, &self.destination.1) {
            return LocalSource::Destination;
        }
        let part = match region {
            Region::Input => &self.input,
            Region::Output => &self.output,
            Region::Scratch => &self.scratch,
            Region::Staging => &self.staging,
        };
        LocalSource::Bytes(match part {
            Part::Bytes(bytes) => &bytes[range],
            Part::Own(own) => own.read(range),
            Part::Around { before, .. } if range.end <= self.destination.1.start => &before[range],
            Part::Around { after, .. } => {
                &after[range.start - self.destination.1.end..range.end - self.destination.1.end]
            }
            Part::None => unreachable!("proven programs use no more of a shared destination"),
        })
    }

    /// The bytes of `slice` of another rank.
    #[inline]
    pub(super) fn peer(&self, of: Rank, slice: Slice) -> &'m [u8] {
        let (_, range) = self.map.span(slice);
        let parts = match slice.buffer {
            Buffer::Input => self.peers.input,
            Buffer::Output => self.peers.output,
            Buffer::Staging | Buffer::Scratch | Buffer::Rounded => self.peers.staging,
        };
        staged(parts).read(of, range)
    }
}

impl Map {
    #[inline]
    fn span(self, slice: Slice) -> Span {
        let (region, start, shift) = match slice.buffer {
            Buffer::Scratch => (Region::Scratch, 0, self.accumulator),
            Buffer::Rounded => (Region::Scratch, self.rounded_at, self.element),
            Buffer::Output => (Region::Output, self.output_at, self.element),
            Buffer::Input => (self.input.0, self.input.1, self.element),
            Buffer::Staging => {
                let start = slice.offset << self.element;
                // No slice crosses from one half to the other.
                let start = if start < STAGING_HALF_BYTES {
                    start + self.flipped_by
                } else {
                    start - self.flipped_by
                };
                return (Region::Staging, start..start + (slice.len << self.element));
            }
        };
        let start = start + (slice.offset << shift);
        (region, start..start + (slice.len << shift))
    }
}

/// Unwraps a shared buffer that the program uses.
#[inline]
fn staged<T>(shared: Option<T>) -> T {
    shared.expect("a call has the shared buffers that its program uses")
}
