//! The network of a port: its interface, prefix length, identity and rate.

use std::net::Ipv6Addr;

use ringfold_topology::fabric::{Place, PortId};
use ringfold_topology::machine::{Interface, Machine};
use ringfold_types::limits::{PATHS_MAX, RAILS_MAX};

use super::sys::{Gid, GidKind};

/// The most flows between two ports: queue pairs of one pair of rails.
const FLOWS_MAX: usize = PATHS_MAX / RAILS_MAX;

/// The network of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) interface: String,
    pub(super) prefix: Option<u8>,
    pub(super) id: PortId,
    /// Gigabits per second; 0 if unknown.
    pub(super) gbps: u32,
    /// The ports of the bond that the interface is, or lies on; 1 without a bond. Each flow takes
    /// one of them.
    pub(super) flows: u8,
    pub(super) declared: Option<Place>,
}

impl Wire {
    /// Makes the wire of a port with that GID, from the device's data. `first` is the port's GID 0.
    pub(super) fn new(gid: &Gid, first: &Gid, declared: Option<Place>) -> Self {
        let [bits, first] = [gid, first].map(|gid| Ipv6Addr::from(gid.bytes).to_bits());
        let guid = first & u128::from(u64::MAX);
        let id = match gid.kind {
            GidKind::InfiniBand => PortId::Guid(u64::try_from(guid).unwrap_or(0)),
            _ => PortId::Address(bits),
        };
        Self { interface: String::new(), prefix: None, id, gbps: 0, flows: 1, declared }
    }

