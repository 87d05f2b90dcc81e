//! The control plane of many ranks in virtual time, without sockets: messages and bytes through
//! rank 0, the time to join, and the time from a failure to its cause on all ranks.
//!
//! The coordinator is the real one, with its arbiter and agreement, and all messages are encoded.
//! The other ranks follow `join/roster.rs` and `control/task.rs`. Each rank has one CPU and one
//! link to the network, which take one message at a time.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::state::RankLink;
use super::*;
use crate::arbiter::FailureReport;
use crate::arbiter::agreement::silence_ms;
use crate::arbiter::call_log::{History, Logged};
use crate::arbiter::failure_cause::{FailureCause, RankOnHost};
use crate::channel::acceptor::{helpers_of, turn};
use crate::channel::greeting::{Greeting, Purpose};
use crate::channel::socket::BACKLOG;
use crate::control::inbound::Mark;
use crate::control::message::Source;
use crate::control::message::tests::entry;
use crate::control::relay;
use crate::control::task::{ControlStream, Incoming};
use crate::discover::secret::Secret;
use regroup::{Due, Regrouping, Said};

mod parts;
mod regroup;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// The CPU time of rank 0's control thread for one rank that joins: its connection and its first
/// messages. `prices_of_rank_0` in `tests/control_plane` prints this and the next seven.
const JOIN_NS: u64 = 40 * US;
/// The CPU time of a thread that helps with the handshake.
const HELP_NS: u64 = 131 * US;
/// The CPU time of one end for a message: of its socket, and of the control thread.
const SOCKET_NS: u64 = 7_700;
const MESSAGE_NS: u64 = 1_500;
/// The CPU time of one end for a byte of a message: of its socket, and of the control thread.
const SOCKET_BYTE_PS: u64 = 2_400;
const BYTE_PS: u64 = 800;
/// The CPU time of a mark, by which the coordinator waits for a connection to catch up: of the
/// socket, and of the control thread.
const SOCKET_MARK_NS: u64 = 1_100;
const MARK_NS: u64 = 800;
/// The CPU time of each end of a handshake between other ranks.
const HANDSHAKE_NS: u64 = JOIN_NS + HELP_NS - 2 * (SOCKET_NS + MESSAGE_NS);
/// The price of TCP between hosts in `topology/src/prices/link.rs`.
const LATENCY_NS: u64 = 20 * US;
const WIRE_PS: u64 = 400;
/// The coordinator's steps begin at multiples of this time.
const TICK_NS: u64 = MS;
/// No part takes longer.
const LIMIT_NS: u64 = 60 * S;

/// Ranks of a host, and of a rack.
const HOST: u32 = 8;
const RACK: u32 = 64;
/// The bytes of a rank in an exchange.
const CONTRIBUTION: usize = 60;
/// The handshake's bytes from each end: greetings, the challenge, keys and an answer.
const HANDSHAKE_BYTES: [usize; 2] = [40 + 16 + 49, 40 + 48];

/// Messages and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traffic {
    messages: u64,
    bytes: u64,
}

impl Traffic {
    fn add(&mut self, messages: u64, bytes: usize) {
        self.messages += messages;
        self.bytes += bytes as u64;
    }
}

/// When the CPU and both directions of the link of a rank are free again.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    cpu: u64,
    out: u64,
    into: u64,
}

#[derive(Default)]
struct Member {
    busy: Busy,
    is_dead: bool,
    /// Its packets and those to it are lost, so that no connection ends.
    is_off: bool,
    /// It reads nothing.
    is_stopped: bool,
    /// The latest message that it forwards.
    has: Option<(u64, Arc<[u8]>)>,
    /// The children that wait for a message of that number.
    waiting: Vec<(u32, u64)>,
    has_joined: bool,
    has_exchanged: bool,
    /// How long it waits for a message of the coordinator.
    silence_ms: u64,
    /// When it stops waiting for the failure cause.
    deadline: Option<u64>,
    cause: Option<String>,
}

