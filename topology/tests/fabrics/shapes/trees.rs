//! Leaves, spines and cores.

use super::network::{Network, Site, plain_leaves};
use crate::wiring::{Label, Wiring};

/// By unit, one leaf for each rail.
fn rail_leaves(wiring: &mut Wiring, site: Site, units: usize) -> Vec<Vec<usize>> {
    let mut unit = |unit: usize| -> Vec<usize> {
        let group = site.first_group + unit;
        (0..site.rails).map(|rail| wiring.leaf(Some(rail), site.plane, group)).collect()
    };
    (0..units).map(&mut unit).collect()
}

pub(super) fn rail_optimized(wiring: &mut Wiring, site: Site, shape: [usize; 3]) -> Network {
    let [units, spines, cores] = shape;
    let leaves = rail_leaves(wiring, site, units);
    if cores == 0 {
        let top = wiring.uppers(spines, None);
        for unit in &leaves {
            wiring.join_all(unit, &top, site.times);
        }
        return Network { leaves, top };
    }
    let top = wiring.uppers(cores, None);
    for rail in 0..site.rails {
        let label = Label { rail: Some(rail), plane: site.plane };
        let of_rail = wiring.uppers(spines, Some(label));
        for unit in &leaves {
            wiring.join_all(&unit[rail..=rail], &of_rail, site.times);
        }
        wiring.join_all(&of_rail, &top, site.times);
    }
    Network { leaves, top }
}

pub(super) fn rail_only(wiring: &mut Wiring, site: Site, units: usize, spines: usize) -> Network {
    let leaves = rail_leaves(wiring, site, units);
    let mut top = Vec::new();
    for rail in 0..site.rails {
        let label = Label { rail: Some(rail), plane: site.plane };
        let of_rail = wiring.uppers(spines, Some(label));
        for unit in &leaves {
            wiring.join_all(&unit[rail..=rail], &of_rail, site.times);
        }
        top.extend(of_rail);
    }
    Network { leaves, top }
}

/// XGFT. The name of a switch of level l has h - l numbers for its subtree. Its other l - 1 numbers
/// are its place among the tops of that subtree. Two switches of neighbouring levels are connected
/// if their names agree in all numbers that both have.
pub(super) fn fat_tree(wiring: &mut Wiring, site: Site, down: &[usize], up: &[usize]) -> Network {
    let leaves = plain_leaves(wiring, site, down.iter().product());
    // Subtrees of this level, each with its tops.
    let mut subtrees: Vec<Vec<usize>> = leaves.iter().map(|leaf| vec![*leaf]).collect();
    for (arity, width) in down.iter().zip(up) {
        let mut larger = Vec::new();
        for children in subtrees.chunks(*arity) {
            let mut tops = Vec::new();
            for place in 0..children[0].len() {
                let above = wiring.uppers(*width, site.plain());
                for child in children {
                    wiring.join_all(&child[place..=place], &above, site.times);
                }
                tops.extend(above);
            }
            larger.push(tops);
        }
        subtrees = larger;
    }
    let top = subtrees.concat();
    Network { leaves: leaves.into_iter().map(|leaf| vec![leaf]).collect(), top }
}
