//! In-network reduction at joining: rank 0 asks for the groups, all ranks learn of grant or
//! refusal, and the members connect.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use ringfold_bootstrap::Secret;
use ringfold_collectives::in_network_members;
use ringfold_topology::{Aggregation, AggregationTree, Layout};
use ringfold_transport::offload::Group;
use ringfold_types::limits::{
    EVIDENCE_BYTES_MAX, OFFLOAD_CHUNK_BYTES, OFFLOAD_REASON_BYTES_MAX, OFFLOAD_WINDOW,
};
use ringfold_types::{Chain, Rank};

use super::error::InitError;
use super::members::Members;
use crate::config::{Config, InNetwork};
use crate::offload::{AggregatorSite, FIRST, Shared, Site, ready};

/// The outcome of asking for one group: its ticket, or the reason why there is none.
type Answer = Result<Vec<u8>, String>;

/// Asks for the groups that the settings name, for a communicator of these members. Returns the
/// layout with the aggregators that serve it, and this rank's ends of their groups. Blocks.
///
/// # Errors
/// The exchange fails, or `require` cannot be met: the same error on every rank.
pub(super) fn join(
    config: &Config,
    (job, keys): (&str, Secret),
    layout: Layout,
    members: &Members,
) -> Result<(Layout, Option<Arc<Shared>>), InitError> {
    let is_required = config.in_network == InNetwork::Require;
    if config.in_network == InNetwork::Off || layout.hosts() < 2 {
        return Ok((layout, None));
    }
    if config.aggregators.is_empty() {
        let reason = "RINGFOLD_AGGREGATORS names none".to_owned();
        return if is_required { Err(InitError::InNetwork { reason }) } else { Ok((layout, None)) };
    }
    let rank = members.rank();
    let mut site = AggregatorSite {
        places: config.aggregators.clone(),
        site: None,
        keys,
        job: job[..job.floor_char_boundary(JOB_BYTES_MAX)].to_owned(),
        ranks: layout.size(),
        members: layout.hosts(),
    };
    let own = if rank == Rank(0) { ask_all(config, &mut site) } else { Vec::new() };
    let all = members.exchange(&encode(&own), EVIDENCE_BYTES_MAX)?;
    let answers = decode(&all[0], site.places.len()).ok_or(InitError::Grants)?;
    let named = site.places.iter().zip(&answers);
    let refused: Vec<String> = named
        .filter_map(|(place, answer)| Some(format!("{place}: {}", answer.as_ref().err()?)))
        .collect();
    refuse(is_required, rank, &refused)?;
    let (places, tickets): (Vec<String>, Vec<Vec<u8>>) =
        site.places.drain(..).zip(answers).filter_map(|(at, it)| Some((at, it.ok()?))).unzip();
    if places.is_empty() {
        return Ok((layout, None));
    }
    site.places = places;
    let with = layout.clone().with_aggregation(Some(aggregation(&layout, tickets.len())));
    let site: Arc<dyn Site> = Arc::new(site);
    let connected = connect(&site, rank, &in_network_members(&with), &tickets);
    let own = connected.as_ref().err().map_or("", String::as_str);
    let own = &own[..own.floor_char_boundary(OFFLOAD_REASON_BYTES_MAX)];
    let all = members.exchange(own.as_bytes(), OFFLOAD_REASON_BYTES_MAX)?;
    let failed = |(rank, reason): (usize, &Vec<u8>)| {
        let reason = String::from_utf8_lossy(reason);
        (!reason.is_empty()).then(|| format!("rank {rank}: {reason}"))
    };
    let failed: Vec<String> = all.iter().enumerate().filter_map(failed).collect();
    refuse(is_required, rank, &failed)?;
    match connected {
        Ok(ends) if failed.is_empty() => {
            let shared = Shared::new(rank, site, ends).map_err(InitError::Descriptors)?;
            Ok((with, Some(shared)))
        }
        _ => Ok((layout, None)),
    }
}

/// Bytes of a job's name at an aggregator.
const JOB_BYTES_MAX: usize = 64;

