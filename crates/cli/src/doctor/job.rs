//! All ranks' findings come together, and one rank for each host and set of ports tries every rail
//! to every other.

use std::net::IpAddr;

use anyhow::{Context as _, ensure};
use ringfold::{Communicator, Config};
use ringfold_topology::discover::Host;
use ringfold_transport::rdma::{Port, State};
use ringfold_types::Rank;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::look::Here;
use super::report;
use super::tour::Tour;

/// Bytes that a rank tells the others at a time.
const TELL_BYTES_MAX: usize = 1 << 20;

/// What a rank says of its host.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) host: String,
    /// Where it waits for others, and why there.
    pub(super) interface: String,
    /// Whether shared memory may be used.
    pub(super) shm: bool,
    /// What is not as it should be; and whether it is bad.
    pub(super) findings: Vec<(bool, String)>,
    pub(super) ports: Vec<PortCard>,
}

/// A `Port`, to be sent: name, kind, gigabits, MTU, GID, prefix length, place.
pub(super) type PortCard = (String, u8, u32, u32, [u8; 16], u8, Option<(u16, u8)>);

/// A host, or as much of it as has the same ports, and the rank that tries them.
pub(super) struct End {
    pub(super) rank: Rank,
    /// How many ranks are like it.
    pub(super) ranks: usize,
    pub(super) card: Card,
    pub(super) ports: Vec<Port>,
}

/// Examines all hosts. Only rank 0 has something to say.
pub(super) fn answer(mut comm: Communicator, config: &Config) -> anyhow::Result<(String, bool)> {
    let near = comm.interface().map(|choice| choice.address);
    let own = card(&comm, config, near);
    let cards: Vec<Card> = share(&mut comm, &own)?;
    let ends = ends(&comm, cards);
    let tried = Tour { config, near, ends: &ends }.all(&mut comm)?;
    let is_first = comm.rank() == Rank(0);
    comm.leave()?;
    Ok(if is_first { report::all(&ends, &tried, config) } else { (String::new(), true) })
}

fn card(comm: &Communicator, config: &Config, near: Option<IpAddr>) -> Card {
    let Here { findings, ports } = Here::look(config, near);
    let noted = findings.into_iter().filter(|finding| finding.state != State::Good);
    let ports = ports.into_iter();
    Card {
        host: Host::this().name,
        interface: comm.interface().map_or_else(String::new, |choice| choice.interface.clone()),
        shm: config.transports.shm,
        findings: noted
            .map(|it| (it.state == State::Bad, format!("{}: {}", it.about, it.what)))
            .collect(),
        ports: ports
            .map(|Port { name, kind, gigabits, mtu, gid, prefix, place }| {
                (name, kind, gigabits, mtu, gid, prefix, place)
            })
            .collect(),
    }
}

/// One rank for each host and set of ports.
fn ends(comm: &Communicator, cards: Vec<Card>) -> Vec<End> {
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
        let port = |card: &PortCard| {
            let (name, kind, gigabits, mtu, gid, prefix, place) = card.clone();
            Port { name, kind, gigabits, mtu, gid, prefix, place }
        };
        let ports = card.ports.iter().map(port).collect();
        ends.push(End { rank, ranks: 1, card, ports });
    }
    ends
}

/// Every rank's value, by rank. To be called by all.
pub(crate) fn share<T: Serialize + DeserializeOwned>(
    comm: &mut Communicator,
    own: &T,
) -> anyhow::Result<Vec<T>> {
    let (rank, bytes) = (comm.rank().index(), postcard::to_stdvec(own)?);
    let mut lengths = vec![0_u64; comm.size()];
    lengths[rank] = bytes.len() as u64;
    comm.all_gather(&mut lengths)?;
    let longest = usize::try_from(lengths.iter().copied().max().unwrap_or(0))?;
    ensure!(longest <= TELL_BYTES_MAX, "a rank has more to tell than {TELL_BYTES_MAX} bytes");
    let mut blocks = vec![0_u8; longest * comm.size()];
    blocks[rank * longest..][..bytes.len()].copy_from_slice(&bytes);
    comm.all_gather(&mut blocks)?;
    let value = |(rank, block): (usize, &[u8])| {
        postcard::from_bytes(block).with_context(|| format!("rank {rank} tells nonsense"))
    };
    blocks.chunks_exact(longest.max(1)).enumerate().map(value).collect()
}
