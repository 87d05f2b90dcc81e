//! `ringfold tune --machine`: measures the prices of links and of combining, for `RINGFOLD_PRICES`.
//!
//! Two ranks measure each class of links that the job has, in a group of their own, while the
//! others wait. The median of several rounds counts.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringfold::config::{Profile, profile};
use ringfold::{Buffers, Communicator, Config, Layout, UniqueId};
use ringfold_launcher::Progress;
use ringfold_reduce::{Form, Kernel, Operand};
use ringfold_topology::Aggregation;
use ringfold_topology::discover::{Cpus, locality};
use ringfold_topology::prices::{LinkClass, LinkPrice, Locality, Origin};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::gather::all_gather;
use crate::new_file::NewFile;
use crate::units;

/// Number of rounds; the median counts.
const ROUNDS: usize = 7;

/// Round trips of a short message in one round.
const TRIPS: u32 = 100;

/// Messages that one rank sends in a row, before the other answers.
const BURST: u32 = 512;

/// Bytes of a short message. A cache line has room for it.
const SHORT: usize = 8;

/// Bytes of a long message: the first, to learn the rate, and the most.
const LONG: [usize; 2] = [256 << 10, 32 << 20];

/// The time that a long message should take.
const LONG_TIME: Duration = Duration::from_millis(100);

/// Bytes of the sums that are combined. They fit the cache.
const COMBINED: usize = 64 << 10;

/// How often they are combined in one round.
const COMBININGS: u32 = 500;

/// Measures, and writes the profile on rank 0. Prices that the file has of other classes stay.
/// Returns the text to print. Every rank calls this.
pub(crate) fn measure(path: &str) -> anyhow::Result<String> {
    let config = Config::from_env()?;
    let mut comm = Communicator::init_with(&config)?;
    ensure!(comm.size() > 1, "tune needs several ranks, as in: ringrun -n 2 ringfold tune");
    let is_first = comm.rank() == Rank(0);
    let mut known = match is_first && Path::new(path).exists() {
        true => profile(path)?,
        false => Profile::default(),
    };
    let file = is_first.then(|| NewFile::create("--output", path)).transpose()?;
    let Locality { socket, cache } = locality(Path::new("/"), &Cpus::allowed());
    let localities = all_gather(&mut comm, &(socket, cache))?.into_iter();
    let localities: Vec<Locality> =
        localities.map(|(socket, cache)| Locality { socket, cache }).collect();
    let mut text = String::new();
    let mut progress = Progress::new(is_first);
    let pairs = pairs(comm.layout(), &localities);
    for (number, (class, pair)) in (1..).zip(&pairs) {
        let (class, pair) = (*class, *pair);
        progress.show(|| format!("link {number} of {}: {class}", pairs.len()));
        let price = price_of(&mut comm, &config, class, pair)?;
        known.set_link(class, price);
        let LinkPrice { latency_ps, message_ps, byte_ps, .. } = price;
        let [latency, message] = [latency_ps, message_ps].map(units::time);
        let rate = rate(class, byte_ps);
        text += &format!(
            "{class}: latency {latency}, message {message}, {rate} (ranks {} and {})\n",
            pair[0], pair[1]
        );
    }
    let slowest = all_gather(&mut comm, &combining())?.into_iter().max().unwrap_or(0);
    known.set_combining(slowest);
    comm.leave()?;
    let Some(file) = file else { return Ok(String::new()) };
    file.finish(&known.to_string())?;
    let combining = units::memory_rate(slowest);
    Ok(format!("{text}combining: {combining}\nRINGFOLD_PRICES={path} on rank 0 uses them\n"))
}

/// The classes of links of a job, each with the first two ranks between which it is.
fn pairs(layout: &Layout, localities: &[Locality]) -> Vec<(LinkClass, [Rank; 2])> {
    let mut pairs: Vec<(LinkClass, [Rank; 2])> = Vec::new();
    let mut add = |class, pair| {
        if pairs.iter().all(|(known, _)| *known != class) {
            pairs.push((class, pair));
        }
    };
    for host in (0..).take(layout.hosts()) {
        let ranks = layout.ranks_on(host);
        for (at, rank) in ranks.iter().enumerate() {
            for peer in &ranks[at + 1..] {
                let class = Locality::class(&[localities[rank.index()], localities[peer.index()]]);
                add(class, [*rank, *peer]);
            }
        }
    }
    if let [first, second, ..] = layout.hosts_in_order()[..] {
        let pair = [first, second].map(|host| layout.ranks_on(host)[0]);
        add(layout.links_between(), pair);
    }
    pairs
}

