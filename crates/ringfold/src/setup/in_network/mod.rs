//! In-network reduction at joining: rank 0 asks for the groups, all ranks learn of grant or
//! refusal, and the members connect.

use std::path::Path;
use std::sync::Arc;

use ringfold_bootstrap::Secret;
use ringfold_collectives::in_network_members;
use ringfold_innetwork::member::Shared;
use ringfold_innetwork::provider::Aggregators;
use ringfold_innetwork::trees::{Answer, Offer, Trees, decode, encode, find};
use ringfold_innetwork::{Group, OffloadError, Provider as _, RdmaDevices};
use ringfold_topology::Layout;
use ringfold_types::limits::{OFFLOAD_OFFER_BYTES_MAX, OFFLOAD_REASON_BYTES_MAX};
use ringfold_types::{Chain, Rank};

use super::error::InitError;
use super::members::Members;
use crate::backoff::{PARK_MAX, park};
use crate::config::{Config, InNetwork};

/// Asks for the groups that the settings name, for a communicator of these members. Returns the
/// layout with the aggregators that serve it, and this rank's ends of their groups. `host` is the
/// name of this rank's host, and `devices` are its own. Blocks.
///
/// # Errors
/// The exchange fails, the settings are wrong, or `require` cannot be met: the same error on every
/// rank.
pub(super) fn join(
    config: &Config,
    (job, keys): (&str, Secret),
    layout: Layout,
    (members, host): (&Members<'_>, &str),
    devices: Option<Arc<RdmaDevices>>,
) -> Result<(Layout, Option<Arc<Shared>>), InitError> {
    let is_required = config.in_network == InNetwork::Require;
    if config.in_network == InNetwork::Off || layout.hosts() < 2 {
        return Ok((layout, None));
    }
    let Some(setting) = &config.aggregators else {
        let reason = "RINGFOLD_AGGREGATORS names none".to_owned();
        return if is_required { Err(InitError::InNetwork { reason }) } else { Ok((layout, None)) };
    };
    let rank = members.rank();
    let host = config.host_id.as_deref().unwrap_or(host);
    let host = &host[..host.floor_char_boundary(HOST_BYTES_MAX)];
    let hosts = members.exchange(host.as_bytes(), HOST_BYTES_MAX)?;
    let own = match rank {
        Rank(0) => encode(ask(config, setting, (job, &keys), &layout, &hosts)),
        _ => Vec::new(),
    };
    let all = members.exchange(&own, OFFLOAD_OFFER_BYTES_MAX)?;
    let offer = decode(&all[0]).ok_or(InitError::Grants)?;
    let offer = offer.map_err(|reason| InitError::Aggregators { reason })?;
    refuse(is_required, rank, &offer.refused)?;
    if offer.is_empty() {
        return Ok((layout, None));
    }
    let hosts = layout.hosts();
    let (mut provider, aggregation) =
        offer.provider(&keys, hosts, devices).ok_or(InitError::Grants)?;
    let with = layout.clone().with_aggregation(Some(aggregation));
    let connected = connect(&mut provider, rank, &in_network_members(&with));
    let own = connected.as_ref().err().map_or("", String::as_str);
    let own = &own[..own.floor_char_boundary(OFFLOAD_REASON_BYTES_MAX)];
    let all = members.exchange(own.as_bytes(), OFFLOAD_REASON_BYTES_MAX)?;
    let failed = |(rank, reason): (usize, &Vec<u8>)| {
        let reason = String::from_utf8_lossy(reason);
        (!reason.is_empty()).then(|| format!("rank {rank}: {reason}"))
    };
    let failed: Vec<String> = all.iter().enumerate().filter_map(failed).collect();
    refuse(is_required, rank, &failed.join("; "))?;
    match connected {
        Ok(ends) if failed.is_empty() => {
            let shared =
                Shared::new(rank, Box::new(provider), ends).map_err(InitError::Descriptors)?;
            Ok((with, Some(shared)))
        }
        _ => Ok((layout, None)),
    }
}

/// Bytes of a host's name, by which a tree file names the aggregator of its member.
const HOST_BYTES_MAX: usize = 255;

/// The error for `require`, or a line in the log of rank 0.
fn refuse(is_required: bool, rank: Rank, reason: &str) -> Result<(), InitError> {
    if reason.is_empty() {
        return Ok(());
    }
    if is_required {
        return Err(InitError::InNetwork { reason: reason.to_owned() });
    }
    if rank == Rank(0) {
        tracing::warn!("no in-network reduction by these aggregators: {reason}");
    }
    Ok(())
}

/// Asks the aggregators of the setting for their groups. Only rank 0 does.
///
/// # Errors
/// The setting names no aggregators.
fn ask(
    config: &Config,
    setting: &str,
    job: (&str, &Secret),
    layout: &Layout,
    hosts: &[Vec<u8>],
) -> Answer {
    let trees = Trees::of_setting(setting).map_err(|error| Chain(&error).to_string())?;
    let home = config.environment.get("HOME").filter(|home| !home.is_empty());
    let file = config.site_secret_file.as_deref().map(Path::new);
    Ok(match Secret::site(file, home.map(Path::new)) {
        Ok(site) => find(trees, &site, job, layout, hosts),
        Err(error) => Offer::none(Chain(&error).to_string()),
    })
}

/// Connects this rank's ends of the groups of which it is a member.
fn connect(
    provider: &mut Aggregators,
    rank: Rank,
    groups: &[Vec<Rank>],
) -> Result<Vec<Option<Box<dyn Group>>>, String> {
    let mut ends = Vec::with_capacity(groups.len());
    for (group, members) in groups.iter().enumerate() {
        let member = members.iter().position(|member| *member == rank);
        let Some(member) = member.and_then(|member| u16::try_from(member).ok()) else {
            ends.push(None);
            continue;
        };
        let connected = provider.connect(group, member).and_then(ready);
        let name = &provider.devices()[group].name;
        ends.push(Some(connected.map_err(|error| format!("{name}: {error}"))?));
    }
    Ok(ends)
}

/// Drives a group until it is connected. Blocks for `limits::HANDSHAKE_MS` at most.
///
/// # Errors
/// The group cannot be connected.
fn ready(mut group: Box<dyn Group>) -> Result<Box<dyn Group>, OffloadError> {
    while !group.is_ready() {
        group.arm();
        if !group.poll()? {
            let fds = [Some(group.wake_fd())];
            park(&fds, PARK_MAX);
        }
        group.disarm();
    }
    Ok(group)
}

#[cfg(test)]
mod tests;
