//! The inputs from which algorithms make schedules.

use ringfold_topology::{Layout, Order};
use ringfold_types::{Call, Rank};

use crate::blocks::Blocks;

/// The inputs of one rank's schedule. All ranks of a call use the same call, layout and chunk.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleParams<'a> {
    /// The call to perform.
    pub call: Call,
    /// The places of the ranks.
    pub layout: &'a Layout,
    /// The rank that performs the schedule.
    pub rank: Rank,
    /// Elements that pipelined algorithms pass on at a time; at least 1.
    pub chunk: usize,
    /// Bytes that every link accepts before its receiver takes any, at least 16. A rank may send
    /// this many and then overwrite them without waiting. It is `limits::LINK_BYTES_MIN` except in
    /// proofs.
    pub window_bytes: usize,
}

impl ScheduleParams<'_> {
    /// This rank in the order for rings.
    pub(crate) fn in_ring(&self) -> Member {
        self.member(self.layout.ring().clone())
    }

    /// This rank in the order for chains that begin at the root.
    pub(crate) fn in_chain_from_root(&self) -> Member {
        self.member(self.layout.chain_from(self.call.root))
    }

    /// This rank in the order for chains that end at the root.
    pub(crate) fn in_chain_to_root(&self) -> Member {
        self.member(self.layout.chain_to(self.call.root))
    }

    /// This rank in the order for cubes.
    pub(crate) fn in_cube(&self) -> Member {
        self.member(self.layout.aligned().clone())
    }

    fn member(&self, order: Order) -> Member {
        let place = |rank| Rank::at(order.place(rank));
        Member { place: place(self.rank), root: place(self.call.root), order }
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The blocks of the ranks, if all have the call's count.
    pub(crate) fn equal_blocks(&self) -> Blocks {
        Blocks::equal(self.call.count, self.size())
    }

    /// The lanes that `rounds` rounds of a pipeline use in turn. They do not wait for each other.
    #[must_use]
    pub fn lanes(&self, rounds: usize) -> usize {
        rounds.clamp(1, self.layout.channels())
    }
}

/// A rank in an order of all ranks. Patterns name ranks by their places there, and
/// `Builder::in_order` translates them.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// This rank's place.
    pub(crate) place: Rank,
    /// The place of the call's root.
    pub(crate) root: Rank,
    pub(crate) order: Order,
}
