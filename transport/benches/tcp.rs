//! A link over loopback against a bare socket with the same work, alternately in one run:
//! `cargo bench -p ringfold-transport --bench tcp`. Each line takes short bursts for some seconds.
//! Prints medians and first deciles, which a busy machine disturbs less, and their ratio.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says where")]
#![expect(clippy::print_stdout, reason = "its figures are for people")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ringfold_transport::tcp::{Config, Listening, Liveness, Tcp};
use ringfold_transport::{Link, Transport};
use ringfold_types::{Lane, Rank};

/// Time for one line of output.
const LINE_TIME: Duration = Duration::from_secs(4);
/// Round trips of one burst.
const PINGS: usize = 20;
/// Bytes of one burst.
const STREAM_BYTES: usize = 16 * 1024 * 1024;
/// Failed tries before a yield.
const SPINS: u32 = 1_000;
const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// One end of a connection between two threads.
trait End: Send {
    fn send(&mut self, bytes: &[u8]);
    fn recv(&mut self, bytes: &mut [u8]);
    /// Reads `bytes` bytes in place and discards them.
    fn look(&mut self, bytes: usize);
}

/// A link of the transport that spins, like a rank with a core of its own.
struct Ours(Tcp, Link, Spinner);

/// A bare socket that blocks.
struct Blocking(TcpStream, Vec<u8>);

/// A bare socket that is polled.
struct Spinning(TcpStream, Spinner);

/// Failed tries in a row.
#[derive(Default)]
struct Spinner(u32);

impl Spinner {
    fn count(&mut self, moved: usize) {
        self.0 = if moved > 0 { 0 } else { self.0 + 1 };
        if self.0 > SPINS {
            std::thread::yield_now();
        }
    }
}

impl End for Ours {
    fn send(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            let count = self.0.send(self.1, 7, &bytes[sent..]).unwrap();
            sent += count;
            if sent < bytes.len() {
                self.0.poll().unwrap();
                self.2.count(count);
            }
        }
    }

    fn recv(&mut self, bytes: &mut [u8]) {
        let mut got = 0;
        while got < bytes.len() {
            let count = self
                .0
                .recv(self.1, 7, &mut bytes[got..])
                .unwrap()
                .map_or(0, |received| received.bytes);
            got += count;
            if count == 0 {
                self.0.poll().unwrap();
            }
            self.2.count(count);
        }
    }

    fn look(&mut self, bytes: usize) {
        let mut got = 0;
        while got < bytes {
            let count = self.0.readable(self.1).unwrap().map_or(0, |it| it.bytes.len());
            self.0.consume(self.1, count);
            got += count;
            if count == 0 {
                self.0.poll().unwrap();
            }
            self.2.count(count);
        }
    }
}

impl End for Blocking {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn recv(&mut self, bytes: &mut [u8]) {
        self.0.read_exact(bytes).unwrap();
    }

    fn look(&mut self, bytes: usize) {
        let mut got = 0;
        while got < bytes {
            got += self.0.read(&mut self.1).unwrap();
        }
    }
}

impl End for Spinning {
    fn send(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            let count = again(self.0.write(&bytes[sent..]));
            sent += count;
            self.1.count(count);
        }
    }

    fn recv(&mut self, bytes: &mut [u8]) {
        let mut got = 0;
        while got < bytes.len() {
            let count = again(self.0.read(&mut bytes[got..]));
            got += count;
            self.1.count(count);
        }
    }

    fn look(&mut self, _: usize) {
        unreachable!("not measured");
    }
}

fn again(result: std::io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        result => result.unwrap(),
    }
}

