//! Finds the cause of a failure: a state machine from failure reports and answers to one cause.
//!
//! The arbiter does no I/O. Callers pass the time in milliseconds, and it returns each `Action` for
//! the caller to take. The coordinator runs it over TCP and `local` runs it under a mutex, with the
//! same failure causes.
//!
//! `call_log` has the evidence, and `failure_cause` the outcome. `agreement` has all survivors
//! return the same one.

use std::collections::BTreeMap;

use ringfold_types::{Rank, limits};
use serde::{Deserialize, Serialize};

use call_log::{History, Logged};
use failure_cause::{AbsentRank, CallPosition, DifferingCall, FailureCause, Listed, RankOnHost};

pub(crate) mod agreement;
pub(crate) mod call_log;
pub(crate) mod failure_cause;

/// How often the coordinator checks an open inquiry until its time is over.
const TICKS: u64 = 4;
/// The ranks that rank 0 can ask and hear in a millisecond.
const RANKS_PER_MS: u64 = 100;

/// The milliseconds by which rank 0 takes longer for so many ranks than for few.
pub(crate) const fn more_ms(size: usize) -> u64 {
    size as u64 / RANKS_PER_MS
}

/// A failure report of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureReport {
    /// A call has not finished within its deadline.
    Overdue {
        /// The call's number.
        seq: u64,
    },
    /// The tag of a peer's message differs from that of the call.
    Mismatch {
        /// The call's number.
        seq: u64,
        /// The rank number of the peer.
        peer: u32,
    },
    /// A data connection failed.
    Link {
        /// The rank number of the far end.
        peer: u32,
        /// The cause as text, cut at `limits::CAUSE_BYTES_MAX`.
        cause: String,
    },
    /// The process of a peer has ended, which the peer's own host reports.
    Died {
        /// The rank number of the peer.
        peer: u32,
    },
    /// A message between two ranks failed, though their connection did not: it differs from what
    /// its receiver expects, or takes too long.
    Message {
        /// The rank number of the far end.
        peer: u32,
        /// The cause as text, cut at `limits::CAUSE_BYTES_MAX`.
        cause: String,
    },
    /// The rank aborts.
    Abort {
        /// The reason as text, cut at `limits::CAUSE_BYTES_MAX`.
        reason: String,
    },
    /// The rank revokes the communicator.
    Revoke,
}

/// An action that the caller of the arbiter must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask these ranks for their history, and pass the answers to `Arbiter::answer`.
    Ask(Vec<Rank>),
    /// Tell every rank. No further action follows.
    Announce(FailureCause),
}

/// Collects the reports of ranks and their fates. The first failure cause is the only one.
#[derive(Debug)]
pub struct Arbiter {
    hosts: Vec<Option<String>>,
    /// By rank, the last history of one that has left.
    departed: Vec<Option<History>>,
    inquiry: Option<Inquiry>,
    broken: Option<Broken>,
    /// The ranks whose messages of a call first differed in their tags.
    odd: Option<[Rank; 2]>,
    done: bool,
}

/// An open question to all ranks.
#[derive(Debug)]
struct Inquiry {
    /// The call in question. For a broken link it is known only after `by` has answered.
    seq: Option<u64>,
    by: Rank,
    since_ms: u64,
    /// When `tick` was called last.
    ticked_ms: u64,
    /// How much of the time for answers had passed at that tick.
    passed_ms: u64,
    answers: Vec<Option<History>>,
    /// All ranks below this one have answered or left.
    closed: usize,
}

impl Inquiry {
    const fn new(seq: Option<u64>, by: Rank, now_ms: u64, answers: Vec<Option<History>>) -> Self {
        Self { seq, by, since_ms: now_ms, ticked_ms: now_ms, passed_ms: 0, answers, closed: 0 }
    }

    fn tick_ms(&self) -> u64 {
        (limits::ANSWER_MS + more_ms(self.answers.len())) / TICKS
    }

    /// Whether the ranks have had their time to answer. A late tick counts like a punctual one,
    /// because a stopped coordinator may have sent its question only after it resumed.
    fn is_over(&mut self, now_ms: u64) -> bool {
        self.passed_ms += now_ms.saturating_sub(self.ticked_ms).min(self.tick_ms());
        self.ticked_ms = now_ms;
        self.passed_ms >= TICKS * self.tick_ms()
    }

