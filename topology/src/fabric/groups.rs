//! Leaf groups: leaf switches that share their hosts.
//!
//! Two leaf switches are in one group if most of the ports on either belong to hosts with a port on
//! the other too. The threshold is three fifths, or half if there are few ports. So a cable in the
//! wrong leaf does not join groups, and a missing one does not split them.

use super::graph::Graph;
use super::sets::{Sets, mode};

/// A host with ports on more leaf switches than this is ignored for groups.
const LEAVES_PER_HOST_MAX: usize = 128;

/// Number of ports up to which half of them are enough.
const PORTS_FEW: usize = 4;

/// The leaf groups.
pub(super) struct Groups {
    /// By switch: its group; `None` if it has no ports of hosts.
    pub(super) of: Vec<Option<usize>>,
    /// By host: the group that has most of its ports.
    pub(super) home: Vec<Option<usize>>,
    /// By host: whether it has about as many ports as most, so that it represents the fabric.
    pub(super) is_typical: Vec<bool>,
    /// Number of groups.
    pub(super) count: usize,
}

impl Groups {
    /// Finds the leaf groups.
    pub(super) fn of(graph: &Graph<'_>) -> Self {
        let leaves: Vec<Vec<(usize, usize)>> =
            (0..graph.hosts.len()).map(|host| graph.leaves(host)).collect();
        let is_typical = typical(&leaves);
        let mut sets = Sets::new(graph.links.len());
        for (a, b) in alike(&leaves, &is_typical, graph.links.len()) {
            sets.join(a, b);
        }
        let mut number = vec![None; graph.links.len()];
        let mut of = vec![None; graph.links.len()];
        let mut count = 0;
        for leaf in (0..of.len()).filter(|leaf| !graph.ports_of[*leaf].is_empty()) {
            of[leaf] = Some(*number[sets.find(leaf)].get_or_insert_with(|| {
                count += 1;
                count - 1
            }));
        }
        let home = |leaves: &Vec<(usize, usize)>| {
            mode(leaves.iter().filter_map(|(leaf, ports)| Some((of[*leaf]?, *ports))))
        };
        let home = leaves.iter().map(home).collect();
        Self { of, home, is_typical, count }
    }
}

/// By host: whether it has at least half of the usual number of ports, and more than one.
fn typical(leaves: &[Vec<(usize, usize)>]) -> Vec<bool> {
    let ports = |leaves: &Vec<(usize, usize)>| leaves.iter().map(|(_, ports)| ports).sum();
    let counts: Vec<usize> = leaves.iter().map(ports).collect();
    let usual = mode(counts.iter().map(|count| (*count, *count))).unwrap_or(0);
    counts.iter().map(|count| *count * 2 >= usual && *count > usual.min(2) / 2).collect()
}

/// Pairs of leaf switches of one group.
fn alike(
    leaves: &[Vec<(usize, usize)>],
    is_typical: &[bool],
    switches: usize,
) -> Vec<(usize, usize)> {
    let mut ports = vec![0; switches];
    let mut shared: Vec<((usize, usize), usize)> = Vec::new();
    let used = leaves.iter().zip(is_typical).filter(|(_, is_typical)| **is_typical);
    for (leaves, _) in used.filter(|(leaves, _)| leaves.len() <= LEAVES_PER_HOST_MAX) {
        for (index, (a, in_a)) in leaves.iter().enumerate() {
            ports[*a] += in_a;
            let later = leaves[index + 1..].iter();
            shared.extend(later.map(|(b, in_b)| ((*a, *b), *in_a.min(in_b))));
        }
    }
    shared.sort_unstable_by_key(|(pair, _)| *pair);
    let runs = shared.chunk_by(|x, y| x.0 == y.0);
    let weighed = runs.map(|run| (run[0].0, run.iter().map(|(_, shared)| shared).sum::<usize>()));
    let alike = weighed.filter(|((a, b), shared)| {
        let most = ports[*a].max(ports[*b]);
        shared * 2 >= most && (shared * 5 >= most * 3 || most <= PORTS_FEW)
    });
    alike.map(|(pair, _)| pair).collect()
}
