//! One cause for all survivors: the coordinator announces the judge's cause only when no rank can
//! have returned another.
//!
//! A rank that reported a failure waits for the cause. If the coordinator keeps silent for
//! `limits::HUB_SILENCE_MS`, the rank states a cause by itself, returns it, and tells the
//! coordinator. So the coordinator asks every rank that waits to hold on before it announces
//! anything. A rank that holds on waits as long again. A cause that a rank has stated becomes the
//! cause for all, even if the judge has found another.
//!
//! Pure, as the judge is. `tick` decides. The hub calls it only after it has handed in all that had
//! arrived before.

use std::collections::BTreeSet;

use ringfold_types::{Rank, limits};

use super::{Action, Complaint, Judge};
use crate::call_log::History;
use crate::verdict::Verdict;

/// A coordinator that announces within this time after it asked ranks to hold on comes before the
/// end of their patience.
const PROMISE_MS: u64 = limits::HUB_SILENCE_MS / 2;
const _: () = assert!(limits::ANSWER_MS < PROMISE_MS);

/// A step that the coordinator is to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask these ranks for their history, and hand in the answers.
    Ask(Vec<Rank>),
    /// Ask these ranks to hold on, and hand in that they do, or what they have stated.
    Hold(Vec<Rank>),
    /// Tell every rank. There is nothing more to do after this.
    Announce(Verdict),
}

/// A judge, and the ranks that wait for the cause.
#[derive(Debug)]
pub(crate) struct Arbiter {
    judge: Judge,
    /// The ranks that reported a failure, and would state a cause of their own in time.
    waiting: BTreeSet<Rank>,
    cause: Option<Cause>,
    is_over: bool,
}

/// The cause that the coordinator is to announce.
#[derive(Debug)]
struct Cause {
    verdict: Verdict,
    is_stated: bool,
    /// Those of the ranks that wait which have not said yet that they hold on.
    open: BTreeSet<Rank>,
    /// When they were asked to.
    since_ms: u64,
}

impl Arbiter {
    pub(crate) const fn new(judge: Judge) -> Self {
        Self { judge, waiting: BTreeSet::new(), cause: None, is_over: false }
    }

    pub(crate) const fn size(&self) -> usize {
        self.judge.size()
    }

    pub(crate) fn have_all_left(&self) -> bool {
        self.judge.have_all_left()
    }

