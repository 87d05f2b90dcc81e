//! How far switches are from hosts, and which cables fit the rest.
//!
//! Switches with hosts are leaf switches, on level 1. A switch with at least a quarter of its
//! cables into a level is on the next, so a misplaced cable pulls no core switch down.
//!
//! A cable between levels fits if its ends share neighbours: in the trees of Leiserson (1985), of
//! Petrini and Vanneschi (k-ary n-trees, 1997) and of Öhring et al. (XGFT, 1995), the switches
//! below one switch have the same switches above. So most paths along a leaf, a spine, another
//! leaf and another spine close. Around a misplaced cable they do not.

use super::graph::Graph;
use super::sets::Sets;

/// Levels of switches, and cables that do not fit.
pub(super) struct Levels {
    /// By switch: its level from 1; 0 for routers and switches that carry nothing between hosts.
    pub(super) of: Vec<u32>,
    /// Pairs of switches whose cable does not fit, the smaller number first; sorted.
    pub(super) misfits: Vec<(usize, usize)>,
}

impl Levels {
    /// Finds levels and misfits.
    pub(super) fn of(graph: &Graph<'_>) -> Self {
        let carries = carrying(graph);
        let mut of = leaves(graph, &carries);
        climb(graph, &carries, &mut of);
        let misfits = misfits(graph, &of);
        Self { of, misfits }
    }

    /// Whether the cables between two switches fit.
    pub(super) fn fits(&self, a: usize, b: usize) -> bool {
        self.misfits.binary_search(&(a.min(b), a.max(b))).is_err()
    }

    /// Joins switches by cables that `admit` lets pass, and gives the set of each.
    pub(super) fn parts(
        &self,
        graph: &Graph<'_>,
        admit: impl Fn(usize, usize) -> bool,
    ) -> Vec<usize> {
        let mut sets = Sets::new(self.of.len());
        for (a, links) in graph.links.iter().enumerate() {
            for b in links.iter().map(|link| link.to).filter(|b| *b > a) {
                if admit(a, b) {
                    sets.join(a, b);
                }
            }
        }
        (0..self.of.len()).map(|switch| sets.find(switch)).collect()
    }
}

/// By switch: whether it can carry something between hosts. A switch without hosts that has
/// cables to one switch only cannot.
fn carrying(graph: &Graph<'_>) -> Vec<bool> {
    let mut carries: Vec<bool> =
        graph.fabric.switches.iter().map(|switch| !switch.is_router).collect();
    let mut neighbours: Vec<usize> = graph.links.iter().map(Vec::len).collect();
    let is_idle =
        |switch: usize, neighbours: usize| graph.ports_of[switch].is_empty() && neighbours < 2;
    let mut idle: Vec<usize> =
        (0..carries.len()).filter(|switch| is_idle(*switch, neighbours[*switch])).collect();
    while let Some(switch) = idle.pop() {
        if !std::mem::replace(&mut carries[switch], false) {
            continue;
        }
        for link in &graph.links[switch] {
            neighbours[link.to] = neighbours[link.to].saturating_sub(1);
            if is_idle(link.to, neighbours[link.to]) {
                idle.push(link.to);
            }
        }
    }
    carries
}

/// By switch: 1 for leaf switches. Unless most cables are between switches with hosts, one with few
/// hosts that has its cables to leaf switches is a spine with a host in the wrong place.
fn leaves(graph: &Graph<'_>, carries: &[bool]) -> Vec<u32> {
    let has_hosts = |switch: usize| carries[switch] && !graph.ports_of[switch].is_empty();
    let mut counts: Vec<usize> = (0..carries.len())
        .filter(|switch| has_hosts(*switch))
        .map(|switch| graph.ports_of[switch].len())
        .collect();
    counts.sort_unstable();
    let median = counts.get(counts.len() / 2).copied().unwrap_or(0);
    let (mut all, mut direct) = (0, 0);
    for (switch, links) in graph.links.iter().enumerate() {
        let cables = links.iter().map(|link| link.cables);
        let near = links.iter().filter(|link| has_hosts(link.to) && has_hosts(switch));
        all += cables.sum::<u32>();
        direct += near.map(|link| link.cables).sum::<u32>();
    }
    let is_direct = direct * 5 > all * 3;
    let has_many = |switch: usize| graph.ports_of[switch].len() * 4 > median;
    let is_leaf = |switch: usize| {
        if is_direct || has_many(switch) {
            return has_hosts(switch);
        }
        let total: u32 = graph.links[switch].iter().map(|link| link.cables).sum();
        let links = graph.links[switch].iter();
        let down: u32 = links.filter(|link| has_many(link.to)).map(|link| link.cables).sum();
        has_hosts(switch) && down * 2 <= total
    };
    (0..carries.len()).map(|switch| u32::from(is_leaf(switch))).collect()
}

