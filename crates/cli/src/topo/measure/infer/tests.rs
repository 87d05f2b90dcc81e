//! Rails inferred from made-up measurements.

use std::net::IpAddr;

use ringfold_types::Rank;

use super::super::line::Flow;
use super::super::nic::{Nic, fabric};
use super::*;

/// Hosts with NICs in these IP networks.
fn ends(networks: &[&[u8]]) -> Vec<End> {
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
    let end = |(host, networks): (usize, &&[u8])| End {
        rank: Rank::at(host),
        host: format!("host{host}"),
        nics: networks.iter().enumerate().map(|(place, it)| nic(host, place, *it)).collect(),
    };
    networks.iter().enumerate().map(end).collect()
}

/// All probes between these hosts, of which those that `answers` says were answered.
fn probed(ends: &[End], answers: impl Fn(&Nic, &Nic) -> bool) -> Tried {
    let mut probes = Vec::new();
    for low in 0..ends.len() {
        for high in low + 1..ends.len() {
            for (i, one) in ends[low].nics.iter().enumerate() {
                for (j, other) in ends[high].nics.iter().enumerate() {
                    let nanos = answers(one, other).then_some(9_000);
                    probes.push(Probe { ends: [low, high], nics: [i, j], nanos });
                }
            }
        }
    }
    Tried { probes, carried: Vec::new(), is_all: true }
}

fn results(ends: &[End], tried: &Tried, known: Vec<Option<Place>>) -> Result {
    infer(ends, tried, &fabric(ends), known)
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
    let result = results(&ends, &probed(&ends, is_one_subnet), Vec::new());
    let wanted = [0, 1, 2, 2, 0, 1, 1, 2].map(Some);
    // Numbers are arbitrary; equal ones are not.
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
    let tried = probed(&ends, |one, other| is_one_subnet(one, other) && !fails(one, other));
    let result = results(&ends, &tried, Vec::new());
    assert_eq!(result.found.rails.certainty, Certainty::Likely);
    let oddities = &result.found.oddities;
    assert_eq!((oddities.len(), oddities[0].port), (1, Some(1)), "{oddities:?}");
    assert!(oddities[0].what.contains("host1 eth1"), "{oddities:?}");
}

#[test]
fn a_nic_that_nobody_answers_has_no_rail() {
    let ends = ends(&[&[0, 1], &[0, 7], &[0, 1]]);
    let result = results(&ends, &probed(&ends, is_one_subnet), Vec::new());
    assert_eq!(rails(&result), [Some(0), Some(1), Some(0), None, Some(0), Some(1)]);
    let oddities = &result.found.oddities;
    assert_eq!((oddities.len(), oddities[0].port), (1, Some(3)), "{oddities:?}");
}

#[test]
fn hosts_that_did_not_meet_leave_it_likely() {
    let ends = ends(&[&[0, 1], &[0, 1]]);
    let tried = Tried { is_all: false, ..probed(&ends, is_one_subnet) };
    let found = results(&ends, &tried, Vec::new()).found;
    assert_eq!([found.rails.certainty, found.crosses.certainty], [Certainty::Likely; 2]);
}

#[test]
fn where_all_nics_answer_subnets_are_rails_and_order_is_a_guess() {
    let by_subnet = ends(&[&[0, 1], &[1, 0]]);
    let result = results(&by_subnet, &probed(&by_subnet, |_, _| true), Vec::new());
    assert_eq!(rails(&result), [Some(0), Some(1), Some(1), Some(0)]);
    assert_eq!(result.found.rails.certainty, Certainty::Certain);
    assert_eq!(
        (result.found.crosses.value, result.found.crosses.certainty),
        (true, Certainty::Certain)
    );
    let by_order = ends(&[&[0, 0], &[0, 0]]);
    let result = results(&by_order, &probed(&by_order, |_, _| true), Vec::new());
    assert_eq!(rails(&result), [Some(0), Some(1), Some(0), Some(1)]);
    assert_eq!(result.found.rails.certainty, Certainty::Likely);
}

#[test]
fn places_of_a_site_file_stay() {
    let ends = ends(&[&[0, 1], &[0, 1], &[0, 1]]);
    let place = |rail| Some(Place { rail, plane: 3 });
    let known = vec![place(5), place(9), place(5), place(9), place(5), None];
    let fails = |one: &Nic, other: &Nic| one.mac == 1 && other.mac == 201;
    let tried = probed(&ends, |one, other| is_one_subnet(one, other) && !fails(one, other));
    let result = results(&ends, &tried, known);
    let reach: Vec<_> =
        result.measured.iter().map(|it| (it.between.map(|p| p.rail), it.reach)).collect();
    assert_eq!(reach, [([5, 5], Reach::Some), ([5, 9], Reach::None), ([9, 9], Reach::All)]);
    assert!(!result.found.crosses.value);
}

/// Rates of two flows, alone and at once, each as often as there are words.
fn carried(alone: [f64; 2], both: &[(f64, bool)]) -> Vec<Carried> {
    let flow = |rate, is_starved| Some(Flow { rate, is_starved });
    let mut words = Vec::new();
    for (step, flows) in [vec![(0, alone[0])], vec![(1, alone[1])]].into_iter().enumerate() {
        let flows = flows.into_iter().map(|(nic, rate)| ([nic, nic], flow(rate, false))).collect();
        words.push(Carried { ends: [0, 1], step, flows });
    }
    for (number, (rate, is_starved)) in both.iter().enumerate() {
        for is_receiver in [true, false] {
            let rate = if is_receiver { rate / 2.0 } else { 0.0 };
            let flows = [0, 1].map(|nic| ([nic, nic], flow(rate, !is_receiver && *is_starved)));
            words.push(Carried { ends: [0, 1], step: 2 + number, flows: flows.to_vec() });
        }
    }
    words
}

fn are_apart(carried: Vec<Carried>) -> Option<bool> {
    let ends = ends(&[&[0, 1], &[0, 1]]);
    let tried = Tried { carried, ..probed(&ends, is_one_subnet) };
    let measured = results(&ends, &tried, Vec::new()).measured;
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
    let mut words = carried([1e9, 1e9], &[(1e9, false), (1.9e9, false)]);
    words[4].flows[0].1 = None;
    assert_eq!(are_apart(words.clone()), Some(false));
    words[2].flows[1].1 = None;
    assert_eq!(are_apart(words), None);
}
