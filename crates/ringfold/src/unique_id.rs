//! Unique ids, by which ranks meet without a launcher.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringfold_bootstrap::{Secret, listen_at, show_connections};
use ringfold_transport::{Process, close_in_children};

use crate::config::Config;
use crate::error::Error;
use crate::setup::{InitError, id_address};

/// The beginning of every id, and its version.
const MAGIC: &str = "ringfold-id-";
const VERSION: &str = "1";

/// The most bytes of an id as text. An id with an IPv6 address has about 130.
const TEXT_BYTES_MAX: usize = 192;

/// Digits of a secret in hexadecimal.
const SECRET_DIGITS: usize = 64;

/// The id of a group of ranks that start without a launcher, in the manner of `ncclUniqueId`.
///
/// Rank 0 makes an id and passes its text to the other ranks by any means. Every rank then calls
/// [`Communicator::init_with_id`](crate::Communicator::init_with_id) with it. An id is good for one
/// communicator.
///
/// The text is one printable line (`Display` and `FromStr`) and holds the secret of the group, so
/// only the ranks may see it. `Debug` omits the secret.
///
/// ```
/// use ringfold::{Communicator, Config, Rank, ReduceOp, UniqueId};
///
/// let config = Config::from_env()?;
/// let id = UniqueId::new(&config)?;
/// let text = id.to_string();
/// let peer = std::thread::spawn(move || -> Result<[u32; 1], ringfold::Error> {
///     let (config, id) = (Config::from_env()?, text.parse().unwrap());
///     let mut comm = Communicator::init_with_id(&config, &id, Rank(1), 2)?;
///     let mut sum = [2_u32];
///     comm.all_reduce(&mut sum, ReduceOp::Sum)?;
///     Ok(sum)
/// });
/// let mut comm = Communicator::init_with_id(&config, &id, Rank(0), 2)?;
/// let mut sum = [1_u32];
/// comm.all_reduce(&mut sum, ReduceOp::Sum)?;
/// drop(comm);
/// assert_eq!((sum, peer.join().unwrap()?), ([3], [3]));
/// # Ok::<(), ringfold::Error>(())
/// ```
#[derive(Clone)]
pub struct UniqueId(Arc<Id>);

struct Id {
    address: SocketAddr,
    secret: Secret,
    /// In the process that made the id, the socket that listens at the address until rank 0 joins.
    listener: Mutex<Option<TcpListener>>,
    process: Process,
}

impl Drop for Id {
    fn drop(&mut self) {
        // A child made by `fork` has closed the socket, and its number may be that of another file.
        if !self.process.is_this() {
            let listener = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(listener.take());
        }
    }
}

/// The ids that this process has made. Rank 0 may read its id from the text, as other ranks do.
static MADE: Mutex<Vec<Weak<Id>>> = Mutex::new(Vec::new());

impl UniqueId {
    /// Makes an id with a fresh secret, and listens on a port for rank 0. Call it in the process of
    /// rank 0, and keep the id until [`Communicator::init_with_id`] has returned there. The port is
    /// on the interface that `config.socket_ifname` names, or else on that of the default route.
    ///
    /// # Errors
    /// [`Error::Init`] if no interface suits, no port is free, or the system has no randomness.
    ///
    /// [`Communicator::init_with_id`]: crate::Communicator::init_with_id
    pub fn new(config: &Config) -> Result<Self, Error> {
        show_connections(close_in_children);
        let listener = listen_at(id_address(config)?).map_err(InitError::UniqueId)?;
        let address = listener.local_addr().map_err(InitError::UniqueId)?;
        let secret = Secret::generate().map_err(InitError::UniqueId)?;
        let (listener, process) = (Mutex::new(Some(listener)), Process::this());
        let id = Arc::new(Id { address, secret, listener, process });
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|id| id.strong_count() > 0);
        made.push(Arc::downgrade(&id));
        Ok(Self(id))
    }

    /// The address on which rank 0 listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.0.secret
    }

    /// Takes the socket that listens for rank 0, if this process made the id and has not used it.
    pub(crate) fn take_listener(&self) -> Option<TcpListener> {
        if !self.0.process.is_this() {
            return None;
        }
        self.0.listener.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The id that this process has made with this address and secret.
    fn made(address: SocketAddr, secret: &Secret) -> Option<Self> {
        let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = made.iter().filter_map(Weak::upgrade);
        made.find(|id| id.address == address && id.secret == *secret).map(Self)
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAGIC}{VERSION}/{}/{}", self.0.address, *self.0.secret.to_hex())
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl FromStr for UniqueId {
    type Err = InvalidUniqueId;

    fn from_str(text: &str) -> Result<Self, InvalidUniqueId> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(InvalidUniqueId::Malformed);
        }
        let versioned = text.trim().strip_prefix(MAGIC).ok_or(InvalidUniqueId::Malformed)?;
        let (version, rest) = versioned.split_once('/').ok_or(InvalidUniqueId::Malformed)?;
        if version != VERSION {
            return Err(InvalidUniqueId::Version(version.to_owned()));
        }
        let (address, secret) = rest.split_once('/').ok_or(InvalidUniqueId::Malformed)?;
        let address = address.parse().map_err(|_| InvalidUniqueId::Malformed)?;
        let secret = Some(secret.as_bytes()).filter(|digits| digits.len() == SECRET_DIGITS);
        let secret = secret.and_then(Secret::parse).ok_or(InvalidUniqueId::Malformed)?;
        let made = Self::made(address, &secret);
        let other = || {
            let (listener, process) = (Mutex::new(None), Process::this());
            Self(Arc::new(Id { address, secret, listener, process }))
        };
        Ok(made.unwrap_or_else(other))
    }
}