    /// Adds the kernel's data about the port, if there are any.
    pub(super) fn locate(&mut self, machine: &Machine, (device, port): (&str, u8), gid: &Gid) {
        let ports = machine.nics.iter().filter(|nic| nic.name == device).flat_map(|nic| &nic.ports);
        let Some(shown) = ports.into_iter().find(|it| it.number == port) else { return };
        self.gbps = shown.gbps;
        if gid.kind == GidKind::InfiniBand {
            return;
        }
        let has_address =
            |it: &&Interface| it.addresses.iter().any(|(address, _)| *address == gid.bytes);
        let by_gid = shown.gids.iter().find(|it| it.bytes == gid.bytes && !it.interface.is_empty());
        // Routes tell the prefix even where several interfaces in one network hide each other's
        // addresses.
        let by_route = by_gid.and_then(|it| it.prefix);
        let named = by_gid.map(|it| &it.interface).or_else(|| shown.interfaces.first());
        let interfaces = &machine.interfaces;
        let own = interfaces.iter().find(|it| named.is_some_and(|named| it.name == *named));
        let by_address = || interfaces.iter().find(has_address);
        let by_address = || by_route.map_or_else(by_address, |_| None);
        let found = own.filter(has_address).or_else(by_address).or(own);
        let Some(interface) = found else { return };
        self.interface.clone_from(&interface.name);
        let parts = |bond: &String| {
            let is_part = |it: &&Interface| it.pci.is_some() && it.master.as_ref() == Some(bond);
            interfaces.iter().filter(is_part).count()
        };
        let bonds = std::iter::once(&interface.name).chain(&interface.below);
        let flows = bonds.map(parts).max().unwrap_or(1).clamp(1, FLOWS_MAX);
        self.flows = u8::try_from(flows).unwrap_or(1);
        let address = interface.addresses.iter().find(|(address, _)| *address == gid.bytes);
        let by_address = address.map(|(_, prefix)| *prefix);
        self.prefix = by_route.or(by_address).filter(|prefix| *prefix <= 128);
        if interface.mac != 0 {
            self.id = PortId::Mac(interface.mac);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ringfold_topology::machine::{Network, Nic, NicPort, PciAddress};

    use super::*;

    fn gid(index: u32, address: &str, kind: GidKind) -> Gid {
        let bytes = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        Gid { index, interface: 0, bytes, kind }
    }

    fn machine(network: Network, gids: &[Gid]) -> Machine {
        let shown = |gid: &Gid| ringfold_topology::machine::Gid {
            bytes: gid.bytes,
            interface: "eth1".into(),
            ..Default::default()
        };
        let gids = gids.iter().map(shown).collect();
        let interfaces = vec!["eth1".into()];
        let port =
            NicPort { number: 1, network, gbps: 800, gids, interfaces, ..NicPort::default() };
        let nic = Nic { name: "mlx5_0".into(), ports: vec![port], ..Nic::default() };
        let address = |text, bits| (gid(0, text, GidKind::RoceV2).bytes, bits);
        let [one, other] = [("eth0", "10.0.0.1", 7), ("eth1", "10.1.0.1", 8)].map(|it| Interface {
            name: it.0.into(),
            mac: it.2,
            addresses: vec![
                address(it.1, 120),
                address("fe80::1", 64 + u8::try_from(it.2).unwrap()),
            ],
            ..Interface::default()
        });
        Machine { nics: vec![nic], interfaces: vec![one, other], ..Machine::default() }
    }

    fn located(gid: Gid, network: Network) -> Wire {
        let mut wire = Wire::new(&gid, &gid, None);
        wire.locate(&machine(network, &[gid]), ("mlx5_0", 1), &gid);
        wire
    }

    #[test]
    fn ethernet_ports_are_known_by_their_interface() {
        for (kind, network) in [(GidKind::RoceV2, Network::Roce), (GidKind::Iwarp, Network::Iwarp)]
        {
            let wire = located(gid(3, "10.1.0.1", kind), network);
            assert_eq!((&wire.interface[..], wire.prefix), ("eth1", Some(120)));
            assert_eq!((wire.id, wire.gbps), (PortId::Mac(8), 800));
        }
        let local = located(gid(1, "fe80::1", GidKind::RoceV2), Network::Roce);
        assert_eq!((&local.interface[..], local.prefix), ("eth1", Some(72)), "its own");
        let gone = located(gid(3, "10.9.0.1", GidKind::RoceV2), Network::Roce);
        assert_eq!((&gone.interface[..], gone.prefix), ("eth1", None), "an address of nobody");
    }

    /// A route for each interface tells the network, and nothing tells which interface has an
    /// address.
    #[test]
    fn ports_of_one_network_take_the_prefix_of_their_gid() {
        let gid = gid(3, "10.0.0.5", GidKind::RoceV2);
        let mut machine = machine(Network::Roce, &[gid]);
        machine.nics[0].ports[0].gids[0].prefix = Some(120);
        for interface in &mut machine.interfaces {
            interface.addresses.clear();
        }
        let mut wire = Wire::new(&gid, &gid, None);
        wire.locate(&machine, ("mlx5_0", 1), &gid);
        assert_eq!((&wire.interface[..], wire.prefix), ("eth1", Some(120)));
        assert_eq!(wire.id, PortId::Mac(8));
    }

    /// A VLAN may lie on the bond.
    #[test]
    fn a_bond_has_as_many_flows_as_ports() {
        let gid = gid(3, "10.1.0.1", GidKind::RoceV2);
        let mut machine = machine(Network::Roce, &[gid]);
        let pci = Some(PciAddress::default());
        let part = |at: u8, master: &str| Interface {
            name: format!("p{at}"),
            master: Some(master.into()),
            pci,
            ..Interface::default()
        };
        machine.interfaces.extend([part(0, "eth1"), part(1, "eth1"), part(2, "br0")]);
        let flows = |machine: &Machine| {
            let mut wire = Wire::new(&gid, &gid, None);
            wire.locate(machine, ("mlx5_0", 1), &gid);
            wire.flows
        };
        assert_eq!(flows(&machine), 2);
        let vlan = |it: &mut Interface| match &it.name[..] {
            "eth1" => it.below = vec!["bond0".into()],
            "p0" | "p1" => it.master = Some("bond0".into()),
            _ => {}
        };
        machine.interfaces.iter_mut().for_each(vlan);
        assert_eq!(flows(&machine), 2);
        machine.interfaces.extend((3..9).map(|at| part(at, "bond0")));
        assert_eq!(flows(&machine), 4, "as many as a pair of rails has paths");
        machine.interfaces.iter_mut().for_each(|it| it.pci = None);
        assert_eq!(flows(&machine), 1, "a bridge of virtual interfaces");
    }

    #[test]
    fn infiniband_ports_are_known_by_their_guid() {
        let wire = located(gid(0, "fe80::2:c903:0:5", GidKind::InfiniBand), Network::InfiniBand);
        assert_eq!((wire.id, wire.prefix), (PortId::Guid(0x0002_c903_0000_0005), None));
    }

    #[test]
    fn ports_that_the_kernel_hides_keep_the_data_of_the_device() {
        let gid = gid(3, "10.1.0.1", GidKind::RoceV2);
        let mut wire = Wire::new(&gid, &gid, None);
        let before = wire.clone();
        wire.locate(&machine(Network::Roce, &[gid]), ("mlx5_0", 2), &gid);
        wire.locate(&Machine::default(), ("mlx5_0", 1), &gid);
        assert_eq!(wire, before);
        assert_eq!(wire.id, PortId::Address(Ipv6Addr::from(gid.bytes).to_bits()));
    }
}
