//! The facts that an algorithm states in its file. All other properties of it follow from these
//! facts: no code depends on an algorithm's name.

use core::fmt;

use ringfold_topology::Layout;
use ringfold_types::{Call, Collective};

use crate::schedule::Schedule;

pub use crate::plan::ScheduleParams;

/// The cost of a call. The head of an algorithm's file states it, and `check` measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Length of the longest chain of messages in which each waits for the one before, for a call
    /// that fits one chunk.
    pub steps: usize,
    /// Elements that the busiest rank sends, or stores into other ranks' memory. The number is
    /// exact where counts divide evenly.
    pub sent: usize,
}

/// The means that an algorithm needs to move data from rank to rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needs {
    /// Links. The ranks may be anywhere.
    Links,
    /// Links whose receivers may copy a message straight from its sender's memory (rendezvous).
    Rendezvous,
    /// A staging buffer on each rank, which all ranks of the host have mapped. A call passes
    /// through it in pieces of `piece_len` elements of its count.
    Staging { piece_len: fn(&Call, size: usize, chunk: usize) -> usize },
    /// Buffers that all ranks have mapped.
    Windows,
    /// Aggregators in the layout. The function says whether they can perform a call.
    Provider { is_possible: fn(&Call, &Layout) -> bool },
}

/// The pattern in which data moves. `cost` prices a call by it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// Blocks go around a ring.
    Ring,
    /// Chunks follow each other along this many chains or trees. Each has an equal share of the
    /// data.
    Pipelines(usize),
    /// In each step a rank exchanges with one partner. The distance to it and the data double or
    /// halve from step to step.
    Exchange,
    /// In each step a rank sends to a few others, and receives from as many. The function says how
    /// many messages a rank sends in a call of `size` ranks.
    Rounds(fn(size: usize) -> usize),
    /// Every rank sends to every other, or reads its memory.
    Direct,
    /// Every rank sends to every other, one after the other, and receives from one at a time.
    InTurn,
    /// The root sends to every other rank, or receives from each.
    AtRoot,
    /// Each edge of a tree carries the blocks of all ranks below it.
    Subtrees,
    /// Levels of hosts, each with a pattern of its own. The function prices a call for a layout, in
    /// picoseconds, if pipelines pass on `chunk` elements at a time.
    Levels(fn(&Call, &Layout, chunk: usize) -> u128),
    /// The pattern of the cheapest of these variants of the algorithm.
    Variants(&'static [Algorithm]),
}

impl Pattern {
    /// Whether messages are local: in a run of consecutive ranks, nearly all but the first and the
    /// last exchange messages only within the run.
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::Ring | Self::Pipelines(_))
    }

    /// Whether a rank sends to all its receivers at once.
    pub(crate) const fn is_at_once(self) -> bool {
        matches!(self, Self::Direct | Self::AtRoot)
    }
}

/// The elements that the busiest rank moves, as its algorithm states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Elements that the rank sends or receives, whichever is more. Through staging buffers: the
    /// elements that it copies into its own and out of others'.
    pub(crate) moved: usize,
    /// The part of `moved` that are inputs and partial sums rather than results. Through staging
    /// buffers: all elements that the rank reads to combine them, its own too.
    pub(crate) summed: usize,
}

impl Moved {
    /// For algorithms that send only results, or inputs that no rank combines.
    pub(crate) fn results(_: &Call, _: &Layout, sent: usize) -> Self {
        Self { moved: sent, summed: 0 }
    }

    /// For algorithms whose receivers combine every element.
    pub(crate) fn sums(_: &Call, _: &Layout, sent: usize) -> Self {
        Self { moved: sent, summed: sent }
    }

    /// For algorithms whose receivers combine half of the elements and store the other half as
    /// results.
    pub(crate) fn sums_then_results(_: &Call, _: &Layout, sent: usize) -> Self {
        Self { moved: sent, summed: sent / 2 }
    }
}

