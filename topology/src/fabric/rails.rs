//! The leaf switches that carry the same rail.
//!
//! Within a leaf group each leaf switch is a rail of its own, as in NVIDIA's reference architecture
//! of the DGX SuperPOD: port i of every host of the group is on leaf switch i.
//!
//! Leaf switches of several groups carry the same rail if switches above connect them and no other
//! leaf switches of their groups. If spines connect all leaf switches, the graph does not show the
//! rails: it looks the same for every numbering of a group's leaf switches. Every numbering is then
//! equally good for the network, and the device names of the hosts show the intended one. One rail
//! has one device name in each group. The answer is certain only if enough hosts agree: at least
//! three of a group on each leaf switch. At most a third of the hosts may have another name there.
//! A few renamed devices and misplaced cables do not outvote them. A group with less agreement or
//! other names is likely at most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::graph::Graph;
use super::groups::Groups;
use super::levels::Levels;
use super::net::Stack;
use super::nets::Nets;
use super::sets::{Sets, mode};
use crate::certainty::Certainty;
use crate::natural::Natural;

/// Number of hosts of a leaf group up to which no host may lack a port if rails are to be certain.
const HOSTS_FEW: usize = 4;

/// Leaf switches that certainly carry one rail.
#[derive(Default)]
struct Block {
    leaves: Vec<usize>,
    /// The number of the device name that represents the rail here.
    name: Option<u32>,
    /// For each device name, the number of ports here.
    votes: Vec<(u32, usize)>,
}

/// Blocks with different rails: those of leaf groups that blocks connect.
struct Unit {
    plane: u8,
    blocks: Vec<Block>,
    /// Number of ports on its leaf switches.
    ports: usize,
    /// Whether hosts have equally many ports on each of its leaf switches.
    is_even: bool,
    /// Whether hosts have their ports on its leaf switches in the pattern of rails.
    is_regular: bool,
    /// Whether enough hosts agree on the device name of every rail.
    is_named: bool,
}

/// The rails of a fabric.
pub(super) struct Rails {
    /// By switch: the rail that it carries, and its certainty.
    pub(super) of: Vec<Option<(u16, Certainty)>>,
    /// Number of rails; 0 if there are none.
    pub(super) count: usize,
    /// Whether hosts have their ports in the pattern of rails, in every leaf group.
    pub(super) is_regular: bool,
    /// Whether switches, and not names, show which leaf switches of all groups carry the same rail.
    pub(super) is_evident_from_switches: bool,
    /// Whether every rail certainly has its number in every group.
    pub(super) is_sure: bool,
}

impl Rails {
    /// Finds the rails of the networks that belong to the fabric.
    pub(super) fn of(graph: &Graph<'_>, levels: &Levels, groups: &Groups, nets: &Nets) -> Self {
        let (mut units, mut parts) = (Vec::new(), Vec::new());
        for stack in nets.main() {
            let part = pure_parts(graph, levels, groups, nets, stack);
            let found = units_of(graph, levels, groups, nets, stack, &part);
            let ports = |is_even| {
                let units = found.iter().filter(|unit| unit.is_even == is_even);
                units.map(|unit| unit.ports).sum::<usize>()
            };
            if ports(false) > ports(true) && !stack.is_rail_only {
                // Ports are spread arbitrarily.
                let whole = whole(graph, levels, nets);
                units.extend(units_of(graph, levels, groups, nets, stack, &whole));
                parts.push(whole);
            } else {
                units.extend(found);
                parts.push(part);
            }
        }
        let count = mode(units.iter().map(|unit| (unit.blocks.len(), unit.ports))).unwrap_or(0);
        let mut rails = Self {
            of: vec![None; graph.links.len()],
            count: if count > 1 { count } else { 0 },
            is_regular: units.iter().all(|unit| unit.is_regular && unit.blocks.len() == count),
            is_evident_from_switches: true,
            is_sure: true,
        };
        units.sort_by_key(|unit| unit.plane);
        for beside in units.chunk_by(|a, b| a.plane == b.plane) {
            rails.is_evident_from_switches &= beside.len() == 1;
            rails.number(graph, beside);
        }
        parts.iter().for_each(|part| rails.spread(graph, part));
        rails
    }

    /// Gives switches with misplaced hosts the rail of their part.
    fn spread(&mut self, graph: &Graph<'_>, part: &[usize]) {
        let mut rail_of = vec![None; part.len()];
        for (switch, rail) in self.of.iter().enumerate() {
            rail_of[part[switch]] = rail_of[part[switch]].or(*rail);
        }
        for switch in (0..part.len()).filter(|switch| !graph.ports_of[*switch].is_empty()) {
            let rail = rail_of[part[switch]].map(|(rail, _)| (rail, Certainty::Likely));
            self.of[switch] = self.of[switch].or(rail);
        }
    }

