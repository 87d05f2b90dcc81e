//! Levels: the distances of switches from hosts, and the cables that do not fit them.
//!
//! Switches with hosts are leaf switches, on level 1. A switch is on the level above another if at
//! least a quarter of its cables lead into that level, or about as many as for other switches. So a
//! misplaced cable does not pull a core switch down.
//!
//! A cable between levels fits if its ends share neighbours. In the trees of Leiserson (1985), of
//! Petrini and Vanneschi (k-ary n-trees, 1997) and of Oehring et al. (XGFT, 1995), the switches
//! below one switch have the same switches above. So most paths along a leaf, a spine, another leaf
//! and another spine close. Around a misplaced cable they do not.
//!
//! If the leaf switches below most switches have one device name, each rail or plane has switches
//! of its own. Then a cable to a leaf switch with another device name does not fit.

use super::graph::Graph;
use super::sets::{Sets, mode, usual};

/// The percentage of closed paths from which a cable certainly fits.
const FIRM: usize = 50;

/// The percentage of closed paths below which a cable does not fit, if both its ends have others
/// that do.
const LOOSE: usize = 25;

/// The most paths that are examined.
const CLOSURES_MAX: usize = 1 << 26;

/// Levels of switches, and cables that do not fit.
pub(super) struct Levels {
    /// By switch: its level from 1; 0 for routers and for switches that carry no traffic between
    /// hosts.
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

    /// Connects switches by the cables that `admit` accepts. Returns the set of each switch.
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

/// By switch: whether it can carry traffic between hosts. A switch without hosts and with cables to
/// only one switch cannot.
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

/// By switch: 1 for leaf switches. If few cables connect switches with many hosts, some switches
/// with hosts are spine or core switches with a misplaced host. These are switches whose cables
/// lead mostly to switches with twice as many hosts. They are also switches with few hosts that
/// share few neighbours with any leaf.
fn leaves(graph: &Graph<'_>, carries: &[bool]) -> Vec<u32> {
    let hosts = |switch: usize| if carries[switch] { graph.ports_of[switch].len() } else { 0 };
    let mut counts: Vec<usize> = (0..carries.len()).map(hosts).filter(|hosts| *hosts > 0).collect();
    counts.sort_unstable();
    let median = counts.get(counts.len() / 2).copied().unwrap_or(0);
    let has_few = |switch: usize| hosts(switch) * 4 <= median;
    let (mut all, mut direct) = (0, 0);
    for (switch, links) in graph.links.iter().enumerate() {
        for link in links {
            all += link.cables;
            let is_direct = !has_few(switch) && !has_few(link.to);
            direct += if is_direct { link.cables } else { 0 };
        }
    }
    let is_direct = direct * 5 > all * 3;
    let is_above = |switch: usize| {
        let total: u32 = graph.links[switch].iter().map(|link| link.cables).sum();
        let below = graph.links[switch].iter().filter(|link| hosts(link.to) >= 2 * hosts(switch));
        below.map(|link| link.cables).sum::<u32>() * 2 > total
    };
    let is_leaf = |switch: usize| {
        hosts(switch) > 0
            && (is_direct
                || !(is_above(switch) || has_few(switch) && is_apart(graph, switch, &has_few)))
    };
    (0..carries.len()).map(|switch| u32::from(is_leaf(switch))).collect()
}

/// Whether a switch shares at most half of its neighbours with any switch that has many hosts.
fn is_apart(graph: &Graph<'_>, switch: usize, has_few: &impl Fn(usize) -> bool) -> bool {
    let near = &graph.links[switch];
    let beyond = near.iter().flat_map(|link| &graph.links[link.to]).map(|link| link.to);
    let mut beyond: Vec<usize> = beyond.filter(|other| !has_few(*other)).collect();
    beyond.sort_unstable();
    let most = beyond.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap_or(0);
    near.len() > 1 && most * 2 <= near.len()
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
        let cables = |switch: &usize| {
            let (mut total, mut below) = (0, 0);
            for link in graph.links[*switch].iter().filter(|link| carries[link.to]) {
                total += link.cables;
                below += if of[link.to] == level { link.cables } else { 0 };
            }
            (total, below)
        };
        let mut counts: Vec<u32> = near.iter().map(|switch| cables(switch).1).collect();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).copied().unwrap_or(0);
        let is_next = |switch: &usize| {
            let (total, below) = cables(switch);
            below * 4 >= total || (below * 2 >= median && below * 16 >= total)
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
    misfits.extend(unlike_cables(graph, of, |port| graph.key_of[port]));
    misfits.extend(unlike_cables(graph, of, |port| graph.fabric.ports[port].number.into()));
    let closed = closures(graph, of);
    let mut is_firm = vec![false; of.len()];
    for (low, ups) in closed.iter().enumerate() {
        for (high, _) in ups.iter().filter(|(_, share)| *share >= FIRM) {
            is_firm[low] = true;
            is_firm[*high] = true;
        }
    }
    for (low, ups) in closed.iter().enumerate().filter(|(low, _)| is_firm[*low]) {
        let loose = ups.iter().filter(|(high, share)| *share < LOOSE && is_firm[*high]);
        misfits.extend(loose.map(|(high, _)| (low.min(*high), low.max(*high))));
    }
    for low in 0..of.len() {
        misfits.extend(thin(graph, of, low).into_iter().map(|high| (low.min(high), low.max(high))));
    }
    misfits.sort_unstable();
    misfits.dedup();
    misfits
}

/// The switches above `low` that it has far fewer cables to than to others, if these also have far
/// more cables to other switches.
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

/// Cables from switches above leaf switches of one label to switches of another label. Only if
/// nearly all switches are above leaf switches of one label. `label` gives the label of a port.
fn unlike_cables(
    graph: &Graph<'_>,
    of: &[u32],
    label: impl Fn(usize) -> u32,
) -> Vec<(usize, usize)> {
    let of_leaf = |switch: usize| {
        let ports = graph.ports_of[switch].iter().filter(|_| of[switch] == 1);
        usual(ports.map(|port| label(*port)))
    };
    let mut labels: Vec<Option<u32>> = (0..of.len()).map(of_leaf).collect();
    let mut misfits = leaf_misfits(graph, &mut labels);
    let top = of.iter().max().copied().unwrap_or(0);
    for level in 2..=top {
        let mut labelled = labels.clone();
        for high in (0..of.len()).filter(|switch| of[*switch] == level) {
            let below = graph.links[high].iter().filter(|link| of[link.to] + 1 == level);
            let votes = below.filter_map(|link| Some((labels[link.to]?, link.cables as usize)));
            labelled[high] = mode(votes);
        }
        labels = labelled;
        let is_below = |low: usize, high: usize| of[low] + 1 == level && of[high] == level;
        let Some(found) = unlike(graph, &labels, is_below) else { break };
        misfits.extend(found);
        let is_within = |a: usize, b: usize| of[a] == level && of[b] == level;
        misfits.extend(unlike(graph, &labels, is_within).unwrap_or_default());
    }
    misfits
}

/// Cables between leaf switches of different labels. A switch gets the label that most of its
/// neighbours and itself have.
fn leaf_misfits(graph: &Graph<'_>, labels: &mut Vec<Option<u32>>) -> Vec<(usize, usize)> {
    let label = |switch: usize| {
        let own = labels[switch]?;
        let near = graph.links[switch].iter();
        let near = near.filter_map(|link| Some((labels[link.to]?, 1)));
        mode(near.chain([(own, 1)]))
    };
    *labels = (0..labels.len()).map(label).collect();
    unlike(graph, labels, |_, _| true).unwrap_or_default()
}

/// Cables between switches of different labels that `admit` accepts. `None` if they are many, or if
/// all labels are equal. If most cables of a switch are such, the label of the switch is wrong
/// instead.
fn unlike(
    graph: &Graph<'_>,
    labels: &[Option<u32>],
    admit: impl Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    let (mut all, mut strange, mut found) = (0, 0, Vec::new());
    let mut first = None;
    let mut has_many = false;
    for (low, links) in graph.links.iter().enumerate() {
        let Some(label) = labels[low] else { continue };
        let here = links.iter().filter(|link| labels[link.to].is_some() && admit(low, link.to));
        let cables: u32 = here.clone().map(|link| link.cables).sum();
        let other = here.filter(|link| labels[link.to] != Some(label));
        let odd: u32 = other.clone().map(|link| link.cables).sum();
        has_many |= cables > 0 && *first.get_or_insert(label) != label;
        all += cables;
        strange += odd;
        if odd * 2 <= cables {
            found.extend(other.map(|link| (low.min(link.to), low.max(link.to))));
        }
    }
    (has_many && strange * 8 <= all).then_some(found)
}

/// Cables within a level or across one, if they are at most one in eight.
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
    if count * 8 <= all { astray } else { Vec::new() }
}

