//! Ranks and lanes: members of a communicator, and the parallel streams between two members.

use core::fmt;
use core::num::{ParseIntError, TryFromIntError};
use core::str::FromStr;

/// A member of a communicator, `0..size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index into per-rank tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The rank at `index` of a per-rank table.
    ///
    /// # Panics
    /// If `index` is beyond `limits::RANKS_MAX`.
    #[must_use]
    pub const fn at(index: usize) -> Self {
        assert!(index <= crate::limits::RANKS_MAX, "rank index beyond limits::RANKS_MAX");
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the assertion above")]
        Self(index as u32)
    }
}

impl From<u32> for Rank {
    fn from(rank: u32) -> Self {
        Self(rank)
    }
}

impl From<Rank> for u32 {
    fn from(rank: Rank) -> Self {
        rank.0
    }
}

impl From<Rank> for usize {
    fn from(rank: Rank) -> Self {
        rank.index()
    }
}

impl TryFrom<usize> for Rank {
    type Error = TryFromIntError;

    fn try_from(index: usize) -> Result<Self, TryFromIntError> {
        u32::try_from(index).map(Self)
    }
}

impl FromStr for Rank {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One of the independent, ordered streams between two ranks, `0..limits::LANES_MAX`. A schedule
/// has one program per lane; lanes progress concurrently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u8);

impl Lane {
    /// The lane as an index into per-lane tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
