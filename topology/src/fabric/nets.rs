//! Networks beside each other: planes, the rails of a rail-only fabric, several subnets, and
//! networks for storage or management.
//!
//! A network consists of switches that cables connect. Networks with the same hosts and equally
//! many ports of each form a stack. A stack of several networks is either planes of one fabric, or
//! the rails of "Rail-only" (Wang et al., 2023), in which ports of different rank meet only within
//! a host. If one device has ports in several networks, these are planes. The same holds for
//! networks that have rails of their own. A stack with other hosts is a subnet. A smaller stack on
//! the same hosts is a network for another purpose.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::graph::Graph;
use super::groups::Groups;
use super::levels::Levels;
use super::net::{Net, Role, Stack};
use super::pairs::{alone, are_equal, are_near, linked, shared};
use super::sets::{Sets, mode, usual};
use super::shape::are_groups;

/// All networks.
pub(super) struct Nets {
    /// By switch: its network; `None` for switches that carry no traffic.
    pub(super) of: Vec<Option<usize>>,
    /// The networks.
    pub(super) list: Vec<Net>,
    /// The stacks, the largest first.
    pub(super) stacks: Vec<Stack>,
    /// Whether another stack on the same hosts is about as large as the main one.
    pub(super) is_ambiguous: bool,
    /// Whether cables that do not fit connect some of the networks.
    pub(super) are_bridged: bool,
    /// By switch: its subnet, including bridged ones; `None` for switches without hosts near.
    pub(super) subnet_of: Vec<Option<usize>>,
    /// Number of subnets.
    pub(super) subnets: usize,
}

impl Nets {
    /// Finds networks, stacks and planes.
    pub(super) fn of(graph: &Graph<'_>, levels: &Levels, groups: &Groups) -> Self {
        let whole = levels.parts(graph, |_, _| true);
        let (subnet_of, subnets) = numbered(graph, levels, &whole);
        let firm = levels.parts(graph, |a, b| levels.fits(a, b));
        let (firm_of, firm_count) = numbered(graph, levels, &firm);
        let mut nets = Self {
            of: subnet_of.clone(),
            list: Vec::new(),
            stacks: Vec::new(),
            is_ambiguous: false,
            are_bridged: false,
            subnet_of,
            subnets,
        };
        if firm_count > subnets {
            nets.split(graph, levels, groups, &firm_of);
        }
        nets.list = list(graph, groups, &nets.of);
        nets.stacks = stacks(graph, &nets.of, &mut nets.list);
        nets.order_equal_stacks(graph);
        for stack in &mut nets.stacks {
            set_planes(graph, &nets.of, &mut nets.list, stack);
            add_missing(&mut nets.list, stack);
        }
        set_roles(graph, groups, &mut nets);
        nets.doubt_planes(graph);
        nets
    }

    /// Separates networks that misplaced cables connect. `firm_of` numbers their pieces.
    fn split(
        &mut self,
        graph: &Graph<'_>,
        levels: &Levels,
        groups: &Groups,
        firm_of: &[Option<usize>],
    ) {
        let pieces = list(graph, groups, firm_of);
        let mut of_net = vec![Vec::new(); self.subnets];
        for (number, piece) in pieces.iter().enumerate() {
            let net = piece.leaves.first().and_then(|leaf| self.of[*leaf]);
            net.into_iter().for_each(|net| of_net[net].push(number));
        }
        let is_alone = alone(graph, &pieces);
        let is_split: Vec<bool> = (of_net.iter().enumerate())
            .map(|(net, numbers)| {
                numbers.len() > 1
                    && (are_beside(&pieces, &is_alone, numbers) || are_large(&pieces, numbers))
                    && !is_grouped(graph, levels, &self.of, net)
            })
            .collect();
        self.are_bridged = is_split.contains(&true);
        let mut number = BTreeMap::new();
        for (switch, net) in self.of.iter_mut().enumerate() {
            let is_split = net.is_some_and(|net| is_split[net]);
            let key = if is_split {
                firm_of[switch].map(|piece| (1, piece))
            } else {
                net.map(|n| (0, n))
            };
            let next = number.len();
            *net = key.map(|key| *number.entry(key).or_insert(next));
        }
    }

