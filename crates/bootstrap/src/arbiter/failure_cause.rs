//! The failure cause as text: the one sentence that every surviving rank gets.

use std::fmt;
use std::ops::Deref;

use ringfold_types::{Rank, limits};
use serde::{Deserialize, Serialize};

use crate::channel::frames::encode;

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
        ranks: Listed<RankOnHost>,
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
        ranks: Listed<AbsentRank>,
    },
    /// Ranks made different calls under the same number.
    Mismatch {
        /// The call's number.
        seq: u64,
        /// Each different call and the ranks that made it. The call of most ranks comes first.
        calls: Listed<DifferingCall>,
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
        ranks: Listed<Rank>,
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
    /// The ranks to inspect first, of those that the cause lists. For a mismatch, they are the
    /// minority. For a link, a message or tags, they are both ends. A revoked communicator has
    /// none.
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
            Self::Stalled { ranks, .. } => ranks.to_vec(),
            Self::Revoked { .. } => Vec::new(),
        }
    }

    /// Shortens the lists so that together they take about `limits::CAUSE_LISTS_BYTES` in the
    /// messages to so many ranks.
    pub(crate) fn shorten(&mut self, size: usize) {
        let mut room = list_room(size);
        match self {
            Self::Silent { ranks, .. } => ranks.shorten(room),
            Self::Absent { ranks, .. } => ranks.shorten(room),
            Self::Stalled { ranks, .. } => ranks.shorten_runs(room),
            Self::Mismatch { calls, .. } => {
                for call in &mut calls.first {
                    call.ranks.shorten_runs(room / 2);
                    room = room.saturating_sub(encode(call).len());
                }
                calls.shorten(list_room(size));
            }
            Self::Died { .. }
            | Self::Link { .. }
            | Self::Message { .. }
            | Self::Tags { .. }
            | Self::Aborted { .. }
            | Self::Revoked { .. }
            | Self::Left { .. } => {}
        }
    }
}

/// The bytes of lists in a message to each of so many ranks.
pub(crate) const fn list_room(size: usize) -> usize {
    limits::CAUSE_LISTS_BYTES / if size == 0 { 1 } else { size }
}

/// The first items of a list, and the number of the others. A list that all ranks get is shorter
/// where there are many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed<T> {
    first: Vec<T>,
    others: usize,
}

impl<T> Listed<T> {
    /// The number of items that are not listed.
    #[must_use]
    pub const fn others(&self) -> usize {
        self.others
    }

    /// Keeps so many items, and at least one.
    fn keep(&mut self, items: usize) {
        let items = items.max(1);
        self.others = self.others.saturating_add(self.first.len().saturating_sub(items));
        self.first.truncate(items);
    }
}

impl<T: Serialize> Listed<T> {
    /// Keeps the items that take so many bytes, and at least one.
    fn shorten(&mut self, mut room: usize) {
        let fits = |item: &&T| {
            let left = room.checked_sub(encode(item).len());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let items = self.first.iter().take_while(fits).count();
        self.keep(items);
    }
}

impl Listed<Rank> {
    /// Keeps the runs of ranks that take so many bytes, and at least one.
    pub(crate) fn shorten_runs(&mut self, room: usize) {
        const RUN_BYTES: usize = 6;
        let kept = runs(&self.first).take((room / RUN_BYTES).max(1));
        let ranks = kept.map(<[Rank]>::len).sum();
        self.keep(ranks);
    }
}

impl<T> From<Vec<T>> for Listed<T> {
    fn from(first: Vec<T>) -> Self {
        Self { first, others: 0 }
    }
}

impl<T> FromIterator<T> for Listed<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<T> Deref for Listed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.first
    }
}

/// As in `rank 1; rank 7 and 12 others`.
impl<T: fmt::Display> fmt::Display for Listed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{item}")?;
        }
        others(f, self.others)
    }
}

/// Adds the number of items that a list lacks.
fn others(f: &mut fmt::Formatter<'_>, others: usize) -> fmt::Result {
    match others {
        0 => Ok(()),
        1 => f.write_str(" and 1 other"),
        _ => write!(f, " and {others} others"),
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died { who } => write!(f, "the process of {who} is gone"),
            Self::Silent { ranks, for_ms } => {
                let verb = if ranks.len() == 1 && ranks.others() == 0 { "does" } else { "do" };
                write!(f, "{ranks} {verb} not answer (asked {for_ms} ms ago): stopped or cut off")
            }
            Self::Absent { seq, call, ranks } => {
                write!(f, "not every rank has entered {call} #{seq}: {ranks}")
            }
            Self::Mismatch { seq, calls } => write!(f, "ranks differ in call #{seq}: {calls}"),
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
                write!(f, "{} still inside", ListedRanks(ranks))
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
    pub ranks: Listed<Rank>,
}

impl fmt::Display for DifferingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} called {}", ListedRanks(&self.ranks), self.call)
    }
}

/// As in `ranks 0-2, 5 and 12 others`.
pub(crate) struct ListedRanks<'a>(pub(crate) &'a Listed<Rank>);

impl fmt::Display for ListedRanks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ranks) = self;
        RankList(ranks).fmt(f)?;
        others(f, ranks.others)
    }
}

