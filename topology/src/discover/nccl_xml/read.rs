//! Reads a `Machine` from NCCL's XML.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ringfold_types::limits::{MACHINE_XML_BYTES_MAX, MACHINE_XML_NODES_MAX};
use roxmltree::{Document, Node, ParsingOptions};

use crate::discover::pci::{Kind, megabytes, tenths};
use crate::machine::{Core, Gpu, Machine, Network, Nic, NicPort, PciAddress, PciDevice};
use crate::natural::Natural;

/// Bytes of one tag of a machine's description.
const MACHINE_TAG_BYTES_MAX: usize = 4 * 1024;

/// The attribute of a GPU that has the number of its group.
pub(super) const GROUP: &str = "ringfold_group";

/// The numbers of CPUs are below this.
const CPUS_MAX: u16 = 8192;

/// Why a text is not a topology in NCCL's XML format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclXmlError {
    /// The line, counted from 1.
    pub line: u32,
    /// The reason, as a sentence without its full stop.
    pub why: String,
}

impl fmt::Display for NcclXmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for NcclXmlError {}

pub(super) fn machine(text: &str) -> Result<Machine, NcclXmlError> {
    check_size(text)?;
    let options = ParsingOptions { nodes_limit: MACHINE_XML_NODES_MAX, ..Default::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|error| NcclXmlError { line: error.pos().row, why: error.to_string() })?;
    let mut reader = Reader::new(&document);
    reader.system(document.root_element())?;
    for element in document.root_element().descendants().filter(Node::is_element) {
        match element.tag_name().name() {
            "cpu" => reader.cpu(element)?,
            "pci" => reader.pci(element)?,
            "gpu" => reader.gpu(element)?,
            "xgmi" | "nvlink" => reader.link(element)?,
            "net" => reader.net(element)?,
            _ => {}
        }
    }
    Ok(reader.finish())
}

/// Refuses texts that would take long to parse: very long ones, and those with very long tags.
/// Namespaces are refused too, because the format has none.
fn check_size(text: &str) -> Result<(), NcclXmlError> {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if bytes > MACHINE_XML_BYTES_MAX {
        let why = format!("{bytes} bytes are more than the {MACHINE_XML_BYTES_MAX} allowed");
        return Err(NcclXmlError { line: 1, why });
    }
    let line_at =
        |end: usize| u32::try_from(text[..end].matches('\n').count() + 1).unwrap_or(u32::MAX);
    if let Some(at) = text.find("xmlns") {
        let why = "NCCL's format has no XML namespaces (`xmlns`)".to_owned();
        return Err(NcclXmlError { line: line_at(at), why });
    }
    let mut start = 0;
    for tag in text.split_inclusive('<') {
        let end = tag.find('>').unwrap_or(tag.len());
        if end > MACHINE_TAG_BYTES_MAX && !tag.starts_with('!') {
            let why = format!("a tag is longer than the {MACHINE_TAG_BYTES_MAX} bytes allowed");
            return Err(NcclXmlError { line: line_at(start), why });
        }
        start += tag.len();
    }
    Ok(())
}

/// The name of a NIC, and its address.
type NicKey = (Natural<String>, Option<PciAddress>);

/// The machine so far.
struct Reader<'a, 'input> {
    document: &'a Document<'input>,
    machine: Machine,
    cpus: BTreeSet<u16>,
    devices: BTreeMap<PciAddress, PciDevice>,
    /// GPUs, each with the group that a file written by ringfold gives it.
    gpus: BTreeMap<PciAddress, Option<u32>>,
    /// Links of GPUs: each to another GPU, or to a switch that all such GPUs share.
    links: Vec<(PciAddress, Option<PciAddress>)>,
    nics: BTreeMap<NicKey, Nic>,
}

impl<'a, 'input> Reader<'a, 'input> {
    fn new(document: &'a Document<'input>) -> Self {
        Self {
            document,
            machine: Machine::default(),
            cpus: BTreeSet::new(),
            devices: BTreeMap::new(),
            gpus: BTreeMap::new(),
            links: Vec::new(),
            nics: BTreeMap::new(),
        }
    }

    fn refuse<T>(&self, at: Node<'_, '_>, why: String) -> Result<T, NcclXmlError> {
        Err(NcclXmlError { line: self.document.text_pos_at(at.range().start).row, why })
    }

