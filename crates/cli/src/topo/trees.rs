//! Tree files: which aggregator combines which hosts of a fabric.
//!
//! Aggregator g is on rail g modulo the rails. With at most `AGGREGATOR_CHILDREN_MAX` hosts each
//! one is the root of a tree, and the roots of a rail share the chunks of a call. Beyond that the
//! first of a rail is its root, and the others divide the hosts below it, in fabric order. The
//! hosts of a leaf group stay together if that leaves no aggregator without hosts.

use anyhow::ensure;
use ringfold_innetwork::trees::{Aggregator, Trees};
use ringfold_topology::certainty::Certainty;
use ringfold_topology::fabric::{Classification, HostPlace};
use ringfold_types::limits::AGGREGATOR_CHILDREN_MAX;

/// The text of the tree file for these aggregators.
pub(super) fn text(found: &Classification, aggregators: &[String]) -> anyhow::Result<String> {
    let is_certain = found.rails.certainty == Certainty::Certain;
    let rails = if is_certain { usize::from(found.rails.value).max(1) } else { 1 };
    ensure!(
        aggregators.len().is_multiple_of(rails),
        "--aggregators: {} do not divide among {rails} rails; name as many for each",
        aggregators.len()
    );
    let hosts: Vec<_> = found.hosts.iter().filter(|host| !host.host.is_empty()).collect();
    ensure!(!hosts.is_empty(), "--tree: the fabric has no hosts with names");
    let is_flat = hosts.len() <= AGGREGATOR_CHILDREN_MAX;
    let lowest = aggregators.len() / rails - 1;
    let mut nodes: Vec<Aggregator> = Vec::with_capacity(aggregators.len());
    for (index, at) in aggregators.iter().enumerate() {
        let (rail, row) = (index % rails, index / rails);
        let mut node = Aggregator { at: at.trim().to_owned(), ..Aggregator::default() };
        if is_flat || row == 0 {
            node.rail = if rails > 1 { u16::try_from(rail).ok() } else { None };
        } else {
            node.parent = Some(rail);
            node.hosts = share(&hosts, row - 1, lowest);
        }
        nodes.push(node);
    }
    Ok(Trees::new(nodes)?.write())
}

/// The hosts of one of `all` aggregators.
fn share(hosts: &[&HostPlace], one: usize, all: usize) -> Vec<String> {
    let groups: Vec<_> = hosts.chunk_by(|a, b| (a.pod, a.group) == (b.pod, b.group)).collect();
    let mut owners = Vec::with_capacity(hosts.len());
    for group in &groups {
        // The middle of a group lies in the share of its aggregator.
        let middle = owners.len() + group.len() / 2;
        let owner = middle * all / hosts.len();
        owners.resize(owners.len() + group.len(), owner);
    }
    if (0..all).any(|owner| !owners.contains(&owner)) {
        owners = (0..hosts.len()).map(|host| host * all / hosts.len()).collect();
    }
    let ours = hosts.iter().zip(owners).filter(|(_, owner)| *owner == one);
    ours.map(|(host, _)| host.host.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn named(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("10.0.0.{at}:7411")).collect()
    }

    /// The trees for a fabric, with the shape of each for all hosts of that fabric.
    fn shapes(
        (groups, hosts, rails): (usize, usize, usize),
        aggregators: usize,
    ) -> Vec<(Option<u16>, String)> {
        let (_, found) = sample::rails(groups, hosts, rails, 1);
        let text = text(&found, &named(aggregators)).unwrap();
        let trees = Trees::parse("trees", &text).unwrap();
        let hosts: Vec<_> = found.hosts.iter().map(|host| host.host.as_str()).collect();
        let placed = trees.place(&hosts);
        assert_eq!(placed.left_out, [""; 0], "{text}");
        let count = |below: Vec<String>| match below.iter().all(String::is_empty) {
            true => below.len().to_string(),
            false => format!("[{}]", below.join(" ")),
        };
        let shape = |tree: &ringfold_innetwork::trees::Placement| {
            (tree.rail, tree.fold(&|_| String::new(), &count))
        };
        placed.trees.iter().map(shape).collect()
    }

    #[test]
    fn each_rail_has_a_root() {
        let one = |rail| (rail, "4".to_owned());
        assert_eq!(shapes((2, 2, 2), 2), [one(Some(0)), one(Some(1))]);
        assert_eq!(shapes((2, 2, 2), 4), [0, 1, 0, 1].map(|rail| one(Some(rail))));
        assert_eq!(shapes((2, 2, 1), 1), [one(None)]);
    }

    #[test]
    fn more_hosts_than_children_make_levels() {
        let two = |rail| (rail, "[40 60]".to_owned());
        assert_eq!(shapes((5, 20, 2), 6), [two(Some(0)), two(Some(1))]);
        // One leaf group is divided, since each aggregator needs hosts.
        assert_eq!(shapes((1, 90, 1), 4), [(None, "[30 30 30]".to_owned())]);
        // A single server has groups of its own.
        assert_eq!(shapes((1, 90, 1), 1), [(None, "[45 45]".to_owned())]);
    }

    #[test]
    fn a_number_that_does_not_divide_is_an_error() {
        let (_, found) = sample::rails(2, 2, 2, 1);
        let error = text(&found, &named(3)).unwrap_err().to_string();
        assert_eq!(error, "--aggregators: 3 do not divide among 2 rails; name as many for each");
        assert!(text(&found, &["here".into(), "there:1".into()]).is_err());
    }
}
