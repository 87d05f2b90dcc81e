//! How a control connection that broke is made again, before anybody is accused.
//!
//! A connection can break while both of its ends live: a firewall forgets it, or an operator kills
//! it. So a rank that loses its connection dials the coordinator again, and proves its identity by
//! a ticket that only it was given. The coordinator waits `limits::RETURN_MS` for that before it
//! calls the rank dead. After a connection that timed out it waits `limits::HUB_SILENCE_MS` before
//! it calls the rank silent, but decides no failure without it. Both ends then say again what may
//! have been lost.
//!
//! The coordinator reserves a port for it at the beginning, and listens there from when all ranks
//! have joined: a break that only the rank notices must not find the port closed. Strangers on the
//! port are turned away, as at every authenticated acceptor.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use socket2::Socket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::acceptor::{Member as Guest, accept};
use crate::address;
use crate::channel::{Greeting, HandshakeError};
use crate::dial::{Channel, attempt};
use crate::message::{Invitation, Return, Ticket, ToHub, decode};
use crate::secret::Secret;
use crate::turned_away::TurnedAway;

/// Ranks that have come back and wait until the coordinator has time.
const WAITING_MAX: usize = 64;
/// An attempt that failed is repeated after this time.
const PAUSE: Duration = Duration::from_millis(10);
const RETURN: Duration = Duration::from_millis(limits::RETURN_MS);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_millis(limits::HUB_SILENCE_MS);

/// The coordinator's side: a port where only ranks that come back are let in.
pub(crate) struct Entry {
    greeting: Greeting,
    secret: Secret,
    port: u16,
    seed: Secret,
    /// The reserved port, until it is opened.
    reserved: Option<Socket>,
    guests: Option<mpsc::Receiver<Guest>>,
    acceptor: JoinSet<()>,
}

impl Entry {
    /// Reserves a port of that address.
    ///
    /// # Errors
    /// There is none, or no randomness.
    pub(crate) fn reserve(ip: IpAddr, greeting: Greeting, secret: Secret) -> io::Result<Self> {
        let (socket, port) = address::reserve(ip)?;
        let (seed, reserved) = (Secret::generate()?, Some(socket));
        let acceptor = JoinSet::new();
        Ok(Self { greeting, secret, port, seed, reserved, guests: None, acceptor })
    }

    pub(crate) fn invitation(&self, rank: u32) -> Invitation {
        Invitation { port: self.port, ticket: self.ticket(rank) }
    }

    /// Listens from now on.
    pub(crate) fn open(&mut self) {
        let Some(socket) = self.reserved.take() else { return };
        match address::listen_on(socket) {
            Ok(listener) => {
                let (admitted, guests) = mpsc::channel(WAITING_MAX);
                let (greeting, secret) = (self.greeting.clone(), self.secret.clone());
                let turned_away = Arc::new(TurnedAway::default());
                self.acceptor.spawn(accept(listener, greeting, secret, turned_away, admitted));
                self.guests = Some(guests);
            }
            Err(e) => tracing::warn!("no rank can come back to port {}: {e}", self.port),
        }
    }

    async fn next(&mut self) -> (u32, Guest) {
        loop {
            let guest = match &mut self.guests {
                Some(guests) => guests.recv().await,
                None => None,
            };
            let Some(guest) = guest else {
                self.guests = None;
                return std::future::pending().await;
            };
            match decode(&guest.first) {
                Some(ToHub::Return(Return { rank, ticket })) if ticket == self.ticket(rank) => {
                    return (rank, guest);
                }
                _ => tracing::warn!("{} is no rank that comes back", guest.from),
            }
        }
    }

    fn ticket(&self, rank: u32) -> Ticket {
        let [ticket @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.seed.derive(&["return", &rank.to_string()]);
        ticket
    }
}

/// The next rank that comes back by `entry`. Waits for ever where none can. Cancel safe.
pub(crate) async fn next(entry: &mut Option<Entry>) -> (u32, Guest) {
    match entry {
        Some(entry) => entry.next().await,
        None => std::future::pending().await,
    }
}

/// The rank's side: how it comes back.
#[derive(Clone, Debug)]
pub(crate) struct WayBack {
    pub(crate) rank: Rank,
    pub(crate) ip: IpAddr,
    pub(crate) invitation: Invitation,
    pub(crate) greeting: Greeting,
    pub(crate) secret: Secret,
}

impl WayBack {
    /// The first message of this rank when it comes back.
    pub(crate) const fn first_word(&self) -> ToHub {
        ToHub::Return(Return { rank: self.rank.0, ticket: self.invitation.ticket })
    }

    /// Dials the coordinator again.
    ///
    /// # Errors
    /// `ConnectionRefused` if nobody listens for `limits::RETURN_MS`, `TimedOut` if nobody answers.
    pub(crate) async fn take(self) -> io::Result<Channel> {
        let at = SocketAddr::new(self.ip, self.invitation.port);
        let until = Instant::now() + RETURN;
        loop {
            let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
            let attempt = timeout(ATTEMPT, attempt(at, &self.greeting, &self.secret)).await;
            match attempt.unwrap_or_else(late).map_err(refused) {
                Err(e) if e.kind() != io::ErrorKind::TimedOut && Instant::now() < until => {
                    tracing::trace!(rank = self.rank.0, "{at} is tried again: {e}");
                    sleep(PAUSE).await;
                }
                attempted => return attempted,
            }
        }
    }
}

/// The listener there is not the coordinator, unless the connection itself failed.
fn refused(cause: HandshakeError) -> io::Error {
    match cause {
        HandshakeError::Io(e) => e,
        other => io::Error::new(io::ErrorKind::ConnectionRefused, other),
    }
}