    /// Ranks whose calls differed may all have returned from them, if no rank waited for bytes that
    /// never came. Leftover bytes then disturb a later call. So if any earlier call differed, that
    /// call is the one in question.
    fn blame_the_first_difference(&mut self, departed: &[Option<History>]) {
        let asked = Evidence::gather(self, departed).seq.unwrap_or(u64::MAX);
        let mut called: BTreeMap<u64, (&[u64; 5], u8)> = BTreeMap::new();
        let mut first = asked;
        let histories = self.answers.iter().zip(departed);
        for history in histories.filter_map(|(answer, last)| last.as_ref().or(answer.as_ref())) {
            for call in history.calls.iter().filter(|call| call.seq < asked) {
                let this = (&call.words, call.algorithm);
                if *called.entry(call.seq).or_insert(this) != this {
                    first = first.min(call.seq);
                }
            }
        }
        if first < asked {
            self.seq = Some(first);
        }
    }
}

/// A failure between two ranks, while the arbiter waits whether one of them dies.
#[derive(Debug)]
struct Broken {
    from: Rank,
    to: Rank,
    kind: Kind,
    cause: String,
    since_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Link,
    Message,
    /// The process of `to` has ended.
    Death,
}

impl Arbiter {
    /// Makes an arbiter for as many ranks as there are host names.
    #[must_use]
    pub fn new(hosts: Vec<String>) -> Self {
        let one_host = hosts.windows(2).all(|pair| pair[0] == pair[1]);
        let departed = hosts.iter().map(|_| None).collect();
        let hosts = hosts.into_iter().map(|h| (!one_host).then_some(h)).collect();
        Self { hosts, departed, inquiry: None, broken: None, odd: None, done: false }
    }

    /// A rank reports a failure.
    pub fn report_failure(
        &mut self,
        from: Rank,
        report: FailureReport,
        now_ms: u64,
    ) -> Option<Action> {
        if self.done || !self.is_present(from) {
            return None;
        }
        match report {
            FailureReport::Overdue { seq } => self.inquire(Some(seq), from, now_ms),
            FailureReport::Mismatch { seq, peer } => {
                let is_peer = Rank(peer).index() < self.departed.len();
                self.odd = self.odd.or_else(|| is_peer.then_some([from, Rank(peer)]));
                self.inquire(Some(seq), from, now_ms)
            }
            FailureReport::Link { peer, cause } => {
                self.lose_link([from, Rank(peer)], Kind::Link, cause, now_ms)
            }
            FailureReport::Died { peer } => {
                let cause = "its process has ended".to_owned();
                self.lose_link([from, Rank(peer)], Kind::Death, cause, now_ms)
            }
            FailureReport::Message { peer, cause } => {
                self.note_broken([from, Rank(peer)], Kind::Message, cause, now_ms);
                self.inquire(None, from, now_ms)
            }
            FailureReport::Abort { reason } => {
                self.announce(FailureCause::Aborted { who: self.who(from), reason: cut(reason) })
            }
            FailureReport::Revoke => self.announce(FailureCause::Revoked { who: self.who(from) }),
        }
    }

    /// A link from one rank to the other has ended.
    fn lose_link(
        &mut self,
        [from, to]: [Rank; 2],
        kind: Kind,
        cause: String,
        now_ms: u64,
    ) -> Option<Action> {
        self.note_broken([from, to], kind, cause, now_ms);
        // A peer that has left in peace does not die any more.
        if self.has_left(to) { self.inquire(None, from, now_ms) } else { None }
    }

    /// Remembers the first failure between two ranks. That of a message explains more than the end
    /// of a link to a rank that has left.
    fn note_broken(&mut self, [from, to]: [Rank; 2], kind: Kind, cause: String, now_ms: u64) {
        let gives_way =
            |it: &Broken| kind == Kind::Message && it.kind != Kind::Message && self.has_left(it.to);
        if self.broken.as_ref().is_none_or(gives_way) && to.index() < self.departed.len() {
            let cause = cut(cause);
            self.broken = Some(Broken { from, to, kind, cause, since_ms: now_ms });
        }
    }

