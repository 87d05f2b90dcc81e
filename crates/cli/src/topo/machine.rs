//! A machine as a tree: sockets and NUMA nodes, PCI switches, GPUs and NICs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ringfold_topology::machine::{
    Core, Distance, Gpu, Interface, Machine, Network, Nic, NicPort, PciAddress, PciDevice, slow,
    storage,
};

use super::text::many;

/// The number of PCI buses in a domain, which bounds the bridges above a device.
const DEPTH_MAX: usize = 256;

/// A line of the tree, with the lines below it.
struct Branch {
    text: String,
    below: Vec<Self>,
}

impl Branch {
    fn new(text: String) -> Self {
        Self { text, below: Vec::new() }
    }

    fn print(&self, before: &str, text: &mut String) {
        for (at, branch) in self.below.iter().enumerate() {
            let is_last = at + 1 == self.below.len();
            let (here, after) = if is_last { ("`- ", "   ") } else { ("+- ", "|  ") };
            *text += &format!("{before}{here}{}\n", branch.text);
            branch.print(&format!("{before}{after}"), text);
        }
    }
}

/// Prints a machine, with a line for each part that matters to ranks.
pub(super) fn machine(machine: &Machine) -> String {
    let tree = Tree::of(machine);
    let mut root = Branch::new(String::new());
    let mut nodes: BTreeSet<Option<u16>> = machine.cores.iter().map(|core| core.node).collect();
    nodes.extend(tree.node_of.values());
    nodes.extend(
        machine.nics.iter().filter(|nic| nic.pci.is_none()).map(|nic| nic.node.or(tree.only)),
    );
    // Devices of no known node stand after the others.
    let (some, none): (Vec<_>, Vec<_>) = nodes.into_iter().partition(Option::is_some);
    for node in some.into_iter().chain(none) {
        root.below.push(tree.node(node));
    }
    let apart = interfaces_apart(machine);
    if !apart.is_empty() {
        let below = apart.into_iter().map(Branch::new).collect();
        root.below.push(Branch { text: "interfaces without a PCI device".to_owned(), below });
    }
    let mut text = format!("{}\n", title(machine));
    root.print("", &mut text);
    for remark in &machine.remarks {
        text += &format!("note: {remark}\n");
    }
    text
}

fn title(machine: &Machine) -> String {
    let name = if machine.name.is_empty() { "this machine" } else { &machine.name };
    let count = |of: fn(&Core) -> Option<u16>| {
        machine.cores.iter().filter_map(of).collect::<BTreeSet<_>>().len()
    };
    let cpus: usize = machine.cores.iter().map(|core| core.cpus.len()).sum();
    let ports: usize = machine.nics.iter().map(|nic| nic.ports.len()).sum();
    let sockets = count(|core| core.socket);
    let mut parts: Vec<String> =
        (sockets > 0).then(|| many(sockets, "socket")).into_iter().collect();
    parts.push(many(count(|core| core.node).max(1), "NUMA node"));
    // If no core has several CPUs, the source may not distinguish cores from CPUs.
    parts.push(match machine.cores.len() {
        cores if cores == cpus => many(cpus, "CPU"),
        cores => format!("{} ({})", many(cores, "core"), many(cpus, "CPU")),
    });
    parts.push(many(machine.gpus.len(), "GPU"));
    parts.push(match (machine.nics.len(), ports) {
        (0, _) => "no RDMA device".to_owned(),
        (nics, ports) if nics == ports => many(nics, "RDMA device"),
        (nics, ports) => format!("{} with {}", many(nics, "RDMA device"), many(ports, "port")),
    });
    format!("{name}: {}", parts.join(", "))
}

