//! torchrun's store: a key-value server of its agent at `MASTER_ADDR:MASTER_PORT`, of which rank
//! processes are clients. The ranks share a secret there.
//!
//! A client first sends a byte and a number that tell it from a port scan. Then each request is a
//! byte and its arguments; a text is its length (u64, little-endian) and its bytes. *Compare and
//! set*, with an empty text to compare, stores a value where there is none, and answers with what
//! is there afterwards: so the first rank's secret is everyone's.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::secret::Secret;

const VALIDATE: u8 = 0;
const VALIDATION: u32 = 0x3c85_f7ce;
const COMPARE_SET: u8 = 2;
/// A secret in hex.
const SECRET_BYTES: usize = 64;
/// An answer takes no longer, or the other end is no such store.
const ANSWER: Duration = Duration::from_secs(5);
/// The store listens before any rank is started; a network may need a moment all the same.
const SEARCH_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Where the store is, and under which key the ranks of this job share their secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchStore {
    /// The host of the store.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The key, which no other job uses.
    pub key: String,
}

impl TorchStore {
    /// The secret that all ranks share there. Blocks for at most `timeout`, and a few seconds.
    ///
    /// # Errors
    /// Nothing listens there, or it is not torchrun's store.
    pub(crate) fn share_secret(&self, timeout: Duration) -> io::Result<Secret> {
        let until = Instant::now() + timeout.min(SEARCH_MAX);
        let stream = loop {
            match self.connect() {
                Ok(stream) => break stream,
                Err(e) if Instant::now() + PAUSE >= until => return Err(e),
                Err(_) => thread::sleep(PAUSE),
            }
        };
        let fresh = Secret::generate()?.to_hex();
        let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes()[..], text].concat();
        let request = Zeroizing::new(
            [
                &[VALIDATE][..],
                &VALIDATION.to_le_bytes(),
                &[COMPARE_SET],
                &text(self.key.as_bytes()),
                &text(b""),
                &Zeroizing::new(text(fresh.as_bytes())),
            ]
            .concat(),
        );
        (&stream).write_all(&request)?;
        let mut length = [0; 8];
        (&stream).read_exact(&mut length)?;
        let foreign = || io::Error::new(io::ErrorKind::InvalidData, "it answers something else");
        if u64::from_le_bytes(length) != SECRET_BYTES as u64 {
            return Err(foreign());
        }
        let mut shared = Zeroizing::new([0; SECRET_BYTES]);
        (&stream).read_exact(&mut *shared)?;
        Secret::parse(&*shared).ok_or_else(foreign)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::ErrorKind::NotFound.into();
        for at in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&at, ANSWER) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(ANSWER))?;
                    stream.set_write_timeout(Some(ANSWER))?;
                    return Ok(stream);
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests;
