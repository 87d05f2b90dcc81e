//! PMI-1, the wire protocol of MPICH's Hydra and its relatives: lines of `key=value` over an
//! inherited socket. Rank 0 puts its address into the key-value space, and the others get it after
//! a barrier.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use zeroize::Zeroizing;

use crate::discover::secret::Secret;

pub(crate) mod error;
pub(crate) mod past;

pub use error::PmiError;
use past::PastSession;

/// The key under which rank 0 publishes the job's secret.
const SECRET_KEY: &str = "ringfold-secret";

/// A connection to the launcher's key-value space.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    unread: Vec<u8>,
    space: String,
    value_bytes_max: usize,
    is_one_host: bool,
    coordinator: Option<SocketAddr>,
    secret: Option<Secret>,
    has_shared: bool,
}

impl Client {
    /// Opens a session on the launcher's socket. Every answer must come within `limit`. Blocks.
    ///
    /// # Errors
    /// The socket fails, or its peer does not speak PMI-1.
    pub fn open(fd: OwnedFd, limit: Duration) -> Result<Self, PmiError> {
        let stream = UnixStream::from(fd);
        let io = |source| PmiError::Io { command: "init".into(), source };
        stream.set_read_timeout(Some(limit)).map_err(io)?;
        let space = String::new();
        let mut client = Self {
            stream,
            unread: Vec::new(),
            space,
            value_bytes_max: 0,
            is_one_host: false,
            coordinator: None,
            secret: None,
            has_shared: false,
        };
        client.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init", &["rc=0"])?;
        let maxes = client.ask("cmd=get_maxes", "cmd=maxes", &[])?;
        let max = field(&maxes, "vallen_max").and_then(|v| v.parse().ok());
        client.value_bytes_max = max.ok_or_else(|| unexpected("vallen_max", &maxes))?;
        let name = client.ask("cmd=get_my_kvsname", "cmd=my_kvsname", &[])?;
        let space = field(&name, "kvsname").ok_or_else(|| unexpected("kvsname", &name))?;
        client.space = space.into();
        // Not every launcher publishes where it put the ranks.
        client.is_one_host = client.get("PMI_process_mapping").is_ok_and(|m| is_one_host(&m));
        Ok(client)
    }

    /// The name of the key-value space, which is the name of the job.
    #[must_use]
    pub fn space(&self) -> &str {
        &self.space
    }

    /// Whether the launcher says that all ranks are on this host.
    #[must_use]
    pub const fn is_one_host(&self) -> bool {
        self.is_one_host
    }

    /// Sets the time limit of every further answer.
    ///
    /// # Errors
    /// The socket refuses the limit, as it does for zero.
    pub fn set_timeout(&self, limit: Duration) -> Result<(), PmiError> {
        let io = |source| PmiError::Io { command: "barrier_in".into(), source };
        self.stream.set_read_timeout(Some(limit)).map_err(io)
    }

