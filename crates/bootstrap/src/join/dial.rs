//! The joining rank's side: tries every address where the coordinator may listen, until one peer
//! proves that it is the coordinator.
//!
//! No message of an unauthenticated peer ends the search. When the deadline has passed, the error
//! is the most telling cause so far.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringfold_types::limits;
use rustix::io::Errno;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::JoinError;
use super::joiner::{Candidates, Joiner};
use crate::channel::blocking::lookup;
use crate::channel::connect::{Channel, attempt};
use crate::channel::greeting::{Greeting, HandshakeError, VERSION};
use crate::discover::secret::WAYS_TO_SHARE;

/// The shortest pause between two rounds of attempts. Pauses grow up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// The first time limit of an attempt where there are several candidates. A foreign service may
/// never answer.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);
const ATTEMPT_MAX: Duration = Duration::from_millis(limits::HANDSHAKE_MS);

/// A search for the coordinator. It resumes where it stopped if a connection turns out to be
/// useless.
pub(super) struct Dial<'a> {
    joiner: &'a Joiner,
    greeting: &'a Greeting,
    candidates: &'a Candidates,
    pub(super) deadline: Instant,
    pause: Duration,
    attempt_limit: Duration,
    worst: Option<Failure>,
    /// When to warn of a telling cause; `None` after the warning.
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
    pub(super) fn new(
        joiner: &'a Joiner,
        greeting: &'a Greeting,
        candidates: &'a Candidates,
    ) -> Self {
        let warn_at = Instant::now() + Duration::from_millis(limits::JOIN_WARNING_MS);
        let (pause, attempt_limit) = (PAUSE_MIN, ATTEMPT_MIN);
        let (deadline, worst, warn_at) = (joiner.deadline, None, Some(warn_at));
        Self { joiner, greeting, candidates, deadline, pause, attempt_limit, worst, warn_at }
    }

    /// Searches until the deadline. The caller calls it again after [`Dial::lost`].
    ///
    /// # Errors
    /// The deadline has passed; the error is the most telling cause.
    pub(super) async fn connect(&mut self) -> Result<Channel, JoinError> {
        loop {
            if let Ok(Some(channel)) = timeout_at(self.deadline, self.round()).await {
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
    pub(super) async fn lost(&mut self, at: SocketAddr, cause: io::Error) -> Result<(), JoinError> {
        tracing::debug!(
            rank = self.joiner.rank.0,
            "{at} closed the connection; dialing again: {cause}"
        );
        self.note(Some(at), Cause::Handshake(cause.into()));
        self.rest().await
    }

    /// Waits before the next round. Each rank has a pause of its own length, so that ranks which
    /// started together do not retry together.
    async fn rest(&mut self) -> Result<(), JoinError> {
        let share = self.pause * (self.joiner.rank.0 % 16) / 16;
        let until = Instant::now() + self.pause + share;
        let is_elsewhere = self.warn_at.is_none() && self.is_elsewhere();
        if let Some(source) = self.lack().filter(|_| self.warn_at.is_none()) {
            let (rank, action) = (self.joiner.rank, "connect to the coordinator");
            return Err(JoinError::System { rank, action, source });
        }
        if until >= self.deadline || is_elsewhere {
            return Err(self.give_up());
        }
        sleep(until - Instant::now()).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.attempt_limit = (self.attempt_limit * 2).min(ATTEMPT_MAX);
        Ok(())
    }

    async fn round(&mut self) -> Option<Channel> {
        let (ports, rank) = (&self.candidates.ports, self.joiner.rank);
        let mut hosts: Vec<SocketAddr> = Vec::new();
        for name in &self.candidates.hosts {
            match lookup(name, 0).await {
                Ok(found) => hosts.extend(found),
                Err(e) => self.note(None, Cause::Name(e)),
            }
        }
        // With one candidate there is no other to try.
        let is_only = hosts.len() * ports.len() == 1;
        let attempt_limit = if is_only { ATTEMPT_MAX } else { self.attempt_limit };
        for port in ports {
            for host in &hosts {
                let mut at = *host;
                at.set_port(*port);
                let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
                let attempt = attempt(at, self.greeting, &self.joiner.secret);
                match timeout(attempt_limit, attempt).await.unwrap_or_else(late) {
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

    /// Logs the most likely cause early, unless it is only that nobody listens yet.
    fn warn(&self) {
        let (rank, named_by) = (self.joiner.rank, self.candidates.named_by);
        let Some(Failure { at, cause }) = &self.worst else { return };
        let place = at.map_or_else(|| self.candidates.place(), |at| at.to_string());
        match cause {
            Cause::Name(e) => tracing::warn!(
                "rank {rank} cannot resolve the host name {:?} ({named_by}): {e}; it keeps \
                 trying",
                self.candidates.host()
            ),
            Cause::Handshake(HandshakeError::WrongSecret) => tracing::warn!(
                "rank {rank} has not joined: {place} holds another secret; {WAYS_TO_SHARE}; it \
                 keeps trying"
            ),
            Cause::Handshake(cause) if self.is_telling() => {
                tracing::warn!("rank {rank} has not joined: {place}: {cause}; it keeps trying");
            }
            Cause::Handshake(_) => {}
        }
    }

    fn is_telling(&self) -> bool {
        self.worst.as_ref().is_some_and(|worst| worst.cause.weight() >= 2)
    }

    /// The system's error if this process, or its host, has no descriptor for a connection.
    fn lack(&self) -> Option<io::Error> {
        let Some(Failure { cause: Cause::Handshake(HandshakeError::Io(e)), .. }) = &self.worst
        else {
            return None;
        };
        let code = e.raw_os_error()?;
        let lacks = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&code);
        lacks.then(|| io::Error::from_raw_os_error(code))
    }

    /// Whether the launcher listens in another network: nobody listens at its address on this
    /// host.
    fn is_elsewhere(&self) -> bool {
        let Some(Failure { at: Some(at), cause: Cause::Handshake(HandshakeError::Io(e)) }) =
            &self.worst
        else {
            return false;
        };
        self.candidates.is_launcher && is_closed(at.ip(), e)
    }

    fn give_up(&mut self) -> JoinError {
        let (rank, timeout) = (self.joiner.rank, self.joiner.options.timeout);
        let is_elsewhere = self.is_elsewhere();
        let ours = u32::try_from(self.joiner.size).unwrap_or(u32::MAX);
        let searched = self.candidates.place();
        let Some(Failure { at, cause }) = self.worst.take() else {
            return JoinError::NoCoordinator {
                rank,
                place: searched,
                timeout,
                cause: "no answer".into(),
            };
        };
        let place = at.map_or_else(|| searched.clone(), |at| at.to_string());
        match cause {
            Cause::Name(source) => JoinError::UnknownHost {
                rank,
                host: self.candidates.host(),
                named_by: self.candidates.named_by.into(),
                timeout,
                source,
            },
            Cause::Handshake(HandshakeError::WrongSecret) => JoinError::WrongSecret { rank, place },
            Cause::Handshake(HandshakeError::Version(theirs)) => {
                JoinError::Version { rank, place, ours: VERSION, theirs }
            }
            Cause::Handshake(HandshakeError::Build { ours, theirs }) => {
                JoinError::Build { rank, place, ours, theirs }
            }
            Cause::Handshake(HandshakeError::Size(theirs)) => {
                JoinError::SizeMismatch { rank, place, ours, theirs }
            }
            // An answer of the launcher that is no answer has another kind.
            Cause::Handshake(HandshakeError::Io(e))
                if self.candidates.is_launcher && e.kind() != io::ErrorKind::Other =>
            {
                let named_by = self.candidates.named_by.into();
                JoinError::NoLauncher {
                    rank,
                    place: searched,
                    named_by,
                    cause: e.to_string(),
                    is_elsewhere,
                }
            }
            Cause::Handshake(cause) => JoinError::NoCoordinator {
                rank,
                cause: at
                    .filter(|_| place != searched)
                    .map_or_else(String::new, |at| format!("{at}: "))
                    + &cause.to_string(),
                place: searched,
                timeout,
            },
        }
    }
}

/// Whether the error says that no process of this host listens at this address of every host.
pub(super) fn is_closed(ip: IpAddr, e: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let is_closed = matches!(
        e.kind(),
        AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable
    );
    ip.to_canonical().is_loopback() && is_closed
}

impl Cause {
    /// How much the cause explains.
    const fn weight(&self) -> u8 {
        match self {
            Self::Handshake(HandshakeError::Io(_) | HandshakeError::Evicted) => 0,
            Self::Handshake(HandshakeError::NotRingfold | HandshakeError::OtherJob) => 1,
            Self::Name(_) => 2,
            Self::Handshake(HandshakeError::WrongSecret) => 3,
            Self::Handshake(HandshakeError::Version(_) | HandshakeError::Build { .. }) => 4,
            Self::Handshake(HandshakeError::Size(_)) => 5,
        }
    }
}
