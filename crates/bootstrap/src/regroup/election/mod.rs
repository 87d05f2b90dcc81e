//! Decides which ranks form the next group after a failure: a state machine without I/O.
//!
//! Every rank votes for the lowest rank that answers. That rank leads, as Raft's leader would, and
//! asks all others. The leader waits for each rank that answers, until the rank votes. It leaves
//! out ranks whose ports are closed, and ranks that keep silent.
//!
//! A group needs a quorum: more than half of the ranks, or all but those whose processes certainly
//! have ended. Ranks that were dismissed do not count. A rank votes for one leader at a time, and
//! no more once its group has formed. So two groups with more than half would have a voter in
//! common, which is impossible. A dead rank may have been a member of another group before it died.
//! So its death alone makes no majority of fewer ranks: then every other rank must be dead.
//!
//! A rank that took its seat in a group, and was not told that all have, may be in a group that has
//! formed. It votes again, and says so. A new group must leave that one no quorum. If another rank
//! says that the group has formed, the rank in doubt is a member too, as if its leader had said so.
//!
//! The group's witness, where there is one, has one more vote, for exactly half of the ranks. It
//! gives it to one set of members for ever, for all agreements and the next group. So two halves
//! cannot both have it, and a half that has it leaves no majority.

use std::collections::{BTreeMap, BTreeSet};

use ringfold_types::limits;
use serde::{Deserialize, Serialize};

use agreement::{Agreement, Offer, Opinion};

use crate::runs;

pub(crate) mod agreement;

/// The most ranks that a voter asks at a time.
const ASKED_MAX: usize = 16;
/// The ranks whose votes a leader can take in a millisecond.
const VOTES_PER_MS: u64 = 10;

/// The time after which ranks of so many repeat their question or answer.
pub(crate) const fn beat_ms(size: usize) -> u64 {
    limits::REGROUP_BEAT_MS + size as u64 / VOTES_PER_MS
}

/// The time without an answer after which ranks of so many leave a rank out.
pub(crate) const fn silence_ms(size: usize) -> u64 {
    limits::REGROUP_SILENCE_MS + 2 * (size as u64 / VOTES_PER_MS)
}

/// The progress of a rank, as it tells those that ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// It works on, and takes no part in an election yet.
    Working,
    /// It votes for this rank.
    Voting(u32),
    /// It leads.
    Leading,
    /// It leads an agreement, and offers this.
    Offering(Offer),
    /// It has agreed on this value.
    Agreed(u64),
    /// It is a member of a new group, which has this mark.
    Moved(u64),
    /// A leader has dismissed it.
    Dismissed,
}

/// The vote of a rank for a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vote {
    /// The ranks that the voter wants to leave out.
    #[serde(with = "runs")]
    pub(crate) without: BTreeSet<u32>,
    /// The ranks of the voter's host whose processes have ended.
    #[serde(with = "runs")]
    pub(crate) dead: BTreeSet<u32>,
    /// The opinion of the voter, if the ranks agree on a value.
    pub(crate) opinion: Option<Opinion>,
    /// The members of the last group in which the voter took a seat, and did not learn whether it
    /// has formed.
    #[serde(with = "runs")]
    pub(crate) doubt: BTreeSet<u32>,
}

/// The reason why a rank asks another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// It leads, and wants to know whether the other rank lives.
    Probe,
    /// It leads, and leaves the other rank out.
    Dismiss,
    Vote(Vote),
}

/// The knowledge about another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Unasked,
    /// It was asked, and has not answered.
    Asked,
    Alive(Stage),
    /// Nobody listens at its port.
    Gone,
    /// It does not answer.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    status: Status,
    /// When the rank was asked, or answered last.
    since_ms: u64,
}

/// The outcome of an election, as far as this rank can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is decided.
    Wait,
    /// This rank leads these members, itself included.
    Form(Vec<u32>),
    /// The ranks have agreed on this value.
    Agreed(u64),
    /// Too few ranks have come.
    NoQuorum(Quorum),
    /// These members are half of the ranks, and the witness must be asked for its vote.
    AskWitness(Vec<u32>),
    /// The group of this mark, of which this rank was in doubt, has formed.
    Formed(u64),
    /// The others have formed a group without this rank.
    Excluded,
    /// This rank wants to leave out other ranks than this one does.
    Differs(u32),
}

