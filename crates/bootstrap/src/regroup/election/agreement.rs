//! Agreement on a number among ranks that may fail: Paxos, with the leader of the election.
//!
//! The leader offers a ballot, and voters promise to accept no lower one. When the voters of a
//! quorum have promised, the leader proposes a value. It is the value of the highest ballot that
//! one of them has accepted before, or else the bitwise and of their flags. The value is decided
//! when the voters of a quorum have accepted it. Later quorums share a voter with this one, so they
//! find the value again, also after the leader has died.

use serde::{Deserialize, Serialize};

/// The number of an attempt to decide. No two leaders have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Ballot {
    round: u64,
    leader: u32,
}

/// The offer of a leader, as it tells those that ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(super) ballot: Ballot,
    /// `None` until the voters have promised.
    value: Option<u64>,
}

/// The flag of a rank, and its promises. A rank keeps them until the agreement has ended, also
/// where it tries again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opinion {
    pub(crate) flag: u64,
    pub(super) promised: Ballot,
    pub(super) accepted: Option<(Ballot, u64)>,
}

impl Opinion {
    /// Follows the offer of a leader, unless a higher one was promised.
    pub(super) fn follow(&mut self, offer: Offer) {
        if offer.ballot >= self.promised {
            self.promised = offer.ballot;
            self.accepted = offer.value.map(|value| (offer.ballot, value)).or(self.accepted);
        }
    }
}

/// The part of one rank in an agreement.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    pub(super) opinion: Opinion,
    /// The offer of this rank where it leads.
    pub(super) offer: Offer,
}

impl Agreement {
    pub(super) fn new(opinion: Opinion) -> Self {
        Self { opinion, offer: Offer::default() }
    }

    /// Leads the voters of a quorum, of which `own` is one. Returns the value when it is decided.
    pub(super) fn lead(&mut self, own: u32, votes: &[Opinion]) -> Option<u64> {
        let all = || votes.iter().chain([&self.opinion]);
        let highest = all().map(|it| it.promised).max().unwrap_or_default();
        if highest > self.offer.ballot || self.offer == Offer::default() {
            let ballot = Ballot { round: highest.round.saturating_add(1), leader: own };
            self.offer = Offer { ballot, value: None };
            self.opinion.follow(self.offer);
            return None;
        }
        let ballot = self.offer.ballot;
        if let Some(value) = self.offer.value {
            return all().all(|it| it.accepted == Some((ballot, value))).then_some(value);
        }
        if all().all(|it| it.promised == ballot) {
            let earlier = all().filter_map(|it| it.accepted).max();
            let of_flags = all().fold(u64::MAX, |value, it| value & it.flag);
            self.offer.value = Some(earlier.map_or(of_flags, |(_, value)| value));
            self.opinion.follow(self.offer);
        }
        None
    }
}