    /// Makes planes likely at most if a network beside the fabric has ports of the same devices: it
    /// may be another plane.
    fn doubt_planes(&mut self, graph: &Graph<'_>) {
        for ((a, b), hosts) in linked(graph, &self.of, 0..graph.hosts.len()) {
            for (one, other) in [(a, b), (b, a)] {
                let is_beside = self.list[other].role == Role::Outside
                    && hosts * 4 >= self.list[other].hosts.len();
                if is_beside && self.plane(one).is_some() {
                    self.stacks[self.list[one].stack].is_evident = false;
                }
            }
        }
    }

    /// The stacks that belong to the fabric.
    pub(super) fn main(&self) -> impl Iterator<Item = &Stack> {
        self.stacks.iter().filter(|stack| stack.is_main)
    }

    /// Decides which of two stacks of about equal size on the same hosts comes first: the one with
    /// faster ports, else the one whose devices have the first names.
    fn order_equal_stacks(&mut self, graph: &Graph<'_>) {
        let [first, second, ..] = &self.stacks[..] else { return };
        let ports = |stack: &Stack| stack.nets.iter().map(|net| self.list[*net].ports).sum();
        let (many, few): (usize, usize) = (ports(first), ports(second));
        let is_first = |host: &&usize| self.list[first.nets[0]].hosts.binary_search(*host).is_ok();
        let hosts = &self.list[second.nets[0]].hosts;
        let shared = hosts.iter().filter(is_first).count();
        self.is_ambiguous = shared * 2 > hosts.len() && few * 5 >= many * 3;
        let name =
            |stack: &Stack| stack.nets.iter().map(|net| usual_port(graph, &self.list[*net])).min();
        let is_close = self.is_ambiguous && few * 10 >= many * 9;
        let rate = |stack: &Stack| self.list[stack.nets[0]].gbps;
        let key = |stack: &Stack| (Reverse(rate(stack)), Reverse(stack.nets.len()), name(stack));
        if is_close && key(second) < key(first) {
            self.stacks.swap(0, 1);
            for (number, stack) in self.stacks.iter().enumerate().take(2) {
                stack.nets.iter().for_each(|net| self.list[*net].stack = number);
            }
        }
    }

    /// Whether a network consists of leaf switches that lost their cables to the rest.
    pub(super) fn is_fragment(&self, net: &Net) -> bool {
        net.role == Role::Fragment
    }

    /// Whether hosts have ports in networks outside of the fabric.
    pub(super) fn has_outside(&self) -> bool {
        self.list.iter().any(|net| net.role == Role::Outside)
    }

    /// Whether hosts have ports in networks beside those of the fabric.
    pub(super) fn has_others(&self) -> bool {
        (0..self.list.len()).any(|net| self.plane(net).is_none())
    }

    /// Turns the rails of stacks into planes if most of the networks cannot be rails.
    pub(super) fn keep_rail_only(&mut self, can_be_rail: impl Fn(usize) -> bool) {
        for stack in self.stacks.iter_mut().filter(|stack| stack.is_rail_only && stack.is_main) {
            let rails = stack.nets.iter().filter(|net| can_be_rail(**net)).count();
            if rails * 2 > stack.nets.len() {
                continue;
            }
            stack.is_rail_only = false;
            stack.planes = stack.nets.len();
            stack.is_evident = false;
            for (plane, net) in (0..=u8::MAX).zip(&stack.nets) {
                self.list[*net].role = Role::Plane(plane);
            }
        }
    }

    /// The plane of a network of the fabric.
    pub(super) fn plane(&self, net: usize) -> Option<u8> {
        match self.list[net].role {
            Role::Plane(plane) => Some(plane),
            Role::Fragment | Role::Outside => None,
        }
    }
}

/// Numbers the parts that have hosts. Returns the number of each switch's part, and their count.
fn numbered(graph: &Graph<'_>, levels: &Levels, part: &[usize]) -> (Vec<Option<usize>>, usize) {
    let mut number = vec![None; part.len()];
    let mut count = 0;
    for switch in (0..part.len()).filter(|switch| !graph.ports_of[*switch].is_empty()) {
        number[part[switch]].get_or_insert_with(|| {
            count += 1;
            count - 1
        });
    }
    let of = (0..part.len()).map(|switch| number[part[switch]].filter(|_| levels.of[switch] > 0));
    (of.collect(), count)
}