    /// Numbers the rails of the units of one plane like those of the largest.
    fn number(&mut self, graph: &Graph<'_>, units: &[Unit]) {
        let count = self.count.max(1);
        let full = units.iter().filter(|unit| unit.blocks.len() == count);
        let Some(first) = full.max_by_key(|unit| (unit.is_named, unit.ports)) else { return };
        let names = if first.is_named {
            let order = in_order(graph, &first.blocks);
            order.iter().filter_map(|block| first.blocks[*block].name).collect()
        } else {
            frequent(units, count)
        };
        // A unit with few blocks is another network that looks like a rail, such as storage.
        for unit in units.iter().filter(|unit| unit.blocks.len() * 2 > count || count < 3) {
            let numbers = numbers(graph, unit, &names, count);
            let is_named_alike = unit.is_named
                && first.is_named
                && unit.blocks.len() == count
                && unit.blocks.iter().all(|block| block.name.is_some_and(|it| names.contains(&it)));
            let is_sure = unit.is_regular && (count == 1 || is_named_alike || units.len() == 1);
            self.is_sure &= is_sure;
            let certainty = if is_sure { Certainty::Certain } else { Certainty::Likely };
            for (block, number) in unit.blocks.iter().zip(numbers) {
                let place = number.map(|rail| (rail, certainty));
                block.leaves.iter().for_each(|leaf| self.of[*leaf] = place);
            }
        }
    }
}

/// The blocks of a unit in the order of their device names, or, without these, of the names of
/// their switches.
fn in_order(graph: &Graph<'_>, blocks: &[Block]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    let name = |block: usize| {
        let leaves = blocks[block].leaves.iter();
        leaves
            .map(|leaf| graph.fabric.switches[*leaf].name.as_str())
            .min_by_key(|name| Natural(*name))
    };
    order.sort_by_key(|at: &usize| (&blocks[*at].name, Natural(name(*at).unwrap_or(""))));
    order
}

/// The most frequent device names of these units, in order.
fn frequent(units: &[Unit], count: usize) -> Vec<u32> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for (name, ports) in units.iter().flat_map(|unit| &unit.blocks).flat_map(|block| &block.votes) {
        *votes.entry(*name).or_default() += ports;
    }
    let mut names: Vec<u32> = votes.keys().copied().collect();
    names.sort_by_key(|name| Reverse(votes[name]));
    names.truncate(count);
    names.sort_unstable();
    names
}

/// By block of a unit: its rail, if rails have these device names in this order. A block takes the
/// name of most of its ports. Blocks with the most such ports choose first. Other blocks take the
/// remaining numbers, in order.
fn numbers(graph: &Graph<'_>, unit: &Unit, names: &[u32], count: usize) -> Vec<Option<u16>> {
    let mut numbers = vec![None; unit.blocks.len()];
    let mut is_taken = vec![false; count.max(names.len())];
    let mut votes = Vec::new();
    for (block, it) in unit.blocks.iter().enumerate() {
        votes.extend(it.votes.iter().map(|(name, ports)| (Reverse(*ports), *name, block)));
    }
    votes.sort_unstable();
    for (_, name, block) in votes {
        let rail = names.iter().position(|other| *other == name).filter(|rail| !is_taken[*rail]);
        if let Some(rail) = rail.filter(|_| numbers[block].is_none()) {
            is_taken[rail] = true;
            numbers[block] = u16::try_from(rail).ok();
        }
    }
    let mut left = (0..is_taken.len()).filter(|rail| !is_taken[*rail]);
    for block in in_order(graph, &unit.blocks) {
        if numbers[block].is_none() {
            numbers[block] = left.next().and_then(|rail| u16::try_from(rail).ok());
        }
    }
    numbers
}

