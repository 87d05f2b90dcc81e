//! The ports that each rank of a host prefers: those near its GPU or its CPUs, shared out evenly.

use super::distance::Spot;
use super::{Distance, Machine, Network, PciAddress, assign::assign};

/// The highest rate of a host's ports over the lowest one that is worth a share.
const SLOW_RATIO: u64 = 4;

/// The GPU and CPUs of a rank, which decide the ports that are near it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Its GPU.
    pub gpu: Option<PciAddress>,
    /// The NUMA nodes of the CPUs that it may run on. They decide if no GPU is known.
    pub nodes: Vec<u16>,
}

impl Affinity {
    /// The affinity of a rank that has this GPU, or none, and may run on these CPUs.
    #[must_use]
    pub fn new(machine: &Machine, gpu: Option<PciAddress>, cpus: &[u16]) -> Self {
        Self { gpu, nodes: machine.nodes_of(cpus) }
    }
}

/// The GPU of the rank with number `local_rank` among `local_size` ranks of its host.
///
/// `visible` is the value of `CUDA_VISIBLE_DEVICES` of that rank, if it is set. The rank takes the
/// first GPU of the list. A list with at least as many GPUs as the host has ranks counts as common
/// to all ranks. Then the rank takes the entry with its own number. Without a list, or with names
/// in place of numbers, ranks take GPUs in turn, in PCI order. The result is `None` if the list is
/// empty, or if there is no such GPU.
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

/// The GPUs that `CUDA_VISIBLE_DEVICES` counts: those of NVIDIA, or all if there is none.
fn countable(machine: &Machine) -> Vec<PciAddress> {
    const NVIDIA: u16 = 0x10de;
    let is_nvidia = |address: &PciAddress| {
        machine.devices.iter().any(|it| it.address == *address && it.ids.0 == NVIDIA)
    };
    let all: Vec<PciAddress> = machine.gpus.iter().map(|gpu| gpu.pci).collect();
    let some: Vec<PciAddress> = all.iter().copied().filter(is_nvidia).collect();
    if some.is_empty() { all } else { some }
}

/// Shares the ports of a host among its ranks. `affinities` has the affinity of each local rank.
/// `ports` has the name of the RDMA device or network interface of each usable port. A name may
/// occur again, for a second port. The result has indices into `ports` for each local rank, the
/// nearest first.
///
/// Every rank gets at least one port and every port at least one rank, and both as evenly as
/// possible. With 8 ranks and 4 ports, a port has two ranks. With 4 ranks and 8 ports, a rank has
/// two ports. Of such results, this one has the least distance in total. If distances are equal or
/// unknown, ranks and ports are assigned in order. All ranks of a host get the same result from the
/// same arguments.
#[must_use]
pub fn share(machine: &Machine, affinities: &[Affinity], ports: &[&str]) -> Vec<Vec<usize>> {
    let spots: Vec<Spot> = ports.iter().map(|name| machine.spot_named(name)).collect();
    let distances: Vec<Vec<Distance>> = affinities
        .iter()
        .map(|affinity| spots.iter().map(|spot| machine.to_affinity(spot, affinity)).collect())
        .collect();
    let cost = |rank: usize, port: usize| distances[rank][port].cost();
    let mut shares = in_order(affinities.len(), ports.len(), cost);
    for (rank, share) in shares.iter_mut().enumerate() {
        share.sort_by_key(|port| (distances[rank][*port], *port));
    }
    shares
}

/// Assigns like `assign`. Among assignments of equal cost, it chooses the one that keeps both in
/// order.
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

/// The ports that are meant for storage: indices into `ports`, which is as for `share`. Empty
/// unless that is certain. Every GPU must share a PCI switch with one of the other ports, and none
/// with these ports. These ports must also be fewer.
///
/// Users who name devices want all of them, so the caller asks only if the user named none.
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