/// The price of a class by the measurement of a pair. All ranks of `comm` call it.
fn price_of(
    comm: &mut Communicator,
    config: &Config,
    class: LinkClass,
    pair: [Rank; 2],
) -> anyhow::Result<LinkPrice> {
    let mut config = config.clone();
    config.prices_file = None;
    // The default route may lead elsewhere.
    if let (None, Some(choice)) = (&config.socket_ifname, comm.interface()) {
        config.socket_ifname = Some(format!("={}", choice.interface));
    }
    let own = comm.rank();
    let id = (own == pair[0]).then(|| UniqueId::new(&config)).transpose()?;
    let text = id.as_ref().map_or_else(String::new, ToString::to_string);
    let ids = all_gather(comm, &text)?;
    let mut measured = None;
    if let Some(place) = pair.iter().position(|rank| *rank == own) {
        let id = match id {
            Some(id) => id,
            None => ids[pair[0].index()].parse()?,
        };
        let group = Communicator::init_with_id(&config, &id, Rank::at(place), 2)?;
        measured = Some(Pair { group, memory: vec![0; LONG[1]] }.measure()?);
    }
    let all = all_gather(comm, &measured)?;
    let times = all[pair[0].index()];
    let times = times.with_context(|| format!("rank {} measured nothing", pair[0]))?;
    Ok(price(class, times))
}

/// The price of a class with these times of latency, a message and a byte. CPUs do all the work of
/// a message, so its CPU work grows with its time. So does that of a byte within hosts. Between
/// hosts the time of a byte is the network's, and its CPU work grows as that of a message.
fn price(class: LinkClass, [latency_ps, message_ps, byte_ps]: [u64; 3]) -> LinkPrice {
    let usual = LinkPrice::of(class);
    let grown = |work: u64, to: u64, from: u64| work.saturating_mul(to) / from;
    let [of_message, of_byte] = usual.work_ps;
    let [to, from] = match class.is_between_hosts() {
        true => [message_ps, usual.message_ps],
        false => [byte_ps, usual.byte_ps],
    };
    let work_ps = [grown(of_message, message_ps, usual.message_ps), grown(of_byte, to, from)];
    LinkPrice { latency_ps, message_ps, byte_ps, work_ps }
}

/// Two ranks that measure the link between them.
struct Pair {
    group: Communicator,
    memory: Vec<u8>,
}

impl Pair {
    /// Returns latency, and times of a message and of a byte, in picoseconds, as this rank has
    /// measured them. Those of the first rank count.
    fn measure(mut self) -> anyhow::Result<[u64; 3]> {
        self.group.set_algorithms("broadcast:binomial".parse()?);
        let trip = self.median(|pair| {
            let start = Instant::now();
            for _ in 0..TRIPS {
                pair.send(0, SHORT)?;
                pair.send(1, SHORT)?;
            }
            Ok(picoseconds(start.elapsed()) / u64::from(TRIPS))
        })?;
        let burst = self.median(|pair| {
            let start = Instant::now();
            for _ in 0..BURST {
                pair.send(0, SHORT)?;
            }
            pair.send(1, SHORT)?;
            Ok(picoseconds(start.elapsed()))
        })?;
        // A rank that waits for half a round trip may go to sleep on a busy machine. In an exchange
        // both ranks are at work.
        self.group.set_algorithms("allgather:bruck".parse()?);
        let exchange = self.median(|pair| {
            let start = Instant::now();
            for _ in 0..TRIPS {
                pair.group.all_gather(&mut pair.memory[..2 * SHORT])?;
            }
            Ok(picoseconds(start.elapsed()) / u64::from(TRIPS))
        })?;
        // Long messages may use several connections.
        self.group.set_algorithms("broadcast:chain".parse()?);
        let first = self.median(|pair| pair.long(LONG[0]))?;
        let fitting = picoseconds(LONG_TIME) / (first / LONG[0] as u64).max(1);
        let mut fitting = [fitting.clamp(LONG[0] as u64, LONG[1] as u64)];
        self.group.broadcast(&mut fitting, Rank(0))?;
        let bytes = usize::try_from(fitting[0])?.min(LONG[1]);
        let long = self.median(|pair| pair.long(bytes))?;
        self.group.leave()?;
        Ok([
            exchange.min(trip / 2),
            burst.saturating_sub(trip) / u64::from(BURST - 1),
            long.saturating_sub(trip) / bytes as u64,
        ])
    }

    /// The time of a message of `bytes` bytes and of the answer, in picoseconds.
    fn long(&mut self, bytes: usize) -> anyhow::Result<u64> {
        let start = Instant::now();
        self.send(0, bytes)?;
        self.send(1, SHORT)?;
        Ok(picoseconds(start.elapsed()))
    }

    /// Sends bytes from the rank at `root` to the other one, which receives them.
    fn send(&mut self, root: usize, bytes: usize) -> anyhow::Result<()> {
        let call = Call {
            collective: Collective::Broadcast,
            count: bytes,
            data_type: DataType::U8,
            op: ReduceOp::Sum,
            root: Rank::at(root),
            wire: Wire::default(),
        };
        self.group.perform(&call, Buffers::InPlace(&mut self.memory[..bytes]))?;
        Ok(())
    }

