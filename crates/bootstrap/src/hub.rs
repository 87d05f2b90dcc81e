//! The middle of the star, in rank 0's process: brings the ranks together, keeps an ear on each,
//! and hands out the verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::acceptor::Member as Guest;
use crate::inbound::{Inbound, Mark, receive};
use crate::judge::{Action, Judge};
use crate::member::{Heard, Line};
use crate::message::{FromHub, Joining, Refusal, ToHub, decode, encode};
use crate::rendezvous::Report;
use crate::turned_away::TurnedAway;
use crate::verdict::RankList;

/// What is under way to ranks that are left behind may take this long to leave.
const FLUSH: Duration = Duration::from_secs(1);
/// Messages of ranks that wait until the hub has time; then their connections have to.
const EVENTS_MAX: usize = 1024;

/// The hub of one job.
pub(crate) struct Hub {
    hosts: Vec<String>,
    cards: Vec<Vec<u8>>,
    /// Those that are connected.
    seats: BTreeMap<u32, Seat>,
    events: mpsc::Receiver<Event>,
    tell: mpsc::Sender<Event>,
    writers: JoinSet<()>,
    offers: BTreeMap<u32, Vec<u8>>,
    reports: Option<mpsc::UnboundedSender<Report>>,
    linger: Duration,
    began: Instant,
    /// Those that have said goodbye and wait for the others to, and how long they may.
    leaving: BTreeMap<u32, Instant>,
    is_over: bool,
}

/// The ways to a connected rank.
struct Seat {
    outbox: mpsc::UnboundedSender<Heard>,
    /// Where marks go, to come back behind whatever the rank sent; rank 0 has no connection.
    marks: Option<mpsc::UnboundedSender<Mark>>,
}

/// What happens on the connection of a rank.
enum Event {
    Said(u32, ToHub),
    Closed(u32),
    /// Rank 0 wants to hear of all that has arrived.
    CatchUp(Mark),
    /// So much of it as one connection had.
    CaughtUp(Mark),
}

/// The connections of ranks that join, and when to stop waiting for them.
pub(crate) struct Entrance {
    pub(crate) guests: mpsc::Receiver<Guest>,
    pub(crate) turned_away: Arc<TurnedAway>,
    pub(crate) deadline: Instant,
    /// The port or address where the coordinator listens, for messages.
    pub(crate) place: String,
    /// The acceptor; it is stopped when no rank is missing any more.
    pub(crate) acceptor: JoinHandle<()>,
}

impl Seat {
    /// Whether there is anybody to hear it.
    fn say(&self, bytes: &Arc<[u8]>) -> bool {
        self.outbox.send(Heard::Message(Arc::clone(bytes))).is_ok()
    }

    /// Sends a mark the way of what was received, or for rank 0 the way of what it is told.
    fn mark(&self, mark: Mark) {
        let sent = match &self.marks {
            Some(marks) => marks.send(mark).is_ok(),
            None => self.outbox.send(Heard::Mark(mark)).is_ok(),
        };
        if !sent {
            tracing::trace!("nobody is left to catch up");
        }
    }
}

