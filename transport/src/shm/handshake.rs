//! One handshake between a rank and the lowest rank of its host, advanced as messages arrive:
//! hello, challenge and proof as in `crate::proof`, then a welcome with the memory.
//!
//! The kernel keeps message boundaries, and no process stands between the two ends of a pair of
//! Unix sockets. So the proofs cover the identity of the ends and not every byte. Descriptors go
//! only to an authenticated peer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfold_types::Rank;

use super::segment::Layout;
use crate::proof::{
    CHALLENGE_BYTES, Challenged, HELLO_BYTES, Hello, JobKey, PROOF_BYTES, Protocol,
};
use crate::sys::{receive, transmit};

/// The version also covers the layout of segments, rings and windows.
pub(super) const PROTOCOL: Protocol = Protocol { magic: *b"RFsh", version: 9 };
/// The message that carries the memory. Each message of a handshake has a different length, so none
/// can be mistaken for another.
const WELCOME: [u8; 8] = *b"RFwelcom";

/// This rank's knowledge of its host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) key: JobKey,
    pub(super) rank: Rank,
    /// All ranks of the host in order, including this one.
    pub(super) ranks: Vec<Rank>,
    pub(super) layout: Layout,
}

impl Host {
    /// The subject of all hellos between the host's ranks: its lanes and its ranks.
    fn about(&self) -> [u32; 2] {
        let Layout { ranks, lanes } = self.layout;
        [lanes, ranks].map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }
}

/// The reason why a handshake ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("it closed the connection")]
    Closed,
    #[error("it did not prove that it belongs to this job")]
    Unproven,
    #[error("{0}")]
    Protocol(&'static str),
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
        match error.kind() {
            BrokenPipe | ConnectionRefused | ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A handshake in progress.
#[derive(Debug)]
pub(super) struct Handshake {
    socket: OwnedFd,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A peer has opened the connection; its hello is awaited.
    Hello,
    /// The connection has sent a hello; its proof is awaited.
    Proof(Challenged),
    /// The peer is authenticated; the system has not accepted the memory for it yet.
    Sending { peer: Rank },
    /// This rank has sent its hello; the challenge is awaited.
    Challenge { hello: Hello },
    /// This rank has sent its proof; the memory is awaited.
    Welcome,
}

/// The result of a step.
pub(super) enum Outcome {
    Waiting(Handshake),
    /// The peer has the memory.
    Welcomed(Rank),
    /// This rank has the memory.
    Welcome(OwnedFd),
}

impl Handshake {
    /// Begins the handshake of a connection that a peer has opened.
    pub(super) const fn answer(socket: OwnedFd) -> Self {
        Self { socket, state: State::Hello }
    }

    /// Begins the handshake of a connection from this rank to `peer`.
    pub(super) fn open(socket: OwnedFd, host: &Host, peer: Rank) -> Result<Self, HandshakeError> {
        let hello = Hello::new(PROTOCOL, host.rank, peer, host.about())?;
        send(&socket, &hello.encode())?;
        Ok(Self { socket, state: State::Challenge { hello } })
    }

    /// Whether the next step waits only for the system, not for a message.
    pub(super) const fn is_sending(&self) -> bool {
        matches!(self.state, State::Sending { .. })
    }

    /// Handles the next message, if it has arrived. `memory` is the descriptor for authenticated
    /// peers.
    pub(super) fn step(
        self,
        host: &Host,
        memory: Option<BorrowedFd<'_>>,
    ) -> Result<Outcome, HandshakeError> {
        if let State::Sending { peer } = self.state {
            return self.send_memory(peer, memory);
        }
        // One byte longer than the longest message, so that no longer one is cut to a valid length.
        let mut buffer = [0; CHALLENGE_BYTES + 1];
        let (bytes, descriptors) = match receive(&self.socket, &mut buffer) {
            Ok((0, _)) => return Err(HandshakeError::Closed),
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Outcome::Waiting(self));
            }
            Err(error) => return Err(error.into()),
        };
        let message = &buffer[..bytes];
        let Self { socket, state } = self;
        let state = match state {
            State::Hello => challenge(&socket, host, message)?,
            State::Challenge { hello } => prove(&socket, host, &hello, message)?,
            State::Proof(challenged) => {
                if !challenged.accepts(&host.key, message) {
                    return Err(HandshakeError::Unproven);
                }
                let peer = challenged.hello().from;
                let sending = Self { socket, state: State::Sending { peer } };
                return sending.send_memory(peer, memory);
            }
            State::Welcome => {
                let file = <[OwnedFd; 1]>::try_from(descriptors);
                return match (*message == WELCOME, file) {
                    (true, Ok([file])) => Ok(Outcome::Welcome(file)),
                    _ => Err(HandshakeError::Protocol("a welcome without the shared memory")),
                };
            }
            State::Sending { .. } => state,
        };
        Ok(Outcome::Waiting(Self { socket, state }))
    }

    /// Sends the memory to an authenticated peer.
    fn send_memory(
        self,
        peer: Rank,
        memory: Option<BorrowedFd<'_>>,
    ) -> Result<Outcome, HandshakeError> {
        match transmit(&self.socket, None, &WELCOME, memory.as_slice()) {
            Ok(()) => Ok(Outcome::Welcomed(peer)),
            // The system limits the descriptors in flight per user. Their number falls as ranks
            // receive them.
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
fn send(socket: &OwnedFd, message: &[u8]) -> Result<(), HandshakeError> {
    Ok(transmit(socket, None, message, &[])?)
}

/// Whether the system lacks room for a message or its descriptor for the moment.
pub(super) fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(rustix::io::Errno::TOOMANYREFS.raw_os_error())
}

/// Answers a hello with a challenge.
fn challenge(socket: &OwnedFd, host: &Host, message: &[u8]) -> Result<State, HandshakeError> {
    let hello = Hello::decode(PROTOCOL, message)
        .ok_or(HandshakeError::Protocol("not a ringfold rank, or one of another version"))?;
    let is_expected = hello.from > host.rank && host.ranks.binary_search(&hello.from).is_ok();
    if hello.to != host.rank || !is_expected {
        return Err(HandshakeError::Protocol("a hello for another rank, or of an unexpected one"));
    }
    if hello.about != host.about() {
        return Err(HandshakeError::Protocol(
            "a different number of lanes, or of ranks of this host",
        ));
    }
    let challenged = Challenged::new(hello)?;
    send(socket, &challenged.challenge(&host.key))?;
    Ok(State::Proof(challenged))
}

/// Answers a challenge with a proof.
fn prove(
    socket: &OwnedFd,
    host: &Host,
    hello: &Hello,
    message: &[u8],
) -> Result<State, HandshakeError> {
    if message.len() != CHALLENGE_BYTES {
        return Err(HandshakeError::Protocol("a challenge of the wrong length"));
    }
    send(socket, &host.key.answer(hello, message).ok_or(HandshakeError::Unproven)?)?;
    Ok(State::Welcome)
}

const _: () = assert!(CHALLENGE_BYTES > HELLO_BYTES && CHALLENGE_BYTES > PROOF_BYTES);
const _: () = assert!(HELLO_BYTES != CHALLENGE_BYTES && WELCOME.len() != PROOF_BYTES);