/// The PCI devices to draw: GPUs, NICs, interfaces, and bridges above them.
struct Tree<'a> {
    machine: &'a Machine,
    /// The devices and bridges below each bridge; those without a bridge above have the key `None`.
    below: BTreeMap<Option<PciAddress>, BTreeSet<PciAddress>>,
    /// The bridge above each device.
    parents: BTreeMap<PciAddress, PciAddress>,
    /// The NUMA node of each device without a bridge above it.
    node_of: BTreeMap<PciAddress, Option<u16>>,
    /// The NUMA node of all devices, if the machine has only one.
    only: Option<u16>,
}

impl<'a> Tree<'a> {
    fn of(machine: &'a Machine) -> Self {
        let known: BTreeMap<_, _> =
            machine.devices.iter().map(|device| (device.address, device)).collect();
        let gpus = machine.gpus.iter().map(|gpu| (gpu.pci, gpu.node));
        let nics = machine.nics.iter().filter_map(|nic| Some((nic.pci?, nic.node)));
        let others = machine.interfaces.iter().filter_map(|it| Some((it.pci?, None)));
        let with_parent = |device: &PciDevice| Some((device.address, device.parent?));
        let parents = machine.devices.iter().filter_map(with_parent).collect();
        let nodes: BTreeSet<_> = machine.cores.iter().filter_map(|core| core.node).collect();
        let only = nodes.first().copied().filter(|_| nodes.len() == 1);
        let (below, node_of) = (BTreeMap::new(), BTreeMap::new());
        let mut tree = Self { machine, below, parents, node_of, only };
        for (address, node) in gpus.chain(nics).chain(others) {
            let mut at = address;
            let mut node = node.or(only).or_else(|| known.get(&at)?.node);
            for bridge in tree.bridges(address) {
                tree.below.entry(Some(bridge)).or_default().insert(at);
                node = node.or_else(|| known.get(&bridge)?.node);
                at = bridge;
            }
            tree.below.entry(None).or_default().insert(at);
            let root = tree.node_of.entry(at).or_insert(node);
            *root = root.or(node);
        }
        tree
    }

    fn node(&self, node: Option<u16>) -> Branch {
        let cores: Vec<&Core> =
            self.machine.cores.iter().filter(|core| core.node == node).collect();
        let sockets: BTreeSet<_> = cores.iter().filter_map(|core| core.socket).collect();
        let mut parts: Vec<String> = sockets.iter().map(|it| format!("socket {it}")).collect();
        parts.push(match node {
            Some(node) => format!("NUMA node {node}"),
            None => "NUMA node unknown".to_owned(),
        });
        let mut text = parts.join(", ");
        if !cores.is_empty() {
            let caches: BTreeSet<_> = cores.iter().filter_map(|core| core.cache).collect();
            let cpus: BTreeSet<u16> = cores.iter().flat_map(|core| core.cpus.clone()).collect();
            text += &match cores.len() {
                count if count == cpus.len() => format!(": CPUs {}", ranges(&cpus)),
                count => format!(": {}, CPUs {}", many(count, "core"), ranges(&cpus)),
            };
            if !caches.is_empty() {
                text += &format!(", {}", many(caches.len(), "last-level cache"));
            }
        }
        let here = |address: &&PciAddress| self.node_of.get(address) == Some(&node);
        let roots = self.below.get(&None).into_iter().flatten().filter(here);
        let mut drawn = BTreeSet::new();
        let mut below: Vec<Branch> =
            roots.flat_map(|address| self.device(*address, true, &mut drawn)).collect();
        let is_here = |nic: &&Nic| nic.pci.is_none() && nic.node.or(self.only) == node;
        let soft = self.machine.nics.iter().filter(is_here);
        below.extend(soft.flat_map(|nic| self.nic(nic)));
        Branch { text, below }
    }

