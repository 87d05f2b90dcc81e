//! What is printed of a job's examination: its ports, its pairs, and a line for all that is wrong.

use ringfold::Config;
use ringfold_transport::rdma::{Port, State};

use super::end::End;
use super::look::mark;
use super::tables::{name, ports, said, ways};
use super::tour::{Pair, Tried, Way};
use super::trial::{Trouble, rate};

/// A rail is slow that carries less than the middle one of its speed by this factor.
const SLOW: f64 = 0.5;

/// Two tables, the lines, and a verdict; and whether nothing is bad.
pub(super) fn all(ends: &[End], tried: &Tried, config: &Config) -> (String, bool) {
    let pairs = &tried.pairs;
    let mut lines = Lines::default();
    let has_rdma = ends.iter().any(|end| !end.ports.is_empty());
    for end in ends {
        lines.of_end(end, has_rdma && config.transports.rdma);
    }
    for pair in pairs {
        lines.of_pair(&ends[pair.low], &ends[pair.high], pair);
    }
    lines.of_slow_rails(ends, pairs);
    if !tried.is_all {
        let (some, all) = (tried.rounds, ends.len() - 1);
        let what = "spread evenly; give ringrun fewer hosts to have all of theirs tried";
        let line = format!("every host tried some {some} others, and not all {all}: {what}");
        lines.add(State::Fair, line);
    }
    let mut text = if has_rdma { ports(ends) + "\n" } else { String::new() };
    if !pairs.is_empty() {
        text += &ways(ends, pairs);
        text.push('\n');
    }
    for (state, line) in &lines.0 {
        text += &format!("{:<5} {line}\n", mark(*state));
    }
    let bad = lines.0.iter().filter(|(state, _)| *state == State::Bad).count();
    text += &verdict(ends, tried, bad, config);
    (text, bad == 0)
}

fn verdict(ends: &[End], tried: &Tried, bad: usize, config: &Config) -> String {
    let rails: usize = tried.pairs.iter().map(|pair| pair.ways.len() - 1).sum();
    match bad {
        0 if ends.iter().all(|end| end.ports.is_empty()) => without_rdma(config),
        0 => {
            let hosts = many(tried.pairs.len(), "pair of hosts", "pairs of hosts");
            let rounds = many(tried.rounds, "round", "rounds");
            format!("ok    {} between {hosts}, in {rounds}\n", many(rails, "rail", "rails"))
        }
        bad => format!("BAD   {}\n", many(bad, "thing is broken", "things are broken")),
    }
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// What happens where there is none and that is no fault.
pub(super) fn without_rdma(config: &Config) -> String {
    let otherwise = if config.transports.shm { "tcp/shm" } else { "tcp" };
    format!("ok    no RDMA here: {otherwise} will be used\n")
}

/// All that is not as it should be.
#[derive(Default)]
struct Lines(Vec<(State, String)>);

impl Lines {
    fn add(&mut self, state: State, line: String) {
        self.0.push((state, line));
    }

    fn of_end(&mut self, end: &End, others_have_rdma: bool) {
        let host = name(end);
        for (is_bad, what) in &end.card.findings {
            self.add(if *is_bad { State::Bad } else { State::Fair }, format!("{host}: {what}"));
        }
        let is_told = end.card.findings.iter().any(|(is_bad, _)| *is_bad);
        if end.ports.is_empty() && others_have_rdma && !is_told {
            let what = "there is no RDMA port to use here, though other hosts have some";
            self.add(State::Bad, format!("{host}: {what}; the job would go by tcp to this one"));
        }
    }

    fn of_pair(&mut self, low: &End, high: &End, pair: &Pair) {
        let hosts = format!("{} - {}", name(low), name(high));
        for way in &pair.ways {
            let by = said(low, high, way);
            if let Some(trouble) = trouble(way) {
                let advice = advice(low, high, way, trouble);
                self.add(State::Bad, format!("{hosts}: {by}: {}; {advice}", trouble.why));
            }
            let Some((one, other)) = way.rail else { continue };
            let (one, other) = (&low.ports[one], &high.ports[other]);
            if one.mtu != other.mtu {
                let (less, more) = (one.mtu.min(other.mtu), one.mtu.max(other.mtu));
                let what = "give both interfaces the same (`ip link set ... mtu ...`)";
                let line = format!(
                    "{hosts}: {by}: MTU {} on one side and {} on the other, so that {less} of \
                     {more} is used; {what}",
                    one.mtu, other.mtu
                );
                self.add(State::Fair, line);
            }
        }
        self.of_lonely_ports(low, high, pair, &hosts);
    }

    /// Ports that have no counterpart: harmless where one host has more of them.
    fn of_lonely_ports(&mut self, low: &End, high: &End, pair: &Pair, hosts: &str) {
        let rails: Vec<(usize, usize)> = pair.ways.iter().filter_map(|way| way.rail).collect();
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
                let what = "no counterpart at the other end, and not used between these";
                self.add(State::Fair, format!("{hosts}: {low_names}{high_names}: {what}"));
            }
        }
    }

    /// Rails that carry far less than most of those of the same speed.
    fn of_slow_rails(&mut self, ends: &[End], pairs: &[Pair]) {
        let mut rates: Vec<(u32, f64, String)> = Vec::new();
        for pair in pairs {
            let (low, high) = (&ends[pair.low], &ends[pair.high]);
            for way in &pair.ways {
                let (Some((one, other)), Ok(there), Ok(back)) = (way.rail, &way.low, &way.high)
                else {
                    continue;
                };
                let speed = low.ports[one].gigabits.min(high.ports[other].gigabits);
                let least = there.bytes_per_second.min(back.bytes_per_second);
                let by = said(low, high, way);
                rates.push((speed, least, format!("{} - {}: {by}", name(low), name(high))));
            }
        }
        rates.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        for same in rates.chunk_by(|one, other| one.0 == other.0) {
            let middle = same[same.len() / 2].1;
            for (_, least, rail) in same.iter().filter(|(_, least, _)| *least < SLOW * middle) {
                let what = format!("{} where most have {}", rate(*least), rate(middle));
                let advice = "cable, PCIe slot, or others at work (`lspci -vv`, `ethtool -S`)";
                self.add(State::Fair, format!("{rail}: {what}; {advice}"));
            }
        }
    }
}

