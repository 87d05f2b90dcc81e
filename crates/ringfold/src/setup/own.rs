//! The evidence of this rank: its ports, and what tells where they and its host are.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use ringfold_bootstrap::interface::{Choice, Filter};
use ringfold_topology::discover::files::slurm;
use ringfold_topology::discover::machine;
use ringfold_topology::evidence::{Attached, Evidence, HostPath, PortEvidence, Source};
use ringfold_topology::fabric::{Place, PortId};
use ringfold_topology::machine::{Interface, Machine, Network};
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
/// fast as the first of `choices`, which are all that suit, the best first. That one alone where
/// speeds are unknown, or topology is off.
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
    let alike = choices[1..].iter().filter(is_like);
    let all = [first].into_iter().chain(alike).take(LANES_MAX).cloned();
    all.map(|choice| Listed { choice, rail: None }).collect()
}

fn device<'a>(choice: &Choice, machine: Option<&'a Machine>) -> Option<&'a Interface> {
    machine?.interfaces.iter().find(|it| it.name == choice.interface)
}

impl Own {
    /// The machine, where its ports or interfaces leave a choice.
    pub(crate) fn machine(
        config: &Config,
        rails: Option<&Rails>,
        choices: &[Choice],
    ) -> Option<Machine> {
        let ports = rails.map_or(0, |rails| rails.ports().len());
        let is_worth_it = config.topology && (ports > 1 || choices.len() > 1);
        is_worth_it.then(|| machine(Path::new("/")))
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
        let path = by_file.into_iter().chain(slurm(config)).max_by_key(|path| path.source);
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

/// What Slurm says of this host.
fn slurm(config: &Config) -> Option<HostPath> {
    let set = |name: &str| config.environment.get(name).map(String::as_str);
    slurm::address(set("SLURM_TOPOLOGY_ADDR")?, set("SLURM_TOPOLOGY_ADDR_PATTERN")?)
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
