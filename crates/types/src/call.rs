//! Collective operations and calls: everything that all ranks of a communicator must agree on.

use core::fmt;
use core::str::FromStr;

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
}

impl Collective {
    /// Every collective.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Barrier,
    ];

    /// The name, as in `allreduce`; also the name of its folder in the crate
    /// `ringfold-collectives`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
        }
    }

    /// Whether the collective combines elements.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one rank is the root.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce)
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::AllReduce,
            1 => Self::AllGather,
            2 => Self::ReduceScatter,
            3 => Self::Broadcast,
            4 => Self::Reduce,
            5 => Self::Barrier,
            _ => return None,
        })
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown name of a collective, or words that encode no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCall;

impl fmt::Display for InvalidCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown collective; one of")?;
        Collective::ALL.iter().try_for_each(|c| write!(f, " {c}"))
    }
}

impl core::error::Error for InvalidCall {}

impl FromStr for Collective {
    type Err = InvalidCall;

    fn from_str(name: &str) -> Result<Self, InvalidCall> {
        Self::ALL.into_iter().find(|c| c.name() == name).ok_or(InvalidCall)
    }
}

/// One call of a collective. All ranks must agree on it. With the rank and the layout it determines
/// the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The operation.
    pub collective: Collective,
    /// Number of elements. For allreduce, broadcast and reduce it counts the whole buffer. For
    /// allgather it counts one rank's input, and for reduce-scatter one rank's output.
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

    /// Elements of the input buffer, for a communicator of `size` ranks. For broadcast this is the
    /// root's buffer; the input of other ranks is not read.
    #[must_use]
    pub const fn input_len(&self, size: usize) -> usize {
        match self.collective {
            Collective::ReduceScatter => self.count * size,
            _ => self.count,
        }
    }

    /// Elements of the output buffer, for a communicator of `size` ranks. For reduce this is the
    /// root's; the output of other ranks is not written.
    #[must_use]
    pub const fn output_len(&self, size: usize) -> usize {
        match self.collective {
            Collective::AllGather => self.count * size,
            _ => self.count,
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
