//! Assembles the parts of a communicator for a process and a group.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ringfold_bootstrap::{Control, Respondent, Secret, record_event};
use ringfold_topology::{Layout, Occupancy};
use ringfold_transport::rdma::Rails;
use ringfold_types::{Chain, Rank};

use super::agree::{Agreed, Heritage, Source, agree, statement};
use super::clocks;
use super::connect::{Endpoints, Membership};
use super::discover::Discovered;
use super::error::InitError;
use super::in_network;
use super::members::Members;
use super::parts::{Joined, Origin, Parts};
use super::peer_info::{EvidenceSummary, PeerInfo, PriceSummary, TcpAddress};
use super::routes::Routes;
use super::settings::Settings;
use crate::config::Config;
use crate::router::Router;
use ringfold_innetwork::member::Offload;

/// The material of one group.
#[derive(Debug)]
pub(super) struct Material<'a> {
    /// This process, its host and its devices.
    pub(super) found: Arc<Discovered>,
    /// The RDMA devices, opened for this group.
    pub(super) rails: Option<Rails>,
    /// The secret of the group.
    pub(super) secret: Secret,
    /// The name of the job or of the group.
    pub(super) name: String,
    /// The heritage of a parent group, if there is one.
    pub(super) heritage: Option<&'a Arc<Heritage>>,
}

/// The material of one group, with the endpoints on which this process listens for the members.
pub(super) struct Prepared<'a> {
    membership: Membership,
    material: Material<'a>,
    endpoints: Endpoints,
    statement: String,
}

impl<'a> Prepared<'a> {
    /// Begins to listen for the members of a group. It needs no peers.
    ///
    /// # Errors
    /// This process cannot listen.
    pub(super) fn new(
        config: &Config,
        membership: Membership,
        mut material: Material<'a>,
    ) -> Result<Self, InitError> {
        let is_first = material.heritage.is_none();
        let statement = if is_first { statement(config, membership.rank) } else { String::new() };
        let (rails, found) = (material.rails.take(), &material.found);
        let listed = (&found.interfaces[..], &found.others[..]);
        let endpoints = Endpoints::open(config, membership, listed, rails)?;
        Ok(Self { membership, material, endpoints, statement })
    }

    /// The information of this rank for the other members, of at most
    /// `limits::PEER_INFO_BYTES_MAX` bytes.
    pub(super) fn info(&self, config: &Config) -> Vec<u8> {
        peer_info(config, &self.material.found, &self.endpoints, &self.statement).encode()
    }
}

/// Makes this process a member of a group and connects it to the others. All members call it, after
/// they have met: `control` is the control plane of the group, and `infos` has the information of
/// all members in rank order. Blocks until they are connected.
///
/// A process may assemble several groups, with another rank in each. Each group has transports of
/// its own.
///
/// # Errors
/// The members do not agree or connect. Those that wait for this one get its error as the failure
/// cause.
pub(super) fn assemble(
    config: &Config,
    prepared: Prepared<'_>,
    control: Control,
    infos: &[Vec<u8>],
) -> Result<Parts, InitError> {
    let interface = prepared.material.found.interface.clone();
    match connect(config, prepared, &control, infos) {
        Ok((layout, occupancy, router, origin)) => {
            Ok(Parts { layout, occupancy, router, control, interface, origin })
        }
        Err(error) => {
            if error.is_common() {
                control.leave().unwrap_or_default();
                return Err(error);
            }
            let (rank, aborter) = (control.rank(), control.aborter());
            control.fail(Chain(&error).to_string());
            // The error may follow from that of another member, which is the cause.
            let cause = aborter.failure_cause();
            let cause = cause.filter(|cause| !cause.culprits().contains(&rank));
            Err(cause.map_or(error, |cause| InitError::Failed { rank, cause }))
        }
    }
}

