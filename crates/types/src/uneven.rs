//! Uneven collectives: those whose parts may differ in length from rank to rank.

use core::fmt;
use core::str::FromStr;

use crate::names::{Names, UnknownName, find};
use crate::{Collective, DataType, InvalidCall, Rank, ReduceOp};

/// A collective whose parts may differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum UnevenCollective {
    /// Every rank sends a part to every rank.
    AllToAllV = 64,
    /// The root gets a part of every rank.
    GatherV = 65,
    /// Every rank gets its part of the root's buffer.
    ScatterV = 66,
    /// Every rank gets the parts of all ranks.
    AllGatherV = 67,
    /// Every rank gets its part of the reduction of all inputs.
    ReduceScatterV = 68,
    /// Every rank gets its part of a reduction by an operation of the user.
    UserReduce = 69,
}

impl UnevenCollective {
    /// Every uneven collective. Their codes differ from those of [`Collective`](crate::Collective).
    pub const ALL: [Self; 6] = [
        Self::AllToAllV,
        Self::GatherV,
        Self::ScatterV,
        Self::AllGatherV,
        Self::ReduceScatterV,
        Self::UserReduce,
    ];

    /// The names of each uneven collective, in the order of `ALL`.
    pub(crate) const NAMES: Names = &[
        &["alltoallv"],
        &["gatherv"],
        &["scatterv"],
        &["allgatherv"],
        &["reduce_scatterv"],
        &["user_reduce"],
    ];

    /// The name, as in `alltoallv`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize - Self::AllToAllV as usize][0]
    }

    /// The collective whose schedules it runs, on blocks of other lengths. `None` if it consists of
    /// messages.
    #[must_use]
    pub const fn scheduled_as(self) -> Option<Collective> {
        match self {
            Self::AllGatherV => Some(Collective::AllGather),
            Self::ReduceScatterV => Some(Collective::ReduceScatter),
            Self::AllToAllV | Self::GatherV | Self::ScatterV | Self::UserReduce => None,
        }
    }

    /// Whether one rank is the root.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Self::GatherV | Self::ScatterV)
    }

    /// Whether all ranks give the counts of all parts.
    #[must_use]
    pub const fn has_common_counts(self) -> bool {
        matches!(self, Self::AllGatherV | Self::ReduceScatterV | Self::UserReduce)
    }
}

impl FromStr for UnevenCollective {
    type Err = UnknownName;

    /// Takes the names in any spelling, as in `all_to_all_v`. Case, `_` and `-` do not matter.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("collective with uneven parts", Self::NAMES, |row| Self::ALL.get(row).copied(), name)
    }
}

impl fmt::Display for UnevenCollective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One call of an uneven collective: everything that all ranks must agree on. Lengths that only
/// some ranks know are no part of it; each message carries its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnevenCall {
    /// The operation.
    pub collective: UnevenCollective,
    /// The type of the elements.
    pub data_type: DataType,
    /// The reduction operation; `Sum`, without meaning, if the collective combines nothing.
    pub op: ReduceOp,
    /// The root; rank 0, without meaning, if the collective has none.
    pub root: Rank,
    /// The elements of all parts together; 0 if the ranks do not all know the counts.
    pub count: usize,
    /// A hash of the counts, and of the name of a user's operation. 0 if the ranks do not all know
    /// the counts.
    pub counts_hash: u32,
}

impl UnevenCall {
    /// A call without root, operation or common counts.
    #[must_use]
    pub const fn new(collective: UnevenCollective, data_type: DataType) -> Self {
        let (op, root) = (ReduceOp::Sum, Rank(0));
        Self { collective, data_type, op, root, count: 0, counts_hash: 0 }
    }

    /// The call with these counts, which all ranks know. They wrap if they overflow.
    #[must_use]
    pub fn with_counts(self, counts: &[usize]) -> Self {
        let (mut count, mut hash) = (0_usize, 0xcbf2_9ce4_8422_2325_u64);
        for part in counts {
            count = count.wrapping_add(*part);
            hash = (hash ^ *part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        Self { count, counts_hash: (hash >> 32) as u32, ..self }
    }

    /// Encodes the call as words, as [`Call::to_words`](crate::Call::to_words) does, and a word
    /// for the hash.
    #[must_use]
    pub const fn to_words(&self) -> [u64; 4] {
        let kinds =
            self.collective as u64 | (self.data_type as u64) << 8 | (self.op.code() as u64) << 16;
        [kinds, self.count as u64, self.root.0 as u64, self.counts_hash as u64]
    }

    /// Decodes the words of `to_words`.
    ///
    /// # Errors
    /// `InvalidCall` if the words encode no uneven call. Words from a peer may have any value.
    pub fn from_words(words: [u64; 4]) -> Result<Self, InvalidCall> {
        let [kinds, count, root, hash] = words;
        let [collective, data_type, op, 0, 0, 0, 0, 0] = kinds.to_le_bytes() else {
            return Err(InvalidCall);
        };
        let known = UnevenCollective::ALL.into_iter().find(|it| *it as u8 == collective);
        Ok(Self {
            collective: known.ok_or(InvalidCall)?,
            data_type: DataType::from_code(data_type).ok_or(InvalidCall)?,
            op: ReduceOp::from_code(op).ok_or(InvalidCall)?,
            root: Rank(u32::try_from(root).map_err(|_| InvalidCall)?),
            count: usize::try_from(count).map_err(|_| InvalidCall)?,
            counts_hash: u32::try_from(hash).map_err(|_| InvalidCall)?,
        })
    }
}

impl fmt::Display for UnevenCall {
    /// As in `alltoallv [f32]`, `gatherv [u8, root 3]` and
    /// `reduce_scatterv [f32 x 1024, sum] (counts 0badcafe)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, data_type, op, root, count, counts_hash } = self;
        write!(f, "{collective} [{data_type}")?;
        if collective.has_common_counts() {
            write!(f, " x {count}")?;
        }
        if *collective == UnevenCollective::ReduceScatterV {
            write!(f, ", {op}")?;
        }
        if collective.has_root() {
            write!(f, ", root {root}")?;
        }
        f.write_str("]")?;
        if collective.has_common_counts() {
            write!(f, " (counts {counts_hash:08x})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Call;

    #[test]
    fn words_give_the_call_back_and_no_other_kind() {
        for collective in UnevenCollective::ALL {
            assert_eq!(collective.name().parse(), Ok(collective));
            let call = UnevenCall {
                op: ReduceOp::Max,
                root: Rank(7),
                ..UnevenCall::new(collective, DataType::Bf16).with_counts(&[3, 0, 9])
            };
            let words = call.to_words();
            assert_eq!(UnevenCall::from_words(words), Ok(call));
            assert_eq!(Call::from_words([words[0], words[1], words[2]]), Err(InvalidCall));
        }
        assert_eq!(UnevenCall::from_words([0, 1, 2, 3]), Err(InvalidCall));
        assert_eq!(UnevenCall::from_words([70, 1, 2, 3]), Err(InvalidCall));
    }

    #[test]
    fn the_hash_depends_on_each_count_and_its_place() {
        let hash = |counts: &[usize]| {
            UnevenCall::new(UnevenCollective::AllGatherV, DataType::U8).with_counts(counts)
        };
        assert_eq!(hash(&[1, 2, 3]).count, 6);
        assert_ne!(hash(&[1, 2, 3]), hash(&[1, 3, 2]));
        assert_ne!(hash(&[1, 2, 3]), hash(&[1, 2, 3, 0]));
    }
}
