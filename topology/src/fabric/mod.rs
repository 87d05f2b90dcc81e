//! The network between hosts as a graph: switches, the cables between them, and the ports of hosts.
//!
//! Readers of `ibnetdiscover`, `iblinkinfo`, LLDP and the like make a `Fabric`. `classify`
//! determines its kind, and the ports that share a rail.

mod classification;
mod classify;
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

use ringfold_types::Digest;

pub use classification::{Classification, HostPlace, Kind, Oddity, Place, Ratio};
pub use classify::classify;

/// A fabric as one reader saw it. Its switches and ports are referred to by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Switches and routers.
    pub switches: Vec<Switch>,
    /// Ports of hosts, in any order.
    pub ports: Vec<EndPort>,
    /// Cables between switches, each once.
    pub cables: Vec<Cable>,
    /// Whether the reader saw the switches of hosts, but not the cables between switches, as LLDP
    /// on hosts does. Then an absent cable proves nothing.
    pub is_partial: bool,
}

/// A switch or a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// GUID, or the digest of an LLDP chassis identifier. Unique within a fabric.
    pub id: u64,
    /// Its name for people; empty if none.
    pub name: String,
    /// Whether it connects subnets (an InfiniBand router).
    pub is_router: bool,
}

/// The identifier of a host's port in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortId {
    /// An InfiniBand port GUID.
    Guid(u64),
    /// A MAC address, in the lower 48 bits.
    Mac(u64),
    /// An IP address; IPv4 as a mapped IPv6 address.
    Address(u128),
    /// The digest of the host's and the device's name, for readers without a better identifier.
    Named(u64),
}

impl PortId {
    /// The identifier of a port of which only the names of host and device are known.
    #[must_use]
    pub fn named(host: &str, device: &str) -> Self {
        Self::Named(Digest::default().bytes(host.as_bytes()).bytes(device.as_bytes()).finish())
    }
}

/// A port of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPort {
    /// Its identifier, unique within a fabric.
    pub id: PortId,
    /// The host's name; empty if unknown.
    pub host: String,
    /// The device, such as `mlx5_0`, or the interface, such as `eth0`.
    pub device: String,
    /// The port's number on its device, from 1; 1 for interfaces.
    pub number: u8,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The switch at the other end of the cable, and its port. `None` if the port is down, or
    /// connected directly to another host.
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
