//! The coordinator after all ranks have joined: it receives failure reports, lets ranks reconnect,
//! and announces the failure cause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::next_ended;
use super::state::{Announcing, Coordinator, Drain, Event, FLUSH, Lost};
use crate::arbiter::agreement::{Agreement, Step};
use crate::arbiter::{Arbiter, FailureReport, cut, more_ms};
use crate::channel::acceptor::Home;
use crate::channel::connect::Channel;
use crate::channel::frames::encode;
use crate::channel::socket;
use crate::control::inbound::Mark;
use crate::control::inquiry::{Asked, Concluded};
use crate::control::message::{FromCoordinator, ToCoordinator};
use crate::control::reconnect;
use crate::control::task::Incoming;
use crate::rendezvous::Report;
use crate::rendezvous::registry::Ended;

/// How long the coordinator of so many ranks waits for a connection that never rests, before it
/// decides.
const fn drain_max(size: usize) -> Duration {
    Duration::from_millis(100 + more_ms(size))
}

/// The most bytes of a result for all ranks together that rank 0 sends itself.
const SHORT: usize = 1 << 20;

/// A coordinator whose timer fires this much late was stopped.
const LATE: Duration = Duration::from_millis(limits::RETURN_MS / 3);

/// Waits until all ranks but rank 0 have the failure cause.
async fn announced(announcing: &mut Option<Announcing>) {
    match announcing {
        Some(Announcing { written, until }) => {
            if timeout_at(*until, written.recv()).await.is_err() {
                tracing::debug!("some ranks do not read the failure cause");
            }
        }
        None => std::future::pending().await,
    }
}

impl Coordinator {
    /// Runs until rank 0 has left and the others have left too, or their time to leave is over. A
    /// launcher may tell which programs have `ended`.
    pub(super) async fn watch(&mut self, ended: &mut Option<mpsc::UnboundedReceiver<Ended>>) {
        let mut agreement = Agreement::new(Arbiter::new(std::mem::take(&mut self.hosts)));
        let mut end: Option<Instant> = None;
        if let Some(return_port) = &mut self.return_port {
            return_port.open();
        }
        loop {
            // No rank leaves while there is something to announce.
            let is_settled = self.is_settled(&agreement);
            let alone = self.links.keys().all(|rank| *rank == 0);
            if end.is_some() && alone && is_settled {
                return;
            }
            let due = |ms| self.began + Duration::from_millis(ms);
            let tick = self.drain.as_ref().map(|drain| drain.until);
            let may_decide = self.may_decide(&agreement);
            let tick = tick.or_else(|| agreement.deadline_ms().map(due)).filter(|_| may_decide);
            let parting = self.leaving.values().min().copied().filter(|_| is_settled);
            let missed = self.lost.values().map(|lost| lost.until).min();
            let now = Instant::now();
            tokio::select! {
                // A time that is over comes before messages, however many wait.
                biased;
                (rank, peer) = reconnect::next(&mut self.return_port) => {
                    self.readmit(&agreement, rank, peer);
                }
                () = sleep_until(tick.unwrap_or(now)), if tick.is_some() => {
                    if self.drain.take().is_some() || !self.begin_drain() {
                        let steps = self.decide(&mut agreement);
                        self.act(steps);
                    }
                }
                () = announced(&mut self.announcing) => {
                    self.announcing = None;
                    self.failure_cause.iter().for_each(|cause| self.send(0, cause));
                }
                () = sleep_until(missed.unwrap_or(now)), if missed.is_some() => {
                    self.give_up(&mut agreement);
                }
                () = sleep_until(parting.unwrap_or(now)), if parting.is_some() => {}
                () = sleep_until(end.unwrap_or(now)), if end.is_some() && is_settled => return,
                Ended { rank, .. } = next_ended(ended) => {
                    let steps = self.declare_dead(&mut agreement, rank);
                    self.act(steps);
                }
                Some(event) = self.events.recv() => {
                    if let Event::Message(0, ToCoordinator::Goodbye(_)) = &event {
                        end = Some(now + self.linger);
                    }
                    let steps = self.take(&mut agreement, event);
                    self.act(steps);
                }
            }
            self.conclude(agreement.size());
            if self.is_settled(&agreement) {
                // These marks go behind the failure cause, if there is one.
                let callers = std::mem::take(&mut self.callers);
                let own = self.links.get(&0);
                callers
                    .into_iter()
                    .for_each(|mark| own.iter().for_each(|it| it.mark(mark.clone())));
                self.release_leaving(agreement.have_all_left());
            }
            // After a failure cause no rank works on, and every reachable rank gets it soon.
            if self.failure_cause.is_some() {
                end = end.map(|end| end.min(Instant::now() + FLUSH));
            }
        }
    }

