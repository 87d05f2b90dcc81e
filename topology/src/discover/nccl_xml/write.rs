//! Writes a `Machine` in NCCL's XML format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::read::GROUP;
use crate::discover::pci::{SPEEDS, WIDTHS, megabytes};
use crate::machine::{Gpu, Machine, Nic, PciAddress, PciDevice};

pub(super) fn machine(machine: &Machine) -> String {
    let mut writer = Writer::new(machine);
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
    /// Devices by the bridge above them. The key is `None` for devices without a known bridge.
    below: BTreeMap<Option<PciAddress>, Vec<&'a PciDevice>>,
    /// GPUs by address, with their numbers.
    gpus: BTreeMap<PciAddress, (usize, &'a Gpu)>,
    /// NICs by address. The key is `None` for NICs without a known device.
    nics: BTreeMap<Option<PciAddress>, Vec<&'a Nic>>,
    text: String,
    /// Number of ports so far. NCCL numbers them.
    port: usize,
}

impl<'a> Writer<'a> {
    fn new(machine: &'a Machine) -> Self {
        let known: BTreeSet<PciAddress> = machine.devices.iter().map(|it| it.address).collect();
        let mut below: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for device in &machine.devices {
            let is_above = |above: &PciAddress| known.contains(above) && *above != device.address;
            below.entry(device.parent.filter(is_above)).or_default().push(device);
        }
        let mut nics: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for nic in &machine.nics {
            nics.entry(nic.pci.filter(|it| known.contains(it))).or_default().push(nic);
        }
        let gpus = machine.gpus.iter().enumerate().map(|(at, gpu)| (gpu.pci, (at, gpu))).collect();
        Self { machine, below, gpus, nics, text: String::new(), port: 0 }
    }

    fn line(&mut self, depth: usize, line: &str) {
        // Writing to a string does not fail.
        writeln!(self.text, "{:1$}{line}", "", 2 * depth).unwrap_or_default();
    }

    fn cpu(&mut self, node: Option<u16>) {
        let number = node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
        let affinity = affinity(self.machine, node);
        self.line(1, &format!("<cpu numaid=\"{number}\"{affinity}>"));
        for device in self.below.get(&None).cloned().unwrap_or_default() {
            if device.node == node {
                self.tree(device);
            }
        }
        for nic in self.nics.get(&None).cloned().unwrap_or_default() {
            if nic.node == node {
                self.nic(2, nic);
            }
        }
        self.line(1, "</cpu>");
    }

    /// Writes a device and all devices below it. Not recursive, because a file may be of any depth.
    fn tree(&mut self, top: &'a PciDevice) {
        // For each open element, the devices that remain to be written within it.
        let mut open: Vec<Vec<&PciDevice>> = Vec::new();
        let mut next = Some(top);
        loop {
            if let Some(device) = next {
                self.open(open.len() + 2, device);
                let below = self.below.get(&Some(device.address));
                open.push(below.into_iter().flatten().rev().copied().collect());
            }
            let Some(below) = open.last_mut() else { break };
            next = below.pop();
            if next.is_none() {
                open.pop();
                self.line(open.len() + 2, "</pci>");
            }
        }
    }

    /// Writes the opening tag of a device, and its GPU or NICs.
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
        if let Some((at, gpu)) = self.gpus.get(address).copied() {
            let group = gpu.domain.map(|it| format!(" {}=\"{it}\"", GROUP));
            self.line(depth + 1, &format!("<gpu dev=\"{at}\"{}/>", group.unwrap_or_default()));
        }
        for nic in self.nics.get(&Some(*address)).cloned().unwrap_or_default() {
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

/// The CPUs of a NUMA node as an attribute. Empty if it has none.
fn affinity(machine: &Machine, node: Option<u16>) -> String {
    let cores = machine.cores.iter().filter(|core| core.node == node);
    let cpus: Vec<usize> = cores.flat_map(|core| &core.cpus).map(|cpu| usize::from(*cpu)).collect();
    let Some(last) = cpus.iter().max() else { return String::new() };
    let mut words = vec![0u32; last / 32 + 1];
    cpus.iter().for_each(|cpu| words[cpu / 32] |= 1 << (cpu % 32));
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    format!(" affinity=\"{}\"", words.join(","))
}

/// A speed and a width that result in this many megabytes per second, as attributes.
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
    let escaped = |it: char| match it {
        '&' | '<' | '"' | '\0'..' ' => format!("&#{};", u32::from(it)),
        _ => it.to_string(),
    };
    text.chars().map(escaped).collect()
}
