//! Where the ranks of one process meet: their judge, and their exchanges, behind one lock.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_types::Rank;

use crate::exchange::ExchangeError;
use crate::judge::{Action, Complaint, Judge};
use crate::seat::Seat;

/// Where the ranks of one process meet.
#[derive(Debug)]
pub(crate) struct Room {
    court: Mutex<Court>,
    changed: Condvar,
    seats: Vec<Arc<Seat>>,
    opened: Instant,
}

type Offers = Arc<Vec<Vec<u8>>>;

#[derive(Debug)]
struct Court {
    judge: Judge,
    offers: Vec<Option<Vec<u8>>>,
    results: Vec<Option<Offers>>,
}

impl Room {
    /// A room for the ranks with these seats.
    pub(crate) fn new(seats: Vec<Arc<Seat>>) -> Self {
        let size = seats.len();
        let court = Court {
            judge: Judge::new(vec![String::new(); size]),
            offers: vec![None; size],
            results: vec![None; size],
        };
        let (court, changed) = (Mutex::new(court), Condvar::new());
        Self { court, changed, seats, opened: Instant::now() }
    }

    pub(crate) fn complain(self: &Arc<Self>, from: Rank, complaint: Complaint) {
        let mut court = self.court();
        let action = court.judge.complain(from, complaint, self.now_ms());
        self.act(&mut court, action);
        if let Some(deadline_ms) = court.judge.deadline_ms() {
            self.tick_at(deadline_ms);
        }
    }

    pub(crate) fn leave(&self, rank: Rank) {
        let mut court = self.court();
        let history = self.seats[rank.index()].calls.history();
        let action = court.judge.left(rank, history, self.now_ms());
        self.act(&mut court, action);
    }

    pub(crate) fn abandon(&self, rank: Rank, reason: String) {
        let mut court = self.court();
        let action = court.judge.complain(rank, Complaint::Abort { reason }, self.now_ms());
        self.act(&mut court, action);
    }

    pub(crate) fn exchange(
        &self,
        rank: Rank,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut court = self.court();
        court.offers[rank.index()] = Some(bytes);
        if court.offers.iter().all(Option::is_some) {
            let all = Arc::new(court.offers.iter_mut().filter_map(Option::take).collect());
            court.results.fill(Some(all));
            self.changed.notify_all();
        }
        let seat = &self.seats[rank.index()];
        let waits =
            |court: &mut Court| court.results[rank.index()].is_none() && seat.verdict().is_none();
        let (mut court, _timed_out) = self
            .changed
            .wait_timeout_while(court, timeout, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let all = court.results[rank.index()].take();
        court.offers[rank.index()] = None;
        all.map(|all| all.to_vec()).ok_or(ExchangeError::Timeout(timeout))
    }

    /// Nobody has to be asked: every history is in reach, so the verdict follows at once.
    fn act(&self, court: &mut Court, action: Option<Action>) {
        let verdict = match action {
            None => return,
            Some(Action::Pronounce(verdict)) => verdict,
            Some(Action::Ask(ranks)) => {
                for rank in ranks {
                    let history = self.seats[rank.index()].calls.history();
                    let action = court.judge.answer(rank, history, self.now_ms());
                    self.act(court, action);
                }
                return;
            }
        };
        let verdict = Arc::new(verdict);
        self.seats.iter().for_each(|seat| seat.sentence(&verdict));
        self.changed.notify_all();
    }

    /// The time that the judge gives a broken link has to pass somewhere; a thread for it is cheap,
    /// as there is at most one failure.
    fn tick_at(self: &Arc<Self>, deadline_ms: u64) {
        let room = Arc::downgrade(self);
        let rest = Duration::from_millis(deadline_ms.saturating_sub(self.now_ms()));
        let timer = thread::Builder::new().name("ringfold-ctl".into());
        let spawned = timer.spawn(move || {
            thread::sleep(rest);
            if let Some(room) = room.upgrade() {
                let mut court = room.court();
                let action = court.judge.tick(room.now_ms());
                room.act(&mut court, action);
            }
        });
        if let Err(e) = spawned {
            tracing::warn!("no thread to wait for the end of a broken link: {e}");
        }
    }

    fn court(&self) -> MutexGuard<'_, Court> {
        self.court.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