/// One algorithm for a collective.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// The collective that it performs.
    pub collective: Collective,
    /// Its name, which is also the name of its file.
    pub name: &'static str,
    /// The means without which a call cannot use it.
    pub(crate) needs: Needs,
    /// The pattern in which its data moves.
    pub(crate) pattern: Pattern,
    /// Makes one rank's schedule. Every rank of a call makes its own.
    pub schedule: fn(&ScheduleParams<'_>) -> Schedule,
    /// States the cost of a call for a layout.
    pub stated: fn(&Call, &Layout) -> Stated,
    /// States the elements that the busiest rank moves if it sends `sent` elements.
    pub(crate) moved: fn(&Call, &Layout, sent: usize) -> Moved,
    /// States whether all messages of a call stay on their rails. Hierarchical algorithms may deny
    /// it where only carriers that exchange nothing are on different rails.
    pub stays_on_rail: fn(&Call, &Layout) -> bool,
}

impl Algorithm {
    /// Whether the algorithm works only on windows: buffers that every rank has mapped. Its
    /// schedules read and write other ranks' windows.
    #[must_use]
    pub fn needs_windows(&self) -> bool {
        matches!(self.needs, Needs::Windows)
    }

    /// Whether the algorithm passes ordinary buffers through staging buffers, which every rank has
    /// mapped.
    #[must_use]
    pub fn needs_staging(&self) -> bool {
        matches!(self.needs, Needs::Staging { .. })
    }

    /// The number of pieces in which `call` passes through the staging buffers, if pipelines pass
    /// on `chunk` elements at a time. At least 1, and 1 without staging buffers.
    pub(crate) fn pieces(&self, call: &Call, size: usize, chunk: usize) -> usize {
        match self.needs {
            Needs::Staging { piece_len } => {
                call.count.div_ceil(piece_len(call, size, chunk)).max(1)
            }
            Needs::Links | Needs::Rendezvous | Needs::Windows | Needs::Provider { .. } => 1,
        }
    }

    /// Whether its messages are rendezvous sends, which receivers may copy from their senders'
    /// memory.
    #[must_use]
    pub fn is_single_copy(&self) -> bool {
        matches!(self.needs, Needs::Rendezvous)
    }

    /// Whether `cost` can estimate its time on `layout`. The cost of single copies within a host is
    /// unknown, so measurements decide, or the rule in `select`. Between hosts there are none.
    #[must_use]
    pub fn has_estimate(&self, layout: &Layout) -> bool {
        !self.is_single_copy() || layout.hosts() == layout.size()
    }

    /// Whether its price may decide for it on `layout`. On one host a hierarchical algorithm has no
    /// levels, and a flat one does the same. Between hosts of several ranks a flat tree was not
    /// measured for a broadcast, and took 1.4 to 3.1 times as long as others for a reduce. A
    /// barrier by it was not measured between hosts.
    #[must_use]
    pub(crate) fn suits(&self, layout: &Layout) -> bool {
        let is_one_host = layout.hosts() <= 1;
        match (self.pattern, self.collective) {
            (Pattern::Levels(_), _) => !is_one_host,
            (Pattern::AtRoot, Collective::Barrier) => is_one_host,
            (Pattern::AtRoot, Collective::Broadcast | Collective::Reduce) => {
                is_one_host || layout.hosts() == layout.size()
            }
            _ => true,
        }
    }

    /// Whether a provider in the network combines chunks (`offload`).
    #[must_use]
    pub fn needs_provider(&self) -> bool {
        matches!(self.needs, Needs::Provider { .. })
    }

    /// Whether it works on ordinary buffers, on one host and on several, by links alone.
    #[must_use]
    pub fn works_anywhere(&self) -> bool {
        matches!(self.needs, Needs::Links | Needs::Rendezvous)
    }

    /// Whether its schedules depend on which ranks share a host. Its cost then depends on the
    /// layout too.
    #[must_use]
    pub fn is_hierarchical(&self) -> bool {
        matches!(self.pattern, Pattern::Levels(_))
    }

    /// The variants of which the cheapest performs a call: other values of a parameter. An
    /// algorithm without a parameter is its own only variant.
    #[must_use]
    pub const fn variants(&'static self) -> &'static [Self] {
        match self.pattern {
            Pattern::Variants(variants) => variants,
            _ => core::slice::from_ref(self),
        }
    }

    /// Whether every rank has a link to every other.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.pattern, Pattern::Direct | Pattern::InTurn) && self.works_anywhere()
    }

    /// Whether some rank has a link to every other.
    #[must_use]
    pub(crate) fn has_many_links(&self) -> bool {
        self.is_direct() || matches!(self.pattern, Pattern::AtRoot) && self.works_anywhere()
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Algorithm {
    /// Writes `collective/name`, such as `allreduce/ring`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collective, self.name)
    }
}
