//! The first bytes on a control connection, in the clear and of fixed length.

use std::io;

use sha2::{Digest, Sha256};

use crate::secret::Secret;

/// The version of the control protocol; ranks of different versions do not talk. Every version
/// keeps the layout of the greeting, so that a foreign job is told from another version.
pub(crate) const VERSION: u16 = 4;

pub(super) const GREETING_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"ringfold";
/// The greeting of the side that connected, and of the side that listened. An echo of our own
/// greeting is thus no answer.
const CALL: u8 = 0;
const ANSWER: u8 = 1;

/// What both ends have to agree on before a secret is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    version: u16,
    purpose: u8,
    side: u8,
    size: u32,
    /// A digest of the job's name.
    job: [u8; 16],
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Between a rank and the hub.
    Control = 1,
    /// Between a rank and the launcher, to find the hub.
    Rendezvous = 2,
    /// Between two ranks, to hand on the roster.
    Relay = 3,
    /// Between a rank whose connection broke and the hub.
    Return = 4,
}

/// Why two processes do not get to talk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// The connection ended, or timed out.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it does not speak ringfold's control protocol")]
    Stranger,
    #[error("it speaks version {0} of the control protocol, not {VERSION}")]
    Version(u16),
    #[error("it belongs to another job")]
    OtherJob,
    #[error("it was started as one of {0} ranks")]
    Size(u32),
    #[error("it holds another secret")]
    WrongSecret,
    #[error("it lost its place to newer connections before it had proven itself")]
    Crowded,
}

impl Greeting {
    pub(crate) fn new(purpose: Purpose, job: &str, size: usize) -> Self {
        let [job @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _]: [u8; 32] =
            Sha256::digest(job.as_bytes()).into();
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Self { version: VERSION, purpose: purpose as u8, side: CALL, size, job }
    }

    /// The bytes for the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.purpose;
        bytes[11] = self.side;
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..].copy_from_slice(&self.job);
        bytes
    }

    /// The greeting that these bytes are; `None` for a stranger's.
    #[must_use]
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let ([purpose, side], rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (version, size) = (u16::from_le_bytes(*version), u32::from_le_bytes(*size));
        let (purpose, side) = (*purpose, *side);
        let greeting = Self { version, purpose, side, size, job: rest.try_into().ok()? };
        (*magic == MAGIC).then_some(greeting)
    }

    /// The same greeting, as the side that listened says it.
    pub(super) fn answer(&self) -> Self {
        Self { side: ANSWER, ..self.clone() }
    }

    /// The key for the handshake.
    pub(super) fn key(&self, secret: &Secret) -> [u8; 32] {
        secret.derive(&["control"])
    }

    /// Compares what the side that connected said with ours.
    pub(super) fn check_call(&self, them: &Self) -> Result<(), HandshakeError> {
        if them.side == CALL { self.compare(them) } else { Err(HandshakeError::Stranger) }
    }

    /// Compares what the side that listened said with ours.
    pub(super) fn check_answer(&self, them: &Self) -> Result<(), HandshakeError> {
        if them.side == ANSWER { self.compare(them) } else { Err(HandshakeError::Stranger) }
    }

    /// Compares the job first: the version and size of a foreign job do not matter.
    fn compare(&self, them: &Self) -> Result<(), HandshakeError> {
        if (them.job, them.purpose) != (self.job, self.purpose) {
            Err(HandshakeError::OtherJob)
        } else if them.version != self.version {
            Err(HandshakeError::Version(them.version))
        } else if them.size != self.size {
            Err(HandshakeError::Size(them.size))
        } else {
            Ok(())
        }
    }

    #[cfg(test)]
    pub(crate) fn with_version(self, version: u16) -> Self {
        Self { version, ..self }
    }
}
