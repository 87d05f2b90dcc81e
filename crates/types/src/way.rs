//! The ways of bytes to other ranks, by which processes count their traffic.

use crate::limits::RAILS_MAX;

/// A way of bytes to other ranks: a transport, and one of its rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Shared memory, which has no rails.
    Shm,
    /// TCP, by this rail if the ranks agree on rails.
    Tcp(Option<u8>),
    /// RDMA, by this rail.
    Rdma(u8),
}

impl Way {
    /// The number of ways.
    pub const COUNT: usize = 2 + 2 * RAILS_MAX;

    /// TCP by one of `rails` rails, on this lane.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "lanes are few")]
    pub const fn by_tcp(lane: usize, rails: usize) -> Self {
        Self::Tcp(if rails == 0 { None } else { Some((lane % rails) as u8) })
    }

    /// RDMA by this rail.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "rails are few")]
    pub const fn by_rdma(rail: usize) -> Self {
        Self::Rdma(rail as u8)
    }

    /// The index of the way among all. Rails beyond the limit share the last one.
    #[must_use]
    pub const fn index(self) -> usize {
        let (first, rail) = match self {
            Self::Shm => (0, 0),
            Self::Tcp(None) => (1, 0),
            Self::Tcp(Some(rail)) => (2, rail as usize),
            Self::Rdma(rail) => (2 + RAILS_MAX, rail as usize),
        };
        first + if rail < RAILS_MAX { rail } else { RAILS_MAX - 1 }
    }

    /// All ways, by index.
    pub fn all() -> impl Iterator<Item = Self> {
        #[expect(clippy::cast_possible_truncation, reason = "rails are few")]
        let rails = || 0..RAILS_MAX as u8;
        let tcp = rails().map(|rail| Self::Tcp(Some(rail)));
        [Self::Shm, Self::Tcp(None)].into_iter().chain(tcp).chain(rails().map(Self::Rdma))
    }

    /// The name of the transport.
    #[must_use]
    pub const fn transport(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp(_) => "tcp",
            Self::Rdma(_) => "rdma",
        }
    }

    /// The number of the rail, if the way has one.
    #[must_use]
    pub const fn rail(self) -> Option<u8> {
        match self {
            Self::Shm => None,
            Self::Tcp(rail) => rail,
            Self::Rdma(rail) => Some(rail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_an_index_of_its_own() {
        assert_eq!(Way::all().count(), Way::COUNT);
        assert!(Way::all().enumerate().all(|(index, way)| way.index() == index));
        assert_eq!(Way::Rdma(u8::MAX).index(), Way::COUNT - 1, "no index is out of range");
        assert_eq!([0, 1, 5].map(|lane| Way::by_tcp(lane, 2).rail()), [Some(0), Some(1), Some(1)]);
        assert_eq!(Way::by_tcp(7, 0), Way::Tcp(None));
    }
}
