//! The cores that each rank of a host gets, near its GPU or its NIC.

use std::collections::{BTreeMap, BTreeSet};

use super::distance::Spot;
use super::near::{in_order, share};
use super::{Affinity, Core, Machine, PciAddress};

/// The cores of a machine that have some of these CPUs, by NUMA node and number. A CPU that the
/// machine does not know counts as a core.
#[must_use]
pub fn cores_within(machine: &Machine, cpus: &[u16]) -> Vec<Core> {
    let mut rest: BTreeSet<u16> = cpus.iter().copied().collect();
    let mut cores = Vec::new();
    for core in &machine.cores {
        let own: Vec<u16> = core.cpus.iter().copied().filter(|cpu| rest.remove(cpu)).collect();
        if !own.is_empty() {
            cores.push(Core { cpus: own, ..core.clone() });
        }
    }
    cores.extend(rest.into_iter().map(|cpu| Core { cpus: vec![cpu], ..Core::default() }));
    cores.sort_by_key(|core| (core.node, core.cpus.first().copied()));
    cores
}

/// Deals cores to the ranks of a host. `gpus` has the GPU of each rank, if it has one. `ports` is
/// as for `share`. The result has the CPUs of each rank.
///
/// Every rank gets equally many neighbouring cores, of one NUMA node if possible. If there are more
/// ranks than cores, each core gets equally many ranks. A rank gets cores near its GPU, or else
/// near the first of its ports. If neither has a known place, ranks and cores are dealt in order.
/// If ranks cannot be dealt evenly, no rank gets a core. Equal arguments give equal results.
#[must_use]
pub fn deal(
    machine: &Machine,
    cores: &[Core],
    gpus: &[Option<PciAddress>],
    ports: &[&str],
) -> Vec<Vec<u16>> {
    let ranks = gpus.len();
    // Number of ranks that get the same cores: 1, or more if there are more ranks than cores.
    let occupancy = ranks.checked_div(cores.len()).unwrap_or_default().max(1);
    let runs = runs(cores, ranks / occupancy);
    if runs.is_empty() || !ranks.is_multiple_of(occupancy) || occupancy * runs.len() < ranks {
        return vec![Vec::new(); ranks];
    }
    let nodes: Vec<Vec<u16>> = runs.iter().map(|run| nodes(run)).collect();
    let spots = spots(machine, gpus, ports);
    // Most runs are at a node with others, so there are few different sums.
    let distinct: BTreeSet<&Vec<u16>> = nodes.iter().collect();
    let costs: Vec<BTreeMap<&Vec<u16>, i64>> = spots
        .chunks(occupancy)
        .map(|group| {
            let sum = |nodes| group.iter().map(|it| machine.to_nodes(it, nodes).cost()).sum();
            distinct.iter().map(|nodes| (*nodes, sum(nodes))).collect()
        })
        .collect();
    // Surplus runs go to groups that do not exist, at no cost.
    let cost = |group: usize, run: usize| costs.get(group).map_or(0, |of| of[&nodes[run]]);
    let dealt = in_order(runs.len(), runs.len(), cost);
    let cpus = |run: &usize| runs[*run].iter().flat_map(|core| core.cpus.clone());
    (0..ranks).map(|rank| dealt[rank / occupancy].iter().flat_map(cpus).collect()).collect()
}

/// At least `count` runs of neighbouring cores, all of one length. Each is within a NUMA node if
/// that gives enough runs. Empty if there are too few cores.
fn runs(cores: &[Core], count: usize) -> Vec<&[Core]> {
    let each = cores.len().checked_div(count).unwrap_or_default();
    if each == 0 {
        return Vec::new();
    }
    let by_node = cores.chunk_by(|a, b| a.node == b.node);
    let within: Vec<&[Core]> = by_node.flat_map(|node| node.chunks_exact(each)).collect();
    if within.len() >= count { within } else { cores.chunks_exact(each).collect() }
}

fn nodes(run: &[Core]) -> Vec<u16> {
    let nodes: BTreeSet<u16> = run.iter().filter_map(|core| core.node).collect();
    nodes.into_iter().collect()
}

