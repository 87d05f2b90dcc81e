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
}

impl Test {
    /// Returns the collective with the buffers of this test. A message has those of a broadcast
    /// from its sender.
    pub(crate) const fn collective(self) -> Collective {
        match self {
            Self::Collective(collective) => collective,
            Self::SendRecv => Collective::Broadcast,
        }
    }

    /// Returns the call whose result this rank checks.
    pub(crate) fn checked(self, call: &Call, comm: &Communicator) -> Call {
        match self {
            Self::Collective(_) => *call,
            Self::SendRecv => Call { root: neighbours(comm).1, ..*call },
        }
    }

    /// Returns whether the user chooses a root.
    pub(crate) const fn has_root(self) -> bool {
        match self {
            Self::Collective(collective) => collective.has_root(),
            Self::SendRecv => false,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective(collective) => collective.fmt(f),
            Self::SendRecv => f.pad("sendrecv"),
        }
    }
}

/// Returns the next and the previous rank.
pub(crate) fn neighbours(comm: &Communicator) -> (Rank, Rank) {
    let (rank, size) = (comm.rank().index(), comm.size());
    (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size))
}
