//! The conclusions from all ranks' evidence: the layout, the labels of ports, the addresses by
//! rail, and a report for the log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ringfold_bootstrap::RankList;
use ringfold_topology::Layout;
use ringfold_topology::agree::{Agreement, RankEvidence, agree};
use ringfold_topology::certainty::Certainty;
use ringfold_topology::evidence::PortEvidence;
use ringfold_topology::fabric::Place;
use ringfold_topology::machine::Network;
use ringfold_transport::rdma::{OpenPort, Rails};
use ringfold_transport::tcp::{PeerRoutes, Route};
use ringfold_types::Rank;

use super::exchange::AllEvidence;
use crate::setup::discover::evidence_name;

/// The most lines of the report about ports. Ranks with the same ports share a line.
const LINES_MAX: usize = 16;

/// The fabric on which the ranks agree; empty if no rank had evidence of use.
#[derive(Debug, Default)]
pub(crate) struct Fabric {
    answer: Option<(AllEvidence, Agreement)>,
}

/// An address on which a rank listens for TCP, with the place of its port.
#[derive(Clone, Copy, Debug)]
struct TcpPort {
    address: SocketAddr,
    place: Option<Place>,
    is_preferred: bool,
}

impl Fabric {
    pub(crate) fn of(gathered: Option<AllEvidence>) -> Self {
        let answer = gathered.map(|gathered| {
            let agreement = agree(&gathered.known);
            (gathered, agreement)
        });
        Self { answer }
    }

    /// Adds the certain facts about hosts and rails to `layout`. The rails are those of RDMA if the
    /// layout has RDMA, else those of TCP.
    pub(crate) fn layout(&self, mut layout: Layout) -> Layout {
        let Some((gathered, agreement)) = &self.answer else { return layout };
        let has_rdma = layout.has_rdma();
        if let Some(paths) = agreement.paths() {
            layout = layout.with_paths(&paths);
        }
        let reach = agreement.reach(&gathered.known, |it| has_rdma == (it != Network::Tcp));
        if let Some(reach) = reach {
            layout = layout.with_reach(&reach);
        }
        layout.with_crossing_rails(agreement.crosses == Some(true))
    }

    /// Labels the open ports of `rank` by their names in its evidence. A port may have gone or come
    /// since then.
    pub(crate) fn label(&self, rank: Rank, rails: &mut Rails) {
        let Some((gathered, agreement)) = &self.answer else { return };
        let RankEvidence { evidence, preferred, .. } = gathered.known.ranks[rank.index()];
        let Some(index) = evidence.map(|index| index as usize) else { return };
        let ports = &gathered.known.evidence[index].evidence.ports;
        let is_same = |it: &PortEvidence, open: &OpenPort| {
            it.network == open.network && it.name == evidence_name(&open.name)
        };
        let open = rails.ports();
        let known: Vec<Option<usize>> =
            open.iter().map(|open| ports.iter().position(|it| is_same(it, open))).collect();
        let labels: Vec<Option<Place>> =
            known.iter().map(|at| at.and_then(|at| agreement.labels[index][at])).collect();
        let is_preferred = |at: &Option<usize>| at.is_some_and(|at| preferred >> at & 1 != 0);
        let preferred: Vec<bool> = known.iter().map(is_preferred).collect();
        rails.label(&labels);
        if are_certain(&labels, &preferred) {
            rails.prefer(&preferred);
        }
        rails.crosses(agreement.crosses == Some(true));
    }

    /// The number of rails that every rank reaches by TCP; 0 if none is known.
    pub(crate) fn tcp_rails(&self) -> usize {
        let Some((gathered, _)) = &self.answer else { return 0 };
        let places = |rank| -> BTreeSet<Place> {
            self.tcp_ports(Rank::at(rank)).iter().filter_map(|port| port.place).collect()
        };
        let all = (0..gathered.tcp.len()).map(places);
        all.reduce(|a, b| &a & &b).map_or(0, |common| common.len())
    }