    /// A rank answers an inquiry with its history.
    pub fn answer(&mut self, from: Rank, history: History, now_ms: u64) -> Option<Action> {
        if self.done {
            return None;
        }
        let inquiry = self.inquiry.as_mut()?;
        *inquiry.answers.get_mut(from.index())? = Some(tidied(history));
        self.conclude_if_answered(now_ms)
    }

    /// A rank leaves and hands in its last history. After the last rank has left, the arbiter
    /// compares the histories: a difference may have kept no rank waiting, so that no rank has
    /// reported it.
    pub fn left(&mut self, from: Rank, history: History, now_ms: u64) -> Option<Action> {
        if self.done {
            return None;
        }
        *self.departed.get_mut(from.index())? = Some(tidied(history));
        self.conclude_if_answered(now_ms).or_else(|| self.compare())
    }

    /// A rank's connection closed. After a goodbye this is expected.
    pub fn closed(&mut self, rank: Rank) -> Option<Action> {
        if self.done || !self.is_present(rank) {
            return None;
        }
        self.announce(FailureCause::Died { who: self.who(rank) })
    }

    /// A rank's connection timed out: no byte arrived on it for `for_ms`.
    pub fn cut(&mut self, rank: Rank, for_ms: u64) -> Option<Action> {
        if self.done || !self.is_present(rank) {
            return None;
        }
        self.announce(FailureCause::Silent { ranks: vec![self.who(rank)].into(), for_ms })
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) -> Option<Action> {
        if self.done {
            return None;
        }
        if self.inquiry.as_mut().is_some_and(|inquiry| inquiry.is_over(now_ms)) {
            return self.conclude(now_ms);
        }
        let broken = self.broken.as_ref()?;
        if now_ms < broken.since_ms + limits::LINK_GRACE_MS || self.inquiry.is_some() {
            return None;
        }
        if self.is_present(broken.to) {
            let cause = self.link_failure(broken);
            return self.announce(cause);
        }
        // The far end left in peace. The inquiry finds the call that it did not make.
        let from = broken.from;
        self.inquire(None, from, now_ms)
    }

