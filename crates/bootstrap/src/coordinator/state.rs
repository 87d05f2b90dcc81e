//! The state of a coordinator: the connected ranks, the channels to them, and their events. Joining
//! and watching share it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::arbiter::cut;
use crate::channel::acceptor::Home;
use crate::channel::frames::{Reader, Writer};
use crate::channel::frames::{decode, encode};
use crate::control::inbound::{Inbound, Mark, receive};
use crate::control::inquiry::Inquiries;
use crate::control::local_process::LocalProcess;
use crate::control::message::{
    FromCoordinator, JoinRequest, ProcessId, Refusal, Source, ToCoordinator,
};
use crate::control::reconnect::ReturnPort;
use crate::control::relay;
use crate::control::task::{ControlStream, Incoming, is_cut};
use crate::discover::address::loopback;
use crate::regroup::message::Place;
use crate::rendezvous::Report;

/// How long the last messages to ranks may take when the coordinator ends.
pub(super) const FLUSH: Duration = Duration::from_secs(1);
/// Messages of ranks that wait for the coordinator. Beyond this number their connections wait.
const EVENTS_MAX: usize = 1024;
/// How long a rank may take to reconnect after its connection was closed or reset.
const RETURN: Duration = Duration::from_millis(limits::RETURN_MS);
/// How long a rank may take to reconnect after its connection timed out. The two ends do not notice
/// a timeout together.
const CUT_RETURN: Duration = Duration::from_millis(limits::COORDINATOR_SILENCE_MS);
/// The coordinator of one job.
pub(crate) struct Coordinator {
    pub(super) hosts: Vec<String>,
    pub(super) peer_infos: Vec<Vec<u8>>,
    /// Where each rank regroups.
    pub(super) places: Vec<Place>,
    /// The addresses of the ranks but rank 0, and the ports of those that forward messages.
    pub(super) addresses: BTreeMap<u32, (IpAddr, Option<u16>)>,
    /// The latest message that ranks fetch from each other, and its number: that of the roster is
    /// 0, and that of the result of exchange n is n.
    pub(super) forwarded: (u64, Arc<[u8]>),
    /// The ranks that fetch it from another rank, and may still ask the coordinator.
    pub(super) fetching: BTreeSet<u32>,
    /// The connected ranks.
    pub(super) links: BTreeMap<u32, RankLink>,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) event_tx: mpsc::Sender<Event>,
    pub(super) writers: JoinSet<()>,
    /// The tasks that read from connections.
    readers: JoinSet<()>,
    /// The latest contribution of each rank to an exchange, with the number of the exchange.
    pub(super) contributions: BTreeMap<u32, (u64, Vec<u8>)>,
    pub(super) inquiries: Inquiries,
    /// The port where ranks reconnect, unless none was free.
    pub(super) return_port: Option<ReturnPort>,
    /// The process of each rank.
    pub(super) processes: BTreeMap<u32, (ProcessId, LocalProcess)>,
    /// The ranks whose connections ended while others were missing, and until when they may join
    /// again.
    pub(super) may_rejoin: BTreeMap<u32, Instant>,
    /// The processes that came as the rank of another process, with that rank. One that tries again
    /// counts once.
    pub(super) duplicates: BTreeSet<(LocalProcess, u32)>,
    /// When missing ranks count as the ranks that those processes should have been.
    pub(super) doubtful: Option<Instant>,
    /// The reason why the ranks cannot join.
    pub(super) failure: Option<Refusal>,
    /// The ranks that have come and got that reason, and the rank that is the reason.
    pub(super) refused: BTreeSet<u32>,
    /// The ranks that may still reconnect, and until when.
    pub(super) lost: BTreeMap<u32, Lost>,
    /// The ranks whose processes have ended, by the reports of others.
    pub(super) dead: BTreeSet<u32>,
    pub(super) connections: u64,
    pub(super) reports: Option<mpsc::UnboundedSender<Report>>,
    pub(super) linger: Duration,
    pub(super) began: Instant,
    /// The ranks that have said goodbye and wait for the others, and until when.
    pub(super) leaving: BTreeMap<u32, Instant>,
    /// The ranks that want to know when another rank leaves, by that rank.
    pub(super) watchers: BTreeMap<u32, BTreeSet<u32>>,
    /// The coordinator waits for this drain before the arbiter decides.
    pub(super) drain: Option<Drain>,
    pub(super) drains: u64,
    /// Callers that wait until nothing is left to announce.
    pub(super) callers: Vec<Mark>,
    /// The announced failure cause, as a message.
    pub(super) failure_cause: Option<Arc<[u8]>>,
    pub(super) announcing: Option<Announcing>,
}

/// The channels to a connected rank.
pub(super) struct RankLink {
    /// The coordinator's number for the connection. Rank 0 has none.
    pub(super) connection: u64,
    pub(super) outbox: mpsc::UnboundedSender<Incoming>,
    /// Where marks go, to return behind all messages of the rank. Rank 0 has no connection.
    pub(super) marks: Option<mpsc::UnboundedSender<Mark>>,
}

