//! Joining: from a process that a launcher has started to a member of a group of ranks.
//!
//! 1. `discover` needs no peers. It finds the host, the network interfaces and RDMA devices that
//!    may be used, and evidence of their places in the fabric.
//! 2. `assemble` makes the parts of a communicator. It is given a membership in a group and a way
//!    to meet its other members:
//!    * `connect` opens the endpoints where this rank waits for peers;
//!    * the members meet and tell each other their `peer_info`, with the `settings` that must be
//!      the same; `members` holds the infos of all;
//!    * they exchange a `statement` of their evidence each, and `agree` on the layout;
//!    * `routes` finds the transport that leads to each peer, and `connect` opens it.
//!
//! [`join`] does both for the job that a launcher has started. Its ranks meet at the rendezvous
//! that the launcher names.

mod agree;
mod assemble;
mod connect;
mod discover;
mod error;
mod log;
mod members;
mod peer_info;
mod routes;
mod settings;
mod statement;

use ringfold_bootstrap::{Control, Identity, Options, Rendezvous};
use ringfold_topology::evidence::Evidence;
use ringfold_topology::{Crowd, Layout};
use ringfold_types::Rank;

use self::assemble::assemble;
use self::connect::Membership;
use self::discover::Discovered;
use crate::config::Config;
use crate::router::Router;

pub(crate) use self::assemble::Parts;
pub use self::error::{
    DifferentSettings, InitError, TopologyError, UnreadableEvidence, UnreadablePeerInfo,
};
pub use self::peer_info::is_peer_info;
pub use self::statement::is_evidence;

/// Joins the job that the environment describes. Blocks until all ranks are there.
pub(crate) fn join(config: &Config) -> Result<Parts, InitError> {
    log::logged(config, || join_job(config))
}

fn join_job(config: &Config) -> Result<Parts, InitError> {
    let variable = |name: &str| config.environment.get(name).cloned();
    let mut identity = ringfold_bootstrap::discover(&variable)?;
    let (rank, size) = (identity.rank, identity.size);
    let (launcher, version) = (identity.launcher, env!("CARGO_PKG_VERSION"));
    tracing::info!("ringfold {version}: rank {rank} of {size}, launcher {launcher}");
    if size == 1 {
        return alone();
    }
    let secret = identity.secret(&variable, config.join_timeout)?;
    let key = secret.data_key(&identity.job);
    let mut found = Discovered::look(config, rank, identity.rendezvous.is_local())?;
    let options = options(config, &found, &identity);
    let meet = |info| Ok(Control::join(identity, secret, info, options)?);
    assemble(config, &mut found, Membership { rank, size, key }, meet)
}

fn options(config: &Config, found: &Discovered, identity: &Identity) -> Options {
    // Where the launcher names rank 0's place, that is where the others look.
    let is_named = matches!(identity.rendezvous, Rendezvous::Ports { .. });
    let interface = found.interface.as_ref();
    let bind = interface.filter(|_| config.socket_ifname.is_some() && !is_named);
    Options {
        timeout: config.join_timeout,
        bind: bind.map(|choice| choice.address),
        host: Some(found.host.name.clone()),
        ..Options::default()
    }
}

/// A group of one, which needs no transport.
fn alone() -> Result<Parts, InitError> {
    let mut controls = ringfold_bootstrap::local::controls(1).map_err(InitError::Descriptors)?;
    let Some(control) = controls.pop() else { unreachable!("one was asked for") };
    Ok(Parts {
        layout: Layout::one_host(1),
        crowd: Crowd { ranks: 1, cpus: 1 },
        router: Router::new(Vec::new(), vec![0], vec!["none"]),
        control,
        interface: None,
    })
}

/// Everything that a rank on this host would tell other ranks of its place in the network, under
/// these settings: its ports, and which source says what of each. Opens RDMA devices, closes them
/// again, and sends nothing.
///
/// # Errors
/// The file that describes the fabric cannot be used, or no interface suits the settings.
pub fn evidence(config: &Config) -> Result<Evidence, InitError> {
    Ok(Discovered::look(config, Rank(0), false)?.local.evidence)
}