    /// Whether the coordinator may decide now. A rank that may be dead explains more than the
    /// reports of others, so the coordinator waits for it, unless the cause is known. A rank whose
    /// connection timed out delays nothing: see `decide`.
    fn may_decide(&self, agreement: &Agreement) -> bool {
        agreement.has_cause() || self.lost.values().all(|lost| lost.is_cut)
    }

    /// Decides. If no cause is known, the coordinator first declares every rank lost whose
    /// connection timed out: their silence explains more than the reports of others.
    fn decide(&mut self, agreement: &mut Agreement) -> Vec<Step> {
        let cut =
            if agreement.has_cause() { BTreeMap::new() } else { std::mem::take(&mut self.lost) };
        let mut steps = self.declare_all_lost(agreement, cut);
        steps.extend(agreement.tick(self.now_ms()));
        steps
    }

    fn is_settled(&self, agreement: &Agreement) -> bool {
        !agreement.is_pending() && self.lost.is_empty() && self.announcing.is_none()
    }

    /// Sends a mark to every connection. Returns whether there is any connection.
    fn begin_drain(&mut self) -> bool {
        self.drains += 1;
        let connected = || self.links.values().filter(|link| link.marks.is_some());
        connected().for_each(|link| link.mark(Mark::Task(self.drains)));
        let until = Instant::now() + drain_max(self.places.len());
        let drain = Drain { number: self.drains, left: connected().count(), until };
        self.drain = Some(drain).filter(|drain| drain.left > 0);
        self.drain.is_some()
    }

    /// Counts a mark of that number. Returns whether it was the last one.
    fn is_last_mark(&mut self, number: u64) -> bool {
        let Some(drain) = self.drain.as_mut().filter(|drain| drain.number == number) else {
            return false;
        };
        drain.left -= 1;
        let is_last = drain.left == 0;
        if is_last {
            self.drain = None;
        }
        is_last
    }