/// The networks, by the number of each switch's network.
fn list(graph: &Graph<'_>, groups: &Groups, of: &[Option<usize>]) -> Vec<Net> {
    let count = of.iter().flatten().max().map_or(0, |last| last + 1);
    let mut leaves = vec![Vec::new(); count];
    let mut counts: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
    let mut width: Vec<((usize, usize), usize)> = Vec::new();
    for (switch, net) in of.iter().enumerate() {
        if let (Some(net), Some(group)) = (net, groups.of[switch]) {
            leaves[*net].push(switch);
            width.push(((*net, group), 1));
        }
    }
    for host in 0..graph.hosts.len() {
        for (net, ports) in in_nets(graph, of, host) {
            counts[net].push((host, ports));
        }
    }
    let mut members = vec![0; groups.count];
    groups.home.iter().flatten().for_each(|home| members[*home] += 1);
    width.sort_unstable();
    let mut widths = vec![Vec::new(); count];
    for run in width.chunk_by(|a, b| a.0 == b.0) {
        let (net, group) = run[0].0;
        widths[net].push((run.len(), members[group]));
    }
    let rates = |leaf: &usize| {
        let ports = graph.ports_of[*leaf].iter();
        ports.map(|port| (Reverse(graph.fabric.ports[*port].gbps), 1)).collect::<Vec<_>>()
    };
    let net = |(number, leaves): (usize, Vec<usize>)| {
        let counts = std::mem::take(&mut counts[number]);
        let usual = mode(counts.iter().map(|(_, ports)| (*ports, *ports))).unwrap_or(0);
        let whole = |ports: usize| if ports * 2 < usual { ports } else { usual };
        Net {
            role: Role::Outside,
            gbps: mode(leaves.iter().flat_map(rates)).map_or(0, |Reverse(rate)| rate),
            leaves,
            ports: counts.iter().map(|(_, ports)| ports).sum(),
            ports_per_host: usual,
            ports_whole: counts.iter().map(|(_, ports)| whole(*ports)).sum(),
            hosts: counts.into_iter().map(|(host, _)| host).collect(),
            width: mode(std::mem::take(&mut widths[number])).unwrap_or(1),
            stack: 0,
        }
    };
    leaves.into_iter().enumerate().map(net).collect()
}

/// The networks that a host has ports in, each with the number of ports.
fn in_nets(graph: &Graph<'_>, of: &[Option<usize>], host: usize) -> Vec<(usize, usize)> {
    let leaves = graph.leaves(host).into_iter();
    let mut nets: Vec<(usize, usize)> =
        leaves.filter_map(|(leaf, ports)| Some((of[leaf]?, ports))).collect();
    nets.sort_unstable();
    let runs = nets.chunk_by(|a, b| a.0 == b.0);
    runs.map(|run| (run[0].0, run.iter().map(|(_, ports)| ports).sum())).collect()
}

/// Whether most ports of these networks are in networks that equal others.
fn are_beside(nets: &[Net], is_alone: &[bool], these: &[usize]) -> bool {
    let all: usize = these.iter().map(|net| nets[*net].ports).sum();
    let alone = these.iter().filter(|net| is_alone[**net]);
    alone.map(|net| nets[*net].ports).sum::<usize>() * 10 <= all
}

/// Whether a network consists of groups of a Dragonfly+, which few cables may connect.
fn is_grouped(graph: &Graph<'_>, levels: &Levels, of: &[Option<usize>], net: usize) -> bool {
    let switches: Vec<usize> = (0..of.len()).filter(|switch| of[*switch] == Some(net)).collect();
    are_groups(graph, levels, &switches)
}

/// Whether nearly all ports of these networks are in some of about equal size.
fn are_large(nets: &[Net], these: &[usize]) -> bool {
    let these = || these.iter().map(|net| &nets[*net]);
    let most = these().map(|net| net.ports).max().unwrap_or(0);
    let all: usize = these().map(|net| net.ports).sum();
    let large = these().filter(|net| net.ports * 3 >= most && net.leaves.len() > 1);
    let (count, ports) = large.fold((0, 0), |(count, ports), net| (count + 1, ports + net.ports));
    count > 1 && ports * 20 >= all * 19
}

