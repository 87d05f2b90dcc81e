//! In-network reduction at joining: rank 0 asks for the groups, all ranks learn of grant or
//! refusal, and the members connect.

mod offer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{LeafGrant, Placement, Terms, TreeGrant, Trees, grant};
use ringfold_collectives::in_network_members;
use ringfold_topology::{Aggregation, AggregationTree, Layout};
use ringfold_transport::offload::aggregator::{Aggregators, Leaf, Tree};
use ringfold_transport::offload::links::Endpoints;
use ringfold_transport::offload::{Group, Provider as _, RdmaDevices};
use ringfold_types::limits::{
    CHANNELS_MAX, HANDSHAKE_MS, OFFLOAD_CHUNK_BYTES, OFFLOAD_OFFER_BYTES_MAX,
    OFFLOAD_REASON_BYTES_MAX, OFFLOAD_WINDOW,
};
use ringfold_types::{Chain, Rank};

use self::offer::{Answer, Offer, decode, encode};
use super::error::InitError;
use super::members::Members;
use crate::config::{Config, InNetwork};
use crate::offload::{Shared, ready};

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
        Rank(0) => encode(offer(config, setting, (job, &keys), &layout, &hosts)),
        _ => Vec::new(),
    };
    let all = members.exchange(&own, OFFLOAD_OFFER_BYTES_MAX)?;
    let offer = decode(&all[0]).ok_or(InitError::Grants)?;
    let offer = offer.map_err(|reason| InitError::Aggregators { reason })?;
    refuse(is_required, rank, &offer.refused)?;
    if offer.groups.is_empty() {
        return Ok((layout, None));
    }
    let shape = offer.tree(layout.hosts()).ok_or(InitError::Grants)?;
    let leaf = |LeafGrant { first, children, at, rdma_port }| Leaf {
        first,
        children,
        at: Endpoints { tcp: at, rdma_port },
    };
    let tree = |(name, leaves): (String, Vec<_>)| Tree {
        key: key(&keys, &name),
        name,
        leaves: leaves.into_iter().map(leaf).collect(),
    };
    let trees = offer.groups.into_iter().map(tree).collect();
    let mut provider = Aggregators::new(trees, (OFFLOAD_WINDOW, OFFLOAD_CHUNK_BYTES), devices);
    let aggregation = Aggregation {
        tree: shape,
        groups: provider.devices().len(),
        window: OFFLOAD_WINDOW,
        chunk_bytes: OFFLOAD_CHUNK_BYTES,
        byte_ps: offer.byte_ps,
        is_automatic: provider.devices().iter().all(|device| device.properties.exact),
        ..Aggregation::star(layout.hosts())
    };
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

/// The time that the provider may take to answer.
const ASK: Duration = Duration::from_millis(HANDSHAKE_MS);

/// Bytes of a job's name at an aggregator.
const JOB_BYTES_MAX: usize = 64;

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

/// The key of a group, which its members and aggregators know. An aggregator cannot derive others
/// from it. The numbers of groups change when some are refused, so the root's name tells keys
/// apart.
fn key(keys: &Secret, root: &str) -> [u8; 32] {
    keys.derive(&["in-network", root])
}

