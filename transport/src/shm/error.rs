//! What can go wrong while ranks of one host connect, and what links say of it.

use std::fmt;
use std::io;

use ringfold_types::Rank;

use super::ring::Broken;
use crate::contract::{Link, LinkError, LinkFault};

/// The transport's name.
pub(super) const NAME: &str = "shm";

/// The ranks of this host are not connected, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Some peers had not come when the deadline passed.
    #[error("no connection over shared memory to rank {} in time", Ranks(missing))]
    Deadline {
        /// Who is missing, in order.
        missing: Vec<Rank>,
    },
    /// What was published as a peer's address is none, or not one that this process can reach.
    #[error("the shared-memory address of rank {peer} is not one of this host: {address:?}")]
    Address {
        /// Whose address.
        peer: Rank,
        /// As it was given.
        address: String,
    },
    /// A peer could not be reached, or ended while it was being connected.
    #[error("cannot connect to rank {peer} over shared memory: {source}")]
    Unreachable {
        /// Which peer.
        peer: Rank,
        /// What the system said.
        source: io::Error,
    },
    /// A peer does not know the job's secret, or runs as another user.
    #[error("rank {peer} did not prove that it belongs to this job")]
    Unproven {
        /// Which peer.
        peer: Rank,
    },
    /// What a peer wrote or handed over is not what a ringfold rank of this version would.
    #[error("rank {peer} broke the protocol of the shared-memory handshake: {what}")]
    Protocol {
        /// Which peer.
        peer: Rank,
        /// What was wrong.
        what: &'static str,
    },
    /// The system refused memory or descriptors to this process.
    #[error("cannot prepare shared memory: {0}")]
    Io(#[from] io::Error),
}

/// Ranks as in `3, 5 and 9 more`.
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

/// This rank cannot have the link's memory.
#[cold]
pub(super) fn no_memory(link: Link, why: io::Error) -> LinkError {
    let why = format!("no shared memory for the link: {why}; the host or the job has none left");
    error(link, LinkFault::Io(io::Error::other(why)))
}

#[cold]
pub(super) fn unknown(link: Link) -> LinkError {
    let why = io::Error::new(io::ErrorKind::NotFound, "no rank of this host, or no lane of it");
    error(link, LinkFault::Unreachable(why))
}