/// A text that is not a [`UniqueId`] of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidUniqueId {
    /// The text has another form.
    #[error(
        "not a unique id: expected the line that rank 0 printed, {MAGIC}{VERSION}/ADDRESS/SECRET"
    )]
    Malformed,
    /// The id has another version.
    #[error(
        "a unique id of version {0}, and this rank reads version {VERSION}: start every rank with \
         the same version of ringfold"
    )]
    Version(String),
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::time::Duration;

    use ringfold_transport::fork_for_test;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    const CLOEXEC: SocketFlags = SocketFlags::CLOEXEC;

    #[test]
    fn the_text_of_an_id_is_read_back() {
        for address in ["10.0.0.1:4711", "[2001:db8::1]:65535"] {
            let id = format!("ringfold-id-1/{address}/{}", "a5".repeat(32));
            let id: UniqueId = id.parse().unwrap();
            let text = id.to_string();
            assert!(text.len() <= TEXT_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic()));
            let read: UniqueId = format!("{text}\n").parse().unwrap();
            assert_eq!((read.address(), read.to_string()), (address.parse().unwrap(), text));
            assert!(!format!("{id:?}").contains("a5a5"), "{id:?}");
        }
    }

    /// The port listens from the beginning, so no other process can bind it, not even one that
    /// reuses addresses.
    #[test]
    fn an_id_keeps_its_port_until_rank_0_takes_it() {
        let id = UniqueId::new(&Config::default()).unwrap();
        let bind = || {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, CLOEXEC, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &id.address())
        };
        assert!(id.address().is_ipv4());
        assert_eq!(bind(), Err(Errno::ADDRINUSE));
        let read: UniqueId = id.to_string().parse().unwrap();
        let listener = read.take_listener().expect("this process has made the id");
        assert_eq!(listener.local_addr().unwrap(), id.address());
        assert!(id.take_listener().is_none(), "there is one socket");
        drop(listener);
        assert_eq!(bind(), Ok(()));
        let other = format!("ringfold-id-1/{}/{}", id.address(), "a5".repeat(32));
        assert_eq!(other.parse::<UniqueId>().unwrap().secret().to_hex().as_str(), "a5".repeat(32));
    }

    #[test]
    fn a_child_made_by_fork_keeps_no_port_and_closes_no_other_file() {
        let id = UniqueId::new(&Config::default()).unwrap();
        let (address, text) = (id.address(), id.to_string());
        let number = id.0.listener.lock().unwrap().as_ref().unwrap().as_raw_fd();
        let (mut released, mut release) = std::io::pipe().unwrap();
        let child = fork_for_test(move || {
            assert!(id.take_listener().is_none() && text.parse::<UniqueId>().is_ok());
            // The lowest free number may be that of the socket.
            let mut files = vec![];
            while files.last().is_none_or(|file: &File| file.as_raw_fd() < number) {
                files.push(File::open("/dev/null").unwrap());
            }
            drop(id);
            assert!(files.iter().all(|file| file.metadata().is_ok()), "a file is closed");
            released.read_exact(&mut [0]).unwrap();
        });
        // The handler in the child may run a moment later.
        let is_free = (0..2_000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            TcpListener::bind(address).is_ok()
        });
        release.write_all(&[0]).unwrap();
        let child = Pid::from_raw(child.unwrap().try_into().unwrap());
        let (_, status) = waitpid(child, WaitOptions::empty()).unwrap().unwrap();
        assert!(is_free, "the child listens");
        assert_eq!(status.exit_status(), Some(0));
    }

    #[test]
    fn other_texts_are_refused() {
        let secret = "5e".repeat(32);
        let parse = |text: &str| text.parse::<UniqueId>().map(|_| ()).unwrap_err();
        let long = format!("ringfold-id-1/10.0.0.1:1/{}", "5e".repeat(100));
        for text in [
            "",
            "ringfold-id-1",
            "ringfold-id-1/10.0.0.1:1",
            &format!("ringfold-id-1/10.0.0.1/{secret}"),
            &format!("ringfold-id-1/host:1/{secret}"),
            &format!("ringfold-id-1/10.0.0.1:1/{}", &secret[1..]),
            &format!("ringfold-id-1/10.0.0.1:1/{}", "a".repeat(32)),
            &format!("ringfold-id-1/10.0.0.1:1/{}", "x".repeat(64)),
            &long,
        ] {
            assert_eq!(parse(text), InvalidUniqueId::Malformed, "{text}");
        }
        let newer = format!("ringfold-id-2/10.0.0.1:1/{secret}");
        assert_eq!(parse(&newer), InvalidUniqueId::Version("2".to_owned()));
    }
}