    /// Publishes a value, which must not contain spaces. Ranks can get it after the next barrier.
    ///
    /// # Errors
    /// The value is too long, or the launcher refuses it.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        if value.len() > self.value_bytes_max {
            let (bytes, max) = (value.len(), self.value_bytes_max);
            return Err(PmiError::ValueTooLong { bytes, max });
        }
        let command = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        self.ask(&command, "cmd=put_result", &["rc=0"]).map(drop)
    }

    /// Gets a published value.
    ///
    /// # Errors
    /// There is no such value, or the launcher fails.
    pub fn get(&mut self, key: &str) -> Result<String, PmiError> {
        let command = format!("cmd=get kvsname={} key={key}", self.space);
        let line = self.ask(&command, "cmd=get_result", &["rc=0"])?;
        let value = field(&line, "value").ok_or_else(|| unexpected("value", &line))?;
        Ok(value.into())
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// A rank did not call it in time.
    pub fn barrier(&mut self) -> Result<(), PmiError> {
        self.ask("cmd=barrier_in", "cmd=barrier_out", &[]).map(drop)
    }

    /// Shares a fresh secret, which rank 0 publishes if it `wants` one and the space accepts values
    /// of that length. Every rank must call it, equally often. Blocks until all have, for at most
    /// `timeout`. Returns `None` if rank 0 published none.
    ///
    /// # Errors
    /// The launcher fails, or a rank did not call it in time.
    pub(crate) fn share_secret(
        &mut self,
        rank: Rank,
        wants: bool,
        timeout: Duration,
    ) -> Result<Option<Secret>, PmiError> {
        if self.has_shared {
            return Ok(self.secret.clone());
        }
        let mut fresh = None;
        if rank == Rank(0) && wants {
            let io = |source| PmiError::Io { command: "a random secret".into(), source };
            let secret = Secret::generate().map_err(io)?;
            match self.put(SECRET_KEY, &secret.to_hex()) {
                Ok(()) => fresh = Some(secret),
                Err(PmiError::ValueTooLong { .. } | PmiError::Unexpected { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        self.set_timeout(timeout)?;
        self.barrier()?;
        self.secret = if rank == Rank(0) {
            fresh
        } else {
            match self.get(SECRET_KEY) {
                Ok(hex) => Secret::parse(Zeroizing::new(hex).as_bytes()),
                Err(PmiError::Unexpected { .. }) => None,
                Err(e) => return Err(e),
            }
        };
        self.has_shared = true;
        Ok(self.secret.clone())
    }

    /// Records the coordinator's address, for later sessions of this process.
    pub(crate) const fn set_coordinator(&mut self, coordinator: SocketAddr) {
        self.coordinator = Some(coordinator);
    }

    /// Ends the session, as the launcher expects of every client.
    ///
    /// # Errors
    /// The launcher does not acknowledge it.
    pub fn finalize(mut self) -> Result<(), PmiError> {
        self.ask("cmd=finalize", "cmd=finalize_ack", &[])?;
        if let Some(id) = past::socket_id(&self.stream) {
            past::remember(
                id,
                PastSession {
                    space: self.space,
                    coordinator: self.coordinator,
                    secret: self.secret,
                },
            );
        }
        Ok(())
    }

    fn ask(
        &mut self,
        command: &str,
        expected: &'static str,
        also: &[&str],
    ) -> Result<String, PmiError> {
        let verb = || command.split(' ').next().unwrap_or_default().into();
        let io = |source| PmiError::Io { command: verb(), source };
        self.stream.write_all(format!("{command}\n").as_bytes()).map_err(io)?;
        let line = loop {
            if let Some(line) = next_line(&mut self.unread)? {
                break line;
            }
            let mut bytes = [0; 512];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.unread.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The system reports a timeout like this.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io(io::ErrorKind::TimedOut.into()));
                }
                Err(e) => return Err(io(e)),
            }
        };
        let has = |word: &str| line.split_ascii_whitespace().any(|w| w == word);
        if has(expected) && also.iter().all(|word| has(word)) {
            Ok(line)
        } else {
            Err(unexpected(expected, &line))
        }
    }
}

/// Removes a whole line from the front of `unread`, if there is one.
///
/// # Errors
/// `unread` is longer than a line may be, and has no whole line.
pub fn next_line(unread: &mut Vec<u8>) -> Result<Option<String>, PmiError> {
    let Some(end) = unread.iter().position(|b| *b == b'\n') else {
        let too_long = unread.len() > limits::PMI_LINE_BYTES_MAX;
        return if too_long { Err(PmiError::LineTooLong) } else { Ok(None) };
    };
    if end > limits::PMI_LINE_BYTES_MAX {
        return Err(PmiError::LineTooLong);
    }
    let rest = unread.split_off(end + 1);
    let line = std::mem::replace(unread, rest);
    Ok(Some(String::from_utf8_lossy(&line).trim_end().into()))
}

/// The value of `key` in a line of `key=value` words.
#[must_use]
pub fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let value = |word: &'a str| word.strip_prefix(key)?.strip_prefix('=');
    line.split_ascii_whitespace().find_map(value)
}

/// Whether a `PMI_process_mapping`, such as `(vector,(0,1,4))`, puts all ranks on one host. Each
/// block is (first host, hosts, ranks on each).
#[must_use]
pub fn is_one_host(mapping: &str) -> bool {
    let Some(blocks) = mapping.strip_prefix("(vector,").and_then(|m| m.strip_suffix(')')) else {
        return false;
    };
    let mut blocks = blocks.split(['(', ')']).filter(|b| !b.is_empty() && *b != ",");
    blocks.all(|block| {
        let mut numbers = block.split(',').map(|n| n.trim().parse::<u32>());
        matches!((numbers.next(), numbers.next()), (Some(Ok(0)), Some(Ok(1))))
    })
}

fn unexpected(expected: &'static str, got: &str) -> PmiError {
    let got = &got[..got.floor_char_boundary(limits::CAUSE_BYTES_MAX)];
    PmiError::Unexpected { expected, got: got.into() }
}

#[cfg(test)]
pub(crate) mod tests;
