//! A hypercube: the corners are numbered, and neighbours differ in one bit. Where the number of
//! ranks is no power of two, the first ranks are folded in pairs until one is left per corner.

use core::ops::Range;

use ringfold_types::{Rank, Slice};

use crate::schedule::Builder;

/// The largest hypercube that the ranks can fill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cube {
    /// Number of bits of a corner's number.
    pub(crate) dimensions: u32,
    /// Ranks that get no corner of their own.
    pub(crate) folded: usize,
}

/// The role of a rank in a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The rank is on this corner. If it has a folded rank, it acts for that one too.
    Corner(usize, Option<Rank>),
    /// The rank is folded: the given rank, the one after it, acts for it.
    Folded(Rank),
}

impl Role {
    /// The corner of the rank, and the folded rank that it acts for. For a folded rank, writes all
    /// of its steps: it sends `own` and receives `result`.
    pub(crate) fn stands(
        self,
        steps: &mut Builder,
        own: Slice,
        result: Slice,
    ) -> Option<(usize, Option<Rank>)> {
        match self {
            Self::Corner(corner, folded) => Some((corner, folded)),
            Self::Folded(into) => {
                steps.send(into, own);
                steps.recv(into, result);
                None
            }
        }
    }
}

impl Cube {
    /// The cube for `size` ranks.
    pub(crate) const fn of(size: usize) -> Self {
        let dimensions = size.ilog2();
        Self { dimensions, folded: size - (1 << dimensions) }
    }

    /// Number of corners.
    pub(crate) const fn corners(&self) -> usize {
        1 << self.dimensions
    }

    /// The role of `rank`. Corners are in the order of the ranks on them.
    pub(crate) fn role(&self, rank: Rank) -> Role {
        let index = rank.index();
        if index >= 2 * self.folded {
            Role::Corner(index - self.folded, None)
        } else if index.is_multiple_of(2) {
            Role::Folded(Rank::at(index + 1))
        } else {
            Role::Corner(index / 2, Some(Rank::at(index - 1)))
        }
    }

    /// The rank on `corner`.
    pub(crate) fn rank(&self, corner: usize) -> Rank {
        Rank::at(if self.stands_for_two(corner) { 2 * corner + 1 } else { corner + self.folded })
    }

    /// Whether the rank on `corner` acts for a folded rank too.
    pub(crate) const fn stands_for_two(&self, corner: usize) -> bool {
        corner < self.folded
    }

    /// The pairs of ranks that exchange messages: neighbours, and folded ranks with those that act
    /// for them.
    pub(crate) fn pairs(self) -> impl Iterator<Item = [Rank; 2]> {
        let of_corner = move |corner| {
            let folded = self.stands_for_two(corner).then(|| Rank::at(2 * corner));
            let others = (0..self.dimensions).map(move |round| self.rank(neighbour(corner, round)));
            folded.into_iter().chain(others).map(move |other| [self.rank(corner), other])
        };
        (0..self.corners()).flat_map(of_corner)
    }

    /// The blocks that `corner` keeps after `halvings` halvings, along dimensions 0 to `halvings` -
    /// 1. There are as many blocks as corners, and each corner keeps the half on its own side.
    pub(crate) fn kept(&self, corner: usize, halvings: u32) -> Range<usize> {
        let half = |dimension| (corner >> dimension & 1) << (self.dimensions - 1 - dimension);
        let start: usize = (0..halvings).map(half).sum();
        start..start + (1 << (self.dimensions - halvings))
    }
}

/// The corner on the other side of `dimension`.
pub(crate) const fn neighbour(corner: usize, dimension: u32) -> usize {
    corner ^ 1 << dimension
}

/// Whether `corner` is on the side of `dimension` with lower numbers, and so lower ranks.
pub(crate) const fn is_lower(corner: usize, dimension: u32) -> bool {
    corner >> dimension & 1 == 0
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_rank_has_a_corner_or_is_folded_into_the_next() {
        for size in 1..=130 {
            let cube = Cube::of(size);
            let mut corners = Vec::new();
            for rank in (0..size).map(Rank::at) {
                match cube.role(rank) {
                    Role::Folded(into) => {
                        let Role::Corner(_, Some(folded)) = cube.role(into) else { panic!() };
                        assert_eq!(folded, rank);
                    }
                    Role::Corner(corner, folded) => {
                        assert_eq!(cube.rank(corner), rank);
                        assert_eq!(cube.stands_for_two(corner), folded.is_some());
                        corners.push(corner);
                    }
                }
            }
            assert!(corners.into_iter().eq(0..cube.corners()), "size {size}");
        }
    }

    #[test]
    fn neighbours_share_the_blocks_of_both() {
        let cube = Cube::of(16);
        for corner in 0..cube.corners() {
            assert_eq!(cube.kept(corner, 0), 0..16);
            assert_eq!(cube.kept(corner, 4).len(), 1);
            for dimension in 0..4 {
                let other = neighbour(corner, dimension);
                let (both, had) = (cube.kept(corner, dimension), cube.kept(other, dimension));
                assert_eq!(both, had);
                let (mine, other_s) =
                    (cube.kept(corner, dimension + 1), cube.kept(other, dimension + 1));
                let (low, high) =
                    if is_lower(corner, dimension) { (mine, other_s) } else { (other_s, mine) };
                assert_eq!((low.start, low.end, high.end), (both.start, high.start, both.end));
            }
        }
    }
}
