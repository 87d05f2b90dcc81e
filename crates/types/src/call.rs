//! Collective operations and calls: everything that all ranks of a communicator must agree on.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use crate::names::{Names, UnknownName, find};
use crate::{DataType, Rank, ReduceOp, Wire};

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Collective {
    /// Every rank gets the reduction of all inputs.
    AllReduce = 0,
    /// Every rank gets all inputs, in rank order.
    AllGather = 1,
    /// Rank r gets block r of the reduction of all inputs.
    ReduceScatter = 2,
    /// Every rank gets the root's input.
    Broadcast = 3,
    /// The root gets the reduction of all inputs.
    Reduce = 4,
    /// No rank leaves before all have entered.
    Barrier = 5,
    /// Rank r gets block r of every rank's input, in rank order.
    AllToAll = 6,
    /// The root gets all inputs, in rank order.
    Gather = 7,
    /// Rank r gets block r of the root's input.
    Scatter = 8,
    /// Rank r gets the reduction of the inputs of ranks 0 to r.
    Scan = 9,
    /// Rank r gets the reduction of the inputs of the ranks before it. Rank 0 gets nothing.
    Exscan = 10,
}

impl Collective {
    /// Every collective.
    pub const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Barrier,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Scan,
        Self::Exscan,
    ];

    /// The names of each collective, by its code.
    pub(crate) const NAMES: Names = &[
        &["allreduce"],
        &["allgather"],
        &["reduce_scatter"],
        &["broadcast", "bcast"],
        &["reduce"],
        &["barrier"],
        &["alltoall"],
        &["gather"],
        &["scatter"],
        &["scan"],
        &["exscan"],
    ];

    /// The name, as in `allreduce`; also the name of its folder in the crate
    /// `ringfold-collectives`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize][0]
    }

    /// Whether the collective combines elements.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce) || self.is_scan()
    }

    /// Whether the result of a rank combines only the inputs of ranks up to it.
    #[must_use]
    pub const fn is_scan(self) -> bool {
        matches!(self, Self::Scan | Self::Exscan)
    }

    /// Whether a buffer has one block of [`Call::count`] elements for each rank.
    #[must_use]
    pub const fn has_blocks(self) -> bool {
        let is_to_all = matches!(self, Self::AllGather | Self::ReduceScatter | Self::AllToAll);
        is_to_all || matches!(self, Self::Gather | Self::Scatter)
    }

    /// Whether a call in place works on its one buffer. All blocks of an all-to-all change places,
    /// so it works on a copy of its input.
    #[must_use]
    pub const fn works_in_place(self) -> bool {
        !matches!(self, Self::AllToAll)
    }

    /// The bytes that the busiest link of `ranks` ranks carries for each byte of the larger buffer,
    /// as nccl-tests counts them for its bus bandwidth ("Performance reported by NCCL tests").
    #[must_use]
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            collective if collective.has_blocks() => (n - 1.0) / n,
            _ => 1.0,
        }
    }

    /// Whether one rank is the root.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// The collective with this code, which is its number in the words of calls.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::AllReduce,
            1 => Self::AllGather,
            2 => Self::ReduceScatter,
            3 => Self::Broadcast,
            4 => Self::Reduce,
            5 => Self::Barrier,
            6 => Self::AllToAll,
            7 => Self::Gather,
            8 => Self::Scatter,
            9 => Self::Scan,
            10 => Self::Exscan,
            _ => return None,
        })
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Collective {
    type Err = UnknownName;

    /// Takes the names in any spelling, as in `all_reduce`. Case, `_` and `-` do not matter.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("collective", Self::NAMES, |row| Self::ALL.get(row).copied(), name)
    }
}

/// Words that encode no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCall;

impl fmt::Display for InvalidCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the words encode no call")
    }
}

impl core::error::Error for InvalidCall {}

/// One call of a collective. All ranks must agree on it. With the rank and the layout it determines
/// the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The operation.
    pub collective: Collective,
    /// Number of elements. It counts the whole buffer, or one block where a buffer has a block for
    /// each rank ([`Collective::has_blocks`]).
    pub count: usize,
    /// The type of the elements.
    pub data_type: DataType,
    /// The reduction operation; `Sum`, without meaning, if the collective combines nothing.
    pub op: ReduceOp,
    /// The root; rank 0, without meaning, if the collective has none.
    pub root: Rank,
    /// The form of partial results between hosts; without meaning unless [`Call::has_wire`].
    pub wire: Wire,
}

impl Call {
    /// Whether partial results may have either form between hosts: the call combines short floats.
    /// Averages of floats with a smaller range than `f32` always travel as accumulators, because
    /// the sum before the division may be beyond that range.
    #[must_use]
    pub const fn has_wire(&self) -> bool {
        let is_wide = matches!(self.op, ReduceOp::Avg) && !matches!(self.data_type, DataType::Bf16);
        self.collective.reduces() && self.data_type.is_short_float() && !is_wide
    }

