//! The joiner's side: tries every place where the coordinator may listen until one peer proves
//! that it is the coordinator.
//!
//! Nothing that an unauthenticated peer says ends the search. When the deadline has passed, the
//! error is the most telling cause that was met.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::address;
use crate::channel::{Greeting, HandshakeError, Reader, VERSION, Writer, knock};
use crate::join::JoinError;
use crate::secret::{Secret, WAYS_TO_SHARE};

/// Pauses between two rounds of attempts grow from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// How long an attempt may take at first where there are several candidates: a foreign service need
/// not answer at all.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);
const ATTEMPT_MAX: Duration = Duration::from_millis(limits::HANDSHAKE_MS);

/// A connection that has proven itself.
pub(crate) struct Channel {
    pub(crate) reader: Reader<OwnedReadHalf>,
    pub(crate) writer: Writer<OwnedWriteHalf>,
    /// The address of this end, and of the other.
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// The coordinator that a rank looks for, and the places to try.
pub(crate) struct Target<'a> {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// A name, or an address, or several addresses of one host.
    pub(crate) hosts: &'a [String],
    /// The variable or other source that names the host, as in `MASTER_ADDR`.
    pub(crate) named_by: &'a str,
    /// Candidates, in order.
    pub(crate) ports: &'a [u16],
    pub(crate) greeting: &'a Greeting,
    pub(crate) secret: &'a Secret,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
}

/// A search that goes on where it stopped when a connection turns out to be of no use.
pub(crate) struct Dial<'a> {
    target: Target<'a>,
    pause: Duration,
    patience: Duration,
    worst: Option<Failure>,
    /// When to warn of a telling cause; `None` after that.
    warn_at: Option<Instant>,
}

/// A failed attempt, with its address and cause.
struct Failure {
    at: Option<SocketAddr>,
    cause: Cause,
}

enum Cause {
    /// The host's name has no address.
    Name(io::Error),
    Handshake(HandshakeError),
}

impl<'a> Dial<'a> {
    pub(crate) fn new(target: Target<'a>) -> Self {
        let warn_at = Instant::now() + Duration::from_millis(limits::JOIN_WARNING_MS);
        let (pause, patience) = (PAUSE_MIN, ATTEMPT_MIN);
        Self { target, pause, patience, worst: None, warn_at: Some(warn_at) }
    }

    /// Searches until the deadline. To be called again after [`Dial::lost`].
    ///
    /// # Errors
    /// The deadline has passed; the error is the most telling cause.
    pub(crate) async fn connect(&mut self) -> Result<Channel, JoinError> {
        loop {
            let deadline = self.target.deadline;
            if let Ok(Some(channel)) = timeout_at(deadline, self.round()).await {
                return Ok(channel);
            }
            if self.warn_at.is_some_and(|at| at <= Instant::now()) {
                self.warn_at = None;
                self.warn();
            }
            self.rest().await?;
        }
    }

