//! The endpoints of probes: hosts with their ports, as their ranks report them.

use std::net::IpAddr;

use ringfold::{Communicator, Config};
use ringfold_topology::discover::Host;
use ringfold_transport::rdma::{Port, State};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

use super::local::LocalChecks;

/// A rank's report about its host.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct HostInfo {
    pub(super) host: String,
    /// The network interface for the job's setup.
    pub(super) interface: String,
    /// Whether shared memory may be used.
    pub(super) shm: bool,
    /// The findings that need attention: whether each is a fault, and its text.
    pub(super) findings: Vec<(bool, String)>,
    pub(super) ports: Vec<PortInfo>,
}

/// A `Port` in a form that can be serialized.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PortInfo {
    name: String,
    kind: u8,
    gigabits: u32,
    mtu: u32,
    gid: [u8; 16],
    prefix: u8,
    place: Option<(u16, u8)>,
    partition: Option<u16>,
}

impl From<Port> for PortInfo {
    fn from(port: Port) -> Self {
        let Port { name, kind, gigabits, mtu, gid, prefix, place, partition } = port;
        Self { name, kind, gigabits, mtu, gid, prefix, place, partition }
    }
}

impl From<PortInfo> for Port {
    fn from(info: PortInfo) -> Self {
        let PortInfo { name, kind, gigabits, mtu, gid, prefix, place, partition } = info;
        Self { name, kind, gigabits, mtu, gid, prefix, place, partition }
    }
}

/// A host's set of ports, and the rank that probes them.
pub(super) struct Endpoint {
    pub(super) rank: Rank,
    /// Number of ranks with this host and these ports.
    pub(super) ranks: usize,
    pub(super) info: HostInfo,
    pub(super) ports: Vec<Port>,
}

impl HostInfo {
    /// Describes the host of this rank.
    pub(super) fn of_this_host(comm: &Communicator, config: &Config, near: Option<IpAddr>) -> Self {
        let LocalChecks { findings, ports } = LocalChecks::run(config, near);
        let noted = findings.into_iter().filter(|finding| finding.state != State::Good);
        Self {
            host: Host::this().name,
            interface: comm.interface().map_or_else(String::new, |choice| choice.interface.clone()),
            shm: config.transports.shm,
            findings: noted
                .map(|it| (it.state == State::Bad, format!("{}: {}", it.about, it.what)))
                .collect(),
            ports: ports.into_iter().map(PortInfo::from).collect(),
        }
    }
}

/// Picks one rank for each host and set of ports.
pub(super) fn ends(comm: &Communicator, infos: Vec<HostInfo>) -> Vec<Endpoint> {
    let mut ends: Vec<Endpoint> = Vec::new();
    for (rank, info) in infos.into_iter().enumerate() {
        let rank = Rank::at(rank);
        let alike = |end: &&mut Endpoint| {
            comm.layout().same_host(end.rank, rank) && end.info.ports == info.ports
        };
        if let Some(end) = ends.iter_mut().find(alike) {
            end.ranks += 1;
            continue;
        }
        let ports = info.ports.iter().cloned().map(Port::from).collect();
        ends.push(Endpoint { rank, ranks: 1, info, ports });
    }
    ends
}
