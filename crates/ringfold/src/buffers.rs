//! The buffers of one call. They translate the slices of a program to bytes.
//!
//! Each buffer is private to this rank, or shared: a window that every rank of the host has mapped.
//! Shared buffers also give access to the other ranks' parts.

use std::ops::Range;

use ringfold_collectives::{Form, Program, Stores};
use ringfold_lend::{Loan, expose, expose_to_readers};
use ringfold_reduce::scale;
use ringfold_transport::{
    Exposure, OwnPart, PeerParts, ReadExposure, Window, copy, copy_non_temporal, demote,
};
use ringfold_types::limits::STAGING_HALF_BYTES;
use ringfold_types::{Buffer, Call, Collective, Rank, ReduceOp, Slice};

/// The memory of an untyped call: bytes of elements, of any alignment.
///
/// Lengths are those of [`Call::input_len`] and [`Call::output_len`] times the size of an element.
#[derive(Debug)]
#[non_exhaustive]
pub enum Buffers<'a> {
    /// Out of place.
    Apart {
        /// The contribution of this rank. It may be empty on ranks without one: in a broadcast and
        /// a scatter, on all ranks but the root.
        input: &'a [u8],
        /// The result of this rank. It may be empty on ranks without one: in a reduce and a gather,
        /// on all ranks but the root.
        output: &'a mut [u8],
    },
    /// In place: one buffer with the length of the larger one that this rank has
    /// ([`Call::in_place_of`]). Block `rank` of it is the input of an all-gather and of the root of
    /// a gather. It is the output of a reduce-scatter and of the root of a scatter.
    InPlace(&'a mut [u8]),
}

/// The place of a call's memory: its kind, the lengths of input and output in bytes, and whether
/// both are the same buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) in_place: bool,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) memory: Memory,
}

/// The kind of memory that a call's buffers are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// Memory of this rank alone.
    Ordinary,
    /// Windows. `shared` says whether all ranks have them mapped.
    Windows { shared: bool },
}

impl Place {
    #[inline]
    pub(crate) const fn of(buffers: &Buffers<'_>) -> Self {
        let (in_place, input, output) = match buffers {
            Buffers::Apart { input, output } => (false, input.len(), output.len()),
            Buffers::InPlace(both) => (true, both.len(), both.len()),
        };
        Self { in_place, input, output, memory: Memory::Ordinary }
    }
}

/// The caller's memory for one call.
pub(crate) enum User<'m, 'a> {
    /// Memory of this rank alone.
    Private(&'m mut Buffers<'a>),
    /// Bytes `range` of windows. A call without `input` is in place.
    Windows { input: Option<&'a Window>, output: &'m mut Window, range: Range<usize> },
}

/// The memory of one call whose owner is elsewhere.
pub(crate) enum Lent<'a> {
    /// Memory of this rank alone.
    Private(Buffers<'a>),
    /// Bytes `range` of windows. A call without `input` is in place.
    Windows { input: Option<&'a Window>, output: &'a mut Window, range: Range<usize> },
}

impl<'a> Lent<'a> {
    pub(crate) const fn place(&self) -> Place {
        match self {
            Self::Private(buffers) => Place::of(buffers),
            Self::Windows { input, range, .. } => {
                let len = range.end - range.start;
                let memory = Memory::Windows { shared: true };
                Place { in_place: input.is_none(), input: len, output: len, memory }
            }
        }
    }

    /// The memory for a call.
    pub(crate) const fn user<'m>(&'m mut self) -> User<'m, 'a> {
        match self {
            Self::Private(buffers) => User::Private(buffers),
            Self::Windows { input, output, range } => {
                User::Windows { input: *input, output, range: range.start..range.end }
            }
        }
    }
}

impl User<'_, '_> {
    /// The memory with which a program runs after a preparation, which is done now if `is_first`.
    /// A copy of the input goes to `copy`.
    pub(crate) fn prepared<'p>(
        &'p mut self,
        preparation: Preparation,
        is_first: bool,
        program: &Program,
        copy: &'p mut AlignedBytes,
    ) -> Lent<'p> {
        match (self, preparation) {
            (User::Private(buffers), _) => {
                Lent::Private(buffers.prepared(preparation, is_first, program, copy))
            }
            (User::Windows { input, output, range }, Preparation::Scale(factor)) => {
                if is_first {
                    let from = input.map(|input| input.read(range.clone()));
                    scale(program.call().data_type, output.write(range.clone()), from, factor);
                }
                Lent::Windows { input: None, output, range: range.clone() }
            }
            (User::Windows { input, output, range }, _) => {
                Lent::Windows { input: *input, output, range: range.clone() }
            }
        }
    }
}