/// The ports that are too slow to carry a share beside the others: indices into `ports`, which has
/// the network and the Gbit/s of each usable port. Their rate is less than a quarter of the highest
/// in their network. A rate of 0 is unknown, and counts as the highest.
///
/// Users who name devices want all of them, so the caller asks only if the user named none.
#[must_use]
pub fn slow(ports: &[(Network, u32)]) -> Vec<usize> {
    let is_slow = |&(network, rate): &(Network, u32)| {
        let best = ports.iter().filter(|it| it.0 == network).map(|it| u64::from(it.1)).max();
        rate > 0 && u64::from(rate) * SLOW_RATIO < best.unwrap_or_default()
    };
    (0..ports.len()).filter(|at| is_slow(&ports[*at])).collect()
}

impl Machine {
    fn to_affinity(&self, port: &Spot, affinity: &Affinity) -> Distance {
        let gpu = affinity.gpu.map(|gpu| self.spot(Some(gpu), None));
        match gpu.filter(|gpu| *gpu != Spot::default()) {
            Some(gpu) => self.between(port, &gpu),
            None => self.to_nodes(port, &affinity.nodes),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Ports are shared out on a host with 8 GPUs and 10 NICs.

    use super::*;
    use crate::machine::{Core, Gpu, Interface, Nic, PciDevice};

    fn at(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    /// A machine of two sockets with four PCI switches each. A switch has a GPU and a NIC. Each
    /// socket has another NIC at a root port of its own.
    fn eight_and_two() -> Machine {
        let mut machine = Machine::default();
        for node in 0..2u16 {
            machine.cores.extend((0..4).map(|cpu| Core {
                cpus: vec![node * 4 + cpu],
                node: Some(node),
                socket: Some(node),
                cache: None,
            }));
        }
        for group in 0..8u16 {
            let (node, bus) = (Some(group / 4), 0x10 * (group + 1));
            let address = |low: u16| at(&format!("0000:{:02x}:00.0", bus + low));
            let mut add = |low: u16, above: Option<u16>, class| {
                let (address, parent) = (address(low), above.map(address));
                let device = PciDevice { address, parent, class, node, ..PciDevice::default() };
                machine.devices.push(device);
            };
            // Root port, switch, its two ports, and the device below each of them.
            for (bridge, above) in [(0, None), (1, Some(0)), (2, Some(1)), (3, Some(1))] {
                add(bridge, above, 0x06_0400);
            }
            add(4, Some(2), 0x03_0200);
            add(5, Some(3), 0x02_0700);
            machine.gpus.push(Gpu { pci: address(4), node, domain: None });
            machine.nics.push(nic(&format!("mlx5_{group}"), address(5)));
        }
        for node in 0..2 {
            let bus = if node == 0 { "e0" } else { "f0" };
            let root = at(&format!("0000:{bus}:00.0"));
            let address = at(&format!("0000:{bus}:01.0"));
            let node = Some(node);
            machine.devices.push(PciDevice { address: root, node, ..PciDevice::default() });
            let parent = Some(root);
            machine.devices.push(PciDevice { address, parent, node, ..PciDevice::default() });
            machine.nics.push(nic(&format!("mlx5_{}", machine.nics.len()), address));
        }
        machine
    }

    fn nic(name: &str, address: PciAddress) -> Nic {
        Nic { name: name.to_owned(), pci: Some(address), ..Nic::default() }
    }

    fn names(machine: &Machine) -> Vec<&str> {
        machine.nics.iter().map(|nic| nic.name.as_str()).collect()
    }

    fn affinities(machine: &Machine, size: usize, visible: Option<&str>) -> Vec<Affinity> {
        let affinity =
            |rank| Affinity { gpu: gpu_of(machine, visible, rank, size), nodes: Vec::new() };
        (0..size).map(affinity).collect()
    }

    #[test]
    fn gpus_get_the_nic_at_their_switch() {
        let machine = eight_and_two();
        let names = names(&machine);
        let shares = share(&machine, &affinities(&machine, 8, None), &names[..8]);
        assert_eq!(shares, (0..8).map(|rank| vec![rank]).collect::<Vec<_>>());
        // GPUs in reverse, and ports in an order of their own.
        let shares =
            share(&machine, &affinities(&machine, 8, Some("7,6,5,4,3,2,1,0")), &names[..8]);
        assert_eq!(shares, (0..8).map(|rank| vec![7 - rank]).collect::<Vec<_>>());
        let shuffled = [3, 1, 4, 7, 5, 2, 6, 0].map(|at| names[at]);
        let shares = share(&machine, &affinities(&machine, 8, None), &shuffled);
        let got: Vec<&str> = shares.iter().map(|ports| shuffled[ports[0]]).collect();
        assert_eq!(got, names[..8]);
    }

    #[test]
    fn ports_are_shared_out_evenly_and_near() {
        let machine = eight_and_two();
        let names = names(&machine);
        // 16 ranks, two for each GPU; 4 ranks, each with its own NIC first and another of its
        // socket.
        let shares = share(&machine, &affinities(&machine, 16, None), &names[..8]);
        assert!(shares.iter().enumerate().all(|(rank, ports)| ports == &[rank % 8]));
        let shares = share(&machine, &affinities(&machine, 4, Some("0,1,4,5")), &names[..8]);
        assert_eq!(shares.iter().map(|ports| ports[0]).collect::<Vec<_>>(), [0, 1, 4, 5]);
        assert!(shares.iter().all(|ports| ports.len() == 2 && ports[0] / 4 == ports[1] / 4));
        // A lost NIC: its rank takes another of its socket, and no other rank moves.
        let without = [names[0], names[2], names[3], names[4], names[5], names[6], names[7]];
        let shares = share(&machine, &affinities(&machine, 8, None), &without);
        let got: Vec<&str> = shares.iter().map(|ports| without[ports[0]]).collect();
        assert!(["mlx5_0", "mlx5_2", "mlx5_3"].contains(&got[1]), "{got:?}");
        assert_eq!([got[0], got[2], got[7]], ["mlx5_0", "mlx5_2", "mlx5_7"]);
        // A single rank has all ports, its own first.
        let shares = share(&machine, &affinities(&machine, 1, Some("6")), &names[..8]);
        assert_eq!((shares[0].len(), shares[0][0]), (8, 6));
    }

    #[test]
    fn cpus_decide_where_no_gpu_is_known() {
        let mut machine = eight_and_two();
        machine.gpus.clear();
        let affinities = [[4u16, 5], [0, 1]].map(|cpus| Affinity::new(&machine, None, &cpus));
        assert_eq!(affinities[0].nodes, [1]);
        let shares = share(&machine, &affinities, &["mlx5_2", "mlx5_6"]);
        assert_eq!(shares, [[1], [0]]);
        // Software devices, bonds and unknown names have no place, so order decides.
        let shares = share(&machine, &affinities, &["rxe0", "rxe1", "rxe2", "rxe3"]);
        assert_eq!(shares, [[0, 1], [2, 3]]);
        let part = |name: &str, nic: &str, master: Option<&str>| Interface {
            name: name.to_owned(),
            pci: machine.nics.iter().find(|it| it.name == nic).and_then(|it| it.pci),
            master: master.map(str::to_owned),
            ..Interface::default()
        };
        let interfaces = vec![
            part("bond0", "", None),
            part("a", "mlx5_8", Some("bond0")),
            part("b", "mlx5_9", None),
        ];
        machine.interfaces = interfaces;
        assert_eq!(share(&machine, &affinities, &["bond0", "b"]), [[1], [0]]);
    }

    #[test]
    fn storage_is_what_no_gpu_is_near() {
        let mut machine = eight_and_two();
        let all = eight_and_two();
        let names = names(&all);
        assert_eq!(storage(&machine, &names), [8, 9]);
        assert_eq!(storage(&machine, &names[..8]), Vec::<usize>::new());
        // A GPU without a NIC at its switch may use any other.
        assert_eq!(storage(&machine, &names[1..]), Vec::<usize>::new());
        // A hidden NIC may be anywhere.
        machine.nics[8].pci = None;
        assert_eq!(storage(&machine, &names), Vec::<usize>::new());
        machine.gpus.clear();
        assert_eq!(storage(&machine, &names), Vec::<usize>::new());
        // A flat tree has no meaning.
        let mut flat = eight_and_two();
        flat.devices.iter_mut().for_each(|device| device.parent = None);
        assert_eq!(storage(&flat, &names), Vec::<usize>::new());
        let shares = share(&flat, &[Affinity::default(), Affinity::default()], &names[..4]);
        assert_eq!(shares, [[0, 1], [2, 3]]);
    }

    #[test]
    fn ports_below_a_quarter_of_the_fastest_are_slow() {
        let slow = |gbps: &[u32]| {
            slow(&gbps.iter().map(|gbps| (Network::Roce, *gbps)).collect::<Vec<_>>())
        };
        assert_eq!(slow(&[400, 25, 100, 99, 200]), [1, 3]);
        assert_eq!(slow(&[0, 400, 0, 10]), [3], "an unknown rate may be high");
        let apart = [(Network::InfiniBand, 400), (Network::Roce, 25)];
        assert!(super::slow(&apart).is_empty(), "another host may have only the slower network");
        for equal in [&[][..], &[0, 0], &[25], &[10, 25, 40], &[u32::MAX, u32::MAX]] {
            assert_eq!(slow(equal), Vec::<usize>::new(), "{equal:?}");
        }
    }

    #[test]
    fn distances_grow() {
        let machine = eight_and_two();
        let distance = |a, b| machine.distance(at(a), at(b));
        let (gpu, nic) = ("0000:14:00.0", "0000:15:00.0");
        let got = [
            distance(gpu, gpu),
            distance(gpu, nic),
            distance(gpu, "0000:25:00.0"),
            distance(gpu, "0000:55:00.0"),
            distance(gpu, "0000:ff:00.0"),
        ];
        use Distance::{Elsewhere, Node, Switch};
        assert_eq!(got, [Switch(0), Switch(2), Node, Elsewhere, Elsewhere]);
        let mut machine = machine;
        machine.cores.iter_mut().for_each(|core| core.socket = Some(0));
        assert_eq!(machine.distance(at(gpu), at("0000:55:00.0")), Distance::Socket);
        // A bridge that is below itself does not break the search.
        machine.devices[0].parent = Some(machine.devices[3].address);
        assert_eq!(machine.distance(at(gpu), at(nic)), Switch(2));
    }

    #[test]
    fn visible_devices_name_gpus() {
        let machine = eight_and_two();
        let index = |visible, rank, size| {
            let gpu = gpu_of(&machine, visible, rank, size)?;
            machine.gpus.iter().position(|it| it.pci == gpu)
        };
        assert_eq!([index(None, 3, 8), index(None, 11, 16)], [Some(3); 2]);
        assert_eq!([index(Some("5"), 3, 8), index(Some("5,6"), 3, 8)], [Some(5); 2]);
        assert_eq!(index(Some("0,1,2,3,4,5,6,7"), 3, 8), Some(3));
        assert_eq!(index(Some(" 4 , 5 "), 1, 2), Some(5));
        assert_eq!([index(Some(""), 0, 8), index(Some("-1"), 0, 8)], [None; 2]);
        assert_eq!(
            [index(Some("9"), 0, 8), index(Some("99999999999999999999"), 2, 8)],
            [None, Some(2)]
        );
        assert_eq!(index(Some("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), 2, 8), Some(2));
        assert_eq!(gpu_of(&Machine::default(), None, 0, 1), None);
    }
}
