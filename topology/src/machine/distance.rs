//! The distance of a NIC from a GPU or from CPUs.

use std::collections::BTreeMap;

use super::{Machine, PciAddress};

/// The distance between two devices, or between a device and CPUs. Less is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// They are below the same PCI bridge, with this number of bridges between them.
    Switch(u8),
    /// They are below the same PCI root.
    Root,
    /// They are at the same NUMA node.
    Node,
    /// They are at the same socket.
    Socket,
    /// They are further apart, or the machine does not show their distance.
    Elsewhere,
}

impl Distance {
    /// The distance as a cost. One device elsewhere costs more than several at the node.
    pub(super) fn cost(self) -> i64 {
        match self {
            Self::Switch(bridges) => i64::from(bridges.min(63)),
            Self::Root => 1 << 6,
            Self::Node => 1 << 7,
            Self::Socket => 1 << 9,
            Self::Elsewhere => 1 << 11,
        }
    }
}

/// The place of a device: the bridges above it, and its NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// The bridges above the device, the nearest first.
    bridges: Vec<PciAddress>,
    /// Domain and bus of the PCI root.
    root: Option<(u32, u8)>,
    node: Option<u16>,
}

impl Spot {
    /// Whether the NUMA node is known.
    pub(super) const fn has_node(&self) -> bool {
        self.node.is_some()
    }

    /// Whether the PCI device is known, and so the bridges above it.
    pub(super) const fn is_placed(&self) -> bool {
        self.root.is_some()
    }
}

/// The most bridges that are followed above one device. No machine has more. The limit also ends
/// cycles.
const BRIDGES_MAX: usize = 64;

impl Machine {
    /// The distance between two PCI devices. `Elsewhere` if either is not in `devices`.
    #[must_use]
    pub fn distance(&self, a: PciAddress, b: PciAddress) -> Distance {
        self.between(&self.spot(Some(a), None), &self.spot(Some(b), None))
    }

    /// The known NUMA nodes of these CPUs, ascending.
    #[must_use]
    pub fn nodes_of(&self, cpus: &[u16]) -> Vec<u16> {
        let is_one = |cpu: &u16| cpus.contains(cpu);
        let cores = self.cores.iter().filter(|core| core.cpus.iter().any(is_one));
        let mut nodes: Vec<u16> = cores.filter_map(|core| core.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The place of a device. If its PCI address is hidden, its NUMA node may still be known.
    pub(super) fn spot(&self, address: Option<PciAddress>, node: Option<u16>) -> Spot {
        let find = |address| self.devices.iter().find(|device| device.address == address);
        let Some(device) = address.and_then(find) else {
            return Spot { node, ..Spot::default() };
        };
        let mut bridges = Vec::new();
        let mut at = device;
        while let Some(bridge) = at.parent.and_then(find)
            && bridges.len() < BRIDGES_MAX
        {
            bridges.push(bridge.address);
            at = bridge;
        }
        let root = Some((at.address.domain, at.address.bus));
        Spot { bridges, root, node: device.node.or(node) }
    }

    /// The place of a NIC or of a network interface with this name. Unknown if there is neither.
    pub(super) fn spot_named(&self, name: &str) -> Spot {
        let nic = self.nics.iter().find(|nic| nic.name == name);
        if let Some(nic) = nic {
            return self.spot(nic.pci, nic.node);
        }
        let interface = self.interfaces.iter().find(|interface| interface.name == name);
        let Some(interface) = interface else { return Spot::default() };
        // A bond is at the place of its first part.
        let is_part = |part: &&super::Interface| part.master.as_deref() == Some(name);
        let below = || self.interfaces.iter().filter(is_part).find_map(|part| part.pci);
        self.spot(interface.pci.or_else(below), None)
    }

    /// The distance between two places.
    pub(super) fn between(&self, a: &Spot, b: &Spot) -> Distance {
        // A tree that joins different NUMA nodes is not a real PCI tree. Machines that are
        // described by files have such roots.
        let is_apart = a.node.zip(b.node).is_some_and(|(a, b)| a != b);
        let shared = a.bridges.iter().enumerate().find_map(|(up, bridge)| {
            let down = b.bridges.iter().position(|other| other == bridge)?;
            Some(up + down)
        });
        match shared {
            Some(bridges) => Distance::Switch(u8::try_from(bridges).unwrap_or(u8::MAX)),
            None if is_apart => self.between_nodes(a, b),
            None if a.root.is_some() && a.root == b.root && self.has_bridges() => Distance::Root,
            None if a.node.is_some() && a.node == b.node => Distance::Node,
            None => Distance::Elsewhere,
        }
    }

    fn between_nodes(&self, a: &Spot, b: &Spot) -> Distance {
        let sockets = self.sockets();
        let of = |spot: &Spot| spot.node.and_then(|node| sockets.get(&node).copied());
        let is_same = of(a).zip(of(b)).is_some_and(|(a, b)| a == b);
        if is_same { Distance::Socket } else { Distance::Elsewhere }
    }

    /// The distance between a place and CPUs at these NUMA nodes: that to the nearest of them.
    pub(super) fn to_nodes(&self, spot: &Spot, nodes: &[u16]) -> Distance {
        let to = |node: &u16| self.between(spot, &Spot { node: Some(*node), ..Spot::default() });
        nodes.iter().map(to).min().unwrap_or(Distance::Elsewhere)
    }

    /// The socket of each NUMA node that has cores.
    fn sockets(&self) -> BTreeMap<u16, u16> {
        self.cores.iter().filter_map(|core| core.node.zip(core.socket)).collect()
    }

    /// Whether some device is below a bridge. If none is, a virtual machine shows all devices below
    /// one root, and the root has no meaning.
    pub(super) fn has_bridges(&self) -> bool {
        self.devices.iter().any(|device| device.parent.is_some())
    }
}
