//! The kind of one network, derived from its switches and the cables between them.
//!
//! * A fat tree has cables between neighbouring levels only, and each of its topmost switches
//!   reaches all leaf switches downwards: Leiserson (1985); k-ary n-trees, Petrini and Vanneschi
//!   (1997); XGFT, Oehring et al. (1995).
//! * A Dragonfly+ has groups of leaf and spine switches, and its spine switches connect each group
//!   to every other: Shpiner et al. (2017).
//! * Torus and HyperX are in `grid`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::classification::{Kind, Ratio};
use super::graph::Graph;
use super::grid::{self, Grid};
use super::levels::Levels;
use super::net::Net;
use super::sets::mode;
use crate::certainty::Certainty;

/// Number of topmost switches that are tried.
const TOPS_TRIED: usize = 8;

/// The shape of a network.
pub(super) struct Shape {
    /// Its kind, as if it had no rails.
    pub(super) kind: Kind,
    /// The certainty of the kind.
    pub(super) certainty: Certainty,
    /// The reason.
    pub(super) because: String,
    /// The capacity of its leaf switches, if it is a tree.
    pub(super) capacity: Capacity,
    /// The grid, if it is one.
    pub(super) grid: Option<Grid>,
}

/// Finds the shape of the network of these switches.
pub(super) fn shape(graph: &Graph<'_>, levels: &Levels, net: &Net, switches: &[usize]) -> Shape {
    let on = |level: u32| switches.iter().filter(move |switch| levels.of[**switch] == level);
    let top = switches.iter().map(|switch| levels.of[*switch]).max().unwrap_or(0);
    let leaves = on(1).count();
    if switches.len() == 1 {
        let because = "every port is on one switch".to_owned();
        return Shape::new(Kind::SingleSwitch, Certainty::Certain, because);
    }
    let Cables { upright, sideways, spines } = Cables::count(graph, levels, switches);
    if sideways - spines > upright {
        return direct(graph, switches);
    }
    let low = switches.iter().filter(|switch| levels.of[**switch] <= 2).count();
    let is_grouped = spines * 10 >= sideways * 6 && sideways > 0 && low * 10 >= switches.len() * 9;
    if let Some(shape) = is_grouped.then(|| dragonfly(graph, levels, switches, 2)).flatten() {
        return shape;
    }
    // A leaf switch without hosts, or one that lost its cables downwards, may appear to be above
    // the top level.
    let reaches = |level: &u32, tenths| reaches(graph, levels, switches, *level, leaves * tenths);
    let reached = (2..=top).find(|level| reaches(level, 9));
    let reached = reached.or_else(|| (2..=top).rev().find(|level| reaches(level, 6)));
    if let Some(top) = reached.filter(|_| sideways * 8 <= upright) {
        let capacity = capacity(graph, levels, switches, net);
        let kind = Kind::FatTree { levels: top, oversubscription: ratio(capacity) };
        let has_all = net.ports == net.ports_whole;
        let is_whole = is_whole(graph, levels, switches) && sideways == 0 && has_all;
        let certainty = if is_whole { Certainty::Certain } else { Certainty::Likely };
        let because = format!(
            "{leaves} leaf switches have cables only upwards, and each of the topmost switches on \
             level {top} reaches them all"
        );
        return Shape { capacity, ..Shape::new(kind, certainty, because) };
    }
    let because = "the switches form neither a tree nor a grid, and no groups".to_owned();
    Shape::new(Kind::Other { levels: top }, Certainty::Unknown, because)
}

impl Shape {
    fn new(kind: Kind, certainty: Certainty, because: String) -> Self {
        Self { kind, certainty, because, capacity: Capacity::default(), grid: None }
    }
}