    /// Returns a device with all devices below it. A bridge with fewer than two branches gets no
    /// line.
    fn device(
        &self,
        address: PciAddress,
        is_root: bool,
        drawn: &mut BTreeSet<PciAddress>,
    ) -> Vec<Branch> {
        if !drawn.insert(address) {
            return Vec::new();
        }
        let mut lines = self.functions(address);
        let below = self.below.get(&Some(address)).into_iter().flatten();
        let below: Vec<Branch> =
            below.flat_map(|child| self.device(*child, false, drawn)).collect();
        let is_bridge = lines.is_empty();
        match (is_bridge, below.len()) {
            (false, _) => {
                lines.extend(below);
                lines
            }
            (true, 0 | 1) => below,
            (true, _) => {
                let kind = if is_root { "PCI bridge" } else { "PCI switch" };
                vec![Branch { text: format!("{kind} {}", address), below }]
            }
        }
    }

    /// Returns the lines of the GPU, the NIC or the interface at an address.
    fn functions(&self, address: PciAddress) -> Vec<Branch> {
        let mut lines = Vec::new();
        for (number, gpu) in self.machine.gpus.iter().enumerate() {
            if gpu.pci == address {
                lines.push(Branch::new(gpu_line(number, gpu)));
            }
        }
        for nic in self.machine.nics.iter().filter(|nic| nic.pci == Some(address)) {
            lines.extend(self.nic(nic));
        }
        if lines.is_empty() {
            let of = |it: &&Interface| it.pci == Some(address);
            let interfaces = self.machine.interfaces.iter().filter(of);
            lines.extend(interfaces.map(|it| Branch::new(interface(it))));
        }
        lines
    }

    /// Returns a line for each port, with the lines of its interfaces below.
    fn nic(&self, nic: &Nic) -> Vec<Branch> {
        let nearest = self.nearest(nic);
        let branch = |port: &NicPort| {
            let named = |name: &String| {
                self.machine.interfaces.iter().find(|interface| interface.name == *name)
            };
            let below = port.interfaces.iter().filter_map(named).map(interface);
            let slow = if self.is_slow(nic, port) { "  slow, used only if named" } else { "" };
            let text = format!("{}{nearest}{slow}", port_line(nic, port));
            Branch { text, below: below.map(Branch::new).collect() }
        };
        nic.ports.iter().map(branch).collect()
    }

    /// Names the GPUs that are nearest to a NIC by PCI.
    fn nearest(&self, nic: &Nic) -> String {
        match nic.pci.map(|address| self.beside(address)) {
            Some(gpus) if !gpus.is_empty() => format!("  near GPU {}", ranges(&gpus)),
            Some(_) if self.is_storage(nic) => "  for storage".to_owned(),
            _ => String::new(),
        }
    }

    fn is_storage(&self, nic: &Nic) -> bool {
        let names: Vec<&str> = self.machine.nics.iter().map(|nic| nic.name.as_str()).collect();
        storage(self.machine, &names).iter().any(|at| names[*at] == nic.name)
    }

    /// Returns whether a port is left out because other ports of the machine are much faster.
    fn is_slow(&self, nic: &Nic, port: &NicPort) -> bool {
        let all =
            self.machine.nics.iter().flat_map(|nic| nic.ports.iter().map(move |it| (nic, it)));
        let usable = |it: &(&Nic, &NicPort)| it.1.is_active && it.1.network != Network::Tcp;
        let usable: Vec<_> = all.filter(usable).collect();
        let rates: Vec<_> = usable.iter().map(|(_, port)| (port.network, port.gbps)).collect();
        let is_it =
            |at: &usize| usable[*at].0.name == nic.name && usable[*at].1.number == port.number;
        slow(&rates).iter().any(is_it)
    }

    /// Returns the GPUs that share a PCI bridge with a device and are nearest to it.
    fn beside(&self, address: PciAddress) -> BTreeSet<u16> {
        let gpus = self.machine.gpus.iter();
        let all: Vec<_> = gpus.map(|gpu| self.machine.distance(address, gpu.pci)).collect();
        let nearest = all.iter().min().filter(|it| matches!(it, Distance::Switch(_)));
        (0..).zip(&all).filter(|(_, it)| Some(*it) == nearest).map(|(gpu, _)| gpu).collect()
    }

