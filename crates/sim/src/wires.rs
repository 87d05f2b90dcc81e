//! All that is between the ranks: connections, whose messages become flows, and signals.

use std::collections::{BinaryHeap, HashMap, VecDeque};

use ringfold_topology::prices::LinkPrice;
use ringfold_topology::{Layout, Level};
use ringfold_types::Rank;

use crate::event::{Event, NoEnd, Timed};
use crate::flows::{Due, Flows};
use crate::job::Job;
use crate::network::{Network, Routing};

/// Bytes that a connection takes before they have left.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// A message arrives in this many pieces at most, so that its receiver can combine the first ones
/// before the last has come; and in pieces of at least this many bytes.
const PIECES: usize = 4;
const PIECE_BYTES_MIN: usize = 64 << 10;

/// Picoseconds of a second.
const SECOND_PS: u64 = 1_000_000_000_000;

/// The stream of messages of a lane from one rank to another.
#[derive(Debug)]
pub(crate) struct Connection {
    from: Rank,
    to: Rank,
    flow: usize,
    /// The links; empty where the message chooses them when it leaves.
    way: Vec<usize>,
    latency_ps: u64,
    /// The time in the switches of the present way, after the first.
    hops_ps: u64,
    /// Bytes of the messages that wait for the one that leaves.
    queue: VecDeque<usize>,
    /// Bytes of the present piece, and of the message after it.
    piece: usize,
    left: usize,
    /// Bytes that were taken and have not left.
    pub(crate) backlog: usize,
    /// Whether the sender waits until there is room.
    pub(crate) is_refused: bool,
    /// Bytes that have arrived and were not received.
    pub(crate) arrived: usize,
}

/// All that is between the ranks.
pub(crate) struct Wires<'j> {
    pub(crate) layout: &'j Layout,
    job: &'j Job,
    network: Network,
    routing: Routing,
    pub(crate) flows: Flows,
    pub(crate) connections: Vec<Connection>,
    index: HashMap<(Rank, Rank, usize), usize>,
    by_flow: Vec<usize>,
    /// By rank: the links of its memory, out and in.
    memory: Vec<[usize; 2]>,
    pub(crate) near: LinkPrice,
    far: LinkPrice,
    pub(crate) combining_ps: u64,
    pub(crate) signals: HashMap<(Rank, Rank, usize), u32>,
    pub(crate) events: BinaryHeap<Timed>,
    /// Bytes of messages, by the level that they cross.
    pub(crate) levels: [usize; Level::ALL.len()],
    /// Two ranks without a way between them.
    pub(crate) parted: Option<NoEnd>,
}