    /// The routes by TCP from this `rank` to `peer`: first the rails that both, or else one of
    /// them, prefer, then the other rails that both have. Both ends find the same rails in the same
    /// order. Empty if they have no rail in common, or no rail is known.
    pub(crate) fn routes(&self, rank: Rank, peer: Rank) -> PeerRoutes {
        let [own, theirs] = [rank, peer].map(|rank| self.tcp_ports(rank));
        let placed = |tcp_ports: &[TcpPort]| -> Vec<(Place, SocketAddr)> {
            tcp_ports.iter().filter_map(|port| Some((port.place?, port.address))).collect()
        };
        let all = Route::by_rail(&placed(&own), &placed(&theirs));
        let prefers = |tcp_ports: &[TcpPort], address: IpAddr| {
            let is_preferred = |port: &TcpPort| port.is_preferred && port.address.ip() == address;
            tcp_ports.iter().any(is_preferred) || !tcp_ports.iter().any(|port| port.is_preferred)
        };
        let liked = |way: &Route| {
            let here = way.from.is_some_and(|from| prefers(&own, from));
            usize::from(here) + usize::from(prefers(&theirs, way.to.ip()))
        };
        let most = all.iter().map(liked).max();
        let (rails, others) = all.into_iter().partition(|way| Some(liked(way)) == most);
        PeerRoutes { rails, others }
    }

    /// The report: layout, evidence, and the rails and ports of each rank. Ranks with the same
    /// ports share a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some((gathered, agreement)) = &self.answer else {
            return vec!["topology: no rank has evidence beyond the hosts of the ranks".to_owned()];
        };
        let hosts = &agreement.hosts;
        let count = |of: BTreeSet<u32>, noun: &str| match of.len() {
            0 => String::new(),
            1 => format!(", 1 {noun}"),
            many => format!(", {many} {noun}s"),
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
        for rank in (0..gathered.known.ranks.len()).map(Rank::at) {
            alike.entry(self.ports(rank)).or_default().push(rank);
        }
        let mut alike: Vec<(String, Vec<Rank>)> = alike.into_iter().collect();
        alike.sort_by_key(|(_, ranks)| ranks.first().copied());
        let more = alike.len().saturating_sub(LINES_MAX);
        for (ports, ranks) in alike.into_iter().take(LINES_MAX) {
            lines.push(format!("topology: {}: {ports}", RankList(&ranks)));
        }
        if more > 0 {
            lines.push(format!("topology: {more} more kinds of ranks"));
        }
        let ignored = agreement.ignored.iter();
        lines.extend(ignored.map(|what| format!("topology: ignored: {what}")));
        lines
    }

    /// The ports that a rank prefers, or all if it prefers none, each with its place.
    fn ports(&self, rank: Rank) -> String {
        let Some((gathered, agreement)) = &self.answer else { return String::new() };
        let RankEvidence { evidence, preferred, .. } = gathered.known.ranks[rank.index()];
        let Some(index) = evidence.map(|index| index as usize) else {
            return "no port is known".to_owned();
        };
        let ports = &gathered.known.evidence[index].evidence.ports;
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

    fn tcp_ports(&self, rank: Rank) -> Vec<TcpPort> {
        let Some((gathered, agreement)) = &self.answer else { return Vec::new() };
        let RankEvidence { evidence, preferred, .. } = gathered.known.ranks[rank.index()];
        let labels = evidence.map(|index| &agreement.labels[index as usize]);
        let port = |(port, address): &(u8, SocketAddr)| TcpPort {
            address: *address,
            place: labels.and_then(|labels| labels.get(usize::from(*port)).copied().flatten()),
            is_preferred: preferred.checked_shr(u32::from(*port)).unwrap_or(0) & 1 != 0,
        };
        gathered.tcp[rank.index()].iter().map(port).collect()
    }
}

/// Whether the rails of all preferred ports are known.
fn are_certain(labels: &[Option<Place>], preferred: &[bool]) -> bool {
    labels.iter().zip(preferred).all(|(label, is_preferred)| !is_preferred || label.is_some())
}

#[cfg(test)]
mod tests {
    use ringfold_topology::agree::{HostEvidence, Known};
    use ringfold_topology::evidence::{Attached, Evidence, Source};

    use super::*;

    const fn declared(rail: u16) -> Attached {
        Attached::Rail(Place { rail, plane: 0 }, Source::Declared)
    }

