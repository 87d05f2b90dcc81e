//! A TCP connection whose packets leave and enter by one interface at either end.
//!
//! ```text
//! low end              high end
//! 32 bytes      ->              the low end's token, known to ranks of the job only
//!               <-     32 bytes the high end's token
//!
//! then, for a probe, several times:
//! 8 bytes       ->
//!               <-     8 bytes
//!
//! or, for a flow:
//! many bytes    ->              for a while
//! end of stream ->
//!               <-     1 byte
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use std::{fs, iter};

use ringfold_types::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::nic::Nic;

/// The longest wait for an answer.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// The longest time from the sender's end of a flow to the receiver's, as buffers drain.
const DRAIN: Duration = Duration::from_secs(10);
/// Duration of a flow at its sender.
const FLOW: Duration = Duration::from_millis(300);
/// Duration of a flow's start, which burst allowances may speed up, and which does not count.
const WARM_UP: Duration = Duration::from_millis(60);
/// The shortest time that the flows of a step must run together.
const COUNTED_MIN: Duration = Duration::from_millis(60);
/// The most bytes of a flow.
const FLOW_BYTES_MAX: usize = 16 << 30;
/// Bytes of a read or write.
const PIECE: usize = 128 << 10;
/// Round trips of a probe.
const TRIPS: usize = 16;
/// CPU time is the limit of a flow if its thread ran, or waited for a CPU, for more than this part.
const CPU_SHARE_MAX: f64 = 0.8;

/// Connections that the kernel queues while no probe accepts any.
const BACKLOG: i32 = 128;
/// The most unproven connections of a listener. A further one replaces the oldest.
const UNPROVEN_MAX: usize = limits::RELAY_HANDSHAKES_MAX;

/// Secrets that identify a probe, one for each end.
pub(super) struct Tokens {
    pub(super) low: [u8; 32],
    pub(super) high: [u8; 32],
}

/// One end's result of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Bytes per second, as received; 0 at the sender.
    pub(super) rate: f64,
    /// Whether CPU time was the limit.
    pub(super) is_starved: bool,
}

/// Accepts connections through one interface.
pub(super) struct Listener(TcpListener);

impl Listener {
    /// Listens, and returns the address.
    pub(super) fn open(nic: &Nic) -> io::Result<(Self, SocketAddr)> {
        let socket = bound(nic)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok((Self(listener), address))
    }

    /// Accepts the connection of the peer with the right token. Serves unauthenticated peers beside
    /// it, and drops those with another token.
    pub(super) fn accept(&self, tokens: &Tokens) -> io::Result<TcpStream> {
        let until = Instant::now() + ANSWER;
        let mut unproven = VecDeque::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let streams = unproven.iter().map(|it: &Unproven| it.stream.as_fd());
            let all = iter::once(self.0.as_fd()).chain(streams);
            let mut polled: Vec<_> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut polled, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    if unproven.len() == UNPROVEN_MAX {
                        unproven.pop_front();
                    }
                    unproven.push_back(Unproven { stream, token: [0; 32], arrived: 0 });
                }
                Err(e) if is_of_one_connection(&e) => {}
                Err(e) => return Err(e),
            }
            let mut waiting = VecDeque::new();
            for mut peer in unproven {
                match peer.has_proven(&tokens.low) {
                    Ok(true) => {
                        let mut stream = peer.stream;
                        stream.set_nonblocking(false)?;
                        prepare(&stream)?;
                        stream.write_all(&tokens.high)?;
                        return Ok(stream);
                    }
                    Ok(false) => waiting.push_back(peer),
                    Err(_) => {} // it is no peer of this probe
                }
            }
            unproven = waiting;
        }
    }
}

/// A connection whose peer has not sent its whole token.
struct Unproven {
    stream: TcpStream,
    token: [u8; 32],
    /// The bytes of the token that have arrived.
    arrived: usize,
}

