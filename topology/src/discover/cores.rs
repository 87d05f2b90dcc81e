//! Cores, last-level caches, sockets and NUMA nodes.

use std::collections::BTreeMap;

use super::cpus::Cpus;
use super::root::Root;
use crate::machine::Core;
use crate::prices::Locality;

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// The cores, by NUMA node and number, and the numbers of all NUMA nodes.
pub(super) fn read(root: &Root) -> (Vec<Core>, Vec<u16>) {
    let nodes = nodes(root);
    let cpus = online(root);
    let node_of = |cpu| nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node);
    let mut sockets = BTreeMap::new();
    let mut caches = BTreeMap::new();
    let mut cores: Vec<Core> = Vec::new();
    let mut rest = cpus.clone();
    while let Some(cpu) = rest.first() {
        let mut own = siblings(root, cpu);
        own.retain(|sibling| rest.contains(sibling));
        own.insert(cpu);
        own.iter().for_each(|cpu| rest.remove(cpu));
        if !sockets.contains_key(&cpu) {
            for (cpu, socket) in socket(root, cpu) {
                sockets.entry(cpu).or_insert(socket);
            }
        }
        if !caches.contains_key(&cpu) {
            let number = u16::try_from(cores.len()).unwrap_or(u16::MAX);
            last_cache(root, cpu).iter().for_each(|cpu| {
                caches.entry(cpu).or_insert(number);
            });
        }
        cores.push(Core {
            node: node_of(cpu),
            socket: sockets.get(&cpu).copied(),
            cache: caches.get(&cpu).copied(),
            cpus: own.iter().collect(),
        });
    }
    cores.sort_by_key(|core| (core.node, core.cpus.first().copied()));
    number_caches(&mut cores);
    (cores, nodes.into_keys().collect())
}

/// The socket and the last-level cache that all of `cpus` share.
pub(super) fn locality(root: &Root, cpus: &Cpus) -> Locality {
    let Some(first) = cpus.first() else { return Locality::default() };
    let has_all = |list: &Cpus| cpus.iter().all(|cpu| list.contains(cpu));
    let in_socket = socket(root, first);
    let number = in_socket.first().map(|(_, number)| *number);
    let in_socket: Cpus = in_socket.into_iter().map(|(cpu, _)| cpu).collect();
    let in_cache = last_cache(root, first);
    Locality {
        socket: number.filter(|_| has_all(&in_socket)),
        // The first of its CPUs names a cache.
        cache: in_cache.first().filter(|_| has_all(&in_cache)),
    }
}

fn online(root: &Root) -> Cpus {
    let list = root.text(&format!("{CPU}/online")).and_then(|list| list.parse::<Cpus>().ok());
    list.unwrap_or_else(|| {
        let number = |name: &str| name.strip_prefix("cpu")?.parse::<u16>().ok();
        root.list(CPU, number).into_iter().map(|(cpu, _)| cpu).collect()
    })
}

fn nodes(root: &Root) -> BTreeMap<u16, Cpus> {
    let number = |name: &str| name.strip_prefix("node")?.parse::<u16>().ok();
    let cpus = |name: &str| root.text(&format!("{NODE}/{name}/cpulist"))?.parse().ok();
    let nodes = root.list(NODE, number).into_iter();
    nodes.filter_map(|(node, name)| Some((node, cpus(&name)?))).collect()
}

/// The CPUs of a core; none if the kernel does not show them.
fn siblings(root: &Root, cpu: u16) -> Cpus {
    let read = |name: &str| root.text(&format!("{CPU}/cpu{cpu}/topology/{name}"))?.parse().ok();
    // Older kernels have the second name.
    read("core_cpus_list").or_else(|| read("thread_siblings_list")).unwrap_or_default()
}

/// The CPUs of a socket with its number; none if the kernel does not show them.
fn socket(root: &Root, cpu: u16) -> Vec<(u16, u16)> {
    let read = |name: &str| root.text(&format!("{CPU}/cpu{cpu}/topology/{name}"));
    let number = read("physical_package_id").and_then(|id| id.parse().ok());
    let list = read("package_cpus_list").or_else(|| read("core_siblings_list"));
    let mut cpus: Cpus = list.and_then(|list| list.parse().ok()).unwrap_or_default();
    cpus.insert(cpu);
    let number: Option<u16> = number;
    number.map_or_else(Vec::new, |number| cpus.iter().map(|cpu| (cpu, number)).collect())
}

/// The CPUs that share the last-level cache of `cpu`; none if the kernel does not show them.
fn last_cache(root: &Root, cpu: u16) -> Cpus {
    let folder = format!("{CPU}/cpu{cpu}/cache");
    let number = |name: &str| name.strip_prefix("index")?.parse::<u8>().ok();
    let level = |name: &str| root.number::<u8>(&format!("{folder}/{name}/level"));
    let indices = root.list(&folder, number).into_iter();
    let last = indices.filter_map(|(_, name)| Some((level(&name)?, name))).max();
    let list = last.and_then(|(_, name)| root.text(&format!("{folder}/{name}/shared_cpu_list")));
    list.and_then(|list| list.parse().ok()).unwrap_or_default()
}

/// Numbers the caches from 0 in the order of the cores.
fn number_caches(cores: &mut [Core]) {
    let mut numbers = BTreeMap::new();
    for core in cores {
        let next = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
        core.cache = core.cache.map(|cache| *numbers.entry(cache).or_insert(next));
    }
}
