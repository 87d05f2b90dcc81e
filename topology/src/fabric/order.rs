//! Hosts in fabric order.

use super::HostPlace;
use super::graph::Graph;
use super::groups::Groups;
use super::levels::Levels;
use super::nets::Nets;
use super::sets::Sets;
use super::shape::{Shape, groups as near_leaves};

/// The places of the hosts. Hosts of a pod are together, within it those of a leaf group, and
/// within that they are sorted by name. On a grid, leaf groups follow an order that winds through
/// it.
pub(super) fn hosts(
    graph: &Graph<'_>,
    levels: &Levels,
    groups: &Groups,
    nets: &Nets,
    shapes: &[Option<Shape>],
) -> Vec<HostPlace> {
    let winding = winding(groups, shapes);
    let pod = pods(graph, levels, groups, nets);
    let stack = |host: usize| {
        let leaves = graph.leaves(host).into_iter();
        let nets_of = leaves.filter_map(|(leaf, _)| nets.of[leaf]);
        let main = nets_of.filter(|net| nets.plane(*net).is_some());
        main.map(|net| nets.list[net].stack).min()
    };
    // Hosts are sorted by name, so a pod or group is sorted by its first host.
    let homes = || groups.home.iter().enumerate().filter_map(|(host, home)| Some((host, (*home)?)));
    let mut first_of_group = vec![usize::MAX; groups.count];
    let mut first_of_pod = vec![usize::MAX; groups.count];
    for (host, home) in homes() {
        first_of_group[home] = first_of_group[home].min(host);
        first_of_pod[pod[home]] = first_of_pod[pod[home]].min(host);
    }
    let mut order: Vec<_> = homes()
        .map(|(host, home)| {
            let (pod_first, group_first) = (first_of_pod[pod[home]], first_of_group[home]);
            let stack = stack(host).unwrap_or(usize::MAX);
            let winding = winding[home];
            ((stack, winding.is_none(), winding, pod_first, group_first, host), home)
        })
        .collect();
    order.sort_unstable();
    let mut pod_number = Numbers::new(groups.count);
    let mut group_number = Numbers::new(groups.count);
    let place = |(order, (key, home)): (u32, &((_, _, _, _, _, usize), usize))| HostPlace {
        host: graph.hosts[key.5].name.to_owned(),
        pod: pod_number.of(pod[*home]),
        group: group_number.of(*home),
        order,
    };
    (0..).zip(&order).map(place).collect()
}

/// Numbers in the order of first use.
struct Numbers {
    number: Vec<Option<u32>>,
    next: u32,
}

impl Numbers {
    fn new(size: usize) -> Self {
        Self { number: vec![None; size], next: 0 }
    }

    fn of(&mut self, index: usize) -> u32 {
        let number = *self.number[index].get_or_insert(self.next);
        self.next = self.next.max(number + 1);
        number
    }
}

/// By leaf group: its position on the grid of its network, if that is one.
fn winding(groups: &Groups, shapes: &[Option<Shape>]) -> Vec<Option<usize>> {
    let mut winding = vec![None; groups.count];
    let grids = shapes.iter().flatten().filter_map(|shape| shape.grid.as_ref());
    for (switch, place) in grids.flat_map(|grid| &grid.order) {
        if let Some(group) = groups.of[*switch] {
            winding[group].get_or_insert(*place);
        }
    }
    winding
}

/// By leaf group: its pod, named by the first of the groups that spines connect.
fn pods(graph: &Graph<'_>, levels: &Levels, groups: &Groups, nets: &Nets) -> Vec<usize> {
    let near = near_leaves(graph, levels);
    let mut first: Vec<Option<usize>> = vec![None; near.len()];
    let mut pods = Sets::new(groups.count);
    for (leaf, group) in groups.of.iter().enumerate() {
        let is_main = nets.of[leaf].is_some_and(|net| nets.plane(net).is_some());
        if let Some(group) = group.filter(|_| is_main) {
            let first = *first[near[leaf]].get_or_insert(group);
            pods.join(first, group);
        }
    }
    (0..groups.count).map(|group| pods.find(group)).collect()
}
