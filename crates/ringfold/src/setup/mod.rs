//! Joining: makes a process a member of a group of ranks.
//!
//! 1. `discover` needs no peers. It finds the host, the allowed network interfaces and RDMA
//!    devices, and evidence of their places in the fabric.
//! 2. `assemble` makes the parts of a communicator, from a membership in a group and a way to meet
//!    the other members:
//!    * `connect` opens the endpoints on which this rank listens for peers;
//!    * the members meet and exchange their `peer_info`, with the `settings` that must be the same;
//!      `members` holds the information of all;
//!    * `addresses` judges the addresses at which each may reach the others;
//!    * each member sends a `statement` of its evidence, and the members `agree` on the layout;
//!    * `routes` finds the transport that leads to each peer, and `connect` opens it;
//!    * the members of a traced group align their `clocks`.
//!
//! [`join`] does both for the job that a launcher has started. [`join_by_id`] does both for ranks
//! that share a unique id. [`join_group`] does the second for some ranks of a group. `parts` has
//! the way in which the ranks of a group make others, and makes groups of threads, which need no
//! joining. `record` begins the record of the process, which other processes read.

mod addresses;
mod agree;
mod assemble;
mod clocks;
mod connect;
mod discover;
mod error;
mod in_network;
mod log;
mod members;
mod parts;
mod peer_info;
mod record;
mod routes;
mod settings;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use ringfold_bootstrap::{
    Control, Identity, JoinError, Launcher, Options, Parent, ParentGroup, Rendezvous, Secret,
    SecretSource, Witness, default_source,
};
use ringfold_topology::evidence::Evidence;
use ringfold_topology::prices::Rates;
use ringfold_types::{Chain, Rank};

use self::assemble::{Material, Prepared, assemble};
use self::connect::Membership;
use self::discover::{Discovered, MeetingPlace};
use crate::config::Config;

pub use self::error::{DifferentSettings, InitError, TopologyError, UnreadablePeerInfo};
pub(crate) use self::parts::{GroupAddress, GroupListener, Joined, Origin, Parts, ThreadGroups};
pub use self::peer_info::is_peer_info;
pub use self::record::{remove_old_records, this_moment};
pub use ringfold_topology::statement::is_evidence;

/// How long a rank that joins waits for torchrun's store. It goes on without it then.
const WITNESS_WAIT: Duration = Duration::from_secs(2);

/// Joins the job that the environment describes. Blocks until all ranks have joined.
pub(crate) fn join(config: &Config) -> Result<Parts, InitError> {
    log::logged(config, || join_job(config))
}

fn join_job(config: &Config) -> Result<Parts, InitError> {
    let variable = |name: &str| config.environment.get(name).cloned();
    let mut identity = ringfold_bootstrap::discover(&variable)?;
    let (rank, size) = (identity.rank, identity.size);
    log::name_rank(rank);
    let (launcher, version) = (identity.launcher, env!("CARGO_PKG_VERSION"));
    tracing::info!("ringfold {version}: rank {rank} of {size}, launcher {launcher}");
    warn_of_unknown_variables(config, rank);
    if size == 1 {
        return Parts::alone();
    }
    let secret = identity.secret(&variable, config.join_timeout)?;
    meet(config, identity, secret, (None, None))
}

/// Joins the group of `size` ranks of a unique id, as `rank`. The id has the `address` on which
/// rank 0 listens, and the `secret` of the group. The process that made the id also has the socket
/// that listens there. The ranks may be some of a `parent` group. Blocks until all have joined.
pub(crate) fn join_by_id(
    config: &Config,
    (address, listener): (SocketAddr, Option<TcpListener>),
    secret: Secret,
    (rank, size): (Rank, usize),
    parent: Option<ParentGroup>,
) -> Result<Parts, InitError> {
    if rank.index() >= size {
        return Err(JoinError::Invalid { rank, size }.into());
    }
    if size == 1 {
        return Parts::alone();
    }
    let identity = Identity {
        rank,
        size,
        job: "unique id".to_owned(),
        rendezvous: rendezvous(address, listener, "the unique id"),
        launcher: Launcher::Alone,
        secret_source: SecretSource::None,
    };
    log::name_rank(rank);
    let joined = log::logged(config, || {
        warn_of_unknown_variables(config, rank);
        meet(config, identity, secret, (Some(address.ip()), parent))
    });
    joined.map_err(|error| match error {
        InitError::Join(JoinError::Listen { source, .. }) => InitError::IdPort { address, source },
        other => other,
    })
}

/// The rendezvous at `address`. Rank 0 may have the socket that listens there.
fn rendezvous(
    address: SocketAddr,
    listener: Option<TcpListener>,
    named_by: &'static str,
) -> Rendezvous {
    let (hosts, ports) = (vec![address.ip().to_string()], vec![address.port()]);
    listener.map_or(Rendezvous::Ports { hosts, named_by, ports }, Rendezvous::Listening)
}

/// Logs the variables that look like ringfold's and are none. One rank does so for all.
fn warn_of_unknown_variables(config: &Config, rank: Rank) {
    if rank == Rank(0) {
        config.unknown_variables().iter().for_each(|sentence| tracing::warn!("{sentence}"));
    }
}

/// The address on which rank 0 of a unique id listens.
pub(crate) fn id_address(config: &Config) -> Result<IpAddr, InitError> {
    if config.socket_ifname.is_none() {
        return Ok(default_source());
    }
    Ok(discover::interface(config)?.map_or_else(default_source, |choice| choice.address))
}

