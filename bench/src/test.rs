//! The operation that a perf program times.

use std::fmt;

use ringfold::{Call, Collective, Communicator, Rank};

/// The operation that a perf program times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A collective.
    Collective(Collective),
    /// Every rank sends to the next rank and receives from the previous one.
    SendRecv,
    /// Every rank sends a part to every rank. The part from rank s to rank r has (s + r) mod n
    /// shares of the buffer, for n ranks.
    AllToAllV,
}

impl Test {
    /// Returns the collective with the buffers of this test. A message has those of a broadcast
    /// from its sender. So have uneven parts, whose sums are the same on all ranks.
    pub(crate) const fn collective(self) -> Collective {
        match self {
            Self::Collective(collective) => collective,
            Self::SendRecv | Self::AllToAllV => Collective::Broadcast,
        }
    }

    /// Returns the call whose result this rank checks.
    pub(crate) fn checked(self, call: &Call, comm: &Communicator) -> Call {
        match self {
            Self::Collective(_) | Self::AllToAllV => *call,
            Self::SendRecv => Call { root: neighbours(comm).1, ..*call },
        }
    }

    /// Returns whether the user chooses a root.
    pub(crate) const fn has_root(self) -> bool {
        match self {
            Self::Collective(collective) => collective.has_root(),
            Self::SendRecv | Self::AllToAllV => false,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective(collective) => collective.fmt(f),
            Self::SendRecv => f.pad("sendrecv"),
            Self::AllToAllV => f.pad("alltoallv"),
        }
    }
}

/// Returns the next and the previous rank.
pub(crate) fn neighbours(comm: &Communicator) -> (Rank, Rank) {
    let (rank, size) = (comm.rank().index(), comm.size());
    (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size))
}

/// Returns the shares of one rank's uneven parts together.
pub(crate) fn shares(ranks: usize) -> usize {
    (ranks * (ranks - 1) / 2).max(1)
}

/// Returns the elements of the parts between `rank` and every rank, in both directions.
pub(crate) fn uneven_counts(rank: Rank, ranks: usize, elements: usize) -> Vec<usize> {
    let share = elements / shares(ranks);
    let count = |peer| if ranks == 1 { elements } else { (rank.index() + peer) % ranks * share };
    (0..ranks).map(count).collect()
}
