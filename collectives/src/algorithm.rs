//! The facts that an algorithm states in its file. All else that others ask of it follows from
//! them: no code goes by an algorithm's name.

use alloc::vec::Vec;
use core::fmt;

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, Rank};

use crate::crossing::{Crossing, Messages};
use crate::schedule::Schedule;

pub use crate::plan::Plan;

/// The cost of a call, as the head of an algorithm's file states it and `check` measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Length of the longest chain of messages of which each waits for the one before, when all
    /// fits one chunk.
    pub steps: usize,
    /// Elements that the busiest rank sends, or stores into others' memory; exact where counts
    /// divide evenly.
    pub sent: usize,
}

/// The means that an algorithm needs to move data from rank to rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needs {
    /// Links, wherever the ranks are.
    Links,
    /// Links whose receivers may take an offered message from its sender's memory.
    Rendezvous,
    /// A stage of each rank, which all ranks have mapped. Calls pass through piece by piece, so
    /// many elements of their count at a time.
    Stage { piece_len: fn(&Call, size: usize, chunk: usize) -> usize },
    /// Buffers that all ranks have mapped.
    Windows,
}

/// The way in which data moves, by which `cost` prices it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Blocks go around a ring.
    Ring,
    /// Chunks follow each other along so many chains or trees, each of which has an equal share.
    Pipelines(usize),
    /// Partners near and far exchange ever more, or ever less.
    Exchange,
    /// Every rank sends to every other, or reads its memory.
    Direct,
    /// The root sends to every other rank.
    FromRoot,
    /// Levels of hosts have a way each. The function prices a call on ranks that are there, in
    /// picoseconds, if pipelines pass on `chunk` elements at a time.
    Levels(fn(&Call, &Layout, chunk: usize) -> u128),
}

impl Way {
    /// Whether all but the first and the last of consecutive ranks talk only to one another, or
    /// nearly so.
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::Ring | Self::Pipelines(_))
    }

    /// Whether a rank sends to all its receivers at once.
    pub(crate) const fn is_at_once(self) -> bool {
        matches!(self, Self::Direct | Self::FromRoot)
    }
}

/// The elements that the busiest rank moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Sent or taken, whichever is more; through stages, copied there and taken.
    pub(crate) moved: usize,
    /// The part of these that are inputs and partial sums rather than results. Through stages, all
    /// elements that are read to be combined, this rank's own too.
    pub(crate) summed: usize,
}

impl Moved {
    /// All sent elements are results, or inputs that no rank combines.
    pub(crate) fn results(_: &Call, _: &Layout, sent: usize) -> Self {
        Self { moved: sent, summed: 0 }
    }

    /// All sent elements are combined.
    pub(crate) fn sums(_: &Call, _: &Layout, sent: usize) -> Self {
        Self { moved: sent, summed: sent }
    }

    /// Half of the sent elements is combined, and the other half are results.
    pub(crate) fn sums_then_results(_: &Call, _: &Layout, sent: usize) -> Self {
        Self { moved: sent, summed: sent / 2 }
    }
}

/// One way to perform a collective.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// The collective that it performs.
    pub collective: Collective,
    /// Its name: that of its file.
    pub name: &'static str,
    /// The means without which it cannot be had.
    pub(crate) needs: Needs,
    /// The way in which its data moves.
    pub(crate) way: Way,
    /// Makes one rank's schedule.
    pub schedule: fn(&Plan<'_>) -> Schedule,
    /// States the cost of a call on ranks that are there.
    pub stated: fn(&Call, &Layout) -> Stated,
    /// States the elements that the busiest rank moves if it sends `sent`.
    pub(crate) moved: fn(&Call, &Layout, sent: usize) -> Moved,
    /// States its messages, or signals where ranks reach into each other's memory, on one host.
    pub(crate) messages: fn(&mut Messages<'_>),
}

impl Algorithm {
    /// Whether it is for buffers that every rank has mapped, and for no others: its schedules reach
    /// into other ranks' memory.
    #[must_use]
    pub fn needs_windows(&self) -> bool {
        matches!(self.needs, Needs::Windows)
    }

    /// Whether it passes ordinary buffers through stages: memory that every rank has mapped.
    #[must_use]
    pub fn needs_stage(&self) -> bool {
        matches!(self.needs, Needs::Stage { .. })
    }

    /// The pieces in which `call` passes through stages, if pipelines pass on `chunk` elements at a
    /// time: at least 1, and 1 without stages.
    pub(crate) fn pieces(&self, call: &Call, size: usize, chunk: usize) -> usize {
        match self.needs {
            Needs::Stage { piece_len } => call.count.div_ceil(piece_len(call, size, chunk)).max(1),
            Needs::Links | Needs::Rendezvous | Needs::Windows => 1,
        }
    }

    /// Whether its messages are offered, so that their receivers may take them from their senders'
    /// memory. No estimate knows the cost of that: it is chosen where it was tried.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        matches!(self.needs, Needs::Rendezvous)
    }

    /// Whether it works on ordinary buffers wherever the ranks are.
    #[must_use]
    pub fn works_anywhere(&self) -> bool {
        matches!(self.needs, Needs::Links | Needs::Rendezvous)
    }

    /// Whether it goes by which ranks share a host, and so costs what the layout says.
    #[must_use]
    pub fn is_hierarchical(&self) -> bool {
        matches!(self.way, Way::Levels(_))
    }

    /// Whether every rank has a link to every other.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.way, Way::Direct) && self.works_anywhere()
    }

    /// The messages that it states for `call`, by the levels that they cross: exact where counts
    /// divide evenly and all fits one chunk.
    #[must_use]
    pub fn crossing(&self, call: &Call, layout: &Layout) -> Crossing {
        let mut messages = Messages::new(call, layout);
        (self.messages)(&mut messages);
        messages.crossing()
    }

    /// By rank, those that it exchanges messages or signals with in `call`, in rank order, as the
    /// algorithm states them: exact where counts divide evenly.
    #[must_use]
    pub fn peers(&self, call: &Call, layout: &Layout) -> Vec<Vec<Rank>> {
        let mut messages = Messages::with_peers(call, layout);
        (self.messages)(&mut messages);
        messages.into_peers()
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
