//! Grids of switches: torus (rings along each dimension), and HyperX (Ahn et al., 2009). In a
//! HyperX each switch is connected to all others along each dimension. A hypercube is a HyperX with
//! 2 switches along each dimension.
//!
//! The search takes one switch as the origin and gives places to its neighbours. Then switches with
//! places vote for the places of their neighbours. Finally it counts the cables that the grid has.
//! If too many are missing or do not fit, the result is no grid. So a wrong turn of the search may
//! find nothing, but never a wrong grid.
//!
//! A ring of 3 is a complete graph, and a ring of 4 is a square of two dimensions with 2 each.
//! Grids with such dimensions may have two names. Those with 2 along each dimension are called
//! HyperX.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::graph::Graph;
use super::sets::{Sets, mode};

/// Number of switches that are tried as the origin.
const ORIGINS_TRIED: usize = 24;

/// How often, for each switch, the search examines a switch without an agreed place.
const DOUBTS_PER_SWITCH: usize = 64;

/// Number of passes that try swaps.
const PASSES: usize = 3;

/// The percentage of right cables that a grid needs at least.
const PERCENT_MIN: usize = 85;

/// Number of cables from which a grid may lack one.
const CABLES_SMALL: usize = 6;

/// The most switches of a line.
const LINE_MAX: usize = 1 << 12;

/// A grid of switches.
pub(super) struct Grid {
    /// Whether lines close to rings. Otherwise all switches of a line are connected.
    pub(super) is_torus: bool,
    /// Switches along each dimension, ascending.
    pub(super) dims: Vec<u32>,
    /// Each switch with its position in an order that winds through the grid, so that neighbours in
    /// the order are neighbours in the grid.
    pub(super) order: Vec<(usize, usize)>,
    /// The percentage of cables that belong to the grid, or of the grid's cables that exist, if
    /// that is less.
    pub(super) percent: usize,
    /// Whether no grid with other dimensions looks the same.
    pub(super) is_unlike_others: bool,
}

/// A grid to try.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    is_torus: bool,
    dims: Vec<usize>,
}

impl Frame {
    fn size(&self) -> usize {
        self.dims.iter().product()
    }

    /// Number of neighbours of each place.
    fn degree(&self) -> usize {
        self.dims.iter().map(|dim| if self.is_torus { (dim - 1).min(2) } else { dim - 1 }).sum()
    }

    /// The places next to `place`.
    fn near(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let mut stride = self.size();
        self.dims.iter().flat_map(move |dim| {
            stride /= dim;
            let (stride, at) = (stride, place / stride % dim);
            let last = if self.is_torus { (dim - 1).min(2) } else { dim - 1 };
            // On a ring: one further, and one back.
            let step =
                move |index: usize| if self.is_torus && index == 2 { dim - 1 } else { index };
            (1..=last).map(move |index| place - at * stride + (at + step(index)) % dim * stride)
        })
    }

    fn are_near(&self, a: usize, b: usize) -> bool {
        self.near(a).any(|near| near == b)
    }

    /// The place `distance` steps from place 0 along a dimension.
    fn step(&self, dim: usize, distance: usize) -> usize {
        distance * self.dims[dim + 1..].iter().product::<usize>()
    }

    /// The position of a place in an order that winds through the grid.
    fn winding(&self, place: usize) -> usize {
        let mut stride = self.size();
        self.dims.iter().fold(0, |before, dim| {
            stride /= dim;
            let at = place / stride % dim;
            before * dim + if before % 2 == 1 { dim - 1 - at } else { at }
        })
    }

    fn is_unlike_others(&self) -> bool {
        let twos = self.dims.iter().filter(|dim| **dim == 2).count();
        let least = if self.is_torus { 5 } else { 4 };
        let short = self.dims.iter().filter(|dim| **dim < least).count();
        short == 0 || (!self.is_torus && short == twos && twos == 1)
    }
}

/// The neighbours of each switch, in order. Switches have numbers of their own here.
struct Network {
    near: Vec<Vec<usize>>,
    cables: usize,
}

impl Network {
    fn of(graph: &Graph<'_>, switches: &[usize]) -> Self {
        let number: BTreeMap<usize, usize> =
            switches.iter().enumerate().map(|(number, switch)| (*switch, number)).collect();
        let near = |switch: &usize| {
            let links = graph.links[*switch].iter();
            let mut near: Vec<usize> =
                links.filter_map(|link| number.get(&link.to).copied()).collect();
            near.sort_unstable();
            near
        };
        let near: Vec<Vec<usize>> = switches.iter().map(near).collect();
        let cables = near.iter().map(Vec::len).sum::<usize>() / 2;
        Self { near, cables }
    }

    fn are_joined(&self, a: usize, b: usize) -> bool {
        self.near[a].binary_search(&b).is_ok()
    }

