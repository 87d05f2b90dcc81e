//! `--bind-to`: the cores that a rank may use.

use std::path::Path;

use ringfold_topology::discover::{machine, machine_cores};
use ringfold_topology::machine::{Core, Machine, Nic, cores_within, deal, gpu_of, slow, storage};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::message::{Bind, HostOrder};
use crate::process_tree;

/// The root of the running system's file tree.
const ROOT: &str = "/";

/// The number of cores that this process may use, at least 1.
pub(crate) fn allowed_cores() -> usize {
    let machine = Machine { cores: machine_cores(Path::new(ROOT)), ..Machine::default() };
    let allowed = sched_getaffinity(None);
    allowed.map_or(1, |allowed| cores_within(&machine, &cpus(&allowed)).len().max(1))
}

/// The CPUs of each slot of an order, in the order of the local ranks. A rank with an empty list
/// may use all CPUs of this process.
///
/// # Errors
/// The operating system does not report which CPUs this process may use, or binds no process.
pub(crate) fn assign(order: &HostOrder) -> rustix::io::Result<Vec<Vec<u16>>> {
    let free = vec![Vec::new(); slots(order)];
    let bind = order.bind.unwrap_or_default();
    if bind == Bind::None {
        return Ok(free);
    }
    let allowed = sched_getaffinity(None)?;
    let value = |name: &str| {
        let is_it = |(known, _): &&(Vec<u8>, Vec<u8>)| known == name.as_bytes();
        let ordered = order.env.iter().rfind(is_it).map(|(_, value)| value.clone());
        let value = ordered.or_else(|| process_tree::inherited_value(name))?;
        String::from_utf8(value).ok()
    };
    let is_off = value("RINGFOLD_TOPO").is_some_and(|value| value.trim() == "off");
    let machine = match (bind, is_off) {
        (Bind::Share, false) => machine(Path::new(ROOT)),
        _ => without_locations(machine_cores(Path::new(ROOT))),
    };
    let cores = cores_within(&machine, &cpus(&allowed));
    if bind == Bind::Share && cores.len() < free.len() && has_quota(&allowed) {
        return Ok(free);
    }
    let visible = value("CUDA_VISIBLE_DEVICES");
    let cpus = cpus_of(bind, &machine, &cores, visible.as_deref(), free.len());
    if cpus.iter().any(|cpus| !cpus.is_empty()) {
        // Some sandboxes refuse even a binding that changes nothing.
        sched_setaffinity(None, &allowed)?;
    }
    Ok(cpus)
}

/// The number of ranks that the host of this order may have.
pub(crate) fn slots(order: &HostOrder) -> usize {
    usize::try_from(order.slots).unwrap_or_default()
}

/// The CPUs of each of `ranks` ranks on these cores of a machine.
fn cpus_of(
    bind: Bind,
    machine: &Machine,
    cores: &[Core],
    visible: Option<&str>,
    ranks: usize,
) -> Vec<Vec<u16>> {
    match bind {
        Bind::None => vec![Vec::new(); ranks],
        Bind::Core => {
            let one = |rank: usize| cores.get(rank.checked_rem(cores.len())?)?.cpus.first();
            (0..ranks).map(|rank| one(rank).copied().into_iter().collect()).collect()
        }
        Bind::Share => {
            let gpus: Vec<_> =
                (0..ranks).map(|rank| gpu_of(machine, visible, rank, ranks)).collect();
            deal(machine, cores, &gpus, &devices(machine))
        }
    }
}

/// The RDMA devices that ranks are likely to use: those with an active port that is not slow beside
/// others, without storage.
fn devices(machine: &Machine) -> Vec<&str> {
    let is_usable = |nic: &&Nic| nic.ports.iter().any(|port| port.is_active);
    let nics: Vec<&Nic> = machine.nics.iter().filter(is_usable).collect();
    let rate = |nic: &&Nic| {
        let active = nic.ports.iter().filter(|it| it.is_active);
        active.map(|it| (it.network, it.gbps)).max_by_key(|(_, gbps)| *gbps)
    };
    let rates: Vec<_> = nics.iter().map(|nic| rate(nic).unwrap_or_default()).collect();
    let names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
    let (storage, slow) = (storage(machine, &names), slow(&rates));
    let is_left_out = |at: &usize| storage.contains(at) || slow.contains(at);
    let kept = names.iter().enumerate().filter(|(at, _)| !is_left_out(at));
    kept.map(|(_, name)| *name).collect()
}

/// A machine of these cores without their locations, so that CPU numbers alone define their order.
fn without_locations(cores: Vec<Core>) -> Machine {
    let cores = cores.into_iter().map(|core| Core { cpus: core.cpus, ..Core::default() });
    Machine { cores: cores.collect(), ..Machine::default() }
}

