//! The joiner's side: tries every place where the hub may listen until one proves to be it.

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
use crate::secret::Secret;

/// Pauses between two rounds of attempts grow from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// How long an attempt may take at first; a stranger's port need not answer at all.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);

/// A connection that has proven itself.
pub(crate) struct Channel {
    pub(crate) reader: Reader<OwnedReadHalf>,
    pub(crate) writer: Writer<OwnedWriteHalf>,
}

/// What to look for, and where.
pub(crate) struct Search<'a> {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// A name or an address.
    pub(crate) host: &'a str,
    /// Candidates, in order.
    pub(crate) ports: &'a [u16],
    pub(crate) greeting: &'a Greeting,
    pub(crate) secret: &'a Secret,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
}

impl Search<'_> {
    /// Until the deadline, as the hub may not listen yet. A hub of this very job that holds another
    /// secret, version or size is final, once every other place has been tried too.
    pub(crate) async fn run(&self) -> Result<Channel, JoinError> {
        let mut pause = PAUSE_MIN;
        let mut patience = ATTEMPT_MIN;
        let mut worst = None;
        loop {
            match timeout_at(self.deadline, self.round(patience, &mut worst)).await {
                Ok(Some(channel)) => return Ok(channel),
                Ok(None) if Instant::now() + pause < self.deadline => {}
                Ok(None) | Err(_) => return Err(self.give_up(worst)),
            }
            if worst.as_ref().is_some_and(Failure::is_final) {
                return Err(self.give_up(worst));
            }
            // Ranks that started at once should not come back at once.
            let jitter = Duration::from_millis(u64::from(self.rank.0 % 16));
            sleep(pause + jitter).await;
            pause = (pause * 2).min(PAUSE_MAX);
            patience = (patience * 2).min(Duration::from_millis(limits::HANDSHAKE_MS));
        }
    }

    async fn round(&self, patience: Duration, worst: &mut Option<Failure>) -> Option<Channel> {
        for port in self.ports {
            let found = match lookup_host((self.host, *port)).await {
                Ok(found) => found,
                Err(e) => {
                    note(worst, Failure { at: None, cause: e.into() });
                    return None;
                }
            };
            for at in found {
                let attempt = timeout(patience, self.attempt(at)).await;
                let timed_out = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
                match attempt.unwrap_or_else(timed_out) {
                    Ok(channel) => return Some(channel),
                    Err(cause) => {
                        tracing::trace!(rank = self.rank.0, "no hub at {at}: {cause}");
                        note(worst, Failure { at: Some(at), cause });
                    }
                }
            }
        }
        None
    }

    async fn attempt(&self, at: SocketAddr) -> Result<Channel, HandshakeError> {
        let mut stream = TcpStream::connect(at).await?;
        // Where nobody listens, a socket of this host can meet itself.
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
        }
        address::tune(&stream)?;
        let session = Arc::new(knock(&mut stream, self.greeting, self.secret).await?);
        let (reader, writer) = stream.into_split();
        let reader = Reader::new(reader, Arc::clone(&session), limits::CONTROL_BYTES_MAX);
        Ok(Channel { reader, writer: Writer::new(writer, session) })
    }

    fn give_up(&self, worst: Option<Failure>) -> JoinError {
        let rank = self.rank;
        let ours = u32::try_from(self.size).unwrap_or(u32::MAX);
        let here = || match self.ports {
            [port] => format!("{}:{port}", self.host),
            [first, .., last] => format!("{}, ports {first} to {last}", self.host),
            [] => self.host.to_owned(),
        };
        let place = worst.as_ref().and_then(|w| w.at).map_or_else(here, |at| at.to_string());
        match worst.map(|w| w.cause) {
            Some(HandshakeError::WrongSecret) => JoinError::WrongSecret { rank, place },
            Some(HandshakeError::Version(theirs)) => {
                JoinError::Version { rank, place, ours: VERSION, theirs }
            }
            Some(HandshakeError::Size(theirs)) => {
                JoinError::SizeMismatch { rank, place, ours, theirs }
            }
            other => {
                let cause = other.map_or_else(|| "no answer".into(), |cause| cause.to_string());
                JoinError::NoHub { rank, place: here(), timeout: self.timeout, cause }
            }
        }
    }
}

struct Failure {
    at: Option<SocketAddr>,
    cause: HandshakeError,
}

impl Failure {
    const fn is_final(&self) -> bool {
        self.weight() >= 2
    }

    /// What says most about why there is no job.
    const fn weight(&self) -> u8 {
        match self.cause {
            HandshakeError::Io(_) => 0,
            HandshakeError::Stranger | HandshakeError::OtherJob => 1,
            HandshakeError::WrongSecret => 2,
            HandshakeError::Version(_) => 3,
            HandshakeError::Size(_) => 4,
        }
    }
}

fn note(worst: &mut Option<Failure>, failure: Failure) {
    if worst.as_ref().is_none_or(|w| failure.weight() >= w.weight()) {
        *worst = Some(failure);
    }
}
