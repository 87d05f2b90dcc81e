//! Carriers: the transports that carry the chunks of data connections in place of the connections'
//! own TCP.

use std::fmt::{self, Debug};
use std::io;
use std::net::IpAddr;

use ringfold_topology::machine::Machine;
use ringfold_types::Rank;
use ringfold_types::limits::AGGREGATOR_CHILDREN_MAX;

use crate::contract::Transport;
use crate::rdma::{self, Rails, Rdma, Settings, Unusable};
use crate::tcp::Tcp;

/// The ranks of an endpoint, whether or not each has a child.
pub(super) const ENDS: usize = AGGREGATOR_CHILDREN_MAX + 1;
/// The lanes of an endpoint.
pub(super) const LANES: usize = 1;

/// A way to carry the chunks of data connections. A child and its aggregator use one if both have
/// it.
pub trait Carrier: Debug + Send + Sync {
    /// Returns the carrier's name for logs and errors, as in `rdma`.
    fn name(&self) -> &'static str;

    /// Returns the bytes that the link to one child takes at an aggregator.
    fn link_bytes(&self) -> usize;

    /// Makes the transport of an endpoint over its TCP endpoint. May block for some tenths of a
    /// second while devices open.
    ///
    /// # Errors
    /// The devices cannot be used now, or the system lacks descriptors.
    fn make_transport(&self, tcp: Tcp, end: End) -> io::Result<Box<dyn Transport>>;
}

/// An end of links.
#[derive(Clone, Copy)]
pub struct End {
    /// Its rank in the TCP endpoint.
    pub rank: Rank,
    /// The most links that it has at a time.
    pub links: usize,
    /// The group's key.
    pub key: [u8; 32],
}

impl Debug for End {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, links, key: _ } = self;
        f.debug_struct("End").field("rank", rank).field("links", links).finish_non_exhaustive()
    }
}

/// Carries chunks by RDMA. Each endpoint opens the devices anew. A pair of ends without a working
/// rail in common uses the TCP endpoint below.
#[derive(Clone, Debug)]
pub struct RdmaCarrier {
    settings: Settings,
    near: Option<IpAddr>,
    machine: Option<Machine>,
    rails: usize,
}

impl RdmaCarrier {
    /// Describes devices that are known to work. `near` is the address by which the job connects,
    /// `machine` says where the ports are, and `rails` is their number.
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
}

impl Carrier for RdmaCarrier {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn link_bytes(&self) -> usize {
        self.rails * rdma::peer_bytes(LANES)
    }

    fn make_transport(&self, tcp: Tcp, end: End) -> io::Result<Box<dyn Transport>> {
        let End { rank, links, key } = end;
        let mut rails = Rails::open(&self.settings, self.near).map_err(io::Error::other)?;
        if let Some(machine) = &self.machine {
            rails.locate(machine);
        }
        let mut settings = self.settings.clone();
        settings.bytes_max = settings.bytes_max.min(links * self.link_bytes());
        let config = rdma::Config {
            key,
            rank,
            lanes: LANES,
            settings,
            reaches: vec![true; ENDS],
            may_use_tcp: true,
            placement: None,
        };
        Ok(Box::new(Rdma::new(rails, tcp, config)?))
    }
}
