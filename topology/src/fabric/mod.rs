//! The network between hosts as a graph: switches, the cables between them, and the ports of hosts.
//!
//! Readers of `ibnetdiscover`, `iblinkinfo`, LLDP and the like make a `Fabric`. `classify` says
//! what kind it is and which ports share a rail.

mod classification;
mod graph;
mod grid;
mod groups;
mod levels;
mod net;
mod nets;
mod oddities;
mod order;
mod pairs;
mod rails;
mod sets;
mod shape;
#[cfg(test)]
mod tests;
mod verdict;

use crate::digest::Digest;

pub use classification::{Classification, HostPlace, Kind, Oddity, Place, Ratio};
pub use verdict::classify;

/// A fabric as one reader saw it. Indices into `switches` and `ports` name its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Switches and routers.
    pub switches: Vec<Switch>,
    /// Ports of hosts, in any order.
    pub ports: Vec<EndPort>,
    /// Cables between switches, each once.
    pub cables: Vec<Cable>,
    /// The reader saw the switches of hosts, but not the cables between switches, as LLDP on
    /// hosts does. A cable that is absent then proves nothing.
    pub is_partial: bool,
}

/// A switch or a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// GUID, or the digest of an LLDP chassis identifier. Unique within a fabric.
    pub id: u64,
    /// The name that people gave it; empty if none.
    pub name: String,
    /// It joins subnets (an InfiniBand router).
    pub is_router: bool,
}

/// What a port of a host is known by in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortId {
    /// An InfiniBand port GUID.
    Guid(u64),
    /// A MAC address, in the lower 48 bits.
    Mac(u64),
    /// An IP address; IPv4 as a mapped IPv6 address.
    Address(u128),
    /// The digest of the host's and the device's name, where a reader knows nothing better.
    Named(u64),
}

impl PortId {
    /// The identifier of a port of which only the names of host and device are known.
    #[must_use]
    pub fn named(host: &str, device: &str) -> Self {
        Self::Named(Digest::new().bytes(host.as_bytes()).bytes(device.as_bytes()).finish())
    }
}

/// A port of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPort {
    /// Unique within a fabric.
    pub id: PortId,
    /// The host's name; empty if unknown.
    pub host: String,
    /// The device, as in `mlx5_0`, or the interface, as in `eth0`.
    pub device: String,
    /// The port's number on its device, from 1; 1 for interfaces.
    pub number: u8,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The switch at the other end of the cable, and its port; nothing if the port is down, or
    /// joined to another host directly.
    pub attached: Option<(usize, u16)>,
}

/// A cable between two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Both ends: switch and port number.
    pub ends: [(usize, u16); 2],
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
}
