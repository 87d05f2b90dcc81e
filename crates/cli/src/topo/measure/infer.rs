//! Infers rails, and rails with a common bottleneck, from the results of probes and flows.

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::fabric::{Classification, Fabric, HostPlace, Kind, Oddity, Place};
use ringfold_topology::site::{Measured, Reach};

use super::matrix::{Carried, MatrixResults, Probe};
use super::nic::Endpoint;

/// Two flows are apart if their sum at once lacks at most this part of the slower flow's rate.
/// Two flows that share everything lack all of it.
const LOSS_MAX: f64 = 0.4;
/// Two rails share a link if one pairing in about this many shows it.
const SHARED_PART: usize = 5;

pub(super) struct Result {
    pub(super) found: Classification,
    pub(super) measured: Vec<Measured>,
}

/// Infers the rails of `fabric`. `known` has the place of each port from a site file, or is empty.
pub(super) fn infer(
    ends: &[Endpoint],
    results: &MatrixResults,
    fabric: &Fabric,
    known: Vec<Option<Place>>,
) -> Result {
    let ports = Ports::new(ends, &results.probes);
    let rails = if known.iter().any(Option::is_some) {
        Rails::known(&ports, known)
    } else {
        Rails::of(&ports, results)
    };
    let measured = measured(&ports, &rails, results);
    let mut found = classification(&ports, &rails, fabric);
    found.crosses = crosses(&rails, &measured, results);
    found.oddities.extend(ports.lonely().map(|port| Oddity {
        port: Some(port),
        what: "no probe to it or from it was answered".to_owned(),
    }));
    found.oddities.extend(ports.unanswered(&rails));
    found.oddities.extend(shared(&measured));
    Result { found, measured }
}

/// The NICs of all ends by their index in the fabric, and their connectivity.
struct Ports<'a> {
    ends: &'a [Endpoint],
    /// The index of the first NIC of each end.
    first: Vec<usize>,
    /// The end of each NIC.
    end_of: Vec<usize>,
    /// The two NICs of each probe, and whether it was answered.
    probes: Vec<([usize; 2], bool)>,
    /// The lowest NIC that each NIC reaches, directly or through others.
    network: Vec<usize>,
}

impl<'a> Ports<'a> {
    fn new(ends: &'a [Endpoint], probes: &[Probe]) -> Self {
        let mut first = Vec::new();
        let mut end_of = Vec::new();
        for (number, end) in ends.iter().enumerate() {
            first.push(end_of.len());
            end_of.extend(end.nics.iter().map(|_| number));
        }
        let mut this =
            Self { ends, first, network: (0..end_of.len()).collect(), end_of, probes: Vec::new() };
        for probe in probes {
            let both = this.both(probe.ends, probe.nics);
            this.probes.push((both, probe.is_answered));
            if probe.is_answered {
                let [low, high] = both.map(|port| this.network[port]);
                let (low, high) = (low.min(high), low.max(high));
                this.network.iter_mut().filter(|it| **it == high).for_each(|it| *it = low);
            }
        }
        this
    }

    fn both(&self, ends: [usize; 2], nics: [usize; 2]) -> [usize; 2] {
        [self.first[ends[0]] + nics[0], self.first[ends[1]] + nics[1]]
    }

    fn nic(&self, port: usize) -> usize {
        port - self.first[self.end_of[port]]
    }

    /// Returns the networks of two or more NICs.
    fn networks(&self) -> Vec<Vec<usize>> {
        let mut networks = self.sets(0..self.end_of.len(), |port| self.network[port]);
        networks.retain(|ports| ports.len() > 1);
        networks
    }

    /// Returns the IP subnets of these NICs, if each has two NICs and no host has two in one.
    fn subnets(&self, of: &BTreeSet<usize>) -> Option<Vec<Vec<usize>>> {
        let subnet = |port: usize| self.ends[self.end_of[port]].nics[self.nic(port)].subnet();
        let subnets = self.sets(of.iter().copied(), subnet);
        subnets.iter().all(|ports| ports.len() > 1 && self.is_rail(ports)).then_some(subnets)
    }

    /// Returns the sets of NICs with equal keys. Sets with the first NICs of hosts come first.
    fn sets<K: Ord>(
        &self,
        ports: impl Iterator<Item = usize>,
        key: impl Fn(usize) -> K,
    ) -> Vec<Vec<usize>> {
        let mut sets: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        ports.for_each(|port| sets.entry(key(port)).or_default().push(port));
        let mut sets: Vec<_> = sets.into_values().collect();
        sets.sort_by_key(|ports| ports.iter().map(|port| (self.nic(*port), *port)).min());
        sets
    }

