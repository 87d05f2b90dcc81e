//! What ended a connection, in a form that can be told again and again.

use rustix::io::Errno;

use crate::contract::LinkFault;

/// As `LinkFault`, but `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The peer closed it, or its process ended.
    Closed,
    /// No address of the peer answers.
    Unreachable(Errno),
    /// The other end did not prove itself.
    Unproven,
    /// The peer wrote what no rank writes.
    Protocol(&'static str),
    /// The operating system said so.
    Os(Errno),
}

impl Broken {
    /// The fault to report.
    pub(super) fn fault(self) -> LinkFault {
        match self {
            Self::Closed => LinkFault::Closed,
            Self::Unreachable(errno) => LinkFault::Unreachable(errno.into()),
            Self::Unproven => LinkFault::Unproven,
            Self::Protocol(reason) => LinkFault::Protocol(reason),
            Self::Os(errno) => LinkFault::Io(errno.into()),
        }
    }
}

impl From<Errno> for Broken {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE | Errno::SHUTDOWN => Self::Closed,
            _ => Self::Os(errno),
        }
    }
}
