//! GPUs and other accelerators, by PCI class, and the links between them.

use std::collections::BTreeMap;

use super::pci::{Kind, Pci};
use super::root::Root;
use crate::machine::{Gpu, PciDevice};

/// The GPUs, in PCI order. A virtual function is left out if its physical function is present.
pub(super) fn read(root: &Root, pci: &Pci) -> Vec<Gpu> {
    let kind = |device: &PciDevice| Kind::of(device.class, device.ids.0);
    let has_fabric = pci.iter().any(|device| kind(device) == Kind::Fabric);
    let mut numbers = BTreeMap::new();
    let mut gpus = Vec::new();
    for device in pci.iter().filter(|device| kind(device) == Kind::Accelerator) {
        let physical = pci.physical(root, device.address);
        if physical.is_some_and(|it| pci.find(it).is_some()) {
            continue;
        }
        // NVIDIA's switches join all GPUs of that vendor. AMD's driver numbers its groups.
        let is_nvidia = Kind::of(0x06_8000, device.ids.0) == Kind::Fabric;
        let name = match hive(root, pci, device) {
            None if has_fabric && is_nvidia => Some("NVSwitch".to_owned()),
            hive => hive,
        };
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let domain = name.map(|name| *numbers.entry(name).or_insert(next));
        gpus.push(Gpu { pci: device.address, node: device.node, domain });
    }
    gpus
}

/// The group of GPUs that xGMI connects to this one, by the driver's identifier.
fn hive(root: &Root, pci: &Pci, device: &PciDevice) -> Option<String> {
    let path = pci.path(device.address)?;
    let group = root.resolved(&format!("{path}/xgmi_hive_info"));
    root.text(&format!("{group}/xgmi_hive_id")).filter(|id| !id.is_empty() && id != "0")
}