    /// Whether two switches have a common neighbour other than `but`.
    fn share_beside(&self, a: usize, b: usize, but: usize) -> bool {
        self.near[a].iter().any(|near| *near != but && self.are_joined(*near, b))
    }

    /// The number of neighbours that most switches have.
    fn degree(&self) -> usize {
        mode(self.near.iter().map(|near| (near.len(), 1))).unwrap_or(0)
    }
}

/// Finds the grid that these switches form.
pub(super) fn find(graph: &Graph<'_>, switches: &[usize]) -> Option<Grid> {
    let network = Network::of(graph, switches);
    let mut best: Option<(usize, Frame, Vec<usize>)> = None;
    for frame in frames(network.near.len(), network.degree()) {
        let mut tries = seeds(&network, &frame).into_iter().take(ORIGINS_TRIED);
        while best.as_ref().is_none_or(|(percent, ..)| *percent < 95) {
            let Some(seed) = tries.next() else { break };
            let mut place_of = grow(&network, &frame, &seed);
            improve(&network, &frame, &mut place_of);
            let percent = percent(&network, &frame, &place_of);
            if best.as_ref().is_none_or(|(before, ..)| percent > *before) {
                best = Some((percent, frame.clone(), place_of));
            }
        }
    }
    let (percent, frame, place_of) = best.filter(|(percent, ..)| *percent >= PERCENT_MIN)?;
    let order = place_of.iter().zip(switches);
    Some(Grid {
        is_torus: frame.is_torus,
        dims: frame.dims.iter().filter_map(|dim| u32::try_from(*dim).ok()).collect(),
        order: order.map(|(place, switch)| (*switch, frame.winding(*place))).collect(),
        percent,
        is_unlike_others: frame.is_unlike_others(),
    })
}

/// The grids of this size in which switches have about this many neighbours, in order of
/// preference.
fn frames(size: usize, degree: usize) -> Vec<Frame> {
    let mut dims = Vec::new();
    factors(size, 2, &mut Vec::new(), &mut dims);
    let mut frames: Vec<Frame> = [true, false]
        .into_iter()
        .flat_map(|is_torus| dims.iter().map(move |dims| (is_torus, dims)))
        .map(|(is_torus, dims)| Frame { is_torus, dims: dims.clone() })
        .filter(|frame| frame.degree() == degree || frame.degree() == degree + 1)
        .collect();
    let is_short = |frame: &Frame| frame.dims.contains(&2);
    let is_cube = |frame: &Frame| frame.dims.iter().all(|dim| *dim == 2);
    frames.retain(|frame| !frame.is_torus || !is_cube(frame));
    frames.sort_by_key(|frame| {
        let name = match (is_cube(frame), frame.is_torus, is_short(frame)) {
            (true, ..) => 0,
            (_, true, false) => 1,
            (_, false, _) => 2,
            (_, true, true) => 3,
        };
        (frame.degree() != degree, name)
    });
    frames
}

/// All ways to write `size` as a product of ascending factors of at least `least`.
fn factors(size: usize, least: usize, before: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
    for factor in (least..size).take_while(|factor| factor * factor <= size) {
        if size.is_multiple_of(factor) {
            before.push(factor);
            factors(size / factor, factor, before, found);
            before.pop();
        }
    }
    if size >= least && size <= LINE_MAX {
        found.push(before.iter().copied().chain([size]).collect());
    }
}

/// First places to try: those of a switch and of its neighbours.
fn seeds(network: &Network, frame: &Frame) -> Vec<Vec<(usize, usize)>> {
    if frame.dims.len() == 1 && !frame.is_torus {
        return vec![(0..network.near.len()).map(|switch| (switch, switch)).collect()];
    }
    let origins =
        (0..network.near.len()).filter(|origin| network.near[*origin].len() == frame.degree());
    let seeds = origins.flat_map(|origin| {
        let around = if frame.is_torus {
            ring_seeds(network, frame, origin)
        } else {
            line_seed(network, frame, origin).into_iter().collect()
        };
        around.into_iter().map(move |mut seed: Vec<(usize, usize)>| {
            seed.push((origin, 0));
            seed
        })
    });
    seeds.take(ORIGINS_TRIED).collect()
}

/// Places for the neighbours of a switch of a HyperX. Neighbours on one line are connected to each
/// other.
fn line_seed(network: &Network, frame: &Frame, origin: usize) -> Option<Vec<(usize, usize)>> {
    let near = &network.near[origin];
    let mut sets = Sets::new(near.len());
    for (a, switch) in near.iter().enumerate() {
        for (b, other) in near.iter().enumerate().skip(a + 1) {
            if network.are_joined(*switch, *other) {
                sets.join(a, b);
            }
        }
    }
    let mut lines = vec![Vec::new(); near.len()];
    (0..near.len()).for_each(|index| lines[sets.find(index)].push(near[index]));
    lines.retain(|line| !line.is_empty());
    lines.sort_by_key(Vec::len);
    let fits = lines.len() == frame.dims.len()
        && lines.iter().zip(&frame.dims).all(|(line, dim)| line.len() + 1 == *dim);
    let place = |(dim, line): (usize, Vec<usize>)| {
        (1..).zip(line).map(move |(at, switch)| (switch, frame.step(dim, at))).collect::<Vec<_>>()
    };
    fits.then(|| lines.into_iter().enumerate().flat_map(place).collect())
}

