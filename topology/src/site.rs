//! The site file as a value: hosts of a fabric with their places, and ports with rail and plane.
//!
//! An administrator writes the file once with `ringfold topo --write`. Ranks find their ports in it
//! by GUID, MAC or IP address. `discover::files` reads and writes the text.

use std::collections::{BTreeMap, HashMap};

use ringfold_types::Digest;

use crate::certainty::{Certainty, Finding};
use crate::fabric::{Classification, Fabric, Kind, Place, PortId};

/// The content of a site file.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The kind of the fabric.
    pub kind: Finding<Kind>,
    /// Number of rails; 0 if there are none.
    pub rails: Finding<u16>,
    /// Number of planes, at least 1.
    pub planes: Finding<u8>,
    /// Whether ports on different rails reach each other.
    pub crosses: Finding<bool>,
    /// Results of `ringfold topo --measure`, at most one for each pair of places. Empty without a
    /// measurement.
    pub measured: Vec<Measured>,
    /// Hosts with unique names. Ports whose host is unknown belong to a host without a name.
    pub hosts: Vec<SiteHost>,
}

/// A host of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteHost {
    /// Its name; empty for the host that collects ports of unknown hosts.
    pub name: String,
    /// Its place; `None` if the fabric does not determine it.
    pub position: Option<Position>,
    /// Its ports.
    pub ports: Vec<SitePort>,
}

/// The place of a host in its fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The pod: leaf groups that share spines. It is the outermost level.
    pub pod: u32,
    /// The leaf group: hosts that share leaf switches.
    pub group: u32,
    /// Its number in fabric order.
    pub order: u32,
}

/// A port of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePort {
    /// GUID, MAC or IP address; unique within a site. `PortId::Named` is made from host and device.
    pub id: PortId,
    /// The device, such as `mlx5_0`, or the interface, such as `eth0`; empty if unknown.
    pub device: String,
    /// The port's number on its device, from 1.
    pub number: u8,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// Its rail and plane; `None` if the fabric has none or does not determine them.
    pub place: Option<Place>,
    /// The certainty of `place`.
    pub certainty: Certainty,
}

/// Results of probes between the ports of two places. The places may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The two places, the lower one first.
    pub between: [Place; 2],
    /// The probes from one place to the other that were answered.
    pub reach: Reach,
    /// Whether both places at once carry as much as the sum of each alone; `None` if not measured.
    pub are_apart: Option<bool>,
}

/// The part of probes that were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All probes.
    All,
    /// Some of the probes.
    Some,
    /// None of the probes.
    None,
}

impl Site {
    /// The site of a classified fabric. `classification.places` must have one entry for each port
    /// of `fabric`.
    #[must_use]
    pub fn of(fabric: &Fabric, classification: &Classification) -> Self {
        let mut hosts: Vec<SiteHost> = Vec::new();
        let mut numbers = HashMap::new();
        for place in &classification.hosts {
            numbers.insert(place.host.as_str(), hosts.len());
            let (pod, group, order) = (place.pod, place.group, place.order);
            let position = Some(Position { pod, group, order });
            hosts.push(SiteHost { name: place.host.clone(), position, ports: Vec::new() });
        }
        for (port, (place, certainty)) in fabric.ports.iter().zip(&classification.places) {
            let number = *numbers.entry(port.host.as_str()).or_insert_with(|| {
                hosts.push(SiteHost { name: port.host.clone(), ..SiteHost::default() });
                hosts.len() - 1
            });
            hosts[number].ports.push(SitePort {
                id: port.id,
                device: port.device.clone(),
                number: port.number,
                gbps: port.gbps,
                place: *place,
                certainty: if place.is_some() { *certainty } else { Certainty::Unknown },
            });
        }
        Self {
            kind: classification.kind.clone(),
            rails: classification.rails.clone(),
            planes: classification.planes.clone(),
            crosses: classification.crosses.clone(),
            measured: Vec::new(),
            hosts,
        }
    }