/// The contents of a message between two ranks.
enum Letter {
    /// To rank 0, from this rank.
    Up(u32, ToCoordinator),
    Closed(u32),
    /// From rank 0 or a parent.
    Down(Arc<[u8]>),
    /// A child asks its parent for the message of this number.
    Fetch(u32, u64),
    /// From this rank, to another one that regroups.
    Said(u32, Said),
}

enum Happening {
    /// A rank asks for a connection, for this time but one.
    Connects(u32, u32),
    Joins(u32),
    /// A message of so many bytes is there; its CPU time follows.
    Arrives(u32, usize, Letter),
    /// The socket's thread hands a message over to the control thread, whose CPU time follows.
    Passes(u32, u64, Letter),
    Handles(u32, Letter),
    /// The rank has waited for the failure cause for long enough.
    Expires(u32),
    /// Nobody serves the rank at its parent.
    Refused(u32, u64),
    Returns(Mark),
    Regroups(Due),
}

/// A message or a mark on its way from the coordinator to a rank.
enum Leaving {
    Out(Incoming),
    Mark(Mark),
}

/// A message as the ranks read it.
#[derive(Clone, Debug)]
enum Read {
    Roster,
    Result(u64),
    Fetch(u64, Source),
    Ask,
    Hold,
    Cause(String),
    Other,
}

impl Read {
    fn of(bytes: &[u8]) -> Self {
        match decode(bytes) {
            Some(FromCoordinator::Roster(_)) => Self::Roster,
            Some(FromCoordinator::Contributions(number, _)) => Self::Result(number),
            Some(FromCoordinator::Fetch(number, source)) => Self::Fetch(number, source),
            Some(FromCoordinator::Ask) => Self::Ask,
            Some(FromCoordinator::Hold) => Self::Hold,
            Some(FromCoordinator::FailureCause(cause)) => Self::Cause(cause.to_string()),
            Some(_) => Self::Other,
            None => panic!("{} bytes are no message", bytes.len()),
        }
    }
}

struct World {
    began: Instant,
    now: u64,
    size: u32,
    due: BTreeMap<(u64, u64), Happening>,
    happenings: u64,
    members: Vec<Member>,
    /// The coordinator, until all have joined.
    coordinator: Option<Coordinator>,
    event_tx: mpsc::Sender<Event>,
    own: ControlStream,
    /// The messages and marks from the coordinator, each with its rank.
    leaving: mpsc::UnboundedReceiver<(u32, Leaving)>,
    leaves: mpsc::UnboundedSender<(u32, Leaving)>,
    /// Connections that wait for the acceptor.
    backlog: u32,
    /// When the threads that help rank 0 with handshakes and serve its sockets are free again.
    helpers: Vec<u64>,
    /// How many times slower all CPUs are.
    slow: u64,
    /// Long messages that were read.
    read: Vec<(Arc<[u8]>, Read)>,
    /// The rank whose traffic counts: rank 0, or the leader of those that regroup.
    hub: u32,
    sent: Traffic,
    received: Traffic,
    regrouping: Regrouping,
    /// The network is parted from the first time to the second: racks of odd numbers are apart.
    parted: [u64; 2],
}

fn request(rank: u32, size: u32) -> JoinRequest {
    // A process of another host, so that this one watches none.
    let local = decode(&encode(&(70_000 + rank, [3_u8; 16])));
    let has_children = !relay::children(Rank(rank), size as usize).is_empty();
    JoinRequest {
        rank,
        host: format!("node{:05}", rank / HOST),
        peer_info: Ok(entry(rank)),
        relay: has_children.then_some(40_000 + (rank % 20_000) as u16),
        meeting: 20_000 + (rank % 20_000) as u16,
        process: [7; 16],
        local: local.unwrap(),
        witness: Some([9; 16]),
    }
}

