//! Network interfaces and their addresses: `/sys/class/net` and `/proc/net`.

use std::net::Ipv4Addr;

use super::pci::Pci;
use super::root::Root;
use crate::machine::Interface;
use crate::natural::Natural;

const CLASS: &str = "sys/class/net";

/// Every interface, in the natural order of names, with its addresses.
pub(super) fn read(root: &Root, pci: &mut Pci, addresses: &Addresses) -> Vec<Interface> {
    let names = root.list(CLASS, |name| Some(Natural(name.to_owned())));
    names.into_iter().map(|(_, name)| interface(root, pci, name, addresses)).collect()
}

fn interface(root: &Root, pci: &mut Pci, name: String, addresses: &Addresses) -> Interface {
    let path = root.resolved(&format!("{CLASS}/{name}"));
    let flags = root.hex(&format!("{path}/flags")).unwrap_or_default();
    let has_carrier = root.text(&format!("{path}/carrier")).is_some_and(|it| it == "1");
    let megabits = root.number::<i64>(&format!("{path}/speed")).unwrap_or_default();
    let master = root.link(&format!("{path}/master"));
    let below = root.list(&path, |name| name.strip_prefix("lower_").map(str::to_owned));
    Interface {
        mac: root.text(&format!("{path}/address")).and_then(|it| mac(&it)).unwrap_or_default(),
        is_up: flags & 1 == 1 && has_carrier,
        gbps: u32::try_from(megabits / 1000).unwrap_or_default(),
        mtu: root.number(&format!("{path}/mtu")).unwrap_or_default(),
        pci: pci.add_named(root, &path),
        master: master.and_then(|path| path.rsplit('/').next().map(str::to_owned)),
        below: below.into_iter().map(|(below, _)| below).collect(),
        addresses: addresses.of(&name),
        name,
    }
}

/// Mbit/s of an interface with a device below it, itself or below what it is stacked on; else 0.
pub(super) fn wire_mbps(root: &Root, interface: &str) -> u32 {
    let mut names = vec![interface.to_owned()];
    let mut has_device = false;
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        let path = root.resolved(&format!("{CLASS}/{name}"));
        has_device |= root.link(&format!("{path}/device")).is_some();
        let below = root.list(&path, |name| name.strip_prefix("lower_").map(str::to_owned));
        for (below, _) in below {
            if !names.contains(&below) {
                names.push(below);
            }
        }
        at += 1;
    }
    let mbps = root.number::<i64>(&format!("{CLASS}/{interface}/speed"));
    mbps.filter(|_| has_device).and_then(|mbps| u32::try_from(mbps).ok()).unwrap_or(0)
}

/// The number of the device port that an interface is on, from 1. `None` if the kernel does not
/// show it.
pub(super) fn port_of(root: &Root, interface: &str) -> Option<u8> {
    let path = root.resolved(&format!("{CLASS}/{interface}"));
    root.number::<u8>(&format!("{path}/dev_port"))?.checked_add(1)
}

fn mac(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    let number = || u64::from_str_radix(&parts.concat(), 16).ok();
    (parts.len() == 6 && text.len() == 17).then(number).flatten()
}

/// The addresses of this host, and the networks of its interfaces.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    networks: Vec<Network>,
    /// IPv4 addresses of this host.
    local: Vec<u32>,
    v6: Vec<V6>,
}

/// An IPv4 network that an interface is on.
#[derive(Debug)]
struct Network {
    interface: String,
    network: u32,
    /// Length of the prefix, of 32.
    bits: u8,
}

/// An IPv6 address of an interface.
#[derive(Debug)]
struct V6 {
    interface: String,
    address: [u8; 16],
    /// Length of the network's prefix, of 128.
    bits: u8,
}

impl Network {
    const fn has(&self, address: u32) -> bool {
        address & mask(self.bits) == self.network
    }
}

impl Addresses {
    pub(super) fn read(root: &Root) -> Self {
        let text = |name: &str| root.text(&format!("proc/net/{name}")).unwrap_or_default();
        Self {
            networks: text("route").lines().filter_map(network).collect(),
            local: local(&text("fib_trie")),
            v6: text("if_inet6").lines().filter_map(v6).collect(),
        }
    }

