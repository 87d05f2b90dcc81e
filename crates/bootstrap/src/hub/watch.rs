//! The hub once all ranks are there: it hears reports, lets ranks come back, and announces the
//! verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::state::{Announcing, Event, FLUSH, Hub, Look, Lost};
use crate::acceptor::Member as Guest;
use crate::address;
use crate::inbound::Mark;
use crate::judge::{Arbiter, Judge, Step};
use crate::member::Heard;
use crate::message::{FromHub, ToHub, encode};
use crate::reconnect;
use crate::rendezvous::Report;

/// A connection that never rests is waited for so long before the hub decides something.
const LOOK: Duration = Duration::from_millis(100);

/// A hub that looks at the clock so much later than it meant to was stopped.
const LATE: Duration = Duration::from_millis(limits::RETURN_MS / 3);

/// Waits until all but rank 0 are told.
async fn announced(announcing: &mut Option<Announcing>) {
    match announcing {
        Some(Announcing { written, until }) => {
            if timeout_at(*until, written.recv()).await.is_err() {
                tracing::debug!("some ranks do not take the verdict");
            }
        }
        None => std::future::pending().await,
    }
}

impl Hub {
    /// Until rank 0 has left and so have the others, or they have had time to.
    pub(super) async fn watch(&mut self) {
        let mut arbiter = Arbiter::new(Judge::new(std::mem::take(&mut self.hosts)));
        let mut end: Option<Instant> = None;
        if let Some(entry) = &mut self.entry {
            entry.open();
        }
        loop {
            // Nobody goes while there is something to announce.
            let is_settled = self.is_settled(&arbiter);
            let alone = self.seats.keys().all(|rank| *rank == 0);
            if end.is_some() && alone && is_settled {
                return;
            }
            let due = |ms| self.began + Duration::from_millis(ms);
            let tick = self.look.as_ref().map(|look| look.until);
            let may_decide = self.may_decide(&arbiter);
            let tick = tick.or_else(|| arbiter.deadline_ms().map(due)).filter(|_| may_decide);
            let parting = self.leaving.values().min().copied().filter(|_| is_settled);
            let missed = self.lost.values().map(|lost| lost.until).min();
            let now = Instant::now();
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let Event::Said(0, ToHub::Goodbye(_)) = &event {
                        end = Some(now + self.linger);
                    }
                    let steps = self.take(&mut arbiter, event);
                    self.act(steps);
                }
                () = sleep_until(tick.unwrap_or(now)), if tick.is_some() => {
                    if self.look.take().is_some() || !self.look_around() {
                        let steps = self.decide(&mut arbiter);
                        self.act(steps);
                    }
                }
                () = announced(&mut self.announcing) => {
                    self.announcing = None;
                    self.verdict.iter().for_each(|verdict| self.send(0, verdict));
                }
                (rank, guest) = reconnect::next(&mut self.entry) => {
                    self.welcome_back(&arbiter, rank, guest);
                }
                () = sleep_until(missed.unwrap_or(now)), if missed.is_some() => {
                    self.give_up(&mut arbiter);
                }
                () = sleep_until(parting.unwrap_or(now)), if parting.is_some() => {}
                () = sleep_until(end.unwrap_or(now)), if end.is_some() && is_settled => return,
            }
            if self.is_settled(&arbiter) {
                // Behind the verdict, if there is one.
                let callers = std::mem::take(&mut self.callers);
                let own = self.seats.get(&0);
                callers
                    .into_iter()
                    .for_each(|mark| own.iter().for_each(|it| it.mark(mark.clone())));
                self.part(arbiter.have_all_left());
            }
            // After a verdict nobody works on; those who can hear it have heard it soon.
            if self.verdict.is_some() {
                end = end.map(|end| end.min(Instant::now() + FLUSH));
            }
        }
    }

    /// A rank that may be dead explains more than the reports of others. It changes no cause that
    /// is known. A rank whose connection timed out delays nothing: see `decide`.
    fn may_decide(&self, arbiter: &Arbiter) -> bool {
        arbiter.has_cause() || self.lost.values().all(|lost| lost.is_cut)
    }

    /// The time for a decision has come. If no cause is known, the hub gives up the ranks whose
    /// connections timed out: their silence explains more than the reports of others.
    fn decide(&mut self, arbiter: &mut Arbiter) -> Vec<Step> {
        let cut =
            if arbiter.has_cause() { BTreeMap::new() } else { std::mem::take(&mut self.lost) };
        let mut steps = self.bury_all(arbiter, cut);
        steps.extend(arbiter.tick(self.now_ms()));
        steps
    }

    fn is_settled(&self, arbiter: &Arbiter) -> bool {
        !arbiter.is_pending() && self.lost.is_empty() && self.announcing.is_none()
    }

    /// Sends a mark to every connection; whether there is any.
    fn look_around(&mut self) -> bool {
        self.looks += 1;
        let connected = || self.seats.values().filter(|seat| seat.marks.is_some());
        connected().for_each(|seat| seat.mark(Mark::Task(self.looks)));
        let until = Instant::now() + LOOK;
        let look = Look { number: self.looks, left: connected().count(), until };
        self.look = Some(look).filter(|look| look.left > 0);
        self.look.is_some()
    }

    /// Counts a mark of that number; whether it was the last.
    fn has_seen_all(&mut self, number: u64) -> bool {
        let Some(look) = self.look.as_mut().filter(|look| look.number == number) else {
            return false;
        };
        look.left -= 1;
        let is_last = look.left == 0;
        if is_last {
            self.look = None;
        }
        is_last
    }

    fn take(&mut self, arbiter: &mut Arbiter, event: Event) -> Vec<Step> {
        let now_ms = self.now_ms();
        match event {
            Event::Said(rank, ToHub::Complain(complaint)) => {
                tracing::debug!("rank {rank} complains: {complaint:?}");
                arbiter.complain(Rank(rank), complaint, now_ms)
            }
            Event::Said(rank, ToHub::Answer(history)) => {
                arbiter.answer(Rank(rank), history, now_ms)
            }
            Event::Said(rank, ToHub::Holds) => {
                arbiter.holds(Rank(rank));
                Vec::new()
            }
            Event::Said(rank, ToHub::Stated(verdict)) => {
                tracing::info!("rank {rank} could not wait: {verdict}");
                arbiter.stated(Rank(rank), verdict, now_ms)
            }
            Event::Said(rank, ToHub::Goodbye(history)) => {
                if arbiter.is_present(Rank(rank)) {
                    self.report(Report::Left { rank });
                }
                if rank != 0 {
                    let until = Instant::now() + Duration::from_millis(limits::PARTING_MS);
                    self.leaving.insert(rank, until);
                }
                arbiter.left(Rank(rank), history, now_ms)
            }
            Event::Said(rank, ToHub::Offer(number, bytes)) => {
                self.exchange(rank, number, bytes, arbiter.size());
                Vec::new()
            }
            Event::Said(rank, ToHub::NoRoster) => {
                // Once: a rank that asks again has it under way.
                if self.fetching.remove(&rank).is_some() {
                    self.send(rank, &self.roster);
                }
                Vec::new()
            }
            Event::Said(rank, ToHub::Join(_) | ToHub::Return(_)) => {
                tracing::warn!("rank {rank} joins again");
                Vec::new()
            }
            Event::Closed { rank, connection, is_cut } => {
                let seat = self.seats.get(&rank);
                if seat.is_some_and(|seat| seat.connection != connection) {
                    return Vec::new(); // the rank has come back since
                }
                self.lose(arbiter, rank, is_cut)
            }
            // Each connection hands its copy back.
            Event::CatchUp(mark) => {
                self.callers.push(mark.clone());
                let connected = self.seats.values().filter(|seat| seat.marks.is_some());
                connected.for_each(|seat| seat.mark(mark.clone()));
                Vec::new()
            }
            Event::CaughtUp(Mark::Task(number)) => {
                if self.has_seen_all(number) && self.may_decide(arbiter) {
                    self.decide(arbiter)
                } else {
                    Vec::new()
                }
            }
            Event::CaughtUp(mark) => {
                self.callers.push(mark);
                Vec::new()
            }
        }
    }

    fn act(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Ask(ranks) => self.ask(&ranks, &FromHub::Ask),
                Step::Hold(ranks) => self.ask(&ranks, &FromHub::Hold),
                Step::Announce(verdict) => {
                    tracing::info!("verdict: {verdict}");
                    let culprits = verdict.culprits().iter().map(|r| r.0).collect();
                    self.report(Report::Verdict { text: verdict.to_string(), culprits });
                    let bytes: Arc<[u8]> = encode(&FromHub::Verdict(verdict)).into();
                    self.verdict = Some(Arc::clone(&bytes));
                    self.announce(&bytes);
                }
            }
        }
    }

    /// Tells all others first: the process of rank 0 may end when it hears the verdict.
    fn announce(&mut self, bytes: &Arc<[u8]>) {
        let (mark, written) = mpsc::channel(1);
        for (rank, seat) in self.seats.iter().filter(|(rank, _)| **rank != 0) {
            self.send(*rank, bytes);
            let behind = seat.outbox.send(Heard::Mark(Mark::Written(mark.clone())));
            behind.unwrap_or_default(); // the connection has ended
        }
        self.announcing = Some(Announcing { written, until: Instant::now() + LOOK });
    }

    fn ask(&self, ranks: &[Rank], question: &FromHub) {
        let question: Arc<[u8]> = encode(question).into();
        ranks.iter().for_each(|rank| self.send(rank.0, &question));
    }

    /// Lets go who has nothing more to hear, or has waited long enough.
    fn part(&mut self, have_all_left: bool) {
        let (now, all) = (Instant::now(), have_all_left || self.verdict.is_some());
        let (staying, going): (BTreeMap<_, _>, _) =
            self.leaving.iter().partition(|(_, until)| !all && **until > now);
        for (rank, _) in going {
            self.tell(rank, &FromHub::Farewell);
            self.seats.remove(&rank);
        }
        self.leaving = staying;
    }

    /// A rank whose connection broke is there again: it hears again what it may have missed.
    fn welcome_back(&mut self, arbiter: &Arbiter, rank: u32, guest: Guest) {
        tracing::info!("rank {rank} came back from {}", guest.from);
        let seat = self.connect(rank, guest.reader, guest.writer);
        self.seats.insert(rank, seat);
        self.lost.remove(&rank);
        match &self.verdict {
            Some(verdict) => self.send(rank, verdict),
            None => self.act(arbiter.owed(Rank(rank))),
        }
    }

    /// The connection of a rank ended.
    fn lose(&mut self, arbiter: &mut Arbiter, rank: u32, is_cut: bool) -> Vec<Step> {
        self.seats.remove(&rank);
        let has_left = self.leaving.remove(&rank).is_some();
        match &self.entry {
            Some(_) if !has_left && arbiter.is_present(Rank(rank)) => {
                tracing::debug!("the connection of rank {rank} broke");
                self.lost.insert(rank, Lost::new(is_cut));
                Vec::new()
            }
            _ => self.bury(arbiter, rank, is_cut),
        }
    }

    fn bury(&self, arbiter: &mut Arbiter, rank: u32, is_cut: bool) -> Vec<Step> {
        if is_cut {
            arbiter.cut(Rank(rank), address::UNACKNOWLEDGED_MS, self.now_ms())
        } else {
            arbiter.closed(Rank(rank), self.now_ms())
        }
    }

    /// Gives up the ranks that did not come back in time.
    fn give_up(&mut self, arbiter: &mut Arbiter) {
        let now = Instant::now();
        for lost in self.lost.values_mut() {
            // Was this process stopped meanwhile? Then nobody could be let in.
            if !lost.is_extended && now > lost.until + LATE {
                *lost = Lost { is_extended: true, ..Lost::new(lost.is_cut) };
            }
        }
        let (gone, lost): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.lost).into_iter().partition(|(_, lost)| lost.until <= now);
        self.lost = lost;
        let steps = self.bury_all(arbiter, gone);
        self.act(steps);
    }

    fn bury_all(&self, arbiter: &mut Arbiter, gone: BTreeMap<u32, Lost>) -> Vec<Step> {
        gone.into_iter().flat_map(|(rank, lost)| self.bury(arbiter, rank, lost.is_cut)).collect()
    }

    fn exchange(&mut self, rank: u32, number: u64, bytes: Vec<u8>, size: usize) {
        if number == self.exchanged.0 {
            // It came back, and had not heard the result.
            return self.send(rank, &self.exchanged.1);
        }
        self.offers.insert(rank, (number, bytes));
        if self.offers.len() == size && self.offers.values().all(|(n, _)| *n == number) {
            let all = std::mem::take(&mut self.offers).into_values().map(|(_, bytes)| bytes);
            self.exchanged = (number, encode(&FromHub::Offers(number, all.collect())).into());
            self.send_all(&self.exchanged.1);
        }
    }
}
