//! Agreement of the members of a group on the layout and the fabric, before they connect.
//!
//! * `exchange`: all ranks' evidence of the fabric, exchanged over the control plane;
//! * `fabric`: the conclusions from it;
//! * `prices`: the prices of links, from the statements of all ranks.

mod exchange;
mod fabric;
mod prices;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ringfold_topology::discover::Cpus;
use ringfold_topology::prices::Profile;
use ringfold_topology::{Layout, Occupancy, PeerMemory};
use ringfold_transport::shm;
use ringfold_types::limits::{CHANNELS_MAX, TCP_CHANNELS};

use super::discover::Discovered;
use super::error::InitError;
use super::members::Members;
use super::peer_info::PeerInfo;
use crate::config::Config;

pub(super) use fabric::Fabric;
pub(super) use prices::statement;

/// The outcome of the agreement: the same on every rank of a machine.
#[derive(Debug)]
pub(super) struct Agreed {
    /// The layout of the ranks: the same on every rank.
    pub(super) layout: Layout,
    /// The number of ranks on this machine, and of its CPUs.
    pub(super) occupancy: Occupancy,
    /// The fabric between hosts: the same on every rank.
    pub(super) fabric: Fabric,
    /// The facts that groups of these ranks inherit.
    pub(super) heritage: Arc<Heritage>,
}

/// The facts that a group shares with all groups of its ranks: the same on every rank.
#[derive(Debug)]
pub(crate) struct Heritage {
    /// The ranks of each machine, and its CPUs. Ranks outside a group use the CPUs too.
    occupancies: BTreeMap<String, Occupancy>,
    /// The profile of prices of the first group's rank 0.
    profile: Profile,
}

