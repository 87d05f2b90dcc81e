//! The state of a hub, which joining and watching share: the ranks that are connected, the ways to
//! them, and the events on these.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::channel::{Reader, Writer};
use crate::inbound::{Inbound, Mark, receive};
use crate::member::{Heard, Line, is_cut};
use crate::message::{FromHub, Joining, ProcessId, ToHub, decode, encode};
use crate::reconnect::Entry;
use crate::rendezvous::Report;

/// Messages to ranks that the hub leaves behind may take this long to go out.
pub(super) const FLUSH: Duration = Duration::from_secs(1);
/// Messages of ranks that wait until the hub has time; then their connections have to.
const EVENTS_MAX: usize = 1024;
/// The time that a rank has to come back after its connection was closed or reset.
const RETURN: Duration = Duration::from_millis(limits::RETURN_MS);
/// The time that a rank has to come back after its connection timed out. The two ends do not notice
/// a timeout together.
const CUT_RETURN: Duration = Duration::from_millis(limits::HUB_SILENCE_MS);
/// The hub of one job.
pub(crate) struct Hub {
    pub(super) hosts: Vec<String>,
    pub(super) cards: Vec<Vec<u8>>,
    /// Those that hand on the roster: where they came from, and their ports.
    pub(super) relays: BTreeMap<u32, (IpAddr, u16)>,
    /// Those that get the roster from another rank: where they came from. They may still ask.
    pub(super) fetching: BTreeMap<u32, IpAddr>,
    /// The cards of all, as a message.
    pub(super) roster: Arc<[u8]>,
    /// Those that are connected.
    pub(super) seats: BTreeMap<u32, Seat>,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) tell: mpsc::Sender<Event>,
    pub(super) writers: JoinSet<()>,
    /// Of each rank the latest exchange that it takes part in.
    pub(super) offers: BTreeMap<u32, (u64, Vec<u8>)>,
    /// The exchange that was done last, and its result as a message.
    pub(super) exchanged: (u64, Arc<[u8]>),
    /// Where ranks come back whose connection broke, unless no port was left for it.
    pub(super) entry: Option<Entry>,
    /// The processes that are the ranks.
    pub(super) processes: BTreeMap<u32, ProcessId>,
    /// The ranks whose connections ended while others were missing, and until when they may join
    /// once more.
    pub(super) vacated: BTreeMap<u32, Instant>,
    /// The ranks that may still come back, and until when.
    pub(super) lost: BTreeMap<u32, Lost>,
    pub(super) connections: u64,
    pub(super) reports: Option<mpsc::UnboundedSender<Report>>,
    pub(super) linger: Duration,
    pub(super) began: Instant,
    /// Those that have said goodbye and wait for the others to, and how long they may.
    pub(super) leaving: BTreeMap<u32, Instant>,
    /// The hub waits for this look before the arbiter decides.
    pub(super) look: Option<Look>,
    pub(super) looks: u64,
    /// Callers who wait until nothing is left to announce.
    pub(super) callers: Vec<Mark>,
    /// The verdict that was announced, as a message.
    pub(super) verdict: Option<Arc<[u8]>>,
    pub(super) announcing: Option<Announcing>,
}

/// The ways to a connected rank.
pub(super) struct Seat {
    /// Which connection of the hub it is; rank 0 has none.
    pub(super) connection: u64,
    pub(super) outbox: mpsc::UnboundedSender<Heard>,
    /// Where marks go, to come back behind whatever the rank sent; rank 0 has no connection.
    pub(super) marks: Option<mpsc::UnboundedSender<Mark>>,
}

/// What happens on the connection of a rank.
pub(super) enum Event {
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

/// The hub waits until every connection has delivered what the kernel had of it: a process that was
/// stopped finds the time over, and the answers unread.
pub(super) struct Look {
    /// The mark that every connection delivers.
    pub(super) number: u64,
    /// How many have not delivered it.
    pub(super) left: usize,
    pub(super) until: Instant,
}

/// A rank whose connection broke.
pub(super) struct Lost {
    /// When it is given up.
    pub(super) until: Instant,
    /// Whether the connection timed out. Otherwise it was closed or reset.
    pub(super) is_cut: bool,
    pub(super) is_extended: bool,
}

impl Lost {
    pub(super) fn new(is_cut: bool) -> Self {
        let patience = if is_cut { CUT_RETURN } else { RETURN };
        Self { until: Instant::now() + patience, is_cut, is_extended: false }
    }
}

/// The verdict is on its way to all but rank 0.
pub(super) struct Announcing {
    /// Ends when it is written,
    pub(super) written: mpsc::Receiver<Infallible>,
    /// and a rank that takes nothing is not waited for any longer.
    pub(super) until: Instant,
}

impl Seat {
    /// Whether there is anybody to hear it.
    pub(super) fn say(&self, bytes: &Arc<[u8]>) -> bool {
        self.outbox.send(Heard::Message(Arc::clone(bytes))).is_ok()
    }

    /// Sends a mark along the path of the messages from the rank, or for rank 0 along the path of
    /// the messages to it.
    pub(super) fn mark(&self, mark: Mark) {
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

    /// Serves the connection of a rank.
    pub(super) fn connect(
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

    pub(super) fn seat(&mut self, joining: Joining, seat: Seat) {
        let Joining { rank, host, card, process, .. } = joining;
        let index = Rank(rank).index();
        if let (Some(h), Some(c)) = (self.hosts.get_mut(index), self.cards.get_mut(index)) {
            (*h, *c) = (host, card);
            self.seats.insert(rank, seat);
            self.processes.insert(rank, process);
            self.vacated.remove(&rank);
        }
    }

    pub(super) fn tell_all(&self, message: &FromHub) {
        self.send_all(&encode(message).into());
    }

    pub(super) fn send_all(&self, bytes: &Arc<[u8]>) {
        self.seats.keys().for_each(|rank| self.send(*rank, bytes));
    }

    pub(super) fn tell(&self, rank: u32, message: &FromHub) {
        self.send(rank, &encode(message).into());
    }

    pub(super) fn send(&self, rank: u32, bytes: &Arc<[u8]>) {
        if !self.seats.get(&rank).is_some_and(|seat| seat.say(bytes)) {
            tracing::debug!("rank {rank} is not there to be told");
        }
    }

    pub(super) fn report(&self, report: Report) {
        if let Some(reports) = &self.reports {
            // A launcher that is gone needs no report.
            reports.send(report).unwrap_or_default();
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