/// The units of a stack.
fn units_of(
    graph: &Graph<'_>,
    levels: &Levels,
    groups: &Groups,
    nets: &Nets,
    stack: &Stack,
    part: &[usize],
) -> Vec<Unit> {
    let leaves = || {
        let leaves = stack.nets.iter().flat_map(|net| &nets.list[*net].leaves).copied();
        leaves.filter(|leaf| levels.of[*leaf] == 1)
    };
    let plane = |leaf: usize| nets.of[leaf].and_then(|net| nets.plane(net)).unwrap_or(0);
    // Two leaf switches of one part, or of one group and plane, belong to one unit.
    let mut sets = Sets::new(graph.links.len());
    let mut first: BTreeMap<(usize, u8), usize> = BTreeMap::new();
    for leaf in leaves() {
        sets.join(leaf, part[leaf]);
        if let Some(group) = groups.of[leaf] {
            sets.join(leaf, *first.entry((group, plane(leaf))).or_insert(leaf));
        }
    }
    let mut blocks: BTreeMap<(usize, usize), Block> = BTreeMap::new();
    for leaf in leaves() {
        blocks.entry((sets.find(leaf), part[leaf])).or_default().leaves.push(leaf);
    }
    let blocks: Vec<((usize, usize), Block)> = blocks.into_iter().collect();
    let mut units: BTreeMap<usize, Vec<Block>> = BTreeMap::new();
    for ((unit, _), block) in blocks {
        units.entry(unit).or_default().push(block);
    }
    let unit = |blocks: Vec<Block>| {
        let plane = plane(blocks[0].leaves[0]);
        unit(graph, groups, plane, blocks, stack.is_rail_only)
    };
    units.into_values().map(unit).collect()
}

/// By switch: the largest part around it that has no two leaf switches of any group.
fn pure_parts(
    graph: &Graph<'_>,
    levels: &Levels,
    groups: &Groups,
    nets: &Nets,
    stack: &Stack,
) -> Vec<usize> {
    let is_same_net = |a: usize, b: usize| nets.of[a].is_some() && nets.of[a] == nets.of[b];
    if stack.is_rail_only || nets.list[stack.nets[0]].width < 2 {
        return whole(graph, levels, nets);
    }
    let mut pure: Vec<usize> = (0..graph.links.len()).collect();
    let top = levels.of.iter().max().copied().unwrap_or(0);
    for level in 2..=top {
        let is_below = |switch: usize| (1..=level).contains(&levels.of[switch]);
        let admit = |a, b| is_below(a) && is_below(b) && is_same_net(a, b) && levels.fits(a, b);
        let part = levels.parts(graph, admit);
        let mut leaves: Vec<(usize, Option<usize>)> = stack
            .nets
            .iter()
            .flat_map(|net| &nets.list[*net].leaves)
            .filter(|leaf| levels.of[**leaf] == 1)
            .map(|leaf| (part[*leaf], groups.of[*leaf]))
            .collect();
        leaves.sort_unstable();
        if leaves.windows(2).any(|pair| pair[0] == pair[1]) {
            break;
        }
        pure = part;
    }
    pure
}

/// By switch: the network around it.
fn whole(graph: &Graph<'_>, levels: &Levels, nets: &Nets) -> Vec<usize> {
    levels.parts(graph, |a, b| nets.of[a].is_some() && nets.of[a] == nets.of[b])
}

/// Examines the hosts of a unit.
fn unit(
    graph: &Graph<'_>,
    groups: &Groups,
    plane: u8,
    mut blocks: Vec<Block>,
    is_rail_only: bool,
) -> Unit {
    let at_home = |leaf: usize| {
        let ports = graph.ports_of[leaf].iter().copied();
        ports.filter(move |port| {
            let host = graph.host_of[*port];
            host.is_some_and(|host| groups.is_typical[host] && groups.home[host] == groups.of[leaf])
        })
    };
    let leaves = blocks.iter().flat_map(|block| &block.leaves);
    let homes = leaves.map(|leaf| (groups.of[*leaf], at_home(*leaf).collect()));
    let Spread { is_even, is_evident, ports_each } = Spread::of(graph, homes);
    let mut votes: Vec<((usize, u32), usize)> = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let ports = block.leaves.iter().flat_map(|leaf| at_home(*leaf));
        votes.extend(ports.map(|port| ((number, graph.key_of[port]), 1)));
    }
    votes.sort_unstable();
    let votes: Vec<(usize, u32, usize)> =
        votes.chunk_by(|a, b| a.0 == b.0).map(|run| (run[0].0.0, run[0].0.1, run.len())).collect();
    // Several ports on each of two leaf switches may be spread arbitrarily, and be about even by
    // chance.
    let is_even = is_even && (ports_each < 2 || are_clear(&votes));
    for (block, name, ports) in &votes {
        blocks[*block].votes.push((*name, *ports));
    }
    let is_named = name(&mut blocks, &votes);
    let is_whole = is_rail_only || gather(groups, &mut blocks);
    let leaves = blocks.iter().flat_map(|block| &block.leaves);
    let ports = leaves.map(|leaf| graph.ports_of[*leaf].len()).sum();
    let is_regular = is_even
        && is_evident
        && is_whole
        && (is_rail_only || blocks.len() < 2 || are_clear(&votes));
    Unit { plane, blocks, ports, is_even, is_regular, is_named }
}

