//! Networks of groups, and random ones.

use std::collections::BTreeSet;

use super::network::{Network, Site, flat, plain_leaves};
use crate::wiring::Wiring;
use ringfold_harness::Random;

/// Connects each two of `groups` groups `links` times. The cables of a group go round its switches.
fn join_groups(wiring: &mut Wiring, groups: &[Vec<usize>], links: usize) {
    let mut next = vec![0; groups.len()];
    for _ in 0..links {
        for a in 0..groups.len() {
            for b in a + 1..groups.len() {
                let end =
                    |group: usize, next: &[usize]| groups[group][next[group] % groups[group].len()];
                let ends = [end(a, &next), end(b, &next)];
                wiring.join(ends[0], ends[1], 1);
                next[a] += 1;
                next[b] += 1;
            }
        }
    }
}

pub(super) fn dragonfly_plus(wiring: &mut Wiring, site: Site, shape: [usize; 4]) -> Network {
    let [groups, leaves, spines, links] = shape;
    let all_leaves = plain_leaves(wiring, site, groups * leaves);
    let mut of_groups = Vec::new();
    for group in all_leaves.chunks(leaves) {
        let above = wiring.uppers(spines, site.plain());
        wiring.join_all(group, &above, site.times);
        of_groups.push(above);
    }
    join_groups(wiring, &of_groups, links);
    let leaves = all_leaves.into_iter().map(|leaf| vec![leaf]).collect();
    Network { leaves, top: of_groups.concat() }
}

/// The balanced form: routers x links + 1 groups, each two connected once.
pub(super) fn dragonfly(wiring: &mut Wiring, site: Site, routers: usize, links: usize) -> Network {
    let groups = routers * links + 1;
    let switches = plain_leaves(wiring, site, groups * routers);
    let of_groups: Vec<Vec<usize>> = switches.chunks(routers).map(<[usize]>::to_vec).collect();
    for group in &of_groups {
        for (index, a) in group.iter().enumerate() {
            wiring.join_all(&[*a], &group[index + 1..], site.times);
        }
    }
    join_groups(wiring, &of_groups, 1);
    flat(switches)
}

/// A random regular graph by the pairing model. Free ends are paired at random. Pairings with a
/// loop, a double cable or two parts are discarded.
pub(super) fn regular(
    wiring: &mut Wiring,
    site: Site,
    count: usize,
    degree: usize,
    random: &mut Random,
) -> Network {
    let switches = plain_leaves(wiring, site, count);
    let pairs = loop {
        if let Some(pairs) = regular_graph(count, degree, random) {
            break pairs;
        }
    };
    for (a, b) in pairs {
        wiring.join(switches[a], switches[b], site.times);
    }
    flat(switches)
}

fn regular_graph(
    count: usize,
    degree: usize,
    random: &mut Random,
) -> Option<BTreeSet<(usize, usize)>> {
    let mut free: Vec<usize> = (0..count * degree).map(|end| end / degree).collect();
    let mut pairs = BTreeSet::new();
    let mut failures = 0;
    while !free.is_empty() {
        let [x, y] = [random.below(free.len()), random.below(free.len())];
        let (a, b) = (free[x].min(free[y]), free[x].max(free[y]));
        if a == b || !pairs.insert((a, b)) {
            failures += 1;
            if failures > 100 * degree {
                return None;
            }
            continue;
        }
        free.swap_remove(x.max(y));
        free.swap_remove(x.min(y));
    }
    let mut reached = BTreeSet::from([0]);
    while let Some((a, b)) = pairs.iter().find(|(a, b)| reached.contains(a) != reached.contains(b))
    {
        reached.extend([*a, *b]);
    }
    (reached.len() == count).then_some(pairs)
}
