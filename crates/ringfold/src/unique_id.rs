//! Unique ids, by which ranks meet without a launcher.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;

use ringfold_bootstrap::Secret;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

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
pub struct UniqueId {
    address: SocketAddr,
    secret: Secret,
    /// A bound socket that reserves the port in the process of rank 0.
    _reservation: Option<Arc<OwnedFd>>,
}

impl UniqueId {
    /// Makes an id with a fresh secret and reserves a port for rank 0. Call it in the process of
    /// rank 0, and keep the id until [`Communicator::init_with_id`] has returned there. The port is
    /// on the interface that `config.socket_ifname` names, or else on that of the default route.
    ///
    /// # Errors
    /// [`Error::Init`] if no interface suits, no port is free, or the system has no randomness.
    ///
    /// [`Communicator::init_with_id`]: crate::Communicator::init_with_id
    pub fn new(config: &Config) -> Result<Self, Error> {
        let ip = id_address(config)?;
        let (address, reserved) = reserve(ip).map_err(InitError::UniqueId)?;
        let secret = Secret::generate().map_err(InitError::UniqueId)?;
        Ok(Self { address, secret, _reservation: Some(Arc::new(reserved)) })
    }

    /// The address on which rank 0 listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }
}

/// Binds a socket to a free port of `ip`. The socket does not listen: rank 0 binds its listener to
/// the same port later, while the kernel gives the port to no other process.
fn reserve(ip: IpAddr) -> io::Result<(SocketAddr, OwnedFd)> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::new(ip, 0))?;
    let address = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((address, socket))
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAGIC}{VERSION}/{}/{}", self.address, *self.secret.to_hex())
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId").field("address", &self.address).finish_non_exhaustive()
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
        Ok(Self { address, secret, _reservation: None })
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
    use super::*;

    #[test]
    fn the_text_of_an_id_is_read_back() {
        for address in ["10.0.0.1:4711", "[2001:db8::1]:65535"] {
            let address = address.parse().unwrap();
            let id = UniqueId { address, secret: Secret::new([0xa5; 32]), _reservation: None };
            let text = id.to_string();
            assert!(text.len() <= TEXT_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic()));
            let read: UniqueId = format!("{text}\n").parse().unwrap();
            assert_eq!((read.address, read.to_string()), (address, text));
            assert!(!format!("{id:?}").contains("a5a5"), "{id:?}");
        }
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