/// The source of a group's heritage.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// The group is the first one. Its rank 0 has this statement about prices; the others' are
    /// empty.
    Ranks(&'a str),
    /// The group's ranks are those of a parent group.
    Parent(&'a Arc<Heritage>),
}

/// Exchanges evidence of the fabric, if a rank has evidence of use, and derives the layout. Rank 0
/// logs the outcome. This rank listens for TCP at `listening`, in the order of its interfaces.
/// Blocks.
///
/// # Errors
/// An exchange fails, the evidence of a rank cannot be read, or rank 0 has no usable profile.
pub(super) fn agree(
    config: &Config,
    found: &Discovered,
    listening: &[SocketAddr],
    source: Source<'_>,
    members: &Members<'_>,
) -> Result<Agreed, InitError> {
    let (rank, infos) = (members.rank(), &members.infos);
    let heritage = match source {
        Source::Ranks(statement) => Arc::new(Heritage {
            occupancies: occupancies(infos),
            profile: prices::exchange(statement, members)?,
        }),
        Source::Parent(heritage) => Arc::clone(heritage),
    };
    let occupancy = heritage.occupancy(members.own());
    tracing::info!(
        "rank {rank}: {} ranks on {} CPUs of this machine",
        occupancy.ranks,
        occupancy.cpus
    );
    let fabric = Fabric::of(exchange::exchange(config, found, listening, members)?);
    if rank.0 == 0 && tracing::enabled!(tracing::Level::INFO) {
        fabric.lines().iter().for_each(|line| tracing::info!("{line}"));
    }
    let occupancies = infos.iter().map(|info| heritage.occupancy(info));
    let densest = occupancies.fold(occupancy, Occupancy::scarcer);
    let layout = layout(infos, densest, config.channels, &fabric);
    let prices = prices::agreed(infos, &layout, &heritage.profile);
    let layout = layout.with_prices(prices);
    if rank.0 == 0 {
        prices::lines(&layout).iter().for_each(|line| tracing::info!("prices: {line}"));
    }
    Ok(Agreed { layout, occupancy, fabric, heritage })
}

impl Heritage {
    /// The occupancy of the machine of a rank.
    fn occupancy(&self, info: &PeerInfo) -> Occupancy {
        let known = self.occupancies.get(info.machine()).copied();
        known.unwrap_or_else(|| occupancy(&[info]))
    }
}

/// The ranks of each machine, and the CPUs that they share: the same on every rank.
fn occupancies(infos: &[PeerInfo]) -> BTreeMap<String, Occupancy> {
    let mut machines: BTreeMap<&str, Vec<&PeerInfo>> = BTreeMap::new();
    for info in infos {
        machines.entry(info.machine()).or_default().push(info);
    }
    let of = |(machine, infos): (&str, Vec<_>)| (machine.to_owned(), occupancy(&infos));
    machines.into_iter().map(of).collect()
}

/// The ranks of one machine, and the CPUs that they share.
fn occupancy(infos: &[&PeerInfo]) -> Occupancy {
    let mut cpus = Cpus::default();
    infos.iter().for_each(|info| cpus.join(&info.cpus));
    // The union of lists overstates the CPUs if a list is missing or a quota limits a rank.
    let is_limited = infos.iter().any(|info| info.cores != info.cpus.len());
    let least = infos.iter().map(|info| info.cores).min().unwrap_or(1);
    Occupancy { ranks: infos.len(), cpus: if is_limited { least } else { cpus.len() }.max(1) }
}

/// The layout of the ranks, with the number of channels that the user sets. It is the same on every
/// rank.
fn layout(infos: &[PeerInfo], densest: Occupancy, channels: Option<u8>, fabric: &Fabric) -> Layout {
    let hosts: Vec<&str> = infos.iter().map(|info| info.host_id.as_str()).collect();
    let layout = Layout::from_host_names(&hosts).with_occupancy(densest);
    let share = |info: &PeerInfo| shm::same_host(&info.shm, &infos[0].shm);
    let shares_memory = layout.hosts() == 1 && infos.iter().all(share);
    let by_tcp = !shares_memory && infos.iter().all(|info| info.rdma.is_empty());
    let reaches_all = |network| infos.iter().all(|info| info.rdma.contains(network));
    let by_rdma = !shares_memory && infos[0].rdma.chars().any(reaches_all);
    // Lane k uses rail k.
    let rails = || u8::try_from(fabric.tcp_rails()).unwrap_or(CHANNELS_MAX);
    let channels = channels.unwrap_or_else(|| if by_tcp { TCP_CHANNELS.max(rails()) } else { 1 });
    let channels = channels.clamp(1, CHANNELS_MAX).into();
    // The first call that reads peers' private memory tests whether the ranks really can.
    let peer_memory = if shares_memory { PeerMemory::Fast } else { PeerMemory::Closed };
    let layout = layout.sharing_memory(shares_memory).with_peer_memory(peer_memory);
    let layout = layout.with_rdma(by_rdma);
    fabric.layout(layout.with_channels(channels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_cpus_of_their_machine() {
        let info = |host: &str, cpus: &str, cores| {
            let (host_id, cpus) = (host.to_owned(), cpus.parse().unwrap_or_default());
            PeerInfo { host_id, cpus, cores, ..PeerInfo::default() }
        };
        let of = |infos: &[PeerInfo]| {
            let occupancies = occupancies(infos).into_iter();
            let each =
                occupancies.map(|(machine, it)| format!("{machine}: {} on {}", it.ranks, it.cpus));
            each.collect::<Vec<_>>().join(", ")
        };
        let containers = [info("a/1", "0-1", 2), info("a/2", "0-1", 2), info("b/1", "0-7", 8)];
        assert_eq!(of(&containers), "a: 2 on 2, b: 1 on 8");
        assert_eq!(of(&[info("a/1", "0", 1), info("a/1", "1", 1)]), "a: 2 on 2", "bound");
        assert_eq!(of(&[info("a/1", "0-7", 2), info("a/1", "0-7", 2)]), "a: 2 on 2", "a quota");
        assert_eq!(of(&[info("a/1", "", 64), info("a/1", "0", 1)]), "a: 2 on 1", "not listed");
        assert_eq!(of(&[PeerInfo::default()]), ": 1 on 1", "nothing known");
    }

    #[test]
    fn ranks_have_rdma_if_they_share_a_network_and_no_memory() {
        let has_rdma = |networks: [&str; 3], shm: &str| {
            let infos = networks.map(|networks| {
                let (rdma, shm) = (networks.to_owned(), shm.to_owned());
                PeerInfo { rdma, shm, ..PeerInfo::default() }
            });
            layout(&infos, Occupancy { ranks: 1, cpus: 1 }, None, &Fabric::default()).has_rdma()
        };
        assert!(has_rdma(["ei", "i", "i"], "") && !has_rdma(["ei", "i", "e"], ""));
        assert!(!has_rdma(["i", "i", ""], "") && !has_rdma(["", "", ""], ""));
        let half = "0".repeat(32);
        let place = format!("{half}.{half}");
        assert!(shm::same_host(&place, &place) && !has_rdma(["i", "i", "i"], &place));
    }
}
