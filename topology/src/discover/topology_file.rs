//! A user's file about the fabric, and the places of one host's ports in it.

use std::collections::BTreeMap;
use std::path::Path;

use ringfold_types::Digest;

use super::files::{self, Lldp, Read};
use crate::certainty::Certainty;
use crate::evidence::{Attached, HostPath, Source};
use crate::fabric::{PortId, classify};
use crate::site::{Site, SiteHost, SitePort};

/// The contents of the file.
#[derive(Debug)]
pub enum TopologyFile {
    /// Every port of a fabric, and the kind of the file.
    Site(Box<Site>, Source),
    /// The interfaces of one host.
    Lldp(Lldp),
    /// The paths of hosts, by name, and the digest of the file.
    Slurm(BTreeMap<String, HostPath>, u64),
}

/// The ids of a port, to find it in the file.
#[derive(Clone, Copy, Debug)]
pub struct PortQuery<'a> {
    /// The ids by which the file may name the port.
    pub ids: &'a [PortId],
    /// The network interface of the port; empty if it has none.
    pub interface: &'a str,
}

impl TopologyFile {
    /// Reads a file of any supported kind. A file with a graph is classified.
    ///
    /// # Errors
    /// The file cannot be read, or its kind is not supported.
    pub fn load(path: &str) -> Result<Self, files::Error> {
        let bytes = files::load(Path::new(path))?;
        Ok(match files::read(path, &bytes)? {
            Read::Site(site) => Self::Site(Box::new(site), Source::Site),
            Read::Fabric(fabric) => {
                let site = Site::of(&fabric, &classify(&fabric));
                Self::Site(Box::new(site), Source::Fabric)
            }
            Read::Lldp(lldp) => Self::Lldp(lldp),
            Read::Slurm(hosts) => Self::Slurm(hosts, Digest::of(bytes)),
        })
    }

    /// The digest of a file that describes all hosts. It must be the same on every rank. `None` for
    /// a file of one host.
    #[must_use]
    pub fn digest(&self) -> Option<u64> {
        match self {
            Self::Site(site, _) => Some(site.digest()),
            Self::Lldp(_) => None,
            Self::Slurm(_, digest) => Some(*digest),
        }
    }

    /// Whether ports on different rails reach each other, if that is certain.
    #[must_use]
    pub fn crosses(&self) -> Option<bool> {
        let Self::Site(site, _) = self else { return None };
        Some(site.crosses.value).filter(|_| site.crosses.certainty == Certainty::Certain)
    }

    /// The attachment of a port, if it is certain.
    #[must_use]
    pub fn attached(&self, query: PortQuery<'_>) -> Option<Attached> {
        match self {
            Self::Site(site, source) => {
                let (_, port) = find(site, query)?;
                let place = port.place.filter(|_| port.certainty == Certainty::Certain)?;
                Some(Attached::Rail(place, *source))
            }
            Self::Lldp(lldp) => {
                let is_here = |interface: &str| interface == query.interface;
                let mut switches = lldp.neighbours.iter().filter(|it| is_here(&it.interface));
                let first = switches.find(|it| it.is_switch)?;
                // Several switches leave open which of them the cable leads to.
                let is_one = switches.filter(|it| it.is_switch).all(|it| it.switch == first.switch);
                is_one.then_some(Attached::Switch(first.switch))
            }
            Self::Slurm(..) => None,
        }
    }

    /// The path of the host with these ports and this name. `None` if the ports belong to several
    /// hosts.
    #[must_use]
    pub fn path(&self, ports: &[PortQuery<'_>], name: &str) -> Option<HostPath> {
        let short = name.split_once('.').map_or(name, |(short, _)| short);
        match self {
            Self::Site(site, source) => {
                let mut by_port = ports.iter().filter_map(|port| find(site, *port));
                let host = match by_port.next() {
                    Some((host, _)) if by_port.all(|(other, _)| other.name == host.name) => host,
                    Some(_) => return None,
                    None => site.host(name).or_else(|| site.host(short))?,
                };
                let at = host.position?;
                let groups = vec![at.pod.to_string(), at.group.to_string()];
                Some(HostPath { groups, order: Some(at.order), source: *source })
            }
            Self::Lldp(_) => None,
            Self::Slurm(hosts, _) => hosts.get(name).or_else(|| hosts.get(short)).cloned(),
        }
    }
}

fn find<'a>(site: &'a Site, query: PortQuery<'_>) -> Option<(&'a SiteHost, &'a SitePort)> {
    query.ids.iter().find_map(|id| site.port(*id))
}
