//! The whole machine, read from a root folder.

use std::path::Path;

use super::cpus::Cpus;
use super::net::Addresses;
use super::pci::Pci;
use super::root::Root;
use super::{cores, gpu, net, nic};
use crate::machine::{Core, Machine, PciAddress};
use crate::prices::Locality;

/// Reads the host below `root`: `/` is the live system, another folder a recording of one. It never
/// fails. A value that is missing, hidden or nonsense is `None` or 0 in the result, and
/// `Machine::remarks` lists such facts. Takes some thousand short reads.
#[must_use]
pub fn machine(root: &Path) -> Machine {
    read(&Root::new(root))
}

/// Reads only the cores of the host below `root`, like `machine`. Takes some short reads for each
/// core.
#[must_use]
pub fn machine_cores(root: &Path) -> Vec<Core> {
    cores::read(&Root::new(root)).0
}

/// The socket and the last-level cache that all of `cpus` share, on the host below `root`. Takes
/// about ten short reads.
#[must_use]
pub fn locality(root: &Path, cpus: &Cpus) -> Locality {
    cores::locality(&Root::new(root), cpus)
}

/// The rate of the devices below a network interface of the host below `root`, in Mbit/s. 0 if it
/// is unknown, or no device is below: the rate of a virtual interface is not that of a wire.
#[must_use]
pub fn wire_mbps(root: &Path, interface: &str) -> u32 {
    net::wire_mbps(&Root::new(root), interface)
}

/// The rate of an RDMA port of the host below `root`, in Gbit/s; 0 if the kernel does not show it.
#[must_use]
pub fn port_gbps(root: &Path, device: &str, port: u8) -> u32 {
    nic::port_gbps(&Root::new(root), device, port)
}

pub(super) fn read(root: &Root) -> Machine {
    let (cores, nodes) = cores::read(root);
    let addresses = Addresses::read(root);
    let has_nodes = nodes.len() > 1;
    let mut pci = Pci::read(root, nodes);
    let interfaces = net::read(root, &mut pci, &addresses);
    let nics = nic::read(root, &mut pci, &interfaces, &addresses);
    let mut machine = Machine {
        name: root.text("proc/sys/kernel/hostname").unwrap_or_default(),
        cores,
        gpus: gpu::read(root, &pci),
        nics,
        interfaces,
        devices: pci.iter().cloned().collect(),
        remarks: Vec::new(),
    };
    machine.remarks = remarks(&machine, &pci, &addresses, has_nodes);
    machine
}

/// Remarkable facts about a machine, a sentence each.
fn remarks(machine: &Machine, pci: &Pci, addresses: &Addresses, has_nodes: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut say = |is_so: bool, remark: String| {
        if is_so {
            remarks.push(remark);
        }
    };
    say(
        machine.cores.is_empty(),
        "The kernel hides its CPUs, so ranks cannot be placed near them.".into(),
    );
    let nics = machine.nics.iter().filter_map(|nic| nic.pci);
    let ends: Vec<PciAddress> = nics.chain(machine.gpus.iter().map(|gpu| gpu.pci)).collect();
    say(
        !pci.misplaced.is_empty(),
        format!("The kernel gives NUMA nodes that do not exist for {}.", list(&pci.misplaced)),
    );
    let nowhere = |end: &&PciAddress| pci.find(**end).is_some_and(|device| device.node.is_none());
    let nowhere: Vec<PciAddress> = ends.iter().filter(nowhere).copied().collect();
    say(
        has_nodes && !nowhere.is_empty(),
        format!("The kernel gives no usable NUMA node for {}.", list(&nowhere)),
    );
    say(
        ends.len() > 1 && pci.iter().all(|device| device.parent.is_none()),
        format!(
            "The PCI tree is flat: no bridge is above {} NICs and GPUs, as in virtual machines. \
             It does not show which are near each other.",
            ends.len()
        ),
    );
    say(
        !pci.is_shown && !ends.is_empty(),
        "The list of PCI devices is hidden, as in containers. Only NICs are known.".into(),
    );
    let hidden: Vec<&str> =
        machine.nics.iter().filter(|nic| nic.pci.is_none()).map(|nic| nic.name.as_str()).collect();
    say(
        !hidden.is_empty(),
        format!("No PCI address is visible for {} (software, or hidden).", list(&hidden)),
    );
    let unclear = addresses.unclear();
    say(
        !unclear.is_empty(),
        format!(
            "Several interfaces share a network, so these addresses have no known interface: {}.",
            list(&unclear)
        ),
    );
    remarks
}

/// The first few values, and the number of the others.
fn list<T: ToString>(all: &[T]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = all.iter().take(SHOWN).map(T::to_string).collect();
    match all.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
