//! All that is between the ranks: connections, whose messages become flows, and signals.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use ringfold_collectives::Op;
use ringfold_topology::prices::LinkPrice;
use ringfold_topology::{Layout, Level};
use ringfold_types::{Rank, mix};

use crate::aggregators::Aggregators;
use crate::event::{Event, NoEnd};
use crate::flows::Flows;
use crate::fold::{Fold, Way};
use crate::job::{Job, Traffic};
use crate::network::{Network, Routing, SECOND_PS};
use crate::programs::Programs;
use crate::queue::Queue;
use crate::whole::{short, whole};

/// Bytes that a connection takes before they have left.
const WINDOW_BYTES: usize = 1 << 20;

/// A message arrives in this many pieces at most, so that its receiver can combine the first ones
/// before the last has come; and in pieces of at least this many bytes.
const PIECES: usize = 4;
const PIECE_BYTES_MIN: usize = 64 << 10;

/// The stream of messages of a lane from one rank to another.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    from: Rank,
    to: Rank,
    /// The number of connections for which it stands.
    count: usize,
    /// The level that it crosses.
    level: usize,
    /// Whether each message chooses its way when it leaves.
    chooses: bool,
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
    /// Connection i sends by flow i. The first are those of other jobs, which no rank uses.
    pub(crate) connections: Vec<Connection>,
    index: HashMap<Way, usize, BuildHasherDefault<WayHasher>>,
    pub(crate) fold: Fold,
    pub(crate) aggregators: Aggregators,
    /// By rank: the links of its memory, out and in.
    memory: Vec<[usize; 2]>,
    /// By rank: the bytes between hosts that its CPU passes, out and in, as links.
    cpus: Vec<[usize; 2]>,
    pub(crate) near: LinkPrice,
    far: LinkPrice,
    pub(crate) combining_ps: u64,
    pub(crate) signals: HashMap<(Rank, Rank, usize), u32>,
    pub(crate) queue: Queue,
    /// Bytes of messages, by the level that they cross.
    pub(crate) levels: [usize; Level::ALL.len()],
    /// The rounds of a real call for which one stands.
    rounds: usize,
    /// Two ranks without a way between them.
    pub(crate) parted: Option<NoEnd>,
}

