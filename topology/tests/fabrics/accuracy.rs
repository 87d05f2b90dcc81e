//! The accuracy of the classifier.

use ringfold_topology::fabric::{Classification, EndPort, Fabric, classify};

use crate::grade::grade;
use crate::table::Table;
use crate::truth::Case;

/// The seed of the first fabric: `RINGFOLD_TEST_SEED` at compile time, or 1.
fn first_seed() -> u64 {
    option_env!("RINGFOLD_TEST_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// This many seeds, which are printed.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let seeds = first_seed()..first_seed() + count;
    println!("seeds RINGFOLD_TEST_SEED={} to {}", seeds.start, seeds.end - 1);
    seeds
}

/// Answers for the fabrics of many seeds.
pub(crate) fn run(
    seeds: impl Iterator<Item = u64>,
    classify: impl Fn(&Case, &Fabric) -> Classification,
) -> Table {
    let mut table = Table::default();
    for seed in seeds {
        let case = Case::draw(seed);
        let answer = classify(&case, &case.fabric);
        let grade = grade(&case, &answer);
        let words = format!(
            "{:?}; rails {:?}; planes {:?}; subnets {:?}; crosses {:?}",
            answer.kind, answer.rails, answer.planes, answer.subnets, answer.crosses
        );
        table.add(&case, &grade, &words);
    }
    table
}

fn assert_accurate(count: u64) {
    let table = run(seeds(count), |_, fabric| classify(fabric));
    println!("{table}\n{}", table.examples(400));
    assert_eq!(table.lies(), 0, "a wrong answer is called certain");
    let needed = (table.cases() * 99).div_ceil(100);
    assert!(table.right() >= needed, "{} of {} right", table.right(), table.cases());
    let [grouped, of] = table.groups();
    assert!(grouped * 100 >= of * 99, "hosts grouped rightly in {grouped} of {of}");
}

#[test]
fn kind_and_rails_of_a_few_fabrics() {
    assert_accurate(330);
}

#[test]
#[ignore = "takes minutes; prints the table of 2,000 fabrics"]
fn kind_and_rails_of_two_thousand_fabrics() {
    assert_accurate(2_000);
}

/// LLDP shows the switches of hosts and no cables between switches. So much is unknown, but no
/// wrong answer may be called certain.
#[test]
fn a_partial_view_claims_nothing_false() {
    let table = run(seeds(330), |_, fabric| {
        let cables = Vec::new();
        classify(&Fabric { cables, is_partial: true, ..fabric.clone() })
    });
    println!("{table}\n{}", table.examples(10));
    assert_eq!(table.lies(), 0, "a wrong answer is called certain");
}

/// A file may be cut off at any line, so any cable and any port may be absent.
#[test]
fn a_fabric_without_cables_or_ports_is_classified() {
    for seed in seeds(33) {
        let fabric = Case::draw(seed).fabric;
        let bare = Fabric { ports: Vec::new(), ..fabric.clone() };
        assert!(classify(&bare).places.is_empty(), "seed {seed}");
        let ports = fabric.ports.iter().cloned();
        let ports = ports.map(|port| EndPort { attached: None, ..port }).collect();
        let down = Fabric { ports, ..fabric.clone() };
        let places = classify(&down).places;
        assert!(places.iter().all(|(place, _)| place.is_none()), "seed {seed}");
        assert_eq!(places.len(), fabric.ports.len(), "seed {seed}");
    }
    assert!(classify(&Fabric::default()).places.is_empty());
}
