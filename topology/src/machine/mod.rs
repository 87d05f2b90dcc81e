//! One host as its kernel shows it: CPUs, NUMA nodes, PCI devices, NICs, GPUs and interfaces. A
//! value: `discover` reads it from the live system, from a recording, or from NCCL's XML.

mod address;
mod assign;
mod deal;
mod distance;
mod near;

pub use address::{InvalidPciAddress, PciAddress};
pub use deal::{cores_within, deal};
pub use distance::Distance;
pub use near::{Affinity, gpu_of, share, slow, storage};

/// One host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The host's name; empty if unknown.
    pub name: String,
    /// CPU cores, by NUMA node and number.
    pub cores: Vec<Core>,
    /// PCI devices: NICs, GPUs, and the bridges and switches above them.
    pub devices: Vec<PciDevice>,
    /// RDMA devices.
    pub nics: Vec<Nic>,
    /// GPUs, in PCI order.
    pub gpus: Vec<Gpu>,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Facts that the kernel hides, or states and that cannot be true. A sentence each, for people.
    pub remarks: Vec<String>,
}

/// A core, with its CPUs (hardware threads).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Numbers of its CPUs, ascending.
    pub cpus: Vec<u16>,
    /// Its NUMA node; `None` if the kernel does not show it.
    pub node: Option<u16>,
    /// Its socket.
    pub socket: Option<u16>,
    /// Its last-level cache. Cores with equal numbers share it.
    pub cache: Option<u16>,
}

/// A PCI device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// The bridge above it; `None` at a root port.
    pub parent: Option<PciAddress>,
    /// Class, subclass and interface, as in `0x020700`.
    pub class: u32,
    /// Vendor and device identifier.
    pub ids: (u16, u16),
    /// Its NUMA node; `None` if the kernel does not show it, or shows an impossible one.
    pub node: Option<u16>,
    /// Megabytes per second of its slot; 0 if unknown.
    pub megabytes: u32,
}

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Its PCI address; `None` for software devices, and where a container hides it.
    pub pci: Option<PciAddress>,
    /// Its NUMA node.
    pub node: Option<u16>,
    /// The physical function, if this is a virtual function.
    pub virtual_of: Option<PciAddress>,
    /// The system image GUID, which is equal for all devices of one card.
    pub card: u64,
    /// Its ports, from 1.
    pub ports: Vec<NicPort>,
}

/// The network of an RDMA port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub enum Network {
    /// InfiniBand.
    #[default]
    InfiniBand,
    /// Ethernet with RoCE.
    Roce,
    /// Ethernet with iWARP.
    Iwarp,
    /// Ethernet or another network without RDMA, by TCP.
    Tcp,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicPort {
    /// Its number, from 1.
    pub number: u8,
    /// Its network.
    pub network: Network,
    /// Whether it can carry data now.
    pub is_active: bool,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The port GUID: the lower half of GID 0.
    pub guid: u64,
    /// Its GIDs that are not empty, with the interface of each.
    pub gids: Vec<Gid>,
    /// Names of its network interfaces.
    pub interfaces: Vec<String>,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gid {
    /// Its index in the table.
    pub index: u16,
    /// The GID.
    pub bytes: [u8; 16],
    /// The kernel's name for its type, such as `RoCE v2`.
    pub kind: String,
    /// Its interface; empty on InfiniBand.
    pub interface: String,
    /// The prefix length of its network, of 128, if it is an IP address of its interface.
    pub prefix: Option<u8>,
}

/// A GPU or another accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its PCI address.
    pub pci: PciAddress,
    /// Its NUMA node.
    pub node: Option<u16>,
    /// Its group. GPUs with equal numbers reach each other by NVLink, xGMI or the like.
    pub domain: Option<u32>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// The MAC address; 0 if none.
    pub mac: u64,
    /// Whether it is up and has a carrier.
    pub is_up: bool,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// The PCI device below it.
    pub pci: Option<PciAddress>,
    /// The bond or bridge that it is part of.
    pub master: Option<String>,
    /// Interfaces that it is stacked on, as for a VLAN or a bond.
    pub below: Vec<String>,
    /// Addresses (IPv4 as mapped IPv6), each with the prefix length of its network, of 128.
    pub addresses: Vec<([u8; 16], u8)>,
}