/// Agrees with the other members, and connects to them.
fn connect(
    config: &Config,
    prepared: Prepared<'_>,
    control: &Control,
    infos: &[Vec<u8>],
) -> Result<(Layout, Occupancy, Router, Origin), InitError> {
    let Prepared { membership, material, mut endpoints, statement } = prepared;
    let Membership { rank, size, .. } = membership;
    let Material { found, secret, name, heritage, .. } = material;
    let source = heritage.map_or(Source::Ranks(&statement), Source::Parent);
    let members = Members::new(control, infos, Instant::now() + config.join_timeout)?;
    let agreed = agree(config, &found, endpoints.listening(), source, &members)?;
    let Agreed { layout, occupancy, fabric, heritage } = agreed;
    let keys = Secret::new(membership.key);
    let at = (&members, &found.host.name[..]);
    let (layout, offload) =
        in_network::join(config, (&name, keys), layout, at, found.rdma_devices(config))?;
    if let Some(rails) = &mut endpoints.rails {
        fabric.label(rank, rails);
        let local = layout.ranks_on(layout.host(rank));
        rails.set_local_rank(local.iter().position(|it| *it == rank).unwrap_or(0));
    }
    let routes = Routes::find(rank, &members.infos, &layout, &fabric)?;
    let until = (control, members.deadline);
    let mut router = endpoints.connect(config, membership, &found.host.name, routes, until)?;
    if config.trace.is_some() {
        clocks::trace_group(&members, &mut router, &name, config.is_newcomer())?;
    }
    if let Some(shared) = offload {
        control.answer_by(Arc::clone(&shared) as Arc<dyn Respondent>);
        router.set_offload(Offload::new(shared, control.inquirer()));
    }
    for peer in (0..size).map(Rank::at).filter(|peer| *peer != rank) {
        tracing::info!("rank {rank}: rank {peer} by {}", router.name(peer));
    }
    record_event(&ways(&name, (rank, size), &router));
    Ok((layout, occupancy, router, Origin::Joined(Joined { found, secret, heritage })))
}

/// The transports to the other ranks of a group, as in `rank 0 of 4 joined "x": 3 peers by shm`.
fn ways(name: &str, (rank, size): (Rank, usize), router: &Router) -> String {
    let mut ways = BTreeMap::<_, usize>::new();
    for peer in (0..size).map(Rank::at).filter(|peer| *peer != rank) {
        *ways.entry(router.name(peer)).or_default() += 1;
    }
    let ways = ways.iter().map(|(way, peers)| format!(", {peers} peers by {way}"));
    format!("rank {rank} of {size} joined {name:?}{}", ways.collect::<String>())
}

