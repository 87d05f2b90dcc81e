//! A binomial tree: a rank's parent has the same number with the lowest set bit cleared. The
//! subtree of a rank is a run of ranks that begins with it.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_types::Rank;

/// The position of a rank in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The parent; `None` for the root.
    pub(crate) parent: Option<Rank>,
    /// Steps from the root.
    pub(crate) depth: usize,
    /// The children, in a binomial tree the smallest subtree first.
    pub(crate) children: Vec<Child>,
}

/// A child in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    /// Its rank.
    pub(crate) rank: Rank,
    /// Whether it has no children itself.
    pub(crate) is_leaf: bool,
}

/// The largest distance from the root of a binomial tree of `size` ranks, and also of an in-order
/// tree (`double_tree`).
pub(crate) const fn height(size: usize) -> usize {
    size.ilog2() as usize
}

/// The position of `rank` in the binomial tree of `size` ranks below `root`.
pub(crate) fn place(rank: Rank, root: Rank, size: usize) -> Place {
    let own = (rank.index() + size - root.index()) % size;
    let at = |number: usize| Rank::at((number + root.index()) % size);
    let lowest = 1_usize << own.trailing_zeros().min(usize::BITS - 2);
    let steps = core::iter::successors(Some(1), |step| Some(step << 1));
    let children = steps
        .take_while(|step| *step < lowest && own + step < size)
        .map(|step| Child { rank: at(own + step), is_leaf: step == 1 || own + step + 1 == size })
        .collect();
    let depth = own.count_ones() as usize;
    Place { parent: (own > 0).then(|| at(own - lowest)), depth, children }
}

/// The numbers, counted from the root, of the ranks in the subtree of `rank`, itself first.
pub(crate) fn subtree(rank: Rank, root: Rank, size: usize) -> Range<usize> {
    let own = (rank.index() + size - root.index()) % size;
    let all = if own == 0 { size } else { 1 << own.trailing_zeros() };
    own..size.min(own + all)
}

#[cfg(test)]
pub(in crate::pattern) mod tests {
    use super::*;

    #[test]
    fn subtrees_of_children_follow_their_parent() {
        for size in 1..=70 {
            let root = Rank::at(size / 3);
            for rank in (0..size).map(Rank::at) {
                let whole = subtree(rank, root, size);
                let end = place(rank, root, size).children.iter().fold(whole.start + 1, |at, c| {
                    let below = subtree(c.rank, root, size);
                    assert_eq!(below.start, at, "child {} of {rank} of {size}", c.rank);
                    assert_eq!(c.is_leaf, below.len() == 1);
                    below.end
                });
                assert_eq!(end, whole.end, "rank {rank} of {size}");
            }
        }
    }

    #[test]
    fn every_rank_is_the_child_of_its_parent_and_near_the_root() {
        for size in (1..=70_usize).chain([1000, 1024]) {
            let root = Rank::at(size / 3);
            let place_of = |rank| place(rank, root, size);
            assert_is_tree(size, root, height(size), place_of);
        }
    }

    #[test]
    fn a_tree_of_six_is_as_drawn() {
        let children = |rank| {
            let place = place(Rank::at(rank), Rank::at(0), 6);
            place.children.iter().map(|child| child.rank.index()).collect::<Vec<_>>()
        };
        assert_eq!(children(0), [1, 2, 4]);
        assert_eq!(children(2), [3]);
        assert_eq!(children(4), [5]);
    }

    /// Checks a tree like `assert_is_tree`, from its only root, with no rank deeper than `most`.
    pub(in crate::pattern) fn assert_is_tree_from(
        size: usize,
        most: usize,
        place_of: impl Fn(Rank) -> Place,
    ) {
        let ranks = || (0..size).map(Rank::at);
        let root = ranks().find(|rank| place_of(*rank).parent.is_none()).unwrap();
        let height = ranks().map(|rank| place_of(rank).depth).max().unwrap();
        assert!(height <= most, "{height} steps, at most {most}");
        assert_is_tree(size, root, height, place_of);
    }

    /// Checks that parents and children agree, that all ranks but the root have a parent, and that
    /// the deepest rank has depth `height`.
    pub(in crate::pattern) fn assert_is_tree(
        size: usize,
        root: Rank,
        height: usize,
        place_of: impl Fn(Rank) -> Place,
    ) {
        let mut furthest = 0;
        for rank in (0..size).map(Rank::at) {
            let place = place_of(rank);
            for child in &place.children {
                let below = place_of(child.rank);
                assert_eq!(below.parent, Some(rank), "child {} of {rank} of {size}", child.rank);
                assert_eq!(below.children.is_empty(), child.is_leaf, "{} of {size}", child.rank);
            }
            let up = |rank: &Rank| place_of(*rank).parent;
            let way: Vec<Rank> = core::iter::successors(Some(rank), up).take(height + 2).collect();
            assert_eq!(way.last(), Some(&root), "from {rank} of {size}");
            for (below, above) in way.iter().zip(&way[1..]) {
                let siblings = place_of(*above).children;
                assert_eq!(siblings.iter().filter(|child| child.rank == *below).count(), 1);
            }
            assert_eq!(place.depth, way.len() - 1, "depth of {rank} of {size}");
            furthest = furthest.max(place.depth);
        }
        assert_eq!(furthest, height, "height for {size}");
    }
}