    /// Returns whether every host has at most one of these NICs.
    fn is_rail(&self, ports: &[usize]) -> bool {
        let ends: BTreeSet<usize> = ports.iter().map(|port| self.end_of[*port]).collect();
        ends.len() == ports.len()
    }

    fn lonely(&self) -> impl Iterator<Item = usize> {
        let answered: BTreeSet<usize> =
            self.probes.iter().filter(|probe| probe.1).flat_map(|probe| probe.0).collect();
        (0..self.end_of.len()).filter(move |port| !answered.contains(port))
    }

    fn name(&self, port: usize) -> String {
        let end = &self.ends[self.end_of[port]];
        format!("{} {}", end.host, end.nics[self.nic(port)].interface)
    }

    /// Returns the unanswered probes within a rail, between NICs that others reach.
    fn unanswered(&self, rails: &Rails) -> Vec<Oddity> {
        let lonely: BTreeSet<usize> = self.lonely().collect();
        let failed = self.probes.iter().filter(|(both, is_answered)| {
            let [one, other] = both.map(|port| rails.places[port]);
            !is_answered
                && one.is_some()
                && one == other
                && both.iter().all(|port| !lonely.contains(port))
        });
        let oddity = |(both, _): &([usize; 2], bool)| Oddity {
            port: Some(both[0]),
            what: format!("does not reach {} on its rail", self.name(both[1])),
        };
        failed.map(oddity).collect()
    }
}

/// The rails that the probes, or a site file, show.
struct Rails {
    places: Vec<Option<Place>>,
    certainty: Certainty,
    /// Number of rails; 0 without rails.
    count: usize,
    /// Whether no probe from one rail to another was answered.
    are_separate: bool,
    because: String,
}

impl Rails {
    /// Returns the rails of a site file.
    fn known(ports: &Ports<'_>, places: Vec<Option<Place>>) -> Self {
        let crosses = |probe: &([usize; 2], bool)| {
            let [one, other] = probe.0.map(|port| places[port].map(|place| place.rail));
            probe.1 && one.zip(other).is_some_and(|(one, other)| one != other)
        };
        let rails: BTreeSet<u16> = places.iter().flatten().map(|place| place.rail).collect();
        Self {
            are_separate: !ports.probes.iter().any(crosses),
            certainty: Certainty::Certain,
            count: if rails.len() > 1 { rails.len() } else { 0 },
            because: "the site file says so".to_owned(),
            places,
        }
    }

    fn of(ports: &Ports<'_>, results: &MatrixResults) -> Self {
        let networks = ports.networks();
        let reached: BTreeSet<usize> = networks.iter().flatten().copied().collect();
        let are_separate = networks.len() > 1 && networks.iter().all(|it| ports.is_rail(it));
        let (sets, is_known, because) = if are_separate {
            let count = networks.len();
            (networks, true, format!("{count} sets of NICs answer probes among themselves only"))
        } else if ports.ends.iter().all(|end| end.nics.len() == 1) {
            (vec![reached.into_iter().collect()], true, "each host has one NIC".to_owned())
        } else if let Some(subnets) = ports.subnets(&reached) {
            let because = format!("NICs are in {} IP subnets, and probes cross", subnets.len());
            (subnets, true, because)
        } else {
            // Probes cross, so the order of NICs on the host is the only hint.
            let because = "probes cross, so rails are by order on the host".to_owned();
            (ports.sets(reached.into_iter(), |port| ports.nic(port)), false, because)
        };
        let mut places = vec![None; ports.end_of.len()];
        for (rail, set) in sets.iter().enumerate() {
            let place = u16::try_from(rail).ok().map(|rail| Place { rail, plane: 0 });
            set.iter().for_each(|port| places[*port] = place);
        }
        let within = |probe: &&([usize; 2], bool)| {
            let [one, other] = probe.0.map(|port| places[port]);
            one.is_some() && one == other
        };
        let is_complete = ports.probes.iter().filter(within).all(|probe| probe.1);
        let is_certain = results.is_complete && is_complete && is_known;
        Self {
            places,
            certainty: if is_certain { Certainty::Certain } else { Certainty::Likely },
            count: if sets.len() > 1 { sets.len() } else { 0 },
            are_separate,
            because,
        }
    }
}

