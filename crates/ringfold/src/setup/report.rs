//! What the ranks agree on, in a few lines for people.

use std::collections::{BTreeMap, BTreeSet};

use ringfold_bootstrap::RankList;
use ringfold_topology::agree::RankEvidence;
use ringfold_topology::certainty::Certainty;
use ringfold_topology::fabric::Place;
use ringfold_types::Rank;

use super::Agreed;

/// Lines about ports of ranks; there are as many kinds of ranks as a person reads.
const LINES_MAX: usize = 16;

impl Agreed {
    /// Layout, evidence, and the rails and ports of each rank. Ranks that are alike share a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some((told, agreement)) = &self.answer else {
            return vec!["topology: no rank knows more than which ranks share a host".to_owned()];
        };
        let hosts = &agreement.hosts;
        let count = |of: BTreeSet<u32>, what: &str| match of.len() {
            0 => String::new(),
            1 => format!(", 1 {what}"),
            many => format!(", {many} {what}s"),
        };
        let groups = count(hosts.value.iter().filter_map(|it| it.group).collect(), "leaf group");
        let pods = count(hosts.value.iter().filter_map(|it| it.pod).collect(), "pod");
        let order = match hosts.certainty {
            Certainty::Certain => "in fabric order",
            Certainty::Likely | Certainty::Unknown => "in the order of ranks",
        };
        let number = hosts.value.len();
        let mut lines =
            vec![format!("topology: {number} hosts {order}{groups}{pods}: {}", hosts.because)];
        let crosses = match agreement.crosses {
            Some(true) => ", which reach each other",
            Some(false) => ", which do not reach each other",
            None => "",
        };
        let rails: Vec<String> = agreement.rails.value.iter().map(ToString::to_string).collect();
        lines.push(match rails.is_empty() {
            true => format!("topology: rails unknown: {}", agreement.rails.because),
            false => {
                format!("topology: rails {}{crosses}: {}", rails.join(" "), agreement.rails.because)
            }
        });
        let mut alike: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
        for rank in (0..told.known.ranks.len()).map(Rank::at) {
            alike.entry(self.ports(rank)).or_default().push(rank);
        }
        let mut alike: Vec<(String, Vec<Rank>)> = alike.into_iter().collect();
        alike.sort_by_key(|(_, ranks)| ranks.first().copied());
        let more = alike.len().saturating_sub(LINES_MAX);
        for (ports, ranks) in alike.into_iter().take(LINES_MAX) {
            lines.push(format!("topology: {}: {ports}", RankList(&ranks)));
        }
        if more > 0 {
            lines.push(format!("topology: and {more} kinds of ranks more"));
        }
        let ignored = agreement.ignored.iter();
        lines.extend(ignored.map(|what| format!("topology: ignored: {what}")));
        lines
    }

    /// The ports that a rank prefers, or all of them, each with its place.
    fn ports(&self, rank: Rank) -> String {
        let Some((told, agreement)) = &self.answer else { return String::new() };
        let RankEvidence { evidence, preferred, .. } = told.known.ranks[rank.index()];
        let Some(index) = evidence.map(|index| index as usize) else {
            return "no port is known".to_owned();
        };
        let ports = &told.known.evidence[index].evidence.ports;
        let is_used = |at: usize| preferred == 0 || preferred >> at & 1 != 0;
        let used = ports.iter().zip(&agreement.labels[index]).enumerate();
        let texts = used.filter(|(at, _)| is_used(*at)).map(|(_, (port, label))| match label {
            Some(Place { rail, plane: 0 }) => format!("{} on rail {rail}", port.name),
            Some(Place { rail, plane }) => format!("{} on rail {rail}, plane {plane}", port.name),
            None => format!("{} on no known rail", port.name),
        });
        let texts: Vec<String> = texts.collect();
        if texts.is_empty() { "no port is known".to_owned() } else { texts.join("; ") }
    }
}
