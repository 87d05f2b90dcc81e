//! torchrun's store: a key-value server of its agent at `MASTER_ADDR:MASTER_PORT`. The ranks are
//! its clients, and share a secret there. After a failure the store has a vote.
//!
//! A client first sends a byte and a number that tell it from a port scan. Then each request is a
//! byte and its arguments. A text is its length (u64, little-endian) and its bytes. *Compare and
//! set*, with an empty text to compare, stores a value if there is none, and answers with the value
//! that is there afterwards. So the first rank's secret becomes the secret of all. With a text that
//! no value equals, it stores nothing, and answers with the value that is there, or with the text.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::secret::Secret;

const VALIDATE: u8 = 0;
const VALIDATION: u32 = 0x3c85_f7ce;
const COMPARE_SET: u8 = 2;
/// The length of a secret or a digest in hex. No other value is stored.
const VALUE_BYTES: usize = 64;
/// No value.
const NO_VALUE: &str = "?";
/// The time limit of one attempt, no matter how slowly the other end answers.
const ATTEMPT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// The address of the store, and the key under which the ranks of this job share their secret.
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
    /// The secret that all ranks share there. Tries until `timeout` is over, because a rank without
    /// it could not join the others. The store accepts the same request twice. Blocks for at most
    /// `timeout`, besides the look-up of the host's name.
    ///
    /// # Errors
    /// Nothing listens there in time, or the listener is not torchrun's store.
    pub(crate) fn share_secret(&self, timeout: Duration) -> io::Result<Secret> {
        let fresh = Secret::generate()?.to_hex();
        self.attempts(timeout, |client| {
            let shared = client.compare_set(&self.key, "", &fresh)?;
            let is_whole = shared.len() == VALUE_BYTES;
            Secret::parse(&shared).filter(|_| is_whole).ok_or_else(foreign)
        })
    }

    /// Asks for the store's vote in `group` for these `members`, which are half of it: whether they
    /// were the first that asked. Both are digests. A store that has begun anew has forgotten who
    /// asked. It has forgotten this job's `secret` too, and so it has no vote. Blocks as
    /// `share_secret` does.
    ///
    /// # Errors
    /// As for `share_secret`.
    pub(crate) fn vote(
        &self,
        secret: &Secret,
        [group, members]: [[u8; 32]; 2],
        timeout: Duration,
    ) -> io::Result<bool> {
        let [group, members] = [group, members].map(|it| Secret::new(it).to_hex());
        let key = format!("ringfold-vote:{}", *group);
        self.attempts(timeout, |client| {
            let first = client.compare_set(&key, "", &members)?;
            // The order counts: if the secret is still there, so was the vote.
            let kept = client.compare_set(&self.key, NO_VALUE, NO_VALUE)?;
            Ok(*first == *members.as_bytes() && *kept == *secret.to_hex().as_bytes())
        })
    }

    /// Makes attempts until one succeeds, or `timeout` is over, or the listener is foreign.
    fn attempts<T>(
        &self,
        timeout: Duration,
        attempt: impl Fn(&mut Client) -> io::Result<T>,
    ) -> io::Result<T> {
        let until = Instant::now() + timeout;
        loop {
            let bound = until.min(Instant::now() + ATTEMPT);
            match Client::connect(self, bound).and_then(|mut client| attempt(&mut client)) {
                Ok(done) => return Ok(done),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(e),
                Err(e) if Instant::now() + PAUSE >= until => return Err(e),
                Err(e) => {
                    tracing::debug!("trying torchrun's store again: {e}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// A connection to the store, and when its use ends.
struct Client {
    stream: TcpStream,
    until: Instant,
}

impl Client {
    fn connect(store: &TorchStore, until: Instant) -> io::Result<Self> {
        let mut last = io::ErrorKind::NotFound.into();
        let all: Vec<_> = (store.host.as_str(), store.port).to_socket_addrs()?.collect();
        for (at, left) in all.iter().zip((1..=all.len()).rev()) {
            // Each address has a share of the time, because packets to it may be lost.
            let share = rest(until)? / u32::try_from(left).unwrap_or(u32::MAX);
            match TcpStream::connect_timeout(at, share.max(Duration::from_millis(1))) {
                Ok(mut stream) => {
                    stream.set_nodelay(true)?;
                    stream.write_all(&[&[VALIDATE][..], &VALIDATION.to_le_bytes()].concat())?;
                    return Ok(Self { stream, until });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Stores `desired` under `key` if the value there is `expected`, or if there is none and
    /// `expected` is empty. Returns the value that is there now, or `expected` if there is none.
    fn compare_set(
        &mut self,
        key: &str,
        expected: &str,
        desired: &str,
    ) -> io::Result<Zeroizing<Vec<u8>>> {
        let mut request =
            Zeroizing::new(Vec::with_capacity(1 + 3 * 8 + 4 * VALUE_BYTES + key.len()));
        request.push(COMPARE_SET);
        for text in [key, expected, desired] {
            request.extend((text.len() as u64).to_le_bytes());
            request.extend(text.as_bytes());
        }
        self.stream.set_write_timeout(Some(rest(self.until)?))?;
        self.stream.write_all(&request)?;
        let mut length = [0; 8];
        read_until(&mut self.stream, &mut length, self.until)?;
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > VALUE_BYTES {
            return Err(foreign());
        }
        let mut value = Zeroizing::new(vec![0; length]);
        read_until(&mut self.stream, &mut value, self.until)?;
        Ok(value)
    }
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not answer like torchrun's store")
}

/// The time until `until`. Sockets require a time above zero.
fn rest(until: Instant) -> io::Result<Duration> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

/// Fills `bytes` before `until`. A timeout of the socket alone would restart with each byte.
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
mod tests {
    //! Tests the client against a server in threads that answers as torch's store does.

    use std::net::{SocketAddr, TcpListener};

    use ringfold_harness::{Folder, TorchStore as Server};

    use super::*;
    use crate::discover::identity::{Identity, SecretSource};

    fn at(at: SocketAddr, key: &str) -> TorchStore {
        TorchStore { host: at.ip().to_string(), port: at.port(), key: key.into() }
    }

    #[test]
    fn ranks_that_come_at_once_share_one_secret() {
        let server = Server::start();
        let place = server.address();
        let share = || at(place, "job").share_secret(Duration::from_secs(60)).unwrap();
        let secrets: Vec<Secret> = thread::scope(|scope| {
            let all: Vec<_> = (0..16).map(|_| scope.spawn(share)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
        assert_eq!(share(), secrets[0], "the next communicator of the job");
        let other = at(place, "other").share_secret(Duration::from_secs(60)).unwrap();
        assert_ne!(other, secrets[0]);
        assert_eq!(server.get("job").unwrap(), secrets[0].to_hex().as_bytes());
    }

    #[test]
    fn the_user_s_secret_comes_first_and_the_one_at_home_last() {
        let place = Server::start().address();
        let folder = Folder::new();
        let home = folder.path();
        let secret = |place, more: Option<&str>| {
            let secret_source = SecretSource::TorchStore(at(place, "job"));
            let mut identity = Identity { secret_source, ..Identity::alone() };
            let variable = |name: &str| match name {
                "HOME" => Some(home.to_str().unwrap().into()),
                "RINGFOLD_SECRET" => more.map(Into::into),
                _ => None,
            };
            identity.secret(&variable, Duration::from_secs(1)).unwrap()
        };
        let shared = secret(place, None);
        assert_eq!(shared, at(place, "job").share_secret(Duration::from_secs(60)).unwrap());
        assert!(!home.join(".ringfold").exists());
        let given = Secret::new([9; 32]);
        assert_eq!(secret(place, Some(given.to_hex().as_str())), given);
        let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        assert_eq!(secret(nobody, None), secret(nobody, None));
        assert!(home.join(".ringfold/secret").exists());
    }

    #[test]
    fn a_foreign_service_is_an_error() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = listener.local_addr().unwrap();
        let rude = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        assert!(at(place, "job").share_secret(Duration::from_secs(5)).is_err());
        rude.join().unwrap();
        let server = Server::start();
        server.set("job", &[b'x'; VALUE_BYTES]);
        let error = at(server.address(), "job").share_secret(Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_connection_that_is_reset_is_tried_again() {
        // Unread bytes make the system reset the connection.
        let server = Server::start_after(|stream| {
            stream.read_exact(&mut [0; 5]).unwrap();
            false
        });
        let secret = at(server.address(), "job").share_secret(Duration::from_secs(60)).unwrap();
        assert_eq!(server.get("job").unwrap(), secret.to_hex().as_bytes());
    }

    #[test]
    fn an_answer_that_drips_takes_no_longer_than_the_deadline() {
        let drip = |stream: &mut TcpStream| {
            // Sends the length of a secret and its digits, each byte within the time limit of one
            // read.
            let bytes = (VALUE_BYTES as u64).to_le_bytes();
            for byte in bytes.into_iter().chain([b'0'; VALUE_BYTES]) {
                if stream.write_all(&[byte]).is_err() {
                    return false;
                }
                thread::sleep(Duration::from_secs(1));
            }
            false
        };
        let server = Server::start_after(drip);
        let began = Instant::now();
        assert!(at(server.address(), "job").share_secret(Duration::from_secs(2)).is_err());
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert_eq!(server.get("job"), None);
        // With more time the client makes another attempt.
        let server = Server::start_after(drip);
        let secret = at(server.address(), "job").share_secret(Duration::from_secs(60)).unwrap();
        assert_eq!(server.get("job").unwrap(), secret.to_hex().as_bytes());
    }

    #[test]
    fn the_first_members_that_ask_have_the_vote_as_long_as_the_store_remembers() {
        let server = Server::start();
        let (store, limit) = (at(server.address(), "job"), Duration::from_secs(60));
        let secret = store.share_secret(limit).unwrap();
        let vote =
            |group, members| store.vote(&secret, [[group; 32], [members; 32]], limit).unwrap();
        assert!(vote(1, 1) && vote(1, 1), "the same members may ask again");
        assert!(!vote(1, 2), "the others may not");
        assert!(vote(2, 2), "another group has a vote of its own");
        server.forget();
        assert!(
            !vote(1, 2),
            "the first members may go on by the vote that the store has forgotten"
        );
        assert_ne!(store.share_secret(limit).unwrap(), secret);
        assert!(!vote(1, 2), "the ranks of the next job have another secret");
    }
}