/// The place that each rank should be near.
fn spots(machine: &Machine, gpus: &[Option<PciAddress>], ports: &[&str]) -> Vec<Spot> {
    let affinity = |gpu: &Option<PciAddress>| Affinity { gpu: *gpu, nodes: Vec::new() };
    let affinities: Vec<Affinity> = gpus.iter().map(affinity).collect();
    let shares = share(machine, &affinities, ports);
    let spot = |(gpu, ports_of): (&Option<PciAddress>, &Vec<usize>)| {
        let gpu = gpu.map(|gpu| machine.spot(Some(gpu), None)).filter(Spot::has_node);
        let port = || ports_of.first().map(|port| machine.spot_named(ports[*port]));
        gpu.or_else(port).unwrap_or_default()
    };
    gpus.iter().zip(&shares).map(spot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Nic;

    /// A machine of `nodes` NUMA nodes with `cores` cores each. CPUs go round the nodes, as some
    /// firmware numbers them. There is a NIC at each of `nics`.
    fn host(nodes: u16, cores: u16, nics: &[u16]) -> Machine {
        let core = |cpu| {
            let node = Some(cpu % nodes);
            Core { cpus: vec![cpu, cpu + nodes * cores], node, socket: node, cache: None }
        };
        let nic = |(at, node): (usize, &u16)| Nic {
            name: format!("nic{at}"),
            node: Some(*node),
            ..Nic::default()
        };
        Machine {
            cores: (0..nodes * cores).map(core).collect(),
            nics: nics.iter().enumerate().map(nic).collect(),
            ..Machine::default()
        }
    }

    /// For each rank, the nodes of its CPUs and their number.
    fn dealt(machine: &Machine, ranks: usize) -> Vec<(Vec<u16>, usize)> {
        let all: Vec<u16> = machine.cores.iter().flat_map(|core| core.cpus.clone()).collect();
        let cores = cores_within(machine, &all);
        let ports: Vec<&str> = machine.nics.iter().map(|nic| nic.name.as_str()).collect();
        let cpus = deal(machine, &cores, &vec![None; ranks], &ports);
        let mut seen = BTreeSet::new();
        let is_once = cpus.iter().flatten().all(|cpu| seen.insert(*cpu));
        assert!(is_once || ranks > cores.len());
        cpus.iter().map(|cpus| (machine.nodes_of(cpus), cpus.len())).collect()
    }

    fn nodes(machine: &Machine, ranks: usize) -> Vec<Vec<u16>> {
        dealt(machine, ranks).into_iter().map(|(nodes, _)| nodes).collect()
    }

    #[test]
    fn ranks_are_at_the_node_of_their_nic() {
        assert_eq!(nodes(&host(2, 4, &[0, 1]), 4), [[0], [0], [1], [1]]);
        assert_eq!(nodes(&host(2, 4, &[1, 0]), 4), [[1], [1], [0], [0]]);
        assert_eq!(nodes(&host(4, 2, &[2, 0, 3, 1]), 4), [[2], [0], [3], [1]]);
        // All NICs are at one node: half of the ranks are there, the others where there is room.
        assert_eq!(nodes(&host(2, 4, &[1, 1]), 8).iter().filter(|nodes| **nodes == [1]).count(), 4);
        // Without NICs, ranks are in order, and each is at one node though CPUs go round the nodes.
        assert_eq!(nodes(&host(2, 4, &[]), 4), [[0], [0], [1], [1]]);
        assert_eq!(nodes(&host(2, 4, &[]), 1), [[0, 1]]);
    }

    #[test]
    fn ranks_get_equal_parts_of_one_node_where_possible() {
        // Three ranks: two cores each, and none across nodes.
        assert_eq!(dealt(&host(2, 4, &[1, 0]), 3), [(vec![1], 4), (vec![1], 4), (vec![0], 4)]);
        // Three ranks of ten cores: three each, and only two would fit within nodes.
        assert!(dealt(&host(2, 5, &[]), 3).iter().all(|(_, cpus)| *cpus == 6));
        // Two ranks for each core are near their NICs, too. Five are not dealt to four cores.
        assert_eq!(nodes(&host(2, 2, &[1, 0]), 8), [[1], [1], [1], [1], [0], [0], [0], [0]]);
        assert!(dealt(&host(2, 2, &[0]), 5).iter().all(|(_, cpus)| *cpus == 0));
        assert_eq!(deal(&Machine::default(), &[], &[None; 2], &[]), vec![Vec::<u16>::new(); 2]);
    }

    #[test]
    fn only_allowed_cpus_are_dealt() {
        let machine = host(2, 2, &[0]);
        let cores = cores_within(&machine, &[4, 1, 5, 900]);
        let cpus: Vec<Vec<u16>> = cores.iter().map(|core| core.cpus.clone()).collect();
        assert_eq!(cpus, [vec![900], vec![4], vec![1, 5]]);
        assert_eq!(deal(&machine, &cores[1..], &[None; 2], &["nic0"]), [vec![4], vec![1, 5]]);
    }
}