/// The stacks, the largest first.
fn stacks(graph: &Graph<'_>, of: &[Option<usize>], nets: &mut [Net]) -> Vec<Stack> {
    let mut sets = Sets::new(nets.len());
    for ((a, b), shared) in shared(graph, nets) {
        if are_equal(&nets[a], &nets[b], shared) {
            sets.join(a, b);
        }
    }
    for ((a, b), hosts) in linked(graph, of, 0..graph.hosts.len()) {
        let is_usual = hosts * 2 > nets[a].hosts.len().max(nets[b].hosts.len());
        if is_usual && are_near(nets[a].ports_per_host, nets[b].ports_per_host) {
            sets.join(a, b);
        }
    }
    let mut members = vec![Vec::new(); nets.len()];
    (0..nets.len()).for_each(|net| members[sets.find(net)].push(net));
    members.retain(|nets| !nets.is_empty());
    let ports = |members: &Vec<usize>| members.iter().map(|net| nets[*net].ports).sum::<usize>();
    members.sort_by_cached_key(|members| Reverse(ports(members)));
    for (number, members) in members.iter().enumerate() {
        members.iter().for_each(|net| nets[*net].stack = number);
    }
    let stack = |nets| Stack {
        nets,
        planes: 1,
        is_rail_only: false,
        is_evident: true,
        has_others: false,
        is_main: false,
    };
    members.into_iter().map(stack).collect()
}

/// Distinguishes planes from rails in a stack, and numbers the planes.
fn set_planes(graph: &Graph<'_>, of: &[Option<usize>], nets: &mut [Net], stack: &mut Stack) {
    let many = stack.nets.len();
    let one = &nets[stack.nets[0]];
    let has_rails_each = one.width > 1 || one.ports_per_host > 1;
    let mut linked = by_device(graph, of, nets, stack);
    let size = mode(linked.iter().map(|nets| (nets.len(), nets.len()))).unwrap_or(1);
    let is_even = linked.iter().all(|nets| nets.len() == size);
    // If a few networks lack the others of their devices, they have another purpose, such as
    // storage.
    let paired = linked.iter().filter(|nets| nets.len() == size).count() * size;
    if !has_rails_each && size > 1 && !is_even && paired * 2 > many {
        linked.retain(|nets| nets.len() == size);
        stack.nets = linked.concat();
        stack.nets.sort_unstable();
        stack.has_others = true;
        return set_planes(graph, of, nets, stack);
    }
    stack.planes = match (has_rails_each, is_even) {
        (true, _) => many,
        (false, true) => size,
        (false, false) => 1,
    };
    stack.is_rail_only = stack.planes < many;
    stack.is_evident = !stack.has_others && (many == 1 || (size > 1 && is_even));
    let sets = if has_rails_each { vec![linked.concat()] } else { linked };
    for mut set in sets {
        set.sort_by_cached_key(|net| usual_port(graph, &nets[*net]));
        for (plane, net) in set.iter().enumerate() {
            let plane = if stack.planes == 1 { 0 } else { plane };
            let plane = u8::try_from(plane).ok();
            nets[*net].role = plane.map_or(Role::Outside, Role::Plane);
        }
    }
}

/// Adds the ports of hosts that have none in one network of a stack, but ports in most others.
fn add_missing(nets: &mut [Net], stack: &Stack) {
    let many = stack.nets.len();
    let mut hosts: Vec<usize> =
        stack.nets.iter().flat_map(|net| nets[*net].hosts.iter().copied()).collect();
    hosts.sort_unstable();
    let runs = hosts.chunk_by(|a, b| a == b).map(<[_]>::len);
    let missing: usize = runs.filter(|here| here * 2 > many).map(|here| many - here).sum();
    let first = &mut nets[stack.nets[0]];
    first.ports_whole += missing * first.ports_per_host;
}

