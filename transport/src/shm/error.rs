//! Errors of shared memory: of its setup and of its links.

use std::fmt;
use std::io;

use ringfold_types::Rank;

use super::ring::Broken;
use crate::contract::{Link, LinkError, LinkFault};

/// The transport's name.
pub(super) const NAME: &str = "shm";

/// The reason why the ranks of this host are not connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Some peers had not connected when the deadline passed.
    #[error("no connection over shared memory to rank {} in time", Ranks(missing))]
    Deadline {
        /// The missing ranks, in order.
        missing: Vec<Rank>,
    },
    /// The published address of a peer is malformed, or belongs to another host.
    #[error("the shared-memory address of rank {peer} is not one of this host: {address:?}")]
    Address {
        /// The rank with that address.
        peer: Rank,
        /// The address as published.
        address: String,
    },
    /// This rank could not connect to a peer, or the peer ended during the handshake.
    #[error("cannot connect to rank {peer} over shared memory")]
    Unreachable {
        /// The peer.
        peer: Rank,
        /// The operating system's error.
        source: io::Error,
    },
    /// A peer does not know the job's secret.
    #[error("rank {peer} did not prove that it belongs to this job")]
    Unproven {
        /// The peer.
        peer: Rank,
    },
    /// A peer sent something that no ringfold rank of this version sends.
    #[error("rank {peer} broke the protocol of the shared-memory handshake: {what}")]
    Protocol {
        /// The peer.
        peer: Rank,
        /// The fault in the handshake.
        what: &'static str,
    },
    /// The system refused memory or descriptors to this process.
    #[error("cannot prepare shared memory")]
    Io(#[from] io::Error),
}

/// Displays ranks, as in `3, 5 and 9 more`.
struct Ranks<'a>(&'a [Rank]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (at, rank) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{rank}", if at > 0 { ", " } else { "" })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cold]
pub(super) fn error(link: Link, fault: LinkFault) -> LinkError {
    LinkError { link, transport: NAME, fault }
}

#[cold]
pub(super) fn broken(link: Link, why: Broken) -> LinkError {
    match why {
        Broken::Protocol(why) => error(link, LinkFault::Protocol(why)),
        Broken::Memory => no_memory(link, io::ErrorKind::OutOfMemory.into()),
    }
}

/// The error of a link whose memory this rank cannot have.
#[cold]
pub(super) fn no_memory(link: Link, why: io::Error) -> LinkError {
    let why = format!("no shared memory for the link: {why}; the host or the job has none left");
    error(link, LinkFault::Io(io::Error::other(why)))
}

#[cold]
pub(super) fn unknown(link: Link) -> LinkError {
    let why = io::Error::new(
        io::ErrorKind::NotFound,
        "the rank is not on this host, or has no such lane",
    );
    error(link, LinkFault::Unreachable(why))
}