    /// The channel broke before it served its purpose: waits before the next attempt.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(crate) async fn lost(&mut self, at: SocketAddr, cause: io::Error) -> Result<(), JoinError> {
        tracing::debug!(rank = self.target.rank.0, "{at} hung up, and is tried again: {cause}");
        self.note(Some(at), Cause::Handshake(cause.into()));
        self.rest().await
    }

    /// Ranks that started together do not come back together: each has a pause of its own length.
    async fn rest(&mut self) -> Result<(), JoinError> {
        let share = self.pause * (self.target.rank.0 % 16) / 16;
        let until = Instant::now() + self.pause + share;
        if until >= self.target.deadline {
            return Err(self.give_up());
        }
        sleep(until - Instant::now()).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.patience = (self.patience * 2).min(ATTEMPT_MAX);
        Ok(())
    }

    async fn round(&mut self) -> Option<Channel> {
        let Target { ports, rank, .. } = self.target;
        let mut hosts: Vec<SocketAddr> = Vec::new();
        for name in self.target.hosts {
            match lookup_host((name.as_str(), 0)).await {
                Ok(found) => hosts.extend(found),
                Err(e) => self.note(None, Cause::Name(e)),
            }
        }
        // With one candidate there is nobody else to turn to.
        let is_only = hosts.len() * ports.len() == 1;
        let patience = if is_only { ATTEMPT_MAX } else { self.patience };
        for port in ports {
            for host in &hosts {
                let mut at = *host;
                at.set_port(*port);
                let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
                match timeout(patience, self.target.attempt(at)).await.unwrap_or_else(late) {
                    Ok(channel) => return Some(channel),
                    Err(cause) => {
                        tracing::trace!(rank = rank.0, "no coordinator at {at}: {cause}");
                        self.note(Some(at), Cause::Handshake(cause));
                    }
                }
            }
        }
        None
    }

    fn note(&mut self, at: Option<SocketAddr>, cause: Cause) {
        if self.worst.as_ref().is_none_or(|worst| cause.weight() >= worst.cause.weight()) {
            self.worst = Some(Failure { at, cause });
        }
    }

    /// Says early what is most likely wrong, if it is more than that nobody listens yet.
    fn warn(&self) {
        let (rank, named_by) = (self.target.rank, self.target.named_by);
        let Some(Failure { at, cause }) = &self.worst else { return };
        let place = at.map_or_else(|| self.target.place(), |at| at.to_string());
        match cause {
            Cause::Name(e) => tracing::warn!(
                "rank {rank} cannot resolve the host name {:?} ({named_by}): {e}; it goes on \
                 trying",
                self.target.host()
            ),
            Cause::Handshake(HandshakeError::WrongSecret) => tracing::warn!(
                "rank {rank} has not joined: {place} holds another secret; {WAYS_TO_SHARE}; it \
                 goes on trying"
            ),
            Cause::Handshake(cause) if self.is_telling() => {
                tracing::warn!("rank {rank} has not joined: {place}: {cause}; it goes on trying");
            }
            Cause::Handshake(_) => {}
        }
    }

    fn is_telling(&self) -> bool {
        self.worst.as_ref().is_some_and(|worst| worst.cause.weight() >= 2)
    }

    fn give_up(&mut self) -> JoinError {
        let Target { rank, timeout, .. } = self.target;
        let ours = u32::try_from(self.target.size).unwrap_or(u32::MAX);
        let searched = self.target.place();
        let Some(Failure { at, cause }) = self.worst.take() else {
            return JoinError::NoHub { rank, place: searched, timeout, cause: "no answer".into() };
        };
        let place = at.map_or_else(|| searched.clone(), |at| at.to_string());
        match cause {
            Cause::Name(source) => JoinError::UnknownHost {
                rank,
                host: self.target.host(),
                named_by: self.target.named_by.into(),
                timeout,
                source,
            },
            Cause::Handshake(HandshakeError::WrongSecret) => JoinError::WrongSecret { rank, place },
            Cause::Handshake(HandshakeError::Version(theirs)) => {
                JoinError::Version { rank, place, ours: VERSION, theirs }
            }
            Cause::Handshake(HandshakeError::Size(theirs)) => {
                JoinError::SizeMismatch { rank, place, ours, theirs }
            }
            Cause::Handshake(cause) => {
                JoinError::NoHub { rank, place: searched, timeout, cause: cause.to_string() }
            }
        }
    }
}

impl Target<'_> {
    /// One attempt; it may take as long as the peer likes.
    ///
    /// # Errors
    /// Nobody listens there, or not the peer that is looked for.
    pub(crate) async fn attempt(&self, at: SocketAddr) -> Result<Channel, HandshakeError> {
        attempt(at, self.greeting, self.secret).await
    }

    fn place(&self) -> String {
        match self.ports {
            [port] => format!("{}:{port}", self.host()),
            [first, .., last] => format!("{}, ports {first} to {last}", self.host()),
            [] => self.host(),
        }
    }

    fn host(&self) -> String {
        self.hosts.join(" or ")
    }
}

/// One attempt to reach a member at `at`; it may take as long as the peer likes.
///
/// # Errors
/// Nobody listens there, or not the peer that is looked for.
pub(crate) async fn attempt(
    at: SocketAddr,
    greeting: &Greeting,
    secret: &Secret,
) -> Result<Channel, HandshakeError> {
    let mut stream = TcpStream::connect(at).await?;
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    // Where nobody listens, a socket of this host can meet itself.
    if local == peer {
        return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    }
    address::tune(&stream)?;
    let session = Arc::new(knock(&mut stream, greeting, secret).await?);
    let (reader, writer) = stream.into_split();
    let reader = Reader::new(reader, Arc::clone(&session), limits::CONTROL_BYTES_MAX);
    Ok(Channel { reader, writer: Writer::new(writer, session), local, peer })
}

impl Cause {
    /// How much it says about why there is no job.
    const fn weight(&self) -> u8 {
        match self {
            Self::Handshake(HandshakeError::Io(_) | HandshakeError::Crowded) => 0,
            Self::Handshake(HandshakeError::Stranger | HandshakeError::OtherJob) => 1,
            Self::Name(_) => 2,
            Self::Handshake(HandshakeError::WrongSecret) => 3,
            Self::Handshake(HandshakeError::Version(_)) => 4,
            Self::Handshake(HandshakeError::Size(_)) => 5,
        }
    }
}
