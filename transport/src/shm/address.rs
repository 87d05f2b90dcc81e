//! The published address of a rank: its host, and the name of its waker in the abstract socket
//! namespace, which leaves no file behind.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use hmac::Mac as _;
use ringfold_types::Rank;
use rustix::net::SocketAddrUnix;
use sha2::{Digest as _, Sha256};

use crate::proof::JobKey;
use crate::sys::{WakerAddress, random};

/// Bytes of either half of an address, before encoding as hexadecimal digits.
const HALF_BYTES: usize = 16;
/// The purpose of the keys that tokens of wakers come from.
const WAKER: &[u8] = b"ringfold waker 1";

/// `host.name`, both as 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    name: String,
}

/// Whether the processes of two addresses, as `Pending::address` returns them, can share memory.
/// They can if they have the same host, user and network namespace, which abstract socket names
/// belong to.
#[must_use]
pub fn same_host(one: &str, other: &str) -> bool {
    match (Address::parse(one), Address::parse(other)) {
        (Some(one), Some(other)) => one.host == other.host,
        _ => false,
    }
}

impl Address {
    /// Makes a new address of this process.
    pub(super) fn fresh() -> io::Result<Self> {
        let name: [u8; HALF_BYTES] = random()?;
        Ok(Self { host: this_host(), name: hexadecimal(&name) })
    }

    pub(super) fn parse(address: &str) -> Option<Self> {
        let (host, name) = address.split_once('.')?;
        let is_half = |half: &str| {
            half.len() == 2 * HALF_BYTES && half.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let is_address = is_half(host) && is_half(name);
        is_address.then(|| Self { host: host.to_owned(), name: name.to_owned() })
    }

    /// The address of the waker of `rank`, to which this address belongs. Its token is the name
    /// under the job's key: a process that takes the name of an ended rank learns no other token.
    pub(super) fn waker(&self, key: &JobKey, rank: Rank) -> io::Result<WakerAddress> {
        let name = format!("ringfold-{}", self.name);
        let mut token = key.keyed(WAKER, rank, rank);
        token.update(name.as_bytes());
        let token = token.finalize().into_bytes();
        Ok(WakerAddress {
            name: SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            token: std::array::from_fn(|at| token[at]),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.host, self.name)
    }
}

/// Identifies this host, user and network namespace. The boot id alone is not enough: machines that
/// were started from one snapshot share it.
fn this_host() -> String {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |file| file.ino());
    let uname = rustix::system::uname();
    let user = rustix::process::geteuid().as_raw();
    let mut digest = Sha256::new();
    for part in [&boot[..], uname.nodename().to_bytes()] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.update(namespace.to_le_bytes());
    digest.update(user.to_le_bytes());
    hexadecimal(&digest.finalize()[..HALF_BYTES])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_know_their_host() {
        let (one, other) = (Address::fresh().unwrap(), Address::fresh().unwrap());
        assert_ne!(one, other);
        assert_eq!(Address::parse(&one.to_string()), Some(one.clone()));
        assert!(same_host(&one.to_string(), &other.to_string()));
        let elsewhere = Address { host: "0".repeat(32), ..other };
        assert!(!same_host(&one.to_string(), &elsewhere.to_string()));
        for garbage in
            ["", ".", "a.b", &"0".repeat(65), &format!("{}.{}", "g".repeat(32), "0".repeat(32))]
        {
            assert_eq!(Address::parse(garbage), None);
            assert!(!same_host(garbage, garbage));
        }
    }
}
