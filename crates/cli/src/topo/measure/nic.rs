//! The NICs of each host that measures.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use anyhow::ensure;
use ringfold::Config;
use ringfold_bootstrap::interface::{Choice, Family, Filter, alike, candidates, interfaces};
use ringfold_topology::Layout;
use ringfold_topology::discover::{self, Host};
use ringfold_topology::fabric::{EndPort, Fabric, PortId};
use ringfold_topology::machine::{Machine, Network};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

/// A NIC with its network interface. Probes of an RDMA port use TCP over its interface, which uses
/// the same cables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nic {
    pub(super) interface: String,
    /// Its RDMA device; empty if it has none.
    pub(super) device: String,
    /// The port's number on its device, from 1.
    pub(super) number: u8,
    /// The address of the interface that probes use.
    pub(super) address: IpAddr,
    /// Bits of the address that name its network, of 32 or 128.
    pub(super) prefix: u8,
    /// The GUID of an InfiniBand port; 0 of others.
    pub(super) guid: u64,
    /// The MAC address; 0 if none.
    pub(super) mac: u64,
    /// Gigabits per second; 0 if unknown.
    pub(super) gbps: u32,
}

impl Nic {
    /// Returns the network of the address, as comparable numbers.
    pub(super) fn subnet(&self) -> (u128, u8) {
        let (bits, all) = match self.address {
            IpAddr::V4(address) => (u32::from(address).into(), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let prefix = self.prefix.min(all);
        // An empty IPv6 prefix shifts all 128 bits away.
        (bits.checked_shr(u32::from(all - prefix)).unwrap_or(0), prefix)
    }

    /// Describes the NIC of an interface, with its speed and identifiers.
    fn new(choice: Choice, machine: &Machine) -> Self {
        let Choice { interface, address, prefix, .. } = choice;
        let known = machine.interfaces.iter().find(|it| it.name == interface);
        let mut ports =
            machine.nics.iter().flat_map(|nic| nic.ports.iter().map(move |it| (nic, it)));
        let port = ports.find(|(_, port)| port.interfaces.contains(&interface));
        let mut this = Self {
            device: String::new(),
            number: 1,
            guid: 0,
            mac: known.map_or(0, |it| it.mac),
            gbps: known.map_or(0, |it| it.gbps),
            interface,
            address,
            prefix,
        };
        if let Some((nic, port)) = port {
            this.device.clone_from(&nic.name);
            (this.number, this.gbps) = (port.number, port.gbps);
            if port.network == Network::InfiniBand {
                this.guid = port.guid;
            }
        }
        this
    }

    fn id(&self) -> PortId {
        if self.guid != 0 {
            return PortId::Guid(self.guid);
        }
        if self.mac != 0 {
            return PortId::Mac(self.mac);
        }
        PortId::Address(match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(address) => address.into(),
        })
    }
}

/// A rank's report about its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostInfo {
    pub(super) host: String,
    pub(super) nics: Vec<Nic>,
}

impl HostInfo {
    pub(super) fn of_this_host(config: &Config) -> anyhow::Result<Self> {
        let filter = config.socket_ifname.as_deref().map(Filter::from);
        let choices = alike(&candidates(&interfaces()?, filter.as_ref(), Family::Any, false)?);
        let machine = discover::machine(Path::new("/"));
        let nics: Vec<Nic> = choices.into_iter().map(|choice| Nic::new(choice, &machine)).collect();
        ensure!(!nics.is_empty(), "--measure: this host has no network interface to measure");
        let host = config.host_id.clone().unwrap_or_else(|| Host::this().name);
        Ok(Self { host, nics })
    }
}

/// A host, and the rank that measures there.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) rank: Rank,
    /// Unique among ends.
    pub(super) host: String,
    pub(super) nics: Vec<Nic>,
}

impl Endpoint {
    /// Picks the lowest rank of each host. A number distinguishes hosts with equal names.
    pub(super) fn all(layout: &Layout, infos: Vec<HostInfo>) -> Vec<Self> {
        let mut ends: Vec<Self> = Vec::new();
        let mut names = BTreeSet::new();
        for (rank, info) in infos.into_iter().enumerate() {
            let rank = Rank::at(rank);
            if ends.iter().any(|end| layout.same_host(end.rank, rank)) {
                continue;
            }
            let mut host = info.host.clone();
            for number in 2.. {
                if names.insert(host.clone()) {
                    break;
                }
                host = format!("{}#{number}", info.host);
            }
            ends.push(Self { rank, host, nics: info.nics });
        }
        ends
    }
}

/// Returns the ports of all ends. Probes do not see switches, so there are none.
pub(super) fn fabric(ends: &[Endpoint]) -> Fabric {
    let port = |end: &Endpoint, nic: &Nic| EndPort {
        id: nic.id(),
        host: end.host.clone(),
        device: if nic.device.is_empty() { nic.interface.clone() } else { nic.device.clone() },
        number: nic.number,
        gbps: nic.gbps,
        attached: None,
    };
    let ports = ends.iter().flat_map(|end| end.nics.iter().map(|nic| port(end, nic))).collect();
    Fabric { ports, is_partial: true, ..Fabric::default() }
}

#[cfg(test)]
mod tests {
    use ringfold_bootstrap::interface::Reason;
    use ringfold_topology::machine::{self, NicPort};

    use super::*;

    fn nic(network: Network) -> Nic {
        let interfaces = vec!["ib0".to_owned()];
        let port =
            NicPort { number: 2, network, gbps: 400, guid: 0xfe, interfaces, ..NicPort::default() };
        let device =
            machine::Nic { name: "mlx5_3".into(), ports: vec![port], ..machine::Nic::default() };
        let interface = machine::Interface {
            name: "ib0".into(),
            mac: 7,
            gbps: 10,
            ..machine::Interface::default()
        };
        let machine =
            Machine { nics: vec![device], interfaces: vec![interface], ..Machine::default() };
        let address = IpAddr::from([10, 0, 3, 1]);
        let choice = Choice { interface: "ib0".into(), address, prefix: 24, reason: Reason::Named };
        Nic::new(choice, &machine)
    }

    #[test]
    fn an_rdma_port_is_known_by_its_guid_or_mac() {
        let ends = [Network::InfiniBand, Network::Roce].map(|it| Endpoint {
            rank: Rank(0),
            host: "a".into(),
            nics: vec![nic(it)],
        });
        let fabric = fabric(&ends);
        let seen = fabric.ports.iter().map(|port| (port.id, &*port.device, port.number, port.gbps));
        let wanted = [PortId::Guid(0xfe), PortId::Mac(7)].map(|id| (id, "mlx5_3", 2, 400));
        assert!(seen.eq(wanted), "{fabric:?}");
    }

    #[test]
    fn addresses_of_one_network_have_one_subnet() {
        let at = |address: [u8; 4], prefix| {
            Nic { address: address.into(), prefix, ..nic(Network::Roce) }.subnet()
        };
        assert_eq!(at([10, 0, 3, 1], 24), at([10, 0, 3, 200], 24));
        assert_ne!(at([10, 0, 3, 1], 24), at([10, 0, 4, 1], 24));
        assert_ne!(at([10, 0, 3, 1], 24), at([10, 0, 3, 1], 16));
        assert_eq!(at([10, 0, 3, 1], 0), at([99, 0, 3, 1], 0));
    }
}