impl<'j> Wires<'j> {
    pub(crate) fn new(job: &'j Job, routing: Routing) -> Self {
        let (layout, network) = (&job.layout, job.network.clone());
        let prices = layout.prices();
        let near = prices.link(prices.within());
        let mut flows = Flows::new(network.links());
        let rate = SECOND_PS / near.byte_ps.max(1);
        let memory = (0..layout.size()).map(|_| [flows.link(rate), flows.link(rate)]).collect();
        Self {
            layout,
            job,
            network,
            routing,
            flows,
            connections: Vec::new(),
            index: HashMap::new(),
            by_flow: Vec::new(),
            memory,
            near,
            far: prices.link(layout.links_between()),
            combining_ps: prices.combining_ps().0,
            signals: HashMap::new(),
            events: BinaryHeap::new(),
            levels: [0; Level::ALL.len()],
            parted: None,
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.events.push(Timed { at, event });
    }

    /// The next event of this time.
    pub(crate) fn next(&mut self, now: u64) -> Option<Event> {
        let is_now = self.events.peek().is_some_and(|next| next.at == now);
        if is_now { self.events.pop().map(|it| it.event) } else { None }
    }

    pub(crate) fn price(&self, a: Rank, b: Rank) -> LinkPrice {
        if self.layout.same_host(a, b) { self.near } else { self.far }
    }

    pub(crate) fn connection(&mut self, from: Rank, to: Rank, lane: usize) -> usize {
        if let Some(known) = self.index.get(&(from, to, lane)) {
            return *known;
        }
        let price = self.price(from, to);
        let is_near = self.layout.same_host(from, to);
        // Between hosts a rank's CPU has its part in each byte.
        let byte_ps = if is_near { price.byte_ps } else { price.byte_ps.max(price.work_ps[1] / 2) };
        let flow = self.flows.flow(SECOND_PS / byte_ps.max(1));
        let number = self.connections.len();
        self.by_flow.push(number);
        let way = if is_near || self.routing != Routing::Adaptive {
            self.way(from, to)
        } else {
            Vec::new()
        };
        self.connections.push(Connection {
            from,
            to,
            flow,
            way,
            latency_ps: price.latency_ps,
            hops_ps: 0,
            queue: VecDeque::new(),
            piece: 0,
            left: 0,
            backlog: 0,
            is_refused: false,
            arrived: 0,
        });
        self.index.insert((from, to, lane), number);
        number
    }

    fn way(&mut self, from: Rank, to: Rank) -> Vec<usize> {
        if self.layout.same_host(from, to) {
            return vec![self.memory[from.index()][0], self.memory[to.index()][1]];
        }
        for pair in self.job.pairs(from, to) {
            if let Some(way) = self.network.way(pair, self.routing, |link| self.flows.load(link)) {
                return way;
            }
        }
        self.parted.get_or_insert(NoEnd::Parted(from, to));
        Vec::new()
    }

    /// A message of a connection leaves as soon as those before it have left.
    pub(crate) fn leave(&mut self, now: u64, number: usize, bytes: usize) {
        let connection = &mut self.connections[number];
        if connection.piece > 0 {
            connection.queue.push_back(bytes);
            return;
        }
        self.begin(now, number, bytes);
    }

    fn begin(&mut self, now: u64, number: usize, bytes: usize) {
        let Connection { from, to, .. } = self.connections[number];
        let way = match &self.connections[number].way {
            way if way.is_empty() => self.way(from, to),
            way => way.clone(),
        };
        let connection = &mut self.connections[number];
        connection.cut(bytes);
        // A message of ranks without a way never arrives.
        if !way.is_empty() {
            // A way of two links is through one switch, or within a host.
            connection.hops_ps = way.len().saturating_sub(2) as u64 * self.job.hop_ps;
            self.flows.begin(now, connection.flow, &way, connection.piece as f64);
        }
    }

    /// A piece of a message has left.
    pub(crate) fn left(&mut self, now: u64, due: Due) {
        let number = self.by_flow[due.flow];
        let connection = &mut self.connections[number];
        let (piece, takes_ps) = (connection.piece, connection.latency_ps + connection.hops_ps);
        connection.backlog -= piece;
        let is_refused = connection.is_refused && connection.backlog < WINDOW_BYTES;
        connection.is_refused &= !is_refused;
        let sender = connection.from;
        let next = match connection.left {
            0 => connection.queue.pop_front(),
            left => Some(left),
        };
        match next {
            // The next message may take another way.
            Some(bytes) if connection.left == 0 && connection.way.is_empty() => {
                self.flows.end(now, due.flow);
                self.connections[number].piece = 0;
                self.begin(now, number, bytes);
            }
            Some(bytes) => {
                match connection.left {
                    0 => connection.cut(bytes),
                    left => {
                        connection.piece = connection.piece.min(left);
                        connection.left -= connection.piece;
                    }
                }
                let due = self.flows.go_on(now, due.flow, connection.piece as f64);
                self.at(due.at, Event::Left(due));
            }
            None => {
                connection.piece = 0;
                self.flows.end(now, due.flow);
            }
        }
        self.at(now + takes_ps, Event::Arrived(number, piece));
        if is_refused {
            self.at(now, Event::Woken(sender));
        }
    }

    /// Bytes have arrived. Returns their receiver.
    pub(crate) fn arrived(&mut self, number: usize, bytes: usize) -> Rank {
        self.connections[number].arrived += bytes;
        self.connections[number].to
    }

    /// All other ranks can see a signal.
    pub(crate) fn signalled(&mut self, from: Rank, lane: usize) {
        for to in (0..self.layout.size()).map(Rank::at).filter(|to| *to != from) {
            *self.signals.entry((from, to, lane)).or_insert(0) += 1;
        }
    }
}

impl Connection {
    /// Begins with the first piece of a message.
    fn cut(&mut self, bytes: usize) {
        self.piece = bytes.div_ceil(PIECES).max(PIECE_BYTES_MIN).min(bytes);
        self.left = bytes - self.piece;
    }
}
