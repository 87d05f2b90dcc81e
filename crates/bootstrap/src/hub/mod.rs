//! The middle of the star, in rank 0's process: brings the ranks together, keeps an ear on each,
//! and hands out the verdict.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::acceptor::Member as Guest;
use crate::channel::{Reader, Writer};
use crate::inbound::{Inbound, Mark, receive};
use crate::member::{Heard, Line, is_cut};
use crate::message::{FromHub, Joining, ProcessId, Refusal, ToHub, decode, encode};
use crate::reconnect::Entry;
use crate::relay::{self, Parent};
use crate::rendezvous::Report;
use crate::turned_away::TurnedAway;
use crate::verdict::RankList;

mod watch;

use watch::{Announcing, Look, Lost};

/// Messages to ranks that the hub leaves behind may take this long to go out.
const FLUSH: Duration = Duration::from_secs(1);
/// Messages of ranks that wait until the hub has time; then their connections have to.
const EVENTS_MAX: usize = 1024;
/// While ranks are missing, how long one whose connection ended has to join once more.
const REJOIN: Duration = Duration::from_millis(3 * limits::RETURN_MS);

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
    seats: BTreeMap<u32, Seat>,
    events: mpsc::Receiver<Event>,
    tell: mpsc::Sender<Event>,
    writers: JoinSet<()>,
    /// Of each rank the latest exchange that it takes part in.
    offers: BTreeMap<u32, (u64, Vec<u8>)>,
    /// The exchange that was done last, and its result as a message.
    exchanged: (u64, Arc<[u8]>),
    /// Where ranks come back whose connection broke, unless no port was left for it.
    entry: Option<Entry>,
    /// The processes that are the ranks.
    processes: BTreeMap<u32, ProcessId>,
    /// The ranks whose connections ended while others were missing, and until when they may join
    /// once more.
    vacated: BTreeMap<u32, Instant>,
    /// The ranks that may still come back, and until when.
    lost: BTreeMap<u32, Lost>,
    connections: u64,
    reports: Option<mpsc::UnboundedSender<Report>>,
    linger: Duration,
    began: Instant,
    /// Those that have said goodbye and wait for the others to, and how long they may.
    leaving: BTreeMap<u32, Instant>,
    /// The hub waits for this look before the arbiter decides.
    look: Option<Look>,
    looks: u64,
    /// Callers who wait until nothing is left to announce.
    callers: Vec<Mark>,
    /// The verdict that was announced, as a message.
    verdict: Option<Arc<[u8]>>,
    announcing: Option<Announcing>,
}

/// The ways to a connected rank.
struct Seat {
    /// Which connection of the hub it is; rank 0 has none.
    connection: u64,
    outbox: mpsc::UnboundedSender<Heard>,
    /// Where marks go, to come back behind whatever the rank sent; rank 0 has no connection.
    marks: Option<mpsc::UnboundedSender<Mark>>,
}

/// What happens on the connection of a rank.
enum Event {
    Said(u32, ToHub),
    /// The end of this connection of the rank.
    Closed {
        rank: u32,
        connection: u64,
        is_cut: bool,
    },
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
    /// Where ranks come back whose connection broke.
    pub(crate) entry: Option<Entry>,
}

impl Seat {
    /// Whether there is anybody to hear it.
    fn say(&self, bytes: &Arc<[u8]>) -> bool {
        self.outbox.send(Heard::Message(Arc::clone(bytes))).is_ok()
    }

