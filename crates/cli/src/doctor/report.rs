//! The report of a job's doctor: its ports, its pairs, and a line for each problem.

use ringfold::Config;
use ringfold_transport::rdma::{Port, State};

use super::endpoint::Endpoint;
use super::local::mark;
use super::matrix::{MatrixResults, Pair, Path};
use super::tables::{name, path_name, paths, ports, rate};
use crate::probe::ProbeError;

/// A rail is slow if its rate is below this part of the median rate of rails of its speed.
const SLOW: f64 = 0.5;

/// Returns two tables, a line for each problem and a summary; and whether there is no fault.
pub(super) fn all(ends: &[Endpoint], results: &MatrixResults, config: &Config) -> (String, bool) {
    let pairs = &results.pairs;
    let mut lines = Lines::default();
    let has_rdma = ends.iter().any(|end| !end.ports.is_empty());
    for end in ends {
        lines.of_end(end, has_rdma && config.transports.rdma);
    }
    for pair in pairs {
        lines.of_pair(&ends[pair.low], &ends[pair.high], pair);
    }
    lines.of_slow_rails(ends, pairs);
    if !results.is_complete {
        let (some, all) = (results.rounds, ends.len() - 1);
        let what = "give ringrun fewer hosts to test all pairs of them";
        let line = format!("every host tried {some} of its {all} peers, spread evenly; {what}");
        lines.add(State::Fair, line);
    }
    let mut text = if has_rdma { ports(ends) + "\n" } else { String::new() };
    if !pairs.is_empty() {
        text += &paths(ends, pairs);
        text.push('\n');
    }
    for (state, line) in &lines.0 {
        text += &format!("{:<5} {line}\n", mark(*state));
    }
    let bad = lines.0.iter().filter(|(state, _)| *state == State::Bad).count();
    text += &summary(ends, results, bad, config);
    (text, bad == 0)
}