impl<'j> Wires<'j> {
    /// Without a fold, each rank stands for itself.
    pub(crate) fn new(
        job: &'j Job,
        programs: &Programs,
        routing: Routing,
        fold: Option<Fold>,
    ) -> Self {
        let rounds = programs.rounds;
        let (layout, mut network) = (&job.layout, job.network.clone());
        let prices = layout.prices();
        // A message takes the time of one in each of these rounds.
        let of_rounds = |price: LinkPrice| {
            let [latency_ps, message_ps] =
                [price.latency_ps, price.message_ps].map(|each| each * rounds as u64);
            LinkPrice { latency_ps, message_ps, ..price }
        };
        let near = of_rounds(prices.link(prices.within()));
        let mut flows = Flows::new(network.links());
        let far = of_rounds(prices.link(layout.links_between()));
        let mut of_ranks = |byte_ps: u64| {
            let rate = SECOND_PS / byte_ps.max(1);
            (0..layout.size()).map(|_| [flows.link(rate), flows.link(rate)]).collect()
        };
        let (memory, cpus) = (of_ranks(near.byte_ps), of_ranks(far.work_ps[1] / 2));
        for Traffic { ports, part } in &job.traffic {
            let way = network.way(*ports, routing, |link| flows.load(link)).unwrap_or_default();
            let most = way.first().map_or(0, |link| whole(flows.rate(*link) as f64 * part));
            let way: Vec<_> = way.into_iter().map(|link| (link, 1)).collect();
            let flow = flows.flow();
            flows.set_way(flow, &way, most.max(1));
            flows.begin_endless(flow);
        }
        let aggregators = Aggregators::of(job, programs, &mut network);
        let places = layout.size() + aggregators.count();
        let fold = fold.unwrap_or_else(|| Fold::none(places, flows.links()));
        let parted = aggregators.parted.map(|[a, b]| NoEnd::Parted(a, b));
        Self {
            layout,
            job,
            network,
            routing,
            flows,
            connections: job.traffic.iter().map(|_| Connection::default()).collect(),
            index: HashMap::default(),
            fold,
            aggregators,
            memory,
            cpus,
            near,
            far,
            combining_ps: prices.combining_ps().0,
            signals: HashMap::new(),
            queue: Queue::default(),
            levels: [0; Level::ALL.len()],
            rounds,
            parted,
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.queue.push(at, event);
    }

    /// Takes the next events, all of which are at the time that it returns. Bytes leave after all
    /// else, in the order of flows.
    pub(crate) fn take(&mut self, events: &mut Vec<Event>) -> Option<u64> {
        let Self { flows, queue, .. } = self;
        loop {
            let now = queue.take(events)?;
            events.retain(|event| match event {
                Event::Left(flow) => flows.has_left(now, *flow as usize, queue),
                _ => true,
            });
            if !events.is_empty() {
                events.sort_unstable_by_key(|event| match event {
                    Event::Left(flow) => Some(*flow),
                    _ => None,
                });
                return Some(now);
            }
        }
    }

    /// The number of events for which one stands.
    pub(crate) fn count(&self, event: Event) -> usize {
        match event {
            Event::Arrived(number, _) | Event::Left(number) => {
                self.connections[number as usize].count
            }
            Event::Woken(rank) | Event::Signalled(rank, _) => self.fold.count(rank),
        }
    }

    pub(crate) fn price(&self, a: Rank, b: Rank) -> LinkPrice {
        if self.is_near(a, b) { self.near } else { self.far }
    }

    /// Whether both are ranks of one host.
    fn is_near(&self, a: Rank, b: Rank) -> bool {
        let are_ranks = ![a, b].iter().any(|it| self.aggregators.has(*it));
        are_ranks && self.layout.same_host(a, b)
    }

    /// The level that messages cross. Those to and from an aggregator cross that of its members.
    pub(crate) fn level(&self, from: Rank, to: Rank) -> usize {
        let level = |[a, b]: [Rank; 2]| self.layout.level(a, b) as usize;
        if [from, to].iter().any(|it| self.aggregators.has(*it)) {
            let both = [from, to].map(|it| level(self.aggregators.members(it)));
            return both[0].max(both[1]);
        }
        level([from, to])
    }

    /// Makes the connections by which these ranks send, so that those of a rank lie side by side
    /// in memory. With aggregators some of these would never be used.
    pub(crate) fn connect_all(&mut self, programs: &Programs, ranks: &[Rank]) {
        if self.layout.aggregation().is_some() {
            return;
        }
        for rank in ranks {
            for (lane, ops) in programs.of_ranks[rank.index()].lanes().iter().enumerate() {
                for op in ops {
                    if let Op::Send { to, .. } = op {
                        self.connection(*rank, *to, lane);
                    }
                }
            }
        }
    }

    /// The number of a connection, which is made where there is none.
    pub(crate) fn connection(&mut self, from: Rank, to: Rank, lane: usize) -> usize {
        let asked = (from, to, lane);
        if let Some(known) = self.index.get(&asked) {
            return *known;
        }
        let standing @ (from, to, _) = self.fold.connection(asked);
        if let Some(known) = self.index.get(&standing).copied() {
            self.index.insert(asked, known);
            return known;
        }
        let number = self.flows.flow();
        let goes_out =
            [from, to].iter().all(|it| !self.aggregators.has(*it)) && !self.is_near(from, to);
        let chooses = goes_out && self.routing == Routing::Adaptive;
        self.connections.push(Connection {
            from,
            to: self.fold.rank(to),
            count: self.fold.connections_between(from, to),
            level: self.level(from, to),
            chooses,
            latency_ps: self.price(from, to).latency_ps,
            hops_ps: 0,
            queue: VecDeque::new(),
            piece: 0,
            left: 0,
            backlog: 0,
            is_refused: false,
            arrived: 0,
        });
        self.index.extend([(standing, number), (asked, number)]);
        if !chooses {
            self.choose(number, to);
        }
        number
    }

    /// Sets the way of a connection to a rank, or to another one that stands for it.
    fn choose(&mut self, number: usize, to: Rank) {
        let from = self.connections[number].from;
        let links = self.way(from, to);
        let most = SECOND_PS / self.price(from, to).byte_ps.max(1);
        self.flows.set_way(number, &self.fold.way((from, to), &links), most);
        self.connections[number].hops_ps = self.hops_ps(from, to, &links);
    }

    /// The time in the switches of a way, after the first.
    fn hops_ps(&self, from: Rank, to: Rank, links: &[usize]) -> u64 {
        // The first switch is between two cables, and an aggregator is at the end of one. Each rank
        // has a link of its CPU besides.
        let first = if [from, to].iter().any(|it| self.aggregators.has(*it)) { 1 } else { 2 };
        let ranks = [from, to].iter().filter(|it| !self.aggregators.has(**it)).count();
        links.len().saturating_sub(first + ranks) as u64 * self.job.hop_ps * self.rounds as u64
    }

    /// The links from one rank to another, whose CPUs have their part in each byte between hosts.
    /// None if no way joins them.
    pub(crate) fn way(&mut self, from: Rank, to: Rank) -> Vec<usize> {
        let cpu = |place: Rank, way: usize| self.cpus.get(place.index()).map(|it| it[way]);
        let [out, into] = [cpu(from, 0), cpu(to, 1)];
        let whole = |way: Vec<usize>| out.into_iter().chain(way).chain(into).collect();
        if [from, to].iter().any(|it| self.aggregators.has(*it)) {
            return whole(self.aggregators.links(from, to));
        }
        if self.layout.same_host(from, to) {
            return vec![self.memory[from.index()][0], self.memory[to.index()][1]];
        }
        for pair in self.job.pairs(from, to) {
            if let Some(way) = self.network.way(pair, self.routing, |link| self.flows.load(link)) {
                return whole(way);
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
        connection.backlog += bytes;
        self.levels[connection.level] += bytes * connection.count;
        if connection.piece > 0 {
            connection.queue.push_back(bytes);
            return;
        }
        self.begin(now, number, bytes);
    }

    fn begin(&mut self, now: u64, number: usize, bytes: usize) {
        let Connection { chooses, to, .. } = self.connections[number];
        if chooses {
            self.choose(number, to);
        }
        let connection = &mut self.connections[number];
        connection.cut(bytes, self.rounds);
        // A message of ranks without a way never arrives.
        if self.flows.has_way(number) {
            self.flows.begin(now, number, connection.piece as f64);
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
            Some(bytes) if connection.left == 0 && connection.chooses => {
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
                let piece = connection.piece as f64;
                self.flows.go_on(now, number, piece, &mut self.queue);
            }
            None => {
                connection.piece = 0;
                self.flows.end(now, number);
            }
        }
        self.at(now + takes_ps, Event::Arrived(short(number), piece));
        if is_refused {
            self.at(now, Event::Woken(sender));
        }
    }

    /// Number of links, those within hosts included.
    pub(crate) const fn links(&self) -> usize {
        self.flows.links()
    }

    /// Bytes have arrived. Returns their receiver.
    pub(crate) fn arrived(&mut self, number: usize, bytes: usize) -> Rank {
        self.connections[number].arrived += bytes;
        self.connections[number].to
    }

    /// Takes so many bytes that have arrived from each of these connections, if all have them.
    pub(crate) fn take_from_all(&mut self, numbers: &[usize], bytes: usize) -> bool {
        let are_there = numbers.iter().all(|number| self.connections[*number].arrived >= bytes);
        if are_there {
            numbers.iter().for_each(|number| self.connections[*number].arrived -= bytes);
        }
        are_there
    }

    /// All other ranks can see a signal.
    pub(crate) fn signalled(&mut self, from: Rank, lane: usize) {
        for to in (0..self.layout.size()).map(Rank::at).filter(|to| *to != from) {
            *self.signals.entry((from, to, lane)).or_insert(0) += 1;
        }
    }
}

/// A hash of the three small numbers of a way.
#[derive(Default)]
struct WayHasher(u64);

impl Hasher for WayHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = self.0 << 20 ^ u64::from(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = self.0 << 20 ^ number as u64;
    }

    fn finish(&self) -> u64 {
        mix(self.0)
    }
}

impl Connection {
    /// Begins with the first piece of a message, or of those of several rounds.
    fn cut(&mut self, bytes: usize, rounds: usize) {
        self.piece = bytes.div_ceil(PIECES).max(PIECE_BYTES_MIN * rounds).min(bytes);
        self.left = bytes - self.piece;
    }
}