fn address(rank: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + rank / HOST))
}

/// The calls of a rank that has made many.
fn history() -> History {
    let call = |seq| Logged {
        seq: 1_000_000 + seq,
        words: [0x0102_0304, 1 << 20, 0, 1 << 33, 1 << 40],
        algorithm: 3,
        finished: seq + 1 < limits::CALLS_REMEMBERED as u64,
    };
    History { calls: (0..limits::CALLS_REMEMBERED as u64).map(call).collect() }
}

/// The CPU time of one end for a message of so many bytes: of the control thread, and of the
/// socket.
const fn message_ns(bytes: usize) -> [u64; 2] {
    let bytes = bytes as u64;
    [MESSAGE_NS + bytes * BYTE_PS / 1_000, SOCKET_NS + bytes * SOCKET_BYTE_PS / 1_000]
}

/// The bytes of a message in its frames.
fn framed(message: usize) -> usize {
    4 + message + (4 + message).div_ceil(65_519) * 18
}

impl World {
    fn new(size: u32) -> Self {
        let (mut coordinator, own) =
            Coordinator::new(size as usize, request(0, size), Duration::from_secs(1), None);
        let greeting = Greeting::new(Purpose::Return, "simulation", size as usize);
        coordinator.return_port = Some(ReturnPort::simulated(greeting, Secret::new([1; 32])));
        let (leaves, leaving) = mpsc::unbounded_channel();
        let silence_ms = silence_ms(size as usize);
        Self {
            began: Instant::now(),
            now: 0,
            size,
            due: BTreeMap::new(),
            happenings: 0,
            members: (0..size).map(|_| Member { silence_ms, ..Member::default() }).collect(),
            event_tx: coordinator.event_tx.clone(),
            coordinator: Some(coordinator),
            own,
            leaving,
            leaves,
            backlog: 0,
            helpers: vec![0; helpers_of(size as usize)],
            slow: 1,
            read: Vec::new(),
            hub: 0,
            regrouping: Regrouping::default(),
            sent: Traffic::default(),
            received: Traffic::default(),
            parted: [0; 2],
        }
    }

    fn member(&mut self, rank: u32) -> &mut Member {
        &mut self.members[rank as usize]
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.happenings += 1;
        self.due.insert((time, self.happenings), happening);
    }

    /// The rank's CPU works for so long from that time on. Returns the end.
    fn works(&mut self, rank: u32, from: u64, for_ns: u64) -> u64 {
        let for_ns = for_ns * self.slow;
        let busy = &mut self.member(rank).busy;
        busy.cpu = busy.cpu.max(from) + for_ns;
        busy.cpu
    }

    /// The thread at the hub that serves the socket of another rank works for so long from that
    /// time on. Returns the end.
    fn helps(&mut self, peer: u32, from: u64, for_ns: u64) -> u64 {
        let at = peer as usize % self.helpers.len().max(1);
        match self.helpers.get_mut(at) {
            Some(free) => {
                *free = (*free).max(from) + for_ns * self.slow;
                *free
            }
            None => self.works(self.hub, from, for_ns),
        }
    }

    /// When a packet that is sent at this time arrives: the hosts repeat it while the network is
    /// parted, after 200 ms and then twice as long each time.
    fn arrival(&self, from: u32, to: u32, time: u64) -> u64 {
        let is_apart = (from / RACK) % 2 != (to / RACK) % 2;
        let [begin, end] = self.parted;
        let mut sent = time;
        let mut pause = 200 * MS;
        while is_apart && (begin..end).contains(&sent) {
            sent += pause;
            pause *= 2;
        }
        sent + LATENCY_NS
    }