/// Formats ranks in growing order, as in `ranks 0-2, 5`.
#[derive(Debug)]
pub struct RankList<'a>(pub &'a [Rank]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        for (i, run) in runs(self.0).enumerate() {
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

/// Splits ranks in growing order into runs without a gap.
fn runs(ranks: &[Rank]) -> impl Iterator<Item = &[Rank]> {
    ranks.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0))
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

/// Encodes listed ranks for the wire.
pub(crate) mod ranks {
    use ringfold_types::Rank;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Listed;
    use crate::runs::{Runs, pack, unpack};

    pub(crate) fn serialize<S: Serializer>(it: &Listed<Rank>, s: S) -> Result<S::Ok, S::Error> {
        (pack(it.first.iter().map(|rank| rank.0)), it.others).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Listed<Rank>, D::Error> {
        let (runs, others): (Runs, usize) = Deserialize::deserialize(d)?;
        Ok(Listed { first: unpack(runs)?.map(Rank).collect(), others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::frames::decode;

    #[test]
    fn rank_lists_are_short() {
        let list = |ranks: &[u32]| {
            RankList(&ranks.iter().map(|&r| Rank(r)).collect::<Vec<_>>()).to_string()
        };
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "ranks 0-2, 5, 7-8");
        assert_eq!(list(&[u32::MAX, 0]), format!("ranks {}, 0", u32::MAX));
    }

    /// A rank may send any number.
    #[test]
    fn a_hostile_number_of_others_is_no_overflow() {
        let who = |rank| RankOnHost { rank: Rank(rank), host: None };
        let ranks = Listed { first: vec![who(3), who(4)], others: usize::MAX };
        let mut cause = FailureCause::Silent { ranks, for_ms: 500 };
        cause.shorten(usize::MAX);
        assert!(cause.to_string().starts_with("rank 3 and 18446744073709551615 others do not"));
    }

    /// Causes with many ranks in every list, none of them beside another.
    fn long_causes(size: u32) -> Vec<FailureCause> {
        let every = |step: usize| (0..size).step_by(step).map(Rank);
        let on_host = |rank: Rank| RankOnHost { rank, host: Some(format!("node{:05}", rank.0)) };
        let call = |i: u32| format!("allreduce [f32 x {i}, sum]");
        let absent = |rank: Rank| AbsentRank {
            who: on_host(rank),
            position: CallPosition::Inside { seq: 7, call: call(rank.0) },
        };
        let differing = |ranks: Vec<Rank>| {
            let call = call(ranks[0].0);
            DifferingCall { call, ranks: ranks.into() }
        };
        vec![
            FailureCause::Silent { ranks: every(2).map(on_host).collect(), for_ms: 500 },
            FailureCause::Absent { seq: 7, call: call(0), ranks: every(2).map(absent).collect() },
            FailureCause::Stalled { seq: 7, call: call(0), ranks: every(2).collect() },
            FailureCause::Mismatch {
                seq: 7,
                calls: (0..2)
                    .map(|odd| differing(every(2).map(|it| Rank(it.0 + odd)).collect()))
                    .collect(),
            },
            FailureCause::Mismatch {
                seq: 7,
                calls: every(1).map(|rank| differing(vec![rank])).collect(),
            },
        ]
    }

    #[test]
    fn lists_of_a_cause_do_not_grow_with_the_square_of_the_ranks() {
        for size in [2, 64, 1_024, 48_894, 65_536] {
            for whole in long_causes(size) {
                let mut cause = whole.clone();
                cause.shorten(size as usize);
                assert_eq!(decode(&encode(&cause)), Some(cause.clone()));
                let bytes = encode(&cause).len() * size as usize;
                assert!(bytes <= 100_000_000, "{size} ranks get {bytes} bytes: {cause}");
                // Where there are few ranks the lists are whole.
                if size <= 1_024 {
                    assert_eq!(cause, whole);
                }
            }
        }
    }

    #[test]
    fn shortened_lists_say_how_many_they_leave_out() {
        let mut texts = long_causes(65_536).into_iter().map(|mut cause| {
            cause.shorten(65_536);
            cause.to_string()
        });
        let silent = texts.next().unwrap();
        assert!(
            silent.starts_with("rank 0 (host node00000); rank 2 (host node00002); "),
            "{silent}"
        );
        let ends = " others do not answer (asked 500 ms ago): stopped or cut off";
        assert!(silent.ends_with(ends), "{silent}");
        let absent = texts.next().unwrap();
        assert!(absent.ends_with(" others") && absent.contains("; rank 2 (host"), "{absent}");
        let stalled = texts.next().unwrap();
        assert!(stalled.ends_with(" others still inside"), "{stalled}");
        let two = texts.next().unwrap();
        let [both, odd] = ["called allreduce [f32 x 0, sum]; ranks 1, 3, 5, ", "f32 x 1, sum]"];
        assert!(two.contains(both) && two.ends_with(odd), "{two}");
        let all_differ = texts.next().unwrap();
        assert!(all_differ.ends_with(" others"), "{all_differ}");
        // Each rank of a list is listed or counted.
        let ranks: Listed<Rank> = (0..9).step_by(2).map(Rank).collect();
        let mut some = ranks.clone();
        some.shorten_runs(13);
        assert_eq!(ListedRanks(&some).to_string(), "ranks 0, 2 and 3 others");
        let mut most = ranks;
        most.shorten_runs(24);
        assert_eq!(ListedRanks(&most).to_string(), "ranks 0, 2, 4, 6 and 1 other");
    }
}