    /// Elements of the input buffer, for a communicator of `size` ranks. The input of a rank
    /// without one ([`Call::has_input`]) is not read.
    #[must_use]
    pub const fn input_len(&self, size: usize) -> usize {
        match self.collective {
            Collective::ReduceScatter | Collective::AllToAll | Collective::Scatter => {
                self.count * size
            }
            _ => self.count,
        }
    }

    /// Elements of the output buffer, for a communicator of `size` ranks. The output of a rank
    /// without one ([`Call::has_output`]) is not written.
    #[must_use]
    pub const fn output_len(&self, size: usize) -> usize {
        match self.collective {
            Collective::AllGather | Collective::AllToAll | Collective::Gather => self.count * size,
            _ => self.count,
        }
    }

    /// Whether `rank` has an input. In a broadcast and a scatter only the root has one.
    #[must_use]
    pub const fn has_input(&self, rank: Rank) -> bool {
        let is_of_root = matches!(self.collective, Collective::Broadcast | Collective::Scatter);
        !is_of_root || rank.0 == self.root.0
    }

    /// Whether `rank` has an output. In a reduce and a gather only the root has one.
    #[must_use]
    pub const fn has_output(&self, rank: Rank) -> bool {
        let is_of_root = matches!(self.collective, Collective::Reduce | Collective::Gather);
        !is_of_root || rank.0 == self.root.0
    }

    /// Elements of the input of `rank`; 0 if it has none.
    #[must_use]
    pub const fn input_of(&self, rank: Rank, size: usize) -> usize {
        if self.has_input(rank) { self.input_len(size) } else { 0 }
    }

    /// Elements of the output of `rank`; 0 if it has none.
    #[must_use]
    pub const fn output_of(&self, rank: Rank, size: usize) -> usize {
        if self.has_output(rank) { self.output_len(size) } else { 0 }
    }

    /// Elements of the one buffer of `rank` in a call in place: those of the larger of its two.
    #[must_use]
    pub const fn in_place_of(&self, rank: Rank, size: usize) -> usize {
        let (input, output) = (self.input_of(rank, size), self.output_of(rank, size));
        if input > output { input } else { output }
    }

    /// The elements of the one buffer of a call in place at which the input and the output of
    /// `rank` begin.
    #[must_use]
    pub const fn in_place_at(&self, rank: Rank) -> [usize; 2] {
        let own = rank.index() * self.count;
        match self.collective {
            Collective::AllGather => [own, 0],
            Collective::Gather if rank.0 == self.root.0 => [own, 0],
            Collective::ReduceScatter => [0, own],
            Collective::Scatter if rank.0 == self.root.0 => [0, own],
            _ => [0, 0],
        }
    }

    /// The ranks whose inputs the result of `rank` combines, if the collective combines elements.
    /// None for rank 0 of an exscan, whose output is not written.
    #[must_use]
    pub const fn summands(&self, rank: Rank, size: usize) -> Range<usize> {
        match self.collective {
            Collective::Scan => 0..rank.index() + 1,
            Collective::Exscan => 0..rank.index(),
            _ => 0..size,
        }
    }

    /// Encodes the call as three words, for lock-free logs and for comparison between ranks. The
    /// words omit the scale of a `PreMulSum`, which may differ between ranks.
    #[must_use]
    pub const fn to_words(&self) -> [u64; 3] {
        let kinds = self.collective as u64
            | (self.data_type as u64) << 8
            | (self.op.code() as u64) << 16
            | (self.wire as u64) << 24;
        [kinds, self.count as u64, self.root.0 as u64]
    }

    /// Decodes the words of `to_words`.
    ///
    /// # Errors
    /// `InvalidCall` if the words encode no call. Words from a peer may have any value.
    pub fn from_words(words: [u64; 3]) -> Result<Self, InvalidCall> {
        let [kinds, count, root] = words;
        let [collective, data_type, op, wire, 0, 0, 0, 0] = kinds.to_le_bytes() else {
            return Err(InvalidCall);
        };
        Ok(Self {
            collective: Collective::from_code(collective).ok_or(InvalidCall)?,
            count: usize::try_from(count).map_err(|_| InvalidCall)?,
            data_type: DataType::from_code(data_type).ok_or(InvalidCall)?,
            op: ReduceOp::from_code(op).ok_or(InvalidCall)?,
            root: Rank(u32::try_from(root).map_err(|_| InvalidCall)?),
            wire: Wire::from_code(wire).ok_or(InvalidCall)?,
        })
    }
}

impl fmt::Display for Call {
    /// As in `allreduce [f32 x 1024, sum]` and `broadcast [u8 x 7, root 3]`. The form of partial
    /// results is named only if it is not the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, count, data_type, op, root, wire } = self;
        write!(f, "{collective}")?;
        if *collective == Collective::Barrier {
            return Ok(());
        }
        write!(f, " [{data_type} x {count}")?;
        if collective.reduces() {
            write!(f, ", {op}")?;
        }
        if collective.has_root() {
            write!(f, ", root {root}")?;
        }
        if *wire != Wire::default() {
            write!(f, ", wire {wire}")?;
        }
        f.write_str("]")
    }
}
