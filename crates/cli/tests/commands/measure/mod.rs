//! `ringfold topo --measure` between network namespaces: rails apart, or sharing a throttled link.
//!
//! Fifty wirings from printed seeds: `cargo test -p ringfold-cli measure:: -- --ignored
//! --nocapture`.

mod rig;

use std::fs;

use ringfold_harness::Random;
use ringfold_topology::certainty::Certainty;
use ringfold_topology::fabric::{Kind, Place};
use ringfold_topology::site::{Reach, Site};

use self::rig::{Rig, Wiring};

/// Measures a wiring. Returns `None` if network namespaces cannot be made.
fn measure(wiring: &Wiring) -> Option<Site> {
    let rig = Rig::new(wiring)?;
    let file = &rig.folder.at("site");
    let output = rig.ringfold(&["topo", "--measure", "--write", file]);
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    // Its stderr is a pipe here, as under ringrun.
    let log = output.stderr;
    assert!(log.contains("ringfold: round 1 of 1: probes 1 of "), "{log}");
    assert!(log.matches(" of 1: flows ").count() > 0, "{log}");
    Some(Site::parse(file, &text).unwrap())
}

/// Returns the first difference between the site and the wiring.
fn fault(wiring: &Wiring, site: &Site) -> Option<String> {
    let rails = wiring.trunks.len();
    let place = |host: &str, number: usize| {
        let host = site.host(host).unwrap();
        let port = host.ports.iter().find(|port| port.device == format!("rail{number}")).unwrap();
        (port.place, port.certainty)
    };
    let mut places: Vec<Place> = Vec::new();
    for rail in 0..rails {
        let ends = [place("a", rail), place("b", wiring.numbers[rail])];
        match ends {
            [(Some(one), Certainty::Certain), (Some(other), Certainty::Certain)]
                if one == other && !places.contains(&one) =>
            {
                places.push(one);
            }
            _ => return Some(format!("rail {rail} has places {ends:?}")),
        }
    }
    let shared = |one: usize, other: usize| wiring.trunks[one] == wiring.trunks[other];
    let crosses = (0..rails).any(|one| (0..one).any(|other| shared(one, other)));
    if usize::from(site.rails.value) != rails || site.crosses.value != crosses {
        return Some(format!("{:?}, crosses {:?}", site.rails, site.crosses));
    }
    if (site.kind.value == Kind::RailOnly) == crosses {
        return Some(format!("{:?}", site.kind));
    }
    for one in 0..rails {
        for other in one..rails {
            let measured = site.measured(places[one], places[other]);
            let reach = measured.map(|it| it.reach);
            // Rails of one trunk are on one bridge, so frames cross.
            let wanted = if shared(one, other) { Reach::All } else { Reach::None };
            let are_apart = measured.and_then(|it| it.are_apart);
            let is_apart = (one != other).then(|| !shared(one, other));
            if reach != Some(wanted) || are_apart != is_apart {
                return Some(format!("rails {one} and {other}: {measured:?}"));
            }
        }
    }
    None
}

#[test]
fn rails_that_share_a_link_are_told_from_rails_apart() {
    for trunks in [vec![0, 1], vec![0, 0]] {
        let wiring = Wiring { trunks, numbers: vec![0, 1], rate: 100 };
        let Some(site) = measure(&wiring) else { return };
        assert_eq!(fault(&wiring, &site), None, "{wiring:?} {site:?}");
    }
}

#[test]
fn a_file_that_exists_is_refused_before_anything_is_measured() {
    let wiring = Wiring { trunks: vec![0, 1], numbers: vec![0, 1], rate: 100 };
    let Some(rig) = Rig::new(&wiring) else { return };
    let file = &rig.folder.file("old", "old");
    let [first, second] = rig.outputs(&["topo", "--measure", "--write", file]);
    assert_eq!(fs::read_to_string(file).unwrap(), "old");
    let error = format!("ringfold: {file} exists; --force replaces it\n");
    assert_eq!((first.code(), first.stderr), (2, error));
    assert!(second.status.success() && second.stderr.is_empty(), "{second:?}");
}

/// Returns the wiring of a seed: 2 to 4 rails on random trunks of 50 to 200 Mbit/s. The first rail
/// keeps its number, because rank 0's address is on it.
fn random(seed: usize) -> Wiring {
    let mut random = Random::new(seed as u64);
    let mut below = |end| random.below(end);
    let rails = 2 + below(3);
    let trunks = (0..rails).map(|rail| if rail == 0 { 0 } else { below(rail.min(2) + 1) });
    let trunks = trunks.collect();
    let mut numbers: Vec<usize> = (0..rails).collect();
    for last in (2..rails).rev() {
        numbers.swap(last, 1 + below(last));
    }
    Wiring { trunks, numbers, rate: 50 + below(151) }
}

#[test]
#[ignore = "takes ten minutes; prints how many of fifty are right"]
fn fifty_wirings_are_measured() {
    let mut right = 0;
    for seed in 0..50 {
        let wiring = random(seed);
        let Some(site) = measure(&wiring) else { return };
        match fault(&wiring, &site) {
            None => right += 1,
            Some(fault) => println!("seed {seed}, {wiring:?}: {fault}"),
        }
    }
    println!("{right} of 50 right");
    assert_eq!(right, 50);
}