    /// The median of several rounds, after one that does not count.
    fn median(
        &mut self,
        mut round: impl FnMut(&mut Self) -> anyhow::Result<u64>,
    ) -> anyhow::Result<u64> {
        round(self)?;
        let mut times = [0; ROUNDS];
        for time in &mut times {
            self.group.barrier()?;
            *time = round(self)?;
        }
        times.sort_unstable();
        Ok(times[ROUNDS / 2])
    }
}

/// The time to combine one byte of accumulators in cache, in picoseconds.
fn combining() -> u64 {
    let (mut sums, arrived) = (vec![0; COMBINED], vec![0; COMBINED]);
    let kernel = Kernel::new(DataType::F32, ReduceOp::Sum, 2);
    let mut times = [0; ROUNDS];
    for time in &mut times {
        let start = Instant::now();
        for _ in 0..COMBININGS {
            let operands = [Operand::Destination, Operand::accumulators(&arrived)];
            kernel.combine(&mut sums, Form::Accumulator, &operands);
        }
        *time = picoseconds(start.elapsed()) / (u64::from(COMBININGS) * COMBINED as u64);
    }
    times.sort_unstable();
    times[ROUNDS / 2]
}

fn picoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() * 1000).unwrap_or(u64::MAX)
}

/// The rate of links of a class, in bits for networks and in bytes for memory.
fn rate(class: LinkClass, byte_ps: u64) -> String {
    match class.is_between_hosts() {
        true => units::network_rate(byte_ps),
        false => units::memory_rate(byte_ps),
    }
}

/// Returns lines with the prices of the links of `layout`, and the origin of each. The user has
/// asked about the classes for which `is_supposed` holds.
pub(crate) fn table(layout: &Layout, is_supposed: impl Fn(LinkClass) -> bool) -> String {
    let prices = layout.prices();
    let within = (layout.ranks_per_host().1 > 1).then(|| prices.within());
    let between = (layout.hosts() > 1).then(|| layout.links_between());
    let mut text =
        format!("  {:<20} {:>12} {:>12} {:>12}   from\n", "prices", "latency", "message", "rate");
    for class in within.into_iter().chain(between) {
        let LinkPrice { latency_ps, message_ps, byte_ps, .. } = prices.link(class);
        let [latency, message] = [latency_ps, message_ps].map(units::time);
        let origin = match prices.origin(class) {
            Origin::Profile => Origin::Profile.to_string(),
            _ if is_supposed(class) => "--link".to_owned(),
            origin => origin.to_string(),
        };
        let rate = rate(class, byte_ps);
        text += &format!("  {class:<20} {latency:>12} {message:>12} {rate:>12}   {origin}\n");
    }
    if let Some(Aggregation { latency_ps, byte_ps, .. }) = layout.aggregation() {
        let latency = units::time(*latency_ps);
        let rate = if *byte_ps == 0 { "-".to_owned() } else { units::network_rate(*byte_ps) };
        let origin = match byte_ps {
            0 => "each has the rate of all its children",
            _ => "the links of the busiest, for all its children",
        };
        text +=
            &format!("  {:<20} {latency:>12} {:>12} {rate:>12}   {origin}\n", "aggregators", "");
    }
    let (byte_ps, origin) = prices.combining_ps();
    let rate = units::memory_rate(byte_ps);
    text += &format!("  {:<20} {:>12} {:>12} {rate:>12}   {origin}\n", "combining", "", "");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_grows_with_the_times_of_cpus() {
        let slow = price(LinkClass::Cache, [1_000_000, 200_000, 300]);
        assert_eq!((slow.message_ps, slow.work_ps), (200_000, [180_000, 300]));
        let usual = LinkPrice::of(LinkClass::Tcp);
        let times = [usual.latency_ps, 2 * usual.message_ps, 200 * usual.byte_ps];
        let doubled = usual.work_ps.map(|work| 2 * work);
        assert_eq!(price(LinkClass::Tcp, times).work_ps, doubled, "whatever the network's rate");
    }

    #[test]
    fn each_class_is_measured_once() {
        let locality = |socket, cache| Locality { socket: Some(socket), cache: Some(cache) };
        let localities = [
            locality(0, 0),
            locality(0, 0),
            locality(0, 1),
            locality(1, 2),
            locality(0, 0),
            locality(0, 0),
        ];
        let found = pairs(&Layout::hosts_of(4, 6), &localities);
        let ranks = |a, b| [Rank(a), Rank(b)];
        assert_eq!(
            found,
            [
                (LinkClass::Cache, ranks(0, 1)),
                (LinkClass::Socket, ranks(0, 2)),
                (LinkClass::Sockets, ranks(0, 3)),
                (LinkClass::Tcp, ranks(0, 4)),
            ]
        );
        assert_eq!(pairs(&Layout::apart(3), &localities[..3]), [(LinkClass::Tcp, ranks(0, 1))]);
    }
}