/// The size of a quorum, and the ranks that have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quorum {
    /// The ranks that have come.
    #[serde(with = "runs")]
    pub(crate) members: Vec<u32>,
    /// The number of ranks, without those that were dismissed.
    pub(crate) electorate: usize,
    /// The others that may live.
    #[serde(with = "runs")]
    pub(crate) unknown: Vec<u32>,
}

impl Quorum {
    const fn is_reached(&self) -> bool {
        2 * self.members.len() > self.electorate || self.unknown.is_empty()
    }

    const fn is_half(&self) -> bool {
        2 * self.members.len() == self.electorate
    }
}

/// The vote of the witness.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WitnessVote {
    /// The group has no witness.
    None,
    Unasked,
    /// It was asked for these members, and has answered, or has not.
    Asked(Vec<u32>, Option<bool>),
}

/// An election, as one rank sees it. Times are in milliseconds on one clock.
#[derive(Debug)]
pub(crate) struct Election {
    own: u32,
    without: BTreeSet<u32>,
    /// The ranks agree on a value, and form no group.
    agreement: Option<Agreement>,
    size: usize,
    /// The other ranks, but those that were not asked.
    peers: BTreeMap<u32, Peer>,
    /// The lowest rank that leads, among those below this one that ask it.
    led_by: Option<u32>,
    /// The votes for this rank.
    votes: BTreeMap<u32, Vote>,
    witness: WitnessVote,
    /// The members of a group that may have formed without this rank's knowledge.
    doubt: BTreeSet<u32>,
    /// The mark of that group, if this rank can go on in it.
    mark: Option<u64>,
    /// The ranks of this host whose processes have ended.
    dead: BTreeSet<u32>,
    /// When this rank stops waiting for ranks that answer and do not vote.
    deadline_ms: u64,
    /// Since when this rank leads.
    led_ms: Option<u64>,
    /// Since when no rank is awaited.
    settled_ms: Option<u64>,
    /// When `tick` was called last.
    ticked_ms: u64,
}

impl Election {
    /// Begins an election among `size` ranks. `suspects` have caused the failure: they need not
    /// answer first.
    pub(crate) fn new(
        (own, size): (u32, usize),
        without: BTreeSet<u32>,
        suspects: &[u32],
        [now_ms, deadline_ms]: [u64; 2],
    ) -> Self {
        let silent = |rank: &u32| (*rank, Peer { status: Status::Silent, since_ms: now_ms });
        let peers = suspects.iter().filter(|rank| (**rank as usize) < size).map(silent).collect();
        let (votes, dead, ticked_ms) = (BTreeMap::new(), BTreeSet::new(), now_ms);
        let (led_by, led_ms, settled_ms, agreement, mark) = (None, None, None, None, None);
        Self {
            own,
            without,
            agreement,
            size,
            peers,
            led_by,
            votes,
            witness: WitnessVote::None,
            doubt: BTreeSet::new(),
            mark,
            dead,
            deadline_ms,
            led_ms,
            settled_ms,
            ticked_ms,
        }
    }

    /// Has the ranks agree on a value in place of a group.
    pub(crate) fn agreeing(mut self, opinion: Opinion) -> Self {
        self.agreement = Some(Agreement::new(opinion));
        self
    }

    /// This rank had a seat in a group of these members, and does not know whether it has formed.
    /// With the group's mark, it can go on there.
    pub(crate) fn doubting(mut self, members: BTreeSet<u32>, mark: Option<u64>) -> Self {
        (self.doubt, self.mark) = (members, mark);
        self
    }

    /// A witness has a vote in the election.
    pub(crate) fn with_witness(mut self) -> Self {
        self.witness = WitnessVote::Unasked;
        self
    }

    /// The witness gives these members its vote, or does not.
    pub(crate) fn witness_voted(&mut self, members: Vec<u32>, is_given: bool) {
        self.witness = WitnessVote::Asked(members, Some(is_given));
    }

