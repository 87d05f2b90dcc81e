//! Encrypted messages of any length up to a cap, in fragments that fit Noise, and their encoding.
//!
//! On the wire a fragment is its length (u16) and its ciphertext. A message begins with its length
//! (u32) inside the first fragment.

use std::io;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::StatelessTransportState;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

/// The longest ciphertext that Noise carries, tag included.
const CIPHER_BYTES_MAX: usize = 65_535;
const TAG_BYTES: usize = 16;
/// The bytes of a fragment's length field.
const HEAD_BYTES: usize = 2;
const LENGTH_BYTES: usize = 4;

/// The receiving half of a connection.
pub(crate) struct Reader<R> {
    from: R,
    session: Arc<StatelessTransportState>,
    nonce: u64,
    /// The arriving fragment, with its length field.
    cipher: Vec<u8>,
    /// The number of bytes in `cipher` that have arrived.
    arrived: usize,
    plain: Vec<u8>,
    assembler: Assembler,
}

/// The sending half of a connection.
pub(crate) struct Writer<W> {
    to: W,
    session: Arc<StatelessTransportState>,
    nonce: u64,
    cipher: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Makes a reader of messages of up to `bytes_max` bytes.
    pub(crate) fn new(from: R, session: Arc<StatelessTransportState>, bytes_max: usize) -> Self {
        let (assembler, cipher) = (Assembler::new(bytes_max), vec![0; HEAD_BYTES]);
        Self { from, session, nonce: 0, cipher, arrived: 0, plain: Vec::new(), assembler }
    }

    /// Accepts messages of up to `bytes_max` bytes from now on.
    pub(crate) const fn set_bytes_max(&mut self, bytes_max: usize) {
        self.assembler.bytes_max = bytes_max;
    }

    /// The next message, or `None` if the sender closed the connection between two messages. Cancel
    /// safe: the reader keeps a partly received message for the next call.
    ///
    /// # Errors
    /// The connection broke, or a message does not come from the peer of the handshake.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let garbled = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        loop {
            if !self.fill().await? {
                return Ok(None);
            }
            let cipher = self.cipher.get(HEAD_BYTES..).unwrap_or_default();
            self.plain.resize(cipher.len(), 0);
            let read = self.session.read_message(self.nonce, cipher, &mut self.plain);
            let n = read.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            self.nonce += 1;
            self.cipher.truncate(HEAD_BYTES);
            self.arrived = 0;
            let fragment = self.plain.get(..n).unwrap_or_default();
            if let Some(message) = self.assembler.push(fragment).map_err(garbled)? {
                return Ok(Some(message));
            }
        }
    }

    /// Reads one whole fragment into `cipher`. Returns false if the sender closed the connection
    /// between two messages.
    async fn fill(&mut self) -> io::Result<bool> {
        loop {
            while self.arrived < self.cipher.len() {
                let n = self.from.read(&mut self.cipher[self.arrived..]).await?;
                if n == 0 && self.arrived == 0 && self.assembler.is_empty() {
                    return Ok(false);
                } else if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.arrived += n;
            }
            let Some((head, body)) = self.cipher.split_first_chunk::<HEAD_BYTES>() else {
                unreachable!("the head is never cut off");
            };
            let length = usize::from(u16::from_le_bytes(*head));
            if body.len() == length {
                return Ok(true);
            }
            self.cipher.resize(HEAD_BYTES + length, 0);
        }
    }
}

impl Reader<OwnedReadHalf> {
    /// Whether the kernel holds anything unread: bytes, or the connection's end.
    pub(crate) fn has_unread(&self) -> bool {
        let socket: &TcpStream = self.from.as_ref();
        let mut sockets = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
        // An interrupted poll counts as unread, so the caller polls again.
        poll(&mut sockets, Some(&Timespec::default())) != Ok(0)
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(crate) const fn new(to: W, session: Arc<StatelessTransportState>) -> Self {
        Self { to, session, nonce: 0, cipher: Vec::new() }
    }

    /// Sends a message of at most `limits::CONTROL_BYTES_MAX` bytes. Must not be cancelled.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).map_err(io::Error::other)?.to_le_bytes();
        let room = CIPHER_BYTES_MAX - TAG_BYTES - LENGTH_BYTES;
        let (first, rest) = message.split_at(message.len().min(room));
        self.fragment(&[&length[..], first].concat()).await?;
        for fragment in rest.chunks(CIPHER_BYTES_MAX - TAG_BYTES) {
            self.fragment(fragment).await?;
        }
        self.to.flush().await
    }

    /// Tells the reader that no more messages follow.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn close(mut self) -> io::Result<()> {
        self.to.shutdown().await
    }

    async fn fragment(&mut self, plain: &[u8]) -> io::Result<()> {
        let length = plain.len() + TAG_BYTES;
        self.cipher.resize(2 + length, 0);
        let (head, body) = self.cipher.split_at_mut(2);
        head.copy_from_slice(&u16::try_from(length).map_err(io::Error::other)?.to_le_bytes());
        self.session.write_message(self.nonce, plain, body).map_err(io::Error::other)?;
        self.nonce += 1;
        self.to.write_all(&self.cipher).await
    }
}

/// Assembles the fragments of a message. Its memory grows with the bytes received, not with the
/// announced length.
#[derive(Debug)]
pub struct Assembler {
    bytes_max: usize,
    announced: Option<usize>,
    bytes: Vec<u8>,
}

/// Why fragments do not form a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The announced length exceeds the limit.
    #[error("a message of {announced} bytes exceeds the limit of {bytes_max}")]
    TooLong {
        /// The announced length.
        announced: usize,
        /// The longest allowed length.
        bytes_max: usize,
    },
    /// The message has no length, or more bytes than announced.
    #[error("the fragments of a message do not match its length")]
    Garbled,
}

impl Assembler {
    /// Makes an assembler of messages of up to `bytes_max` bytes.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, announced: None, bytes: Vec::new() }
    }

    /// Whether no message has begun.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.announced.is_none()
    }

    /// Takes a fragment and returns the message that it completes.
    ///
    /// # Errors
    /// The message is too long or garbled. The connection cannot be used any more.
    pub fn push(&mut self, fragment: &[u8]) -> Result<Option<Vec<u8>>, BadFrame> {
        let (announced, fragment) = match self.announced {
            Some(announced) => (announced, fragment),
            None => {
                let (length, rest) = fragment.split_first_chunk().ok_or(BadFrame::Garbled)?;
                let announced = u32::from_le_bytes(*length) as usize;
                let bytes_max = self.bytes_max;
                if announced > bytes_max {
                    return Err(BadFrame::TooLong { announced, bytes_max });
                }
                (announced, rest)
            }
        };
        self.announced = Some(announced);
        if fragment.len() > announced - self.bytes.len() {
            return Err(BadFrame::Garbled);
        }
        self.bytes.extend_from_slice(fragment);
        if self.bytes.len() < announced {
            return Ok(None);
        }
        self.announced = None;
        Ok(Some(std::mem::take(&mut self.bytes)))
    }
}

/// Encodes a message for the wire.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "a Vec grows, and our messages have known shapes")]
    postcard::to_stdvec(message).expect("control messages are encodable")
}

/// Decodes a message. Returns `None` unless it takes all bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