/// By switch and switch above it: the percentage of paths around their cable that close. A path
/// goes from the lower switch up to another one above, down to another below the higher switch, and
/// up to that. It is 100 without such paths, and if there are too many cables to examine.
fn closures(graph: &Graph<'_>, of: &[u32]) -> Vec<Vec<(usize, usize)>> {
    let on = |at: usize, level: u32| {
        graph.links[at].iter().map(|link| link.to).filter(move |to| of[*to] == level)
    };
    let mut common = vec![0_usize; of.len()];
    let mut closed = vec![Vec::new(); of.len()];
    let mut budget = CLOSURES_MAX;
    for low in (0..of.len()).filter(|low| of[*low] > 0) {
        let ups: Vec<usize> = on(low, of[low] + 1).collect();
        let work = ups.iter().map(|high| graph.links[*high].len()).sum();
        let Some(left) = budget.checked_sub(work) else { break };
        budget = left;
        ups.iter().flat_map(|high| on(*high, of[low])).for_each(|peer| common[peer] += 1);
        let share = |high: usize| {
            let peers = on(high, of[low]).filter(|peer| *peer != low);
            let (paths, closing) = peers.fold((0, 0), |(paths, closing), peer| {
                (paths + ups.len() - 1, closing + common[peer] - 1)
            });
            (closing * 100).checked_div(paths).unwrap_or(100)
        };
        closed[low] = ups.iter().map(|high| (*high, share(*high))).collect();
        ups.iter().flat_map(|high| on(*high, of[low])).for_each(|peer| common[peer] = 0);
    }
    closed
}