fn classification(ports: &Ports<'_>, rails: &Rails, fabric: &Fabric) -> Classification {
    let networks = ports.networks();
    let because = || rails.because.clone();
    let (kind, certainty) = if rails.are_separate {
        (Kind::RailOnly, Certainty::Likely)
    } else {
        (Kind::Other { levels: 0 }, Certainty::Unknown)
    };
    let subnet_of = |port: usize| {
        let at = networks.iter().position(|network| network.contains(&port));
        at.and_then(|at| u32::try_from(at).ok())
    };
    let host = |(order, end): (usize, &Endpoint)| HostPlace {
        host: end.host.clone(),
        pod: 0,
        group: 0,
        order: u32::try_from(order).unwrap_or(u32::MAX),
    };
    let certainty_of = |place: &Option<Place>| match place {
        Some(_) => rails.certainty,
        None => Certainty::Unknown,
    };
    Classification {
        kind: Finding { value: kind, certainty, because: because() },
        rails: Finding {
            value: u16::try_from(rails.count).unwrap_or(u16::MAX),
            certainty: rails.certainty,
            because: because(),
        },
        planes: Finding {
            value: 1,
            certainty: Certainty::Likely,
            because: "probes do not distinguish planes from rails".to_owned(),
        },
        subnets: Finding {
            value: u32::try_from(networks.len()).unwrap_or(u32::MAX),
            certainty: Certainty::Likely,
            because: because(),
        },
        places: rails.places.iter().map(|place| (*place, certainty_of(place))).collect(),
        subnet_of: (0..fabric.ports.len()).map(subnet_of).collect(),
        hosts: ports.ends.iter().enumerate().map(host).collect(),
        crosses: Finding { value: false, certainty: Certainty::Unknown, because: because() },
        oddities: Vec::new(),
    }
}

/// Returns whether ports on different rails reach each other.
fn crosses(rails: &Rails, measured: &[Measured], results: &MatrixResults) -> Finding<bool> {
    let across: Vec<Reach> =
        measured.iter().filter(|it| it.between[0] != it.between[1]).map(|it| it.reach).collect();
    let finding =
        |value, certainty, because: &str| Finding { value, certainty, because: because.to_owned() };
    let sure = if results.is_complete { Certainty::Certain } else { Certainty::Likely };
    if across.is_empty() {
        finding(false, Certainty::Unknown, "there are no two rails")
    } else if rails.are_separate {
        finding(false, sure.min(rails.certainty), "no probe between rails was answered")
    } else if across.iter().all(|reach| *reach == Reach::All) {
        finding(true, sure, "every probe between rails was answered")
    } else {
        finding(true, Certainty::Likely, "some probes between rails were answered")
    }
}

/// Returns the result of each two places.
fn measured(ports: &Ports<'_>, rails: &Rails, results: &MatrixResults) -> Vec<Measured> {
    let between = |both: [usize; 2]| {
        let [one, other] = both.map(|port| rails.places[port]);
        let (one, other) = (one?, other?);
        Some([one.min(other), one.max(other)])
    };
    let mut answers: BTreeMap<[Place; 2], Vec<bool>> = BTreeMap::new();
    for (both, is_answered) in &ports.probes {
        if let Some(between) = between(*both) {
            answers.entry(between).or_default().push(*is_answered);
        }
    }
    let apart = apart(ports, rails, results);
    let measured = |(between, answers): ([Place; 2], Vec<bool>)| Measured {
        between,
        reach: match (answers.contains(&true), answers.contains(&false)) {
            (true, false) => Reach::All,
            (true, true) => Reach::Some,
            _ => Reach::None,
        },
        are_apart: apart.get(&between).copied(),
    };
    answers.into_iter().map(measured).collect()
}

/// Returns, for each two places, whether their flows are apart in nearly all pairings.
fn apart(ports: &Ports<'_>, rails: &Rails, results: &MatrixResults) -> BTreeMap<[Place; 2], bool> {
    let mut by_pairing: BTreeMap<[usize; 2], Vec<&Carried>> = BTreeMap::new();
    for carried in &results.carried {
        by_pairing.entry(carried.ends).or_default().push(carried);
    }
    let mut votes: BTreeMap<[Place; 2], [usize; 2]> = BTreeMap::new();
    for (ends, carried) in by_pairing {
        for (nics, is_apart) in votes_of(&carried) {
            let place = |nics| {
                let [one, other] = ports.both(ends, nics).map(|port| rails.places[port]);
                one.filter(|_| one == other)
            };
            let [Some(one), Some(other)] = nics.map(place) else { continue };
            let between = [one.min(other), one.max(other)];
            votes.entry(between).or_default()[usize::from(is_apart)] += 1;
        }
    }
    // Hosts below one switch do not see a bottleneck above it.
    votes.into_iter().map(|(between, [no, yes])| (between, no * SHARED_PART <= yes)).collect()
}