impl<'l> Buffers<'l> {
    /// The buffers of a call in lent memory.
    pub(crate) const fn of_loan(loan: &'l mut Loan) -> Self {
        match loan.memory() {
            (None, both) => Self::InPlace(both),
            (Some(input), output) => Self::Apart { input, output },
        }
    }
}

impl Buffers<'_> {
    /// See [`User::prepared`].
    fn prepared<'m>(
        &'m mut self,
        preparation: Preparation,
        is_first: bool,
        program: &Program,
        copy: &'m mut AlignedBytes,
    ) -> Buffers<'m> {
        match (preparation, self) {
            (Preparation::Scale(factor), it) => {
                it.scaled(is_first.then_some(factor), program, copy)
            }
            (Preparation::Copy, it) => it.apart(is_first, copy),
            (Preparation::Nothing, Self::InPlace(both)) => Buffers::InPlace(both),
            (Preparation::Nothing, Self::Apart { input, output }) => {
                Buffers::Apart { input, output }
            }
        }
    }

    /// The buffers out of place. In place, the input is a copy in `copy`, which is made now if
    /// `is_first`.
    pub(crate) fn apart<'m>(
        &'m mut self,
        is_first: bool,
        copy: &'m mut AlignedBytes,
    ) -> Buffers<'m> {
        match self {
            Self::InPlace(both) => {
                let input = copy.exactly(both.len());
                if is_first {
                    input.copy_from_slice(both);
                }
                Buffers::Apart { input, output: both }
            }
            Self::Apart { input, output } => Buffers::Apart { input, output },
        }
    }

    /// The buffers of a program's call with the input scaled by `factor`; without one it is scaled
    /// already. An all-reduce scales into its output and then works in place. Other collectives
    /// scale into `copy`: the caller's input must not change.
    fn scaled<'m>(
        &'m mut self,
        factor: Option<f64>,
        program: &Program,
        copy: &'m mut AlignedBytes,
    ) -> Buffers<'m> {
        let call = program.call();
        let is_all_reduce = call.collective == Collective::AllReduce;
        let scale = |into: &mut [u8], from: Option<&[u8]>| {
            if let Some(factor) = factor {
                scale(call.data_type, into, from, factor);
            }
        };
        match self {
            Self::InPlace(both) => {
                if is_all_reduce {
                    scale(both, None);
                    return Buffers::InPlace(both);
                }
                let offsets = Offsets::of(program);
                let scaled = copy.exactly(both.len() - offsets.input);
                scale(scaled, Some(&both[offsets.input..]));
                Buffers::Apart { input: scaled, output: &mut both[offsets.output..] }
            }
            Self::Apart { input, output } => {
                if is_all_reduce {
                    scale(output, Some(input));
                    return Buffers::InPlace(output);
                }
                let scaled = copy.exactly(input.len());
                scale(scaled, Some(input));
                Buffers::Apart { input: scaled, output }
            }
        }
    }
}

/// What happens to a call's input before its program begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preparation {
    Nothing,
    /// The input is scaled.
    Scale(f64),
    /// The input is copied, since the call does not work in place.
    Copy,
}

impl Preparation {
    /// The preparation of a call in this place.
    #[inline]
    pub(crate) fn of(call: &Call, place: Place) -> Self {
        match call.op {
            ReduceOp::PreMulSum(factor) if call.collective.reduces() => {
                Self::Scale(factor.factor())
            }
            _ if place.in_place && !call.collective.works_in_place() => Self::Copy,
            _ => Self::Nothing,
        }
    }
}

/// Whether a call in this place is performed in place, after scaling or copying.
pub(crate) const fn runs_in_place(call: &Call, place: Place) -> bool {
    match (call.op, call.collective) {
        (ReduceOp::PreMulSum(_), Collective::AllReduce) => true,
        (ReduceOp::PreMulSum(_), collective) if collective.reduces() => false,
        (_, collective) => place.in_place && collective.works_in_place(),
    }
}

