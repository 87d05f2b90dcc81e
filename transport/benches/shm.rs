//! Shared memory against hand-written minimal code, alternately in one run:
//! `cargo bench -p ringfold-transport --bench shm`. Two threads stand for two processes, as
//! cache lines travel between them in the same way. Prints medians and first deciles, which a busy
//! machine disturbs less, and their ratio.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says where")]
#![expect(clippy::print_stdout, reason = "its figures are for people")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ringfold_transport::shm::{Config, Shm, SingleCopy};
use ringfold_transport::{Link, Transport};
use ringfold_types::{Lane, Rank};

/// Time for one line of output.
const LINE_TIME: Duration = Duration::from_secs(3);
/// Exchanges of one burst: few enough that some bursts stay undisturbed on a busy machine.
const EXCHANGES: u64 = 100;
/// Bytes of one streamed burst.
const STREAM_BYTES: usize = 4 * 1024 * 1024;
/// Failed tries before a yield.
const SPINS: u32 = 1_000;

/// A flag and eight bytes in one cache line.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    flag: AtomicU64,
    value: AtomicU64,
}

/// One end of a channel that carries eight bytes there and eight bytes back.
trait End: Send {
    fn send(&mut self, value: u64);
    fn recv(&mut self) -> u64;
}

/// Cache lines that are written and polled directly: two each way, used alternately, because one
/// side of an exchange may be a step ahead of the other.
struct Flags<'a> {
    out: &'a [Line; 2],
    into: &'a [Line; 2],
    sent: u64,
    seen: u64,
}

/// The transport.
struct Ours(Shm, Link);

