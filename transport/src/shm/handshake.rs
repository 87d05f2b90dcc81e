//! One conversation between a rank and the lowest of its host, step by step as its messages arrive:
//! hello, challenge and proof as in `crate::proof`, and a welcome with the memory.
//!
//! The kernel keeps message boundaries, and nobody stands between two ends of a Unix socket, so the
//! proofs cover who speaks, not every byte. Descriptors go only to a peer that has proven itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfold_types::Rank;

use super::segment::Geometry;
use crate::proof::{
    CHALLENGE_BYTES, Challenged, HELLO_BYTES, Hello, JobKey, PROOF_BYTES, Protocol,
};
use crate::sys::{receive, transmit};

/// The version counts the layout of segments, rings and windows, too.
pub(super) const PROTOCOL: Protocol = Protocol { magic: *b"RFsh", version: 7 };
/// The message that brings the memory. Each message of a conversation has a length of its own, so
/// that none passes for another.
const WELCOME: [u8; 8] = *b"RFwelcom";

/// This rank's knowledge of its host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) key: JobKey,
    pub(super) rank: Rank,
    /// All ranks of the host, in order, this one among them.
    pub(super) ranks: Vec<Rank>,
    pub(super) geometry: Geometry,
}

impl Host {
    /// The subject of all hellos between the host's ranks: its lanes, and its ranks.
    fn about(&self) -> [u32; 2] {
        let Geometry { ranks, lanes } = self.geometry;
        [lanes, ranks].map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }
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
    /// Someone came.
    Hello,
    /// Someone said who it is.
    Proof(Challenged),
    /// A peer has proven itself, and the system has not taken the memory for it yet.
    Owing { peer: Rank },
    /// We said who we are.
    Challenge { hello: Hello },
    /// We have proven ourselves, and the memory is on its way.
    Welcome,
}

/// What a step led to.
pub(super) enum Outcome {
    Waiting(Handshake),
    /// The peer has the memory.
    Welcomed(Rank),
    /// We have it.
    Welcome(OwnedFd),
}

impl Handshake {
    /// Someone connected to us.
    pub(super) const fn answer(socket: OwnedFd, expires: Instant) -> Self {
        Self { socket, stage: Stage::Hello, expires: Some(expires) }
    }

    /// We connected to `peer`.
    pub(super) fn open(socket: OwnedFd, host: &Host, peer: Rank) -> Result<Self, Flaw> {
        let hello = Hello::new(PROTOCOL, host.rank, peer, host.about())?;
        say(&socket, &hello.encode())?;
        Ok(Self { socket, stage: Stage::Challenge { hello }, expires: None })
    }

    /// Whether the next step waits for nothing but the system.
    pub(super) const fn is_owing(&self) -> bool {
        matches!(self.stage, Stage::Owing { .. })
    }

    /// Takes the next message, if it has arrived; `memory` is for peers that have proven
    /// themselves.
    pub(super) fn step(self, host: &Host, memory: Option<BorrowedFd<'_>>) -> Result<Outcome, Flaw> {
        if let Stage::Owing { peer } = self.stage {
            return self.pay(peer, memory);
        }
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
            Stage::Challenge { hello } => prove(&socket, host, &hello, message)?,
            Stage::Proof(challenged) => {
                if !challenged.accepts(&host.key, message) {
                    return Err(Flaw::Unproven);
                }
                let peer = challenged.hello().from;
                let owing = Self { socket, stage: Stage::Owing { peer }, expires };
                return owing.pay(peer, memory);
            }
            Stage::Welcome => {
                let file = <[OwnedFd; 1]>::try_from(descriptors);
                return match (*message == WELCOME, file) {
                    (true, Ok([file])) => Ok(Outcome::Welcome(file)),
                    _ => Err(Flaw::Protocol("not the memory that was promised")),
                };
            }
            Stage::Owing { .. } => stage,
        };
        Ok(Outcome::Waiting(Self { socket, stage, expires }))
    }

    /// Hands the memory to a peer that has proven itself.
    fn pay(self, peer: Rank, memory: Option<BorrowedFd<'_>>) -> Result<Outcome, Flaw> {
        match transmit(&self.socket, &WELCOME, memory.as_slice()) {
            Ok(()) => Ok(Outcome::Welcomed(peer)),
            // The system limits how many descriptors of a user are on their way at once. Those that
            // are get fewer as ranks take them.
            Err(error) if is_not_yet(&error) => Ok(Outcome::Waiting(self)),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a message without descriptors.
fn say(socket: &OwnedFd, message: &[u8]) -> Result<(), Flaw> {
    transmit(socket, message, &[]).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Flaw::Closed,
        _ => Flaw::Io(error),
    })
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(rustix::io::Errno::TOOMANYREFS.raw_os_error())
}

/// Answers a hello.
fn challenge(socket: &OwnedFd, host: &Host, message: &[u8]) -> Result<Stage, Flaw> {
    let hello = Hello::decode(PROTOCOL, message)
        .ok_or(Flaw::Protocol("not a ringfold rank, or one of another version"))?;
    let is_expected = hello.from > host.rank && host.ranks.binary_search(&hello.from).is_ok();
    if hello.to != host.rank || !is_expected {
        return Err(Flaw::Protocol("a rank that is not expected here"));
    }
    if hello.about != host.about() {
        return Err(Flaw::Protocol("a different number of lanes, or of ranks of this host"));
    }
    let challenged = Challenged::new(hello)?;
    transmit(socket, &challenged.challenge(&host.key), &[])?;
    Ok(Stage::Proof(challenged))
}

/// Answers a challenge.
fn prove(socket: &OwnedFd, host: &Host, hello: &Hello, message: &[u8]) -> Result<Stage, Flaw> {
    if message.len() != CHALLENGE_BYTES {
        return Err(Flaw::Protocol("a challenge of the wrong length"));
    }
    say(socket, &host.key.answer(hello, message).ok_or(Flaw::Unproven)?)?;
    Ok(Stage::Welcome)
}

const _: () = assert!(CHALLENGE_BYTES > HELLO_BYTES && CHALLENGE_BYTES > PROOF_BYTES);
const _: () = assert!(HELLO_BYTES != CHALLENGE_BYTES && WELCOME.len() != PROOF_BYTES);