    /// The flag and the promises of this rank, if the ranks agree on a value.
    pub(crate) fn opinion(&self) -> Option<&Opinion> {
        self.agreement.as_ref().map(|it| &it.opinion)
    }

    /// The rank that leads, as far as this rank knows: the lowest one that may answer.
    pub(crate) fn leader(&self) -> u32 {
        (0..self.own).find(|rank| self.may_lead(*rank)).unwrap_or(self.own)
    }

    fn may_lead(&self, rank: u32) -> bool {
        let is_reachable = !matches!(self.status(rank), Status::Gone | Status::Silent);
        is_reachable && !self.without.contains(&rank)
    }

    /// Whether a rank that was asked has not answered for a while.
    fn is_late(&self, rank: u32) -> bool {
        let is_asked = self.status(rank) != Status::Unasked;
        is_asked && self.quiet_ms(rank, self.ticked_ms) > 2 * beat_ms(self.size)
    }

    pub(crate) fn stage(&self) -> Stage {
        match (self.leader(), &self.agreement) {
            (leader, None) if leader == self.own => Stage::Leading,
            (leader, Some(agreement)) if leader == self.own => Stage::Offering(agreement.offer),
            (leader, _) => Stage::Voting(leader),
        }
    }

    /// The ranks that this one must ask now, each with the purpose.
    pub(crate) fn asks(&self) -> BTreeMap<u32, Purpose> {
        let leader = self.leader();
        if leader != self.own {
            let (without, dead) = (self.without.clone(), self.dead.clone());
            let (opinion, doubt) = (self.opinion().cloned(), self.doubt.clone());
            let vote = Vote { without, dead, opinion, doubt };
            let mut asks = BTreeMap::from([(leader, Purpose::Vote(vote))]);
            // While ranks keep silent, the next ones are asked too, so that silences do not add up.
            let mut last = leader;
            while self.is_late(last) && asks.len() < ASKED_MAX {
                let Some(next) = (last + 1..self.own).find(|rank| self.may_lead(*rank)) else {
                    break;
                };
                asks.insert(next, Purpose::Probe);
                last = next;
            }
            return asks;
        }
        // A rank that votes in time need not be asked, which saves a connection to it.
        let led_ms = self.led_ms.map(|since| self.ticked_ms.saturating_sub(since));
        let is_early = led_ms.is_some_and(|it| it < beat_ms(self.size));
        let may_vote = |rank: u32| {
            let is_known = self.without.contains(&rank) || self.dead.contains(&rank);
            is_early && !is_known && self.status(rank) == Status::Unasked
        };
        let others = self.others().filter(|rank| self.is_awaited(*rank) && !may_vote(*rank));
        let purpose = |rank| match self.without.contains(&rank) {
            true => (rank, Purpose::Dismiss),
            false => (rank, Purpose::Probe),
        };
        others.map(purpose).collect()
    }

    /// Whether a leader must know more about the rank before it decides.
    fn is_awaited(&self, rank: u32) -> bool {
        match self.status(rank) {
            Status::Gone | Status::Silent | Status::Alive(Stage::Dismissed) => false,
            // A rank that is left out must agree, although it may vote.
            _ => self.without.contains(&rank) || !self.votes.contains_key(&rank),
        }
    }

    /// This rank asks `rank` now.
    pub(crate) fn asked(&mut self, rank: u32, now_ms: u64) {
        self.note(rank, Status::Asked, now_ms);
    }

    /// A rank that was asked has answered.
    pub(crate) fn heard(&mut self, rank: u32, stage: Stage, now_ms: u64) {
        self.note(rank, Status::Alive(stage), now_ms);
        if let Stage::Offering(offer) = stage
            && rank == self.leader()
            && let Some(agreement) = &mut self.agreement
        {
            agreement.opinion.follow(offer);
        }
    }

    /// Nobody listens at the rank's port, or the connection to it ended.
    pub(crate) fn lost(&mut self, rank: u32, now_ms: u64) {
        self.note(rank, Status::Gone, now_ms);
    }

