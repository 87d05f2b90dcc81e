//! The evidence of this rank: its ports, and what tells where they and its host are.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use ringfold_bootstrap::interface::{Choice, Filter};
use ringfold_topology::discover::files::slurm;
use ringfold_topology::discover::machine;
use ringfold_topology::evidence::{Attached, Evidence, HostPath, PortEvidence, Source};
use ringfold_topology::fabric::{Place, PortId};
use ringfold_topology::machine::{Interface, Machine, Network, PciAddress};
use ringfold_topology::subnet;
use ringfold_transport::rdma::{OpenPort, Rails};
use ringfold_types::limits::{
    EVIDENCE_NAME_BYTES_MAX, EVIDENCE_PORTS_MAX, FABRIC_LEVELS_MAX, LANES_MAX,
};

use super::file::{Described, Sought, TopologyError};
use super::wire;
use crate::card::EvidenceCard;
use crate::config::Config;
use crate::settings::digest;

/// What a rank knows of the fabric by itself.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// RDMA ports in the order of `Rails::ports`, then the interfaces for TCP.
    pub(super) evidence: Evidence,
    /// How many of the ports are RDMA ports.
    pub(super) rdma: usize,
    /// The machine, if it was worth reading.
    pub(super) machine: Option<Machine>,
    /// The digest of what the user's file says of all hosts.
    pub(crate) site: Option<u64>,
    /// It may change how data moves.
    is_of_use: bool,
}

/// An interface on which this rank may listen for TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) choice: Choice,
    /// Its rail, if the user lists one interface for each.
    rail: Option<u16>,
}

/// The interfaces that may be rails for TCP: those that the user lists one by one, or else those as
/// fast as the first of `choices`, which are all that suit, the best first; but one for each wire.
/// The first alone where speeds are unknown, or topology is off.
pub(crate) fn interfaces(
    config: &Config,
    choices: &[Choice],
    machine: Option<&Machine>,
) -> Vec<Listed> {
    let choices = &choices[..if config.topology { choices.len() } else { choices.len().min(1) }];
    let names: Vec<&str> = choices.iter().map(|choice| choice.interface.as_str()).collect();
    if let Some(numbers) = filter(config).and_then(|filter| filter.numbers(&names)) {
        let rails = numbers.into_iter().map(|number| u16::try_from(number).ok());
        let listed = choices.iter().cloned().zip(rails);
        let mut listed: Vec<_> = listed.map(|(choice, rail)| Listed { choice, rail }).collect();
        listed.sort_by_key(|it| it.rail);
        listed.truncate(LANES_MAX);
        return listed;
    }
    let gbps = |choice: &Choice| device(choice, machine).map_or(0, |it| it.gbps);
    let Some(first) = choices.first() else { return Vec::new() };
    let is_like = |it: &&Choice| {
        let is_as_fast = gbps(it) > 0 && gbps(it) == gbps(first);
        is_as_fast && it.address.is_ipv4() == first.address.is_ipv4()
    };
    let mut taken = wires(&first.interface, machine);
    let is_apart = |it: &&Choice| {
        let wires = wires(&it.interface, machine);
        let is_apart = taken.is_disjoint(&wires);
        taken.extend(wires);
        is_apart
    };
    let alike = choices[1..].iter().filter(is_like).filter(is_apart);
    let all = [first].into_iter().chain(alike).take(LANES_MAX).cloned();
    all.map(|choice| Listed { choice, rail: None }).collect()
}

/// What carries the bytes of an interface: a physical device, or an interface on no other one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wire {
    Device(PciAddress),
    Interface(String),
}

/// The wires below an interface, such as those of a bond's parts.
fn wires(interface: &str, machine: Option<&Machine>) -> BTreeSet<Wire> {
    let mut names = vec![interface];
    let mut wires = BTreeSet::new();
    let mut at = 0;
    while let Some(name) = names.get(at).copied() {
        at += 1;
        let found = machine.and_then(|it| it.interfaces.iter().find(|it| it.name == name));
        let below = found.map(|it| it.below.as_slice()).unwrap_or_default();
        if below.is_empty() {
            let device = found.and_then(|it| it.pci).map(Wire::Device);
            wires.insert(device.unwrap_or_else(|| Wire::Interface(name.to_owned())));
        }
        for below in below {
            if !names.contains(&below.as_str()) {
                names.push(below);
            }
        }
    }
    wires
}

fn device<'a>(choice: &Choice, machine: Option<&'a Machine>) -> Option<&'a Interface> {
    machine?.interfaces.iter().find(|it| it.name == choice.interface)
}

