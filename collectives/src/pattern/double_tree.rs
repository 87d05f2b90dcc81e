//! Two binary trees over the same ranks. No rank is inner in both, so with half of the data in each
//! tree all ranks do equal work.
//!
//! A tree is the in-order binary tree of places 1 to n: the parent of a place is the nearest one
//! with one more trailing zero bit, so odd places are leaves. The place of rank r in the first
//! tree is r + 1. The second tree swaps the parities. For even n the place of rank r is n - r: the
//! ranks are mirrored. For odd n it is r, or n for rank 0: they are shifted.

use ringfold_types::Rank;

use crate::pattern::tree::{Child, Place};

/// Number of trees.
pub(crate) const TREES: usize = 2;

/// The position of `rank` in tree number `tree` of `size` ranks.
pub(crate) fn place(rank: Rank, tree: usize, size: usize) -> Place {
    let number = number(rank, tree, size);
    let at = |number| at(number, tree, size);
    let is_leaf = |number| below(number, size).iter().all(Option::is_none);
    let child = |number| Child { rank: at(number), is_leaf: is_leaf(number) };
    let way = core::iter::successors(above(number, size), |number| above(*number, size));
    Place {
        parent: above(number, size).map(at),
        depth: way.count(),
        children: below(number, size).into_iter().flatten().map(child).collect(),
    }
}

/// The place of a rank, 1 to `size`.
fn number(rank: Rank, tree: usize, size: usize) -> usize {
    match (tree, rank.index()) {
        (0, rank) => rank + 1,
        (_, rank) if size.is_multiple_of(2) => size - rank,
        (_, 0) => size,
        (_, rank) => rank,
    }
}

/// The rank at a place.
fn at(number: usize, tree: usize, size: usize) -> Rank {
    Rank::at(match tree {
        0 => number - 1,
        _ if size.is_multiple_of(2) => size - number,
        _ => number % size,
    })
}

fn above(number: usize, size: usize) -> Option<usize> {
    let bit = 1 << number.trailing_zeros();
    if number == 1 << size.ilog2() {
        None
    } else if number & (bit << 1) == 0 && number + bit <= size {
        Some(number + bit)
    } else {
        // The place is right of its parent. That is also so if the place to its upper right does
        // not exist.
        Some(number - bit)
    }
}

/// The left and the right child of a place.
fn below(number: usize, size: usize) -> [Option<usize>; 2] {
    let bit = 1_usize << number.trailing_zeros();
    if bit == 1 {
        return [None, None];
    }
    // The right subtree ends with the last place. Its root is the place with the most zero bits.
    let right = (size - number).checked_ilog2().map(|most| number + (bit >> 1).min(1 << most));
    [Some(number - (bit >> 1)), right]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::tree::height;
    use crate::pattern::tree::tests::assert_is_tree;

    #[test]
    fn both_are_trees() {
        for size in (1..=70_usize).chain([1000, 1024]) {
            for tree in 0..TREES {
                let root = at(1 << size.ilog2(), tree, size);
                assert_is_tree(size, root, height(size), |rank| place(rank, tree, size));
            }
        }
    }

    #[test]
    fn nobody_is_inner_twice_or_has_more_than_two_children() {
        for size in 1..=130 {
            for rank in (0..size).map(Rank::at) {
                let places = [0, 1].map(|tree| place(rank, tree, size));
                assert!(places.iter().any(|p| p.children.is_empty()), "rank {rank} of {size}");
                assert!(places.iter().all(|p| p.children.len() <= 2), "rank {rank} of {size}");
            }
        }
    }
}
