//! The sources of `ringfold topo`: this machine, a recording, or files of another site.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::discover::{files, from_nccl_xml};
use ringfold_topology::evidence::{Evidence, HostPath};
use ringfold_topology::fabric::{
    Cable, Classification, EndPort, Fabric, HostPlace, Kind, PortId, Switch, classify,
};
use ringfold_topology::machine::Machine;
use ringfold_topology::site::Site;

/// The machines, evidence and network that were read. Each part may be absent.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) machines: Vec<Machine>,
    /// The evidence of ranks on this host.
    pub(super) evidence: Option<Evidence>,
    pub(super) network: Option<Network>,
}

/// A fabric with its classification.
pub(super) struct Network {
    pub(super) fabric: Fabric,
    pub(super) found: Classification,
    /// The site file with this classification; `None` if the graph was classified here.
    pub(super) site: Option<Site>,
}

/// Reads files that describe machines or a fabric. Their contents show their formats.
pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    let mut graphs = Vec::new();
    for path in paths {
        let (name, bytes) = (path.display().to_string(), files::load(path)?);
        if is_xml(&bytes) {
            let text = str::from_utf8(&bytes).with_context(|| format!("{name} is not UTF-8"))?;
            let read = from_nccl_xml(text);
            let mut machine = read.map_err(|error| anyhow!("{name}: {error}"))?;
            if machine.name.is_empty() {
                machine.name = name;
            }
            seen.machines.push(machine);
            continue;
        }
        match files::read(&name, &bytes)? {
            files::Read::Site(site) => seen.add(path, of_site(site))?,
            files::Read::Slurm(hosts) => seen.add(path, of_slurm(&hosts))?,
            files::Read::Fabric(_) | files::Read::Lldp(_) => graphs.push((name, bytes)),
        }
    }
    if let [(first, _), ..] = &graphs[..] {
        let fabric = files::fabric(&graphs)?;
        let found = classify(&fabric);
        seen.add(Path::new(first), Network { fabric, found, site: None })?;
    }
    Ok(seen)
}

impl Seen {
    fn add(&mut self, path: &Path, network: Network) -> anyhow::Result<()> {
        ensure!(
            self.network.is_none(),
            "{}: another file describes the fabric already; give site files and Slurm's \
             topology one at a time, without other files of the fabric",
            path.display()
        );
        self.network = Some(network);
        Ok(())
    }
}

/// Returns whether the first byte after white space begins XML.
fn is_xml(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<')
}

/// Returns a site file as a partial fabric: its hosts and ports.
fn of_site(site: Site) -> Network {
    let mut fabric = Fabric { is_partial: true, ..Fabric::default() };
    let mut places = Vec::new();
    let mut hosts = Vec::new();
    for host in &site.hosts {
        for port in &host.ports {
            places.push((port.place, port.certainty));
            fabric.ports.push(EndPort {
                id: port.id,
                host: host.name.clone(),
                device: port.device.clone(),
                number: port.number,
                gbps: port.gbps,
                attached: None,
            });
        }
        if let Some(at) = host.position {
            let (pod, group, order) = (at.pod, at.group, at.order);
            hosts.push(HostPlace { host: host.name.clone(), pod, group, order });
        }
    }
    hosts.sort_by_key(|host| host.order);
    let found = Classification {
        kind: site.kind.clone(),
        rails: site.rails.clone(),
        planes: site.planes.clone(),
        subnets: unknown(0, "a site file does not list subnets"),
        crosses: site.crosses.clone(),
        subnet_of: vec![None; places.len()],
        places,
        hosts,
        oddities: Vec::new(),
    };
    Network { fabric, found, site: Some(site) }
}

/// Returns Slurm's tree as a fabric: a switch for each group, and each host on its innermost one.
fn of_slurm(paths: &BTreeMap<String, HostPath>) -> Network {
    let mut fabric = Fabric::default();
    let mut numbers: BTreeMap<&[String], usize> = BTreeMap::new();
    for groups in paths.values().map(|path| &path.groups) {
        for end in 1..=groups.len() {
            let next = fabric.switches.len();
            let number = *numbers.entry(&groups[..end]).or_insert(next);
            if number < next {
                continue;
            }
            let (id, name) = (number as u64, groups[end - 1].clone());
            fabric.switches.push(Switch { id, name, is_router: false });
            if end > 1 {
                let above = numbers[&groups[..end - 1]];
                fabric.cables.push(Cable { ends: [(number, 0), (above, 0)], gbps: 0 });
            }
        }
    }
    let mut hosts: Vec<HostPlace> = Vec::new();
    for (name, path) in paths {
        let leaf = numbers.get(&path.groups[..]).copied();
        fabric.ports.push(EndPort {
            id: PortId::named(name, ""),
            host: name.clone(),
            device: "any port".to_owned(),
            number: 1,
            gbps: 0,
            attached: leaf.map(|leaf| (leaf, 0)),
        });
        let pod = path.groups.first().and_then(|_| numbers.get(&path.groups[..1]));
        let [pod, group] = [pod.copied(), leaf].map(|at| number(at.unwrap_or(0)));
        let order = path.order.unwrap_or_else(|| number(hosts.len()));
        hosts.push(HostPlace { host: name.clone(), pod, group, order });
    }
    hosts.sort_by_key(|host| (host.pod, host.group, host.order));
    let levels = paths.values().map(|path| path.groups.len()).max().unwrap_or(0);
    let why = "Slurm lists groups of hosts, but no ports and cables";
    let found = Classification {
        kind: unknown(Kind::Other { levels: number(levels) }, why),
        rails: unknown(0, why),
        planes: unknown(1, why),
        subnets: unknown(1, why),
        crosses: unknown(true, why),
        places: vec![(None, Certainty::Unknown); fabric.ports.len()],
        subnet_of: vec![None; fabric.ports.len()],
        hosts,
        oddities: Vec::new(),
    };
    Network { fabric, found, site: None }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn unknown<T>(value: T, because: &str) -> Finding<T> {
    Finding { value, certainty: Certainty::Unknown, because: because.to_owned() }
}