impl Own {
    /// The machine, where its interfaces leave a choice, or something may tell where a port is.
    pub(crate) fn machine(
        config: &Config,
        rails: Option<&Rails>,
        choices: &[Choice],
    ) -> Option<Machine> {
        let ports = rails.map_or(0, |rails| rails.ports().len());
        let is_worth_it = ports > 0 || choices.len() > 1 || config.topology_file.is_some();
        (config.topology && is_worth_it).then(|| machine(Path::new("/")))
    }

    /// Everything that tells where this rank is. `interfaces` are those on which it listens.
    ///
    /// # Errors
    /// The user's file cannot be used.
    pub(crate) fn look(
        config: &Config,
        host: &str,
        machine: Option<Machine>,
        rails: Option<&Rails>,
        interfaces: &[Listed],
    ) -> Result<Self, TopologyError> {
        if !config.topology {
            return Ok(Self::default());
        }
        let described = config.topology_file.as_deref().map(Described::load).transpose()?;
        let open = rails.map(Rails::ports).unwrap_or_default();
        let rdma = open.len();
        let ports = open.into_iter().map(|port| Port::rdma(&port));
        let tcp = interfaces.iter().map(|it| Port::tcp(it, machine.as_ref()));
        let ports: Vec<Port> = ports.chain(tcp).take(EVIDENCE_PORTS_MAX).collect();
        let sought: Vec<Sought<'_>> = ports.iter().map(Port::sought).collect();
        let by_file = described.as_ref().and_then(|it| it.path(&sought, host));
        let path = by_file.into_iter().chain(slurm(config, host)).max_by_key(|path| path.source);
        let mut evidence = Evidence {
            path: path.map(short),
            crosses: described.as_ref().and_then(Described::crosses),
            ports: Vec::new(),
        };
        for Port { evidence: mut port, .. } in ports.iter().cloned() {
            let at = sought[evidence.ports.len()];
            port.attached.extend(described.as_ref().and_then(|it| it.attached(at)));
            evidence.ports.push(port);
        }
        let is_placed = evidence.ports.iter().flat_map(|port| &port.attached).any(is_named);
        let has_choice = rdma > 1 || evidence.ports.len() > rdma + 1;
        let is_of_use = is_placed || has_choice || evidence.path.is_some();
        let site = described.and_then(|it| it.digest());
        Ok(Self { evidence, rdma, machine, site, is_of_use })
    }

    /// The evidence alone.
    pub(crate) fn into_evidence(self) -> Evidence {
        self.evidence
    }

    /// What the card says of it. `listening` is how many TCP addresses the rank tells.
    pub(crate) fn card(&self, listening: usize) -> Option<EvidenceCard> {
        let bytes = wire::encode(&self.evidence);
        let digest = digest(&bytes);
        let bytes = wire::Statement::bytes(listening) + bytes.len();
        let has_some = !self.evidence.ports.is_empty() || self.evidence.path.is_some();
        let is_of_use = self.is_of_use;
        has_some.then_some(EvidenceCard { digest, bytes, is_of_use })
    }
}

/// The user's list of interfaces.
pub(crate) fn filter(config: &Config) -> Option<Filter> {
    config.socket_ifname.as_deref().map(|text| {
        let Ok(filter) = text.parse::<Filter>();
        filter
    })
}

/// Whether a source names the place, or the switch, of a port. Subnets of a single port tell
/// nothing.
const fn is_named(attached: &Attached) -> bool {
    !matches!(attached, Attached::Subnet { .. })
}

/// What Slurm says of this host. Launchers may give all ranks the variables of another host, so the
/// name there counts.
fn slurm(config: &Config, host: &str) -> Option<HostPath> {
    let set = |name: &str| config.environment.get(name).map(String::as_str);
    let (address, pattern) = (set("SLURM_TOPOLOGY_ADDR")?, set("SLURM_TOPOLOGY_ADDR_PATTERN")?);
    let (path, node) = slurm::address(address, pattern)?;
    let short = host.split_once('.').map_or(host, |(short, _)| short);
    (node == host || node == short).then_some(path)
}

/// The path with as many groups as ranks tell each other, the innermost, and names as long.
fn short(mut path: HostPath) -> HostPath {
    path.groups.drain(..path.groups.len().saturating_sub(FABRIC_LEVELS_MAX));
    path.groups.iter_mut().for_each(cut);
    path
}

/// Cuts a name to the length that ranks tell each other.
fn cut(name: &mut String) {
    name.truncate(name.floor_char_boundary(EVIDENCE_NAME_BYTES_MAX));
}

/// A port, and what it may be known by in files.
#[derive(Clone, Debug)]
struct Port {
    evidence: PortEvidence,
    ids: Vec<PortId>,
    interface: String,
}

