//! Assembles the parts of a communicator for a process and a group.

use std::sync::Arc;
use std::time::Instant;

use ringfold_bootstrap::{Control, Respondent, Secret};
use ringfold_transport::rdma::Rails;
use ringfold_types::Rank;

use super::agree::{Agreed, Heritage, Source, agree, statement};
use super::connect::{Endpoints, Membership};
use super::discover::Discovered;
use super::error::InitError;
use super::in_network;
use super::members::Members;
use super::parts::{Joined, Origin, Parts};
use super::peer_info::{EvidenceSummary, PeerInfo, PriceSummary};
use super::routes::Routes;
use super::settings::Settings;
use crate::config::Config;
use crate::offload::Offload;

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

/// Makes this process a member of a group and connects it to the others. All members call it.
/// Blocks until they are connected.
///
/// `meet` brings the members together. It sends this rank's bytes (at most
/// `limits::PEER_INFO_BYTES_MAX`) to every member. It returns the bytes of all members in rank
/// order, and the control plane of the group, over which the members exchange the rest.
///
/// A process may assemble several groups, with another rank in each. Each group has transports of
/// its own.
///
/// # Errors
/// The members do not meet, agree or connect.
pub(super) fn assemble(
    config: &Config,
    membership: Membership,
    material: Material<'_>,
    meet: impl FnOnce(Vec<u8>) -> Result<(Control, Vec<Vec<u8>>), InitError>,
) -> Result<Parts, InitError> {
    let Membership { rank, size, .. } = membership;
    let Material { found, rails, secret, name, heritage } = material;
    let statement = heritage.map_or_else(|| statement(config, rank), |_| String::new());
    let source = heritage.map_or(Source::Ranks(&statement), Source::Parent);
    let mut endpoints = Endpoints::open(config, membership, &found.interfaces, rails)?;
    let (control, infos) = meet(peer_info(config, &found, &endpoints, &statement).encode())?;
    let members = Members::new(control, &infos, Instant::now() + config.join_timeout)?;
    let agreed = agree(config, &found, endpoints.listening(), source, &members);
    let (agreed, members) = members.unless_all_fail(agreed)?;
    let Agreed { layout, occupancy, fabric, heritage } = agreed;
    let keys = Secret::new(membership.key);
    let at = (&members, &found.host.name[..]);
    let joined = in_network::join(config, (&name, keys), layout, at, found.carrier(config));
    let ((layout, offload), members) = members.unless_all_fail(joined)?;
    if let Some(rails) = &mut endpoints.rails {
        fabric.label(rank, rails);
    }
    let Members { control, infos, deadline } = members;
    let routes = Routes::find(rank, &infos, &layout, &fabric)?;
    let mut router =
        endpoints.connect(config, membership, &found.host.name, routes, (&control, deadline))?;
    if let Some(shared) = offload {
        control.answer_by(Arc::clone(&shared) as Arc<dyn Respondent>);
        router.set_offload(Offload::new(shared, control.inquirer()));
    }
    for peer in (0..size).map(Rank::at).filter(|peer| *peer != rank) {
        tracing::info!("rank {rank}: rank {peer} by {}", router.name(peer));
    }
    let interface = found.interface.clone();
    let origin = Origin::Joined(Joined { found, secret, heritage });
    Ok(Parts { layout, occupancy, router, control, interface, origin })
}

/// The information of this rank. It has the first address for TCP; the statement has all.
fn peer_info(
    config: &Config,
    found: &Discovered,
    endpoints: &Endpoints,
    statement: &str,
) -> PeerInfo {
    let listening = endpoints.listening();
    let host_id = found.host.id.clone();
    PeerInfo {
        settings: Settings::of(config, found.local.site),
        cpus: found.cpus.clone(),
        cores: found.cores,
        host_id: config.host_id.iter().fold(host_id, |id, name| format!("{id}/{name}")),
        shm: endpoints.shm_address(),
        rdma: endpoints.rdma_networks(),
        may_use_tcp: config.transports.tcp,
        prices: PriceSummary {
            rates: found.rates,
            seat: found.seat,
            profile_bytes: statement.len(),
        },
        evidence: EvidenceSummary::of(&found.local, listening.len()),
        tcp: listening.first().copied().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::thread;
    use std::time::Duration;

    use ringfold_bootstrap::local::controls;
    use ringfold_transport::Link;
    use ringfold_types::Lane;

    use super::*;

    /// Long enough for a loaded machine.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// This thread's part of the group that has this control plane and this key.
    fn member(config: &Config, found: &Arc<Discovered>, control: Control, key: u8) -> Parts {
        let (rank, size) = (control.rank(), control.size());
        let membership = Membership { rank, size, key: [key; 32] };
        let (found, secret) = (Arc::clone(found), Secret::new([key; 32]));
        let name = "test".to_owned();
        let material = Material { found, rails: None, secret, name, heritage: None };
        let meet = |info| {
            let infos = control.exchange(info, DEADLINE);
            let infos = infos.map_err(|source| InitError::Exchange { rank, source })?;
            Ok((control, infos))
        };
        assemble(config, membership, material, meet).unwrap()
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
                    let found = Arc::new(Discovered::look(&config, rank, true).unwrap().0);
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