/// Binds this process to these CPUs. An empty list changes nothing.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn bind(cpus: &[u16]) -> rustix::io::Result<()> {
    let mut chosen = CpuSet::new();
    let known = cpus.iter().map(|cpu| usize::from(*cpu)).filter(|cpu| *cpu < CpuSet::MAX_CPU);
    known.for_each(|cpu| chosen.set(cpu));
    if chosen.count() == 0 { Ok(()) } else { sched_setaffinity(None, &chosen) }
}

/// Whether a quota gives this process less than all of its CPUs. A bound rank would seem to have
/// its CPUs for itself.
fn has_quota(allowed: &CpuSet) -> bool {
    std::thread::available_parallelism().is_ok_and(|usable| usable.get() < cpus(allowed).len())
}

/// The numbers of the CPUs in a set.
fn cpus(set: &CpuSet) -> Vec<u16> {
    let numbers = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    numbers.filter_map(|cpu| u16::try_from(cpu).ok()).collect()
}

#[cfg(test)]
mod tests {
    use ringfold_topology::machine::{Gpu, NicPort, PciDevice};

    use super::*;

    #[test]
    fn only_allowed_cores_are_given() {
        let allowed = sched_getaffinity(None).unwrap();
        let machine = machine(Path::new(ROOT));
        let cores = cores_within(&machine, &cpus(&allowed));
        let within = |cpu: &u16| allowed.is_set(usize::from(*cpu));
        assert!(cores.iter().flat_map(|core| &core.cpus).all(within));
        assert_eq!(cores.len(), allowed_cores());
    }

    fn five_cores() -> Vec<Core> {
        let cpus = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7], vec![8]];
        cpus.map(|cpus| Core { cpus, ..Core::default() }).to_vec()
    }

    #[test]
    fn shares_are_equal_and_of_one_rank_each() {
        let cores = five_cores();
        let of = |rank: usize, size| {
            cpus_of(Bind::Share, &Machine::default(), &cores, None, size)[rank].clone()
        };
        assert_eq!(of(0, 1).len(), 9);
        assert_eq!([of(0, 2), of(1, 2)], [[0, 4, 1, 5], [2, 6, 3, 7]]);
        assert_eq!((of(4, 5), of(0, 6)), (vec![8], vec![]), "six do not divide five cores");
        assert_eq!([of(0, 10), of(1, 10), of(2, 10)], [[0, 4], [0, 4], [1, 5]]);
        assert_eq!(of(9, 10), [8]);
        let one = cpus_of(Bind::Core, &Machine::default(), &cores, None, 7);
        assert_eq!((one[0].clone(), one[4].clone(), one[5].clone()), (vec![0], vec![8], vec![0]));
        assert!(cpus_of(Bind::Share, &Machine::default(), &[], None, 2).concat().is_empty());
        assert!(cpus_of(Bind::Core, &Machine::default(), &[], None, 2).concat().is_empty());
    }

    /// A machine of two NUMA nodes with alternating cores.
    fn crossed() -> Machine {
        let node = |cpu: u16| Some(cpu % 2);
        let core = |cpu| Core { cpus: vec![cpu], node: node(cpu), socket: node(cpu), cache: None };
        Machine { cores: (0..8).map(core).collect(), ..Machine::default() }
    }

    #[test]
    fn ranks_are_near_their_nics_and_gpus() {
        let mut machine = crossed();
        let nodes = |machine: &Machine, visible| {
            let cores = cores_within(machine, &[0, 1, 2, 3, 4, 5, 6, 7]);
            let cpus = cpus_of(Bind::Share, machine, &cores, visible, 2);
            cpus.iter().map(|cpus| machine.nodes_of(cpus)).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&machine, None), [[0], [1]]);
        let nic = |number: u16, is_active| Nic {
            name: format!("mlx5_{number}"),
            node: Some(1 - number % 2),
            ports: vec![NicPort { number: 1, is_active, ..NicPort::default() }],
            ..Nic::default()
        };
        machine.nics = vec![nic(0, true), nic(1, true)];
        assert_eq!(nodes(&machine, None), [[1], [0]]);
        // A NIC that is down attracts no rank.
        machine.nics = vec![nic(0, false), nic(1, true)];
        assert_eq!(nodes(&machine, None), [[0], [1]]);
        for (bus, node) in [(1, 0), (2, 1)] {
            let pci = format!("0000:0{bus}:00.0").parse().unwrap();
            let ids = (0x10de, 1);
            let device = PciDevice { address: pci, node: Some(node), ids, ..PciDevice::default() };
            machine.devices.push(device);
            machine.gpus.push(Gpu { pci, node: Some(node), domain: None });
        }
        assert_eq!(nodes(&machine, None), [[0], [1]]);
        assert_eq!(nodes(&machine, Some("1,0")), [[1], [0]]);
    }
}