/// The shape of a network with hosts on every switch.
fn direct(graph: &Graph<'_>, switches: &[usize]) -> Shape {
    let Some(grid) = grid::find(graph, switches) else {
        let because = "hosts are on every switch, and the switches form no grid".to_owned();
        return Shape::new(Kind::Other { levels: 1 }, Certainty::Unknown, because);
    };
    let dims: Vec<String> = grid.dims.iter().map(u32::to_string).collect();
    let (dims, percent) = (dims.join(" x "), grid.percent);
    let how = if grid.is_torus { "closes on itself" } else { "is joined along each line" };
    let because = format!(
        "hosts are on every switch, and {percent} % of the cables are those of a {dims} grid that \
         {how}"
    );
    let kind = if grid.is_torus {
        Kind::Torus { dims: grid.dims.clone() }
    } else {
        Kind::HyperX { dims: grid.dims.clone() }
    };
    let is_sure = grid.percent == 100 && grid.is_unlike_others;
    let certainty = if is_sure { Certainty::Certain } else { Certainty::Likely };
    Shape { grid: Some(grid), ..Shape::new(kind, certainty, because) }
}

/// Cables between switches, by their direction.
#[derive(Default)]
struct Cables {
    /// Cables from one level to the next.
    upright: u32,
    /// All other cables.
    sideways: u32,
    /// The sideways cables between switches of level 2.
    spines: u32,
}

impl Cables {
    fn count(graph: &Graph<'_>, levels: &Levels, switches: &[usize]) -> Self {
        let mut count = Self::default();
        for a in switches {
            for link in graph.links[*a].iter().filter(|link| link.to > *a) {
                let (low, high) = (levels.of[*a], levels.of[link.to]);
                if low == 0 || high == 0 {
                    continue;
                }
                let is_upright = low.abs_diff(high) == 1;
                *(if is_upright { &mut count.upright } else { &mut count.sideways }) += link.cables;
                count.spines += if low == 2 && high == 2 { link.cables } else { 0 };
            }
        }
        count
    }
}

/// Whether most switches of a level reach at least `tenths` tenths of the leaf switches by going
/// down only.
fn reaches(
    graph: &Graph<'_>,
    levels: &Levels,
    switches: &[usize],
    top: u32,
    tenths: usize,
) -> bool {
    let tops: Vec<usize> =
        switches.iter().copied().filter(|switch| levels.of[*switch] == top).collect();
    let step = tops.len().div_ceil(TOPS_TRIED).max(1);
    let tried: Vec<usize> = tops.iter().copied().step_by(step).collect();
    let good = tried.iter().filter(|from| {
        let mut near = BTreeSet::from([**from]);
        for level in (1..top).rev() {
            let down = near.iter().flat_map(|switch| &graph.links[*switch]);
            let down = down.map(|link| link.to).filter(|to| levels.of[*to] == level);
            near = down.collect();
        }
        near.len() * 10 >= tenths
    });
    good.count() * 2 >= tried.len()
}

/// The capacity of leaf switches in one network.
#[derive(Clone, Copy, Default)]
pub(super) struct Capacity {
    /// Gigabits per second from hosts.
    pub(super) into: u64,
    /// Gigabits per second upwards.
    pub(super) up: u64,
}

/// Capacity from hosts over capacity upwards.
pub(super) fn ratio(capacity: Capacity) -> Ratio {
    let Capacity { into, up } = capacity;
    let divisor = common_divisor(into, up).max(1);
    Ratio(into / divisor, up / divisor)
}

/// The capacity if no part were missing, at the rates of most ports and cables. Each host counts
/// with the usual number of ports, and each leaf switch with the usual number of cables upwards.
fn capacity(graph: &Graph<'_>, levels: &Levels, switches: &[usize], net: &Net) -> Capacity {
    let leaves = || switches.iter().filter(|switch| levels.of[**switch] == 1);
    let ports = leaves().flat_map(|leaf| &graph.ports_of[*leaf]);
    let rate = mode(ports.map(|port| (graph.fabric.ports[*port].gbps, 1))).unwrap_or(0).max(1);
    let up =
        || leaves().flat_map(|leaf| &graph.links[*leaf]).filter(|link| levels.of[link.to] == 2);
    let cables = up().map(|link| (link.gbps / u64::from(link.cables), link.cables as usize));
    let up_rate = mode(cables).unwrap_or(0).max(1);
    // Of several equally frequent numbers, the largest counts, because cables go missing. They may
    // be missing at leaf switches or at those above.
    let has_cores = switches.iter().any(|switch| levels.of[*switch] > 2);
    let between = |level: u32, other: u32| {
        let cables = |switch: &usize| {
            let links = graph.links[*switch].iter().filter(|link| levels.of[link.to] == other);
            links.map(|link| u64::from(link.cables)).sum::<u64>()
        };
        let here = || switches.iter().filter(|switch| levels.of[**switch] == level);
        let each = mode(here().map(|switch| (Reverse(cables(switch)), 1)));
        here().count() as u64 * each.map_or(0, |Reverse(each)| each)
    };
    Capacity {
        into: net.ports_whole as u64 * u64::from(rate),
        up: between(1, 2).max(if has_cores { 0 } else { between(2, 1) }) * up_rate,
    }
}