    /// These ranks ask this one now. A lower rank that asks lives.
    pub(crate) fn asked_by(&mut self, ranks: &BTreeMap<u32, Purpose>, now_ms: u64) {
        self.votes.clear();
        // Voters ask lower ranks only.
        let leads = |(rank, purpose): &(&u32, &Purpose)| {
            **rank < self.own && !matches!(purpose, Purpose::Vote(_))
        };
        self.led_by = ranks.iter().find(leads).map(|(rank, _)| *rank);
        let own = self.own;
        for (rank, purpose) in ranks.iter().filter(|(rank, _)| **rank != own) {
            if let Purpose::Vote(vote) = purpose
                && (*rank as usize) < self.size
            {
                // If the rank withdraws its vote, it is asked from now on.
                if let Some(peer) = self.peers.get_mut(rank) {
                    peer.since_ms = now_ms;
                }
                self.votes.insert(*rank, vote.clone());
            }
            let is_out = matches!(self.status(*rank), Status::Gone | Status::Silent);
            let is_rested = self.quiet_ms(*rank, now_ms) >= beat_ms(self.size);
            if is_out && is_rested && *rank < self.own {
                self.note(*rank, Status::Unasked, now_ms);
            }
        }
    }

    /// The processes of these ranks of this host have ended.
    pub(crate) fn ended(&mut self, dead: BTreeSet<u32>) {
        self.dead = dead;
    }