    /// When to call `tick` next, on the clock of the `now_ms` arguments.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        if self.done {
            return None;
        }
        match (&self.inquiry, &self.broken) {
            (Some(inquiry), _) => Some(inquiry.ticked_ms + inquiry.tick_ms()),
            (None, Some(broken)) => Some(broken.since_ms + limits::LINK_GRACE_MS),
            (None, None) => None,
        }
    }

    /// Whether the rank was asked for its history and has not answered.
    #[must_use]
    pub fn awaits(&self, rank: Rank) -> bool {
        let answer = self.inquiry.as_ref().and_then(|inquiry| inquiry.answers.get(rank.index()));
        matches!(answer, Some(None)) && self.is_present(rank)
    }

    /// How many ranks there are, dead or alive.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.departed.len()
    }

    /// Whether every rank has left.
    #[must_use]
    pub fn have_all_left(&self) -> bool {
        self.departed.iter().all(Option::is_some)
    }

    /// Whether the rank is neither dead nor gone.
    #[must_use]
    pub fn is_present(&self, rank: Rank) -> bool {
        matches!(self.departed.get(rank.index()), Some(None))
    }

    fn has_left(&self, rank: Rank) -> bool {
        matches!(self.departed.get(rank.index()), Some(Some(_)))
    }

    fn inquire(&mut self, seq: Option<u64>, by: Rank, now_ms: u64) -> Option<Action> {
        if let Some(inquiry) = &mut self.inquiry {
            // The oldest overdue call makes the others hang.
            inquiry.seq = inquiry.seq.min(seq).or(inquiry.seq).or(seq);
            return None;
        }
        let answers = self.departed.iter().map(|_| None).collect();
        self.inquiry = Some(Inquiry::new(seq, by, now_ms, answers));
        let asked = (0..self.departed.len()).map(Rank::at).filter(|r| self.is_present(*r));
        Some(Action::Ask(asked.collect()))
    }

    fn conclude_if_answered(&mut self, now_ms: u64) -> Option<Action> {
        let Inquiry { answers, closed, .. } = self.inquiry.as_mut()?;
        let rest = answers.iter().zip(&self.departed).skip(*closed);
        *closed += rest.take_while(|(answer, last)| answer.is_some() || last.is_some()).count();
        if *closed < answers.len() { None } else { self.conclude(now_ms) }
    }

    fn conclude(&mut self, now_ms: u64) -> Option<Action> {
        let mut inquiry = self.inquiry.take()?;
        inquiry.blame_the_first_difference(&self.departed);
        let evidence = Evidence::gather(&inquiry, &self.departed);
        let cause = self
            .mismatch(&evidence)
            .or_else(|| self.silent(&evidence, now_ms.saturating_sub(inquiry.since_ms)))
            .or_else(|| self.certain_failure())
            .or_else(|| self.absent(&evidence))
            .or_else(|| self.tags(&evidence))
            .or_else(|| self.broken.as_ref().map(|b| self.link_failure(b)))
            .unwrap_or_else(|| evidence.stalled());
        self.announce(cause)
    }

    /// After all ranks have left in peace: compares their calls, as far as they are remembered.
    fn compare(&mut self) -> Option<Action> {
        if !self.have_all_left() || self.broken.is_some() {
            return None;
        }
        let end = |it: &History| it.last().map_or(0, |last| last.seq.saturating_add(1));
        let lasts = self.departed.iter().flatten().map(end);
        let (fewest, most) = (lasts.clone().min()?, lasts.max()?);
        let answers = self.departed.iter().map(|_| None).collect();
        let mut inquiry = Inquiry::new(Some(most), Rank(0), 0, answers);
        inquiry.blame_the_first_difference(&self.departed);
        if inquiry.seq == Some(most) {
            // The calls that all ranks made are the same; some ranks made fewer.
            inquiry.seq = self.first_call(fewest);
        }
        let evidence = Evidence::gather(&inquiry, &self.departed);
        let cause = self.mismatch(&evidence).or_else(|| self.absent(&evidence))?;
        self.announce(cause)
    }

    /// The first call from number `seq` on that any departed rank remembers.
    fn first_call(&self, seq: u64) -> Option<u64> {
        let calls = self.departed.iter().flatten().flat_map(|history| &history.calls);
        calls.map(|call| call.seq).filter(|call| *call >= seq).min()
    }

    fn mismatch(&self, evidence: &Evidence<'_>) -> Option<FailureCause> {
        let mut calls: Vec<(&Logged, String, Vec<Rank>)> = Vec::new();
        let by_algorithm = evidence.entered.windows(2).all(|p| p[0].1.words == p[1].1.words);
        let same = |a: &Logged, b: &Logged| {
            a.words == b.words && (!by_algorithm || a.algorithm == b.algorithm)
        };
        for &(rank, logged) in &evidence.entered {
            if let Some((.., ranks)) = calls.iter_mut().find(|(first, ..)| same(first, logged)) {
                ranks.push(rank);
                continue;
            }
            let mut call = logged.text();
            if by_algorithm {
                call.push_str(&format!(" {}", logged.way()));
            }
            calls.push((logged, call, vec![rank]));
        }
        if calls.len() < 2 {
            return None;
        }
        calls.sort_by_key(|(.., ranks)| std::cmp::Reverse(ranks.len()));
        let calls = calls.into_iter();
        let calls = calls.map(|(_, call, ranks)| DifferingCall { call, ranks: ranks.into() });
        Some(FailureCause::Mismatch { seq: evidence.seq?, calls: calls.collect() })
    }

    fn silent(&self, evidence: &Evidence<'_>, for_ms: u64) -> Option<FailureCause> {
        let ranks: Listed<RankOnHost> = evidence.silent.iter().map(|r| self.who(*r)).collect();
        (!ranks.is_empty()).then_some(FailureCause::Silent { ranks, for_ms })
    }

    fn absent(&self, evidence: &Evidence<'_>) -> Option<FailureCause> {
        let absent = |(rank, position): &(Rank, CallPosition)| AbsentRank {
            who: self.who(*rank),
            position: position.clone(),
        };
        let ranks: Listed<AbsentRank> = evidence.absent.iter().map(absent).collect();
        let seq = evidence.seq?;
        (!ranks.is_empty()).then(|| FailureCause::Absent { seq, call: evidence.call(), ranks })
    }

    /// A link between living ranks that failed, or a message, whose sender may have left since.
    fn certain_failure(&self) -> Option<FailureCause> {
        let is_certain = |it: &&Broken| it.kind == Kind::Message || self.is_present(it.to);
        let broken = self.broken.as_ref().filter(is_certain)?;
        Some(self.link_failure(broken))
    }

    fn link_failure(&self, broken: &Broken) -> FailureCause {
        let Broken { from, to, kind, cause, .. } = broken;
        let has_left = self.has_left(*to);
        let (from, to, cause) = (self.who(*from), self.who(*to), cause.clone());
        match kind {
            Kind::Message => FailureCause::Message { from, to, cause },
            _ if has_left => {
                FailureCause::Link { from, to, cause: "the rank has left the job".to_owned() }
            }
            Kind::Link => FailureCause::Link { from, to, cause },
            Kind::Death => FailureCause::Died { who: to },
        }
    }

    /// The calls look alike, though the tags of their messages differ.
    fn tags(&self, evidence: &Evidence<'_>) -> Option<FailureCause> {
        let made = |rank: &Rank| evidence.entered.iter().any(|(entered, _)| entered == rank);
        let [from, to] = self.odd.filter(|odd| odd.iter().all(made))?.map(|rank| self.who(rank));
        Some(FailureCause::Tags { seq: evidence.seq?, call: evidence.call(), from, to })
    }

    fn announce(&mut self, mut cause: FailureCause) -> Option<Action> {
        self.done = true;
        cause.shorten(self.size());
        Some(Action::Announce(cause))
    }

    fn who(&self, rank: Rank) -> RankOnHost {
        RankOnHost { rank, host: self.hosts.get(rank.index()).cloned().flatten() }
    }
}

