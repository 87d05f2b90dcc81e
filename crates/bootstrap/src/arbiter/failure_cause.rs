//! The failure cause as text: the one sentence that every surviving rank gets.

use std::fmt;

use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

/// Why the job failed. Every survivor gets the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureCause {
    /// A rank's process is gone: its control connection closed without a goodbye.
    Died {
        /// The dead rank.
        who: RankOnHost,
    },
    /// Ranks do not answer, though their connections are open: they are stopped, swapped out or cut
    /// off.
    Silent {
        /// The ranks that do not answer.
        ranks: Vec<RankOnHost>,
        /// How long they had to answer, in milliseconds.
        for_ms: u64,
    },
    /// Ranks have not entered a call in which others wait for them.
    Absent {
        /// The call's number.
        seq: u64,
        /// The call.
        call: String,
        /// The missing ranks, and where they are instead.
        ranks: Vec<AbsentRank>,
    },
    /// Ranks made different calls under the same number.
    Mismatch {
        /// The call's number.
        seq: u64,
        /// Each different call and the ranks that made it. The call of most ranks comes first.
        calls: Vec<DifferingCall>,
    },
    /// A connection between two living ranks broke.
    Link {
        /// The rank that noticed it.
        from: RankOnHost,
        /// The rank at the other end.
        to: RankOnHost,
        /// The cause as that rank reported it.
        cause: String,
    },
    /// A point-to-point message failed: its tag, type or length is not that of the receive, or it
    /// takes too long. Its sender may have left since.
    Message {
        /// The rank that noticed it.
        from: RankOnHost,
        /// The rank at the other end.
        to: RankOnHost,
        /// The cause as that rank reported it.
        cause: String,
    },
    /// Two ranks made calls that look alike, and the tags of their messages differ: their builds or
    /// settings of ringfold do.
    Tags {
        /// The call's number.
        seq: u64,
        /// The call.
        call: String,
        /// The rank that noticed it.
        from: RankOnHost,
        /// The rank whose message has another tag.
        to: RankOnHost,
    },
    /// Every rank is in the same call, none is missing, and the call does not end in time.
    Stalled {
        /// The call's number.
        seq: u64,
        /// The call.
        call: String,
        /// The ranks that have not finished it.
        #[serde(with = "ranks")]
        ranks: Vec<Rank>,
    },
    /// A rank aborted.
    Aborted {
        /// The rank that aborted.
        who: RankOnHost,
        /// Its reason.
        reason: String,
    },
    /// A rank revoked the communicator. No rank has failed.
    Revoked {
        /// The rank that revoked it.
        who: RankOnHost,
    },
    /// Rank 0, which runs the control plane, has left the job, so no rank can find out the cause.
    Left {
        /// The rank that left.
        who: RankOnHost,
    },
}

impl FailureCause {
    /// The ranks to inspect first. For a mismatch, they are the minority. For a link, a message or
    /// tags, they are both ends. A revoked communicator has none.
    #[must_use]
    pub fn culprits(&self) -> Vec<Rank> {
        match self {
            Self::Died { who } | Self::Left { who } | Self::Aborted { who, .. } => vec![who.rank],
            Self::Silent { ranks, .. } => ranks.iter().map(|w| w.rank).collect(),
            Self::Absent { ranks, .. } => ranks.iter().map(|w| w.who.rank).collect(),
            Self::Mismatch { calls, .. } => {
                calls.iter().skip(1).flat_map(|call| call.ranks.iter().copied()).collect()
            }
            Self::Link { from, to, .. }
            | Self::Message { from, to, .. }
            | Self::Tags { from, to, .. } => vec![from.rank, to.rank],
            Self::Stalled { ranks, .. } => ranks.clone(),
            Self::Revoked { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died { who } => write!(f, "the process of {who} is gone"),
            Self::Silent { ranks, for_ms } => {
                joined(f, ranks)?;
                let verb = if ranks.len() == 1 { "does" } else { "do" };
                write!(f, " {verb} not answer (asked {for_ms} ms ago): stopped or cut off")
            }
            Self::Absent { seq, call, ranks } => {
                write!(f, "not every rank has entered {call} #{seq}: ")?;
                joined(f, ranks)
            }
            Self::Mismatch { seq, calls } => {
                write!(f, "ranks differ in call #{seq}: ")?;
                joined(f, calls)
            }
            Self::Link { from, to, cause } => {
                write!(f, "the connection from {from} to {to} failed: {cause}")
            }
            Self::Message { from, to, cause } => {
                write!(f, "a message between {from} and {to} failed: {cause}")
            }
            Self::Tags { seq, call, from, to } => write!(
                f,
                "{from} and {to} both made {call} #{seq}, and the tags of their messages differ: \
                 start every rank with the same build and settings of ringfold"
            ),
            Self::Stalled { seq, call, ranks } => {
                write!(f, "every rank is in {call} #{seq}, which does not end in time: ")?;
                if ranks.is_empty() {
                    return f.write_str("all are through with it by now");
                }
                write!(f, "{} still inside", RankList(ranks))
            }
            Self::Aborted { who, reason } => write!(f, "{who} gave up: {reason}"),
            Self::Revoked { who } => write!(f, "{who} revoked the communicator"),
            Self::Left { who } => {
                write!(f, "{who} has left the job, and with it the control plane")
            }
        }
    }
}

/// A rank, and its host if the job spans several hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOnHost {
    /// The rank.
    #[serde(with = "rank")]
    pub rank: Rank,
    /// The name of its host.
    pub host: Option<String>,
}