    /// Decides as far as possible.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Step {
        // This process may have been stopped, so that it could hear no rank.
        let pause_ms = now_ms.saturating_sub(self.ticked_ms);
        self.ticked_ms = now_ms;
        if pause_ms > beat_ms(self.size) {
            self.peers
                .values_mut()
                .for_each(|peer| peer.since_ms = (peer.since_ms + pause_ms).min(now_ms));
        }
        let (led_by, asks) = (self.led_by, self.asks());
        // A rank that is not asked has no need to answer.
        for (rank, peer) in &mut self.peers {
            if matches!(peer.status, Status::Asked | Status::Alive(_)) && !asks.contains_key(rank) {
                peer.since_ms = now_ms;
            }
        }
        for rank in asks.into_keys() {
            let Some(peer) = self.peers.get_mut(&rank) else { continue };
            let is_silent = now_ms.saturating_sub(peer.since_ms) > silence_ms(self.size);
            // A rank that works on for too long cannot lead. A higher one leads then.
            let is_passed = now_ms >= self.deadline_ms || led_by.is_some_and(|it| it > rank);
            let is_idle = is_passed && rank < self.own;
            let is_idle = is_idle && peer.status == Status::Alive(Stage::Working);
            if peer.status != Status::Unasked && (is_silent || is_idle) {
                peer.status = Status::Silent;
            }
        }
        let agreed = |peer: &Peer| match peer.status {
            Status::Alive(Stage::Agreed(value)) => Some(value),
            _ => None,
        };
        if let Some(value) = self.peers.values().find_map(agreed) {
            return Step::Agreed(value);
        }
        let moved = |peer: &Peer| match peer.status {
            Status::Alive(Stage::Moved(mark)) => Some(mark),
            _ => None,
        };
        if let Some(mark) = self.peers.values().find_map(moved) {
            let is_doubted = self.agreement.is_none() && self.mark == Some(mark);
            return if is_doubted { Step::Formed(mark) } else { Step::Excluded };
        }
        if self.leader() != self.own {
            (self.led_ms, self.settled_ms) = (None, None);
            return Step::Wait;
        }
        self.led_ms.get_or_insert(now_ms);
        let differs = |(rank, vote): &(&u32, &Vote)| {
            vote.without != self.without && !self.without.contains(rank)
        };
        if let Some((rank, _)) = self.votes.iter().find(differs) {
            return Step::Differs(*rank);
        }
        if now_ms < self.deadline_ms && self.others().any(|rank| self.is_awaited(rank)) {
            self.settled_ms = None;
            return Step::Wait;
        }
        let settled_ms = *self.settled_ms.get_or_insert(now_ms);
        let quorum = self.quorum();
        let is_enough = quorum.is_reached() || quorum.is_half();
        let has_no_rival = is_enough && (self.agreement.is_some() || self.is_beyond_doubt(&quorum));
        if has_no_rival && quorum.is_reached() {
            self.succeed(quorum.members)
        } else if has_no_rival && let Some(step) = self.ask_witness(&quorum) {
            step
        } else if now_ms.saturating_sub(settled_ms) > silence_ms(self.size) {
            Step::NoQuorum(quorum)
        } else {
            // The end of a process may be known in a moment.
            Step::Wait
        }
    }

    /// Forms a group of these members, which are a quorum, or leads their agreement on.
    fn succeed(&mut self, members: Vec<u32>) -> Step {
        let Some(agreement) = &mut self.agreement else { return Step::Form(members) };
        let opinion = |vote: &Vote| vote.opinion.clone().unwrap_or_default();
        let votes: Vec<Opinion> = self.votes.values().map(opinion).collect();
        let value = agreement.lead(self.own, &votes);
        value.map_or(Step::Wait, Step::Agreed)
    }

    /// Whether no group that a member may be in without knowing it can go on without the members.
    /// Such a group has formed where some of its ranks were told so, and the others were not. At
    /// least half of its ranks must be elsewhere for that, and one of them alive. Of earlier seats
    /// of a voter, the later group has taken care.
    fn is_beyond_doubt(&self, quorum: &Quorum) -> bool {
        let doubts = self.votes.values().map(|vote| &vote.doubt).chain([&self.doubt]);
        // Most voters doubt the same group.
        doubts.collect::<BTreeSet<_>>().into_iter().all(|doubt| {
            let is_elsewhere = |rank: &&u32| quorum.members.binary_search(rank).is_err();
            let elsewhere = doubt.iter().filter(is_elsewhere);
            let lives = elsewhere.clone().any(|rank| quorum.unknown.contains(rank));
            !lives || 2 * elsewhere.count() < doubt.len()
        })
    }

    /// Asks the witness for its vote, where it decides. `None` if it has none for the members.
    fn ask_witness(&mut self, quorum: &Quorum) -> Option<Step> {
        let members = quorum.is_half().then(|| quorum.members.clone())?;
        match &self.witness {
            WitnessVote::Asked(asked, answer) if *asked == members => match answer {
                None => Some(Step::Wait),
                Some(is_given) => is_given.then(|| self.succeed(members)),
            },
            WitnessVote::None => None,
            _ => {
                self.witness = WitnessVote::Asked(members.clone(), None);
                Some(Step::AskWitness(members))
            }
        }
    }

    fn quorum(&self) -> Quorum {
        let voters = self.votes.keys().filter(|rank| !self.without.contains(rank));
        let mut members: Vec<u32> = voters.copied().chain([self.own]).collect();
        members.sort_unstable();
        // A rank that was dismissed may have accepted a value before.
        let is_dismissed = |rank: &u32| {
            self.agreement.is_none() && self.status(*rank) == Status::Alive(Stage::Dismissed)
        };
        let is_dead = |rank: &u32| {
            let says_so = |vote: &Vote| vote.dead.contains(rank);
            self.dead.contains(rank) || self.votes.values().any(says_so)
        };
        let is_member = |rank: &u32| members.binary_search(rank).is_ok();
        let rest = self.others().filter(|rank| !is_member(rank) && !is_dismissed(rank));
        let electorate = members.len() + rest.clone().count();
        let unknown = rest.filter(|rank| !is_dead(rank)).collect();
        Quorum { members, electorate, unknown }
    }

    fn others(&self) -> impl Iterator<Item = u32> + Clone {
        (0..).take(self.size).filter(|rank| *rank != self.own)
    }

    fn status(&self, rank: u32) -> Status {
        let unknown = if (rank as usize) < self.size { Status::Unasked } else { Status::Gone };
        self.peers.get(&rank).map_or(unknown, |peer| peer.status)
    }

    /// The time since the rank was asked, or answered last.
    fn quiet_ms(&self, rank: u32, now_ms: u64) -> u64 {
        let peer = self.peers.get(&rank);
        peer.map_or(0, |peer| now_ms.saturating_sub(peer.since_ms))
    }

    fn note(&mut self, rank: u32, status: Status, since_ms: u64) {
        if (rank as usize) < self.size {
            self.peers.insert(rank, Peer { status, since_ms });
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
