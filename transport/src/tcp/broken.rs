//! The reason why a connection ended, in a form that can be reported repeatedly.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

use crate::contract::LinkFault;

/// As `LinkFault`, but `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The peer closed the connection, or its process ended.
    Closed,
    /// No address of the peer answers. This is the last one that was tried.
    Unreachable(Errno, Option<SocketAddr>),
    /// The other end did not authenticate itself.
    Unproven,
    /// The peer wrote bytes that no rank writes.
    Protocol(&'static str),
    /// The operating system reported an error.
    Os(Errno),
}

impl Broken {
    /// Converts this to the fault of a link error.
    pub(super) fn fault(self) -> LinkFault {
        match self {
            Self::Closed => LinkFault::Closed,
            Self::Unreachable(errno, None) => LinkFault::Unreachable(errno.into()),
            Self::Unreachable(errno, Some(at)) => {
                let source = io::Error::from(errno);
                let text = format!("{at}: {source}");
                LinkFault::Unreachable(io::Error::new(source.kind(), text))
            }
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
