//! From a process and a group to the parts of a communicator.

use std::time::Instant;

use ringfold_bootstrap::Control;
use ringfold_bootstrap::interface::Choice;
use ringfold_topology::{Crowd, Layout};
use ringfold_types::Rank;

use super::agree::{Agreed, agree};
use super::connect::{Endpoints, Membership};
use super::discover::Discovered;
use super::error::InitError;
use super::members::Members;
use super::peer_info::{EvidenceSummary, PeerInfo};
use super::routes::Routes;
use super::settings::Settings;
use super::statement::{self, Statement};
use crate::config::Config;
use crate::digest::digest;
use crate::router::Router;

/// The parts of a communicator.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) layout: Layout,
    /// The ranks of this machine, and its CPUs.
    pub(crate) crowd: Crowd,
    pub(crate) router: Router,
    pub(crate) control: Control,
    /// The interface by which this rank meets peers, if it needs one.
    pub(crate) interface: Option<Choice>,
}

/// Makes this process, which is as `found`, a member of a group and connects it to the others. All
/// members call it. Blocks until they are connected.
///
/// `meet` brings the members together. It gives this rank's bytes (at most
/// `limits::CARD_BYTES_MAX`) to every member. It returns everyone's bytes in rank order, and the
/// group's control plane, over which the members exchange the rest.
///
/// A process may assemble several groups, with another rank in each. Each group has transports of
/// its own. The first group takes the RDMA devices out of `found`; later ones go without RDMA.
///
/// # Errors
/// The members do not meet, agree or connect.
pub(super) fn assemble(
    config: &Config,
    found: &mut Discovered,
    membership: Membership,
    meet: impl FnOnce(Vec<u8>) -> Result<(Control, Vec<Vec<u8>>), InitError>,
) -> Result<Parts, InitError> {
    let rails = found.rails.take();
    let mut endpoints = Endpoints::open(config, membership, &found.interfaces, rails)?;
    let (control, infos) = meet(peer_info(config, found, &endpoints).encode())?;
    let members = Members::new(control, &infos, Instant::now() + config.join_timeout)?;
    let Agreed { layout, crowd, fabric } = agree(config, found, endpoints.listening(), &members)?;
    let Membership { rank, size, .. } = membership;
    if let Some(rails) = &mut endpoints.rails {
        fabric.label(rank, rails);
    }
    let Members { control, infos, deadline } = members;
    let routes = Routes::find(rank, &infos, &layout, &fabric)?;
    let router = endpoints.connect(config, membership, &found.host.name, routes, deadline)?;
    for peer in (0..size).map(Rank::at).filter(|peer| *peer != rank) {
        tracing::info!("rank {rank}: rank {peer} by {}", router.name(peer));
    }
    Ok(Parts { layout, crowd, router, control, interface: found.interface.clone() })
}

/// The info of this rank. It has the first of several addresses for TCP; the statement has all.
fn peer_info(config: &Config, found: &Discovered, endpoints: &Endpoints) -> PeerInfo {
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
        evidence: summary(found, listening.len()),
        tcp: listening.first().copied().into_iter().collect(),
    }
}

/// The summary of this rank's evidence, if it has some; its statement will have so many `addresses`.
fn summary(found: &Discovered, addresses: usize) -> Option<EvidenceSummary> {
    let local = &found.local;
    let bytes = statement::encode(&local.evidence);
    let has_some = !local.evidence.ports.is_empty() || local.evidence.path.is_some();
    has_some.then(|| EvidenceSummary {
        digest: digest(&bytes),
        bytes: Statement::bytes(addresses) + bytes.len(),
        is_of_use: local.is_of_use,
    })
}