/// Gives every other switch its level.
fn climb(graph: &Graph<'_>, carries: &[bool], of: &mut [u32]) {
    let mut frontier: Vec<usize> = (0..of.len()).filter(|switch| of[*switch] == 1).collect();
    let mut level = 1;
    while !frontier.is_empty() {
        let near = frontier.iter().flat_map(|switch| &graph.links[*switch]).map(|link| link.to);
        let mut near: Vec<usize> =
            near.filter(|switch| carries[*switch] && of[*switch] == 0).collect();
        near.sort_unstable();
        near.dedup();
        let is_next = |switch: &usize| {
            let (mut total, mut below) = (0, 0);
            for link in graph.links[*switch].iter().filter(|link| carries[link.to]) {
                total += link.cables;
                below += if of[link.to] == level { link.cables } else { 0 };
            }
            below * 4 >= total
        };
        let next: Vec<usize> = near.iter().copied().filter(is_next).collect();
        frontier = if next.is_empty() { near } else { next };
        level += 1;
        frontier.iter().for_each(|switch| of[*switch] = level);
    }
}

/// Cables that do not fit: those between two levels with too few closed paths around them, and
/// those within a level or across one, if they are few.
fn misfits(graph: &Graph<'_>, of: &[u32]) -> Vec<(usize, usize)> {
    let mut misfits = astray(graph, of);
    let closed = closures(graph, of);
    let is_firm = |low: usize, high: usize| {
        closed[low].iter().any(|(to, share)| *to == high && *share >= 0.5)
    };
    let mut has_firm_down = vec![0_u32; of.len()];
    for (low, ups) in closed.iter().enumerate() {
        for (high, _) in ups.iter().filter(|(high, _)| is_firm(low, *high)) {
            has_firm_down[*high] += 1;
        }
    }
    for (low, ups) in closed.iter().enumerate() {
        let is_anchored = ups.iter().any(|(_, share)| *share >= 0.5);
        let loose = ups.iter().filter(|(_, share)| is_anchored && *share < 0.25);
        let loose = loose.filter(|(high, _)| has_firm_down[*high] > 0);
        misfits.extend(loose.map(|(high, _)| (low.min(*high), low.max(*high))));
        misfits.extend(thin(graph, of, low).into_iter().map(|high| (low.min(high), low.max(high))));
    }
    misfits.sort_unstable();
    misfits.dedup();
    misfits
}

/// Switches above that a switch has far fewer cables to than to others, and which have far more to
/// others.
fn thin(graph: &Graph<'_>, of: &[u32], low: usize) -> Vec<usize> {
    let most = |at: usize, level: u32| {
        let links = graph.links[at].iter().filter(|link| of[link.to] == level);
        links.map(|link| link.cables).max().unwrap_or(0)
    };
    let above = most(low, of[low] + 1);
    let ups = graph.links[low].iter().filter(|link| of[link.to] == of[low] + 1);
    let thin = ups.filter(|link| link.cables * 3 <= above);
    thin.filter(|link| link.cables * 3 <= most(link.to, of[low])).map(|link| link.to).collect()
}

/// Cables within a level or across one, if they are at most one in sixteen.
fn astray(graph: &Graph<'_>, of: &[u32]) -> Vec<(usize, usize)> {
    let (mut all, mut count, mut astray) = (0, 0, Vec::new());
    for (a, links) in graph.links.iter().enumerate().filter(|(a, _)| of[*a] > 0) {
        for link in links.iter().filter(|link| link.to > a && of[link.to] > 0) {
            all += link.cables;
            if of[a].abs_diff(of[link.to]) != 1 {
                count += link.cables;
                astray.push((a, link.to));
            }
        }
    }
    if count * 16 <= all { astray } else { Vec::new() }
}

/// By switch and switch above it: which share of the paths around their cable closes: up to
/// another switch above, down to another below it, and up to the first. 1 without such paths.
fn closures(graph: &Graph<'_>, of: &[u32]) -> Vec<Vec<(usize, f64)>> {
    let on = |at: usize, level: u32| {
        graph.links[at].iter().map(|link| link.to).filter(move |to| of[*to] == level)
    };
    let mut common = vec![0_u32; of.len()];
    let mut closed = vec![Vec::new(); of.len()];
    for low in (0..of.len()).filter(|low| of[*low] > 0) {
        let ups: Vec<usize> = on(low, of[low] + 1).collect();
        ups.iter().flat_map(|high| on(*high, of[low])).for_each(|peer| common[peer] += 1);
        let share = |high: usize| {
            let peers = on(high, of[low]).filter(|peer| *peer != low);
            let (paths, closing) = peers.fold((0, 0), |(paths, closing), peer| {
                (paths + ups.len() as u32 - 1, closing + common[peer] - 1)
            });
            if paths == 0 { 1.0 } else { f64::from(closing) / f64::from(paths) }
        };
        closed[low] = ups.iter().map(|high| (*high, share(*high))).collect();
        ups.iter().flat_map(|high| on(*high, of[low])).for_each(|peer| common[peer] = 0);
    }
    closed
}
