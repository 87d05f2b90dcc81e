//! The relevant PCI devices: NICs, accelerators, and the bridges above them.

use std::collections::BTreeMap;

use super::root::Root;
use crate::machine::{PciAddress, PciDevice};

const DEVICES: &str = "sys/bus/pci/devices";

/// The kind of a PCI device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Network,
    Accelerator,
    /// A switch between accelerators, such as NVSwitch.
    Fabric,
    Other,
}

const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;

impl Kind {
    /// The kind of a device with this class and vendor. Display devices count as accelerators only
    /// if their vendor makes some. Servers have others for consoles.
    pub(super) fn of(class: u32, vendor: u16) -> Self {
        match (class >> 8, vendor) {
            (0x0200..=0x02ff | 0x0c06, _) => Self::Network,
            (0x0302 | 0x0380 | 0x1200, _) | (0x0300, NVIDIA | AMD) => Self::Accelerator,
            (0x0680, NVIDIA) => Self::Fabric,
            _ => Self::Other,
        }
    }
}

/// The PCI devices of a machine, while it is read.
#[derive(Debug, Default)]
pub(super) struct Pci {
    devices: BTreeMap<PciAddress, (PciDevice, String)>,
    /// The NUMA nodes of the machine.
    nodes: Vec<u16>,
    /// Devices with a NUMA node that the machine does not have.
    pub(super) misplaced: Vec<PciAddress>,
    /// Whether the kernel shows its list of PCI devices.
    pub(super) is_shown: bool,
}

impl Pci {
    /// Reads the relevant devices. `nodes` are the NUMA nodes of the machine.
    pub(super) fn read(root: &Root, nodes: Vec<u16>) -> Self {
        let mut pci = Self { nodes, ..Self::default() };
        for (_, name) in root.list(DEVICES, |name| name.parse::<PciAddress>().ok()) {
            pci.is_shown = true;
            let path = root.resolved(&format!("{DEVICES}/{name}"));
            let class = root.hex(&format!("{path}/class")).unwrap_or_default();
            let vendor = |()| id(root, &path, "vendor");
            // Only these classes need the vendor.
            let is_candidate = matches!(class >> 16, 0x02 | 0x03 | 0x06 | 0x0c | 0x12);
            let vendor = Some(()).filter(|()| is_candidate).map_or(0, vendor);
            if Kind::of(class, vendor) != Kind::Other {
                pci.add(root, &path);
            }
        }
        pci
    }

    /// Adds the device that a path in `sys/devices` belongs to, with the bridges above it. Returns
    /// its address, or `None` if no part of the path is one.
    pub(super) fn add(&mut self, root: &Root, path: &str) -> Option<PciAddress> {
        let mut parent = None;
        let mut end = 0;
        for part in path.split('/') {
            end += part.len() + 1;
            let Ok(address) = part.parse::<PciAddress>() else { continue };
            if !self.devices.contains_key(&address) {
                let own = path[..end - 1].to_owned();
                let device = self.device(root, &own, address, parent);
                self.devices.insert(address, (device, own));
            }
            parent = Some(address);
        }
        parent
    }

    /// Like `add`, for an entry of a class. If the entry is a folder and not a link to one in
    /// `sys/devices`, its own link `device` leads there.
    pub(super) fn add_named(&mut self, root: &Root, path: &str) -> Option<PciAddress> {
        let is_folder = path.starts_with("sys/class/");
        let device = is_folder.then(|| root.link(&format!("{path}/device"))).flatten();
        self.add(root, device.as_deref().unwrap_or(path))
    }

    fn device(
        &mut self,
        root: &Root,
        path: &str,
        address: PciAddress,
        parent: Option<PciAddress>,
    ) -> PciDevice {
        let node = root.number::<i32>(&format!("{path}/numa_node"));
        let node = node.and_then(|node| u16::try_from(node).ok());
        let is_there = |node: &u16| self.nodes.contains(node);
        if node.is_some_and(|node| !is_there(&node)) {
            self.misplaced.push(address);
        }
        PciDevice {
            address,
            parent,
            class: root.hex(&format!("{path}/class")).unwrap_or_default(),
            ids: (id(root, path, "vendor"), id(root, path, "device")),
            node: node.filter(is_there),
            megabytes: self.slot(root, path, parent),
        }
    }

