//! The buffers of one call, as the slices of a program address them.
//!
//! Each buffer is private to this rank, or shared: a window that every rank of the host has mapped.
//! One map leads from slices to bytes, and gives access to other ranks' parts of shared buffers.

use std::ops::Range;

use ringfold_collectives::{Form, Program, Stores};
use ringfold_lend::{expose, expose_to_readers};
use ringfold_reduce::scale;
use ringfold_transport::{
    Exposure, OwnPart, PeerParts, ReadExposure, Window, copy, copy_past, hand_over,
};
use ringfold_types::limits::STAGE_HALF_BYTES;
use ringfold_types::{Buffer, Call, Collective, Rank, ReduceOp, Slice};

/// The memory of an untyped call: bytes of whole elements, of any alignment.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// Out of place.
    Apart {
        /// The contribution of this rank: `Call::input_len` elements, or none where it contributes
        /// nothing (broadcast, on all but the root).
        input: &'a [u8],
        /// The result of this rank: `Call::output_len` elements, or none where it receives nothing
        /// (reduce, on all but the root).
        output: &'a mut [u8],
    },
    /// In place: the larger of both, with this rank's part of an allgather's input, or of a
    /// reduce-scatter's output, in block `rank`.
    InPlace(&'a mut [u8]),
}

/// The lengths of the caller's buffers, in bytes, and whether they are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) in_place: bool,
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// The caller's memory for one call.
pub(crate) enum User<'m, 'a> {
    /// Of this rank alone.
    Private(&'m mut Buffers<'a>),
    /// Bytes `range` of windows. Without `input`, in place.
    Windows { input: Option<&'a Window>, output: &'m mut Window, range: Range<usize> },
}

impl Buffers<'_> {
    /// The same, for `call`, with the input scaled. An all-reduce scales on the way to its output
    /// and goes on in place. The others need a copy, since the caller's input stays as it is.
    pub(crate) fn scaled<'m>(
        &'m mut self,
        factor: f64,
        call: &Call,
        rank: Rank,
        copy: &'m mut AlignedBytes,
    ) -> Buffers<'m> {
        let data_type = call.data_type;
        let is_all_reduce = call.collective == Collective::AllReduce;
        match self {
            Self::InPlace(both) => {
                if is_all_reduce {
                    scale(data_type, both, None, factor);
                    return Buffers::InPlace(both);
                }
                let begin = Beginnings::in_place(call, rank);
                let scaled = copy.exactly(both.len() - begin.input);
                scale(data_type, scaled, Some(&both[begin.input..]), factor);
                Buffers::Apart { input: scaled, output: &mut both[begin.output..] }
            }
            Self::Apart { input, output } => {
                if is_all_reduce {
                    scale(data_type, output, Some(input), factor);
                    return Buffers::InPlace(output);
                }
                let scaled = copy.exactly(input.len());
                scale(data_type, scaled, Some(input), factor);
                Buffers::Apart { input: scaled, output }
            }
        }
    }
}

/// Whether a call with buffers of that `shape` is performed in place, once it is scaled.
pub(crate) const fn runs_in_place(call: &Call, shape: Shape) -> bool {
    match (call.op, call.collective) {
        (ReduceOp::PreMulSum(_), Collective::AllReduce) => true,
        (ReduceOp::PreMulSum(_), Collective::ReduceScatter | Collective::Reduce) => false,
        _ => shape.in_place,
    }
}

/// The bytes of one buffer, in place, at which input and output begin.
struct Beginnings {
    input: usize,
    output: usize,
}

impl Beginnings {
    const fn in_place(call: &Call, rank: Rank) -> Self {
        let own = rank.index() * call.count * call.data_type.bytes();
        match call.collective {
            Collective::AllGather => Self { input: own, output: 0 },
            Collective::ReduceScatter => Self { input: 0, output: own },
            _ => Self { input: 0, output: 0 },
        }
    }
}

/// All memory of one call.
pub(crate) struct BufferMap<'a> {
    input: Input<'a>,
    output: Output<'a>,
    scratch: &'a mut [u8],
    /// The staging buffer, if the call passes through it.
    staging: Option<Exposure<'a>>,
    map: Map,
}