impl Port {
    fn rdma(port: &OpenPort) -> Self {
        let OpenPort { mut name, network, gid, prefix, id, gbps, interface, declared } =
            port.clone();
        cut(&mut name);
        let declared = declared.map(|place| Attached::Rail(place, Source::Declared));
        let by_subnet = prefix.and_then(|prefix| subnet::of_address(gid, prefix));
        let attached = declared.into_iter().chain(by_subnet).collect();
        let mut ids = vec![id];
        if network != Network::InfiniBand {
            ids.push(PortId::Address(Ipv6Addr::from(gid).to_bits()));
        }
        Self { evidence: PortEvidence { name, network, gbps, attached }, ids, interface }
    }

    fn tcp(Listed { choice, rail }: &Listed, machine: Option<&Machine>) -> Self {
        let (ip, prefix) = match choice.address {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped(), choice.prefix.saturating_add(96)),
            IpAddr::V6(ip) => (ip, choice.prefix),
        };
        let place = rail.map(|rail| Place { rail, plane: 0 });
        let declared = place.map(|place| Attached::Rail(place, Source::Declared));
        let by_subnet = subnet::of_address(ip.octets(), prefix);
        let device = device(choice, machine);
        let mac = device.map(|it| it.mac).filter(|mac| *mac != 0).map(PortId::Mac);
        let mut name = choice.interface.clone();
        cut(&mut name);
        let evidence = PortEvidence {
            name,
            network: Network::Tcp,
            gbps: device.map_or(0, |it| it.gbps),
            attached: declared.into_iter().chain(by_subnet).collect(),
        };
        let ids = mac.into_iter().chain([PortId::Address(ip.to_bits())]).collect();
        Self { evidence, ids, interface: choice.interface.clone() }
    }

    fn sought(&self) -> Sought<'_> {
        Sought { ids: &self.ids, interface: &self.interface }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ringfold_bootstrap::interface::Reason;

    use super::*;

    /// Names of the interfaces that are taken of these, each with its PCI device and those below.
    fn taken(all: &[(&str, Option<u8>, &[&str])]) -> Vec<String> {
        let interface = |(name, pci, below): &(&str, Option<u8>, &[&str])| Interface {
            name: (*name).to_owned(),
            gbps: 10,
            pci: pci.map(|bus| PciAddress { bus, ..PciAddress::default() }),
            below: below.iter().map(|it| (*it).to_owned()).collect(),
            ..Interface::default()
        };
        let interfaces: Vec<Interface> = all.iter().map(interface).collect();
        let choice = |it: &Interface| Choice {
            interface: it.name.clone(),
            address: IpAddr::from([10, 0, 0, 1]),
            prefix: 24,
            reason: Reason::Named,
        };
        let choices: Vec<Choice> = interfaces.iter().map(choice).collect();
        let machine = Machine { interfaces, ..Machine::default() };
        let config = Config::from_map(BTreeMap::new()).unwrap();
        let listed = super::interfaces(&config, &choices, Some(&machine));
        listed.into_iter().map(|it| it.choice.interface).collect()
    }

    #[test]
    fn interfaces_on_one_wire_are_one_rail() {
        let two: [(&str, Option<u8>, &[&str]); 2] =
            [("eth0", Some(1), &[]), ("eth1", Some(2), &[])];
        assert_eq!(taken(&two), ["eth0", "eth1"]);
        assert_eq!(taken(&[two[0], ("eth0.100", None, &["eth0"]), two[1]]), ["eth0", "eth1"]);
        assert_eq!(taken(&[("eth0.100", None, &["eth0"]), two[0], two[1]]), ["eth0.100", "eth1"]);
        let vlan = |name| (name, None, &["bond0"][..]);
        let bond = ("bond0", None, &["eth0", "eth1"][..]);
        assert_eq!(taken(&[vlan("bond0.10"), vlan("bond0.20"), bond]), ["bond0.10"]);
        assert_eq!(taken(&[("one", Some(1), &[]), ("other", Some(1), &[])]), ["one"]);
        let circle = [("a", None, &["b"][..]), ("b", None, &["a"])];
        assert_eq!(taken(&circle).len(), 2, "nonsense ends too");
        assert_eq!(taken(&[("veth0", None, &[]), ("veth1", None, &[])]), ["veth0", "veth1"]);
    }

    #[test]
    fn slurm_is_believed_about_this_host_only() {
        let pairs = [("ADDR", "s0.s1.node7"), ("ADDR_PATTERN", "switch.switch.node")];
        let pair = |(name, value)| (format!("SLURM_TOPOLOGY_{name}"), String::from(value));
        let config = Config::from_map(pairs.map(pair).into_iter().collect()).unwrap();
        for (host, is_believed) in
            [("node7", true), ("node7.example.org", true), ("node8", false), ("node", false)]
        {
            assert_eq!(slurm(&config, host).is_some(), is_believed, "{host}");
        }
    }
}
