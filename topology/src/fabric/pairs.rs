//! Pairs of networks: the hosts and devices that have ports in both.

use super::graph::Graph;
use super::net::Net;
use super::sets::Sets;

/// Number of hosts up to which half of them are enough.
const HOSTS_FEW: usize = 4;

/// For each two networks that share hosts, the number of these.
pub(super) fn shared(graph: &Graph<'_>, nets: &[Net]) -> Vec<((usize, usize), usize)> {
    let mut nets_of = vec![Vec::new(); graph.hosts.len()];
    for (number, net) in nets.iter().enumerate() {
        net.hosts.iter().for_each(|host| nets_of[*host].push(number));
    }
    let mut pairs = Vec::new();
    for nets in nets_of {
        for (index, a) in nets.iter().enumerate() {
            pairs.extend(nets[index + 1..].iter().map(|b| (*a, *b)));
        }
    }
    pairs.sort_unstable();
    pairs.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
}

/// Whether two numbers are about equal.
pub(super) fn are_near(a: usize, b: usize) -> bool {
    a.abs_diff(b) * 6 <= a.max(b)
}

/// Whether two networks with `shared` common hosts carry the same hosts in about the same way.
pub(super) fn are_equal(a: &Net, b: &Net, shared: usize) -> bool {
    let most = a.hosts.len().max(b.hosts.len());
    (a.gbps == b.gbps || a.gbps.min(b.gbps) == 0)
        && are_near(a.width, b.width)
        && are_near(a.ports_per_host, b.ports_per_host)
        && shared * 2 >= most
        && (shared * 5 >= most * 3 || most <= HOSTS_FEW)
}

/// By network: whether no other network equals it.
pub(super) fn alone(graph: &Graph<'_>, nets: &[Net]) -> Vec<bool> {
    let mut sets = Sets::new(nets.len());
    for ((a, b), shared) in shared(graph, nets) {
        if are_equal(&nets[a], &nets[b], shared) {
            sets.join(a, b);
        }
    }
    let mut size = vec![0; nets.len()];
    (0..nets.len()).for_each(|net| size[sets.find(net)] += 1);
    (0..nets.len()).map(|net| size[sets.find(net)] == 1).collect()
}

/// For each two networks, the number of these hosts that have a device with ports in both.
pub(super) fn linked(
    graph: &Graph<'_>,
    of: &[Option<usize>],
    hosts: impl Iterator<Item = usize>,
) -> Vec<((usize, usize), usize)> {
    let mut pairs = Vec::new();
    for host in hosts {
        let port = |port: &usize| {
            let net = of[graph.leaf_of[*port]?]?;
            Some((graph.fabric.ports[*port].device.as_str(), net))
        };
        let mut ports: Vec<_> = graph.hosts[host].ports.iter().filter_map(port).collect();
        ports.sort_unstable();
        ports.dedup();
        let mut of_host = Vec::new();
        for device in ports.chunk_by(|a, b| a.0 == b.0) {
            for (index, (_, a)) in device.iter().enumerate() {
                of_host.extend(device[index + 1..].iter().map(|(_, b)| (*a, *b)));
            }
        }
        of_host.sort_unstable();
        of_host.dedup();
        pairs.extend(of_host);
    }
    pairs.sort_unstable();
    pairs.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
}
