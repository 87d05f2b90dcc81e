//! The caller's memory for one call, and what happens to its input before the program begins.

use std::ops::Range;

use ringfold_collectives::Program;
use ringfold_lend::Loan;
use ringfold_reduce::scale;
use ringfold_transport::Window;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

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
    pub(crate) const fn of(program: &Program) -> Self {
        Self::at(program.in_place_at(), program.call())
    }

    const fn at([input, output]: [usize; 2], call: &Call) -> Self {
        let bytes = call.data_type.bytes();
        Self { input: input * bytes, output: output * bytes }
    }
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