    /// The addresses of an interface. An IPv4 address that several interfaces could have is left
    /// out, because the kernel's files do not show its interface.
    fn of(&self, interface: &str) -> Vec<([u8; 16], u8)> {
        let is_own = |address: &&u32| {
            let owners = self.owners(**address);
            owners.len() == 1 && owners[0].0 == interface
        };
        let v4 = self.local.iter().filter(is_own).filter_map(|address| {
            let bits = self.owners(*address).first()?.1;
            Some((mapped(*address), 96 + bits))
        });
        let v6 = self.v6.iter().filter(|it| it.interface == interface);
        v4.chain(v6.map(|it| (it.address, it.bits))).collect()
    }

    /// IPv4 addresses of this host that several interfaces could have.
    pub(super) fn unclear(&self) -> Vec<Ipv4Addr> {
        let is_unclear = |address: &&u32| self.owners(**address).len() > 1;
        self.local.iter().filter(is_unclear).map(|address| Ipv4Addr::from(*address)).collect()
    }

    /// The interfaces whose network contains an IPv4 address, with the prefix length. Only those
    /// with the longest prefix count.
    fn owners(&self, address: u32) -> Vec<(&str, u8)> {
        let fits: Vec<_> = self.networks.iter().filter(|it| it.has(address)).collect();
        let most = fits.iter().map(|it| it.bits).max();
        let widest = fits.into_iter().filter(|it| Some(it.bits) == most);
        let mut owners: Vec<_> = widest.map(|it| (it.interface.as_str(), it.bits)).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The prefix length, of 128, of the network that contains a GID's address, on the interface of
    /// the GID. `None` for link-local addresses, which have no network of their own.
    pub(super) fn prefix(&self, gid: [u8; 16], interface: &str) -> Option<u8> {
        let is_mapped = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
        if is_mapped {
            let address = u32::from(Ipv4Addr::new(gid[12], gid[13], gid[14], gid[15]));
            let fits = |it: &&Network| it.interface == interface && it.has(address);
            return self.networks.iter().filter(fits).map(|it| 96 + it.bits).max();
        }
        let is_link_local = gid[0] == 0xfe && gid[1] & 0xc0 == 0x80;
        let own =
            |it: &&V6| it.address == gid && (interface.is_empty() || it.interface == interface);
        self.v6.iter().find(own).map(|it| it.bits).filter(|_| !is_link_local)
    }
}

const fn mask(bits: u8) -> u32 {
    match bits {
        0 => 0,
        bits => u32::MAX << (32 - bits),
    }
}

fn mapped(address: u32) -> [u8; 16] {
    Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// A line of `/proc/net/route` that gives the network of an interface. Its numbers are the bytes of
/// addresses in the machine's byte order.
fn network(line: &str) -> Option<Network> {
    const GATEWAY: u32 = 2;
    let words: Vec<&str> = line.split_whitespace().collect();
    let hex = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    let (network, flags, mask) = (hex(1)?, hex(3)?, hex(7)?);
    let (network, mask) = (network.to_be(), mask.to_be());
    let bits = mask.leading_ones();
    let is_one = flags & GATEWAY == 0 && bits > 0 && mask.trailing_zeros() + bits >= 32;
    let interface = (*words.first()?).to_owned();
    let bits = u8::try_from(bits).ok()?;
    is_one.then_some(Network { interface, network, bits })
}

/// The addresses of this host in `/proc/net/fib_trie`, without loopback.
fn local(text: &str) -> Vec<u32> {
    let mut last = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some((_, leaf)) = line.split_once("|-- ") {
            last = leaf.trim().parse::<Ipv4Addr>().ok();
        } else if line.trim() == "/32 host LOCAL" {
            found.extend(last.filter(|address| !address.is_loopback()).map(u32::from));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A line of `/proc/net/if_inet6`: address, index, bits, scope, flags and interface.
fn v6(line: &str) -> Option<V6> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [text, _, bits, _, _, interface] = words[..] else { return None };
    let number = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
    let bits = u8::from_str_radix(bits, 16).ok().filter(|bits| *bits <= 128)?;
    let address = std::net::Ipv6Addr::from(number).octets();
    Some(V6 { interface: interface.to_owned(), address, bits })
}