/// The error for `require`, or a line in the log of rank 0.
fn refuse(is_required: bool, rank: Rank, reasons: &[String]) -> Result<(), InitError> {
    if reasons.is_empty() {
        return Ok(());
    }
    let reason = reasons.join("; ");
    if is_required {
        return Err(InitError::InNetwork { reason });
    }
    if rank == Rank(0) {
        tracing::warn!("no in-network reduction by these aggregators: {reason}");
    }
    Ok(())
}

/// One tree of one aggregator for each group. An aggregator counts as a host with one such NIC as
/// the ranks' hosts.
fn aggregation(layout: &Layout, groups: usize) -> Aggregation {
    Aggregation {
        tree: AggregationTree::star(layout.hosts()),
        groups,
        window: OFFLOAD_WINDOW,
        chunk_bytes: OFFLOAD_CHUNK_BYTES,
        child_byte_ps: layout.prices().link(layout.links_between()).byte_ps,
        ..Aggregation::star(layout.hosts())
    }
}

/// Asks all aggregators at the same time.
fn ask_all(config: &Config, site: &mut AggregatorSite) -> Vec<Answer> {
    let home = config.environment.get("HOME").filter(|home| !home.is_empty());
    let file = config.site_secret_file.as_deref().map(Path::new);
    match Secret::site(file, home.map(Path::new)) {
        Ok(secret) => site.site = Some(secret),
        Err(error) => return vec![Err(Chain(&error).to_string()); site.places.len()],
    }
    let site = &*site;
    thread::scope(|scope| {
        let asked: Vec<_> = (0..site.places.len())
            .map(|group| scope.spawn(move || site.ask(group, FIRST)))
            .collect();
        let died = |_| Err("the asking thread panicked".to_owned());
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    })
}

/// This rank's ends of the groups of which it is a member.
type Ends = Vec<Option<(u16, Box<dyn Group>)>>;

fn connect(
    site: &Arc<dyn Site>,
    rank: Rank,
    groups: &[Vec<Rank>],
    tickets: &[Vec<u8>],
) -> Result<Ends, String> {
    let mut ends = Vec::with_capacity(groups.len());
    for (group, (members, ticket)) in groups.iter().zip(tickets).enumerate() {
        let member = members.iter().position(|member| *member == rank);
        let Some(member) = member.and_then(|member| u16::try_from(member).ok()) else {
            ends.push(None);
            continue;
        };
        let connected = site.connect((group, FIRST), member, ticket).and_then(ready);
        let connected = connected.map_err(|error| format!("{}: {error}", site.name(group)))?;
        ends.push(Some((member, connected)));
    }
    Ok(ends)
}

/// For each answer: whether it is a ticket, its length (u16), and the ticket or the reason.
fn encode(answers: &[Answer]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for answer in answers {
        let (is_ticket, text) = match answer {
            Ok(ticket) => (1, &ticket[..]),
            Err(reason) => {
                let end = reason.floor_char_boundary(OFFLOAD_REASON_BYTES_MAX);
                (0, &reason.as_bytes()[..end])
            }
        };
        bytes.push(is_ticket);
        bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(text);
    }
    bytes
}

fn decode(mut bytes: &[u8], count: usize) -> Option<Vec<Answer>> {
    let mut answers = Vec::with_capacity(count);
    while let Some(([is_ticket, low, high], rest)) = bytes.split_first_chunk::<3>() {
        let (text, rest) = rest.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
        let reason = || String::from_utf8_lossy(text).into_owned();
        answers.push(if *is_ticket == 1 { Ok(text.to_vec()) } else { Err(reason()) });
        bytes = rest;
    }
    (bytes.is_empty() && answers.len() == count).then_some(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_travel_and_nonsense_is_refused() {
        let answers = vec![Ok(vec![1, 2, 3]), Err("no room".to_owned()), Ok(Vec::new())];
        let bytes = encode(&answers);
        assert_eq!(decode(&bytes, 3), Some(answers));
        assert_eq!(decode(&bytes, 2), None, "another number of aggregators");
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end], 3).is_none()));
    }
}