/// The networks of a stack, in sets that have ports of the same devices.
fn by_device(
    graph: &Graph<'_>,
    of: &[Option<usize>],
    nets: &[Net],
    stack: &Stack,
) -> Vec<Vec<usize>> {
    let is_here = |net: usize| stack.nets.binary_search(&net).is_ok();
    let mut hosts: Vec<usize> =
        stack.nets.iter().flat_map(|net| nets[*net].hosts.iter().copied()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut sets = Sets::new(stack.nets.len());
    let place = |net: usize| stack.nets.binary_search(&net).unwrap_or(0);
    let linked = linked(graph, of, hosts.into_iter());
    for ((a, b), both) in linked.into_iter().filter(|((a, b), _)| is_here(*a) && is_here(*b)) {
        if both * 2 >= nets[a].hosts.len().min(nets[b].hosts.len()) {
            sets.join(place(a), place(b));
        }
    }
    let mut linked = vec![Vec::new(); stack.nets.len()];
    for (index, net) in stack.nets.iter().enumerate() {
        linked[sets.find(index)].push(*net);
    }
    linked.retain(|nets| !nets.is_empty());
    linked
}

/// The port number of most ports in a network, and the first of their usual devices.
fn usual_port(graph: &Graph<'_>, net: &Net) -> (u8, u32) {
    let ports = || net.leaves.iter().flat_map(|leaf| &graph.ports_of[*leaf]);
    let number = mode(ports().map(|port| (graph.fabric.ports[*port].number, 1)));
    let key = usual(ports().map(|port| graph.key_of[*port]));
    (number.unwrap_or(0), key.unwrap_or(0))
}

/// Decides which stacks belong to the fabric: the largest, and those with other hosts that are like
/// it.
fn set_roles(graph: &Graph<'_>, groups: &Groups, nets: &mut Nets) {
    let mut is_taken = vec![false; graph.hosts.len()];
    let ports = |nets: &[Net], stack: &Stack| stack.nets.iter().map(|net| nets[*net].ports).sum();
    let Some(first) = nets.stacks.first().cloned() else { return };
    let most: usize = ports(&nets.list, &first);
    for index in 0..nets.stacks.len() {
        let stack = nets.stacks[index].clone();
        let hosts = || stack.nets.iter().flat_map(|net| &nets.list[*net].hosts);
        let (all, taken) = (hosts().count(), hosts().filter(|host| is_taken[**host]).count());
        let is_alike = stack.planes == first.planes
            && stack.is_rail_only == first.is_rail_only
            && nets.list[stack.nets[0]].width == nets.list[first.nets[0]].width;
        let few: usize = ports(&nets.list, &stack);
        let is_lost = index > 0 && is_fragment(groups, nets, &stack, taken * 2 <= all);
        let is_main = taken * 2 <= all && (is_alike || few * 2 >= most) && !is_lost;
        hosts().for_each(|host| is_taken[*host] = true);
        if !is_main {
            let role = if is_lost { Role::Fragment } else { Role::Outside };
            stack.nets.iter().for_each(|net| nets.list[*net].role = role);
        }
        nets.stacks[index].is_main = is_main;
    }
}

/// Whether a stack consists of leaf switches that lost their cables to a larger network. They are
/// single, and have hosts of their own, or hosts of a leaf group in which the larger network lacks
/// switches.
fn is_fragment(groups: &Groups, nets: &Nets, stack: &Stack, has_own_hosts: bool) -> bool {
    let leaves = || stack.nets.iter().flat_map(|net| &nets.list[*net].leaves);
    let hosts = || stack.nets.iter().flat_map(|net| &nets.list[*net].hosts);
    let mut main = nets.main().flat_map(|stack| &stack.nets).map(|net| &nets.list[*net]);
    let is_alone = leaves().count() == stack.nets.len();
    if has_own_hosts {
        return is_alone && main.any(|net| net.leaves.len() > 1);
    }
    let homes = hosts().filter_map(|host| groups.home[*host]);
    let Some(group) = mode(homes.map(|home| (home, 1))) else { return false };
    let lacks = |net: &Net| {
        let here = net.leaves.iter().filter(|leaf| groups.of[**leaf] == Some(group)).count();
        here < net.width
    };
    let (all, here) = (hosts().count(), hosts().filter(|host| groups.home[**host] == Some(group)));
    (here.count() * 2 > all || !is_alone) && main.any(lacks)
}