    /// Sends a message whose CPU time has passed.
    fn carry(&mut self, time: u64, [from, to]: [u32; 2], message: usize, letter: Letter) {
        let bytes = framed(message);
        let wire = bytes as u64 * WIRE_PS / 1_000;
        if from == self.hub {
            self.sent.add(1, bytes);
        }
        if to == self.hub {
            self.received.add(1, bytes);
        }
        let out = &mut self.member(from).busy.out;
        *out = (*out).max(time) + wire;
        let leaves = *out;
        let arrives = self.arrival(from, to, leaves);
        if self.member(to).is_off || self.member(from).is_off {
            return;
        }
        let into = &mut self.member(to).busy.into;
        *into = (*into + wire).max(arrives);
        let arrives = *into;
        self.at(arrives, Happening::Arrives(to, bytes, letter));
    }

    fn send(&mut self, time: u64, ends @ [from, _]: [u32; 2], message: usize, letter: Letter) {
        let [own, socket] = message_ns(framed(message));
        let ready = self.works(from, time, own);
        let ready = if from == self.hub {
            self.helps(ends[1], ready, socket)
        } else {
            self.works(from, ready, socket)
        };
        self.carry(ready, ends, message, letter);
    }

    fn send_up(&mut self, time: u64, rank: u32, message: ToCoordinator) {
        if rank == 0 {
            return self.own.outgoing.send(message).unwrap();
        }
        let bytes = encode(&message).len();
        self.send(time, [rank, 0], bytes, Letter::Up(rank, message));
    }

    /// Takes the messages and marks that the coordinator has sent.
    fn collect(&mut self) {
        let time = self.now;
        while let Ok(incoming) = self.own.incoming.try_recv() {
            if let Incoming::Message(bytes) = incoming {
                self.hears(time, 0, bytes);
            }
        }
        while let Ok((rank, leaving)) = self.leaving.try_recv() {
            match leaving {
                Leaving::Out(Incoming::Message(bytes)) => {
                    self.send(time, [0, rank], bytes.len(), Letter::Down(bytes));
                }
                // It is dropped when the message before it is written.
                Leaving::Out(Incoming::Mark(mark)) => {
                    let written = self.member(0).busy.out;
                    self.at(written.max(time), Happening::Returns(mark));
                }
                Leaving::Out(Incoming::Closed(_)) => {}
                Leaving::Mark(mark) => {
                    let passed = self.helps(rank, time, SOCKET_MARK_NS);
                    let done = self.works(0, passed, MARK_NS);
                    self.at(done, Happening::Returns(mark));
                }
            }
        }
    }

    /// Advances until `is_done`.
    async fn run(&mut self, is_done: impl Fn(&Self) -> bool) {
        let limit = self.now + LIMIT_NS;
        while !is_done(self) {
            assert!(self.now < limit, "after {} ms of {} ranks", self.now / MS, self.size);
            self.now += TICK_NS;
            // Virtual time passes when all tasks wait.
            sleep_until(self.began + Duration::from_nanos(self.now)).await;
            self.collect();
            while let Some(first) = self.due.first_entry()
                && first.key().0 <= self.now
            {
                let ((time, _), happening) = first.remove_entry();
                self.happens(time, happening).await;
            }
        }
    }

    async fn event(&mut self, event: Event) {
        assert!(self.event_tx.send(event).await.is_ok(), "the coordinator has ended");
    }

