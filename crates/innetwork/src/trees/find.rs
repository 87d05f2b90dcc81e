//! The search for the trees that serve a communicator, and the requests for all their groups.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use ringfold_bootstrap::Secret;
use ringfold_topology::{Aggregation, AggregationTree, Layout};
use ringfold_types::Chain;
use ringfold_types::limits::{CHANNELS_MAX, HANDSHAKE_MS, OFFLOAD_CHUNK_BYTES, OFFLOAD_WINDOW};

use super::control::Terms;
use super::file::Trees;
use super::grant::{TreeGrant, grant, key};
use super::offer::Offer;
use super::place::Placement;

/// The time that an aggregator may take to answer.
const ASK: Duration = Duration::from_millis(HANDSHAKE_MS);

/// Bytes of a job's name at an aggregator.
const JOB_BYTES_MAX: usize = 64;

/// Asks all aggregators of these trees for the groups of a communicator, whose secret is `keys`.
/// Only rank 0 does. `site` is the secret of the aggregators, and `hosts` has the name of each
/// rank's host. Blocks for some seconds at most.
#[must_use]
pub fn find(
    trees: Trees,
    site: &Secret,
    (job, keys): (&str, &Secret),
    layout: &Layout,
    hosts: &[Vec<u8>],
) -> Offer {
    let (trees, failed) = trees.with_parents(site, ASK);
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
    let answers = ask_all(&trees, terms, site);
    let granted = keep_whole_rows(trees, answers, &mut refused);
    let mut offer = Offer::none(refused.join("; "));
    if let Some((tree, _)) = granted.first() {
        offer.set_tree(&tree.fold(&AggregationTree::Member, &AggregationTree::Node));
    }
    let of_host = layout.prices().link(layout.links_between()).byte_ps;
    offer.byte_ps = busiest(&granted, of_host);
    let group = |(tree, grant): (Placement, TreeGrant)| (tree.name, grant.leaves);
    offer.groups = granted.into_iter().map(group).collect();
    offer
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