/// Places for the neighbours of a switch of a torus, in every possible pairing of opposite ones.
/// The two on a ring of 3 are connected. The two on a ring of at least 5 share no other neighbour.
fn ring_seeds(network: &Network, frame: &Frame, origin: usize) -> Vec<Vec<(usize, usize)>> {
    let mut left = network.near[origin].clone();
    let (mut short, mut long) = (Vec::new(), Vec::new());
    let mut index = 0;
    while index < left.len() {
        let a = left[index];
        let others = left.iter().enumerate().skip(index + 1);
        let opposite = others.into_iter().find_map(|(at, b)| {
            let is_short = network.are_joined(a, *b);
            let is_long = !is_short && !network.share_beside(a, *b, origin);
            (is_short || is_long).then_some((at, is_short))
        });
        match opposite {
            Some((at, is_short)) => {
                let b = left.remove(at);
                left.remove(index);
                (if is_short { &mut short } else { &mut long }).push((a, b));
            }
            None => index += 1,
        }
    }
    let dims = |fits: fn(usize) -> bool| {
        let dims = frame.dims.iter().enumerate();
        dims.filter(|(_, dim)| fits(**dim)).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let (twos, threes) = (dims(|dim| dim == 2), dims(|dim| dim == 3));
    let (fours, longer) = (dims(|dim| dim == 4), dims(|dim| dim > 4));
    let fits = short.len() == threes.len()
        && long.len() == longer.len()
        && left.len() == twos.len() + 2 * fours.len();
    if !fits {
        return Vec::new();
    }
    let (alone, squares) = left.split_at(twos.len());
    let squares = squares.chunks_exact(2).map(|pair| (pair[0], pair[1])).zip(fours);
    let fixed: Vec<_> = short.into_iter().zip(threes).chain(squares).collect();
    let mut seed: Vec<(usize, usize)> =
        alone.iter().zip(&twos).map(|(switch, dim)| (*switch, frame.step(*dim, 1))).collect();
    seed.extend(fixed.into_iter().flat_map(|(pair, dim)| ring(frame, pair, dim)));
    let assign = |dims: Vec<usize>| {
        let rings = long.iter().zip(dims).flat_map(|(pair, dim)| ring(frame, *pair, dim));
        seed.iter().copied().chain(rings).collect()
    };
    orders(&longer).into_iter().map(assign).collect()
}

/// The places of two opposite neighbours of the origin along a dimension.
fn ring(frame: &Frame, (a, b): (usize, usize), dim: usize) -> [(usize, usize); 2] {
    [(a, frame.step(dim, 1)), (b, frame.step(dim, frame.dims[dim] - 1))]
}

/// All orders of up to four values; of more, only rotations and their like.
fn orders(values: &[usize]) -> Vec<Vec<usize>> {
    if values.len() < 2 {
        return vec![values.to_vec()];
    }
    let rotated = (0..values.len()).flat_map(|first| {
        let mut rest = values.to_vec();
        let first = rest.remove(first);
        let tails = if rest.len() < 4 { orders(&rest) } else { vec![rest] };
        tails.into_iter().map(move |tail| [vec![first], tail].concat())
    });
    rotated.collect()
}

/// Gives every switch a place, beginning with those of `seed`. Again and again, the switch with the
/// most placed neighbours takes the place that is next to most of them.
fn grow(network: &Network, frame: &Frame, seed: &[(usize, usize)]) -> Vec<usize> {
    let size = network.near.len();
    let mut growth = Growth {
        network,
        frame,
        place_of: vec![None; size],
        is_taken: vec![false; size],
        placed_near: vec![0; size],
        heap: BinaryHeap::new(),
        votes: vec![0; size],
    };
    seed.iter().for_each(|(switch, place)| growth.put(*switch, *place));
    let mut doubtful = BTreeSet::new();
    let mut budget = DOUBTS_PER_SWITCH * size;
    loop {
        while let Some((count, std::cmp::Reverse(switch))) = growth.heap.pop() {
            if growth.place_of[switch].is_some() || count != growth.placed_near[switch] {
                continue;
            }
            match growth.best(switch) {
                Some(Best { place, votes, is_only }) if votes > 1 && is_only => {
                    growth.put(switch, place);
                }
                _ => drop(doubtful.insert(switch)),
            }
        }
        doubtful.retain(|switch| growth.place_of[*switch].is_none());
        let Some(left) = budget.checked_sub(doubtful.len()) else { break };
        budget = left;
        let best = |switch: &usize| growth.best(*switch).map(|best| (*switch, best));
        let bests: Vec<_> = doubtful.iter().filter_map(best).collect();
        let best = bests.into_iter().max_by_key(|(_, best)| (best.is_only, best.votes));
        let Some((switch, best)) = best else { break };
        growth.put(switch, best.place);
    }
    let mut free = (0..size).filter(|place| !growth.is_taken[*place]);
    let place_of = growth.place_of.into_iter();
    place_of.map(|place| place.or_else(|| free.next()).unwrap_or(0)).collect()
}

/// The places given so far.
struct Growth<'a> {
    network: &'a Network,
    frame: &'a Frame,
    place_of: Vec<Option<usize>>,
    is_taken: Vec<bool>,
    /// By switch: number of its neighbours that have places.
    placed_near: Vec<usize>,
    heap: BinaryHeap<(usize, std::cmp::Reverse<usize>)>,
    /// By place: votes for it. All 0 between calls.
    votes: Vec<usize>,
}