    /// One rank for each host, with an interface on each of these rails, and a mask of the ports
    /// that it prefers.
    fn agreed(ranks: &[(&[u16], u32)]) -> Fabric {
        let (mut known, mut tcp) = (Known::default(), Vec::new());
        for (host, (rails, preferred)) in (0..).zip(ranks) {
            let port = |(at, rail): (usize, &u16)| PortEvidence {
                name: format!("eth{at}"),
                network: Network::Tcp,
                gbps: 0,
                attached: vec![declared(*rail)],
            };
            let ports = rails.iter().enumerate().map(port).collect();
            let evidence = Evidence { ports, ..Evidence::default() };
            known.machines.push(host);
            known.evidence.push(HostEvidence { host, evidence });
            known.ranks.push(RankEvidence { host, evidence: Some(host), preferred: *preferred });
            let ports = u8::try_from(rails.len()).unwrap();
            let address = |at| SocketAddr::from(([10, at, 0, u8::try_from(host).unwrap()], 1));
            tcp.push((0..ports).map(|at| (at, address(at))).collect());
        }
        Fabric::of(Some(AllEvidence { known, tcp }))
    }

    /// The second bytes of the addresses, which number the interfaces of the peer.
    fn routes(agreed: &Fabric, rank: u32, peer: u32) -> [Vec<u8>; 2] {
        let found = agreed.routes(Rank(rank), Rank(peer));
        let second = |route: Route| match route.to {
            SocketAddr::V4(address) => address.ip().octets()[1],
            SocketAddr::V6(_) => 255,
        };
        [found.rails, found.others].map(|routes| routes.into_iter().map(second).collect())
    }

    #[test]
    fn lanes_stay_on_rails_that_both_ends_have() {
        let all = agreed(&[(&[0, 1, 2], 0), (&[2, 0], 0), (&[5], 0)]);
        assert_eq!(routes(&all, 0, 1), [vec![1, 0], vec![]], "rails 0 and 2");
        assert_eq!(routes(&all, 1, 0), [vec![0, 2], vec![]], "the same, in the same order");
        assert_eq!((routes(&all, 0, 2), all.tcp_rails()), ([vec![], vec![]], 0));
        assert_eq!(agreed(&[(&[0, 1, 2], 0), (&[2, 0], 0)]).tcp_rails(), 2);
        assert_eq!(Fabric::default().routes(Rank(0), Rank(1)), PeerRoutes::default());
    }

    #[test]
    fn ends_use_the_rails_that_most_of_them_prefer() {
        let all = agreed(&[(&[0, 1], 1), (&[1, 0], 2), (&[0, 1], 2), (&[0, 1], 0)]);
        assert_eq!(routes(&all, 0, 1), [[1], [0]], "both prefer rail 0, and rail 1 is there");
        assert_eq!(routes(&all, 0, 2), [vec![0, 1], vec![]], "one each");
        assert_eq!(routes(&all, 0, 3), [[0], [1]], "one, and all");
        assert_eq!(routes(&all, 3, 2), [[1], [0]]);
    }

    #[test]
    fn ports_without_a_rail_are_not_preferred() {
        let [known, unknown] = [Some(Place { rail: 0, plane: 0 }), None];
        assert!(are_certain(&[known, unknown], &[true, false]));
        assert!(!are_certain(&[unknown, unknown], &[true, false]));
        assert!(!are_certain(&[known, unknown], &[true, true]));
    }

    #[test]
    fn a_layout_takes_what_is_certain() {
        let all = agreed(&[(&[0, 1], 1), (&[1], 0)]);
        let plain = Layout::from_host_names(&[0, 1]);
        let layout = all.layout(plain.clone());
        let reach = |rank| layout.reach(Rank(rank)).reaches.to_string();
        assert_eq!([reach(0), reach(1)], ["0,1", "1"]);
        assert_eq!(layout.reach(Rank(0)).prefers.to_string(), "0");
        assert!(layout.path(0).is_none() && !layout.rails_cross());
        assert!(!all.layout(plain.clone().with_rdma(true)).has_fabric(), "rails of TCP only");
        assert_eq!(Fabric::default().layout(plain.clone()), plain);
    }
}
