//! Restores a broken control connection, before any rank is accused.
//!
//! A connection can break while both of its ends live: a firewall forgets it, or an operator kills
//! it. So a rank that loses its connection dials the coordinator again, and proves its identity by
//! a token that only it has. The coordinator waits `limits::RETURN_MS` for this before it declares
//! the rank dead, unless it sees that the rank's process has ended. After a timeout of the
//! connection it waits `limits::COORDINATOR_SILENCE_MS` before it declares the rank silent, but
//! decides no failure without it. Both ends then repeat the messages that may have been lost.
//!
//! The coordinator reserves a port for this at the beginning, and listens there after all ranks
//! have joined. A break that only the rank notices must find the port open. Unauthenticated peers
//! are rejected, as at every authenticated acceptor.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use socket2::Socket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::local_process::LocalProcess;
use super::message::{Return, ReturnTicket, ToCoordinator, Token};
use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::decode;
use crate::channel::greeting::{Greeting, HandshakeError};
use crate::channel::socket;
use crate::discover::secret::Secret;

/// The most reconnected ranks that wait for the coordinator.
const WAITING_MAX: usize = 64;
/// The pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(10);
const RETURN: Duration = Duration::from_millis(limits::RETURN_MS);
/// The time limit of one attempt.
const ATTEMPT: Duration = Duration::from_millis(limits::COORDINATOR_SILENCE_MS);

/// The coordinator's side: a port that admits only ranks that reconnect.
pub(crate) struct ReturnPort {
    greeting: Greeting,
    secret: Secret,
    port: u16,
    seed: Secret,
    /// The reserved port, until it is opened.
    reserved: Option<Socket>,
    peers: Option<mpsc::Receiver<Authenticated>>,
    acceptor: JoinSet<()>,
}

impl ReturnPort {
    /// Reserves a port of that address.
    ///
    /// # Errors
    /// No port is free, or the system has no randomness.
    pub(crate) fn reserve(ip: IpAddr, greeting: Greeting, secret: Secret) -> io::Result<Self> {
        let (socket, port) = socket::reserve(ip)?;
        let (seed, reserved) = (Secret::generate()?, Some(socket));
        let acceptor = JoinSet::new();
        Ok(Self { greeting, secret, port, seed, reserved, peers: None, acceptor })
    }

    /// A port of a simulation, where nobody listens.
    #[cfg(test)]
    pub(crate) fn simulated(greeting: Greeting, secret: Secret) -> Self {
        let (seed, acceptor) = (secret.clone(), JoinSet::new());
        Self { greeting, secret, port: u16::MAX, seed, reserved: None, peers: None, acceptor }
    }

    pub(crate) fn return_ticket(&self, rank: u32) -> ReturnTicket {
        let (token, local) = (self.token(rank), LocalProcess::own());
        ReturnTicket { port: self.port, token, local }
    }

    /// Listens from now on.
    pub(crate) fn open(&mut self) {
        let Some(socket) = self.reserved.take() else { return };
        match socket::listen_on(socket) {
            Ok(listener) => {
                let (admitted, peers) = mpsc::channel(WAITING_MAX);
                let shared = (self.greeting.clone(), self.secret.clone());
                let slots = limits::HANDSHAKES_MAX;
                self.acceptor.spawn(accept(slots, listener, shared, Arc::default(), admitted));
                self.peers = Some(peers);
            }
            Err(e) => tracing::warn!("no rank can reconnect to port {}: {e}", self.port),
        }
    }

    async fn next(&mut self) -> (u32, Channel) {
        loop {
            let peer = match &mut self.peers {
                Some(peers) => peers.recv().await,
                None => None,
            };
            let Some(Authenticated { channel, first, .. }) = peer else {
                self.peers = None;
                return std::future::pending().await;
            };
            match decode(&first) {
                Some(ToCoordinator::Return(Return { rank, token }))
                    if token == self.token(rank) =>
                {
                    return (rank, channel);
                }
                _ => tracing::warn!("{} is not a rank that may reconnect", channel.peer),
            }
        }
    }

    fn token(&self, rank: u32) -> Token {
        let [token @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.seed.derive(&["return", &rank.to_string()]);
        token
    }
}

/// The next rank that reconnects at `return_port`. Waits for ever without a port. Cancel safe.
pub(crate) async fn next(return_port: &mut Option<ReturnPort>) -> (u32, Channel) {
    match return_port {
        Some(return_port) => return_port.next().await,
        None => std::future::pending().await,
    }
}

/// The rank's side: where it reconnects, and its credentials.
#[derive(Clone, Debug)]
pub(crate) struct ReturnPath {
    pub(crate) rank: Rank,
    pub(crate) ip: IpAddr,
    pub(crate) return_ticket: ReturnTicket,
    pub(crate) greeting: Greeting,
    pub(crate) secret: Secret,
}

impl ReturnPath {
    /// The first message of this rank when it reconnects.
    pub(crate) const fn first_message(&self) -> ToCoordinator {
        ToCoordinator::Return(Return { rank: self.rank.0, token: self.return_ticket.token })
    }

    /// Dials the coordinator again.
    ///
    /// # Errors
    /// `ConnectionRefused` if nobody listens for `limits::RETURN_MS`, or the process of rank 0 has
    /// ended; `TimedOut` if the listener does not answer.
    pub(crate) async fn take(self) -> io::Result<Channel> {
        let ended = self.return_ticket.local.ended();
        tokio::select! {
            channel = self.dial() => channel,
            () = ended => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    async fn dial(&self) -> io::Result<Channel> {
        let at = SocketAddr::new(self.ip, self.return_ticket.port);
        let until = Instant::now() + RETURN;
        loop {
            let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
            let attempt = timeout(ATTEMPT, attempt(at, &self.greeting, &self.secret)).await;
            match attempt.unwrap_or_else(late).map_err(refused) {
                Err(e) if e.kind() != io::ErrorKind::TimedOut && Instant::now() < until => {
                    tracing::trace!(rank = self.rank.0, "dialing {at} again: {e}");
                    sleep(PAUSE).await;
                }
                attempted => return attempted,
            }
        }
    }
}

/// Converts a handshake error: unless the connection itself failed, the listener is not the
/// coordinator.
fn refused(cause: HandshakeError) -> io::Error {
    match cause {
        HandshakeError::Io(e) => e,
        other => io::Error::new(io::ErrorKind::ConnectionRefused, other),
    }
}