    async fn happens(&mut self, time: u64, happening: Happening) {
        match happening {
            Happening::Connects(rank, tries) => {
                if let Some(pause) = self.queues(rank, tries) {
                    return self.at(time + pause, Happening::Connects(rank, tries + 1));
                }
                // The connection takes a message there and back, and the handshake two.
                let helps = self.helpers.iter_mut().min();
                let help = helps.map(|free| {
                    *free = (*free).max(time) + HELP_NS;
                    *free
                });
                let own = if help.is_some() { JOIN_NS } else { JOIN_NS + HELP_NS };
                let done = self.works(0, time, own).max(help.unwrap_or(0));
                self.at(done.max(time + 6 * LATENCY_NS), Happening::Joins(rank));
            }
            Happening::Joins(rank) => self.joins(rank),
            Happening::Arrives(to, bytes, letter) => self.arrives(time, to, bytes, letter),
            Happening::Passes(to, cpu, letter) => {
                let done = self.works(to, time, cpu);
                self.at(done, Happening::Handles(to, letter));
            }
            Happening::Handles(to, _) if self.member(to).is_dead => {}
            Happening::Handles(_, Letter::Up(rank, message)) => {
                self.event(Event::Message(rank, message)).await;
            }
            Happening::Handles(_, Letter::Closed(rank)) => {
                let connection = rank.into();
                self.event(Event::Closed { rank, connection, is_cut: false }).await;
            }
            Happening::Handles(to, Letter::Down(bytes)) => self.hears(time, to, bytes),
            Happening::Handles(to, Letter::Fetch(child, number)) => {
                self.member(to).waiting.push((child, number));
                self.forward(time, to);
            }
            Happening::Expires(rank) => {
                let member = self.member(rank);
                if member.deadline == Some(time) && member.cause.is_none() && !member.is_dead {
                    let ranks = vec![RankOnHost { rank: Rank(0), host: None }].into();
                    let for_ms = limits::COORDINATOR_SILENCE_MS;
                    let cause = FailureCause::Silent { ranks, for_ms };
                    member.cause = Some(cause.to_string());
                    self.send_up(time, rank, ToCoordinator::Stated(cause));
                }
            }
            Happening::Refused(rank, number) => {
                self.send_up(time, rank, ToCoordinator::NotFetched(number));
            }
            Happening::Returns(mark @ Mark::Task(_)) => {
                self.event(Event::CaughtUp(mark)).await;
            }
            Happening::Returns(_) => {}
            Happening::Regroups(due) => self.regroups(time, due),
            Happening::Handles(to, Letter::Said(from, said)) => self.told(time, [from, to], said),
        }
    }

    /// A message has arrived at a rank, where its socket's thread takes it.
    fn arrives(&mut self, time: u64, to: u32, bytes: usize, letter: Letter) {
        let handshake = if matches!(letter, Letter::Fetch(..)) { HANDSHAKE_NS } else { 0 };
        let [own, socket] = message_ns(bytes);
        let socket = socket + handshake;
        let from = match letter {
            Letter::Up(from, _) | Letter::Closed(from) | Letter::Said(from, _)
                if to == self.hub =>
            {
                Some(from)
            }
            _ => None,
        };
        if let Some(from) = from {
            let passes = self.helps(from, time, socket);
            self.at(passes, Happening::Passes(to, own, letter));
        } else if !self.member(to).is_stopped {
            self.at(time, Happening::Passes(to, own + socket, letter));
        }
    }

    /// Queues a connection in the kernel. Returns how long the rank waits if there is no room: its
    /// host repeats the packet after 1 s and 2 s, and after 5 s the rank dials again.
    fn queues(&mut self, rank: u32, tries: u32) -> Option<u64> {
        let is_full = self.backlog >= BACKLOG.unsigned_abs();
        self.backlog += u32::from(!is_full);
        let share = 400 * MS * u64::from(rank % 16) / 16;
        is_full.then_some([S, 2 * S, 2 * S + 400 * MS + share][tries as usize % 3])
    }

