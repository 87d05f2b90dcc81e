//! Kinds that fit a design, where definitions overlap.
//!
//! * A torus and a `HyperX` are products of rings and of full meshes. A product has one set of
//!   prime factors, so only three factors have two interpretations. A ring of three is a full mesh
//!   of three. A ring of four is the product of two full meshes of two. A ring of two is a full
//!   mesh of two. So a hypercube of four dimensions is a torus of 4 x 4.
//! * NICs with one port in each of several planes: a host with one such NIC also fits "port i of
//!   every host is on leaf i and no path connects the leaves", so rail-only fits.
//! * A tree with unevenly filled leaves may have the oversubscription of all leaves, or of a
//!   typical one: any value between those of its leaves.
//! * A rail-optimized fabric that lost every path between rails is rail-only by definition. A
//!   rail-only fabric in which a stray cable connects rails is rail-optimized by definition, or as
//!   designed except for that cable.

use ringfold_topology::fabric::{Kind, Ratio};

use crate::design::Design;
use crate::shapes::Shape;
use crate::wiring::{Seat, Wiring};

/// A kind that counts as right.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Accepted {
    Single,
    RailOptimized,
    RailOnly,
    FatTree {
        levels: u32,
        /// The least and the largest oversubscription that count as right.
        ratio: [f64; 2],
    },
    DragonflyPlus,
    Product(Vec<Factor>),
    Other,
}

/// A prime factor of a grid of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Factor {
    Mesh(usize),
    Ring(usize),
}

fn rings(dims: impl Iterator<Item = usize>) -> Vec<Factor> {
    let factors = dims.flat_map(|length| match length {
        2 | 3 => vec![Factor::Mesh(length)],
        4 => vec![Factor::Mesh(2); 2],
        _ => vec![Factor::Ring(length)],
    });
    sorted(factors.collect())
}

fn meshes(dims: impl Iterator<Item = usize>) -> Vec<Factor> {
    sorted(dims.map(Factor::Mesh).collect())
}

fn sorted(mut factors: Vec<Factor>) -> Vec<Factor> {
    factors.sort_unstable();
    factors
}

impl Accepted {
    pub(crate) fn fits(&self, kind: &Kind) -> bool {
        let as_sizes = |dims: &[u32]| dims.iter().map(|n| *n as usize).collect::<Vec<_>>();
        match (self, kind) {
            (Self::Single, Kind::SingleSwitch)
            | (Self::RailOptimized, Kind::RailOptimized)
            | (Self::RailOnly, Kind::RailOnly)
            | (Self::DragonflyPlus, Kind::DragonflyPlus)
            | (Self::Other, Kind::Other { .. }) => true,
            (Self::FatTree { levels, ratio }, Kind::FatTree { levels: seen, oversubscription }) => {
                let Ratio(down, up) = *oversubscription;
                let seen_ratio = down as f64 / up.max(1) as f64;
                levels == seen && (ratio[0]..=ratio[1]).contains(&seen_ratio)
            }
            (Self::Product(factors), Kind::Torus { dims }) => {
                *factors == rings(as_sizes(dims).into_iter())
            }
            (Self::Product(factors), Kind::HyperX { dims }) => {
                *factors == meshes(as_sizes(dims).into_iter())
            }
            _ => false,
        }
    }
}

/// The right kinds. `crosses` says whether a path connects ports on different rails.
pub(crate) fn accepted(
    design: &Design,
    built: &Wiring,
    wiring: &Wiring,
    crosses: Option<bool>,
) -> Vec<Accepted> {
    let first = match &design.shape {
        Shape::Single => Accepted::Single,
        Shape::RailOptimized { .. } => Accepted::RailOptimized,
        Shape::RailOnly { .. } => Accepted::RailOnly,
        Shape::FatTree { down, .. } => {
            let levels = u32::try_from(down.len() + 1).unwrap();
            Accepted::FatTree { levels, ratio: ratios(built, wiring) }
        }
        Shape::DragonflyPlus { .. } => Accepted::DragonflyPlus,
        Shape::Torus(dims) => Accepted::Product(rings(dims.iter().copied())),
        Shape::HyperX(dims) => Accepted::Product(meshes(dims.iter().copied())),
        Shape::Regular { .. } | Shape::Dragonfly { .. } => Accepted::Other,
    };
    let also = match (&first, crosses) {
        (Accepted::RailOptimized, Some(false)) => Some(Accepted::RailOnly),
        (Accepted::RailOnly, Some(true)) => Some(Accepted::RailOptimized),
        _ if design.nics == 1 && design.planes > 1 => Some(Accepted::RailOnly),
        _ => None,
    };
    [first].into_iter().chain(also).collect()
}

/// The range of ratios between the emptiest and the fullest leaf, as designed and as cabled. It has
/// a margin of 5 % for ratios that are rounded to small numbers.
fn ratios(built: &Wiring, wiring: &Wiring) -> [f64; 2] {
    let of_leaves = [leaf_ratios(built), leaf_ratios(wiring)].concat();
    let ratios = of_leaves.iter().copied().filter(|ratio| ratio.is_finite());
    [ratios.clone().fold(f64::MAX, f64::min) * 0.95, ratios.fold(0.0, f64::max) * 1.05]
}

fn is_leaf(wiring: &Wiring, switch: usize) -> bool {
    matches!(wiring.seats[switch], Seat::Leaf { .. })
}

fn leaf_ratios(wiring: &Wiring) -> Vec<f64> {
    let leaves = (0..wiring.seats.len()).filter(|switch| is_leaf(wiring, *switch));
    leaves.map(|leaf| oversubscription(wiring, |switch| switch == leaf)).collect()
}

/// Capacity from hosts into these leaf switches, over capacity from them upwards.
fn oversubscription(wiring: &Wiring, of: impl Fn(usize) -> bool) -> f64 {
    let counts = |switch: usize| is_leaf(wiring, switch) && of(switch);
    let attached = wiring.outlets.iter().filter(|outlet| outlet.at.is_some_and(counts));
    let down: u64 = attached.map(|outlet| u64::from(outlet.gbps)).sum();
    let is_up = |ends: [usize; 2]| {
        is_leaf(wiring, ends[0]) != is_leaf(wiring, ends[1]) && ends.iter().any(|end| counts(*end))
    };
    let upwards = wiring.trunks.iter().filter(|trunk| is_up(trunk.ends));
    let up: u64 = upwards.map(|trunk| u64::from(trunk.gbps)).sum();
    down as f64 / up as f64
}