/// The information of this rank. It has the first address of its rails for TCP; the statement has
/// all of these.
fn peer_info(
    config: &Config,
    found: &Discovered,
    endpoints: &Endpoints,
    statement: &str,
) -> PeerInfo {
    let host_id = found.host.id.clone();
    let choices = || found.interfaces.iter().map(|it| &it.choice).chain(&found.others);
    let interface = |at: SocketAddr| {
        let choice = choices().find(|choice| choice.address == at.ip());
        choice.map_or_else(String::new, |choice| choice.interface.clone())
    };
    PeerInfo {
        host: found.host.name.clone(),
        settings: Settings::of(config, found.local.site),
        cpus: found.cpus.clone(),
        cores: found.cores,
        host_id: config.host_id.iter().fold(host_id, |id, name| format!("{id}/{name}")),
        shm: endpoints.shm_address(),
        rdma: endpoints.rdma_networks(),
        may_use_tcp: config.transports.tcp,
        prices: PriceSummary {
            rates: found.rates,
            locality: found.locality,
            profile_bytes: statement.len(),
        },
        evidence: EvidenceSummary::of(&found.local, endpoints.listening().len()),
        tcp: endpoints.addresses().map(|at| TcpAddress { at, interface: interface(at) }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use ringfold_bootstrap::local::controls;
    use ringfold_transport::Link;
    use ringfold_types::Lane;

    use super::*;
    use crate::setup::discover::MeetingPlace;

    /// Long enough for a loaded machine.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// This thread's part of the group that has this control plane and this key.
    fn member(config: &Config, found: &Arc<Discovered>, control: Control, key: u8) -> Parts {
        let (rank, size) = (control.rank(), control.size());
        let membership = Membership { rank, size, key: [key; 32] };
        let (found, secret) = (Arc::clone(found), Secret::new([key; 32]));
        let name = "test".to_owned();
        let material = Material { found, rails: None, secret, name, heritage: None };
        let prepared = Prepared::new(config, membership, material).unwrap();
        let infos = control.exchange(prepared.info(config), DEADLINE).unwrap();
        assemble(config, prepared, control, &infos).unwrap()
    }

    /// Every member sends `word` plus its rank to every other one, and receives the peer's.
    fn greet(parts: &mut Parts, word: u8) {
        let (rank, size) = (parts.control.rank(), parts.control.size());
        let byte = |rank: Rank| [word + u8::try_from(rank.0).unwrap()];
        let lane = Lane(0);
        let peers = (0..size).map(Rank::at).filter(|peer| *peer != rank);
        for link in peers.map(|peer| Link { peer, lane }) {
            let begin = Instant::now();
            let (mut sent, mut is_received) = (0, false);
            while sent == 0 || !is_received {
                if sent == 0 {
                    sent = parts.router.to(link).send(link, 7, &byte(rank)).unwrap();
                }
                if let Some(fragment) = parts.router.readable(link).unwrap()
                    && !is_received
                {
                    assert_eq!((fragment.tag, fragment.bytes), (7, &byte(link.peer)[..]));
                    parts.router.to(link).consume(link, 1);
                    is_received = true;
                }
                parts.router.poll().unwrap();
                assert!(begin.elapsed() < DEADLINE, "rank {rank} receives nothing on {link:?}");
            }
        }
        while !parts.router.is_flushed() {
            parts.router.poll().unwrap();
        }
    }

    /// Three threads assemble a group. Then the last two assemble another one from the same
    /// discovery, with other ranks in it. Both groups work.
    fn assemble_twice(transport: &str, hosts: [&str; 3]) {
        let (wholes, mut pairs) = (controls(3).unwrap(), controls(2).unwrap());
        thread::scope(|scope| {
            for (control, host) in wholes.into_iter().zip(hosts).rev() {
                let rank = control.rank();
                let pair = if rank.0 > 0 { pairs.pop() } else { None };
                scope.spawn(move || {
                    let settings = [("TRANSPORT", transport), ("HOSTID", host)];
                    let setting = |(name, value): (&str, &str)| {
                        (format!("RINGFOLD_{name}"), value.to_owned())
                    };
                    let settings: BTreeMap<_, _> = settings.map(setting).into_iter().collect();
                    let config = Config::from_map(settings).unwrap();
                    let place = MeetingPlace { is_local: true, is_v6: false };
                    let found = Arc::new(Discovered::look(&config, rank, place).unwrap().0);
                    let mut whole = member(&config, &found, control, 1);
                    assert_eq!(whole.layout.size(), 3);
                    if let Some(pair) = pair {
                        let mut pair = member(&config, &found, pair, 2);
                        assert_eq!(pair.layout.size(), 2);
                        assert_eq!(pair.router.name(Rank(2 - rank.0)), transport);
                        greet(&mut pair, 100);
                        pair.control.exchange(Vec::new(), DEADLINE).unwrap();
                        pair.control.leave().unwrap();
                    }
                    greet(&mut whole, 0);
                    whole.control.exchange(Vec::new(), DEADLINE).unwrap();
                    whole.control.leave().unwrap();
                });
            }
        });
    }

    #[test]
    fn a_process_assembles_a_second_group_by_shared_memory() {
        assemble_twice("shm", ["", "", ""]);
    }

    #[test]
    fn a_process_assembles_a_second_group_by_tcp() {
        assemble_twice("tcp", ["h0", "h1", "h1"]);
    }
}