/// The distribution of hosts over leaf switches.
struct Spread {
    /// Whether hosts have about equally many of their ports on each leaf switch.
    is_even: bool,
    /// Whether each leaf switch has about as many hosts as the others of its group.
    is_evident: bool,
    /// The most ports that a host has on one leaf switch.
    ports_each: usize,
}

impl Spread {
    /// The distribution over leaf switches, each given with its group and its ports.
    fn of(graph: &Graph<'_>, leaves: impl Iterator<Item = (Option<usize>, Vec<usize>)>) -> Self {
        let (mut all, mut odd, mut most, mut ports_each) = (0, 0, 0, 0);
        let mut hosts_of: BTreeMap<Option<usize>, (usize, usize)> = BTreeMap::new();
        for (group, ports) in leaves {
            let mut hosts: Vec<_> = ports.into_iter().map(|port| graph.host_of[port]).collect();
            hosts.sort_unstable();
            let counts: Vec<usize> = hosts.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
            let usual = mode(counts.iter().map(|count| (*count, 1))).unwrap_or(0);
            ports_each = ports_each.max(usual);
            let is_odd = |count: &&usize| **count * 2 < usual || **count * 4 > usual * 5;
            odd += counts.iter().filter(is_odd).count();
            all += counts.len();
            most = most.max(counts.len());
            let (least, most) = hosts_of.entry(group).or_insert((usize::MAX, 0));
            (*least, *most) = ((*least).min(counts.len()), (*most).max(counts.len()));
        }
        let are_full = hosts_of
            .values()
            .all(|(least, most)| least == most || (*most > HOSTS_FEW && least * 3 >= most * 2));
        Self { is_even: odd * 4 <= all, is_evident: most > 1 && are_full, ports_each }
    }
}

/// Whether most device names are on one block each, so that ports are not spread arbitrarily.
fn are_clear(votes: &[(usize, u32, usize)]) -> bool {
    let mut most: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, name, votes) in votes {
        let most = most.entry(*name).or_default();
        *most = (*most).max(*votes);
    }
    let all: usize = votes.iter().map(|(_, _, votes)| votes).sum();
    most.values().sum::<usize>() * 3 >= all * 2
}

/// Finds leaf switches that lost their cables to those of their rail: blocks beyond the usual
/// number of leaf switches of a group. Joins them to their rail by their names. Returns whether
/// there were none.
fn gather(groups: &Groups, blocks: &mut Vec<Block>) -> bool {
    let leaves = blocks.iter().flat_map(|block| &block.leaves);
    let mut in_group: Vec<usize> = leaves.filter_map(|leaf| groups.of[*leaf]).collect();
    in_group.sort_unstable();
    let widths = in_group.chunk_by(|a, b| a == b).map(|run| (run.len(), 1));
    let width = mode(widths).unwrap_or(0);
    if blocks.len() <= width {
        return true;
    }
    blocks.sort_by_key(|block| Reverse(block.leaves.len()));
    let most = blocks[0].leaves.len();
    let large = blocks.iter().filter(|block| block.leaves.len() * 2 > most).count();
    for stray in blocks.split_off(width.max(large)) {
        let same = blocks.iter_mut().find(|block| block.name == stray.name);
        if let Some(block) = same {
            block.leaves.extend(stray.leaves);
            block.votes.extend(stray.votes);
        }
    }
    false
}

/// Names every block by the first of its usual device names. Returns whether the names are beyond
/// doubt.
fn name(blocks: &mut [Block], votes: &[(usize, u32, usize)]) -> bool {
    let mut all: BTreeMap<u32, usize> = BTreeMap::new();
    votes.iter().for_each(|(_, name, votes)| *all.entry(*name).or_default() += votes);
    let mut is_named = true;
    let mut names = Vec::new();
    for run in votes.chunk_by(|a, b| a.0 == b.0) {
        let most = run.iter().map(|(_, _, votes)| *votes).max().unwrap_or(0);
        let Some((block, name, votes)) = run.iter().find(|(_, _, votes)| votes * 4 >= most * 3)
        else {
            continue;
        };
        let elsewhere = all[name] - votes;
        is_named &= *votes >= 3 && elsewhere * 3 <= *votes;
        blocks[*block].name = Some(*name);
        names.push(*name);
    }
    names.sort_unstable();
    is_named && names.len() == blocks.len() && names.windows(2).all(|pair| pair[0] != pair[1])
}
