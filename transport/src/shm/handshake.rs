//! One conversation between two ranks that meet, step by step as its messages arrive.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfold_types::Rank;

use super::connect::Offers;
use super::proof::{
    CHALLENGE_BYTES, HELLO_BYTES, Hello, JobKey, NONCE_BYTES, PROOF_BYTES, PROVEN_BYTES, Side,
    WELCOME_BYTES,
};
use super::segment::Segment;
use crate::sys::{Bell, receive, transmit};

/// What this rank brings to every conversation.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) key: JobKey,
    pub(super) rank: Rank,
    pub(super) lanes: usize,
    pub(super) offers: Offers,
    /// The peers that may come, in order.
    pub(super) peers: Vec<Rank>,
    pub(super) segment: Segment,
    pub(super) bell: Bell,
}

/// A peer that has proven itself, and what it handed over.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) peer: Rank,
    pub(super) socket: OwnedFd,
    pub(super) file: OwnedFd,
    pub(super) bell: OwnedFd,
    /// Where our rings begin in `file`.
    pub(super) block_at: u64,
}

/// Why a conversation ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    #[error("it closed the connection")]
    Closed,
    #[error("it did not prove that it belongs to this job")]
    Unproven,
    #[error("{0}")]
    Protocol(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A conversation under way.
#[derive(Debug)]
pub(super) struct Handshake {
    socket: OwnedFd,
    stage: Stage,
    /// When a peer that came to us must have proven itself.
    pub(super) expires: Option<Instant>,
}

#[derive(Debug)]
enum Stage {
    /// A stranger came.
    Hello,
    /// A stranger said who it is.
    Proof { hello: Hello, nonce: [u8; NONCE_BYTES] },
    /// We said who we are.
    Challenge { hello: Hello },
    /// Both are proven, and our descriptors are on their way.
    Welcome { hello: Hello },
}

/// What a step led to.
pub(super) enum Outcome {
    Waiting(Handshake),
    Met(Met),
}

impl Handshake {
    /// Someone connected to us.
    pub(super) fn answer(socket: OwnedFd, expires: Instant) -> Self {
        Self { socket, stage: Stage::Hello, expires: Some(expires) }
    }

    /// We connected to `peer`.
    pub(super) fn open(socket: OwnedFd, host: &Host, peer: Rank) -> Result<Self, Flaw> {
        let lanes = u32::try_from(host.lanes).unwrap_or(u32::MAX);
        let hello = Hello { from: host.rank, to: peer, lanes, nonce: nonce()? };
        transmit(&socket, &hello.encode(), &[])?;
        Ok(Self { socket, stage: Stage::Challenge { hello }, expires: None })
    }

    /// The peer that we connected to, if it was us.
    pub(super) fn dialed(&self) -> Option<Rank> {
        match &self.stage {
            Stage::Hello | Stage::Proof { .. } => None,
            Stage::Challenge { hello } | Stage::Welcome { hello } => Some(hello.to),
        }
    }

    /// Takes the next message, if it has arrived.
    pub(super) fn step(self, host: &Host) -> Result<Outcome, Flaw> {
        // One byte longer than the longest, so that none is cut to the right length.
        let mut buffer = [0; CHALLENGE_BYTES + 1];
        let (bytes, descriptors) = match receive(&self.socket, &mut buffer) {
            Ok((0, _)) => return Err(Flaw::Closed),
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Outcome::Waiting(self));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(Flaw::Closed);
            }
            Err(error) => return Err(error.into()),
        };
        let message = &buffer[..bytes];
        let Self { socket, stage, expires } = self;
        let stage = match stage {
            Stage::Hello => challenge(&socket, host, message)?,
            Stage::Challenge { hello } => prove(&socket, host, hello, message)?,
            Stage::Proof { hello, nonce } => {
                let Some((proof, block_at)) = message.split_first_chunk::<PROOF_BYTES>() else {
                    return Err(Flaw::Protocol("a proof of the wrong length"));
                };
                if !host.key.accepts(Side::Dialer, &hello, &nonce, proof) {
                    return Err(Flaw::Unproven);
                }
                let met = met(socket, hello.from, block_at, descriptors)?;
                let welcome = host.block_at(hello.from)?.to_le_bytes();
                transmit(&met.socket, &welcome, &host.descriptors())?;
                return Ok(Outcome::Met(met));
            }
            Stage::Welcome { hello } => {
                return met(socket, hello.to, message, descriptors).map(Outcome::Met);
            }
        };
        Ok(Outcome::Waiting(Self { socket, stage, expires }))
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Host {
    /// The place of `peer` among the peers.
    pub(super) fn index(&self, peer: Rank) -> Option<usize> {
        self.peers.binary_search(&peer).ok()
    }

    fn block_at(&self, peer: Rank) -> Result<u64, Flaw> {
        let index = self.index(peer).ok_or(Flaw::Protocol("a rank that is not of this host"))?;
        Ok(self.segment.block_at(index))
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.segment.file.as_fd(), self.bell.as_fd()]
    }
}

/// Answers a hello.
fn challenge(socket: &OwnedFd, host: &Host, message: &[u8]) -> Result<Stage, Flaw> {
    let hello = Hello::decode(message)
        .ok_or(Flaw::Protocol("not a ringfold rank, or one of another version"))?;
    if hello.to != host.rank || hello.from <= host.rank || host.index(hello.from).is_none() {
        return Err(Flaw::Protocol("a rank that is not expected here"));
    }
    if usize::try_from(hello.lanes) != Ok(host.lanes) {
        return Err(Flaw::Protocol("a different number of lanes"));
    }
    let nonce = nonce()?;
    let mut reply = [0; CHALLENGE_BYTES];
    reply[..NONCE_BYTES].copy_from_slice(&nonce);
    reply[NONCE_BYTES..].copy_from_slice(&host.key.prove(Side::Listener, &hello, &nonce));
    transmit(socket, &reply, &[])?;
    Ok(Stage::Proof { hello, nonce })
}

/// Answers a challenge.
fn prove(socket: &OwnedFd, host: &Host, hello: Hello, message: &[u8]) -> Result<Stage, Flaw> {
    let Some((nonce, proof)) = message.split_first_chunk::<NONCE_BYTES>() else {
        return Err(Flaw::Protocol("a challenge of the wrong length"));
    };
    if !host.key.accepts(Side::Listener, &hello, nonce, proof) {
        return Err(Flaw::Unproven);
    }
    let mut reply = [0; PROVEN_BYTES];
    reply[..PROOF_BYTES].copy_from_slice(&host.key.prove(Side::Dialer, &hello, nonce));
    reply[PROOF_BYTES..].copy_from_slice(&host.block_at(hello.to)?.to_le_bytes());
    transmit(socket, &reply, &host.descriptors())?;
    Ok(Stage::Welcome { hello })
}

fn met(
    socket: OwnedFd,
    peer: Rank,
    block_at: &[u8],
    descriptors: Vec<OwnedFd>,
) -> Result<Met, Flaw> {
    let block_at: [u8; WELCOME_BYTES] =
        block_at.try_into().map_err(|_| Flaw::Protocol("a welcome of the wrong length"))?;
    let [file, bell] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|_| Flaw::Protocol("not the two descriptors that were promised"))?;
    Ok(Met { peer, socket, file, bell, block_at: u64::from_le_bytes(block_at) })
}

fn nonce() -> Result<[u8; NONCE_BYTES], Flaw> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

const _: () = assert!(CHALLENGE_BYTES > HELLO_BYTES && CHALLENGE_BYTES > PROVEN_BYTES);
