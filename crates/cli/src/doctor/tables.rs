//! Ports and ways, in rows: each, or where there are too many to read, those that are alike.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use ringfold_transport::trial::Figures;

use super::end::End;
use super::tour::{Pair, Way};
use super::trial::{rate, time};

/// A table of more rows than this is not read.
const ROWS_MAX: usize = 100;

/// As in `node1 #0`: a host, and the rank that tried its ports.
pub(super) fn name(end: &End) -> String {
    format!("{} #{}", end.card.host, end.rank)
}

/// A way in words: interfaces or ports of both.
pub(super) fn said(low: &End, high: &End, way: &Way) -> String {
    let (kind, [one, other]) = match way.rail {
        None => ("tcp ", [&low.card.interface, &high.card.interface]),
        Some((one, other)) => ("", [&low.ports[one].name, &high.ports[other].name]),
    };
    format!("{kind}{one} - {other}")
}

/// A line for every port, or for all of a kind.
pub(super) fn ports(ends: &[End]) -> String {
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

/// A line for every way, or for all between ports of the same names.
pub(super) fn ways(ends: &[End], pairs: &[Pair]) -> String {
    let count: usize = pairs.iter().map(|pair| pair.ways.len()).sum();
    if count > ROWS_MAX {
        return alike(ends, pairs);
    }
    let heads = ["from", "to", "by", "8 bytes", "there", "back"];
    let mut rows = vec![heads.map(str::to_owned)];
    for pair in pairs {
        let (low, high) = (&ends[pair.low], &ends[pair.high]);
        for (at, way) in pair.ways.iter().enumerate() {
            let (from, to) = if at == 0 { (name(low), name(high)) } else { Default::default() };
            let by = said(low, high, way);
            rows.push(match (&way.low, &way.high) {
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

/// What the middle one and the worst ones do, and where the fewest bytes pass.
fn alike(ends: &[End], pairs: &[Pair]) -> String {
    let all = pairs.iter().flat_map(|pair| {
        let (low, high) = (&ends[pair.low], &ends[pair.high]);
        pair.ways.iter().map(move |way| (said(low, high, way), (pair, way)))
    });
    let heads = ["by", "pairs", "BAD", "8 bytes", "at most", "bytes", "at least", "between"];
    let mut rows = vec![heads.map(str::to_owned)];
    for (by, some) in groups(all) {
        let good = some.iter().filter_map(|(pair, way)| {
            let Figures { latency, bytes_per_second } = *way.low.as_ref().ok()?;
            let back = way.high.as_ref().ok()?.bytes_per_second;
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

/// Those with the same key together, in the order in which the keys came.
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

/// Columns side by side.
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
    use std::time::Duration;

    use ringfold_transport::rdma::Port;
    use ringfold_types::Rank;

    use super::super::end::Card;
    use super::super::trial::Trouble;
    use super::*;

    fn end(rank: usize) -> End {
        let (host, interface) = (format!("node{rank}"), "eth0".to_owned());
        let card = Card { host, interface, shm: false, findings: Vec::new(), ports: Vec::new() };
        let (name, mtu) = ("mlx5_0:1".into(), 4096);
        let ports = vec![Port { name, kind: 2, gigabits: 100, mtu, ..Port::default() }];
        End { rank: Rank::at(rank), ranks: 8, card, ports }
    }

    /// The higher the numbers of both, the slower; the last two do not reach each other by RDMA.
    fn pair(low: usize, high: usize, count: usize) -> Pair {
        let latency = Duration::from_micros((low + high) as u64);
        let bytes_per_second = 1e11 / (low + high) as f64;
        let found = || Ok(Figures { latency, bytes_per_second });
        let missed = || Err(Trouble::told("nothing"));
        let is_bad = low + high == 2 * count - 3;
        let rail = Way { rail: Some((0, 0)), low: found(), high: found() };
        let broken = Way { rail: Some((0, 0)), low: found(), high: missed() };
        let tcp = Way { rail: None, low: found(), high: found() };
        Pair { low, high, ways: vec![tcp, if is_bad { broken } else { rail }] }
    }

    fn tables(count: usize) -> (String, String) {
        let ends: Vec<_> = (0..count).map(end).collect();
        let all = (0..count).flat_map(|low| (low + 1..count).map(move |high| (low, high)));
        let pairs: Vec<_> = all.map(|(low, high)| pair(low, high, count)).collect();
        (ports(&ends), ways(&ends, &pairs))
    }

    #[test]
    fn a_few_have_a_line_each() {
        let (ports, ways) = tables(3);
        assert_eq!((ports.lines().count(), ways.lines().count()), (4, 7), "{ports}{ways}");
        let first = ["node0 #0", "node1 #1", "tcp eth0 - eth0", "1.0 us", "100.00 GB/s"];
        assert_eq!(lines(&ways)[1][..5], first);
        assert!(ways.ends_with("mlx5_0:1 - mlx5_0:1  BAD\n"), "{ways}");
    }

    /// The cells of every row.
    fn lines(text: &str) -> Vec<Vec<&str>> {
        text.lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect()
    }

    #[test]
    fn many_are_told_by_their_middle_and_their_worst() {
        let (ports, ways) = tables(101);
        assert_eq!(lines(&ports)[1..], [["101", "RoCE", "100", "4096"]]);
        let tcp =
            ["tcp eth0 - eth0", "5050", "0", "100.0 us", "199.0 us", "1.00 GB/s", "0.50 GB/s"];
        let rail = ["mlx5_0:1 - mlx5_0:1", "5050", "1", "100.0 us", "198.0 us", "1.00 GB/s"];
        let ways = lines(&ways);
        assert_eq!(ways.len(), 3);
        assert_eq!(ways[1][..7], tcp);
        assert_eq!(ways[1][7], "node99 #99 - node100 #100");
        assert_eq!(ways[2][..6], rail);
        assert_eq!(ways[2][7], "node98 #98 - node100 #100");
    }
}