    /// Whether a failure was reported whose cause is not announced yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.deadline_ms().is_some()
    }

    /// Whether the cause is known. Only a rank that has stated another one can still change it.
    pub(crate) const fn has_cause(&self) -> bool {
        self.cause.is_some()
    }

    /// See `Judge::complain`. Rank 0 lives and dies with the coordinator, so it never states a
    /// cause by itself.
    pub(crate) fn complain(&mut self, from: Rank, complaint: Complaint, now_ms: u64) -> Vec<Step> {
        let is_new = from != Rank(0) && self.judge.is_present(from) && self.waiting.insert(from);
        let hold = self.cause.as_mut().filter(|_| is_new && !self.is_over).map(|cause| {
            cause.open.insert(from);
            Step::Hold(vec![from])
        });
        let found = self.judge.complain(from, complaint, now_ms);
        hold.into_iter().chain(self.found(found, now_ms)).collect()
    }

    /// See `Judge::answer`.
    pub(crate) fn answer(&mut self, from: Rank, history: History, now_ms: u64) -> Vec<Step> {
        let found = self.judge.answer(from, history, now_ms);
        self.found(found, now_ms)
    }

    /// See `Judge::left`.
    pub(crate) fn left(&mut self, from: Rank, history: History, now_ms: u64) -> Vec<Step> {
        self.stop_waiting_for(from);
        let found = self.judge.left(from, history, now_ms);
        self.found(found, now_ms)
    }

    /// See `Judge::closed`.
    pub(crate) fn closed(&mut self, rank: Rank, now_ms: u64) -> Vec<Step> {
        self.stop_waiting_for(rank);
        let found = self.judge.closed(rank);
        self.found(found, now_ms)
    }

    /// A rank's host, or the network to it, has not answered for `for_ms`.
    pub(crate) fn cut(&mut self, rank: Rank, for_ms: u64, now_ms: u64) -> Vec<Step> {
        self.stop_waiting_for(rank);
        let found = self.judge.cut(rank, for_ms);
        self.found(found, now_ms)
    }

    /// The open requests to a rank that has come back, as it may not have heard them.
    pub(crate) fn owed(&self, rank: Rank) -> Vec<Step> {
        let is_open = self.cause.as_ref().is_some_and(|cause| cause.open.contains(&rank));
        let hold = is_open.then(|| Step::Hold(vec![rank]));
        let ask = self.judge.awaits(rank).then(|| Step::Ask(vec![rank]));
        ask.into_iter().chain(hold).collect()
    }

    /// See `Judge::is_present`.
    pub(crate) fn is_present(&self, rank: Rank) -> bool {
        self.judge.is_present(rank)
    }

    /// A rank holds on, as it was asked to.
    pub(crate) fn holds(&mut self, rank: Rank) {
        if let Some(cause) = &mut self.cause {
            cause.open.remove(&rank);
        }
    }

    /// A rank has returned a cause of its own. The first one is that of all.
    pub(crate) fn stated(&mut self, rank: Rank, verdict: Verdict, now_ms: u64) -> Vec<Step> {
        self.stop_waiting_for(rank);
        match &mut self.cause {
            _ if self.is_over => Vec::new(),
            Some(cause) => {
                if !cause.is_stated {
                    (cause.verdict, cause.is_stated) = (verdict, true);
                }
                Vec::new()
            }
            None => self.consider(verdict, true, now_ms),
        }
    }

    /// Time has passed, and all that had arrived before was handed in.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<Step> {
        if self.is_over {
            return Vec::new();
        }
        let Some(cause) = &mut self.cause else {
            let found = self.judge.tick(now_ms);
            return self.found(found, now_ms);
        };
        let waited_ms = now_ms.saturating_sub(cause.since_ms);
        if !cause.open.is_empty() && waited_ms < limits::ANSWER_MS {
            return Vec::new();
        }
        // Ranks that do not answer are stopped or cut off: they hear the cause, or nothing. But
        // those that answered hold on for so long only.
        if waited_ms > PROMISE_MS && !self.waiting.is_empty() {
            cause.open.clone_from(&self.waiting);
            cause.since_ms = now_ms;
            return vec![Step::Hold(self.waiting.iter().copied().collect())];
        }
        self.is_over = true;
        vec![Step::Announce(cause.verdict.clone())]
    }

    /// When to call `tick`.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        match &self.cause {
            _ if self.is_over => None,
            None => self.judge.deadline_ms(),
            Some(cause) if cause.open.is_empty() => Some(cause.since_ms),
            Some(cause) => Some(cause.since_ms + limits::ANSWER_MS),
        }
    }

    fn found(&mut self, action: Option<Action>, now_ms: u64) -> Vec<Step> {
        match action {
            Some(Action::Pronounce(verdict)) if self.cause.is_none() => {
                self.consider(verdict, false, now_ms)
            }
            Some(Action::Pronounce(_)) | None => Vec::new(),
            Some(Action::Ask(ranks)) => vec![Step::Ask(ranks)],
        }
    }

    fn consider(&mut self, verdict: Verdict, is_stated: bool, since_ms: u64) -> Vec<Step> {
        let open = self.waiting.clone();
        let hold = Step::Hold(open.iter().copied().collect());
        let asks = !open.is_empty();
        self.cause = Some(Cause { verdict, is_stated, open, since_ms });
        if asks { vec![hold] } else { Vec::new() }
    }

    fn stop_waiting_for(&mut self, rank: Rank) {
        self.waiting.remove(&rank);
        self.holds(rank);
    }
}