fn summary(ends: &[Endpoint], results: &MatrixResults, bad: usize, config: &Config) -> String {
    let rails: usize = results.pairs.iter().map(|pair| pair.paths.len() - 1).sum();
    match bad {
        0 if ends.iter().all(|end| end.ports.is_empty()) => without_rdma(config),
        0 => {
            let hosts = many(results.pairs.len(), "pair of hosts", "pairs of hosts");
            let rounds = many(results.rounds, "round", "rounds");
            format!("ok    {} between {hosts}, in {rounds}\n", many(rails, "rail", "rails"))
        }
        bad => format!("BAD   {}\n", many(bad, "thing is broken", "things are broken")),
    }
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// The line for a job without RDMA, which is no fault.
pub(super) fn without_rdma(config: &Config) -> String {
    let otherwise = if config.transports.shm { "tcp/shm" } else { "tcp" };
    format!("ok    no RDMA here: {otherwise} will be used\n")
}

/// A line for each problem.
#[derive(Default)]
struct Lines(Vec<(State, String)>);

impl Lines {
    fn add(&mut self, state: State, line: String) {
        self.0.push((state, line));
    }

    fn of_end(&mut self, end: &Endpoint, others_have_rdma: bool) {
        let host = name(end);
        for (is_bad, what) in &end.info.findings {
            self.add(if *is_bad { State::Bad } else { State::Fair }, format!("{host}: {what}"));
        }
        let is_secondary = end.info.findings.iter().any(|(is_bad, _)| *is_bad);
        if end.ports.is_empty() && others_have_rdma && !is_secondary {
            let what = "no usable RDMA port here, but other hosts have one";
            self.add(State::Bad, format!("{host}: {what}; a job would use tcp to this host"));
        }
    }

    fn of_pair(&mut self, low: &Endpoint, high: &Endpoint, pair: &Pair) {
        let hosts = format!("{} - {}", name(low), name(high));
        for path in &pair.paths {
            let by = path_name(low, high, path);
            if let Some(failure) = failure(path) {
                let advice = advice(low, high, path, failure);
                self.add(State::Bad, format!("{hosts}: {by}: {}; {advice}", failure.why));
            }
            let Some((one, other)) = path.rail else { continue };
            let (one, other) = (&low.ports[one], &high.ports[other]);
            if one.mtu != other.mtu {
                let (less, more) = (one.mtu.min(other.mtu), one.mtu.max(other.mtu));
                let what = "give both interfaces the same (`ip link set ... mtu ...`)";
                let line = format!(
                    "{hosts}: {by}: MTU {} on one side and {} on the other: {less} of {more} is \
                     used; {what}",
                    one.mtu, other.mtu
                );
                self.add(State::Fair, line);
            }
        }
        self.of_lonely_ports(low, high, pair, &hosts);
    }

    /// Reports ports without a counterpart. They are harmless if one host merely has more ports.
    fn of_lonely_ports(&mut self, low: &Endpoint, high: &Endpoint, pair: &Pair, hosts: &str) {
        let rails: Vec<(usize, usize)> = pair.paths.iter().filter_map(|path| path.rail).collect();
        let of_low = lonely(&low.ports, |at| rails.iter().any(|rail| rail.0 == at));
        let of_high = lonely(&high.ports, |at| rails.iter().any(|rail| rail.1 == at));
        let [low_names, high_names] = [&of_low, &of_high].map(|ports| {
            ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ")
        });
        match (of_low.is_empty(), of_high.is_empty()) {
            (true, true) => {}
            (false, false) => {
                let what = Port::apart(&of_low, &of_high);
                self.add(State::Bad, format!("{hosts}: {low_names} and {high_names} {what}"));
            }
            _ if low.ports.is_empty() || high.ports.is_empty() => {}
            _ => {
                let what = "no counterpart on the other host, so not used between these two";
                self.add(State::Fair, format!("{hosts}: {low_names}{high_names}: {what}"));
            }
        }
    }

    /// Reports rails with far less bandwidth than most rails of the same speed.
    fn of_slow_rails(&mut self, ends: &[Endpoint], pairs: &[Pair]) {
        let mut rates: Vec<(u32, f64, String)> = Vec::new();
        for pair in pairs {
            let (low, high) = (&ends[pair.low], &ends[pair.high]);
            for path in &pair.paths {
                let (Some((one, other)), Ok(there), Ok(back)) = (path.rail, &path.low, &path.high)
                else {
                    continue;
                };
                let speed = low.ports[one].gigabits.min(high.ports[other].gigabits);
                let least = there.bytes_per_second.min(back.bytes_per_second);
                let by = path_name(low, high, path);
                rates.push((speed, least, format!("{} - {}: {by}", name(low), name(high))));
            }
        }
        rates.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        for same in rates.chunk_by(|one, other| one.0 == other.0) {
            let middle = same[same.len() / 2].1;
            for (_, least, rail) in same.iter().filter(|(_, least, _)| *least < SLOW * middle) {
                let what = format!("{} but most rails have {}", rate(*least), rate(middle));
                let advice = "check cable, PCIe slot and other load (`lspci -vv`, `ethtool -S`)";
                self.add(State::Fair, format!("{rail}: {what}; {advice}"));
            }
        }
    }
}

/// Returns the ports that are in no pair.
fn lonely(ports: &[Port], is_met: impl Fn(usize) -> bool) -> Vec<&Port> {
    (0..ports.len()).filter(|at| !is_met(*at)).map(|at| &ports[at]).collect()
}

/// Returns why a path does not work, as reported by the end that saw the cause.
fn failure(path: &Path) -> Option<&ProbeError> {
    match (&path.low, &path.high) {
        (Ok(_), Ok(_)) => None,
        (Err(low), Err(high)) => {
            Some(if low.is_secondary && !high.is_secondary { high } else { low })
        }
        (Err(failure), _) | (_, Err(failure)) => Some(failure),
    }
}

/// Says how to fix a path.
fn advice(low: &Endpoint, high: &Endpoint, path: &Path, failure: &ProbeError) -> String {
    match path.rail {
        None => "check that there is a route and that no firewall drops TCP between the hosts; \
                 RINGFOLD_SOCKET_IFNAME chooses another interface"
            .to_owned(),
        Some((one, other)) if failure.is_long && low.ports[one].mtu > 0 => {
            let mtu = low.ports[one].mtu.min(high.ports[other].mtu);
            format!(
                "short messages pass and long ones do not: something between the ports drops \
                 their long packets; give switches and interfaces an MTU above {mtu} \
                 (`ping -M do -s {mtu}`)"
            )
        }
        Some(_) if failure.is_secondary => "see the lines above".to_owned(),
        Some((one, _)) if low.ports[one].network() == "iWARP" => {
            "check cable and VLAN, that both addresses are of one subnet, and that no firewall \
             drops TCP between them; RINGFOLD_IB_HCA leaves a port out"
                .to_owned()
        }
        Some((one, _)) if low.ports[one].network() == "RoCE" => {
            "check cable and VLAN, that both addresses are of one subnet, and that nothing drops \
             UDP port 4791; RINGFOLD_IB_HCA leaves a port out"
                .to_owned()
        }
        Some(_) => "check the cable and the subnet manager (`ibstat`, `ibping`); RINGFOLD_IB_HCA \
                    leaves a port out"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::Rank;

    use super::super::endpoint::HostInfo;
    use super::*;

    fn end(rank: usize, kind: u8, gid: [u8; 16]) -> Endpoint {
        let name = format!("dev{rank}:1");
        let port = Port { name, kind, gigabits: 100, mtu: 4096, gid, ..Port::default() };
        let info = HostInfo {
            host: format!("h{rank}"),
            interface: "eth0".to_owned(),
            shm: false,
            findings: Vec::new(),
            ports: Vec::new(),
        };
        Endpoint { rank: Rank::at(rank), ranks: 1, info, ports: vec![port] }
    }

    /// Advice about addresses does not apply to networks of different kinds.
    #[test]
    fn ports_that_do_not_fit_come_with_the_advice_that_does() {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 1];
        for (kind, gid, what) in [
            (0, mapped, "dev0:1 and dev1:1 are RoCE and InfiniBand, and one is InfiniBand and"),
            (0, mapped, "`mlxconfig -d DEVICE set LINK_TYPE_P1=1`"),
            (3, mapped, "dev0:1 and dev1:1 are RoCE and iWARP, and these do not understand"),
            (1, mapped, "dev0:1 and dev1:1 are RoCE v1 and v2; "),
            (2, [0x20; 16], "dev0:1 and dev1:1 have no kind of address in common; "),
        ] {
            let (low, high) = (end(0, 2, mapped), end(1, kind, gid));
            let pair = Pair { low: 0, high: 1, paths: Vec::new() };
            let mut lines = Lines::default();
            lines.of_pair(&low, &high, &pair);
            let [(State::Bad, line)] = &lines.0[..] else { panic!("{:?}", lines.0) };
            assert!(line.starts_with("h0 #0 - h1 #1: ") && line.contains(what), "{line}");
        }
    }
}
