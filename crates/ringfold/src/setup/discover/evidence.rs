//! The evidence of this rank: its ports, their places and the place of its host.

use std::net::{IpAddr, Ipv6Addr};

use ringfold_topology::discover::files::slurm;
use ringfold_topology::discover::{PortQuery, TopologyFile};
use ringfold_topology::evidence::{Attached, Evidence, HostPath, PortEvidence, Source};
use ringfold_topology::fabric::{Place, PortId};
use ringfold_topology::machine::{Machine, Network};
use ringfold_topology::subnet;
use ringfold_transport::rdma::OpenPort;
use ringfold_types::limits::{EVIDENCE_NAME_BYTES_MAX, EVIDENCE_PORTS_MAX, FABRIC_LEVELS_MAX};

use super::interfaces::{Listed, device};
use crate::config::Config;
use crate::setup::error::TopologyError;

/// The evidence of a rank about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalEvidence {
    /// The ports: RDMA ports in the order of `Rails::ports`, then the interfaces for TCP.
    pub(crate) evidence: Evidence,
    /// The number of RDMA ports.
    pub(crate) rdma: usize,
    /// The digest of the user's topology file, if the file describes all hosts.
    pub(crate) site: Option<u64>,
    /// Whether the evidence may change routes or schedules.
    pub(crate) is_of_use: bool,
}

impl LocalEvidence {
    /// The evidence of a rank on `host` that has opened these `rdma` ports and listens on
    /// `interfaces`.
    ///
    /// # Errors
    /// The user's topology file cannot be used.
    pub(super) fn look(
        config: &Config,
        host: &str,
        machine: Option<&Machine>,
        rdma: &[OpenPort],
        interfaces: &[Listed],
    ) -> Result<Self, TopologyError> {
        if !config.topology {
            return Ok(Self::default());
        }
        let described = config.topology_file.as_deref().map(TopologyFile::load).transpose()?;
        let tcp = interfaces.iter().map(|it| Port::tcp(it, machine));
        let ports = rdma.iter().map(Port::rdma).chain(tcp);
        let ports: Vec<Port> = ports.take(EVIDENCE_PORTS_MAX).collect();
        let query: Vec<PortQuery<'_>> = ports.iter().map(Port::query).collect();
        let by_file = described.as_ref().and_then(|it| it.path(&query, host));
        let path = by_file.into_iter().chain(slurm(config, host)).max_by_key(|path| path.source);
        let mut evidence = Evidence {
            path: path.map(short),
            crosses: described.as_ref().and_then(TopologyFile::crosses),
            ports: Vec::new(),
        };
        for Port { evidence: mut port, .. } in ports.iter().cloned() {
            let at = query[evidence.ports.len()];
            port.attached.extend(described.as_ref().and_then(|it| it.attached(at)));
            evidence.ports.push(port);
        }
        let is_placed = evidence.ports.iter().flat_map(|port| &port.attached).any(is_named);
        let rdma = rdma.len();
        let has_choice = rdma > 1 || evidence.ports.len() > rdma + 1;
        let is_of_use = is_placed || has_choice || evidence.path.is_some();
        let site = described.and_then(|it| it.digest());
        Ok(Self { evidence, rdma, site, is_of_use })
    }
}

/// Whether a source names the place, or the switch, of a port. The subnet of a single port names
/// neither.
const fn is_named(attached: &Attached) -> bool {
    !matches!(attached, Attached::Subnet { .. })
}

/// The path of this host by Slurm's variables. Launchers may pass the variables of another host to
/// all ranks, so the name in them must be that of this host.
fn slurm(config: &Config, host: &str) -> Option<HostPath> {
    let set = |name: &str| config.environment.get(name).map(String::as_str);
    let (address, pattern) = (set("SLURM_TOPOLOGY_ADDR")?, set("SLURM_TOPOLOGY_ADDR_PATTERN")?);
    let (path, node) = slurm::address(address, pattern)?;
    let short = host.split_once('.').map_or(host, |(short, _)| short);
    (node == host || node == short).then_some(path)
}

/// Cuts a path to the limits of a statement. The innermost groups remain.
fn short(mut path: HostPath) -> HostPath {
    path.groups.drain(..path.groups.len().saturating_sub(FABRIC_LEVELS_MAX));
    path.groups.iter_mut().for_each(cut);
    path
}

/// Cuts a name to the limit of a statement.
fn cut(name: &mut String) {
    name.truncate(evidence_name(name).len());
}

/// Returns a name as evidence has it, cut to the limit of a statement.
pub(in crate::setup) fn evidence_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(EVIDENCE_NAME_BYTES_MAX)]
}

