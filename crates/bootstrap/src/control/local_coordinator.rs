//! The coordinator of ranks that are threads of one process: their arbiter and their exchanges,
//! behind one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_types::Rank;

use super::exchange::ExchangeError;
use super::rank_state::RankState;
use crate::arbiter::{Action, Arbiter, FailureReport};
use crate::regroup::{RegroupError, Regrouped, Wish};

/// The coordinator of ranks that are threads of one process.
#[derive(Debug)]
pub(crate) struct LocalCoordinator {
    inner: Mutex<Inner>,
    changed: Condvar,
    ranks: Vec<Arc<RankState>>,
    opened: Instant,
}

type Contributions = Arc<Vec<Vec<u8>>>;

#[derive(Debug)]
struct Inner {
    arbiter: Arbiter,
    contributions: Vec<Option<Vec<u8>>>,
    results: Vec<Option<Contributions>>,
    regroup: LocalRegroup,
    /// By number, the agreements that have not ended, and the last one.
    agreements: BTreeMap<u64, LocalAgreement>,
    /// By rank, the number of agreements that it has made.
    agreed: BTreeMap<Rank, u64>,
}

/// An agreement of threads.
#[derive(Debug, Default)]
struct LocalAgreement {
    flags: BTreeMap<Rank, u64>,
    value: Option<u64>,
}

impl LocalAgreement {
    /// Decides when every rank has come or gone, or it is too late for the others.
    fn decide(&mut self, size: usize, gone: &BTreeSet<Rank>, is_late: bool) {
        let is_known = |rank: Rank| self.flags.contains_key(&rank) || gone.contains(&rank);
        if self.value.is_none() && (is_late || (0..size).map(Rank::at).all(is_known)) {
            self.value = Some(self.flags.values().fold(u64::MAX, |value, flag| value & flag));
        }
    }
}

/// The ranks that regroup, and those that have gone.
#[derive(Debug, Default)]
struct LocalRegroup {
    /// The ranks that have come, with those that each leaves out.
    come: BTreeMap<Rank, Vec<Rank>>,
    gone: BTreeSet<Rank>,
    members: Option<Result<Vec<Rank>, RegroupError>>,
}

impl LocalRegroup {
    /// The ranks that have come and that no list leaves out.
    fn candidates(&self) -> Vec<Rank> {
        let is_named = |rank: &Rank| self.come.values().any(|without| without.contains(rank));
        self.come.keys().copied().filter(|rank| !is_named(rank)).collect()
    }

    /// Decides when every rank has come or gone, or is left out, or it is too late for the others.
    fn decide(&mut self, size: usize, is_late: bool) {
        let candidates = self.candidates();
        let is_known = |rank: Rank| {
            self.come.contains_key(&rank)
                || self.gone.contains(&rank)
                || self.come.values().any(|without| without.contains(&rank))
        };
        if self.members.is_some() || !(is_late || (0..size).map(Rank::at).all(is_known)) {
            return;
        }
        let lists: BTreeSet<&Vec<Rank>> = candidates.iter().map(|rank| &self.come[rank]).collect();
        let is_same = lists.len() < 2;
        self.members = Some(is_same.then_some(candidates).ok_or(RegroupError::Differs));
    }
}

impl LocalCoordinator {
    /// Makes a coordinator of these ranks.
    pub(crate) fn new(ranks: Vec<Arc<RankState>>) -> Self {
        let size = ranks.len();
        let inner = Inner {
            arbiter: Arbiter::new(vec![String::new(); size]),
            contributions: vec![None; size],
            results: vec![None; size],
            regroup: LocalRegroup::default(),
            agreements: BTreeMap::new(),
            agreed: BTreeMap::new(),
        };
        let (inner, changed) = (Mutex::new(inner), Condvar::new());
        Self { inner, changed, ranks, opened: Instant::now() }
    }

    pub(crate) fn report_failure(self: &Arc<Self>, from: Rank, report: FailureReport) {
        let mut inner = self.inner();
        let action = inner.arbiter.report_failure(from, report, self.now_ms());
        self.act(&mut inner, action);
        if let Some(deadline_ms) = inner.arbiter.deadline_ms() {
            self.tick_at(deadline_ms);
        }
    }

    pub(crate) fn leave(&self, rank: Rank) {
        let mut inner = self.inner();
        let history = self.ranks[rank.index()].calls.history();
        let action = inner.arbiter.left(rank, history, self.now_ms());
        self.act(&mut inner, action);
        self.note_gone(&mut inner, rank);
        let watching = self.ranks.iter().filter(|state| state.watched_present().contains(&rank));
        watching.for_each(|state| state.set_left(rank));
    }

    /// Tells `watcher` when rank `of` has left.
    pub(crate) fn watch(&self, watcher: Rank, of: Rank) {
        if !self.inner().arbiter.is_present(of) {
            self.ranks[watcher.index()].set_left(of);
        }
    }

    pub(crate) fn abandon(&self, rank: Rank, reason: String) {
        let mut inner = self.inner();
        let action =
            inner.arbiter.report_failure(rank, FailureReport::Abort { reason }, self.now_ms());
        self.act(&mut inner, action);
        self.note_gone(&mut inner, rank);
    }

    fn note_gone(&self, inner: &mut Inner, rank: Rank) {
        inner.regroup.gone.insert(rank);
        if !inner.regroup.come.is_empty() {
            inner.regroup.decide(self.ranks.len(), false);
        }
        let Inner { agreements, regroup, .. } = inner;
        for agreement in agreements.values_mut() {
            agreement.decide(self.ranks.len(), &regroup.gone, false);
        }
        self.changed.notify_all();
    }

