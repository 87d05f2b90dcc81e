//! The operation that a program times.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use ringfold::{Call, Collective, Communicator, Rank};

/// The operation that a program times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A collective.
    Collective(Collective),
    /// Every rank sends to the next rank and receives from the previous one.
    SendRecv,
    /// Every rank sends a part to every rank. The part from rank s to rank r has (s + r) mod n
    /// shares of the buffer, for n ranks.
    AllToAllV,
    /// The root gets a part of every rank. Here and below part r has r + 1 shares of the buffer.
    GatherV,
    /// Every rank gets its part of the root's buffer.
    ScatterV,
    /// Every rank gets the parts of all ranks.
    AllGatherV,
    /// Every rank gets its part of the sums.
    ReduceScatterV,
}

/// Elements of an output, and the input in which they are at `first`: that of rank `from`, or the
/// reduction of all inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) output: Range<usize>,
    pub(crate) from: Rank,
    pub(crate) first: usize,
}

/// The operations that have a program.
const PROGRAMS: [Test; 11] = [
    Test::Collective(Collective::AllReduce),
    Test::Collective(Collective::AllGather),
    Test::Collective(Collective::ReduceScatter),
    Test::Collective(Collective::Broadcast),
    Test::Collective(Collective::Reduce),
    Test::Collective(Collective::AllToAll),
    Test::Collective(Collective::Gather),
    Test::Collective(Collective::Scatter),
    Test::Collective(Collective::Scan),
    Test::SendRecv,
    Test::AllToAllV,
];

impl Test {
    /// Returns the name of the program that times this operation.
    pub(crate) fn program(self) -> String {
        format!("{self}-perf").replace('_', "-")
    }

    /// Returns the operation that the program at `path` times. The names of nccl-tests' programs,
    /// as in `all_reduce_perf`, are names too.
    ///
    /// # Errors
    /// No program has this name.
    pub(crate) fn of_program(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let plain = |name: &str| name.replace(['-', '_'], "");
        let is_named = |test: &Self| plain(&test.program()) == plain(&name);
        let test = PROGRAMS.into_iter().find(is_named);
        test.with_context(|| {
            let names = PROGRAMS.map(Self::program).join(", ");
            format!(
                "{name}: the name of this program tells the operation; link it as one of {names}"
            )
        })
    }

    /// Returns the collective with the buffers of this test. A message has those of a broadcast
    /// from its sender. So have uneven parts, which are those of one buffer with the same length
    /// on all ranks. Uneven sums have the buffers of an all-reduce.
    #[must_use]
    pub const fn collective(self) -> Collective {
        match self {
            Self::Collective(collective) => collective,
            Self::ReduceScatterV => Collective::AllReduce,
            _ => Collective::Broadcast,
        }
    }

