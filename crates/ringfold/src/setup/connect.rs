//! Opens transports: first the endpoints on which this rank listens, then the way to each peer.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ringfold_bootstrap::Control;
use ringfold_bootstrap::interface::Choice;
use ringfold_lend::placement;
use ringfold_transport::rdma::{self, Rails, Rdma};
use ringfold_transport::shm::{self, Shm};
use ringfold_transport::tcp::{self, Tcp};
use ringfold_types::Rank;
use ringfold_types::limits::LANES_MAX;

use super::discover::Listed;
use super::error::InitError;
use super::routes::Routes;
use crate::config::Config;
use crate::router::{Router, Via};

/// This rank's membership in a group.
#[derive(Clone, Copy)]
pub(super) struct Membership {
    /// This rank.
    pub(super) rank: Rank,
    /// The number of ranks.
    pub(super) size: usize,
    /// The key by which members prove themselves to each other.
    pub(super) key: [u8; 32],
}

/// The endpoints on which a rank listens for the other members of one group.
#[derive(Debug)]
pub(super) struct Endpoints {
    shm: Option<shm::Pending>,
    pub(super) rails: Option<Rails>,
    tcp: Option<tcp::Listening>,
    /// The number of addresses of interfaces. Those of `Discovered::others` follow.
    listed: usize,
}

impl Endpoints {
    /// Begins to listen by every allowed transport. RDMA listens by TCP.
    ///
    /// # Errors
    /// An allowed transport cannot listen.
    pub(super) fn open(
        config: &Config,
        membership: Membership,
        (interfaces, others): (&[Listed], &[Choice]),
        rails: Option<Rails>,
    ) -> Result<Self, InitError> {
        let may_listen = config.transports.tcp || rails.is_some();
        let listed = interfaces.iter().map(|it| it.choice.address);
        let addresses: Vec<IpAddr> = listed.chain(others.iter().map(|it| it.address)).collect();
        let tcp = may_listen && !addresses.is_empty();
        let tcp = tcp.then(|| open_tcp(addresses, membership)).transpose()?;
        Ok(Self { shm: open_shm(config, membership)?, rails, tcp, listed: interfaces.len() })
    }

    /// The address of this rank's shared memory; empty if it shares none.
    pub(super) fn shm_address(&self) -> String {
        self.shm.as_ref().map_or_else(String::new, shm::Pending::address)
    }

    /// The kinds of this rank's RDMA networks, one letter each.
    pub(super) fn rdma_networks(&self) -> String {
        self.rails.as_ref().map_or_else(String::new, Rails::networks)
    }

    /// The addresses at which this rank listens for TCP, in the order of its interfaces.
    pub(super) fn listening(&self) -> &[SocketAddr] {
        let all = self.tcp.as_ref().map_or(&[][..], tcp::Listening::addresses);
        &all[..self.listed.min(all.len())]
    }

    /// The first of these addresses, and those on which the rank listens beside them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let all = self.tcp.as_ref().map_or(&[][..], tcp::Listening::addresses);
        let others = all.iter().skip(self.listed);
        all.iter().take(1).chain(others).copied()
    }

    /// Connects to every peer. All members call it. Blocks until `deadline` at the latest, or until
    /// `control` has a failure cause. Peers' logs name this host `host`.
    ///
    /// # Errors
    /// A peer on this host does not connect, or the process lacks descriptors.
    pub(super) fn connect(
        self,
        config: &Config,
        Membership { rank, size, key }: Membership,
        host: &str,
        routes: Routes,
        (control, deadline): (&Control, Instant),
    ) -> Result<Router, InitError> {
        let names = routes.names();
        let Routes { shm: by_shm, tcp: by_tcp, has_rdma, may_use_tcp } = routes;
        let mut transports = Vec::new();
        let mut route = vec![0; size];
        if let Some(shm) = self.shm.filter(|_| !by_shm.is_empty()) {
            by_shm.iter().for_each(|(peer, _)| route[peer.index()] = transports.len());
            let stop = control.wake_fd().try_clone_to_owned().map_err(InitError::Descriptors)?;
            let shm = shm.until_readable(stop).connect(&by_shm, deadline);
            let shm = shm.map_err(|source| match control.failure_cause() {
                Some(cause) => InitError::Failed { rank, cause },
                None => InitError::Shm { rank, source },
            })?;
            transports.push(Via::Memory(Box::new(shm)));
        }
        if let Some(tcp) = self.tcp.filter(|_| !by_tcp.is_empty()) {
            by_tcp.iter().for_each(|(peer, _)| route[peer.index()] = transports.len());
            let tcp = tcp.connect_by_rail(by_tcp)?;
            transports.push(Via::Messages(match self.rails.filter(|_| has_rdma.contains(&true)) {
                Some(rails) => {
                    let mut settings = config.rdma();
                    host.clone_into(&mut settings.host);
                    let config = rdma::Config {
                        key,
                        rank,
                        lanes: LANES_MAX,
                        settings,
                        reaches: has_rdma,
                        may_use_tcp,
                        placement: Some(placement()),
                    };
                    Box::new(Rdma::new(rails, tcp, config).map_err(InitError::Descriptors)?)
                }
                None => Box::new(tcp),
            }));
        }
        Ok(Router::new(transports, route, names))
    }
}

/// Begins to listen for ranks of this host, if shared memory is allowed.
fn open_shm(
    config: &Config,
    Membership { rank, key, .. }: Membership,
) -> Result<Option<shm::Pending>, InitError> {
    if !config.transports.shm {
        return Ok(None);
    }
    let (lanes, offers) = (LANES_MAX, config.shm_cma);
    let pending = Shm::listen(shm::Config { key, rank, lanes, offers });
    pending.map(Some).map_err(|e| InitError::Shm { rank, source: e.into() })
}

/// Begins to listen for TCP.
fn open_tcp(
    bind: Vec<IpAddr>,
    Membership { rank, size, key }: Membership,
) -> Result<tcp::Listening, InitError> {
    let listening = Tcp::listen(tcp::Config {
        key,
        rank,
        size,
        lanes: LANES_MAX,
        bind,
        ports: None,
        liveness: tcp::Liveness::default(),
    });
    listening.map_err(|source| InitError::Listen { rank, source })
}