    /// The port with this identifier, and its host. Takes time in proportion to the site. Use
    /// `ports` to find many.
    #[must_use]
    pub fn port(&self, id: PortId) -> Option<(&SiteHost, &SitePort)> {
        self.hosts.iter().find_map(|host| {
            let port = host.ports.iter().find(|port| port.id == id)?;
            Some((host, port))
        })
    }

    /// All ports by identifier, each with its host.
    #[must_use]
    pub fn ports(&self) -> BTreeMap<PortId, (&SiteHost, &SitePort)> {
        let of_host = |host| move |port| (host, port);
        let ports = self.hosts.iter().flat_map(|host| host.ports.iter().map(of_host(host)));
        ports.map(|(host, port): (&SiteHost, &SitePort)| (port.id, (host, port))).collect()
    }

    /// The host with this name. Takes time in proportion to the number of hosts.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&SiteHost> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The measurement between two places, in either order.
    #[must_use]
    pub fn measured(&self, one: Place, other: Place) -> Option<Measured> {
        let between = if one <= other { [one, other] } else { [other, one] };
        self.measured.iter().find(|measured| measured.between == between).copied()
    }

    /// A digest of the content. It is equal for files that differ only in order, in spaces or in
    /// reasons. Ranks compare it.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hosts: Vec<&SiteHost> = self.hosts.iter().collect();
        hosts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut measured: Vec<&Measured> = self.measured.iter().collect();
        measured.sort_unstable_by_key(|measured| measured.between);
        let mut digest = kind(Digest::default(), &self.kind.value)
            .number(self.kind.certainty as u128)
            .number(self.rails.value.into())
            .number(self.rails.certainty as u128)
            .number(self.planes.value.into())
            .number(self.planes.certainty as u128)
            .number(self.crosses.value.into())
            .number(self.crosses.certainty as u128)
            .number(measured.len() as u128);
        for Measured { between, reach, are_apart } in measured {
            digest = place(place(digest, Some(between[0])), Some(between[1]))
                .number(*reach as u128)
                .number(are_apart.map_or(2, u128::from));
        }
        digest = digest.number(hosts.len() as u128);
        hosts.into_iter().fold(digest, add_host).finish()
    }
}

fn add_host(digest: Digest, host: &SiteHost) -> Digest {
    let mut ports: Vec<&SitePort> = host.ports.iter().collect();
    ports.sort_unstable_by_key(|port| port.id);
    let position = host.position.map_or([u32::MAX; 3], |at| [at.pod, at.group, at.order]);
    let mut digest = digest.bytes(host.name.as_bytes());
    for number in position {
        digest = digest.number(number.into());
    }
    digest = digest.number(ports.len() as u128);
    for port in ports {
        let (space, id) = match port.id {
            PortId::Guid(guid) => (0, guid.into()),
            PortId::Mac(mac) => (1, mac.into()),
            PortId::Address(address) => (2, address),
            PortId::Named(name) => (3, name.into()),
        };
        digest = place(digest.number(space).number(id), port.place)
            .bytes(port.device.as_bytes())
            .number(port.number.into())
            .number(port.gbps.into())
            .number(port.certainty as u128);
    }
    digest
}

fn place(digest: Digest, place: Option<Place>) -> Digest {
    let number = |place: Place| u128::from(place.rail) << 8 | u128::from(place.plane);
    digest.number(place.map_or(u128::MAX, number))
}

fn kind(digest: Digest, kind: &Kind) -> Digest {
    let dims = |digest: Digest, dims: &[u32]| {
        let digest = digest.number(dims.len() as u128);
        dims.iter().fold(digest, |digest, dim| digest.number((*dim).into()))
    };
    match kind {
        Kind::SingleSwitch => digest.number(0),
        Kind::RailOptimized => digest.number(1),
        Kind::RailOnly => digest.number(2),
        Kind::FatTree { levels, oversubscription } => digest
            .number(3)
            .number((*levels).into())
            .number(oversubscription.0.into())
            .number(oversubscription.1.into()),
        Kind::DragonflyPlus => digest.number(4),
        Kind::Torus { dims: of } => dims(digest.number(5), of),
        Kind::HyperX { dims: of } => dims(digest.number(6), of),
        Kind::Other { levels } => digest.number(7).number((*levels).into()),
    }
}
