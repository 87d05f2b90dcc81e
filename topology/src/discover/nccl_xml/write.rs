//! From a `Machine` to NCCL's XML.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::discover::pci::{SPEEDS, WIDTHS, megabytes};
use crate::machine::{Machine, Nic, PciAddress, PciDevice};

pub(super) fn machine(machine: &Machine) -> String {
    let mut writer = Writer { machine, text: String::new(), port: 0 };
    writer.text += "<system version=\"1\">\n";
    let nodes = machine.cores.iter().map(|core| core.node);
    let nodes = nodes.chain(machine.devices.iter().map(|device| device.node));
    let nodes: BTreeSet<_> = nodes.chain(machine.nics.iter().map(|nic| nic.node)).collect();
    for node in nodes {
        writer.cpu(node);
    }
    writer.text += "</system>\n";
    writer.text
}

struct Writer<'a> {
    machine: &'a Machine,
    text: String,
    /// Ports so far: NCCL numbers them.
    port: usize,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        // Writing to a string does not fail.
        writeln!(self.text, "{:1$}{line}", "", 2 * depth).unwrap_or_default();
    }

    fn cpu(&mut self, node: Option<u16>) {
        let number = node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
        let affinity = affinity(self.machine, node);
        self.line(1, &format!("<cpu numaid=\"{number}\"{affinity}>"));
        let machine = self.machine;
        let is_top = |device: &&PciDevice| device.node == node && !self.has_parent(device);
        let tops: Vec<&PciDevice> = machine.devices.iter().filter(is_top).collect();
        for device in tops {
            self.tree(device);
        }
        let is_loose = |nic: &&Nic| nic.node == node && !self.is_known(nic.pci);
        for nic in machine.nics.iter().filter(is_loose).collect::<Vec<_>>() {
            self.nic(2, nic);
        }
        self.line(1, "</cpu>");
    }

    fn is_known(&self, address: Option<PciAddress>) -> bool {
        self.machine.devices.iter().any(|device| Some(device.address) == address)
    }

    fn has_parent(&self, device: &PciDevice) -> bool {
        device.parent != Some(device.address) && self.is_known(device.parent)
    }

    /// A device and all below it. Written without recursion, as a file may be of any depth.
    fn tree(&mut self, top: &PciDevice) {
        let machine = self.machine;
        let mut open: Vec<(&PciDevice, Vec<&PciDevice>)> = Vec::new();
        let mut next = machine.devices.iter().find(|device| device.address == top.address);
        loop {
            if let Some(device) = next {
                self.open(open.len() + 2, device);
                let is_below = |it: &&PciDevice| it.parent == Some(device.address);
                let below = machine.devices.iter().rev().filter(is_below).collect();
                open.push((device, below));
            }
            let Some((_, below)) = open.last_mut() else { break };
            next = below.pop();
            if next.is_none() {
                open.pop();
                self.line(open.len() + 2, "</pci>");
            }
        }
    }

    /// The beginning of a device's element, with the GPU or the NICs that it is.
    fn open(&mut self, depth: usize, device: &PciDevice) {
        let PciDevice { address, class, ids: (vendor, id), .. } = device;
        let slot = slot(device.megabytes);
        self.line(
            depth,
            &format!(
                "<pci busid=\"{address}\" class=\"0x{class:06x}\" vendor=\"0x{vendor:04x}\" \
                 device=\"0x{id:04x}\"{slot}>"
            ),
        );
        let machine = self.machine;
        if let Some(at) = machine.gpus.iter().position(|gpu| gpu.pci == *address) {
            let group = machine.gpus[at].domain.map(|it| format!(" {}=\"{it}\"", super::GROUP));
            self.line(depth + 1, &format!("<gpu dev=\"{at}\"{}/>", group.unwrap_or_default()));
        }
        for nic in machine.nics.iter().filter(|nic| nic.pci == Some(*address)) {
            self.nic(depth + 1, nic);
        }
    }

    fn nic(&mut self, depth: usize, nic: &Nic) {
        self.line(depth, "<nic>");
        let guid = nic.card.swap_bytes();
        for port in nic.ports.iter().filter(|port| port.is_active) {
            let (dev, number, speed) = (self.port, port.number, u64::from(port.gbps) * 1000);
            self.port += 1;
            let name = escaped(&nic.name);
            self.line(
                depth + 1,
                &format!(
                    "<net name=\"{name}\" dev=\"{dev}\" speed=\"{speed}\" port=\"{number}\" \
                     guid=\"0x{guid:x}\"/>"
                ),
            );
        }
        self.line(depth, "</nic>");
    }
}

/// The CPUs of a NUMA node as an attribute; nothing without any.
fn affinity(machine: &Machine, node: Option<u16>) -> String {
    let cores = machine.cores.iter().filter(|core| core.node == node);
    let cpus: Vec<usize> = cores.flat_map(|core| &core.cpus).map(|cpu| usize::from(*cpu)).collect();
    let Some(last) = cpus.iter().max() else { return String::new() };
    let mut words = vec![0u32; last / 32 + 1];
    cpus.iter().for_each(|cpu| words[cpu / 32] |= 1 << (cpu % 32));
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    format!(" affinity=\"{}\"", words.join(","))
}

/// A speed and a width that make this many megabytes per second, as attributes.
fn slot(speed: u32) -> String {
    let mut slots = WIDTHS.iter().rev().flat_map(|width| SPEEDS.map(|tenths| (tenths, *width)));
    match slots.find(|(tenths, width)| speed > 0 && megabytes(*tenths, *width) == speed) {
        Some((tenths, width)) => {
            let (whole, tenth) = (tenths / 10, tenths % 10);
            format!(" link_speed=\"{whole}.{tenth} GT/s PCIe\" link_width=\"{width}\"")
        }
        None => String::new(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