    /// See `Control::agree`.
    pub(crate) fn agree(&self, rank: Rank, wish: &Wish, flag: u64) -> Result<u64, RegroupError> {
        let mut inner = self.inner();
        let number = inner.agreed.get(&rank).map_or(1, |last| last + 1);
        inner.agreed.insert(rank, number);
        // A rank that is behind by more is out.
        inner.agreements.retain(|it, _| it + 1 >= number);
        if inner.agreements.keys().next().is_some_and(|first| *first > number) {
            return Err(RegroupError::Uncounted);
        }
        let decide = |inner: &mut Inner, flag: Option<u64>, is_late| {
            let Inner { agreements, regroup, .. } = inner;
            let agreement = agreements.entry(number).or_default();
            if agreement.value.is_none() {
                agreement.flags.extend(flag.map(|flag| (rank, flag)));
            }
            agreement.decide(self.ranks.len(), &regroup.gone, is_late);
            agreement.value
        };
        let value = decide(&mut inner, Some(flag), false);
        self.changed.notify_all();
        let waits = |inner: &mut Inner| decide(inner, None, false).is_none();
        let value = value.or_else(|| {
            let waited = self.changed.wait_timeout_while(inner, wish.timeout, waits);
            let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
            decide(&mut inner, None, true)
        });
        self.changed.notify_all();
        value.filter(|value| value & !flag == 0).ok_or(RegroupError::Uncounted)
    }

    /// See `Control::regroup`. Threads regroup once.
    pub(crate) fn regroup(&self, rank: Rank, wish: &Wish) -> Result<Regrouped, RegroupError> {
        let mut inner = self.inner();
        match &inner.regroup.members {
            Some(Ok(_)) => return Err(RegroupError::Excluded),
            Some(Err(error)) => return Err(error.clone()),
            None => {}
        }
        inner.regroup.come.insert(rank, wish.without.clone());
        inner.regroup.decide(self.ranks.len(), false);
        self.changed.notify_all();
        let waits = |inner: &mut Inner| inner.regroup.members.is_none();
        let waited = self.changed.wait_timeout_while(inner, wish.timeout, waits);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.regroup.decide(self.ranks.len(), true);
        self.changed.notify_all();
        let late = RegroupError::Late(wish.timeout);
        let members = inner.regroup.members.clone().ok_or(late)??;
        if !members.contains(&rank) {
            return Err(RegroupError::Excluded);
        }
        Ok(Regrouped { members, address: None, nonce: 0, seat: None })
    }

    pub(crate) fn exchange(
        &self,
        rank: Rank,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut inner = self.inner();
        inner.contributions[rank.index()] = Some(bytes);
        if inner.contributions.iter().all(Option::is_some) {
            let all = Arc::new(inner.contributions.iter_mut().filter_map(Option::take).collect());
            inner.results.fill(Some(all));
            self.changed.notify_all();
        }
        let state = &self.ranks[rank.index()];
        let waits = |inner: &mut Inner| {
            inner.results[rank.index()].is_none() && state.failure_cause().is_none()
        };
        let (mut inner, _timed_out) = self
            .changed
            .wait_timeout_while(inner, timeout, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let all = inner.results[rank.index()].take();
        inner.contributions[rank.index()] = None;
        all.map(|all| all.to_vec()).ok_or(ExchangeError::Timeout(timeout))
    }

    /// Has the ranks answer a question, and gives them the answers.
    pub(crate) fn inquire(&self, asker: Rank, of: Option<u32>, question: &[u8]) {
        let answer = |state: &Arc<RankState>| state.answer(question);
        match of {
            None => {
                let answers: Vec<_> = self.ranks.iter().map(answer).collect();
                self.ranks.iter().for_each(|state| state.conclude(question, &answers));
            }
            Some(of) => {
                let answers = self.ranks.get(Rank(of).index()).map(answer).unwrap_or_default();
                self.ranks[asker.index()].conclude(question, &[answers]);
            }
        }
    }

    /// Takes an action of the arbiter. Every history is in reach, so the failure cause follows
    /// immediately.
    fn act(&self, inner: &mut Inner, action: Option<Action>) {
        let cause = match action {
            None => return,
            Some(Action::Announce(cause)) => cause,
            Some(Action::Ask(ranks)) => {
                for rank in ranks {
                    let history = self.ranks[rank.index()].calls.history();
                    let action = inner.arbiter.answer(rank, history, self.now_ms());
                    self.act(inner, action);
                }
                return;
            }
        };
        let cause = Arc::new(cause);
        self.ranks.iter().for_each(|state| state.set_failure_cause(&cause));
        self.changed.notify_all();
    }

    /// Waits on a thread for the arbiter's grace period after a broken link. The thread is cheap,
    /// because there is at most one failure.
    fn tick_at(self: &Arc<Self>, deadline_ms: u64) {
        let coordinator = Arc::downgrade(self);
        let rest = Duration::from_millis(deadline_ms.saturating_sub(self.now_ms()));
        let timer = thread::Builder::new().name("ringfold-ctl".into());
        let spawned = timer.spawn(move || {
            thread::sleep(rest);
            if let Some(coordinator) = coordinator.upgrade() {
                let mut inner = coordinator.inner();
                let action = inner.arbiter.tick(coordinator.now_ms());
                coordinator.act(&mut inner, action);
            }
        });
        if let Err(e) = spawned {
            tracing::warn!("cannot start a thread for the grace period of a broken link: {e}");
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
