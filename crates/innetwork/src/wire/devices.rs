//! The RDMA devices of a host, as endpoints of aggregators and their children use them.

use std::io;
use std::net::IpAddr;

use ringfold_topology::machine::Machine;
use ringfold_types::Rank;
use ringfold_types::limits::AGGREGATOR_CHILDREN_MAX;

use ringfold_transport::rdma::{self, Rails, Rdma, Settings, Unusable};
use ringfold_transport::tcp::Tcp;

/// The ranks of an endpoint, whether or not each has a child.
pub(super) const ENDS: usize = AGGREGATOR_CHILDREN_MAX + 1;
/// The lanes of an endpoint.
pub(super) const LANES: usize = 1;

/// Devices that are known to work. Each endpoint has protection domains of its own, since the jobs
/// that an aggregator serves do not trust each other. A pair of ends without a working
/// rail in common uses the TCP endpoint below.
#[derive(Clone, Debug)]
pub struct RdmaDevices {
    settings: Settings,
    near: Option<IpAddr>,
    machine: Option<Machine>,
    rails: usize,
}

impl RdmaDevices {
    /// Describes devices. `near` is the address by which the job connects, `machine` says where the
    /// ports are, and `rails` is their number.
    #[must_use]
    pub const fn new(
        settings: Settings,
        near: Option<IpAddr>,
        machine: Option<Machine>,
        rails: usize,
    ) -> Self {
        Self { settings, near, machine, rails }
    }

    /// Looks for devices, as `new` describes them.
    ///
    /// # Errors
    /// The host has no usable port, or no libibverbs.
    pub fn find(
        settings: Settings,
        near: Option<IpAddr>,
        machine: Machine,
    ) -> Result<Self, Unusable> {
        let rails = Rails::open(&settings, near)?.ports().len();
        Ok(Self::new(settings, near, Some(machine), rails))
    }

    /// Returns the bytes that the link to one child takes at an aggregator.
    #[must_use]
    pub const fn link_bytes(&self) -> usize {
        self.rails * rdma::peer_bytes(LANES)
    }

    /// Makes the endpoint of `rank` with at most `links` links over its TCP endpoint. Blocks for
    /// some tenths of a second while devices open.
    pub(super) fn open(
        &self,
        tcp: Tcp,
        key: [u8; 32],
        (rank, links): (Rank, usize),
    ) -> io::Result<Rdma> {
        let mut rails = Rails::open(&self.settings, self.near).map_err(io::Error::other)?;
        if let Some(machine) = &self.machine {
            rails.locate(machine);
        }
        let mut settings = self.settings.clone();
        settings.apart = Some(links * self.link_bytes());
        let config = rdma::Config {
            key,
            rank,
            lanes: LANES,
            settings,
            reaches: vec![true; ENDS],
            may_use_tcp: true,
            placement: None,
        };
        Rdma::new(rails, tcp, config)
    }
}
