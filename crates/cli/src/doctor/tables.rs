//! Tables of ports and paths. A long table has one row for all that are alike.

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::time::Duration;

use ringfold_transport::trial::Figures;

use super::endpoint::Endpoint;
use super::matrix::{Pair, Path};

/// A table with more rows is folded.
const ROWS_MAX: usize = 100;

/// Names an endpoint as in `node1 #0`: the host and the rank that probed its ports.
pub(super) fn name(end: &Endpoint) -> String {
    format!("{} #{}", end.info.host, end.rank)
}

/// Names a path by the interfaces or ports of both ends.
pub(super) fn path_name(low: &Endpoint, high: &Endpoint, path: &Path) -> String {
    let (kind, [one, other]) = match path.rail {
        None => ("tcp ", [&low.info.interface, &high.info.interface]),
        Some((one, other)) => ("", [&low.ports[one].name, &high.ports[other].name]),
    };
    format!("{kind}{one} - {other}")
}

/// Prints a line for every port, or for every kind of port.
pub(super) fn ports(ends: &[Endpoint]) -> String {
    let number = |it: u32| if it > 0 { it.to_string() } else { "-".to_owned() };
    let count: usize = ends.iter().map(|end| end.ports.len()).sum();
    if count > ROWS_MAX {
        let all = ends.iter().flat_map(|end| &end.ports);
        let kinds = groups(all.map(|it| ((it.network(), it.gigabits, it.mtu), ())));
        let mut rows = vec![["ports", "network", "Gb/s", "MTU"].map(str::to_owned)];
        rows.extend(kinds.into_iter().map(|((network, gigabits, mtu), some)| {
            [some.len().to_string(), network.to_owned(), number(gigabits), number(mtu)]
        }));
        return table(&rows);
    }
    let mut rows =
        vec![["host", "ranks", "port", "network", "Gb/s", "MTU", "GID"].map(str::to_owned)];
    for end in ends {
        for (at, port) in end.ports.iter().enumerate() {
            let (host, ranks) = match at {
                0 => (name(end), end.ranks.to_string()),
                _ => (String::new(), String::new()),
            };
            let network = port.network();
            let gid = Ipv6Addr::from(port.gid).to_canonical().to_string();
            let [gigabits, mtu] = [port.gigabits, port.mtu].map(number);
            rows.push([host, ranks, port.name.clone(), network.to_owned(), gigabits, mtu, gid]);
        }
    }
    table(&rows)
}

/// Prints a line for every path, or for every pair of port names.
pub(super) fn paths(ends: &[Endpoint], pairs: &[Pair]) -> String {
    let count: usize = pairs.iter().map(|pair| pair.paths.len()).sum();
    if count > ROWS_MAX {
        return alike(ends, pairs);
    }
    let heads = ["from", "to", "by", "8 bytes", "there", "back"];
    let mut rows = vec![heads.map(str::to_owned)];
    for pair in pairs {
        let (low, high) = (&ends[pair.low], &ends[pair.high]);
        for (at, path) in pair.paths.iter().enumerate() {
            let (from, to) = if at == 0 { (name(low), name(high)) } else { Default::default() };
            let by = path_name(low, high, path);
            rows.push(match (&path.low, &path.high) {
                (Ok(there), Ok(back)) => {
                    let [there_rate, back_rate] = [there, back].map(|it| rate(it.bytes_per_second));
                    [from, to, by, time(there.latency), there_rate, back_rate]
                }
                _ => [from, to, by, "BAD".to_owned(), String::new(), String::new()],
            });
        }
    }
    table(&rows)
}

/// Prints the median and the worst figures of alike paths, and the pair with the least bandwidth.
fn alike(ends: &[Endpoint], pairs: &[Pair]) -> String {
    let all = pairs.iter().flat_map(|pair| {
        let (low, high) = (&ends[pair.low], &ends[pair.high]);
        pair.paths.iter().map(move |path| (path_name(low, high, path), (pair, path)))
    });
    let heads = ["by", "pairs", "BAD", "8 bytes", "at most", "bytes", "at least", "between"];
    let mut rows = vec![heads.map(str::to_owned)];
    for (by, some) in groups(all) {
        let good = some.iter().filter_map(|(pair, path)| {
            let Figures { latency, bytes_per_second } = *path.low.as_ref().ok()?;
            let back = path.high.as_ref().ok()?.bytes_per_second;
            Some((latency, bytes_per_second.min(back), *pair))
        });
        let mut good: Vec<_> = good.collect();
        let bad = some.len() - good.len();
        let counts = [by, some.len().to_string(), bad.to_string()];
        let middle = good.len() / 2;
        good.sort_by_key(|it| it.0);
        let times = [good.get(middle), good.last()].map(|it| it.map(|it| time(it.0)));
        good.sort_by(|one, other| one.1.total_cmp(&other.1));
        let rates = [good.get(middle), good.first()].map(|it| it.map(|it| rate(it.1)));
        let least = good.first().map(|it| it.2);
        let least = least.map(|it| format!("{} - {}", name(&ends[it.low]), name(&ends[it.high])));
        let [counted, tried, bad] = counts;
        let [[typical, longest], [usual, fewest]] =
            [times, rates].map(|both| both.map(Option::unwrap_or_default));
        let least = least.unwrap_or_default();
        rows.push([counted, tried, bad, typical, longest, usual, fewest, least]);
    }
    table(&rows)
}

pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}

pub(super) fn time(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}

/// Groups values by key, in the order of first occurrence.
fn groups<K: PartialEq, V>(all: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in all {
        match groups.iter_mut().find(|group| group.0 == key) {
            Some(group) => group.1.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Aligns the columns.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(text, "{}", line.trim_end()).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use ringfold_transport::rdma::Port;
    use ringfold_types::Rank;

    use super::super::endpoint::HostInfo;
    use super::*;
    use crate::probe::ProbeError;

    fn end(rank: usize) -> Endpoint {
        let (host, interface) = (format!("node{rank}"), "eth0".to_owned());
        let info =
            HostInfo { host, interface, shm: false, findings: Vec::new(), ports: Vec::new() };
        let (name, mtu) = ("mlx5_0:1".into(), 4096);
        let ports = vec![Port { name, kind: 2, gigabits: 100, mtu, ..Port::default() }];
        Endpoint { rank: Rank::at(rank), ranks: 8, info, ports }
    }

    /// A pair is slower with higher numbers. The last two hosts do not reach each other by RDMA.
    fn pair(low: usize, high: usize, count: usize) -> Pair {
        let latency = Duration::from_micros((low + high) as u64);
        let bytes_per_second = 1e11 / (low + high) as f64;
        let found = || Ok(Figures { latency, bytes_per_second });
        let missed = || Err(ProbeError::secondary("nothing"));
        let is_bad = low + high == 2 * count - 3;
        let rail = Path { rail: Some((0, 0)), low: found(), high: found() };
        let broken = Path { rail: Some((0, 0)), low: found(), high: missed() };
        let tcp = Path { rail: None, low: found(), high: found() };
        Pair { low, high, paths: vec![tcp, if is_bad { broken } else { rail }] }
    }

    fn tables(count: usize) -> (String, String) {
        let ends: Vec<_> = (0..count).map(end).collect();
        let all = (0..count).flat_map(|low| (low + 1..count).map(move |high| (low, high)));
        let pairs: Vec<_> = all.map(|(low, high)| pair(low, high, count)).collect();
        (ports(&ends), paths(&ends, &pairs))
    }

    #[test]
    fn a_few_have_a_line_each() {
        let (ports, paths) = tables(3);
        assert_eq!((ports.lines().count(), paths.lines().count()), (4, 7), "{ports}{paths}");
        let first = ["node0 #0", "node1 #1", "tcp eth0 - eth0", "1.0 us", "100.00 GB/s"];
        assert_eq!(lines(&paths)[1][..5], first);
        assert!(paths.ends_with("mlx5_0:1 - mlx5_0:1  BAD\n"), "{paths}");
    }

    /// The cells of every row.
    fn lines(text: &str) -> Vec<Vec<&str>> {
        text.lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect()
    }

    #[test]
    fn many_paths_are_folded_to_median_and_worst() {
        let (ports, paths) = tables(101);
        assert_eq!(lines(&ports)[1..], [["101", "RoCE", "100", "4096"]]);
        let tcp =
            ["tcp eth0 - eth0", "5050", "0", "100.0 us", "199.0 us", "1.00 GB/s", "0.50 GB/s"];
        let rail = ["mlx5_0:1 - mlx5_0:1", "5050", "1", "100.0 us", "198.0 us", "1.00 GB/s"];
        let paths = lines(&paths);
        assert_eq!(paths.len(), 3);
        assert_eq!(paths[1][..7], tcp);
        assert_eq!(paths[1][7], "node99 #99 - node100 #100");
        assert_eq!(paths[2][..6], rail);
        assert_eq!(paths[2][7], "node98 #98 - node100 #100");
    }
}