/// The answers, sorted by their relation to the call in question.
struct Evidence<'a> {
    seq: Option<u64>,
    entered: Vec<(Rank, &'a Logged)>,
    absent: Vec<(Rank, CallPosition)>,
    silent: Vec<Rank>,
}

impl<'a> Evidence<'a> {
    fn gather(inquiry: &'a Inquiry, departed: &'a [Option<History>]) -> Self {
        let by = inquiry.answers.get(inquiry.by.index()).and_then(Option::as_ref);
        let current = by.and_then(|h| h.unfinished().or_else(|| h.last())).map(|c| c.seq);
        let seq = inquiry.seq.or(current);
        let mut all = Self { seq, entered: Vec::new(), absent: Vec::new(), silent: Vec::new() };
        for (i, (answer, last)) in inquiry.answers.iter().zip(departed).enumerate() {
            let rank = Rank::at(i);
            let Some(history) = last.as_ref().or(answer.as_ref()) else {
                all.silent.push(rank);
                continue;
            };
            let Some(seq) = seq else { continue };
            if let Some(logged) = history.at(seq) {
                all.entered.push((rank, logged));
            } else if history.last().is_none_or(|last| last.seq < seq) {
                all.absent.push((rank, position(history, last.is_some())));
            }
        }
        all
    }

    fn call(&self) -> String {
        self.entered.first().map_or_else(|| "a call".into(), |(_, logged)| logged.text())
    }

    fn stalled(&self) -> FailureCause {
        let unfinished = self.entered.iter().filter(|(_, logged)| !logged.finished);
        FailureCause::Stalled {
            seq: self.seq.unwrap_or(0),
            call: self.call(),
            ranks: unfinished.map(|(rank, _)| *rank).collect(),
        }
    }
}

fn position(history: &History, has_left: bool) -> CallPosition {
    match history.last() {
        _ if has_left => CallPosition::Gone,
        None => CallPosition::Start,
        Some(c) if c.finished => CallPosition::After { seq: c.seq, call: c.text() },
        Some(c) => CallPosition::Inside { seq: c.seq, call: c.text() },
    }
}

/// A peer's history, sorted and cut to the length of an honest one.
fn tidied(mut history: History) -> History {
    history.calls.truncate(limits::CALLS_REMEMBERED);
    history.calls.sort_by_key(|c| c.seq);
    history
}

/// Cuts a peer's text to `limits::CAUSE_BYTES_MAX` bytes.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(limits::CAUSE_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests;
