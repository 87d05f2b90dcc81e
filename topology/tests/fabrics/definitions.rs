//! Proves that shapes follow the definitions of their papers, by counting switches and cables.

use std::collections::BTreeMap;

use crate::shapes::{Shape, Site};
use crate::wiring::{Seat, Wiring};
use ringfold_harness::Random;

const RAILS: usize = 4;

fn build(shape: &Shape) -> Wiring {
    let mut wiring = Wiring::default();
    let site = Site { rails: RAILS, plane: 0, first_group: 0, times: 1 };
    let network = shape.build(&mut wiring, site, &mut Random::new(7));
    assert_eq!(network.leaves.len(), shape.groups(), "{shape:?}");
    wiring
}

/// Numbers of leaves, and of other switches, by their number of cables.
fn degrees(wiring: &Wiring) -> [BTreeMap<usize, usize>; 2] {
    let mut degree = vec![0; wiring.seats.len()];
    for end in wiring.trunks.iter().flat_map(|trunk| trunk.ends) {
        degree[end] += 1;
    }
    let mut counts = [BTreeMap::new(), BTreeMap::new()];
    for (seat, degree) in wiring.seats.iter().zip(degree) {
        let is_upper = usize::from(matches!(seat, Seat::Upper { .. }));
        *counts[is_upper].entry(degree).or_default() += 1;
    }
    counts
}

/// Number of separate parts.
fn parts(wiring: &Wiring) -> usize {
    let parts = wiring.parts(false);
    (0..parts.len()).filter(|switch| parts[*switch] == *switch).count()
}

#[test]
fn shapes_have_the_switches_and_cables_of_their_definitions() {
    let tree = |down: &[usize], up: &[usize]| Shape::FatTree {
        down: down.to_vec(),
        up: up.to_vec(),
        is_spread: false,
    };
    let plus = Shape::DragonflyPlus { groups: 5, leaves: 3, spines: 2, links: 2 };
    // A shape; the cables and number of its leaves, the same of its other switches, and its parts.
    type Count = (usize, usize);
    let cases: Vec<(Shape, Count, Vec<Count>, usize)> = vec![
        (Shape::Single, (0, 1), vec![], 1),
        (Shape::RailOptimized { units: 3, spines: 5, cores: 0 }, (5, 12), vec![(12, 5)], 1),
        // Each rail has its 5 spines, each connected to 3 leaves and to 2 cores.
        (
            Shape::RailOptimized { units: 3, spines: 5, cores: 2 },
            (5, 12),
            vec![(5, 20), (20, 2)],
            1,
        ),
        (Shape::RailOnly { units: 3, spines: 5 }, (5, 12), vec![(3, 20)], RAILS),
        (Shape::RailOnly { units: 1, spines: 0 }, (0, 4), vec![], RAILS),
        (tree(&[6], &[2]), (2, 6), vec![(6, 2)], 1),
        // XGFT(3; m1,3,4; 1,2,5): 12 leaves, 4 x 2 spines, 2 x 5 cores.
        (tree(&[3, 4], &[2, 5]), (2, 12), vec![(8, 8), (4, 10)], 1),
        // The 3-ary 3-tree: nine switches on each level.
        (tree(&[3, 3], &[3, 3]), (3, 9), vec![(6, 9), (3, 9)], 1),
        // Two spines carry 2 x 4 cables to other groups.
        (plus, (2, 15), vec![(7, 10)], 1),
        (Shape::Torus(vec![3, 4, 5]), (6, 60), vec![], 1),
        (Shape::HyperX(vec![3, 4, 5]), (9, 60), vec![], 1),
        (Shape::HyperX(vec![2; 5]), (5, 32), vec![], 1),
        (Shape::Regular { switches: 20, degree: 5 }, (5, 20), vec![], 1),
        (Shape::Dragonfly { routers: 4, links: 2 }, (5, 36), vec![], 1),
    ];
    for (shape, leaf, others, part_count) in cases {
        let wiring = build(&shape);
        let others: BTreeMap<usize, usize> = others.into_iter().collect();
        assert_eq!(degrees(&wiring), [BTreeMap::from([leaf]), others], "{shape:?}");
        assert_eq!(parts(&wiring), part_count, "{shape:?}");
    }
}

#[test]
fn a_torus_closes_and_a_full_mesh_joins_all() {
    for (shape, longest) in [(Shape::Torus(vec![9, 3]), 5), (Shape::HyperX(vec![9, 3]), 2)] {
        let wiring = build(&shape);
        let mut distance = vec![usize::MAX; wiring.seats.len()];
        distance[0] = 0;
        for _ in 0..wiring.seats.len() {
            for trunk in &wiring.trunks {
                let [a, b] = trunk.ends;
                distance[a] = distance[a].min(distance[b].saturating_add(1));
                distance[b] = distance[b].min(distance[a].saturating_add(1));
            }
        }
        assert_eq!(distance.iter().max(), Some(&longest), "{shape:?}");
    }
}