impl Hub {
    /// A hub for `size` ranks, and the line of rank 0, who is the first member.
    pub(crate) fn new(
        size: usize,
        first: Joining,
        linger: Duration,
        reports: Option<mpsc::UnboundedSender<Report>>,
    ) -> (Self, Line) {
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        let (hear, heard) = mpsc::unbounded_channel();
        let (say, mut said) = mpsc::unbounded_channel();
        let (mark, mut marks) = mpsc::unbounded_channel();
        let own = tell.clone();
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    Some(message) = said.recv() => Event::Said(0, message),
                    Some(mark) = marks.recv() => Event::CatchUp(mark),
                    else => return,
                };
                if own.send(event).await.is_err() {
                    return;
                }
            }
        });
        let mut hub = Self {
            hosts: vec![String::new(); size],
            cards: vec![Vec::new(); size],
            seats: BTreeMap::new(),
            events,
            tell,
            writers: JoinSet::new(),
            offers: BTreeMap::new(),
            reports,
            linger,
            began: Instant::now(),
            leaving: BTreeMap::new(),
            is_over: false,
        };
        hub.seat(first, Seat { outbox: hear, marks: None });
        (hub, Line { heard, say, mark })
    }

    /// Brings the ranks together, then watches until rank 0 has left.
    pub(crate) async fn run(mut self, mut entrance: Entrance) {
        let gathered = self.gather(&mut entrance).await;
        // With no rank to wait for the port is closed, and before any rank hears that all are
        // there: a rank that dials for its next communicator must not reach this one.
        entrance.acceptor.abort();
        if entrance.acceptor.await.is_err_and(|e| e.is_panic()) {
            tracing::error!("the coordinator's accept task panicked");
        }
        match gathered {
            Err(refusal) => self.tell_all(&FromHub::Refused(refusal)),
            Ok(()) => {
                let roster = FromHub::Roster(std::mem::take(&mut self.cards));
                self.tell_all(&roster);
                self.report(Report::Joined);
                self.watch().await;
            }
        }
        self.dismiss().await;
    }

    async fn gather(&mut self, entrance: &mut Entrance) -> Result<(), Refusal> {
        let mut pause = Duration::from_millis(limits::JOIN_WARNING_MS);
        let mut warn_at = Instant::now() + pause;
        while self.seats.len() < self.hosts.len() {
            tokio::select! {
                Some(guest) = entrance.guests.recv() => self.welcome(guest),
                Some(event) = self.events.recv() => match event {
                    Event::Said(rank, ToHub::Goodbye(_)) | Event::Closed(rank) => {
                        self.seats.remove(&rank);
                        return Err(Refusal::Lost { rank });
                    }
                    Event::Said(rank, _) => {
                        tracing::warn!("rank {rank} speaks before the job has begun");
                    }
                    Event::CatchUp(_) | Event::CaughtUp(_) => {}
                },
                () = sleep_until(entrance.deadline) => {
                    return Err(Refusal::Missing {
                        ranks: self.missing(),
                        turned_away: entrance.turned_away.explanation(),
                    });
                }
                () = sleep_until(warn_at) => {
                    self.warn_of_missing(entrance);
                    pause *= 2;
                    warn_at += pause;
                }
            }
        }
        Ok(())
    }

    fn missing(&self) -> Vec<u32> {
        let all = (0..self.hosts.len()).map(|i| Rank::at(i).0);
        all.filter(|rank| !self.seats.contains_key(rank)).collect()
    }

    fn warn_of_missing(&self, entrance: &Entrance) {
        let missing: Vec<Rank> = self.missing().into_iter().map(Rank).collect();
        let (joined, size) = (self.seats.len(), self.hosts.len());
        let why = match entrance.turned_away.explanation() {
            none if none.is_empty() => "no other connection has come that explains it".into(),
            explanation => explanation,
        };
        tracing::warn!(
            "rank 0 listens at {} and has waited {:.0?} for {}; {joined} of {size} ranks have \
             joined; {why}",
            entrance.place,
            self.began.elapsed(),
            RankList(&missing),
        );
    }

    fn welcome(&mut self, guest: Guest) {
        let Guest { mut reader, mut writer, from, first } = guest;
        let refusal = match decode(&first) {
            Some(ToHub::Join(joining)) => match self.objection(&joining) {
                None => {
                    let rank = joining.rank;
                    let (outbox, mut inbox) = mpsc::unbounded_channel();
                    let (mark, marks) = mpsc::unbounded_channel();
                    tracing::debug!("rank {rank} joined from {from}");
                    self.seat(joining, Seat { outbox, marks: Some(mark) });
                    self.tell(rank, &FromHub::Seated);
                    self.writers.spawn(async move {
                        while let Some(Heard::Message(bytes)) = inbox.recv().await {
                            if writer.send(&bytes).await.is_err() {
                                return;
                            }
                        }
                        // Who is gone cannot be told that we are going.
                        writer.close().await.unwrap_or_default();
                    });
                    let tell = self.tell.clone();
                    tokio::spawn(receive(reader, marks, async move |inbound| {
                        let event = match inbound {
                            Inbound::Message(bytes) => {
                                decode(&bytes).map_or(Event::Closed(rank), |m| Event::Said(rank, m))
                            }
                            Inbound::Closed(_) => Event::Closed(rank),
                            Inbound::Mark(mark) => Event::CaughtUp(mark),
                        };
                        tell.send(event).await.is_ok()
                    }));
                    return;
                }
                Some(refusal) => refusal,
            },
            _ => Refusal::Invalid,
        };
        tracing::warn!("refused a rank from {from}: {refusal:?}");
        self.writers.spawn(async move {
            let refused = encode(&FromHub::Refused(refusal));
            // It hangs up once it has read that, so that our hanging up resets nothing.
            if writer.send(&refused).await.is_ok() && timeout(FLUSH, reader.next()).await.is_err() {
                tracing::debug!("{from} does not go away");
            }
        });
    }

    fn objection(&self, joining: &Joining) -> Option<Refusal> {
        let Joining { rank, host, card } = joining;
        let fits = card.len() <= limits::CARD_BYTES_MAX && host.len() <= limits::CAUSE_BYTES_MAX;
        if !fits || self.hosts.len() <= Rank(*rank).index() {
            Some(Refusal::Invalid)
        } else if self.seats.contains_key(rank) {
            Some(Refusal::Duplicate)
        } else {
            None
        }
    }

    fn seat(&mut self, joining: Joining, seat: Seat) {
        let Joining { rank, host, card } = joining;
        let index = Rank(rank).index();
        if let (Some(h), Some(c)) = (self.hosts.get_mut(index), self.cards.get_mut(index)) {
            (*h, *c) = (host, card);
            self.seats.insert(rank, seat);
        }
    }

    /// Until rank 0 has left and so have the others, or they have had time to.
    async fn watch(&mut self) {
        let mut judge = Judge::new(std::mem::take(&mut self.hosts));
        let mut end: Option<Instant> = None;
        loop {
            let alone = self.seats.keys().all(|rank| *rank == 0);
            if end.is_some() && alone {
                return;
            }
            let tick = judge.deadline_ms().map(|ms| self.began + Duration::from_millis(ms));
            let parting = self.leaving.values().min().copied();
            let now = Instant::now();
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let Event::Said(0, ToHub::Goodbye(_)) = &event {
                        end = Some(now + self.linger);
                    }
                    let action = self.take(&mut judge, event);
                    self.act(action);
                }
                () = sleep_until(tick.unwrap_or(now)), if tick.is_some() => {
                    let action = judge.tick(self.now_ms());
                    self.act(action);
                }
                () = sleep_until(parting.unwrap_or(now)), if parting.is_some() => {}
                () = sleep_until(end.unwrap_or(now)), if end.is_some() => return,
            }
            self.part(judge.have_all_left());
            // After a verdict nobody works on; those who can hear it have heard it soon.
            if self.is_over {
                end = end.map(|end| end.min(Instant::now() + FLUSH));
            }
        }
    }

    fn take(&mut self, judge: &mut Judge, event: Event) -> Option<Action> {
        let now_ms = self.now_ms();
        match event {
            Event::Said(rank, ToHub::Complain(complaint)) => {
                tracing::debug!("rank {rank} complains: {complaint:?}");
                judge.complain(Rank(rank), complaint, now_ms)
            }
            Event::Said(rank, ToHub::Answer(history)) => judge.answer(Rank(rank), history, now_ms),
            Event::Said(rank, ToHub::Goodbye(history)) => {
                self.report(Report::Left { rank });
                if rank != 0 {
                    let until = Instant::now() + Duration::from_millis(limits::PARTING_MS);
                    self.leaving.insert(rank, until);
                }
                judge.left(Rank(rank), history, now_ms)
            }
            Event::Said(rank, ToHub::Offer(bytes)) => {
                self.offers.insert(rank, bytes);
                if self.offers.len() == judge.size() {
                    let all = std::mem::take(&mut self.offers);
                    self.tell_all(&FromHub::Offers(all.into_values().collect()));
                }
                None
            }
            Event::Said(rank, ToHub::Join(_)) => {
                tracing::warn!("rank {rank} joins again");
                None
            }
            Event::Closed(rank) => {
                self.seats.remove(&rank);
                self.leaving.remove(&rank);
                judge.closed(Rank(rank))
            }
            Event::CatchUp(mark) => {
                self.seats.values().for_each(|seat| seat.mark(mark.clone()));
                None
            }
            Event::CaughtUp(mark) => {
                // Behind the verdict, if there is one.
                self.seats.get(&0).into_iter().for_each(|seat| seat.mark(mark.clone()));
                None
            }
        }
    }

    fn act(&mut self, action: Option<Action>) {
        match action {
            None => {}
            Some(Action::Ask(ranks)) => {
                let question: Arc<[u8]> = encode(&FromHub::Ask).into();
                ranks.iter().for_each(|rank| self.send(rank.0, &question));
            }
            Some(Action::Pronounce(verdict)) => {
                tracing::info!("verdict: {verdict}");
                self.is_over = true;
                let culprits = verdict.culprits().iter().map(|r| r.0).collect();
                self.report(Report::Verdict { text: verdict.to_string(), culprits });
                self.tell_all(&FromHub::Verdict(verdict));
            }
        }
    }

    /// Lets go who has nothing more to hear, or has waited long enough.
    fn part(&mut self, have_all_left: bool) {
        let (now, all) = (Instant::now(), have_all_left || self.is_over);
        let (staying, going): (BTreeMap<_, _>, _) =
            self.leaving.iter().partition(|(_, until)| !all && **until > now);
        for (rank, _) in going {
            self.tell(rank, &FromHub::Farewell);
            self.seats.remove(&rank);
        }
        self.leaving = staying;
    }

    /// Lets those who are still here know that nobody watches any more, and rank 0 go.
    async fn dismiss(mut self) {
        let own = self.seats.remove(&0);
        if !self.is_over {
            self.tell_all(&FromHub::Closing);
        }
        self.seats.clear();
        self.reports = None;
        // Everybody else first: with the farewell the process may end.
        let others = async { while self.writers.join_next().await.is_some() {} };
        if timeout(FLUSH, others).await.is_err() {
            tracing::debug!("some ranks do not take what is sent to them");
        }
        if let Some(own) = own {
            own.say(&encode(&FromHub::Farewell).into());
        }
    }

    fn tell_all(&self, message: &FromHub) {
        let bytes: Arc<[u8]> = encode(message).into();
        self.seats.keys().for_each(|rank| self.send(*rank, &bytes));
    }

    fn tell(&self, rank: u32, message: &FromHub) {
        self.send(rank, &encode(message).into());
    }

    fn send(&self, rank: u32, bytes: &Arc<[u8]>) {
        if !self.seats.get(&rank).is_some_and(|seat| seat.say(bytes)) {
            tracing::debug!("rank {rank} is not there to be told");
        }
    }

    fn report(&self, report: Report) {
        if let Some(reports) = &self.reports {
            // A launcher that is gone needs no report.
            reports.send(report).unwrap_or_default();
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
