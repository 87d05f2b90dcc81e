//! Which ports each rank of a host prefers: those near its GPU or its CPUs, shared out evenly.

use super::distance::Spot;
use super::{Distance, Machine, PciAddress, assign::assign};

/// Where a rank works, as far as that decides which ports are near.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// Its GPU.
    pub gpu: Option<PciAddress>,
    /// The NUMA nodes of the CPUs that it may run on. They decide where no GPU is known.
    pub nodes: Vec<u16>,
}

impl Seat {
    /// The seat of a rank that has this GPU, or none, and may run on these CPUs.
    #[must_use]
    pub fn new(machine: &Machine, gpu: Option<PciAddress>, cpus: &[u16]) -> Self {
        Self { gpu, nodes: machine.nodes_of(cpus) }
    }
}

/// The GPU of the rank with number `local_rank` among `local_size` of its host.
///
/// `visible` is the value of `CUDA_VISIBLE_DEVICES` of that rank, if it is set. The rank takes the
/// first GPU of the list. But if the list has at least as many GPUs as the host has ranks, all
/// ranks are taken to have that list, and the rank takes the entry with its own number. Without a
/// list, or with names in place of numbers, ranks take GPUs in turn, in PCI order. The result is
/// nothing if the list is empty, or if there is no such GPU.
#[must_use]
pub fn gpu_of(
    machine: &Machine,
    visible: Option<&str>,
    local_rank: usize,
    local_size: usize,
) -> Option<PciAddress> {
    let gpus = countable(machine);
    let in_turn = || gpus.get(local_rank.checked_rem(gpus.len())?).copied();
    let Some(list) = visible else { return in_turn() };
    let entries: Vec<&str> = list.split(',').map(str::trim).collect();
    let own = if entries.len() >= local_size { local_rank } else { 0 };
    let entry = entries.get(own).copied().unwrap_or_default();
    match entry.parse::<usize>() {
        Ok(index) => gpus.get(index).copied(),
        Err(_) if entry.is_empty() || entry.starts_with('-') => None,
        Err(_) => in_turn(),
    }
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` counts: those of NVIDIA, or all where there is none.
fn countable(machine: &Machine) -> Vec<PciAddress> {
    const NVIDIA: u16 = 0x10de;
    let is_nvidia = |address: &PciAddress| {
        machine.devices.iter().any(|it| it.address == *address && it.ids.0 == NVIDIA)
    };
    let all: Vec<PciAddress> = machine.gpus.iter().map(|gpu| gpu.pci).collect();
    let some: Vec<PciAddress> = all.iter().copied().filter(is_nvidia).collect();
    if some.is_empty() { all } else { some }
}

/// Shares the ports of a host among its ranks. `seats` has the seat of each local rank. `ports` has
/// the name of the RDMA device or network interface of each usable port; a name may occur again,
/// for a second port. The result has indices into `ports` for each local rank, the nearest first.
///
/// Every rank gets at least one port and every port at least one rank, and both as evenly as
/// possible: 8 ranks and 4 ports are two ranks a port, 4 ranks and 8 ports are two ports a rank.
/// Among such ways, this one has the least distance in total. Where distances are equal or unknown,
/// ranks and ports go in order. All ranks of a host get the same result from the same arguments.
#[must_use]
pub fn share(machine: &Machine, seats: &[Seat], ports: &[&str]) -> Vec<Vec<usize>> {
    let spots: Vec<Spot> = ports.iter().map(|name| machine.spot_named(name)).collect();
    let distances: Vec<Vec<Distance>> = seats
        .iter()
        .map(|seat| spots.iter().map(|spot| machine.to_seat(spot, seat)).collect())
        .collect();
    let cost = |rank: usize, port: usize| distances[rank][port].cost();
    let mut shares = in_order(seats.len(), ports.len(), cost);
    for (rank, share) in shares.iter_mut().enumerate() {
        share.sort_by_key(|port| (distances[rank][*port], *port));
    }
    shares
}

/// Assigns as `assign` does. Among assignments of equal cost, that in which both go in order.
pub(super) fn in_order(
    takers: usize,
    givers: usize,
    cost: impl Fn(usize, usize) -> i64,
) -> Vec<Vec<usize>> {
    let middle = |at: usize, others: usize| i128::try_from((2 * at + 1) * others).unwrap_or(0);
    let total = |taker: usize, giver: usize| {
        let apart = middle(taker, givers) - middle(giver, takers);
        (i128::from(cost(taker, giver)) << 72) + apart * apart
    };
    let row = |taker: usize| (0..givers).map(|giver| total(taker, giver)).collect::<Vec<_>>();
    let costs: Vec<_> = (0..takers).map(row).collect();
    assign(takers, givers, |taker, giver| costs[taker][giver])
}

/// The ports that are there for storage: indices into `ports`, which is as for `share`. None unless
/// that is certain: every GPU shares a PCI switch with one of the other ports, these ports are no
/// GPU's, and they are fewer.
///
/// Users who name devices mean them all: the caller asks only where the user named none.
#[must_use]
pub fn storage(machine: &Machine, ports: &[&str]) -> Vec<usize> {
    let spots: Vec<Spot> = ports.iter().map(|name| machine.spot_named(name)).collect();
    let gpus: Vec<Spot> = machine.gpus.iter().map(|it| machine.spot(Some(it.pci), None)).collect();
    let shares_switch = |a: &Spot, b: &Spot| matches!(machine.between(a, b), Distance::Switch(_));
    let is_far = |at: &usize| !gpus.iter().any(|gpu| shares_switch(gpu, &spots[*at]));
    let far: Vec<usize> = (0..ports.len()).filter(is_far).collect();
    let all_placed = spots.iter().all(Spot::is_placed);
    let all_served = gpus.iter().all(|gpu| spots.iter().any(|port| shares_switch(gpu, port)));
    let is_certain = !gpus.is_empty() && all_placed && all_served && 2 * far.len() < ports.len();
    if is_certain { far } else { Vec::new() }
}

impl Machine {
    fn to_seat(&self, port: &Spot, seat: &Seat) -> Distance {
        let gpu = seat.gpu.map(|gpu| self.spot(Some(gpu), None));
        match gpu.filter(|gpu| *gpu != Spot::default()) {
            Some(gpu) => self.between(port, &gpu),
            None => self.to_nodes(port, &seat.nodes),
        }
    }
}

#[cfg(test)]
mod tests;
