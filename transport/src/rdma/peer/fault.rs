//! The reason why links to a peer are unusable.

use std::io;

use crate::contract::LinkFault;

/// The reason why links are unusable, which can be reported any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Fault {
    Closed,
    Unproven,
    Protocol(&'static str),
    Unreachable(String),
    Lost(String),
}

impl Fault {
    pub(in crate::rdma) fn to_link_fault(&self) -> LinkFault {
        match self {
            Self::Closed => LinkFault::Closed,
            Self::Unproven => LinkFault::Unproven,
            Self::Protocol(what) => LinkFault::Protocol(what),
            Self::Unreachable(why) => LinkFault::Unreachable(io::Error::other(why.clone())),
            Self::Lost(why) => LinkFault::Io(io::Error::other(why.clone())),
        }
    }
}

impl From<&'static str> for Fault {
    fn from(what: &'static str) -> Self {
        Self::Protocol(what)
    }
}