    /// Returns the operation in words, for `--help`.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Collective(Collective::AllReduce) => {
                "all-reduce: every rank gets the reduction of all inputs"
            }
            Self::Collective(Collective::AllGather) => {
                "all-gather: every rank gets the inputs of all ranks"
            }
            Self::Collective(Collective::ReduceScatter) => {
                "reduce-scatter: every rank gets its block of the reduction of all inputs"
            }
            Self::Collective(Collective::Broadcast) => {
                "broadcast: every rank gets the input of the root"
            }
            Self::Collective(Collective::Reduce) => {
                "reduce: the root gets the reduction of all inputs"
            }
            Self::Collective(Collective::Barrier) => {
                "barrier: no rank leaves before all have entered"
            }
            Self::Collective(Collective::AllToAll) => {
                "all-to-all: every rank sends a block to every rank"
            }
            Self::Collective(Collective::Gather) => "gather: the root gets the inputs of all ranks",
            Self::Collective(Collective::Scatter) => {
                "scatter: every rank gets its block of the root's input"
            }
            Self::Collective(Collective::Scan) => {
                "scan: every rank gets the reduction of the inputs up to its own"
            }
            Self::Collective(Collective::Exscan) => {
                "exscan: every rank gets the reduction of the inputs before its own"
            }
            Self::SendRecv => "messages: every rank sends to the next rank",
            Self::AllToAllV => "all-to-all with parts of several lengths",
            Self::GatherV => "gather with parts of several lengths",
            Self::ScatterV => "scatter with parts of several lengths",
            Self::AllGatherV => "all-gather with parts of several lengths",
            Self::ReduceScatterV => "reduce-scatter with parts of several lengths",
        }
    }

    /// Returns whether the operation works in windows.
    pub(crate) const fn works_in_windows(self) -> bool {
        matches!(self, Self::Collective(Collective::AllReduce))
    }

    /// Returns whether the parts of the buffer differ in length.
    #[must_use]
    pub const fn is_uneven(self) -> bool {
        !matches!(self, Self::Collective(_) | Self::SendRecv)
    }

    /// Returns whether the user chooses a root.
    pub(crate) const fn has_root(self) -> bool {
        match self {
            Self::Collective(collective) => collective.has_root(),
            _ => false,
        }
    }

    /// Returns the shares of the buffer of an uneven test.
    #[must_use]
    pub const fn shares(self, ranks: usize) -> usize {
        match self {
            Self::AllToAllV if ranks > 1 => ranks * (ranks - 1) / 2,
            _ => ranks * (ranks + 1) / 2,
        }
    }

    /// Returns the elements of the parts of the buffer of `rank`, which has `elements`. Those that
    /// it sends to all ranks are as long as those that it receives.
    pub(crate) fn counts(self, rank: Rank, ranks: usize, elements: usize) -> Vec<usize> {
        let share = elements / self.shares(ranks);
        let count = |part| match self {
            Self::AllToAllV if ranks > 1 => (rank.index() + part) % ranks * share,
            _ => (part + 1) * share,
        };
        (0..ranks).map(count).collect()
    }

    /// Returns what the output of this rank contains after `call`, unless the test is a collective.
    pub(crate) fn expected(self, call: &Call, comm: &Communicator) -> Vec<Expected> {
        let (own, ranks) = (comm.rank(), comm.size());
        let counts = |rank| self.counts(rank, ranks, call.count);
        let all: Vec<_> = (0..ranks).map(Rank::at).collect();
        // Where part `part` of the buffer of `rank` begins.
        let begin = |rank, part: Rank| counts(rank)[..part.index()].iter().sum::<usize>();
        let part = |from: Rank, output: Rank, first| {
            let begin = begin(own, output);
            Expected { output: begin..begin + counts(own)[output.index()], from, first }
        };
        match self {
            Self::Collective(_) => Vec::new(),
            Self::SendRecv => {
                vec![Expected { output: 0..call.count, from: neighbours(comm).1, first: 0 }]
            }
            Self::AllToAllV => all.iter().map(|&it| part(it, it, begin(it, own))).collect(),
            Self::GatherV if own != call.root => Vec::new(),
            Self::GatherV | Self::AllGatherV => {
                all.iter().map(|&it| part(it, it, begin(own, it))).collect()
            }
            Self::ScatterV | Self::ReduceScatterV => vec![part(call.root, own, begin(own, own))],
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Collective(collective) => collective.name(),
            Self::SendRecv => "sendrecv",
            Self::AllToAllV => "alltoallv",
            Self::GatherV => "gatherv",
            Self::ScatterV => "scatterv",
            Self::AllGatherV => "allgatherv",
            Self::ReduceScatterV => "reduce_scatterv",
        })
    }
}

/// Returns the next and the previous rank.
pub(crate) fn neighbours(comm: &Communicator) -> (Rank, Rank) {
    let (rank, size) = (comm.rank().index(), comm.size());
    (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNEVEN: [Test; 5] =
        [Test::AllToAllV, Test::GatherV, Test::ScatterV, Test::AllGatherV, Test::ReduceScatterV];

    #[test]
    fn parts_fill_the_buffer() {
        for (test, ranks) in UNEVEN.into_iter().flat_map(|it| (1..9).map(move |n| (it, n))) {
            let elements = 3 * test.shares(ranks);
            for rank in (0..ranks).map(Rank::at) {
                let counts = test.counts(rank, ranks, elements);
                assert_eq!(counts.iter().sum::<usize>(), elements, "{test}, {rank} of {ranks}");
            }
        }
    }

    #[test]
    fn both_ends_agree_about_a_part() {
        for ranks in 1..9 {
            let elements = Test::AllToAllV.shares(ranks);
            let counts = |rank| Test::AllToAllV.counts(Rank::at(rank), ranks, elements);
            for (one, other) in (0..ranks).flat_map(|one| (0..ranks).map(move |two| (one, two))) {
                assert_eq!(counts(one)[other], counts(other)[one]);
            }
        }
    }
}