/// Finds the trees, and asks all their aggregators. Only rank 0 does. `hosts` has the name of each
/// rank's host.
///
/// # Errors
/// The setting names no aggregators.
fn offer(
    config: &Config,
    setting: &str,
    (job, keys): (&str, &Secret),
    layout: &Layout,
    hosts: &[Vec<u8>],
) -> Answer {
    let trees = Trees::of_setting(setting).map_err(|error| Chain(&error).to_string())?;
    let home = config.environment.get("HOME").filter(|home| !home.is_empty());
    let file = config.site_secret_file.as_deref().map(Path::new);
    let secret = match Secret::site(file, home.map(Path::new)) {
        Ok(secret) => secret,
        Err(error) => return Ok(Offer::none(Chain(&error).to_string())),
    };
    let (trees, failed) = trees.with_parents(&secret, ASK);
    let mut refused: Vec<String> = failed.iter().map(|error| Chain(error).to_string()).collect();
    let name = |host: &u32| layout.ranks_on(*host).first().map(|rank| &hosts[rank.index()][..]);
    let in_order = layout.hosts_in_order();
    let names = in_order.iter().map(|host| String::from_utf8_lossy(name(host).unwrap_or_default()));
    let names: Vec<_> = names.collect();
    let placed = trees.place(&names.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
    refused.extend(placed.left_out);
    let mut trees = placed.trees;
    let rest = trees.drain(trees.len().min(CHANNELS_MAX.into())..);
    refused.extend(rest.map(|it| format!("the tree of {}: only {CHANNELS_MAX} are used", it.name)));
    let terms = |tree: &Placement| Terms {
        job: job[..job.floor_char_boundary(JOB_BYTES_MAX)].to_owned(),
        key: key(keys, &tree.name),
        ranks: u32::try_from(layout.size()).unwrap_or(u32::MAX),
        window: u8::try_from(OFFLOAD_WINDOW).unwrap_or(u8::MAX),
        chunk_bytes: u32::try_from(OFFLOAD_CHUNK_BYTES).unwrap_or(u32::MAX),
    };
    let answers = ask_all(&trees, terms, &secret);
    let granted = keep_whole_rows(trees, answers, &mut refused);
    let mut offer = Offer::none(refused.join("; "));
    if let Some((tree, _)) = granted.first() {
        offer.set_tree(&tree.fold(&AggregationTree::Member, &AggregationTree::Node));
    }
    let of_host = layout.prices().link(layout.links_between()).byte_ps;
    offer.byte_ps = busiest(&granted, of_host);
    let group = |(tree, grant): (Placement, TreeGrant)| (tree.name, grant.leaves);
    offer.groups = granted.into_iter().map(group).collect();
    Ok(offer)
}

/// Asks the aggregators of all trees at the same time. Blocks for some seconds at most.
fn ask_all(
    trees: &[Placement],
    terms: impl Fn(&Placement) -> Terms,
    site: &Secret,
) -> Vec<Result<TreeGrant, String>> {
    thread::scope(|scope| {
        let ask = |(tree, terms): (_, Terms)| scope.spawn(move || grant(tree, &terms, site, ASK));
        let asked: Vec<_> = trees.iter().map(|tree| (tree, terms(tree))).map(ask).collect();
        let died = |_| Err("the asking thread panicked".to_owned());
        let text = |answer: Result<_, _>| answer.map_err(|error| Chain(&error).to_string());
        asked.into_iter().map(|thread| thread.join().map_or_else(died, text)).collect()
    })
}

/// The trees that have granted groups. Trees alternate between rails, so those of the other rails
/// go with one that is refused.
fn keep_whole_rows(
    trees: Vec<Placement>,
    answers: Vec<Result<TreeGrant, String>>,
    refused: &mut Vec<String>,
) -> Vec<(Placement, TreeGrant)> {
    let rails = trees.iter().filter_map(|tree| tree.rail).max().map_or(1, |rail| rail + 1);
    let row = |index: usize| index / usize::from(rails);
    let mut is_whole = vec![true; trees.len()];
    for (index, answer) in answers.iter().enumerate() {
        if let Err(reason) = answer {
            refused.push(format!("{}: {reason}", trees[index].name));
            is_whole[row(index)] = false;
        }
    }
    let all = trees.into_iter().zip(answers).enumerate();
    all.filter_map(|(at, (tree, grant))| Some((tree, grant.ok().filter(|_| is_whole[row(at)])?)))
        .collect()
}

/// `Aggregation::byte_ps` of these trees. An aggregator that states no rate counts as one NIC of a
/// host, for which a byte takes `of_host`.
fn busiest(granted: &[(Placement, TreeGrant)], of_host: u64) -> u64 {
    let mut busy: BTreeMap<&str, u64> = BTreeMap::new();
    for (tree, grant) in granted {
        for ((group, count), mbps) in tree.groups.iter().zip(tree.neighbours()).zip(&grant.mbps) {
            let byte_ps = match mbps {
                0 => of_host * count as u64,
                mbps => Aggregation::byte_ps_of(*mbps, count),
            };
            *busy.entry(&group.at).or_default() += byte_ps;
        }
    }
    busy.into_values().max().unwrap_or(0) / granted.len().max(1) as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The trees of a file for hosts `a`, `b`, ..., and their grants with these rates by address.
    fn granted(file: &str, hosts: &[&str], mbps: &[(&str, u32)]) -> Vec<(Placement, TreeGrant)> {
        let trees = Trees::parse("file", &format!("ringfold-aggregators 1\n{file}")).unwrap();
        let rate =
            |at: &str| mbps.iter().find(|(name, _)| *name == at).map_or(0, |(_, mbps)| *mbps);
        let grant = |tree: Placement| {
            let mbps = tree.groups.iter().map(|group| rate(&group.at)).collect();
            (tree, TreeGrant { leaves: Vec::new(), mbps })
        };
        trees.place(hosts).trees.into_iter().map(grant).collect()
    }

    #[test]
    fn the_busiest_aggregator_sets_the_time_of_a_byte() {
        let hosts = ["a", "b", "c", "d"];
        // One NIC of a host for four hosts, and two such servers that share the chunks.
        assert_eq!(busiest(&granted("x:1", &hosts, &[]), 100), 400);
        assert_eq!(busiest(&granted("x:1\ny:1", &hosts, &[]), 100), 200);
        // 8 Gbit/s are 1000 ps for a byte.
        assert_eq!(busiest(&granted("x:1", &hosts, &[("x:1", 32_000)]), 7), 1000);
        // A lower aggregator has two children and a parent, and the root has two children.
        let levels = "r:1\nx:1 parent r:1 hosts a,b\ny:1 parent r:1 hosts c,d";
        assert_eq!(busiest(&granted(levels, &hosts, &[("x:1", 8000)]), 100), 3000);
        let fast = [("x:1", 24_000), ("y:1", 24_000), ("r:1", 8000)];
        assert_eq!(busiest(&granted(levels, &hosts, &fast), 100), 2000);
        // The groups of one aggregator share its links, and not those between themselves.
        let many = vec!["a"; 70];
        assert_eq!(busiest(&granted("x:1", &many, &[]), 100), 7000);
    }

    #[test]
    fn a_refused_tree_takes_those_of_other_rails_with_it() {
        let file = "a:1 rail 0\nb:1 rail 1\nc:1 rail 0\nd:1 rail 1";
        let (trees, grants): (Vec<_>, Vec<_>) = granted(file, &["x", "y"], &[]).into_iter().unzip();
        let mut answers: Vec<Result<TreeGrant, String>> = grants.into_iter().map(Ok).collect();
        answers[1] = Err("no room".to_owned());
        let mut refused = Vec::new();
        let kept = keep_whole_rows(trees, answers, &mut refused);
        let kept: Vec<&str> = kept.iter().map(|(tree, _)| &tree.name[..]).collect();
        assert_eq!((kept, refused), (vec!["c:1", "d:1"], vec!["b:1: no room".to_owned()]));
    }
}