/// Whether no cable appears to be missing or misplaced: leaf switches have equally many upwards.
fn is_whole(graph: &Graph<'_>, levels: &Levels, switches: &[usize]) -> bool {
    let up = |leaf: &usize| {
        let up = graph.links[*leaf].iter().filter(|link| levels.of[link.to] == 2);
        up.map(|link| link.cables).sum::<u32>()
    };
    let into = |leaf: &usize| graph.ports_of[*leaf].len();
    let leaves = switches.iter().filter(|switch| levels.of[**switch] == 1);
    let mut counts = leaves.map(|leaf| (into(leaf), up(leaf)));
    let first = counts.next();
    let mut above = switches.iter().filter(|switch| levels.of[**switch] > 1);
    counts.all(|count| Some(count) == first)
        && above.all(|switch| graph.ports_of[*switch].is_empty())
        && switches
            .iter()
            .all(|switch| graph.links[*switch].iter().all(|link| levels.fits(*switch, link.to)))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether switches form three or more groups of a Dragonfly+.
pub(super) fn are_groups(graph: &Graph<'_>, levels: &Levels, switches: &[usize]) -> bool {
    dragonfly(graph, levels, switches, 3).is_some()
}

/// The shape of a Dragonfly+, if leaf and spine switches form at least `least` groups, each
/// connected to nearly every other.
fn dragonfly(
    graph: &Graph<'_>,
    levels: &Levels,
    switches: &[usize],
    least: usize,
) -> Option<Shape> {
    let group = groups(graph, levels);
    let number = |switch: usize| group[switch];
    let low = switches.iter().filter(|switch| levels.of[**switch] == 1);
    let mut groups: Vec<usize> = low.map(|switch| number(*switch)).collect();
    groups.sort_unstable();
    let sizes: Vec<usize> = groups.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    let (many, mut pairs, mut inside, mut between) = (sizes.len(), BTreeSet::new(), 0, 0);
    for a in switches.iter().filter(|switch| levels.of[**switch] == 2) {
        let links = graph.links[*a].iter().filter(|link| link.to > *a);
        for link in links.filter(|link| levels.of[link.to] == 2) {
            let (a, b) = (number(*a), number(link.to));
            *(if a == b { &mut inside } else { &mut between }) += link.cables;
            if a != b {
                pairs.insert((a.min(b), a.max(b)));
            }
        }
    }
    let all = many * many.saturating_sub(1) / 2;
    let is_joined = many >= least && pairs.len() * 10 >= all * 8 && inside * 8 <= between;
    let is_sure = many > 2 && pairs.len() == all && inside == 0;
    let because = format!(
        "{many} groups of leaf and spine switches are joined by spine switches, {} of {all} pairs \
         of groups directly",
        pairs.len()
    );
    let certainty = if is_sure { Certainty::Certain } else { Certainty::Likely };
    is_joined.then(|| Shape::new(Kind::DragonflyPlus, certainty, because))
}

/// By switch: its group of leaf and spine switches.
pub(super) fn groups(graph: &Graph<'_>, levels: &Levels) -> Vec<usize> {
    let is_upright = |a: usize, b: usize| {
        levels.of[a].min(levels.of[b]) == 1 && levels.of[a].max(levels.of[b]) == 2
    };
    levels.parts(graph, |a, b| is_upright(a, b) && levels.fits(a, b))
}
