//! The orders in which rings, chains and cubes visit the ranks, and the ranks that carry each rail.
//!
//! Ranks of a host are together, and hosts are in fabric order. If the places of hosts and the
//! rails of ranks are unknown, the order is that of the ranks.

mod aligned;
mod carriers;
mod ring;

use std::sync::Arc;

use ringfold_types::Rank;

pub(crate) use aligned::aligned;
pub(crate) use carriers::carriers;
pub(crate) use ring::{chain, ring};

/// An order of all ranks: the rank at each position. Clones share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    /// By position; empty if every rank is at the position of its number.
    ranks: Arc<[Rank]>,
}

impl Order {
    /// The order of `ranks`, which must have every rank once.
    pub(crate) fn new(ranks: Vec<Rank>) -> Self {
        let is_rank_order = ranks.iter().enumerate().all(|(place, rank)| rank.index() == place);
        Self { ranks: if is_rank_order { Arc::default() } else { ranks.into() } }
    }

    /// Whether every rank is at the position of its number.
    #[must_use]
    pub fn is_rank_order(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The rank at a position.
    ///
    /// # Panics
    /// If there are fewer ranks.
    #[must_use]
    pub fn at(&self, place: usize) -> Rank {
        if self.is_rank_order() { Rank::at(place) } else { self.ranks[place] }
    }

    /// The position of a rank. Takes time in proportion to the number of ranks. A rank that does
    /// not exist gets its own number.
    #[must_use]
    pub fn place(&self, rank: Rank) -> usize {
        self.ranks.iter().position(|it| *it == rank).unwrap_or_else(|| rank.index())
    }

    /// The ranks by position; empty in rank order.
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }
}
