//! RDMA devices: `/sys/class/infiniband`.

use super::net::Addresses;
use super::pci::Pci;
use super::root::Root;
use crate::machine::{Gid, Interface, Network, Nic, NicPort};
use crate::natural::Natural;

const CLASS: &str = "sys/class/infiniband";

/// Every RDMA device, in the natural order of names.
pub(super) fn read(
    root: &Root,
    pci: &mut Pci,
    interfaces: &[Interface],
    addresses: &Addresses,
) -> Vec<Nic> {
    let names = root.list(CLASS, |name| Some(Natural(name.to_owned())));
    names.into_iter().map(|(_, name)| nic(root, pci, &name, interfaces, addresses)).collect()
}

fn nic(
    root: &Root,
    pci: &mut Pci,
    name: &str,
    interfaces: &[Interface],
    addresses: &Addresses,
) -> Nic {
    let path = root.resolved(&format!("{CLASS}/{name}"));
    let address = pci.add_named(root, &path);
    let is_iwarp = root.text(&format!("{path}/node_type")).is_some_and(|it| it.starts_with("4:"));
    let card = root.text(&format!("{path}/sys_image_guid")).and_then(|text| guid(&text));
    let number = |name: &str| name.parse::<u8>().ok().filter(|number| *number > 0);
    let ports = root.list(&format!("{path}/ports"), number).into_iter();
    let mut nic = Nic {
        name: name.to_owned(),
        pci: address,
        node: address.and_then(|it| pci.find(it)).and_then(|it| it.node),
        virtual_of: address.and_then(|it| pci.physical(root, it)),
        card: card.unwrap_or_default(),
        ports: ports.map(|(number, _)| port(root, &path, number, is_iwarp, addresses)).collect(),
    };
    for port in nic.ports.iter_mut().filter(|port| port.interfaces.is_empty()) {
        port.interfaces = own_interfaces(root, &nic.pci, port.number, interfaces);
    }
    nic
}

fn port(root: &Root, device: &str, number: u8, is_iwarp: bool, addresses: &Addresses) -> NicPort {
    let path = format!("{device}/ports/{number}");
    let word = |name: &str| root.text(&format!("{path}/{name}")).unwrap_or_default();
    let lid = root.hex(&format!("{path}/lid")).and_then(|lid| u16::try_from(lid).ok());
    let layer = word("link_layer");
    let network = match (layer.as_str(), is_iwarp) {
        (_, true) => Network::Iwarp,
        ("Ethernet", _) => Network::Roce,
        ("InfiniBand", _) => Network::InfiniBand,
        // The file is hidden. Only InfiniBand's subnet managers assign LIDs.
        ("", _) if lid.is_some_and(|lid| lid > 0) => Network::InfiniBand,
        ("", _) => Network::Roce,
        _ => Network::Tcp,
    };
    let gids = gids(root, &path, addresses);
    let mut interfaces: Vec<String> = Vec::new();
    for gid in gids.iter().filter(|gid| !gid.interface.is_empty()) {
        if !interfaces.contains(&gid.interface) {
            interfaces.push(gid.interface.clone());
        }
    }
    let first = gids.iter().find(|gid| gid.index == 0);
    NicPort {
        number,
        network,
        is_active: word("state").starts_with("4:"),
        gbps: gigabits(&word("rate")),
        lid: lid.unwrap_or_default(),
        guid: first.map_or(0, |gid| lower(gid.bytes)),
        gids,
        interfaces,
    }
}

/// Gbit/s of a port of an RDMA device; 0 if the kernel does not show it.
pub(super) fn port_gbps(root: &Root, device: &str, port: u8) -> u32 {
    root.text(&format!("{CLASS}/{device}/ports/{port}/rate")).map_or(0, |rate| gigabits(&rate))
}

/// The interfaces on the same PCI function and port, for ports whose GIDs name none.
fn own_interfaces(
    root: &Root,
    pci: &Option<crate::machine::PciAddress>,
    number: u8,
    interfaces: &[Interface],
) -> Vec<String> {
    let is_own = |interface: &&Interface| {
        let port = super::net::port_of(root, &interface.name);
        pci.is_some() && interface.pci == *pci && port.is_none_or(|port| port == number)
    };
    interfaces.iter().filter(is_own).map(|interface| interface.name.clone()).collect()
}

fn gids(root: &Root, port: &str, addresses: &Addresses) -> Vec<Gid> {
    let indices = root.list(&format!("{port}/gids"), |name| name.parse::<u16>().ok()).into_iter();
    let gid = |index: u16| {
        let bytes = gid_bytes(&root.text(&format!("{port}/gids/{index}"))?)?;
        if bytes == [0; 16] {
            return None;
        }
        let about = |what: &str| root.text(&format!("{port}/gid_attrs/{what}/{index}"));
        let interface = about("ndevs").unwrap_or_default();
        let prefix = addresses.prefix(bytes, &interface);
        let kind = about("types").unwrap_or_default();
        Some(Gid { index, bytes, kind, interface, prefix })
    };
    indices.filter_map(|(index, _)| gid(index)).collect()
}

/// A GID as the kernel writes it: eight groups of four digits.
fn gid_bytes(text: &str) -> Option<[u8; 16]> {
    text.parse::<std::net::Ipv6Addr>().ok().map(|address| address.octets())
}

/// A GUID as the kernel writes it: four groups of four digits.
fn guid(text: &str) -> Option<u64> {
    let digits: String = text.split(':').collect();
    (digits.len() == 16).then(|| u64::from_str_radix(&digits, 16).ok()).flatten()
}

/// The lower half of a GID as a number.
fn lower(bytes: [u8; 16]) -> u64 {
    bytes[8..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Gigabits per second from text such as `800 Gb/sec (4X XDR)`, without fractions; 0 if the text
/// has none.
fn gigabits(text: &str) -> u32 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let whole = number.split('.').next().unwrap_or_default();
    if unit.starts_with("Gb/sec") { whole.parse().unwrap_or_default() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_kernel_are_read() {
        assert_eq!(gigabits("800 Gb/sec (4X XDR)"), 800);
        assert_eq!([gigabits("2.5 Gb/sec (1X SDR)"), gigabits("1600 Gb/sec (8X XDR)")], [2, 1600]);
        assert_eq!([gigabits(""), gigabits("fast"), gigabits("99999999999 Gb/sec")], [0; 3]);
        assert_eq!(guid("b8ce:f603:0012:3456"), Some(0xb8ce_f603_0012_3456));
        assert_eq!([guid("b8ce:f603"), guid("x8ce:f603:0012:3456")], [None; 2]);
        let gid = gid_bytes("fe80:0000:0000:0000:b8ce:f603:0012:3456").unwrap();
        assert_eq!(lower(gid), 0xb8ce_f603_0012_3456);
    }
}
