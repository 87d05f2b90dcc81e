//! The algorithms there are, and what each is made from.

use core::fmt;

use ringfold_topology::{Layout, Order};
use ringfold_types::{Call, Collective, Rank};

use crate::crossing::Messages;
use crate::schedule::{Form, Schedule};
use crate::{allgather, allreduce, barrier, broadcast, reduce, reduce_scatter};

/// What one rank makes its schedule from. All ranks use the same call, layout and chunk.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// What to perform.
    pub call: Call,
    /// Where the ranks are.
    pub layout: &'a Layout,
    /// Whose schedule is wanted.
    pub rank: Rank,
    /// Elements that are passed on at a time by algorithms that pipeline; at least 1.
    pub chunk: usize,
    /// Bytes that every link accepts before its receiver takes any, at least 16: what may be sent
    /// and then overwritten without waiting for anyone. `limits::LINK_BYTES_MIN` but in proofs.
    pub window_bytes: usize,
}

impl Plan<'_> {
    /// Elements, in either form, that are surely accepted by a link on which nothing is under way.
    #[must_use]
    pub fn eager(&self) -> usize {
        self.window_bytes / Form::Accumulator.data_type(&self.call).bytes()
    }

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

    /// The lanes that so many rounds of a pipeline take in turn, which do not wait for each other.
    #[must_use]
    pub fn lanes(&self, rounds: usize) -> usize {
        rounds.clamp(1, self.layout.channels())
    }
}

/// A rank in an order of all ranks. Patterns name ranks by their places there, and
/// `Builder::in_order` translates.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// This rank's place.
    pub(crate) place: Rank,
    /// The place of the call's root.
    pub(crate) root: Rank,
    pub(crate) order: Order,
}

/// What an algorithm costs, as the head of its file states it and `check` measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Length of the longest chain of messages of which each waits for the one before, when all
    /// fits one chunk.
    pub steps: usize,
    /// Elements that the busiest rank sends, or stores into others' memory; exact where counts
    /// divide evenly.
    pub sent: usize,
}

/// One way to perform a collective.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// What it performs.
    pub collective: Collective,
    /// Its name: that of its file.
    pub name: &'static str,
    /// Makes one rank's schedule.
    pub schedule: fn(&Plan<'_>) -> Schedule,
    /// What it costs for a call on ranks that are there.
    pub stated: fn(&Call, &Layout) -> Stated,
    /// States its messages: `crossing::stated` says what they cross. None where ranks reach into
    /// each other's memory, on one host.
    pub messages: fn(&mut Messages<'_>),
}

impl Algorithm {
    /// Every algorithm of a collective.
    #[must_use]
    pub const fn of(collective: Collective) -> &'static [Self] {
        match collective {
            Collective::AllReduce => allreduce::ALGORITHMS,
            Collective::AllGather => allgather::ALGORITHMS,
            Collective::ReduceScatter => reduce_scatter::ALGORITHMS,
            Collective::Broadcast => broadcast::ALGORITHMS,
            Collective::Reduce => reduce::ALGORITHMS,
            Collective::Barrier => barrier::ALGORITHMS,
        }
    }

    /// Whether it is for buffers that every rank has mapped, and for no others: its schedules reach
    /// into other ranks' memory.
    #[must_use]
    pub fn needs_windows(&self) -> bool {
        self.name == "window"
    }

    /// Whether it passes ordinary buffers through stages: memory that every rank has mapped.
    #[must_use]
    pub fn needs_stage(&self) -> bool {
        matches!(self.name, "staged" | "staged_one_shot")
    }

    /// Whether its messages are offered, so that their receivers may take them from their senders'
    /// memory. What that costs no estimate knows: it is chosen where it was tried.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.name == "attached"
    }

    /// Whether it goes by which ranks share a host, and so costs what the layout says.
    #[must_use]
    pub fn is_hierarchical(&self) -> bool {
        self.name == "hierarchical"
    }

    /// Whether every rank sends to every other.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        let is_attached_gather = self.is_attached() && self.collective == Collective::AllGather;
        matches!(self.name, "one_shot" | "two_shot" | "direct") || is_attached_gather
    }

    /// Whether it works on ordinary buffers wherever the ranks are.
    #[must_use]
    pub fn works_anywhere(&self) -> bool {
        !self.needs_windows() && !self.needs_stage()
    }

    /// The algorithm of `collective` named `name`.
    #[must_use]
    pub fn named(collective: Collective, name: &str) -> Option<&'static Self> {
        Self::of(collective).iter().find(|algorithm| algorithm.name == name)
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Algorithm {
    /// As in `allreduce/ring`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collective, self.name)
    }
}