impl fmt::Display for RankOnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        self.host.as_ref().map_or(Ok(()), |host| write!(f, " (host {host})"))
    }
}

/// A rank that is missing from a call, and where it is instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentRank {
    /// The rank.
    pub who: RankOnHost,
    /// Its position in its sequence of calls.
    pub position: CallPosition,
}

impl fmt::Display for AbsentRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.who)?;
        match &self.position {
            CallPosition::Start => f.write_str("has made no call yet"),
            CallPosition::Inside { seq, call } => write!(f, "is inside {call} #{seq}"),
            CallPosition::After { seq, call } => write!(f, "has made no call since {call} #{seq}"),
            CallPosition::Gone => f.write_str("has left the job"),
        }
    }
}

/// A rank's position in its sequence of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallPosition {
    /// Before its first call.
    Start,
    /// Inside a call.
    Inside {
        /// The call's number.
        seq: u64,
        /// The call.
        call: String,
    },
    /// Outside, after a call.
    After {
        /// The call's number.
        seq: u64,
        /// The call.
        call: String,
    },
    /// It has left the job.
    Gone,
}

/// One of several different calls under one number, and the ranks that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingCall {
    /// The call.
    pub call: String,
    /// The ranks that made it.
    #[serde(with = "ranks")]
    pub ranks: Vec<Rank>,
}

impl fmt::Display for DifferingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} called {}", RankList(&self.ranks), self.call)
    }
}

/// Formats ranks in growing order, as in `ranks 0-2, 5`.
#[derive(Debug)]
pub struct RankList<'a>(pub &'a [Rank]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        let runs = self.0.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0));
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    items.iter().enumerate().try_for_each(|(i, item)| {
        let comma = if i == 0 { "" } else { "; " };
        write!(f, "{comma}{item}")
    })
}

/// Encodes a `Rank` for the wire. The crate of `Rank` has no dependencies, so it has no serde.
mod rank {
    use ringfold_types::Rank;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(rank: &Rank, s: S) -> Result<S::Ok, S::Error> {
        rank.0.serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Rank, D::Error> {
        u32::deserialize(d).map(Rank)
    }
}

/// Encodes ranks for the wire.
mod ranks {
    use ringfold_types::Rank;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(ranks: &[Rank], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(ranks.iter().map(|r| r.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Rank>, D::Error> {
        Vec::<u32>::deserialize(d).map(|ranks| ranks.into_iter().map(Rank).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_lists_are_short() {
        let list = |ranks: &[u32]| {
            RankList(&ranks.iter().map(|&r| Rank(r)).collect::<Vec<_>>()).to_string()
        };
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "ranks 0-2, 5, 7-8");
        assert_eq!(list(&[u32::MAX, 0]), format!("ranks {}, 0", u32::MAX));
    }
}