/// A free place for a switch, next to most of its neighbours.
struct Best {
    place: usize,
    /// Number of the switch's neighbours that are next to it.
    votes: usize,
    /// Whether no other place has as many votes.
    is_only: bool,
}

impl Growth<'_> {
    fn put(&mut self, switch: usize, place: usize) {
        if self.is_taken[place] || self.place_of[switch].is_some() {
            return;
        }
        self.place_of[switch] = Some(place);
        self.is_taken[place] = true;
        for near in &self.network.near[switch] {
            self.placed_near[*near] += 1;
            if self.place_of[*near].is_none() {
                self.heap.push((self.placed_near[*near], std::cmp::Reverse(*near)));
            }
        }
    }

    /// The free place that is next to most neighbours of a switch, if there is one.
    fn best(&mut self, switch: usize) -> Option<Best> {
        let placed = self.network.near[switch].iter().filter_map(|near| self.place_of[*near]);
        let frame = self.frame;
        let free =
            placed.flat_map(|place| frame.near(place)).filter(|place| !self.is_taken[*place]);
        let free: Vec<usize> = free.collect();
        free.iter().for_each(|place| self.votes[*place] += 1);
        let most = free.iter().map(|place| self.votes[*place]).max();
        let mut bests: Vec<usize> =
            free.iter().copied().filter(|place| Some(self.votes[*place]) == most).collect();
        free.iter().for_each(|place| self.votes[*place] = 0);
        bests.sort_unstable();
        bests.dedup();
        Some(Best { place: *bests.first()?, votes: most?, is_only: bests.len() == 1 })
    }
}

/// Swaps switches that fit badly at their places, as long as that helps.
fn improve(network: &Network, frame: &Frame, place_of: &mut [usize]) {
    let mut switch_at = vec![0; place_of.len()];
    place_of.iter().enumerate().for_each(|(switch, place)| switch_at[*place] = switch);
    let fit = |place_of: &[usize], switch: usize, place: usize| {
        let near = network.near[switch].iter();
        near.filter(|near| frame.are_near(place, place_of[**near])).count()
    };
    for _ in 0..PASSES {
        for switch in 0..place_of.len() {
            let place = place_of[switch];
            let now = fit(place_of, switch, place);
            if now * 2 > network.near[switch].len() {
                continue;
            }
            let near = network.near[switch].iter().flat_map(|near| frame.near(place_of[*near]));
            let better = mode(near.map(|place| (place, 1)));
            let Some(better) = better.filter(|better| *better != place) else { continue };
            let other = switch_at[better];
            let before = now + fit(place_of, other, better);
            let after = fit(place_of, switch, better) + fit(place_of, other, place);
            if after > before {
                (place_of[switch], place_of[other]) = (better, place);
                (switch_at[better], switch_at[place]) = (switch, other);
            }
        }
    }
}

/// The percentage of cables that belong to the grid, or of the grid's cables that exist, if that is
/// less.
fn percent(network: &Network, frame: &Frame, place_of: &[usize]) -> usize {
    let fits = |a: usize| {
        let near = network.near[a].iter();
        near.filter(|b| frame.are_near(place_of[a], place_of[**b])).count()
    };
    let good: usize = (0..place_of.len()).map(fits).sum::<usize>() / 2;
    let all = network.cables.max(frame.size() * frame.degree() / 2);
    // One fault is no reason to doubt a small grid.
    let is_whole_but_one = all >= CABLES_SMALL && good + 1 == all;
    if is_whole_but_one { (good * 100 / all).max(PERCENT_MIN) } else { good * 100 / all.max(1) }
}