    /// The value of an attribute, if the element has it.
    fn value<T>(
        &self,
        at: Node<'_, '_>,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, NcclXmlError> {
        let Some(text) = at.attribute(name) else { return Ok(None) };
        let shown: String = text.chars().take(40).collect();
        match parse(text) {
            Some(value) => Ok(Some(value)),
            None => {
                let tag = at.tag_name().name();
                self.refuse(at, format!("`{name}=\"{shown}\"` of <{tag}> is not valid"))
            }
        }
    }

    /// The PCI address that an element must have.
    fn address(&self, at: Node<'_, '_>, name: &str) -> Result<PciAddress, NcclXmlError> {
        let address = self.value(at, name, |text| text.parse().ok())?;
        let tag = at.tag_name().name();
        address.map_or_else(|| self.refuse(at, format!("<{tag}> has no `{name}`")), Ok)
    }

    fn system(&self, root: Node<'_, '_>) -> Result<(), NcclXmlError> {
        let name = root.tag_name().name();
        if name != "system" {
            return self.refuse(root, format!("<{name}> is not NCCL's <system>"));
        }
        match self.value(root, "version", number::<u32>)? {
            Some(1 | 2) | None => Ok(()),
            Some(version) => self.refuse(
                root,
                format!("version {version} of the format is unknown; versions 1 and 2 are known"),
            ),
        }
    }

    fn cpu(&mut self, at: Node<'_, '_>) -> Result<(), NcclXmlError> {
        let node = self.node(at)?;
        for cpu in self.value(at, "affinity", mask)?.unwrap_or_default() {
            // A CPU belongs to one node: the first that lists it.
            if self.cpus.insert(cpu) {
                let core = Core { cpus: vec![cpu], node, socket: None, cache: None };
                self.machine.cores.push(core);
            }
        }
        Ok(())
    }

    fn pci(&mut self, at: Node<'_, '_>) -> Result<(), NcclXmlError> {
        let address = self.address(at, "busid")?;
        let above = at.parent_element().filter(|it| it.has_tag_name("pci"));
        let id = |name| Ok(self.value(at, name, hex::<u16>)?.unwrap_or_default());
        let speed = self.value(at, "link_speed", |text| Some(tenths(text)))?.unwrap_or_default();
        let width = self.value(at, "link_width", number::<u32>)?.unwrap_or_default();
        let device = PciDevice {
            address,
            parent: above.map(|above| self.address(above, "busid")).transpose()?,
            class: self.value(at, "class", hex)?.unwrap_or_default(),
            ids: (id("vendor")?, id("device")?),
            node: self.node_above(at, address)?,
            megabytes: megabytes(speed, width),
        };
        if Kind::of(device.class, device.ids.0) == Kind::Accelerator {
            self.gpus.entry(address).or_default();
        }
        if self.devices.insert(address, device).is_some() {
            return self.refuse(at, format!("the PCI device {address} occurs twice"));
        }
        Ok(())
    }

    /// The NUMA node of the CPU element around an element.
    fn node_above(
        &self,
        at: Node<'_, '_>,
        address: PciAddress,
    ) -> Result<Option<u16>, NcclXmlError> {
        let Some(above) = at.parent_element() else { return Ok(None) };
        match above.tag_name().name() {
            "cpu" => self.node(above),
            // Elements come before those within them.
            "pci" => {
                let above = self.address(above, "busid")?;
                Ok(self.devices.get(&above).filter(|_| above != address).and_then(|it| it.node))
            }
            _ => Ok(None),
        }
    }

    fn node(&self, cpu: Node<'_, '_>) -> Result<Option<u16>, NcclXmlError> {
        let node = self.value(cpu, "numaid", number::<i32>)?;
        Ok(node.and_then(|node| u16::try_from(node).ok()))
    }

    fn gpu(&mut self, at: Node<'_, '_>) -> Result<(), NcclXmlError> {
        let Some(pci) = at.parent_element().filter(|it| it.has_tag_name("pci")) else {
            return self.refuse(at, "<gpu> is not below <pci>".to_owned());
        };
        let address = self.address(pci, "busid")?;
        let group = self.value(at, GROUP, number::<u32>)?;
        self.gpus.insert(address, group);
        Ok(())
    }

    fn link(&mut self, at: Node<'_, '_>) -> Result<(), NcclXmlError> {
        let pci = at.parent_element().and_then(|gpu| gpu.parent_element());
        let Some(pci) = pci.filter(|it| it.has_tag_name("pci")) else {
            return self.refuse(at, "a link between GPUs is not below a <gpu>".to_owned());
        };
        let address = self.address(pci, "busid")?;
        // A switch may have an address that is not in the PCI tree. A link to a CPU connects no
        // GPUs.
        match self.value(at, "tclass", hex::<u32>)?.map(|class| class >> 8) {
            Some(0x0680) => self.links.push((address, None)),
            Some(class) if class >> 8 != 0x03 && class >> 8 != 0x12 => {}
            _ => self.links.push((address, Some(self.address(at, "target")?))),
        }
        Ok(())
    }

    fn net(&mut self, at: Node<'_, '_>) -> Result<(), NcclXmlError> {
        let above = at.parent_element().and_then(|nic| nic.parent_element());
        let pci = above.filter(|it| it.has_tag_name("pci"));
        let pci = pci.map(|pci| self.address(pci, "busid")).transpose()?;
        let device = pci.and_then(|pci| self.devices.get(&pci));
        let node = match above.filter(|it| it.has_tag_name("cpu")) {
            Some(cpu) => self.node(cpu)?,
            None => device.and_then(|device| device.node),
        };
        let Some(name) = at.attribute("name").filter(|name| !name.is_empty()) else {
            return self.refuse(at, "<net> has no `name`".to_owned());
        };
        let number = self.value(at, "port", number::<u8>)?.unwrap_or(1);
        let megabits = self.value(at, "speed", self::number::<u32>)?.unwrap_or_default();
        let card = self.value(at, "guid", hex::<u64>)?.unwrap_or_default().swap_bytes();
        let network = match device.map(|device| device.class >> 8) {
            _ if number == 0 => Network::Tcp,
            Some(0x0207) => Network::InfiniBand,
            _ => Network::Roce,
        };
        let gbps = megabits / 1000;
        let port = NicPort { number, network, is_active: true, gbps, ..NicPort::default() };
        let nic = self.nics.entry((Natural(name.to_owned()), pci)).or_insert_with(|| Nic {
            name: name.to_owned(),
            pci,
            node,
            card,
            ..Nic::default()
        });
        if nic.ports.iter().any(|other| other.number == number) {
            return self.refuse(at, format!("port {number} of {name} occurs twice"));
        }
        nic.ports.push(port);
        nic.ports.sort_by_key(|port| port.number);
        Ok(())
    }

    fn finish(mut self) -> Machine {
        let groups = self.groups();
        let mut numbers = BTreeMap::new();
        for address in self.gpus.keys() {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let group = groups.get(address);
            let domain = group.map(|group| *numbers.entry(*group).or_insert(next));
            let node = self.devices.get(address).and_then(|device| device.node);
            self.machine.gpus.push(Gpu { pci: *address, node, domain });
        }
        self.machine.cores.sort_by_key(|core| (core.node, core.cpus.clone()));
        self.machine.devices = self.devices.into_values().collect();
        self.machine.nics = self.nics.into_values().collect();
        self.machine
    }

    /// A number for each group of GPUs that links connect. A GPU without links is in none.
    fn groups(&self) -> BTreeMap<PciAddress, u32> {
        let known: BTreeMap<PciAddress, u32> =
            self.gpus.iter().filter_map(|(gpu, group)| Some((*gpu, (*group)?))).collect();
        if !known.is_empty() {
            return known;
        }
        let first = self.links.iter().find(|(_, to)| to.is_none()).map(|(gpu, _)| *gpu);
        let mut beside: BTreeMap<PciAddress, Vec<PciAddress>> = BTreeMap::new();
        for (gpu, to) in &self.links {
            let Some(to) = to.or(first).filter(|to| to != gpu && self.gpus.contains_key(to)) else {
                continue;
            };
            beside.entry(*gpu).or_default().push(to);
            beside.entry(to).or_default().push(*gpu);
        }
        let mut groups = BTreeMap::new();
        for start in beside.keys() {
            let number = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            let mut next = vec![*start];
            while let Some(gpu) = next.pop() {
                if let Entry::Vacant(group) = groups.entry(gpu) {
                    group.insert(number);
                    next.extend(&beside[&gpu]);
                }
            }
        }
        groups
    }
}

fn number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}

/// A number in base 16, with or without `0x`.
fn hex<N: TryFrom<u64>>(text: &str) -> Option<N> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    N::try_from(u64::from_str_radix(digits, 16).ok()?).ok()
}

/// A set of CPUs: words of 32 bits in base 16, the highest first, separated by commas.
fn mask(text: &str) -> Option<Vec<u16>> {
    let mut cpus = Vec::new();
    for (at, word) in text.rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok().filter(|_| word.len() <= 8)?;
        let first = u16::try_from(32 * at).ok().filter(|first| *first < CPUS_MAX);
        match first {
            Some(first) => {
                cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|it| first + it))
            }
            None if bits > 0 => return None,
            None => {}
        }
    }
    Some(cpus)
}
