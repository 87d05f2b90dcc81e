//! torchrun's store: a key-value server of its agent at `MASTER_ADDR:MASTER_PORT`. The ranks are
//! its clients, and share a secret there.
//!
//! A client first sends a byte and a number that tell it from a port scan. Then each request is a
//! byte and its arguments. A text is its length (u64, little-endian) and its bytes. *Compare and
//! set*, with an empty text to compare, stores a value if there is none, and answers with the value
//! that is there afterwards. So the first rank's secret becomes the secret of all.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::secret::Secret;

const VALIDATE: u8 = 0;
const VALIDATION: u32 = 0x3c85_f7ce;
const COMPARE_SET: u8 = 2;
/// The length of a secret in hex.
const SECRET_BYTES: usize = 64;
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
        let until = Instant::now() + timeout;
        loop {
            match self.attempt(&fresh, until.min(Instant::now() + ATTEMPT)) {
                Ok(secret) => return Ok(secret),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(e),
                Err(e) if Instant::now() + PAUSE >= until => return Err(e),
                Err(e) => {
                    tracing::debug!("trying torchrun's store again: {e}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Asks the store to store `fresh`, and returns the secret that it holds. Ends at `until`.
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
        let foreign = || {
            io::Error::new(io::ErrorKind::InvalidData, "it does not answer like torchrun's store")
        };
        if u64::from_le_bytes(length) != SECRET_BYTES as u64 {
            return Err(foreign());
        }
        let mut shared = Zeroizing::new([0; SECRET_BYTES]);
        read_until(&mut stream, &mut *shared, until)?;
        Secret::parse(&*shared).ok_or_else(foreign)
    }

    fn connect(&self, until: Instant) -> io::Result<TcpStream> {
        let mut last = io::ErrorKind::NotFound.into();
        let all: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        for (at, left) in all.iter().zip((1..=all.len()).rev()) {
            // Each address has a share of the time, because packets to it may be lost.
            let share = rest(until)? / u32::try_from(left).unwrap_or(u32::MAX);
            match TcpStream::connect_timeout(at, share.max(Duration::from_millis(1))) {
                Ok(stream) => return Ok(stream),
                Err(e) => last = e,
            }
        }
        Err(last)
    }
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

    use std::collections::HashMap;
    use std::net::{SocketAddr, TcpListener};
    use std::sync::{Arc, Mutex};

    use ringfold_harness::Folder;

    use super::*;
    use crate::discover::identity::{Identity, SecretSource};

    type Values = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

    fn text(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Serves a client as torch's `TCPStore` does, for the requests that matter here. A client must
    /// validate itself. The server drops a client that sends an unknown request.
    fn serve(mut stream: TcpStream, values: &Values) -> io::Result<()> {
        let mut opening = [0; 5];
        stream.read_exact(&mut opening)?;
        if opening != [0, 0xce, 0xf7, 0x85, 0x3c] {
            return Ok(());
        }
        loop {
            let mut request = [0];
            stream.read_exact(&mut request)?;
            let key = text(&mut stream)?;
            let answer = match request[0] {
                2 => {
                    let (expected, desired) = (text(&mut stream)?, text(&mut stream)?);
                    let mut values = values.lock().unwrap();
                    match values.get(&key) {
                        None if expected.is_empty() => {
                            values.insert(key, desired.clone());
                            desired
                        }
                        None => expected,
                        Some(is) if *is == expected => {
                            values.insert(key, desired.clone());
                            desired
                        }
                        Some(is) => is.clone(),
                    }
                }
                _ => return Ok(()),
            };
            stream.write_all(&(answer.len() as u64).to_le_bytes())?;
            stream.write_all(&answer)?;
        }
    }

    fn store() -> (SocketAddr, Values) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (at, values) = (listener.local_addr().unwrap(), Values::default());
        let served = Arc::clone(&values);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let values = Arc::clone(&served);
                thread::spawn(move || serve(stream.unwrap(), &values));
            }
        });
        (at, values)
    }

    fn at(at: SocketAddr, key: &str) -> TorchStore {
        TorchStore { host: at.ip().to_string(), port: at.port(), key: key.into() }
    }

    #[test]
    fn ranks_that_come_at_once_share_one_secret() {
        let (place, values) = store();
        let share = || at(place, "job").share_secret(Duration::from_secs(60)).unwrap();
        let secrets: Vec<Secret> = thread::scope(|scope| {
            let all: Vec<_> = (0..16).map(|_| scope.spawn(share)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
        assert_eq!(share(), secrets[0], "the next communicator of the job");
        let other = at(place, "other").share_secret(Duration::from_secs(60)).unwrap();
        assert_ne!(other, secrets[0]);
        assert_eq!(values.lock().unwrap()[&b"job"[..]], secrets[0].to_hex().as_bytes());
    }

    #[test]
    fn the_user_s_secret_comes_first_and_the_one_at_home_last() {
        let (place, _) = store();
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
        let (place, values) = store();
        values.lock().unwrap().insert(b"job".to_vec(), vec![b'x'; SECRET_BYTES]);
        let error = at(place, "job").share_secret(Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    /// A server whose first client is served by `first`. It serves the others like the store.
    fn store_after(first: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, Values) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (at, values) = (listener.local_addr().unwrap(), Values::default());
        let served = Arc::clone(&values);
        thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            thread::spawn(move || first(stream));
            for stream in listener.incoming() {
                let values = Arc::clone(&served);
                thread::spawn(move || serve(stream.unwrap(), &values));
            }
        });
        (at, values)
    }

    #[test]
    fn a_connection_that_is_reset_is_tried_again() {
        // Unread bytes make the system reset the connection.
        let (place, values) = store_after(|mut stream| stream.read_exact(&mut [0; 5]).unwrap());
        let secret = at(place, "job").share_secret(Duration::from_secs(60)).unwrap();
        assert_eq!(values.lock().unwrap()[&b"job"[..]], secret.to_hex().as_bytes());
    }

    #[test]
    fn an_answer_that_drips_takes_no_longer_than_the_deadline() {
        let drip = |mut stream: TcpStream| {
            // Sends the length of a secret and its digits, each byte within the time limit of one
            // read.
            let bytes = (SECRET_BYTES as u64).to_le_bytes();
            for byte in bytes.into_iter().chain([b'0'; SECRET_BYTES]) {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_secs(1));
            }
        };
        let (place, values) = store_after(drip);
        let began = Instant::now();
        assert!(at(place, "job").share_secret(Duration::from_secs(2)).is_err());
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        // With more time the client makes another attempt.
        let (place, more) = store_after(drip);
        let secret = at(place, "job").share_secret(Duration::from_secs(60)).unwrap();
        assert_eq!(more.lock().unwrap()[&b"job"[..]], secret.to_hex().as_bytes());
        assert!(values.lock().unwrap().is_empty());
    }
}