/// A port, with its names in files.
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

    fn query(&self) -> PortQuery<'_> {
        PortQuery { ids: &self.ids, interface: &self.interface }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ringfold_bootstrap::interface::{Choice, Reason};
    use ringfold_harness::Folder;
    use ringfold_topology::machine::Interface;

    use super::*;

    /// Port `number` of `mlx5_0`, as `config` declares it, at address 10.0.0.`number`.
    fn rdma(config: &Config, number: u8) -> OpenPort {
        OpenPort {
            name: format!("mlx5_0:{number}"),
            network: Network::Roce,
            gid: mapped(number),
            prefix: Some(120),
            id: PortId::Mac(number.into()),
            gbps: 400,
            interface: String::new(),
            declared: config.ib_devices.place("mlx5_0", number),
        }
    }

    fn mapped(last: u8) -> [u8; 16] {
        Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets()
    }

    /// `eth9` at address 10.0.0.9.
    fn tcp(rail: Option<u16>) -> Listed {
        let address = IpAddr::from([10, 0, 0, 9]);
        let interface = "eth9".to_owned();
        Listed { choice: Choice { interface, address, prefix: 24, reason: Reason::Named }, rail }
    }

    const fn rail(rail: u16, plane: u8, source: Source) -> Attached {
        Attached::Rail(Place { rail, plane }, source)
    }

    /// A site where port 1 is on rail 0, port 2 on rail 5, and `eth9` on rail 7.
    const SITE: &str = r#"{"ringfold-site": 1,
 "kind": {"name": "rail-optimized", "certainty": "certain"},
 "rails": {"value": 8, "certainty": "certain"},
 "planes": {"value": 1, "certainty": "certain"},
 "crosses": {"value": false, "certainty": "certain"},
 "hosts": [
  {"name": "a", "pod": 1, "group": 2, "order": 3, "ports": [
    {"mac": "00:00:00:00:00:01", "rail": 0, "plane": 0, "certainty": "certain"},
    {"mac": "00:00:00:00:00:02", "rail": 5, "plane": 0, "certainty": "certain"},
    {"mac": "00:00:00:00:00:03", "rail": 6, "plane": 0, "certainty": "likely"},
    {"address": "10.0.0.9", "rail": 7, "plane": 0, "certainty": "certain"}]}
 ]}
"#;

    #[test]
    fn a_port_has_the_place_that_each_source_gives_it() {
        let folder = Folder::new();
        let config = Config {
            ib_devices: "mlx5_0:1:3:1,mlx5_0".parse().unwrap(),
            topology_file: Some(folder.file("site", SITE)),
            ..Config::default()
        };
        let ports: Vec<OpenPort> = (1..=4).map(|number| rdma(&config, number)).collect();
        let look = |host: &str| LocalEvidence::look(&config, host, None, &ports, &[tcp(Some(1))]);
        let found = look("a").unwrap();
        let unnamed = look("elsewhere").unwrap();
        let subnet = |last| subnet::of_address(mapped(last), 120).unwrap();
        let attached: Vec<_> = found.evidence.ports.iter().map(|port| &port.attached).collect();
        assert_eq!(
            attached,
            [
                &vec![rail(3, 1, Source::Declared), subnet(1), rail(0, 0, Source::Site)],
                &vec![subnet(2), rail(5, 0, Source::Site)],
                &vec![subnet(3)],
                &vec![subnet(4)],
                &vec![rail(1, 0, Source::Declared), subnet(9), rail(7, 0, Source::Site)],
            ],
            "port 3 is likely on rail 6, and nothing knows port 4"
        );
        assert_eq!((found.rdma, found.evidence.crosses), (4, Some(false)));
        assert!(found.is_of_use && found.site.is_some());
        let path = found.evidence.path.unwrap();
        assert_eq!((path.groups, path.order), (vec!["1".to_owned(), "2".to_owned()], Some(3)));
        assert_eq!(unnamed.evidence.path.map(|path| path.order), Some(Some(3)), "by its ports");
    }

    #[test]
    fn evidence_is_of_use_if_it_names_a_place_or_leaves_a_choice() {
        let is_of_use = |config: &Config, ports: u8, interfaces: &[Listed]| {
            let ports: Vec<OpenPort> = (1..=ports).map(|number| rdma(config, number)).collect();
            let found = LocalEvidence::look(config, "a", None, &ports, interfaces).unwrap();
            assert_eq!(found.rdma, if config.topology { ports.len() } else { 0 });
            found.is_of_use
        };
        let plain = Config::default();
        assert!(!is_of_use(&plain, 0, &[tcp(None)]) && !is_of_use(&plain, 1, &[tcp(None)]));
        assert!(is_of_use(&plain, 2, &[]) && is_of_use(&plain, 0, &[tcp(None), tcp(None)]));
        assert!(is_of_use(&plain, 0, &[tcp(Some(0))]), "declared");
        let declared = Config { ib_devices: "mlx5_0:1:0".parse().unwrap(), ..Config::default() };
        assert!(is_of_use(&declared, 1, &[]));
        assert!(!is_of_use(&Config { topology: false, ..declared }, 2, &[tcp(Some(0))]));
    }

    #[test]
    fn ports_are_named_and_rated_as_the_host_shows_them() {
        let config = Config::default();
        let port = OpenPort { name: "x".repeat(1000), ..rdma(&config, 1) };
        let interface = Interface { name: "eth9".to_owned(), gbps: 25, ..Interface::default() };
        let machine = Machine { interfaces: vec![interface], ..Machine::default() };
        let ports = vec![port; EVIDENCE_PORTS_MAX - 1];
        let listed = [tcp(None), tcp(None)];
        let found = LocalEvidence::look(&config, "a", Some(&machine), &ports, &listed).unwrap();
        let ports = found.evidence.ports;
        assert_eq!(ports.len(), EVIDENCE_PORTS_MAX, "no more than a statement holds");
        assert_eq!((ports[0].name.len(), ports[0].gbps), (EVIDENCE_NAME_BYTES_MAX, 400));
        let last = &ports[EVIDENCE_PORTS_MAX - 1];
        assert_eq!((last.name.as_str(), last.gbps, last.network), ("eth9", 25, Network::Tcp));
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