fn spin(mut ready: impl FnMut() -> bool) {
    let mut tries = 0;
    while !ready() {
        tries += 1;
        if tries > SPINS {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

impl End for Flags<'_> {
    fn send(&mut self, value: u64) {
        self.sent += 1;
        let line = &self.out[usize::from(self.sent.is_multiple_of(2))];
        line.value.store(value, Ordering::Relaxed);
        line.flag.store(self.sent, Ordering::Release);
    }

    fn recv(&mut self) -> u64 {
        self.seen += 1;
        let line = &self.into[usize::from(self.seen.is_multiple_of(2))];
        spin(|| line.flag.load(Ordering::Acquire) == self.seen);
        line.value.load(Ordering::Relaxed)
    }
}

impl End for Ours {
    fn send(&mut self, value: u64) {
        let bytes = value.to_le_bytes();
        spin(|| self.0.send(self.1, 7, &bytes).unwrap() == bytes.len());
    }

    fn recv(&mut self) -> u64 {
        let mut value = 0;
        spin(|| {
            let Some(fragment) = self.0.readable(self.1).unwrap() else { return false };
            assert_eq!(fragment.tag, 7);
            value = u64::from_le_bytes(fragment.bytes.try_into().unwrap());
            true
        });
        self.0.consume(self.1, 8);
        value
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Pattern {
    /// One end sends, and the other answers.
    RoundTrip,
    /// Both ends send, then both receive, as in an allreduce of two ranks.
    Exchange,
}

fn burst(end: &mut dyn End, pattern: Pattern, first: bool) -> Duration {
    // The first exchange waits for the other thread to start.
    let mut start = Instant::now();
    for at in 0..=EXCHANGES {
        if at == 1 {
            start = Instant::now();
        }
        if first || pattern == Pattern::Exchange {
            end.send(at);
            assert_eq!(end.recv(), at);
        } else {
            assert_eq!(end.recv(), at);
            end.send(at);
        }
    }
    start.elapsed()
}

fn pair() -> (Shm, Shm) {
    let listen = |rank| {
        Shm::listen(Config { key: [1; 32], rank, lanes: 1, offers: SingleCopy::Never }).unwrap()
    };
    let (one, other) = (listen(Rank(0)), listen(Rank(1)));
    let peers = [(Rank(0), one.address()), (Rank(1), other.address())];
    let deadline = Instant::now() + Duration::from_secs(10);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| one.connect(&peers, deadline).unwrap());
        let other = other.connect(&peers, deadline).unwrap();
        (one.join().unwrap(), other)
    })
}

fn to(rank: u32) -> Link {
    Link { peer: Rank(rank), lane: Lane(0) }
}

fn answer(mut ends: [Box<dyn End + '_>; 2], orders: &Receiver<(usize, Pattern)>) {
    for (end, pattern) in orders {
        burst(&mut *ends[end], pattern, false);
    }
}

/// Eight bytes directly and by the transport, alternately.
fn latency() {
    let lines: [[Line; 2]; 2] = Default::default();
    let flags = |out: usize| Flags { out: &lines[out], into: &lines[1 - out], sent: 0, seen: 0 };
    let (one, other) = pair();
    let mut ends: [Box<dyn End + '_>; 2] = [Box::new(flags(0)), Box::new(Ours(one, to(1)))];
    let others: [Box<dyn End + '_>; 2] = [Box::new(flags(1)), Box::new(Ours(other, to(0)))];
    std::thread::scope(|scope| {
        let (order, orders) = channel();
        scope.spawn(move || answer(others, &orders));
        for (name, pattern) in
            [("8 B round trip", Pattern::RoundTrip), ("8 B exchange", Pattern::Exchange)]
        {
            let mut times = [Vec::new(), Vec::new()];
            let start = Instant::now();
            while start.elapsed() < LINE_TIME {
                for (end, times) in times.iter_mut().enumerate() {
                    order.send((end, pattern)).unwrap();
                    let time = burst(&mut *ends[end], pattern, true);
                    times.push(time.as_secs_f64() * 1e9 / EXCHANGES as f64);
                }
            }
            report(name, "two flags", "ns", times);
        }
    });
}

/// The cost of the transport's own instructions, with every line in the cache of one thread,
/// against that of a flag.
fn overhead() {
    let (mut one, mut other) = pair();
    let line = Line::default();
    let mut times = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while start.elapsed() < LINE_TIME {
        let begin = Instant::now();
        for at in 1..=EXCHANGES {
            line.value.store(black_box(at), Ordering::Relaxed);
            line.flag.store(at, Ordering::SeqCst);
            assert_eq!(black_box(&line).flag.load(Ordering::Acquire), at);
            black_box(line.value.load(Ordering::Relaxed));
        }
        times[0].push(begin.elapsed().as_secs_f64() * 1e9 / EXCHANGES as f64);
        let begin = Instant::now();
        for at in 1..=EXCHANGES {
            let bytes = black_box(at).to_le_bytes();
            assert_eq!(one.send(to(1), 7, &bytes).unwrap(), 8);
            let fragment = other.readable(to(0)).unwrap().unwrap();
            assert_eq!(black_box(fragment.bytes), bytes);
            other.consume(to(0), 8);
        }
        times[1].push(begin.elapsed().as_secs_f64() * 1e9 / EXCHANGES as f64);
    }
    report("8 B in one thread", "a fenced flag", "ns", times);
}

/// Large messages through the ring, read in place, against a copy and a read of as many bytes in
/// one thread.
fn stream() {
    let source = vec![1_u8; STREAM_BYTES];
    let mut target = vec![0_u8; STREAM_BYTES];
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum + u64::from(*byte));
    let (mut one, mut other) = pair();
    std::thread::scope(|scope| {
        let (order, orders) = channel::<()>();
        let source = &source;
        scope.spawn(move || {
            for () in &orders {
                let mut sent = 0;
                while sent < STREAM_BYTES {
                    spin(|| {
                        let accepted = one.send(to(1), 7, &source[sent..]).unwrap();
                        sent += accepted;
                        accepted > 0
                    });
                }
            }
        });
        let mut times = [Vec::new(), Vec::new()];
        let start = Instant::now();
        while start.elapsed() < LINE_TIME {
            let begin = Instant::now();
            for (target, source) in target.chunks_mut(16 * 1024).zip(source.chunks(16 * 1024)) {
                target.copy_from_slice(source);
                assert_eq!(sum(black_box(target)), target.len() as u64);
            }
            times[0].push(begin.elapsed().as_secs_f64() * 1e6);
            order.send(()).unwrap();
            let mut begin = None;
            let mut arrived = 0;
            while arrived < STREAM_BYTES {
                let mut bytes = 0;
                spin(|| {
                    let Some(fragment) = other.readable(to(0)).unwrap() else { return false };
                    begin.get_or_insert_with(Instant::now);
                    assert_eq!(sum(black_box(fragment.bytes)), fragment.bytes.len() as u64);
                    bytes = fragment.bytes.len();
                    true
                });
                other.consume(to(0), bytes);
                arrived += bytes;
            }
            times[1].push(begin.unwrap().elapsed().as_secs_f64() * 1e6);
        }
        report("4 MiB stream", "copy and read, one thread", "us", times);
    });
}

fn report(name: &str, bare: &str, unit: &str, mut times: [Vec<f64>; 2]) {
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let at = |end: usize, share: usize| times[end][times[end].len() / share];
    let line = |share| {
        let (bare, ours) = (at(0, share), at(1, share));
        format!("{bare:8.1} / {ours:8.1} {unit} = {:.2}", ours / bare)
    };
    println!("{name:18} {bare} / shm: median {}, first decile {}", line(2), line(10));
}

fn main() {
    overhead();
    latency();
    stream();
}