enum Input<'a> {
    /// Input and output are one buffer.
    InPlace,
    Private(&'a [u8]),
    Shared(ReadExposure<'a>),
}

enum Output<'a> {
    Private(&'a mut [u8]),
    Shared(Exposure<'a>),
}

/// The place of slices.
#[derive(Clone, Copy)]
struct Map {
    /// The region that `Input` is in, and the byte of it where `Input` begins.
    input: (Region, usize),
    /// The byte of the output's region where `Output` begins.
    output_at: usize,
    /// Bytes by which the halves of the staging buffer have changed places.
    flipped_by: usize,
    /// Binary logarithm of the bytes of an element,
    element: u32,
    /// and of an element of scratch.
    accumulator: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Input,
    Output,
    Scratch,
    Staging,
}

/// Bytes of a region.
type Place = (Region, Range<usize>);

/// A place of a reduction's source.
pub(crate) enum Found<'m> {
    /// The destination itself.
    Destination,
    /// Elsewhere.
    Bytes(&'m [u8]),
}

impl<'a> BufferMap<'a> {
    /// No memory but `scratch`, for a call of `program`.
    #[inline]
    pub(crate) fn new(program: &Program, scratch: &'a mut [u8]) -> Self {
        let map = Map {
            input: (Region::Output, 0),
            output_at: 0,
            flipped_by: 0,
            element: program.shift(Form::Element),
            accumulator: program.shift(Form::Accumulator),
        };
        let output = Output::Private(&mut []);
        Self { input: Input::InPlace, output, scratch, staging: None, map }
    }

    /// Adds the caller's memory, of that `shape`. With `in_windows`, ranks use each other's
    /// windows.
    ///
    /// It is stored where it stays, and lengths come from the `shape`: a processor waits for memory
    /// that was written in parts and is then moved as a whole.
    #[inline]
    pub(crate) fn add_user(
        &mut self,
        program: &Program,
        in_windows: bool,
        user: &'a mut User<'_, '_>,
        shape: Shape,
    ) {
        match user {
            User::Private(Buffers::Apart { input, output }) => {
                self.input = Input::Private(&input[..shape.input]);
                self.output = Output::Private(&mut output[..shape.output]);
                self.map.input.0 = Region::Input;
            }
            User::Private(Buffers::InPlace(both)) => {
                let begin = Beginnings::in_place(program.call(), program.rank());
                self.output = Output::Private(&mut both[..shape.output]);
                (self.map.input.1, self.map.output_at) = (begin.input, begin.output);
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

    /// Adds the staging buffer; whether its halves have changed places.
    #[inline]
    pub(crate) fn add_staging(
        &mut self,
        program: &Program,
        staging: &'a mut Window,
        is_flipped: bool,
    ) {
        self.staging = Some(expose(program, staging));
        self.map.flipped_by = if is_flipped { STAGE_HALF_BYTES } else { 0 };
    }

    /// Ends the exposure of shared buffers: the program is done, so no peer uses them any more.
    #[inline]
    pub(crate) fn complete(&mut self) {
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

    /// Binary logarithm of the bytes of an element of `form`.
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

    /// The bytes of `slice`, to be written.
    #[inline]
    pub(crate) fn write(&mut self, slice: Slice) -> &mut [u8] {
        let (region, range) = self.map.place(slice);
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
    pub(crate) fn copy(&mut self, src: Slice, dst: Slice, stores: Stores) {
        let (from, to) = (self.map.place(src), self.map.place(dst));
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
        if let Found::Bytes(source) = parts.find(src) {
            store(parts.bytes, source, stores);
        }
    }

    /// Copies `src` of the staging buffer of `from` to `dst`.
    pub(crate) fn get(&mut self, from: Rank, src: Slice, dst: Slice, stores: Stores) {
        let parts = self.split(dst);
        store(parts.bytes, parts.peer(from, src), stores);
    }

    /// Stores `src` of the output into that of `to`.
    pub(crate) fn put(&mut self, to: Rank, src: Slice) {
        let (_, range) = self.map.place(src);
        let Output::Shared(Exposure { own, peers, .. }) = &mut self.output else {
            unreachable!("only programs for windows store into peers' memory");
        };
        peers.put(to, range.start, own.read(range));
    }

    /// Swaps staging buffers with the other rank.
    pub(crate) fn swap(&mut self) {
        staged(self.staging.as_mut()).trade();
    }

    /// The windows, for a reduction to all ranks at the place of `dst`.
    pub(crate) fn windows_of_all(&mut self, dst: Slice) -> ToAll<'_> {
        let (_, range) = self.map.place(dst);
        let Output::Shared(Exposure { own, peers, .. }) = &mut self.output else {
            unreachable!("only programs for windows store into peers' memory");
        };
        let input = match &self.input {
            Input::Shared(input) => Some((input.own, input.peers)),
            Input::InPlace | Input::Private(_) => None,
        };
        ToAll { input, own, peers, range }
    }

    /// The bytes of `dst`, to be written, and all other memory.
    #[inline]
    pub(crate) fn split(&mut self, dst: Slice) -> Parts<'_> {
        let hole = self.map.place(dst);
        let range = hole.1.clone();
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
        let (bytes, [output, scratch, staging]) = match hole.0 {
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
        Parts { bytes, input, output, scratch, staging, peers, hole, map: self.map }
    }
}

/// Copies to memory of this rank.
fn store(dst: &mut [u8], src: &[u8], stores: Stores) {
    match stores {
        Stores::Cached => copy(dst, src),
        Stores::Streaming => copy_past(dst, src),
        Stores::Shared => {
            copy(dst, src);
            hand_over(dst);
        }
    }
}

/// Windows in which a reduction goes to all ranks.
pub(crate) struct ToAll<'m> {
    /// The inputs of this rank and the others; in place the outputs are.
    pub(crate) input: Option<(&'m OwnPart, &'m PeerParts)>,
    pub(crate) own: &'m mut OwnPart,
    pub(crate) peers: &'m mut PeerParts,
    /// The bytes of all of them.
    pub(crate) range: Range<usize>,
}

/// A region that is cut in two: a destination and the rest.
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
            // Peers may use the rest of it.
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

/// One destination, and everything else.
pub(crate) struct Parts<'m> {
    /// The destination.
    pub(crate) bytes: &'m mut [u8],
    input: Part<'m>,
    output: Part<'m>,
    scratch: Part<'m>,
    staging: Part<'m>,
    peers: Peers<'m>,
    hole: Place,
    map: Map,
}

impl<'m> Parts<'m> {
    /// Finds a local source, which is the destination or disjoint from it.
    #[inline]
    pub(crate) fn find(&self, slice: Slice) -> Found<'m> {
        let (region, range) = self.map.place(slice);
        if (region, &range) == (self.hole.0, &self.hole.1) {
            return Found::Destination;
        }
        let part = match region {
            Region::Input => &self.input,
            Region::Output => &self.output,
            Region::Scratch => &self.scratch,
            Region::Staging => &self.staging,
        };
        Found::Bytes(match part {
            Part::Bytes(bytes) => &bytes[range],
            Part::Own(own) => own.read(range),
            Part::Around { before, .. } if range.end <= self.hole.1.start => &before[range],
            Part::Around { after, .. } => {
                &after[range.start - self.hole.1.end..range.end - self.hole.1.end]
            }
            Part::None => unreachable!("proven programs use no more of a shared destination"),
        })
    }

    /// The bytes of `slice` of another rank.
    #[inline]
    pub(crate) fn peer(&self, of: Rank, slice: Slice) -> &'m [u8] {
        let (_, range) = self.map.place(slice);
        let parts = match slice.buffer {
            Buffer::Input => self.peers.input,
            Buffer::Output => self.peers.output,
            Buffer::Stage | Buffer::Scratch => self.peers.staging,
        };
        staged(parts).read(of, range)
    }
}

impl Map {
    #[inline]
    fn place(self, slice: Slice) -> Place {
        let (region, start, shift) = match slice.buffer {
            Buffer::Scratch => (Region::Scratch, 0, self.accumulator),
            Buffer::Output => (Region::Output, self.output_at, self.element),
            Buffer::Input => (self.input.0, self.input.1, self.element),
            Buffer::Stage => {
                let start = slice.offset << self.element;
                // No slice has elements of both halves.
                let start = if start < STAGE_HALF_BYTES {
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

/// A shared buffer of a program that uses one.
#[inline]
fn staged<T>(shared: Option<T>) -> T {
    shared.expect("a call has the shared buffers that its program uses")
}

/// Memory that grows and is kept from call to call, aligned to a cache line.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes(Vec<Line>);

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl AlignedBytes {
    /// Exactly `len` bytes, which may hold earlier contents.
    pub(crate) fn exactly(&mut self, len: usize) -> &mut [u8] {
        let lines = len.div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; 64]));
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }

    /// The first `len` bytes that there are.
    pub(crate) fn front(&self, len: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..len]
    }
}