    /// Sends a mark along the path of the messages from the rank, or for rank 0 along the path of
    /// the messages to it.
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
    /// A hub for `size` ranks, and the line of rank 0, the first member.
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
            relays: BTreeMap::new(),
            fetching: BTreeMap::new(),
            roster: Arc::new([]),
            seats: BTreeMap::new(),
            events,
            tell,
            writers: JoinSet::new(),
            offers: BTreeMap::new(),
            exchanged: (0, Arc::from([])),
            entry: None,
            processes: BTreeMap::new(),
            vacated: BTreeMap::new(),
            lost: BTreeMap::new(),
            connections: 0,
            reports,
            linger,
            began: Instant::now(),
            leaving: BTreeMap::new(),
            look: None,
            looks: 0,
            callers: Vec::new(),
            verdict: None,
            announcing: None,
        };
        hub.seat(first, Seat { connection: 0, outbox: hear, marks: None });
        (hub, Line { heard, say, mark, way_back: None })
    }

    /// Brings the ranks together, then watches until rank 0 has left.
    pub(crate) async fn run(mut self, mut entrance: Entrance) {
        let Entrance { entry, .. } = &mut entrance;
        self.entry = entry.take();
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
            let expiring = self.vacated.iter().min_by_key(|(_, until)| **until);
            let (gone, expiry) = expiring.map_or((None, entrance.deadline), |(rank, until)| {
                (Some(*rank), entrance.deadline.min(*until))
            });
            tokio::select! {
                biased;
                Some(guest) = entrance.guests.recv() => self.welcome(guest),
                Some(event) = self.events.recv() => match event {
                    Event::Said(rank, ToHub::Goodbye(_)) => {
                        self.seats.remove(&rank);
                        return Err(Refusal::Lost { rank });
                    }
                    Event::Closed { rank, connection, .. } => self.vacate(rank, connection),
                    Event::Said(rank, _) => {
                        tracing::warn!("rank {rank} speaks before the job has begun");
                    }
                    Event::CatchUp(_) | Event::CaughtUp(_) => {}
                },
                () = sleep_until(expiry) => {
                    if let Some(rank) = gone.filter(|_| expiry < entrance.deadline) {
                        return Err(Refusal::Lost { rank });
                    }
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

    /// The connection of a rank ended while others were missing: the rank may join once more.
    fn vacate(&mut self, rank: u32, connection: u64) {
        // A rank that has joined once more has another connection.
        if self.seats.get(&rank).is_some_and(|seat| seat.connection == connection) {
            tracing::debug!("the connection of rank {rank} ended; it may join once more");
            self.seats.remove(&rank);
            self.vacated.insert(rank, Instant::now() + REJOIN);
        }
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
                    match joining.relay {
                        Some(port) => self.relays.insert(rank, (from.ip(), port)),
                        None => self.relays.remove(&rank),
                    };
                    self.fetching.insert(rank, from.ip());
                    tracing::debug!("rank {rank} joined from {from}");
                    let seat = self.connect(rank, reader, writer);
                    self.seat(joining, seat);
                    let invitation = self.entry.as_ref().map(|entry| entry.invitation(rank));
                    self.tell(rank, &FromHub::Seated(invitation));
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

    /// Serves the connection of a rank.
    fn connect(
        &mut self,
        rank: u32,
        reader: Reader<OwnedReadHalf>,
        mut writer: Writer<OwnedWriteHalf>,
    ) -> Seat {
        self.connections += 1;
        let connection = self.connections;
        let (outbox, mut inbox) = mpsc::unbounded_channel();
        let (mark, marks) = mpsc::unbounded_channel();
        self.writers.spawn(async move {
            while let Some(next) = inbox.recv().await {
                if let Heard::Message(bytes) = next
                    && writer.send(&bytes).await.is_err()
                {
                    return;
                }
            }
            // A rank that is gone cannot hear that the hub hangs up.
            writer.close().await.unwrap_or_default();
        });
        let tell = self.tell.clone();
        tokio::spawn(receive(reader, marks, async move |inbound| {
            let closed = |is_cut| Event::Closed { rank, connection, is_cut };
            let event = match inbound {
                Inbound::Message(bytes) => {
                    let message = decode(&bytes);
                    message.map_or_else(|| closed(false), |message| Event::Said(rank, message))
                }
                Inbound::Closed(e) => closed(e.is_some_and(|e| is_cut(&e))),
                Inbound::Mark(mark) => Event::CaughtUp(mark),
            };
            tell.send(event).await.is_ok()
        }));
        Seat { connection, outbox, marks: Some(mark) }
    }

    fn objection(&self, joining: &Joining) -> Option<Refusal> {
        let Joining { rank, host, card, process, .. } = joining;
        let fits = card.len() <= limits::CARD_BYTES_MAX && host.len() <= limits::CAUSE_BYTES_MAX;
        if !fits || self.hosts.len() <= Rank(*rank).index() {
            Some(Refusal::Invalid)
        } else if self.seats.contains_key(rank) && self.processes.get(rank) != Some(process) {
            Some(Refusal::Duplicate)
        } else {
            None
        }
    }

    fn seat(&mut self, joining: Joining, seat: Seat) {
        let Joining { rank, host, card, process, .. } = joining;
        let index = Rank(rank).index();
        if let (Some(h), Some(c)) = (self.hosts.get_mut(index), self.cards.get_mut(index)) {
            (*h, *c) = (host, card);
            self.seats.insert(rank, seat);
            self.processes.insert(rank, process);
            self.vacated.remove(&rank);
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

    /// Lets those who are still here know that nobody watches any more, and rank 0 go.
    async fn dismiss(mut self) {
        let own = self.seats.remove(&0);
        if self.verdict.is_none() {
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
        self.send_all(&encode(message).into());
    }

    fn send_all(&self, bytes: &Arc<[u8]>) {
        self.seats.keys().for_each(|rank| self.send(*rank, bytes));
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

#[cfg(test)]
mod tests;
