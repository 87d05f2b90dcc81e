//! The first bytes on a control connection, in the clear and of fixed length.

use std::io;
use std::sync::LazyLock;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::discover::secret::Secret;

/// The version of the control protocol. Ranks of different versions refuse each other. Every
/// version keeps the layout of the greeting's head, which tells a foreign job from another version.
pub(crate) const VERSION: u16 = 12;

/// The digest of the sources that define the messages of this module's connections. Ranks compare
/// the sources of all other messages when they have joined.
pub(crate) static BUILD: LazyLock<u64> = LazyLock::new(|| build_with(""));

/// The digest of these sources and those of this module's connections.
fn build_with(sources: &str) -> u64 {
    let digest = Sha256::digest([ringfold_types::SOURCES, crate::SOURCES, sources].concat());
    digest.iter().take(8).fold(0, |build, byte| build << 8 | u64::from(*byte))
}

const HEAD_BYTES: usize = 32;
pub(super) const GREETING_BYTES: usize = HEAD_BYTES + 8;
const MAGIC: [u8; 8] = *b"ringfold";
/// The values of the greeting's side byte, for the side that connected and the side that listened.
/// So an echo of our own greeting is no valid answer.
const CALL: u8 = 0;
const ANSWER: u8 = 1;

/// The facts on which both ends must agree before the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    version: u16,
    purpose: u8,
    side: u8,
    size: u32,
    /// A digest of the job's name.
    job: [u8; 16],
    build: u64,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// A control connection between a rank and the coordinator.
    Control = 1,
    /// A connection between a rank and the launcher, to find the coordinator.
    Rendezvous = 2,
    /// A connection between two ranks, to forward a message of rank 0.
    Relay = 3,
    /// A new connection between the coordinator and a rank whose connection broke.
    Return = 4,
    /// A connection to the control port of an aggregator.
    Aggregator = 5,
    /// A connection between two ranks that regroup after a failure.
    Regroup = 6,
    /// A connection of a newcomer to rank 0 of a group that runs.
    Door = 7,
    /// A connection of `ringfold top` to a rank, for a look at the records of its host.
    Look = 8,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// The connection ended or timed out.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it does not speak ringfold's control protocol")]
    NotRingfold,
    #[error("it speaks version {0} of the control protocol, not {VERSION}")]
    Version(u16),
    #[error("it has build {theirs:016x} of ringfold, not {ours:016x}")]
    Build { ours: u64, theirs: u64 },
    #[error("it belongs to another job")]
    OtherJob,
    #[error("it was started as one of {0} ranks")]
    Size(u32),
    #[error("it holds another secret")]
    WrongSecret,
    #[error("it was dropped for newer connections before it had proven its membership")]
    Evicted,
}

impl Greeting {
    pub(crate) fn new(purpose: Purpose, job: &str, size: usize) -> Self {
        let [job @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _]: [u8; 32] =
            Sha256::digest(job.as_bytes()).into();
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let (purpose, side, build) = (purpose as u8, CALL, *BUILD);
        Self { version: VERSION, purpose, side, size, job, build }
    }

    /// Compares these sources too, which define the messages behind the greeting.
    pub(crate) fn with_sources(self, sources: &str) -> Self {
        Self { build: build_with(sources), ..self }
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.purpose;
        bytes[11] = self.side;
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..HEAD_BYTES].copy_from_slice(&self.job);
        bytes[HEAD_BYTES..].copy_from_slice(&self.build.to_le_bytes());
        bytes
    }

    /// Decodes a greeting. Returns `None` for bytes that are no ringfold greeting.
    #[must_use]
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let ([purpose, side], rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (job, build) = rest.split_first_chunk()?;
        let (version, size) = (u16::from_le_bytes(*version), u32::from_le_bytes(*size));
        let (purpose, side, job) = (*purpose, *side, *job);
        let build = u64::from_le_bytes(build.try_into().ok()?);
        (*magic == MAGIC).then_some(Self { version, purpose, side, size, job, build })
    }

    /// Reads the other side's greeting. That of another version has its head alone.
    pub(super) async fn read<S: AsyncRead + Unpin>(from: &mut S) -> Result<Self, HandshakeError> {
        let mut bytes = [0; GREETING_BYTES];
        from.read_exact(&mut bytes[..HEAD_BYTES]).await?;
        let head = Self::decode(&bytes).ok_or(HandshakeError::NotRingfold)?;
        if head.version != VERSION {
            return Ok(head);
        }
        from.read_exact(&mut bytes[HEAD_BYTES..]).await?;
        Self::decode(&bytes).ok_or(HandshakeError::NotRingfold)
    }

    /// The same greeting, from the side that listened.
    pub(super) fn answer(&self) -> Self {
        Self { side: ANSWER, ..self.clone() }
    }

    /// Whether the other side wants what this greeting offers.
    pub(super) fn is_wanted_by(&self, them: &Self) -> bool {
        (self.purpose, self.job) == (them.purpose, them.job)
    }

    /// The key for the handshake.
    pub(super) fn key(&self, secret: &Secret) -> [u8; 32] {
        secret.derive(&["control"])
    }

    /// Compares the greeting of the connecting side with ours.
    pub(super) fn check_call(&self, them: &Self) -> Result<(), HandshakeError> {
        if them.side == CALL { self.compare(them) } else { Err(HandshakeError::NotRingfold) }
    }

    /// Compares the greeting of the listening side with ours.
    pub(super) fn check_answer(&self, them: &Self) -> Result<(), HandshakeError> {
        if them.side == ANSWER { self.compare(them) } else { Err(HandshakeError::NotRingfold) }
    }

    /// Compares the job first, because the version and size of a foreign job do not matter.
    fn compare(&self, them: &Self) -> Result<(), HandshakeError> {
        if (them.job, them.purpose) != (self.job, self.purpose) {
            Err(HandshakeError::OtherJob)
        } else if them.version != self.version {
            Err(HandshakeError::Version(them.version))
        } else if them.build != self.build {
            Err(HandshakeError::Build { ours: self.build, theirs: them.build })
        } else if them.size != self.size {
            Err(HandshakeError::Size(them.size))
        } else {
            Ok(())
        }
    }

    #[cfg(test)]
    pub(crate) fn with_build(self, build: u64) -> Self {
        Self { build, ..self }
    }

    #[cfg(test)]
    pub(crate) fn with_version(self, version: u16) -> Self {
        Self { version, ..self }
    }
}
