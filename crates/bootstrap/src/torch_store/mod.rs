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
/// One attempt takes no longer, however slowly the other end answers.
const ATTEMPT: Duration = Duration::from_secs(5);
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
    /// The secret that all ranks share there. Tries until `timeout` is over, since a rank without
    /// it would not meet the others; the store takes the same request twice. Blocks for at most
    /// `timeout`, besides the look-up of the host's name.
    ///
    /// # Errors
    /// Nothing listens there in time, or it is not torchrun's store.
    pub(crate) fn share_secret(&self, timeout: Duration) -> io::Result<Secret> {
        let fresh = Secret::generate()?.to_hex();
        let until = Instant::now() + timeout;
        loop {
            match self.attempt(&fresh, until.min(Instant::now() + ATTEMPT)) {
                Ok(secret) => return Ok(secret),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(e),
                Err(e) if Instant::now() + PAUSE >= until => return Err(e),
                Err(e) => {
                    tracing::debug!("torchrun's store is tried again: {e}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Asks the store to take `fresh`, and returns the secret that it holds. Ends at `until`.
    fn attempt(&self, fresh: &str, until: Instant) -> io::Result<Secret> {
        let mut stream = self.connect(until)?;
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
        stream.set_write_timeout(Some(rest(until)?))?;
        stream.write_all(&request)?;
        let mut length = [0; 8];
        read_until(&mut stream, &mut length, until)?;
        let foreign = || io::Error::new(io::ErrorKind::InvalidData, "it answers something else");
        if u64::from_le_bytes(length) != SECRET_BYTES as u64 {
            return Err(foreign());
        }
        let mut shared = Zeroizing::new([0; SECRET_BYTES]);
        read_until(&mut stream, &mut *shared, until)?;
        Secret::parse(&*shared).ok_or_else(foreign)
    }

    fn connect(&self, until: Instant) -> io::Result<TcpStream> {
        let mut last = io::ErrorKind::NotFound.into();
        for at in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&at, rest(until)?) {
                Ok(stream) => return Ok(stream),
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

/// The time until then, which sockets want above zero.
fn rest(until: Instant) -> io::Result<Duration> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

/// Fills `bytes`. A timeout of the socket alone would begin anew with each byte.
fn read_until(stream: &mut TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(rest(until)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