impl Unproven {
    /// Reads without waiting. Returns whether the whole token has arrived.
    ///
    /// # Errors
    /// The connection has ended, or the token is another one.
    fn has_proven(&mut self, token: &[u8; 32]) -> io::Result<bool> {
        while self.arrived < token.len() {
            match self.stream.read(&mut self.token[self.arrived..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.arrived += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.token == *token { Ok(true) } else { Err(ErrorKind::PermissionDenied.into()) }
    }
}

/// Whether an error of `accept` leaves the listener as it was.
fn is_of_one_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

/// Connects from an interface to an address of the peer.
pub(super) fn dial(nic: &Nic, to: SocketAddr, tokens: &Tokens) -> io::Result<TcpStream> {
    let socket = bound(nic)?;
    socket.connect_timeout(&to.into(), ANSWER)?;
    let mut stream = TcpStream::from(socket);
    prepare(&stream)?;
    stream.write_all(&tokens.low)?;
    let mut token = [0; 32];
    stream.read_exact(&mut token)?;
    if token != tokens.high {
        return Err(io::Error::other("another program answered"));
    }
    Ok(stream)
}

/// Returns a socket that is bound to the interface, independent of routes.
fn bound(nic: &Nic) -> io::Result<Socket> {
    let domain = if nic.address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind_device(Some(nic.interface.as_bytes()))?;
    socket.bind(&SocketAddr::new(nic.address, 0).into())?;
    Ok(socket)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(DRAIN))
}

/// Measures the one-way latency of 8 bytes: half of the median round trip.
pub(super) fn trips(stream: &mut TcpStream, begins: bool) -> io::Result<Duration> {
    let mut times = [Duration::ZERO; TRIPS];
    for time in &mut times {
        let (start, mut bytes) = (Instant::now(), [0; 8]);
        if begins {
            stream.write_all(&bytes)?;
            stream.read_exact(&mut bytes)?;
        } else {
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)?;
        }
        *time = start.elapsed();
    }
    times.sort_unstable();
    Ok(times[TRIPS / 2] / 2)
}

/// One end's record of a flow.
pub(super) struct Half {
    /// The time and number of received bytes; empty at the sender.
    arrivals: Vec<(Instant, usize)>,
    is_starved: bool,
}

/// Sends a flow, and waits until the peer has received all bytes.
pub(super) fn send(stream: &mut TcpStream) -> io::Result<Half> {
    let (start, before) = (Instant::now(), Cpu::used());
    let piece = vec![0; PIECE];
    let mut sent = 0;
    while start.elapsed() < FLOW && sent < FLOW_BYTES_MAX {
        sent += stream.write(&piece)?;
    }
    let is_starved = before.is_starved(start.elapsed());
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(DRAIN))?;
    stream.read_exact(&mut [0; 1])?;
    Ok(Half { arrivals: Vec::new(), is_starved })
}

/// Receives a flow.
pub(super) fn receive(stream: &mut TcpStream) -> io::Result<Half> {
    stream.set_read_timeout(Some(DRAIN))?;
    let mut piece = vec![0; PIECE];
    let mut arrivals = Vec::new();
    let (begun, before) = (Instant::now(), Cpu::used());
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            break;
        }
        arrivals.push((Instant::now(), read));
        if begun.elapsed() > DRAIN {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    let is_starved = before.is_starved(begun.elapsed());
    stream.write_all(&[0])?;
    Ok(Half { arrivals, is_starved })
}

