//! A ring: every rank has one rank before it and one after it.

use ringfold_types::Rank;

/// The rank `distance` places after `rank` on a ring of `size`.
pub(crate) fn after(rank: Rank, distance: usize, size: usize) -> Rank {
    Rank::at((rank.index() + distance % size) % size)
}

/// The rank `distance` places before `rank` on a ring of `size`.
pub(crate) fn before(rank: Rank, distance: usize, size: usize) -> Rank {
    Rank::at((rank.index() + size - distance % size) % size)
}
