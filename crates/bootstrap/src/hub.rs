//! The middle of the star, in rank 0's process: brings the ranks together, keeps an ear on each,
//! and hands out the verdict.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::acceptor::Member as Guest;
use crate::judge::{Action, Judge};
use crate::member::{Heard, Line};
use crate::message::{FromHub, Joining, Refusal, ToHub, decode, encode};
use crate::relay::{self, Parent};
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
    /// Those that hand on the roster: where they came from, and their ports.
    relays: BTreeMap<u32, (IpAddr, u16)>,
    /// Those that get the roster from another rank: where they came from. They may still ask.
    fetching: BTreeMap<u32, IpAddr>,
    /// The cards of all, as a message.
    roster: Arc<[u8]>,
    /// Those that are connected.
    seats: BTreeMap<u32, mpsc::UnboundedSender<Arc<[u8]>>>,
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

/// What happens on the connection of a rank.
enum Event {
    Said(u32, ToHub),
    Closed(u32),
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

impl Hub {
    /// A hub for `size` ranks, and the line of rank 0, who is the first member.
    pub(crate) fn new(
        size: usize,
        first: Joining,
        linger: Duration,
        reports: Option<mpsc::UnboundedSender<Report>>,
    ) -> (Self, Line) {
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        let (outbox, mut inbox) = mpsc::unbounded_channel::<Arc<[u8]>>();
        let (hear, heard) = mpsc::unbounded_channel();
        let (say, mut said) = mpsc::unbounded_channel();
        let mut writers = JoinSet::new();
        writers.spawn(async move {
            while let Some(bytes) = inbox.recv().await {
                if hear.send(Heard::Message(bytes)).is_err() {
                    return;
                }
            }
        });
        let own = tell.clone();
        tokio::spawn(async move {
            while let Some(message) = said.recv().await {
                if own.send(Event::Said(0, message)).await.is_err() {
                    return;
                }
            }
        });
        let mut hub = Self {
            hosts: vec![String::new(); size],
            cards: vec![Vec::new(); size],
            relays: BTreeMap::new(),
            fetching: BTreeMap::new(),
            roster: Arc::new([]),
            seats: BTreeMap::new(),
            events,
            tell,
            writers,
            offers: BTreeMap::new(),
            reports,
            linger,
            began: Instant::now(),
            leaving: BTreeMap::new(),
            is_over: false,
        };
        hub.seat(first, outbox);
        (hub, Line { heard, say })
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
                self.hand_out_roster();
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
                    if let Some(port) = joining.relay {
                        self.relays.insert(rank, (from.ip(), port));
                    }
                    self.fetching.insert(rank, from.ip());
                    let (outbox, mut inbox) = mpsc::unbounded_channel::<Arc<[u8]>>();
                    tracing::debug!("rank {rank} joined from {from}");
                    self.seat(joining, outbox);
                    self.tell(rank, &FromHub::Seated);
                    self.writers.spawn(async move {
                        while let Some(bytes) = inbox.recv().await {
                            if writer.send(&bytes).await.is_err() {
                                return;
                            }
                        }
                        // Who is gone cannot be told that we are going.
                        writer.close().await.unwrap_or_default();
                    });
                    let tell = self.tell.clone();
                    tokio::spawn(async move {
                        while let Ok(Some(bytes)) = reader.next().await {
                            let Some(message) = decode(&bytes) else { break };
                            if tell.send(Event::Said(rank, message)).await.is_err() {
                                return;
                            }
                        }
                        // Nobody listens after the end of the hub.
                        tell.send(Event::Closed(rank)).await.unwrap_or_default();
                    });
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
        let Joining { rank, host, card, .. } = joining;
        let fits = card.len() <= limits::CARD_BYTES_MAX && host.len() <= limits::CAUSE_BYTES_MAX;
        if !fits || self.hosts.len() <= Rank(*rank).index() {
            Some(Refusal::Invalid)
        } else if self.seats.contains_key(rank) {
            Some(Refusal::Duplicate)
        } else {
            None
        }
    }

    fn seat(&mut self, joining: Joining, outbox: mpsc::UnboundedSender<Arc<[u8]>>) {
        let Joining { rank, host, card, .. } = joining;
        let index = Rank(rank).index();
        if let (Some(h), Some(c)) = (self.hosts.get_mut(index), self.cards.get_mut(index)) {
            (*h, *c) = (host, card);
            self.seats.insert(rank, outbox);
        }
    }

    /// Sends the roster to this rank's children, and to the others where they find it.
    fn hand_out_roster(&mut self) {
        self.roster = encode(&FromHub::Roster(std::mem::take(&mut self.cards))).into();
        for rank in self.seats.keys().copied().collect::<Vec<_>>() {
            let parent = if rank == 0 { 0 } else { relay::parent(Rank(rank)).0 };
            let place = self.relays.get(&parent).zip(self.fetching.get(&rank));
            if let Some(((ip, port), child)) = place {
                let (ip, port) = (relay::address(*child, *ip), *port);
                self.tell(rank, &FromHub::Fetch(Parent { rank: parent, ip, port }));
            } else {
                self.fetching.remove(&rank);
                self.send(rank, &self.roster);
            }
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
            Event::Said(rank, ToHub::NoRoster) => {
                // Once: a rank that asks again has it under way.
                if self.fetching.remove(&rank).is_some() {
                    self.send(rank, &self.roster);
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
        // Everybody else first: with the farewell the process may end. Rank 0's own pump is the one
        // that is left.
        let others = async {
            while self.writers.len() > 1 {
                self.writers.join_next().await;
            }
        };
        if timeout(FLUSH, others).await.is_err() {
            tracing::debug!("some ranks do not take what is sent to them");
        }
        if let Some(own) = own {
            own.send(encode(&FromHub::Farewell).into()).unwrap_or_default();
        }
        if timeout(FLUSH, self.writers.join_next()).await.is_err() {
            tracing::debug!("rank 0 does not take its farewell");
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
        let sent = self.seats.get(&rank).map(|outbox| outbox.send(Arc::clone(bytes)));
        if !matches!(sent, Some(Ok(()))) {
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