/// An event on the connection of a rank.
pub(super) enum Event {
    Message(u32, ToCoordinator),
    /// This connection of the rank ended.
    Closed {
        rank: u32,
        connection: u64,
        is_cut: bool,
    },
    /// The process of this rank has ended.
    Ended(u32),
    /// Rank 0 asks to catch up with all messages that have arrived.
    CatchUp(Mark),
    /// One connection has delivered all messages that it had received.
    CaughtUp(Mark),
}

/// The coordinator waits until every connection has delivered all bytes that the kernel held. A
/// process that was stopped finds its deadlines passed and the answers unread.
pub(super) struct Drain {
    /// The number of the mark that every connection delivers.
    pub(super) number: u64,
    /// The number of connections that have not delivered it.
    pub(super) left: usize,
    pub(super) until: Instant,
}

/// A rank whose connection broke.
pub(super) struct Lost {
    /// When the coordinator declares the rank lost.
    pub(super) until: Instant,
    /// Whether the connection timed out. Otherwise it was closed or reset.
    pub(super) is_cut: bool,
    pub(super) is_extended: bool,
    /// The task that watches the process.
    _watch: JoinSet<()>,
}

impl Lost {
    pub(super) fn new(is_cut: bool, watch: JoinSet<()>) -> Self {
        Self { until: Self::limit(is_cut), is_cut, is_extended: false, _watch: watch }
    }

    /// Gives the rank its time again, once.
    pub(super) fn extend(&mut self) {
        (self.until, self.is_extended) = (Self::limit(self.is_cut), true);
    }

    fn limit(is_cut: bool) -> Instant {
        Instant::now() + if is_cut { CUT_RETURN } else { RETURN }
    }
}

/// A failure cause on its way to all ranks but rank 0.
pub(super) struct Announcing {
    /// Closes when all connections have written the failure cause.
    pub(super) written: mpsc::Receiver<Infallible>,
    /// Until when the coordinator waits for ranks that do not read.
    pub(super) until: Instant,
}

impl RankLink {
    /// Sends a message. Returns whether the receiving task still runs.
    pub(super) fn send(&self, bytes: &Arc<[u8]>) -> bool {
        self.outbox.send(Incoming::Message(Arc::clone(bytes))).is_ok()
    }

    /// Sends a mark along the path of the messages from the rank. For rank 0, it goes along the
    /// path of the messages to it.
    pub(super) fn mark(&self, mark: Mark) {
        let sent = match &self.marks {
            Some(marks) => marks.send(mark).is_ok(),
            None => self.outbox.send(Incoming::Mark(mark)).is_ok(),
        };
        if !sent {
            tracing::trace!("no receiver is left for a mark");
        }
    }
}