/// Meets the other ranks of `identity`, and connects to them. Rank 0 listens at `listen_at`, or at
/// an address that suits the rendezvous. The ranks may be some of a `parent` group.
fn meet(
    config: &Config,
    identity: Identity,
    secret: Secret,
    (listen_at, parent): (Option<IpAddr>, Option<ParentGroup>),
) -> Result<Parts, InitError> {
    let (name, place) = (identity.job.clone(), &identity.rendezvous);
    let place = MeetingPlace { is_local: place.is_local(), is_v6: place.is_v6() };
    let looked = Discovered::look(config, identity.rank, place).map(|(found, rails)| {
        let variable = |name: &str| config.environment.get(name).cloned();
        let witness = Witness::find(&variable, config.join_timeout.min(WITNESS_WAIT));
        (Discovered { witness, ..found }, rails)
    });
    let mut options = options(config, looked.as_ref().ok().map(|(found, _)| found), &identity);
    (options.bind, options.parent) = (listen_at.or(options.bind), parent.map(Parent::Group));
    let material = looked.map(|(found, rails)| {
        let (found, secret) = (Arc::new(found), secret.clone());
        Material { found, rails, secret, name, heritage: None }
    });
    join_members(config, identity, secret, material, options)
}

/// Joins the other members of a group with this `material`, or tells them why this process has
/// none.
fn join_members(
    config: &Config,
    identity: Identity,
    secret: Secret,
    material: Result<Material<'_>, InitError>,
    options: Options,
) -> Result<Parts, InitError> {
    let (rank, size, key) = (identity.rank, identity.size, secret.data_key(&identity.job));
    let host = material.as_ref().map_or("", |material| &material.found.host.name);
    record::start(config, host);
    let membership = Membership { rank, size, key };
    match material.and_then(|material| Prepared::new(config, membership, material)) {
        Ok(prepared) => {
            let info = prepared.info(config);
            let (control, infos) = Control::join(identity, secret, info, options)?;
            assemble(config, prepared, control, &infos)
        }
        Err(error) => {
            Control::cannot_join(identity, secret, Chain(&error).to_string(), options);
            Err(error)
        }
    }
}

/// The way in which the members of a group meet.
#[derive(Debug)]
pub(crate) struct Meeting {
    /// The rank in the new group, and the number of its ranks.
    pub(crate) place: (Rank, usize),
    /// The name of the group, from the first group on.
    pub(crate) name: String,
    /// The labels of the group's key: the number of the group, its color, and a random number.
    pub(crate) labels: [String; 3],
    /// The address of the group's rank 0.
    pub(crate) address: SocketAddr,
    /// In rank 0 of the group, the socket that listens at the address.
    pub(crate) listener: Option<TcpListener>,
    /// The ties of the members, by which they learn that one of them has failed.
    pub(crate) parent: Parent,
}

/// Joins a group of some ranks of a `parent` group, without the launcher. The key of the group
/// derives from that of the parent. Blocks until all members have joined.
pub(crate) fn join_group(
    config: &Config,
    parent: &Joined,
    meeting: Meeting,
) -> Result<Parts, InitError> {
    let Meeting { place: (rank, size), name, labels, address, listener, parent: group } = meeting;
    let [number, color, nonce] = &labels;
    let secret = Secret::new(parent.secret.derive(&["group", number, color, nonce]));
    let rendezvous = rendezvous(address, listener, "the parent group");
    let (launcher, secret_source) = (Launcher::Alone, SecretSource::None);
    let identity = Identity { rank, size, job: name.clone(), rendezvous, launcher, secret_source };
    let Joined { found, heritage, .. } = parent;
    let material = found.rails(config, rank).map(|rails| Material {
        found: Arc::clone(found),
        rails,
        secret: secret.clone(),
        name: name.clone(),
        heritage: Some(heritage),
    });
    let options = Options { parent: Some(group), ..options(config, Some(found), &identity) };
    log::logged(config, || {
        tracing::info!("rank {rank} of {size} of the group {name:?}");
        join_members(config, identity, secret, material, options)
    })
}

/// The options of joining. `found` is `None` if this process cannot look at its host.
fn options(config: &Config, found: Option<&Discovered>, identity: &Identity) -> Options {
    // The others look for rank 0 at the address that the launcher names, if it names one. Those on
    // other hosts do not reach a loopback address.
    let place = &identity.rendezvous;
    let is_named = matches!(place, Rendezvous::Ports { .. });
    let chosen = found.and_then(|found| Some(found.interface.as_ref()?.address));
    let reaches_all = |ip: &IpAddr| place.is_local() || !ip.is_loopback();
    let bind = chosen.filter(|_| config.socket_ifname.is_some() && !is_named).filter(reaches_all);
    Options {
        timeout: config.join_timeout,
        bind,
        host: found.map(|found| found.host.name.clone()),
        witness: found.and_then(|found| found.witness.clone()),
        ..Options::default()
    }
}

/// The evidence that a rank on this host would send to other ranks under these settings: its ports,
/// and the places of each with their sources. Opens the RDMA devices and closes them again. Sends
/// nothing.
///
/// # Errors
/// The file that describes the fabric cannot be used, or no interface suits the settings.
pub fn evidence(config: &Config) -> Result<Evidence, InitError> {
    Ok(Discovered::look(config, Rank(0), MeetingPlace::default())?.0.local.evidence)
}

/// The rates that a rank on this host would state for TCP under these settings, for estimates.
/// Sends nothing.
///
/// # Errors
/// No interface suits the settings.
pub fn tcp_rates(config: &Config) -> Result<Rates, InitError> {
    discover::tcp_rates(config)
}