    /// Returns the bridges above a device, the nearest first. Parents in a recording may form a
    /// cycle.
    fn bridges(&self, address: PciAddress) -> Vec<PciAddress> {
        let mut bridges = Vec::new();
        let mut at = address;
        while let Some(parent) = self.parents.get(&at) {
            if bridges.len() >= DEPTH_MAX || *parent == address || bridges.contains(parent) {
                break;
            }
            bridges.push(*parent);
            at = *parent;
        }
        bridges
    }
}

fn gpu_line(number: usize, gpu: &Gpu) -> String {
    let domain = gpu.domain.map_or_else(String::new, |domain| format!("  NVLink domain {domain}"));
    format!("GPU {number}  {}{domain}", gpu.pci)
}

fn port_line(nic: &Nic, port: &NicPort) -> String {
    let mut words = vec![format!("{}:{}", nic.name, port.number)];
    words.push(nic.pci.map_or_else(|| "no PCI device".to_owned(), |address| address.to_string()));
    words.push(network(port.network).to_owned());
    words.push(if port.is_active { "up" } else { "down" }.to_owned());
    words.extend(rate(port.gbps));
    if port.lid > 0 {
        words.push(format!("LID {}", port.lid));
    }
    if let Some(of) = nic.virtual_of {
        words.push(format!("virtual function of {}", of));
    }
    words.join("  ")
}

/// Returns the usual spelling of a network.
pub(super) const fn network(network: Network) -> &'static str {
    match network {
        Network::InfiniBand => "InfiniBand",
        Network::Roce => "RoCE",
        Network::Iwarp => "iWARP",
        Network::Tcp => "no RDMA",
    }
}

fn rate(gbps: u32) -> Option<String> {
    (gbps > 0).then(|| format!("{gbps} Gb/s"))
}

fn interface(interface: &Interface) -> String {
    let mut words = vec![interface.name.clone()];
    words.push(if interface.is_up { "up" } else { "down" }.to_owned());
    words.extend(rate(interface.gbps));
    words.push(format!("MTU {}", interface.mtu));
    words.extend(interface.master.as_ref().map(|master| format!("part of {master}")));
    words.extend(interface.addresses.iter().map(|(bytes, bits)| address(*bytes, *bits)));
    words.join("  ")
}

/// Formats an address with its prefix length.
pub(super) fn address(bytes: [u8; 16], bits: u8) -> String {
    let address = Ipv6Addr::from(bytes).to_canonical();
    let bits = if address.is_ipv4() { bits.saturating_sub(96) } else { bits };
    format!("{address}/{bits}")
}

/// Returns interfaces without a PCI device and an RDMA port: bonds, bridges, tunnels. The loopback
/// is left out.
fn interfaces_apart(machine: &Machine) -> Vec<String> {
    let ports = machine.nics.iter().flat_map(|nic| &nic.ports);
    let of_ports: BTreeSet<_> = ports.flat_map(|port| &port.interfaces).collect();
    let is_apart =
        |it: &&Interface| it.pci.is_none() && it.name != "lo" && !of_ports.contains(&it.name);
    let members = |name: &str| {
        let of = |it: &&Interface| it.master.as_deref() == Some(name);
        machine.interfaces.iter().filter(of).map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    let line = |it: &Interface| match &members(&it.name)[..] {
        [] => interface(it),
        members => format!("{}  of {}", interface(it), members.join(", ")),
    };
    machine.interfaces.iter().filter(is_apart).map(line).collect()
}

/// Formats numbers as the kernel does: `0-3,8`.
fn ranges(numbers: &BTreeSet<u16>) -> String {
    let numbers: Vec<u16> = numbers.iter().copied().collect();
    let range = |of: &[u16]| match of {
        [first, .., last] => format!("{first}-{last}"),
        _ => of.iter().map(u16::to_string).collect(),
    };
    let is_next = |one: &u16, next: &u16| one.checked_add(1) == Some(*next);
    numbers.chunk_by(is_next).map(range).collect::<Vec<_>>().join(",")
}
