//! The steps from a configuration to an endpoint: first the addresses, which peers must know, then
//! the endpoint itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use ringfold_types::Rank;
use ringfold_types::limits::{LANES_MAX, RANKS_MAX};
use rustix::io::Errno;

use super::endpoint::{Me, Tcp};
use super::route::{PeerRoutes, Route};
use super::socket::{Liveness, listener};
use crate::proof::JobKey;

/// The configuration of an endpoint, from which its addresses follow.
pub struct Config {
    /// The secret that the ranks of the job share.
    pub key: [u8; 32],
    /// This rank.
    pub rank: Rank,
    /// Ranks of the job, 1 to `limits::RANKS_MAX`.
    pub size: usize,
    /// Parallel streams to each peer, 1 to `limits::LANES_MAX`; the same on all ranks.
    pub lanes: usize,
    /// Addresses of this host to listen on; with rails, one per rail.
    pub bind: Vec<IpAddr>,
    /// Ports to choose from, for hosts behind a firewall; any port if `None`.
    pub ports: Option<RangeInclusive<u16>>,
    /// The time after which a silent connection counts as broken.
    pub liveness: Liveness,
}

/// The reason why an endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A number in the configuration is beyond its limit.
    #[error("rank {rank} of {size} with {lanes} lanes is beyond the limits")]
    Limits {
        /// This rank.
        rank: Rank,
        /// The number of ranks.
        size: usize,
        /// The number of lanes.
        lanes: usize,
    },
    /// The configuration has no address to listen on.
    #[error("no address to listen on")]
    NoAddress,
    /// The address does not belong to this host, or has no free port.
    #[error("cannot listen on {address} (give an address of this host and a free port)")]
    Bind {
        /// The address, with the last port that was tried.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The reason why an endpoint cannot use the table of peers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The table names a rank that the job does not have.
    #[error("the table of addresses has rank {rank}, but the job has only {size} ranks")]
    UnknownRank {
        /// The rank.
        rank: Rank,
        /// The number of ranks of the job.
        size: usize,
    },
    /// The operating system has no descriptors left.
    #[error("cannot set up events")]
    Events(#[source] io::Error),
}

/// An endpoint that listens and does not know its peers yet.
#[derive(Debug)]
pub struct Listening {
    me: Me,
    listeners: Vec<OwnedFd>,
    addresses: Vec<SocketAddr>,
}

impl Tcp {
    /// Begins to listen. Does not block. The caller must publish `Listening::addresses` to the
    /// other ranks.
    ///
    /// # Errors
    /// Those of `ListenError`.
    pub fn listen(config: Config) -> Result<Listening, ListenError> {
        Self::listen_through(config, None)
    }

    /// As `listen`. All connections take the named network interface, independent of routes.
    ///
    /// # Errors
    /// Those of `ListenError`.
    pub fn listen_through(
        config: Config,
        interface: Option<String>,
    ) -> Result<Listening, ListenError> {
        let Config { key, rank, size, lanes, bind, ports, liveness } = config;
        let fits = (1..=RANKS_MAX).contains(&size) && (1..=LANES_MAX).contains(&lanes);
        if !fits || rank.index() >= size {
            return Err(ListenError::Limits { rank, size, lanes });
        }
        if bind.is_empty() {
            return Err(ListenError::NoAddress);
        }
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in bind {
            let (listener, address) = bound(address, interface.as_deref(), ports.clone(), rank)?;
            listeners.push(listener);
            addresses.push(address);
        }
        let me = Me { key: JobKey::new(key), rank, size, lanes, interface, liveness };
        Ok(Listening { me, listeners, addresses })
    }
}

impl Listening {
    /// The addresses at which peers reach this rank, in the order of `Config::bind`.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Makes the endpoint for these peers and their addresses. Does not block and connects to none
    /// of them yet. Ranks that `peers` omits can connect to this rank, but this rank cannot send to
    /// them first.
    ///
    /// # Errors
    /// Those of `ConnectError`.
    pub fn connect(
        self,
        peers: impl IntoIterator<Item = (Rank, Vec<SocketAddr>)>,
    ) -> Result<Tcp, ConnectError> {
        let others = |addresses: Vec<SocketAddr>| {
            addresses.into_iter().map(|to| Route { from: None, to }).collect()
        };
        let ways =
            |(rank, addresses)| (rank, PeerRoutes { rails: Vec::new(), others: others(addresses) });
        self.connect_by_rail(peers.into_iter().map(ways))
    }

    /// As `connect`, with the routes to each peer. Lane k begins with rail k (modulo the number of
    /// rails), and falls back to other routes.
    ///
    /// # Errors
    /// Those of `ConnectError`.
    pub fn connect_by_rail(
        self,
        peers: impl IntoIterator<Item = (Rank, PeerRoutes)>,
    ) -> Result<Tcp, ConnectError> {
        let size = self.me.size;
        let mut table = vec![PeerRoutes::default(); size];
        for (rank, ways) in peers {
            let Some(entry) = table.get_mut(rank.index()) else {
                return Err(ConnectError::UnknownRank { rank, size });
            };
            *entry = ways;
        }
        Tcp::new(self.me, self.listeners, table).map_err(|errno| ConnectError::Events(errno.into()))
    }
}

/// Makes a listening socket on the first free port. Ranks of one host begin at different ports.
fn bound(
    address: IpAddr,
    interface: Option<&str>,
    ports: Option<RangeInclusive<u16>>,
    rank: Rank,
) -> Result<(OwnedFd, SocketAddr), ListenError> {
    let ports: Vec<u16> = ports.map_or_else(|| vec![0], Iterator::collect);
    let first = rank.index() % ports.len().max(1);
    let (before, after) = ports.split_at(first);
    let mut failed = (SocketAddr::new(address, 0), Errno::INVAL);
    for port in after.iter().chain(before) {
        let wanted = SocketAddr::new(address, *port);
        match listener(wanted, interface) {
            Ok(bound) => return Ok(bound),
            Err(errno) => failed = (wanted, errno),
        }
    }
    let (address, errno) = failed;
    Err(ListenError::Bind { address, source: errno.into() })
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, rank, size, lanes, bind, ports, liveness } = self;
        f.debug_struct("Config")
            .field("rank", rank)
            .field("size", size)
            .field("lanes", lanes)
            .field("bind", bind)
            .field("ports", ports)
            .field("liveness", liveness)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ringfold_types::Chain;

    use super::*;

    #[test]
    fn the_chain_of_an_error_names_each_cause_once() {
        let cause = || io::Error::other("the cause");
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let errors: [Box<dyn Error>; 2] = [
            Box::new(ListenError::Bind { address, source: cause() }),
            Box::new(ConnectError::Events(cause())),
        ];
        for error in &errors {
            let text = Chain(&**error).to_string();
            assert_eq!(text.matches("the cause").count(), 1, "{text}");
            assert_ne!(text, error.to_string());
        }
    }
}
