//! The ends of trials: hosts, as their ranks describe them.

use std::net::IpAddr;

use ringfold::{Communicator, Config};
use ringfold_topology::discover::Host;
use ringfold_transport::rdma::{Port, State};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

use super::look::Here;

/// A rank's description of its host.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) host: String,
    /// Where it waits for others, and why there.
    pub(super) interface: String,
    /// Whether shared memory may be used.
    pub(super) shm: bool,
    /// Whether it is bad, and the finding, for all that is not good.
    pub(super) findings: Vec<(bool, String)>,
    pub(super) ports: Vec<PortCard>,
}

/// A `Port`, to be sent.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PortCard {
    name: String,
    kind: u8,
    gigabits: u32,
    mtu: u32,
    gid: [u8; 16],
    prefix: u8,
    place: Option<(u16, u8)>,
}

impl From<Port> for PortCard {
    fn from(port: Port) -> Self {
        let Port { name, kind, gigabits, mtu, gid, prefix, place } = port;
        Self { name, kind, gigabits, mtu, gid, prefix, place }
    }
}

impl From<PortCard> for Port {
    fn from(card: PortCard) -> Self {
        let PortCard { name, kind, gigabits, mtu, gid, prefix, place } = card;
        Self { name, kind, gigabits, mtu, gid, prefix, place }
    }
}

/// A host, or as much of it as has the same ports, and the rank that tries them.
pub(super) struct End {
    pub(super) rank: Rank,
    /// How many ranks are like it.
    pub(super) ranks: usize,
    pub(super) card: Card,
    pub(super) ports: Vec<Port>,
}

impl Card {
    /// This rank's.
    pub(super) fn of_this_host(comm: &Communicator, config: &Config, near: Option<IpAddr>) -> Self {
        let Here { findings, ports } = Here::look(config, near);
        let noted = findings.into_iter().filter(|finding| finding.state != State::Good);
        Self {
            host: Host::this().name,
            interface: comm.interface().map_or_else(String::new, |choice| choice.interface.clone()),
            shm: config.transports.shm,
            findings: noted
                .map(|it| (it.state == State::Bad, format!("{}: {}", it.about, it.what)))
                .collect(),
            ports: ports.into_iter().map(PortCard::from).collect(),
        }
    }
}

/// One rank for each host and set of ports.
pub(super) fn ends(comm: &Communicator, cards: Vec<Card>) -> Vec<End> {
    let mut ends: Vec<End> = Vec::new();
    for (rank, card) in cards.into_iter().enumerate() {
        let rank = Rank::at(rank);
        let alike = |end: &&mut End| {
            comm.layout().same_host(end.rank, rank) && end.card.ports == card.ports
        };
        if let Some(end) = ends.iter_mut().find(alike) {
            end.ranks += 1;
            continue;
        }
        let ports = card.ports.iter().cloned().map(Port::from).collect();
        ends.push(End { rank, ranks: 1, card, ports });
    }
    ends
}