fn ours() -> [Box<dyn End>; 2] {
    let listen = |rank| -> Listening {
        let bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let (key, rank, liveness) = ([1; 32], Rank(rank), Liveness::default());
        Tcp::listen(Config { key, rank, size: 2, lanes: 1, bind, ports: None, liveness }).unwrap()
    };
    let (zero, one) = (listen(0), listen(1));
    let peers = [(Rank(0), zero.addresses().to_vec()), (Rank(1), one.addresses().to_vec())];
    let link = |peer| Link { peer: Rank(peer), lane: Lane(0) };
    let (mut zero, mut one) = (zero.connect(peers.clone()).unwrap(), one.connect(peers).unwrap());
    // The connection opens on first use.
    zero.send(link(1), 7, &[0; 16]).unwrap();
    one.send(link(0), 7, &[0; 16]).unwrap();
    let mut left = 2;
    while left > 0 {
        for (end, link) in [(&mut zero, link(1)), (&mut one, link(0))] {
            end.poll().unwrap();
            left -= usize::from(end.recv(link, 7, &mut [0; 16]).unwrap().is_some());
        }
    }
    [(zero, link(1)), (one, link(0))]
        .map(|(end, link)| Box::new(Ours(end, link, Spinner::default())) as Box<dyn End>)
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

fn blocking() -> [Box<dyn End>; 2] {
    let (near, far) = sockets();
    [near, far].map(|it| Box::new(Blocking(it, vec![0; 256 * 1024])) as Box<dyn End>)
}

fn spinning() -> [Box<dyn End>; 2] {
    let (near, far) = sockets();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    [near, far].map(|it| Box::new(Spinning(it, Spinner::default())) as Box<dyn End>)
}

/// Both ends in one thread: the cost of sends and receives without waits, which is measurable even
/// on a busy machine.
struct Alone([Box<dyn End>; 2]);

impl Alone {
    /// Time of one round trip.
    fn ping(&mut self, bytes: usize) -> Duration {
        let [near, far] = &mut self.0;
        let mut buffer = vec![1; bytes];
        let start = Instant::now();
        for _ in 0..PINGS {
            near.send(&buffer);
            far.recv(&mut buffer);
            far.send(&buffer);
            near.recv(&mut buffer);
        }
        start.elapsed() / u32::try_from(PINGS).unwrap()
    }

    /// Time of a stream of messages that fit the socket's buffer.
    fn stream(&mut self, message_bytes: usize) -> Duration {
        let [near, far] = &mut self.0;
        let mut buffer = vec![1; message_bytes];
        let start = Instant::now();
        for _ in 0..STREAM_BYTES / message_bytes {
            near.send(&buffer);
            far.recv(&mut buffer);
        }
        start.elapsed()
    }
}

#[derive(Clone, Copy)]
enum Job {
    /// Echo this many messages of this many bytes.
    Echo(usize, usize),
    /// Receive the stream in messages.
    Recv,
    /// Read the stream in place.
    Look,
}

/// A pair of ends; the far one has a thread of its own.
struct Pair {
    near: Box<dyn End>,
    jobs: Sender<Job>,
    done: Receiver<()>,
}

impl Pair {
    fn new([near, mut far]: [Box<dyn End>; 2]) -> Self {
        let (jobs, todo) = channel();
        let (finished, done) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; MESSAGE_BYTES];
            for job in todo {
                match job {
                    Job::Echo(times, bytes) => {
                        for _ in 0..times {
                            far.recv(&mut buffer[..bytes]);
                            far.send(&buffer[..bytes]);
                        }
                    }
                    Job::Recv => {
                        (0..STREAM_BYTES / MESSAGE_BYTES).for_each(|_| far.recv(&mut buffer))
                    }
                    Job::Look => far.look(STREAM_BYTES),
                }
                finished.send(()).unwrap();
            }
        });
        Self { near, jobs, done }
    }

    /// Time of one round trip.
    fn ping(&mut self, bytes: usize) -> Duration {
        self.jobs.send(Job::Echo(PINGS, bytes)).unwrap();
        let mut buffer = vec![1; bytes];
        let start = Instant::now();
        for _ in 0..PINGS {
            self.near.send(&buffer);
            self.near.recv(&mut buffer);
        }
        let time = start.elapsed();
        self.done.recv().unwrap();
        time / u32::try_from(PINGS).unwrap()
    }

    /// Time of the stream.
    fn stream(&mut self, job: Job) -> Duration {
        let buffer = vec![1; MESSAGE_BYTES];
        self.jobs.send(job).unwrap();
        let start = Instant::now();
        for _ in 0..STREAM_BYTES / MESSAGE_BYTES {
            self.near.send(&buffer);
        }
        self.done.recv().unwrap();
        start.elapsed()
    }
}

/// Runs both alternately and prints one line.
fn compare<T>(
    what: &str,
    pairs: (&mut T, &mut T),
    run: impl Fn(&mut T) -> Duration,
    show: impl Fn(f64) -> String,
) {
    let (ours, bare) = pairs;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while start.elapsed() < LINE_TIME || a.len() < 10 {
        a.push(run(ours).as_secs_f64());
        b.push(run(bare).as_secs_f64());
    }
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let (middle, decile) = (a.len() / 2, a.len() / 10);
    println!(
        "{what:<46} median: ours {:>10} bare {:>10}  decile: ours {:>10} bare {:>10} ratio {:.2}",
        show(a[middle]),
        show(b[middle]),
        show(a[decile]),
        show(b[decile]),
        a[decile] / b[decile],
    );
}

fn main() {
    let (mut we, mut they) = (Alone(ours()), Alone(spinning()));
    let (mut ours, mut blocks, mut spins) =
        (Pair::new(ours()), Pair::new(blocking()), Pair::new(spinning()));
    let micros = |seconds: f64| format!("{:.2} us", seconds * 1e6);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = |seconds: f64| format!("{:.2} GB/s", STREAM_BYTES as f64 / seconds / 1e9);
    for bytes in [8, 1024, 16 * 1024] {
        let what = format!("{bytes} B round trip, both ends in one thread");
        compare(&what, (&mut we, &mut they), |it: &mut Alone| it.ping(bytes), micros);
    }
    let what = "64 KiB messages, both ends in one thread";
    compare(what, (&mut we, &mut they), |it: &mut Alone| it.stream(64 * 1024), rate);
    for bytes in [8, 1024, 16 * 1024] {
        let ping = |it: &mut Pair| it.ping(bytes);
        let what = format!("{bytes} B round trip, against a blocking socket");
        compare(&what, (&mut ours, &mut blocks), ping, micros);
        let what = format!("{bytes} B round trip, against a spinning socket");
        compare(&what, (&mut ours, &mut spins), ping, micros);
    }
    let recv = |pair: &mut Pair| pair.stream(Job::Recv);
    compare("4 MiB messages into place, against blocking", (&mut ours, &mut blocks), recv, rate);
    compare("4 MiB messages into place, against spinning", (&mut ours, &mut spins), recv, rate);
    let look = |pair: &mut Pair| pair.stream(Job::Look);
    compare("4 MiB messages lent in place, against blocking", (&mut ours, &mut blocks), look, rate);
}