/// The bytes at which input and output begin in the one buffer of a call in place.
pub(crate) struct Offsets {
    pub(crate) input: usize,
    pub(crate) output: usize,
}

impl Offsets {
    pub(crate) const fn in_place(call: &Call, rank: Rank) -> Self {
        Self::at(call.in_place_at(rank), call)
    }

    /// Those of the call that a program performs.
    #[inline]
    const fn of(program: &Program) -> Self {
        Self::at(program.in_place_at(), program.call())
    }

    const fn at([input, output]: [usize; 2], call: &Call) -> Self {
        let bytes = call.data_type.bytes();
        Self { input: input * bytes, output: output * bytes }
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
pub(crate) enum LocalSource<'m> {
    /// The destination itself.
    Destination,
    /// Bytes that are disjoint from the destination.
    Bytes(&'m [u8]),
}

impl<'a> BufferMap<'a> {
    /// The buffers of a call of `program`: only `scratch` yet.
    #[inline]
    pub(crate) fn new(program: &Program, scratch: &'a mut [u8]) -> Self {
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
    pub(crate) fn add_user(
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
    pub(crate) fn add_staging(
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
    pub(crate) fn private(&mut self) -> (&[u8], [&mut [u8]; 2]) {
        let input: &[u8] = if let Input::Private(input) = self.input { input } else { &[] };
        let output =
            if let Output::Private(output) = &mut self.output { output } else { &mut [][..] };
        (input, [output, self.scratch])
    }

    /// Ends the exposure of shared buffers. The program must be done, so that no peer uses them.
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

    /// Ends the loans of windows in the middle of a call.
    pub(crate) fn suspend(&mut self) {
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
    pub(crate) const fn shift(&self, form: Form) -> u32 {
        match form {
            Form::Element => self.map.element,
            Form::Accumulator => self.map.accumulator,
        }
    }

    /// The bytes of `slice`.
    #[inline]
    pub(crate) fn read(&self, slice: Slice) -> &[u8] {
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
    pub(crate) fn write(&mut self, slice: Slice) -> &mut [u8] {
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
    pub(crate) fn copy(&mut self, src: Slice, dst: Slice, stores: Stores) {
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
    pub(crate) fn get(&mut self, from: Rank, src: Slice, dst: Slice, stores: Stores) {
        let parts = self.split(dst);
        store(parts.bytes, parts.peer(from, src), stores);
    }

    /// Stores `src` of the output into that of `to`.
    pub(crate) fn put(&mut self, to: Rank, src: Slice) {
        let (_, range) = self.map.span(src);
        let Output::Shared(Exposure { own, peers, .. }) = &mut self.output else {
            unreachable!("only programs for windows store into peers' memory");
        };
        peers.put(to, range.start, own.read(range));
    }

    /// Swaps staging buffers with the other rank of a pair.
    pub(crate) fn swap(&mut self) {
        staged(self.staging.as_mut()).swap();
    }

    /// The windows, for a reduction whose result goes to `dst` on all ranks.
    pub(crate) fn windows_of_all(&mut self, dst: Slice) -> ToAll<'_> {
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
    pub(crate) fn split(&mut self, dst: Slice) -> Parts<'_> {
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
pub(crate) struct ToAll<'m> {
    /// The inputs of this rank and the others. `None` in place: the outputs are the inputs.
    pub(crate) input: Option<(&'m OwnPart, &'m PeerParts)>,
    pub(crate) own: &'m mut OwnPart,
    pub(crate) peers: &'m mut PeerParts,
    /// The bytes of the reduction in each window.
    pub(crate) range: Range<usize>,
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
pub(crate) struct Parts<'m> {
    /// The destination.
    pub(crate) bytes: &'m mut [u8],
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
    pub(crate) fn find(&self, slice: Slice) -> LocalSource<'m> {
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
    pub(crate) fn peer(&self, of: Rank, slice: Slice) -> &'m [u8] {
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

/// Memory aligned to a cache line. It grows on demand and is reused by later calls.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes(Vec<Line>);

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl AlignedBytes {
    /// The first `len` bytes, after growing to that length. They may hold earlier contents.
    pub(crate) fn exactly(&mut self, len: usize) -> &mut [u8] {
        let lines = len.div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; 64]));
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }

    /// The first `len` bytes, which exist already.
    pub(crate) fn front(&self, len: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..len]
    }
}