impl Coordinator {
    /// Makes a coordinator for `size` ranks, and the control stream of rank 0, the first member.
    pub(crate) fn new(
        size: usize,
        first: JoinRequest,
        linger: Duration,
        reports: Option<mpsc::UnboundedSender<Report>>,
    ) -> (Self, ControlStream) {
        let (event_tx, events) = mpsc::channel(EVENTS_MAX);
        let (incoming_tx, incoming) = mpsc::unbounded_channel();
        let (outgoing, mut outgoing_rx) = mpsc::unbounded_channel();
        let (mark, mut marks) = mpsc::unbounded_channel();
        let own = event_tx.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let event = tokio::select! {
                    Some(message) = outgoing_rx.recv() => Event::Message(0, message),
                    Some(mark) = marks.recv() => Event::CatchUp(mark),
                    else => return,
                };
                if own.send(event).await.is_err() {
                    return;
                }
            }
        });
        let mut coordinator = Self {
            hosts: vec![String::new(); size],
            peer_infos: vec![Vec::new(); size],
            places: vec![Place { ip: None, port: 0, process: first.local, witness: None }; size],
            addresses: BTreeMap::new(),
            forwarded: (0, Arc::from([])),
            fetching: BTreeSet::new(),
            links: BTreeMap::new(),
            events,
            event_tx,
            writers: JoinSet::new(),
            readers: JoinSet::new(),
            contributions: BTreeMap::new(),
            inquiries: Inquiries::default(),
            return_port: None,
            processes: BTreeMap::new(),
            may_rejoin: BTreeMap::new(),
            duplicates: BTreeSet::new(),
            doubtful: None,
            failure: None,
            refused: BTreeSet::new(),
            lost: BTreeMap::new(),
            dead: BTreeSet::new(),
            connections: 0,
            reports,
            linger,
            began: Instant::now(),
            leaving: BTreeMap::new(),
            watchers: BTreeMap::new(),
            drain: None,
            drains: 0,
            callers: Vec::new(),
            failure_cause: None,
            announcing: None,
        };
        coordinator.note_place(&first, loopback());
        coordinator.add_rank(first, RankLink { connection: 0, outbox: incoming_tx, marks: None });
        (coordinator, ControlStream { incoming, outgoing, mark, return_path: None, _tasks: tasks })
    }

    /// Serves the connection of a rank on the thread of its socket.
    pub(super) fn connect(
        &mut self,
        rank: u32,
        (reader, mut writer): (Reader<OwnedReadHalf>, Writer<OwnedWriteHalf>),
        home: Home,
    ) -> RankLink {
        self.connections += 1;
        let connection = self.connections;
        let (outbox, mut inbox) = mpsc::unbounded_channel();
        let (mark, marks) = mpsc::unbounded_channel();
        // The thread stays for as long as one of these tasks.
        let (handle, stays) = (home.handle.clone(), home.clone());
        let write = async move {
            let _home = home;
            while let Some(next) = inbox.recv().await {
                if let Incoming::Message(bytes) = next
                    && writer.send(&bytes).await.is_err()
                {
                    return;
                }
            }
            // Errors do not matter: a rank that is gone needs no close.
            writer.close().await.unwrap_or_default();
        };
        self.writers.spawn_on(write, &handle);
        let event_tx = self.event_tx.clone();
        let read = receive(reader, marks, async move |inbound| {
            let _home = &stays;
            let closed = |is_cut| Event::Closed { rank, connection, is_cut };
            let event = match inbound {
                Inbound::Message(bytes) => {
                    let message = decode(&bytes);
                    message.map_or_else(|| closed(false), |message| Event::Message(rank, message))
                }
                Inbound::Closed(e) => closed(e.is_some_and(|e| is_cut(&e))),
                Inbound::Mark(mark) => Event::CaughtUp(mark),
            };
            event_tx.send(event).await.is_ok()
        });
        self.readers.spawn_on(read, &handle);
        RankLink { connection, outbox, marks: Some(mark) }
    }

    pub(super) fn add_rank(&mut self, request: JoinRequest, link: RankLink) {
        let JoinRequest { rank, host, peer_info, process, local, .. } = request;
        let index = Rank(rank).index();
        if let (Some(h), Some(c)) = (self.hosts.get_mut(index), self.peer_infos.get_mut(index)) {
            match peer_info {
                Ok(peer_info) => *c = peer_info,
                Err(reason) => self.failure = Some(Refusal::Failed { rank, reason: cut(reason) }),
            }
            *h = host;
            self.links.insert(rank, link);
            self.processes.insert(rank, (process, local));
            self.may_rejoin.remove(&rank);
        }
    }

    /// Notes where a rank regroups. It joined from the address `from`.
    pub(super) fn note_place(&mut self, request: &JoinRequest, from: IpAddr) {
        let &JoinRequest { rank, meeting: port, local: process, witness, .. } = request;
        let ip = Some(from.to_canonical()).filter(|ip| !ip.is_loopback());
        if let Some(place) = self.places.get_mut(Rank(rank).index()) {
            *place = Place { ip, port, process, witness };
        }
    }

    /// Whether `process` has joined as `rank`.
    pub(super) fn is_process(&self, rank: u32, process: &ProcessId) -> bool {
        self.processes.get(&rank).is_some_and(|(id, _)| id == process)
    }

    /// Reports the end of a rank's process, if it is on this host, until the set is dropped.
    pub(super) fn watch_process(&self, rank: u32) -> JoinSet<()> {
        let mut watch = JoinSet::new();
        if let Some((_, process)) = self.processes.get(&rank).copied() {
            let event_tx = self.event_tx.clone();
            watch.spawn(async move {
                process.ended().await;
                event_tx.send(Event::Ended(rank)).await.unwrap_or_default();
            });
        }
        watch
    }

    pub(super) fn broadcast_message(&self, message: &FromCoordinator) {
        self.broadcast(&encode(message).into());
    }

    pub(super) fn broadcast(&self, bytes: &Arc<[u8]>) {
        self.links.keys().for_each(|rank| self.send(*rank, bytes));
    }

    /// Sends a long message of this number to rank 0's children in the tree, and tells the other
    /// ranks where to fetch it.
    pub(super) fn spread(&mut self, number: u64, message: Vec<u8>) {
        self.forwarded = (number, message.into());
        self.fetching.clear();
        for rank in self.links.keys().copied().collect::<Vec<_>>() {
            if let Some(source) = self.source(rank) {
                self.fetching.insert(rank);
                self.send_message(rank, &FromCoordinator::Fetch(number, source));
            } else {
                self.send(rank, &self.forwarded.1);
            }
        }
    }

    /// The rank from which this one fetches messages. `None` if rank 0 must send them.
    fn source(&self, rank: u32) -> Option<Source> {
        let (child, _) = self.addresses.get(&rank)?;
        let Rank(parent) = relay::parent(Rank(rank), self.places.len());
        let (ip, port) =
            self.addresses.get(&parent).filter(|_| self.links.contains_key(&parent))?;
        Some(Source { rank: parent, ip: relay::address(*child, *ip), port: (*port)? })
    }

    pub(super) fn send_message(&self, rank: u32, message: &FromCoordinator) {
        self.send(rank, &encode(message).into());
    }

    pub(super) fn send(&self, rank: u32, bytes: &Arc<[u8]>) {
        if !self.links.get(&rank).is_some_and(|link| link.send(bytes)) {
            tracing::debug!("rank {rank} is not connected and misses a message");
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
