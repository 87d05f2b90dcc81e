//! All that is between the ranks: connections, whose messages become flows, and signals.

use std::collections::{BinaryHeap, HashMap, VecDeque};

use ringfold_topology::prices::LinkPrice;
use ringfold_topology::{Layout, Level};
use ringfold_types::Rank;

use crate::event::{Event, NoEnd, Timed};
use crate::flows::Flows;
use crate::job::Job;
use crate::network::{Network, Routing};

/// Bytes that a connection takes before they have left.
const WINDOW_BYTES: usize = 1 << 20;

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
    /// Connection i sends by flow i.
    pub(crate) connections: Vec<Connection>,
    index: HashMap<(Rank, Rank, usize), usize>,
    /// By rank: the links of its memory, out and in.
    memory: Vec<[usize; 2]>,
    pub(crate) near: LinkPrice,
    far: LinkPrice,
    pub(crate) combining_ps: u64,
    pub(crate) signals: HashMap<(Rank, Rank, usize), u32>,
    pub(crate) events: BinaryHeap<Timed>,
    /// Bytes of messages, by the level that they cross.
    pub(crate) levels: [usize; Level::ALL.len()],
    /// The rounds of a real call for which one stands.
    rounds: usize,
    /// Two ranks without a way between them.
    pub(crate) parted: Option<NoEnd>,
}

impl<'j> Wires<'j> {
    pub(crate) fn new(job: &'j Job, routing: Routing, rounds: usize) -> Self {
        let (layout, network) = (&job.layout, job.network.clone());
        let prices = layout.prices();
        // A message takes the time of one in each of these rounds.
        let of_rounds = |price: LinkPrice| {
            let [latency_ps, message_ps] =
                [price.latency_ps, price.message_ps].map(|each| each * rounds as u64);
            LinkPrice { latency_ps, message_ps, ..price }
        };
        let near = of_rounds(prices.link(prices.within()));
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
            memory,
            near,
            far: of_rounds(prices.link(layout.links_between())),
            combining_ps: prices.combining_ps().0,
            signals: HashMap::new(),
            events: BinaryHeap::new(),
            levels: [0; Level::ALL.len()],
            rounds,
            parted: None,
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.events.push(Timed { at, event });
    }

    /// The time of the next event.
    pub(crate) fn next_time(&self) -> Option<u64> {
        let next = self.events.peek().map(|next| next.at);
        next.into_iter().chain(self.flows.next()).min()
    }

    /// The next event of this time. Bytes leave after all that arrive, and before a rank goes on.
    pub(crate) fn next(&mut self, now: u64) -> Option<Event> {
        let next = self.events.peek().filter(|next| next.at == now);
        let is_left = self.flows.next() == Some(now)
            && next.is_none_or(|next| matches!(next.event, Event::Woken(_)));
        match is_left {
            true => self.flows.left().map(Event::Left),
            false if next.is_some() => self.events.pop().map(|it| it.event),
            false => None,
        }
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
        let number = self.flows.flow(SECOND_PS / byte_ps.max(1));
        let way = if is_near || self.routing != Routing::Adaptive {
            self.way(from, to)
        } else {
            Vec::new()
        };
        self.connections.push(Connection {
            from,
            to,
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

    /// Whether a connection takes no more bytes until some have left. Its sender then waits.
    pub(crate) fn refuses(&mut self, number: usize) -> bool {
        let connection = &mut self.connections[number];
        let is_refused = connection.backlog >= WINDOW_BYTES * self.rounds;
        connection.is_refused |= is_refused;
        is_refused
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
        connection.cut(bytes, self.rounds);
        // A message of ranks without a way never arrives.
        if !way.is_empty() {
            // A way of two links is through one switch, or within a host.
            connection.hops_ps =
                way.len().saturating_sub(2) as u64 * self.job.hop_ps * self.rounds as u64;
            self.flows.begin(now, number, &way, connection.piece as f64);
        }
    }

    /// A piece of a message has left.
    pub(crate) fn left(&mut self, now: u64, number: usize) {
        let connection = &mut self.connections[number];
        let (piece, takes_ps) = (connection.piece, connection.latency_ps + connection.hops_ps);
        connection.backlog -= piece;
        let is_refused = connection.is_refused && connection.backlog < WINDOW_BYTES * self.rounds;
        connection.is_refused &= !is_refused;
        let sender = connection.from;
        let next = match connection.left {
            0 => connection.queue.pop_front(),
            left => Some(left),
        };
        match next {
            // The next message may take another way.
            Some(bytes) if connection.left == 0 && connection.way.is_empty() => {
                self.flows.end(now, number);
                self.connections[number].piece = 0;
                self.begin(now, number, bytes);
            }
            Some(bytes) => {
                match connection.left {
                    0 => connection.cut(bytes, self.rounds),
                    left => {
                        connection.piece = connection.piece.min(left);
                        connection.left -= connection.piece;
                    }
                }
                self.flows.go_on(now, number, connection.piece as f64);
            }
            None => {
                connection.piece = 0;
                self.flows.end(now, number);
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
    /// Begins with the first piece of a message, or of those of several rounds.
    fn cut(&mut self, bytes: usize, rounds: usize) {
        self.piece = bytes.div_ceil(PIECES).max(PIECE_BYTES_MIN * rounds).min(bytes);
        self.left = bytes - self.piece;
    }
}