    /// Megabytes per second of a device's slot, which is as fast as the slower of its two ends.
    fn slot(&self, root: &Root, path: &str, parent: Option<PciAddress>) -> u32 {
        let read = |path: &str| {
            let speed = root.text(&format!("{path}/max_link_speed")).unwrap_or_default();
            let width = root.number::<u32>(&format!("{path}/max_link_width")).unwrap_or_default();
            (tenths(&speed), width)
        };
        let above = parent.and_then(|parent| self.devices.get(&parent)).map(|(_, path)| read(path));
        let (mut speed, mut width) = read(path);
        if let Some(above) = above.filter(|above| above.0 > 0 && above.1 > 0) {
            (speed, width) = (speed.min(above.0), width.min(above.1));
        }
        megabytes(speed, width)
    }

    /// The device with this address.
    pub(super) fn find(&self, address: PciAddress) -> Option<&PciDevice> {
        self.devices.get(&address).map(|(device, _)| device)
    }

    /// The path of the device with this address.
    pub(super) fn path(&self, address: PciAddress) -> Option<&str> {
        self.devices.get(&address).map(|(_, path)| path.as_str())
    }

    /// The physical function of a virtual function.
    pub(super) fn physical(&self, root: &Root, address: PciAddress) -> Option<PciAddress> {
        let target = root.link(&format!("{}/physfn", self.path(address)?))?;
        target.rsplit('/').next()?.parse().ok()
    }

    /// All devices, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PciDevice> {
        self.devices.values().map(|(device, _)| device)
    }
}

fn id(root: &Root, path: &str, name: &str) -> u16 {
    root.hex(&format!("{path}/{name}")).and_then(|id| u16::try_from(id).ok()).unwrap_or_default()
}

/// Speeds of a lane in tenths of gigatransfers per second.
pub(super) const SPEEDS: [u32; 6] = [25, 50, 80, 160, 320, 640];

/// Numbers of lanes of a slot.
pub(super) const WIDTHS: [u32; 7] = [1, 2, 4, 8, 12, 16, 32];

/// The speed of a lane in tenths of gigatransfers per second, from text such as `16.0 GT/s PCIe`; 0
/// if the text has none.
pub(super) fn tenths(text: &str) -> u32 {
    let number = text.split_whitespace().next().unwrap_or_default();
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let value = || whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth.parse().ok()?);
    value().filter(|speed| SPEEDS.contains(speed)).unwrap_or_default()
}

/// Megabytes per second of a slot with lanes of this speed; 0 if either number is impossible.
pub(super) fn megabytes(tenths: u32, lanes: u32) -> u32 {
    if !WIDTHS.contains(&lanes) {
        return 0;
    }
    // Bits of data in bits on the lane: 8 in 10, then 128 in 130, then 242 bytes in 256.
    let lane = match tenths {
        0..=50 => tenths * 10,
        51..=320 => tenths * 100 * 128 / 130 / 8,
        _ => tenths * 100 * 242 / 256 / 8,
    };
    lane * lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_speeds() {
        assert_eq!(megabytes(tenths("2.5 GT/s"), 1), 250);
        assert_eq!(megabytes(tenths("8 GT/s"), 16), 15_744);
        assert_eq!(megabytes(tenths("16.0 GT/s PCIe"), 16), 31_504);
        assert_eq!(megabytes(tenths("32.0 GT/s PCIe"), 16), 63_008);
        assert_eq!(megabytes(tenths("64.0 GT/s PCIe"), 16), 120_992);
        assert_eq!([megabytes(tenths("Unknown"), 16), megabytes(tenths("8 GT/s"), 255)], [0, 0]);
        assert_eq!(tenths("99999999999.9 GT/s"), 0);
    }

    #[test]
    fn consoles_are_no_accelerators() {
        assert_eq!(Kind::of(0x03_0000, 0x1a03), Kind::Other);
        assert_eq!(Kind::of(0x03_0000, NVIDIA), Kind::Accelerator);
        assert_eq!(Kind::of(0x03_0200, NVIDIA), Kind::Accelerator);
        assert_eq!(Kind::of(0x12_0000, AMD), Kind::Accelerator);
        assert_eq!(Kind::of(0x06_8000, NVIDIA), Kind::Fabric);
        assert_eq!(Kind::of(0x06_0400, NVIDIA), Kind::Other);
    }
}