/// Returns, for each two flows of a pairing, whether they are apart. Two flows with a loss are left
/// out if CPU time was the limit.
fn votes_of(carried: &[&Carried]) -> Vec<([[usize; 2]; 2], bool)> {
    let steps = steps(carried);
    // Other load only slows flows, so the fastest of several counts.
    let mut alone: BTreeMap<[usize; 2], f64> = BTreeMap::new();
    let mut both: BTreeMap<[[usize; 2]; 2], (f64, bool)> = BTreeMap::new();
    for step in steps.values() {
        match step[..] {
            [(nics, rate, _)] => {
                let best = alone.entry(nics).or_default();
                *best = best.max(rate);
            }
            [(one, rate, is_starved), (other, other_rate, is_other_starved)] => {
                let best = both.entry([one, other]).or_insert((0.0, true));
                best.0 = best.0.max(rate + other_rate);
                best.1 &= is_starved || is_other_starved;
            }
            _ => {}
        }
    }
    let vote = |(nics, (rate, is_starved)): ([[usize; 2]; 2], (f64, bool))| {
        let [one, other] = nics.map(|nics| alone.get(&nics).copied().unwrap_or(0.0));
        if one <= 0.0 || other <= 0.0 || rate <= 0.0 {
            return None;
        }
        let is_apart = (one + other - rate) / one.min(other) <= LOSS_MAX;
        (is_apart || !is_starved).then_some((nics, is_apart))
    };
    both.into_iter().filter_map(vote).collect()
}

/// A flow's NICs, its rate, and whether a CPU was its limit.
type Ran = ([usize; 2], f64, bool);

/// Joins both ends' reports of each step: the receiver's rate, and either end's lack of CPU time.
/// Steps with a broken flow are left out.
fn steps(carried: &[&Carried]) -> BTreeMap<usize, Vec<Ran>> {
    let mut steps: BTreeMap<usize, Option<Vec<Ran>>> = BTreeMap::new();
    for report in carried {
        let own: Option<Vec<Ran>> = report
            .flows
            .iter()
            .map(|(nics, flow)| flow.map(|flow| (*nics, flow.rate, flow.is_starved)))
            .collect();
        let join = |theirs: Vec<Ran>| -> Option<Vec<Ran>> {
            let own = own.clone()?;
            let both = own.iter().zip(theirs);
            Some(both.map(|(a, b)| (a.0, a.1.max(b.1), a.2 || b.2)).collect())
        };
        let joined = match steps.remove(&report.step) {
            None => own,
            Some(theirs) => theirs.and_then(join),
        };
        steps.insert(report.step, joined);
    }
    steps.into_iter().filter_map(|(step, ran)| Some((step, ran?))).collect()
}

/// Describes the rails with a common bottleneck.
fn shared(measured: &[Measured]) -> impl Iterator<Item = Oddity> {
    measured.iter().filter(|it| it.are_apart == Some(false)).map(|it| {
        let [one, other] = it.between.map(|place| place.rail);
        Oddity {
            port: None,
            what: format!("rails {one} and {other} at once carry less than both alone"),
        }
    })
}

#[cfg(test)]
mod tests {
    //! Rails inferred from made-up measurements.

    use std::net::IpAddr;

    use ringfold_types::Rank;

    use super::super::flows::Flow;
    use super::super::nic::{Nic, fabric};
    use super::*;

    /// Returns hosts with NICs in these IP networks.
    fn ends(networks: &[&[u8]]) -> Vec<Endpoint> {
        let nic = |host: usize, place: usize, network: u8| Nic {
            interface: format!("eth{place}"),
            device: String::new(),
            number: 1,
            address: IpAddr::from([10, 0, network, u8::try_from(host).unwrap()]),
            prefix: 24,
            guid: 0,
            mac: u64::try_from(host * 100 + place + 1).unwrap(),
            gbps: 100,
        };
        let end = |(host, networks): (usize, &&[u8])| Endpoint {
            rank: Rank::at(host),
            host: format!("host{host}"),
            nics: networks.iter().enumerate().map(|(place, it)| nic(host, place, *it)).collect(),
        };
        networks.iter().enumerate().map(end).collect()
    }

