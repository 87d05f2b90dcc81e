//! The opened ports as evidence of the fabric, and the labels that the ranks agreed on.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use ringfold_topology::fabric::{Place, PortId};
use ringfold_topology::machine::Network;

use super::rail::{Rail, Rails};
use super::sys::{DEVICES, Gid, GidKind};

/// The kernel's network interfaces.
const INTERFACES: &str = "/sys/class/net";

/// One port that `Rails` has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPort {
    /// Device and port, as in `mlx5_0:1`.
    pub name: String,
    /// Its network.
    pub network: Network,
    /// The GID that peers use; of RoCE v2 and iWARP an IP address.
    pub gid: [u8; 16],
    /// Bits of the GID's IP network, of 128; nothing if the GID is no IP address of the interface.
    pub prefix: Option<u8>,
    /// The port's GUID, or its interface's MAC address, or else its IP address.
    pub id: PortId,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The network interface of the GID; empty if there is none.
    pub interface: String,
    /// The rail and plane that the user declared in `RINGFOLD_IB_HCA`.
    pub declared: Option<Place>,
}

/// The place of a port in the fabric, as far as the ranks agreed on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// Rail and plane.
    pub(super) place: Option<Place>,
    /// The rank prefers the port.
    pub(super) is_preferred: bool,
    /// Packets of the port reach other rails of its plane.
    pub(super) crosses: bool,
}

/// The network below a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) interface: String,
    pub(super) prefix: Option<u8>,
    pub(super) id: PortId,
    pub(super) declared: Option<Place>,
}

impl Rails {
    /// The opened ports, in the order of the labels that `label` takes.
    #[must_use]
    pub fn ports(&self) -> Vec<OpenPort> {
        self.0.iter().map(OpenPort::of).collect()
    }

    /// Sets the rail and plane of each port, in the order of `ports`. Ports with equal labels pair.
    /// A port without a label pairs by its subnet, then its name, then its order.
    pub fn label(&mut self, labels: &[Option<Place>]) {
        for (rail, label) in self.0.iter_mut().zip(labels) {
            rail.label.place = *label;
        }
    }

    /// Sets which ports this rank prefers, in the order of `ports`. Two ranks use the pairs that
    /// both prefer, else those that one prefers, else all. A rank without a preferred port
    /// prefers all.
    pub fn prefer(&mut self, preferred: &[bool]) {
        for (rail, is_preferred) in self.0.iter_mut().zip(preferred) {
            rail.label.is_preferred = *is_preferred;
        }
    }

    /// Sets whether ports on different rails of a plane reach each other. Two ranks without a
    /// common label pair such ports if both said yes. Default: no.
    pub fn crosses(&mut self, crosses: bool) {
        self.0.iter_mut().for_each(|rail| rail.label.crosses = crosses);
    }
}

impl OpenPort {
    fn of(rail: &Rail) -> Self {
        let Wire { interface, prefix, id, declared } = rail.wire.clone();
        Self {
            name: rail.name(),
            network: match rail.gid.kind {
                GidKind::InfiniBand => Network::InfiniBand,
                GidKind::RoceV1 | GidKind::RoceV2 => Network::Roce,
                GidKind::Iwarp => Network::Iwarp,
            },
            gid: rail.gid.bytes,
            prefix,
            id,
            gbps: rail.port.gigabits,
            interface,
            declared,
        }
    }
}

impl Wire {
    /// Reads what is below a device's port with that GID. `first` is the port's GID 0.
    pub(super) fn read(
        (device, port): (&str, u8),
        gid: &Gid,
        first: &Gid,
        declared: Option<Place>,
    ) -> Self {
        if gid.kind == GidKind::InfiniBand {
            let lower = Ipv6Addr::from(first.bytes).to_bits() & u128::from(u64::MAX);
            let id = PortId::Guid(u64::try_from(lower).unwrap_or(0));
            return Self { interface: String::new(), prefix: None, id, declared };
        }
        let entry = format!("{device}/ports/{port}/gid_attrs/ndevs/{}", gid.index);
        let interface = line(&Path::new(DEVICES).join(entry));
        let mac = mac(&line(&Path::new(INTERFACES).join(&interface).join("address")));
        let id =
            mac.map_or_else(|| PortId::Address(Ipv6Addr::from(gid.bytes).to_bits()), PortId::Mac);
        Self { interface, prefix: None, id, declared }
    }
}

/// Returns a digest of a port's name (FNV-1a), so that ranks can compare names in messages of
/// fixed size.
pub(super) fn digest(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The first line of a file; empty if there is none.
fn line(path: &Path) -> String {
    fs::read_to_string(path)
        .ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_default()
}

/// A MAC address as the kernel writes it.
fn mac(text: &str) -> Option<u64> {
    let mut address = 0;
    let mut bytes = 0;
    for part in text.split(':') {
        address = address << 8 | u64::from(u8::from_str_radix(part, 16).ok()?);
        bytes += 1;
    }
    (bytes == 6 && address != 0).then_some(address)
}