/// Returns the rate of each flow in the time when all of them ran. It is `None` for a flow that
/// broke, and for all flows if they did not run together.
pub(super) fn flows(halves: &[io::Result<Half>]) -> Vec<Option<Flow>> {
    let arrivals = halves.iter().flatten().map(|half| &half.arrivals);
    let received: Vec<_> = arrivals.filter(|arrivals| !arrivals.is_empty()).collect();
    let start = received.iter().map(|arrivals| arrivals[0].0).max().map(|it| it + WARM_UP);
    let end = received.iter().map(|arrivals| arrivals[arrivals.len() - 1].0).min();
    let took = start.zip(end).map(|(start, end)| end.saturating_duration_since(start));
    let flow = |half: &io::Result<Half>| {
        let Half { arrivals, is_starved } = half.as_ref().ok()?;
        let is_starved = *is_starved;
        let (Some(start), Some(end), Some(took)) = (start, end, took) else {
            return Some(Flow { rate: 0.0, is_starved });
        };
        let counts = |(at, _): &&(Instant, usize)| *at > start && *at <= end;
        let bytes: usize = arrivals.iter().filter(counts).map(|(_, bytes)| bytes).sum();
        let rate = bytes as f64 / took.as_secs_f64();
        (took >= COUNTED_MIN).then_some(Flow { rate, is_starved })
    };
    halves.iter().map(flow).collect()
}

/// Time that this thread ran or waited for a CPU, as the kernel reports it.
struct Cpu(Duration);

impl Cpu {
    fn used() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanos = text.split_whitespace().take(2).filter_map(|word| word.parse::<u64>().ok());
        Self(Duration::from_nanos(nanos.sum()))
    }

    fn is_starved(&self, of: Duration) -> bool {
        let used = Self::used().0.saturating_sub(self.0);
        used.as_secs_f64() > CPU_SHARE_MAX * of.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener at the loopback interface finds its peer among mute connections, broken ones, and
    /// others with a part of a token or another one.
    #[test]
    fn a_peer_does_not_wait_for_others() {
        let nic = Nic {
            interface: "lo".into(),
            device: String::new(),
            number: 0,
            address: [127, 0, 0, 1].into(),
            prefix: 8,
            guid: 0,
            mac: 0,
            gbps: 0,
        };
        let (listener, at) = Listener::open(&nic).unwrap();
        let tokens = || Tokens { low: [1; 32], high: [2; 32] };
        // Fewer than the listener keeps, and as many as take longer than its time one by one.
        let others: Vec<_> = (0..UNPROVEN_MAX - 1)
            .map(|number| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(&[3; 32][..[0, 5, 32][number % 3]]).unwrap();
                stream
            })
            .collect();
        drop(TcpStream::connect(at).unwrap());
        let peer = std::thread::spawn(move || dial(&nic, at, &tokens()));
        let mut accepted = listener.accept(&tokens()).unwrap();
        let mut dialed = peer.join().unwrap().unwrap();
        accepted.write_all(b"x").unwrap();
        let mut byte = [0];
        dialed.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        drop(others);
    }

    /// A flow of 1 MB/s between two times in milliseconds.
    fn half(from: u64, to: u64, start: Instant) -> io::Result<Half> {
        let at = |millis| start + Duration::from_millis(millis);
        let arrivals = (from..=to).map(|millis| (at(millis), 1000)).collect();
        Ok(Half { arrivals, is_starved: false })
    }

    #[test]
    fn only_time_in_which_all_flows_ran_counts() {
        let start = Instant::now();
        let rates = |halves: &[io::Result<Half>]| -> Vec<Option<f64>> {
            flows(halves).iter().map(|flow| flow.map(|flow| flow.rate.round())).collect()
        };
        let both = [half(0, 300, start), half(100, 400, start)];
        assert_eq!(rates(&both), [Some(1e6); 2]);
        // Bytes before the other flow began or after it ended do not count.
        let burst = Ok(Half { arrivals: vec![(start, 1 << 30)], is_starved: false });
        let mut halves = [burst, half(100, 400, start)];
        halves[0].as_mut().unwrap().arrivals.extend(half(300, 301, start).unwrap().arrivals);
        assert!(rates(&halves)[0].unwrap() < 1e5);
        assert_eq!(rates(&[half(0, 200, start), half(200, 400, start)]), [None; 2]);
        assert_eq!(rates(&[half(0, 300, start), Err(ErrorKind::TimedOut.into())])[1], None);
        let sent = Ok(Half { arrivals: Vec::new(), is_starved: true });
        assert_eq!(flows(&[sent]), [Some(Flow { rate: 0.0, is_starved: true })]);
    }
}