    /// Returns all probes between these hosts, with answers where `answers` says so.
    fn probed(ends: &[Endpoint], answers: impl Fn(&Nic, &Nic) -> bool) -> MatrixResults {
        let mut probes = Vec::new();
        for low in 0..ends.len() {
            for high in low + 1..ends.len() {
                for (i, one) in ends[low].nics.iter().enumerate() {
                    for (j, other) in ends[high].nics.iter().enumerate() {
                        let is_answered = answers(one, other);
                        probes.push(Probe { ends: [low, high], nics: [i, j], is_answered });
                    }
                }
            }
        }
        MatrixResults { probes, carried: Vec::new(), is_complete: true }
    }

    fn inferred(ends: &[Endpoint], results: &MatrixResults, known: Vec<Option<Place>>) -> Result {
        infer(ends, results, &fabric(ends), known)
    }

    fn rails(result: &Result) -> Vec<Option<u16>> {
        result.found.places.iter().map(|(place, _)| place.map(|place| place.rail)).collect()
    }

    fn is_one_subnet(one: &Nic, other: &Nic) -> bool {
        one.subnet() == other.subnet()
    }

    #[test]
    fn nics_that_answer_each_other_only_are_a_rail() {
        // The second host carries the rails in another order, and the third lacks one.
        let ends = ends(&[&[0, 1, 2], &[2, 0, 1], &[1, 2]]);
        let result = inferred(&ends, &probed(&ends, is_one_subnet), Vec::new());
        let wanted = [0, 1, 2, 2, 0, 1, 1, 2].map(Some);
        // The numbers are arbitrary. Only their equality counts.
        let seen = rails(&result);
        for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))) {
            assert_eq!(seen[a] == seen[b], wanted[a] == wanted[b], "{seen:?}");
        }
        let found = &result.found;
        assert!(found.places.iter().all(|place| place.1 == Certainty::Certain));
        assert_eq!((found.rails.value, found.rails.certainty), (3, Certainty::Certain));
        assert_eq!((found.crosses.value, found.crosses.certainty), (false, Certainty::Certain));
        assert_eq!((&found.kind.value, found.kind.certainty), (&Kind::RailOnly, Certainty::Likely));
        assert!(found.oddities.is_empty(), "{:?}", found.oddities);
        for measured in &result.measured {
            let is_one = measured.between[0] == measured.between[1];
            assert_eq!(measured.reach, if is_one { Reach::All } else { Reach::None });
        }
    }

    #[test]
    fn an_answer_that_fails_within_a_rail_makes_it_likely() {
        let ends = ends(&[&[0, 1], &[0, 1], &[0, 1]]);
        let fails = |one: &Nic, other: &Nic| one.mac == 2 && other.mac == 102;
        let results = probed(&ends, |one, other| is_one_subnet(one, other) && !fails(one, other));
        let result = inferred(&ends, &results, Vec::new());
        assert_eq!(result.found.rails.certainty, Certainty::Likely);
        let oddities = &result.found.oddities;
        assert_eq!((oddities.len(), oddities[0].port), (1, Some(1)), "{oddities:?}");
        assert!(oddities[0].what.contains("host1 eth1"), "{oddities:?}");
    }

    #[test]
    fn a_nic_that_nobody_answers_has_no_rail() {
        let ends = ends(&[&[0, 1], &[0, 7], &[0, 1]]);
        let result = inferred(&ends, &probed(&ends, is_one_subnet), Vec::new());
        assert_eq!(rails(&result), [Some(0), Some(1), Some(0), None, Some(0), Some(1)]);
        let oddities = &result.found.oddities;
        assert_eq!((oddities.len(), oddities[0].port), (1, Some(3)), "{oddities:?}");
    }

    #[test]
    fn hosts_that_did_not_meet_leave_it_likely() {
        let ends = ends(&[&[0, 1], &[0, 1]]);
        let results = MatrixResults { is_complete: false, ..probed(&ends, is_one_subnet) };
        let found = inferred(&ends, &results, Vec::new()).found;
        assert_eq!([found.rails.certainty, found.crosses.certainty], [Certainty::Likely; 2]);
    }

    #[test]
    fn where_all_nics_answer_subnets_are_rails_and_order_is_a_guess() {
        let by_subnet = ends(&[&[0, 1], &[1, 0]]);
        let result = inferred(&by_subnet, &probed(&by_subnet, |_, _| true), Vec::new());
        assert_eq!(rails(&result), [Some(0), Some(1), Some(1), Some(0)]);
        assert_eq!(result.found.rails.certainty, Certainty::Certain);
        assert_eq!(
            (result.found.crosses.value, result.found.crosses.certainty),
            (true, Certainty::Certain)
        );
        let by_order = ends(&[&[0, 0], &[0, 0]]);
        let result = inferred(&by_order, &probed(&by_order, |_, _| true), Vec::new());
        assert_eq!(rails(&result), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(result.found.rails.certainty, Certainty::Likely);
    }

    #[test]
    fn places_of_a_site_file_stay() {
        let ends = ends(&[&[0, 1], &[0, 1], &[0, 1]]);
        let place = |rail| Some(Place { rail, plane: 3 });
        let known = vec![place(5), place(9), place(5), place(9), place(5), None];
        let fails = |one: &Nic, other: &Nic| one.mac == 1 && other.mac == 201;
        let results = probed(&ends, |one, other| is_one_subnet(one, other) && !fails(one, other));
        let result = inferred(&ends, &results, known);
        let reach: Vec<_> =
            result.measured.iter().map(|it| (it.between.map(|p| p.rail), it.reach)).collect();
        assert_eq!(reach, [([5, 5], Reach::Some), ([5, 9], Reach::None), ([9, 9], Reach::All)]);
        assert!(!result.found.crosses.value);
    }

    /// Returns both ends' reports of two flows: each alone, then both at once for each of `both`.
    fn carried(alone: [f64; 2], both: &[(f64, bool)]) -> Vec<Carried> {
        let flow = |rate, is_starved| Some(Flow { rate, is_starved });
        let mut reports = Vec::new();
        for (step, flows) in [vec![(0, alone[0])], vec![(1, alone[1])]].into_iter().enumerate() {
            let flows =
                flows.into_iter().map(|(nic, rate)| ([nic, nic], flow(rate, false))).collect();
            reports.push(Carried { ends: [0, 1], step, flows });
        }
        for (number, (rate, is_starved)) in both.iter().enumerate() {
            for is_receiver in [true, false] {
                let rate = if is_receiver { rate / 2.0 } else { 0.0 };
                let flows = [0, 1].map(|nic| ([nic, nic], flow(rate, !is_receiver && *is_starved)));
                reports.push(Carried { ends: [0, 1], step: 2 + number, flows: flows.to_vec() });
            }
        }
        reports
    }

    fn are_apart(carried: Vec<Carried>) -> Option<bool> {
        let ends = ends(&[&[0, 1], &[0, 1]]);
        let results = MatrixResults { carried, ..probed(&ends, is_one_subnet) };
        let measured = inferred(&ends, &results, Vec::new()).measured;
        let between = [0, 1].map(|rail| Place { rail, plane: 0 });
        measured.iter().find(|it| it.between == between).unwrap().are_apart
    }

    #[test]
    fn two_flows_share_what_both_lose() {
        assert_eq!(are_apart(carried([1e9, 1e9], &[(1e9, false)])), Some(false));
        assert_eq!(are_apart(carried([1e9, 1e9], &[(1.9e9, false)])), Some(true));
        // A slow rail and a fast one on a link that the fast one fills.
        assert_eq!(are_apart(carried([1e9, 1e8], &[(1e9, false)])), Some(false));
        assert_eq!(are_apart(carried([1e9, 1e8], &[(1.09e9, false)])), Some(true));
        // Other load slows a flow now and then; nothing makes it faster.
        assert_eq!(are_apart(carried([1e9, 1e9], &[(1.1e9, false), (1.9e9, false)])), Some(true));
    }

    #[test]
    fn flows_that_lack_cpu_time_tell_nothing_of_sharing() {
        assert_eq!(are_apart(carried([1e9, 1e9], &[(1e9, true)])), None);
        assert_eq!(are_apart(carried([1e9, 1e9], &[(1.9e9, true)])), Some(true));
        assert_eq!(are_apart(carried([1e9, 1e9], &[(1e9, true), (1e9, false)])), Some(false));
        assert_eq!(are_apart(Vec::new()), None);
    }

    #[test]
    fn a_flow_that_broke_leaves_its_step_out() {
        let mut reports = carried([1e9, 1e9], &[(1e9, false), (1.9e9, false)]);
        reports[4].flows[0].1 = None;
        assert_eq!(are_apart(reports.clone()), Some(false));
        reports[2].flows[1].1 = None;
        assert_eq!(are_apart(reports), None);
    }
}