    fn take(&mut self, agreement: &mut Agreement, event: Event) -> Vec<Step> {
        match event {
            Event::Message(rank, message) => self.take_message(agreement, rank, message),
            Event::Closed { rank, connection, is_cut } => {
                let link = self.links.get(&rank);
                if link.is_some_and(|link| link.connection != connection) {
                    return Vec::new(); // the rank has reconnected
                }
                self.lose(agreement, rank, is_cut)
            }
            Event::Ended(rank) => self.bury(agreement, rank),
            // Each connection returns its copy.
            Event::CatchUp(mark) => {
                self.callers.push(mark.clone());
                let connected = self.links.values().filter(|link| link.marks.is_some());
                connected.for_each(|link| link.mark(mark.clone()));
                Vec::new()
            }
            Event::CaughtUp(Mark::Task(number)) => {
                if self.is_last_mark(number) && self.may_decide(agreement) {
                    self.decide(agreement)
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

    fn take_message(
        &mut self,
        agreement: &mut Agreement,
        rank: u32,
        message: ToCoordinator,
    ) -> Vec<Step> {
        let now_ms = self.now_ms();
        match message {
            ToCoordinator::Report(report) => {
                tracing::debug!("rank {rank} reports a failure: {report:?}");
                let dead =
                    if let FailureReport::Died { peer } = report { Some(peer) } else { None };
                let mut steps = agreement.report_failure(Rank(rank), report, now_ms);
                steps.extend(dead.into_iter().flat_map(|dead| self.declare_dead(agreement, dead)));
                steps
            }
            ToCoordinator::Answer(history) => agreement.answer(Rank(rank), history, now_ms),
            ToCoordinator::Holds => {
                agreement.holds(Rank(rank));
                Vec::new()
            }
            ToCoordinator::Stated(cause) => {
                tracing::info!("rank {rank} stated a cause by itself: {cause}");
                agreement.stated(Rank(rank), cause, now_ms)
            }
            ToCoordinator::Goodbye(history) => {
                if agreement.is_present(Rank(rank)) {
                    self.report(Report::Left { rank });
                }
                if rank != 0 {
                    let until = Instant::now() + Duration::from_millis(limits::PARTING_MS);
                    self.leaving.insert(rank, until);
                }
                for watcher in self.watchers.remove(&rank).unwrap_or_default() {
                    self.send_message(watcher, &FromCoordinator::Left(rank));
                }
                agreement.left(Rank(rank), history, now_ms)
            }
            ToCoordinator::Contribute(number, bytes) => {
                self.exchange(rank, number, bytes, agreement.size());
                Vec::new()
            }
            ToCoordinator::NotFetched(number) => {
                // Sent once: a rank that asks again already has it under way.
                if number == self.forwarded.0 && self.fetching.remove(&rank) {
                    self.send(rank, &self.forwarded.1);
                }
                Vec::new()
            }
            ToCoordinator::Inquire(of, question) => {
                self.inquire(rank, of, question);
                Vec::new()
            }
            ToCoordinator::Watch(of) if agreement.is_present(Rank(of)) => {
                self.watchers.entry(of).or_default().insert(rank);
                Vec::new()
            }
            ToCoordinator::Watch(of) => {
                self.send_message(rank, &FromCoordinator::Left(of));
                Vec::new()
            }
            ToCoordinator::GroupFailed(mut failure) => {
                failure.reason = cut(failure.reason);
                self.broadcast_message(&FromCoordinator::GroupFailed(failure));
                Vec::new()
            }
            ToCoordinator::Reply(number, answer) => {
                self.inquiries.answer(rank, number, answer);
                Vec::new()
            }
            ToCoordinator::Join(_) | ToCoordinator::Return(_) => {
                tracing::warn!("rank {rank} joins again");
                Vec::new()
            }
        }
    }

    fn act(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Ask(ranks) => self.ask(&ranks, &FromCoordinator::Ask),
                Step::Hold(ranks) => self.ask(&ranks, &FromCoordinator::Hold),
                Step::Announce(cause) => {
                    tracing::info!("failure cause: {cause}");
                    let culprits = cause.culprits().iter().map(|r| r.0).collect();
                    self.report(Report::FailureCause { text: cause.to_string(), culprits });
                    let bytes: Arc<[u8]> = encode(&FromCoordinator::FailureCause(cause)).into();
                    self.failure_cause = Some(Arc::clone(&bytes));
                    self.announce(&bytes);
                }
            }
        }
    }

    /// Tells all other ranks first, because the process of rank 0 may end when it gets the failure
    /// cause.
    fn announce(&mut self, bytes: &Arc<[u8]>) {
        let (mark, written) = mpsc::channel(1);
        for (rank, link) in self.links.iter().filter(|(rank, _)| **rank != 0) {
            self.send(*rank, bytes);
            let behind = link.outbox.send(Incoming::Mark(Mark::Written(mark.clone())));
            behind.unwrap_or_default(); // the connection has ended
        }
        let until = Instant::now() + drain_max(self.places.len());
        self.announcing = Some(Announcing { written, until });
    }

    fn ask(&self, ranks: &[Rank], question: &FromCoordinator) {
        let question: Arc<[u8]> = encode(question).into();
        ranks.iter().for_each(|rank| self.send(rank.0, &question));
    }

    /// Lets a rank go that has nothing more to receive, or has waited long enough.
    fn release_leaving(&mut self, have_all_left: bool) {
        let (now, all) = (Instant::now(), have_all_left || self.failure_cause.is_some());
        let (staying, going): (BTreeMap<_, _>, _) =
            self.leaving.iter().partition(|(_, until)| !all && **until > now);
        for (rank, _) in going {
            self.send_message(rank, &FromCoordinator::Farewell);
            self.links.remove(&rank);
        }
        self.leaving = staying;
    }

    /// A rank has reconnected. It gets the messages again that it may have missed.
    fn readmit(&mut self, agreement: &Agreement, rank: u32, channel: Channel) {
        tracing::info!("rank {rank} reconnected from {}", channel.peer);
        let ends = (channel.reader, channel.writer);
        let link = self.connect(rank, ends, Home::here());
        self.links.insert(rank, link);
        self.lost.remove(&rank);
        match &self.failure_cause {
            Some(cause) => self.send(rank, cause),
            None => self.act(agreement.owed(Rank(rank))),
        }
        for (number, inquiry) in self.inquiries.owed(rank) {
            self.send_message(rank, &FromCoordinator::Question(number, inquiry.question.clone()));
        }
    }

    /// The connection of a rank ended.
    fn lose(&mut self, agreement: &mut Agreement, rank: u32, is_cut: bool) -> Vec<Step> {
        self.links.remove(&rank);
        let has_left = self.leaving.remove(&rank).is_some();
        match &self.return_port {
            Some(_)
                if !has_left && !self.dead.contains(&rank) && agreement.is_present(Rank(rank)) =>
            {
                tracing::debug!("the connection of rank {rank} broke");
                self.lost.insert(rank, Lost::new(is_cut, self.watch_process(rank)));
                Vec::new()
            }
            _ => self.declare_lost(agreement, rank, is_cut),
        }
    }

    /// The process of a rank has ended. If its connection has ended too, all of its messages are
    /// handled, and it cannot reconnect.
    fn bury(&mut self, agreement: &mut Agreement, rank: u32) -> Vec<Step> {
        match self.lost.remove(&rank) {
            Some(_) => agreement.closed(Rank(rank), self.now_ms()),
            None => Vec::new(),
        }
    }

    /// The process of a rank has ended, by the report of another process. Its connection may not
    /// have ended yet.
    fn declare_dead(&mut self, agreement: &mut Agreement, rank: u32) -> Vec<Step> {
        if self.dead.insert(rank) { self.bury(agreement, rank) } else { Vec::new() }
    }

    fn declare_lost(&self, agreement: &mut Agreement, rank: u32, is_cut: bool) -> Vec<Step> {
        if is_cut {
            agreement.cut(Rank(rank), socket::UNACKNOWLEDGED_MS, self.now_ms())
        } else {
            agreement.closed(Rank(rank), self.now_ms())
        }
    }

    /// Declares the ranks lost that did not reconnect in time.
    fn give_up(&mut self, agreement: &mut Agreement) {
        let now = Instant::now();
        for lost in self.lost.values_mut() {
            // If this process was stopped, no rank could reconnect.
            if !lost.is_extended && now > lost.until + LATE {
                lost.extend();
            }
        }
        let (gone, lost): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.lost).into_iter().partition(|(_, lost)| lost.until <= now);
        self.lost = lost;
        let steps = self.declare_all_lost(agreement, gone);
        self.act(steps);
    }

    fn declare_all_lost(&self, agreement: &mut Agreement, gone: BTreeMap<u32, Lost>) -> Vec<Step> {
        gone.into_iter()
            .flat_map(|(rank, lost)| self.declare_lost(agreement, rank, lost.is_cut))
            .collect()
    }

    fn inquire(&mut self, asker: u32, of: Option<u32>, question: Vec<u8>) {
        match self.inquiries.open(asker, of, question.clone()) {
            Asked::Pass(number, Some(rank)) => {
                self.send_message(rank, &FromCoordinator::Question(number, question));
            }
            Asked::Pass(number, None) => {
                self.broadcast_message(&FromCoordinator::Question(number, question));
            }
            Asked::Known(answers) => self.send(asker, &answers),
            Asked::Nothing => {}
        }
    }

    /// Passes on the answers of inquiries that lack none. Ranks that have left give none.
    fn conclude(&mut self, size: usize) {
        if self.inquiries.is_empty() {
            return;
        }
        let ranks = Rank::at(size).0;
        let (links, lost) = (&self.links, &self.lost);
        let is_present = |rank: u32| links.contains_key(&rank) || lost.contains_key(&rank);
        for Concluded { to, question, answers } in self.inquiries.conclude(ranks, is_present) {
            let message = FromCoordinator::Answers(question.clone(), answers);
            let message: Arc<[u8]> = encode(&message).into();
            match to {
                Some(rank) => self.send(rank, &message),
                None => {
                    self.broadcast(&message);
                    self.inquiries.keep(question, message);
                }
            }
        }
    }

    fn exchange(&mut self, rank: u32, number: u64, bytes: Vec<u8>, size: usize) {
        if number == self.forwarded.0 {
            // The rank reconnected, and had not received the result.
            self.fetching.remove(&rank);
            return self.send(rank, &self.forwarded.1);
        }
        self.contributions.insert(rank, (number, bytes));
        if self.contributions.len() < size
            || self.contributions.values().any(|(other, _)| *other != number)
        {
            return;
        }
        let all = std::mem::take(&mut self.contributions).into_values().map(|(_, bytes)| bytes);
        let result = encode(&FromCoordinator::Contributions(number, all.collect()));
        if result.len() * size > SHORT {
            return self.spread(number, result);
        }
        self.forwarded = (number, result.into());
        self.broadcast(&self.forwarded.1);
    }
}