    /// The coordinator admits a rank.
    fn joins(&mut self, rank: u32) {
        self.backlog -= 1;
        let request = request(rank, self.size);
        let bytes = encode(&ToCoordinator::Join(request.clone())).len();
        self.sent.add(2, HANDSHAKE_BYTES[0]);
        self.received.add(3, HANDSHAKE_BYTES[1] + framed(bytes));
        let (outbox, mut inbox) = mpsc::unbounded_channel();
        let (mark, mut marks) = mpsc::unbounded_channel();
        let leaves = self.leaves.clone();
        tokio::spawn(async move {
            loop {
                let leaving = tokio::select! {
                    biased;
                    Some(incoming) = inbox.recv() => Leaving::Out(incoming),
                    Some(mark) = marks.recv() => Leaving::Mark(mark),
                    else => return,
                };
                leaves.send((rank, leaving)).unwrap_or_default();
            }
        });
        let mut coordinator = self.coordinator.take().unwrap();
        let link = RankLink { connection: rank.into(), outbox, marks: Some(mark) };
        coordinator.seat(request, address(rank), link);
        if coordinator.links.len() < self.size as usize {
            self.coordinator = Some(coordinator);
            return;
        }
        coordinator.send_roster();
        tokio::spawn(async move { coordinator.watch(&mut None).await });
    }

    /// A rank reads a message.
    fn hears(&mut self, time: u64, rank: u32, bytes: Arc<[u8]>) {
        let is_long = bytes.len() > 4_096;
        let known = self.read.iter().find(|(it, _)| is_long && Arc::ptr_eq(it, &bytes));
        let read = known.map_or_else(|| Read::of(&bytes), |(_, read)| read.clone());
        if is_long && known.is_none() {
            self.read.push((Arc::clone(&bytes), read.clone()));
        }
        let member = self.member(rank);
        match read {
            Read::Roster => {
                member.has_joined = true;
                member.has = Some((0, bytes));
                self.forward(time, rank);
            }
            Read::Result(number) => {
                member.has_exchanged = true;
                member.has = Some((number, bytes));
                self.forward(time, rank);
            }
            Read::Fetch(number, Source { rank: parent, .. }) => {
                self.fetch(time, [rank, parent], number);
            }
            Read::Ask => {
                if member.deadline.is_some() {
                    self.waits(time, rank);
                }
                self.send_up(time, rank, ToCoordinator::Answer(history()));
            }
            Read::Hold if member.cause.is_none() => {
                self.waits(time, rank);
                self.send_up(time, rank, ToCoordinator::Holds);
            }
            Read::Cause(cause) => _ = member.cause.get_or_insert(cause),
            Read::Hold | Read::Other => {}
        }
    }

    /// A child fetches a message from its parent.
    fn fetch(&mut self, time: u64, [child, parent]: [u32; 2], number: u64) {
        let done = self.works(child, time, HANDSHAKE_NS);
        if self.member(parent).is_dead {
            return self.at(time + 2 * LATENCY_NS, Happening::Refused(child, number));
        }
        // The connection and the handshake are four messages.
        let bytes = encode(&relay::Fetch { rank: child, number }).len();
        self.carry(done + 4 * LATENCY_NS, [child, parent], bytes, Letter::Fetch(child, number));
    }

    /// A rank sends a message to the children that wait for it.
    fn forward(&mut self, time: u64, rank: u32) {
        let member = self.member(rank);
        let Some((number, bytes)) = member.has.clone() else { return };
        let (served, rest) = member.waiting.drain(..).partition(|(_, wanted)| *wanted <= number);
        let served: Vec<(u32, u64)> = served;
        member.waiting = rest;
        for (child, _) in served {
            self.send(time, [rank, child], bytes.len(), Letter::Down(Arc::clone(&bytes)));
        }
    }

    /// A rank waits for the failure cause from now on.
    fn waits(&mut self, time: u64, rank: u32) {
        let silence_ms = self.member(rank).silence_ms;
        let deadline = time + silence_ms * MS;
        self.member(rank).deadline = Some(deadline);
        if rank != 0 {
            self.at(deadline, Happening::Expires(rank));
        }
    }

    fn reports(&mut self, time: u64, rank: u32, report: FailureReport) {
        if let FailureReport::Link { .. } = report {
            self.member(rank).silence_ms = limits::PARTED_MS;
        }
        self.waits(time, rank);
        self.send_up(time, rank, ToCoordinator::Report(report));
    }
}