/// Ports that are not in any pair.
fn lonely(ports: &[Port], is_met: impl Fn(usize) -> bool) -> Vec<&Port> {
    (0..ports.len()).filter(|at| !is_met(*at)).map(|at| &ports[at]).collect()
}

/// Why a way does not work, of the end that knows more.
fn trouble(way: &Way) -> Option<&Trouble> {
    match (&way.low, &way.high) {
        (Ok(_), Ok(_)) => None,
        (Err(low), Err(high)) => Some(if low.is_told && !high.is_told { high } else { low }),
        (Err(trouble), _) | (_, Err(trouble)) => Some(trouble),
    }
}

/// What to do about it.
fn advice(low: &End, high: &End, way: &Way, trouble: &Trouble) -> String {
    match way.rail {
        None => "is there a route, and does a firewall let TCP pass between all ports? \
                 (RINGFOLD_SOCKET_IFNAME chooses another interface)"
            .to_owned(),
        Some((one, other)) if trouble.is_long && low.ports[one].mtu > 0 => {
            let mtu = low.ports[one].mtu.min(high.ports[other].mtu);
            format!(
                "short messages pass and long ones do not, so something between carries shorter \
                 packets than the ports send: give switches and interfaces an MTU above {mtu} \
                 (`ping -M do -s {mtu}`)"
            )
        }
        Some(_) if trouble.is_told => "see the lines above".to_owned(),
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

    use super::super::end::Card;
    use super::*;

    fn end(rank: usize, kind: u8, gid: [u8; 16]) -> End {
        let name = format!("dev{rank}:1");
        let port = Port { name, kind, gigabits: 100, mtu: 4096, gid, ..Port::default() };
        let card = Card {
            host: format!("h{rank}"),
            interface: "eth0".to_owned(),
            shm: false,
            findings: Vec::new(),
            ports: Vec::new(),
        };
        End { rank: Rank::at(rank), ranks: 1, card, ports: vec![port] }
    }

    /// Addresses have nothing to do with it where the networks are of different kinds.
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
            let pair = Pair { low: 0, high: 1, ways: Vec::new() };
            let mut lines = Lines::default();
            lines.of_pair(&low, &high, &pair);
            let [(State::Bad, line)] = &lines.0[..] else { panic!("{:?}", lines.0) };
            assert!(line.starts_with("h0 #0 - h1 #1: ") && line.contains(what), "{line}");
        }
    }
}
