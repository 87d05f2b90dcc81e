//! Tests of a link by its two ends: reachability, latency of short messages, and bandwidth.
//!
//! ```text
//! one end                   the other
//! 8 bytes            ->
//!                    <-     the same 8 bytes; repeated
//! a count, and that many bytes ->
//!                    <-     8 bytes: all have arrived; repeated with longer batches
//! a count of 0       ->
//!                    <-     a count, and that many bytes: the other direction
//! ```
//!
//! A flow has one direction: 8 bytes and a piece, repeated. Its receiver answers only the 8 zeros
//! at the end.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::contract::{Link, LinkError, LinkFault, Received, Transport};
use crate::sys::Pages;

/// The measurements of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// One-way latency of 8 bytes: half of the median round trip.
    pub latency: Duration,
    /// Bytes per second from this end to the other.
    pub bytes_per_second: f64,
}

/// The phase of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// No message has arrived.
    Meeting,
    /// Short messages are in progress.
    Short,
    /// All short messages have arrived, and long ones are in progress.
    Long,
}

/// A trial that failed. Its text and its source are those of the reason.
#[derive(Debug)]
pub struct Failed {
    /// The phase in which it failed.
    pub stage: Stage,
    /// The reason.
    pub why: Fault,
}

/// The reason why a trial failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The transport reported an error.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Nothing moved within the timeout.
    #[error("nothing arrived for {} s", TIMEOUT.as_secs())]
    Late,
    /// The received bytes differ from the sent ones.
    #[error("the received bytes differ from the sent ones")]
    Wrong,
    /// This process could not wait.
    #[error("cannot wait")]
    Wait(#[from] io::Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.why, f)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.why.source()
    }
}

impl Failed {
    /// Whether this end knows only that the other one gave up.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        matches!(&self.why, Fault::Link(LinkError { fault: LinkFault::Closed, .. }))
    }
}

/// Time without progress after which a trial fails, unless it only asks for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for each answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Duration of a flow at its sender.
const FLOW: Duration = Duration::from_millis(300);
/// Bytes of a flow's messages, which its sender completes.
const FLOW_PIECE: usize = 128 << 10;
/// The most messages of a flow.
const FLOW_PIECES_MAX: usize = (16 << 30) / FLOW_PIECE;
/// Round trips of short messages.
const TRIPS: usize = 201;
/// Those of a link that need only answer.
const ANSWERS: usize = 3;
/// Bytes of the first batch of long messages.
const BATCH_BYTES: u64 = 1 << 20;
/// Bytes of the longest batch.
const BATCH_BYTES_MAX: u64 = 1 << 30;
/// Growth from one batch to the next.
const GROWTH: u64 = 8;
/// Time that a batch must take for its rate to count.
const WHILE: Duration = Duration::from_millis(25);
/// The tag of all messages of a trial.
const TAG: u32 = u32::from_le_bytes(*b"RFtr");
/// Every byte of long messages.
const PATTERN: u8 = 0x5a;
/// Time to poll before this thread parks, if the other end and the device have CPUs of their own.
const SPIN: Duration = Duration::from_micros(50);
/// Time that this thread parks at a time.
const PARK: Duration = Duration::from_millis(50);

/// Tests `link`. Both ends must call this at about the same time, and exactly one of them with
/// `begins`. Blocks for a fraction of a second, or for some 10 s if nothing arrives. The caller
/// must not use the link for anything else, before or after.
///
/// # Errors
/// The link does not work; the error says in which phase it failed, and why.
pub fn run(transport: &mut dyn Transport, link: Link, begins: bool) -> Result<Figures, Failed> {
    let is_alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    let spin = if is_alone { Duration::ZERO } else { SPIN };
    Endpoint { transport, link, stage: Stage::Meeting, timeout: TIMEOUT, spin }
        .complete(|end| end.figures(begins))
}

/// Tests whether some short messages pass `link`, under the conditions of `run`. Blocks for about
/// a second if nothing arrives.
///
/// # Errors
/// The link does not work.
pub fn answer(transport: &mut dyn Transport, link: Link, begins: bool) -> Result<(), Failed> {
    let spin = Duration::ZERO;
    Endpoint { transport, link, stage: Stage::Meeting, timeout: ANSWER, spin }
        .complete(|end| end.trips(begins, ANSWERS).map(drop))
}

/// Sends a flow over `link` if this end `begins` and receives it otherwise, under the conditions of
/// `run`. The receiver returns the time and the number of bytes of each arrival. The thread parks
/// as soon as nothing moves, so that its CPU time tells whether that is the limit.
///
/// # Errors
/// The flow broke.
pub fn flow(
    transport: &mut dyn Transport,
    link: Link,
    begins: bool,
) -> Result<Vec<(Instant, usize)>, Failed> {
    let spin = Duration::ZERO;
    Endpoint { transport, link, stage: Stage::Meeting, timeout: TIMEOUT, spin }
        .complete(|end| if begins { end.pour() } else { end.catch() })
}

/// Memory of long messages: registered with devices if the transport supports that, as buffers of a
/// communicator are.
enum Memory {
    Devices(Pages),
    Own(Vec<u8>),
}

impl Memory {
    fn new(transport: &mut dyn Transport, bytes: usize) -> Self {
        match transport.registered_memory().map(|by| by.pages(bytes)) {
            Some(Ok(pages)) => Self::Devices(pages),
            // A limit on registered memory does not make the link a bad one.
            Some(Err(_)) | None => Self::Own(vec![0; bytes]),
        }
    }

    fn front(&mut self, bytes: usize) -> &mut [u8] {
        match self {
            Self::Devices(pages) => pages.front_mut(bytes),
            Self::Own(memory) => &mut memory[..bytes],
        }
    }
}

struct Endpoint<'a> {
    transport: &'a mut dyn Transport,
    link: Link,
    stage: Stage,
    timeout: Duration,
    spin: Duration,
}

impl Endpoint<'_> {
    /// Runs a trial, and waits until the transport has sent everything.
    fn complete<T>(
        mut self,
        trial: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Failed> {
        let result = trial(&mut self).and_then(|result| {
            self.until(|transport, _| Ok(transport.is_flushed()))?;
            Ok(result)
        });
        result.map_err(|why| {
            // Long messages may be in flight from memory that is freed by now.
            self.transport.withdraw();
            Failed { stage: self.stage, why }
        })
    }

    fn figures(&mut self, begins: bool) -> Result<Figures, Fault> {
        let latency = self.trips(begins, TRIPS)?;
        self.stage = Stage::Long;
        let bytes_per_second = if begins {
            let rate = self.stream()?;
            self.take()?;
            rate
        } else {
            self.take()?;
            self.stream()?
        };
        Ok(Figures { latency, bytes_per_second })
    }

    /// Sends short messages back and forth, and returns the latency.
    fn trips(&mut self, begins: bool, trips: usize) -> Result<Duration, Fault> {
        let mut times = Vec::with_capacity(trips);
        let mut token = [PATTERN; 8];
        for _ in 0..trips {
            let start = Instant::now();
            if begins {
                self.send(&token)?;
                self.recv(&mut token)?;
            } else {
                self.recv(&mut token)?;
                self.send(&token)?;
            }
            times.push(start.elapsed());
            self.stage = Stage::Short;
            if token != [PATTERN; 8] {
                return Err(Fault::Wrong);
            }
        }
        times.sort_unstable();
        Ok(times[trips / 2] / 2)
    }

    /// Sends batches until one takes long enough, and returns its rate. Batches grow from the third
    /// on. The first one does not count, since the receiver checks its bytes.
    fn stream(&mut self) -> Result<f64, Fault> {
        let mut buffer = Memory::new(self.transport, piece(BATCH_BYTES));
        buffer.front(piece(BATCH_BYTES)).fill(PATTERN);
        let (mut bytes, mut counts) = (BATCH_BYTES, false);
        loop {
            let start = Instant::now();
            self.send(&bytes.to_le_bytes())?;
            let mut left = bytes;
            while left > 0 {
                let now = piece(left);
                self.send(buffer.front(now))?;
                left -= now as u64;
            }
            self.recv(&mut [0; 8])?;
            let took = start.elapsed();
            if counts && (took >= WHILE || bytes == BATCH_BYTES_MAX) {
                self.send(&0_u64.to_le_bytes())?;
                return Ok(bytes as f64 / took.as_secs_f64());
            }
            if counts {
                bytes = (bytes * GROWTH).min(BATCH_BYTES_MAX);
            }
            counts = true;
        }
    }

    /// Receives the batches of the other end, and checks the bytes of the first.
    fn take(&mut self) -> Result<(), Fault> {
        let mut buffer = Memory::new(self.transport, piece(BATCH_BYTES));
        let mut is_first = true;
        loop {
            let mut count = [0; 8];
            self.recv(&mut count)?;
            let mut left = u64::from_le_bytes(count);
            if left == 0 {
                return Ok(());
            }
            if left > BATCH_BYTES_MAX {
                return Err(Fault::Wrong);
            }
            while left > 0 {
                let now = piece(left);
                self.recv(buffer.front(now))?;
                left -= now as u64;
                if is_first && buffer.front(now).iter().any(|byte| *byte != PATTERN) {
                    return Err(Fault::Wrong);
                }
            }
            is_first = false;
            self.send(&[PATTERN; 8])?;
        }
    }

    /// Sends a flow, and waits until all of it has arrived.
    fn pour(&mut self) -> Result<Vec<(Instant, usize)>, Fault> {
        let (start, piece) = (Instant::now(), vec![0; FLOW_PIECE]);
        for _ in 0..FLOW_PIECES_MAX {
            self.send(&[PATTERN; 8])?;
            self.send(&piece)?;
            if start.elapsed() >= FLOW {
                break;
            }
        }
        self.send(&[0; 8])?;
        self.recv(&mut [0; 8])?;
        Ok(Vec::new())
    }

    /// Receives a flow.
    fn catch(&mut self) -> Result<Vec<(Instant, usize)>, Fault> {
        let (start, mut piece) = (Instant::now(), vec![0; FLOW_PIECE]);
        let mut arrivals = Vec::new();
        loop {
            let mut head = [0; 8];
            self.recv(&mut head)?;
            if head == [0; 8] {
                self.send(&head)?;
                return Ok(arrivals);
            }
            self.recv_each(&mut piece, |bytes| arrivals.push((Instant::now(), bytes)))?;
            if start.elapsed() > self.timeout {
                return Err(Fault::Late);
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let mut sent = 0;
            self.until(|transport, link| {
                sent = transport.send(link, TAG, bytes)?;
                Ok(sent > 0)
            })?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<(), Fault> {
        self.recv_each(into, |_| {})
    }

    /// Receives, and reports the number of bytes of each arrival.
    fn recv_each(&mut self, into: &mut [u8], mut arrived: impl FnMut(usize)) -> Result<(), Fault> {
        let (len, left) = (into.len(), into.len());
        let mut receiving = Receiving { end: self, left };
        let Receiving { end, left } = &mut receiving;
        while *left > 0 {
            let before = *left;
            end.until(|transport, link| {
                match transport.recv(link, TAG, &mut into[len - *left..])? {
                    Some(Received { tag: TAG, bytes }) => {
                        *left -= bytes;
                        arrived(bytes);
                    }
                    Some(_) => return Err(Fault::Wrong),
                    None => {}
                }
                Ok(*left < before)
            })?;
        }
        Ok(())
    }

    /// Repeats `attempt` until it succeeds.
    fn until(
        &mut self,
        mut attempt: impl FnMut(&mut dyn Transport, Link) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let start = Instant::now();
        while !attempt(self.transport, self.link)? {
            let moved = self.transport.poll()?;
            let waited = start.elapsed();
            if waited > self.timeout {
                return Err(Fault::Late);
            }
            if moved || waited < self.spin {
                continue;
            }
            self.transport.arm();
            // Events from before `arm` do not wake the descriptor.
            let moved = self.transport.poll();
            let is_done = attempt(self.transport, self.link);
            if matches!((&is_done, &moved), (Ok(false), Ok(false))) {
                let park = Timespec { tv_sec: 0, tv_nsec: PARK.subsec_nanos().into() };
                let mut wake = [PollFd::from_borrowed_fd(self.transport.wake_fd(), PollFlags::IN)];
                // Interrupted or not, the next round checks.
                poll(&mut wake, Some(&park)).ok();
            }
            self.transport.disarm();
            moved?;
            if is_done? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A receive that is withdrawn unless it is complete: until then the peer's device may write to its
/// memory.
struct Receiving<'r, 'e> {
    end: &'r mut Endpoint<'e>,
    left: usize,
}

impl Drop for Receiving<'_, '_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.end.transport.withdraw();
        }
    }
}

/// Bytes of one message of a batch with `bytes` bytes left.
fn piece(bytes: u64) -> usize {
    usize::try_from(bytes.min(BATCH_BYTES)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use ringfold_types::{Chain, Lane, Rank};

    use super::*;
    use crate::local::Local;

    fn link(peer: usize) -> Link {
        Link { peer: Rank::at(peer), lane: Lane(0) }
    }

    #[test]
    fn both_ends_learn_what_the_link_does() {
        let mut ends = Local::mesh(2).unwrap();
        let mut other = ends.pop().unwrap();
        let there = std::thread::spawn(move || run(&mut other, link(0), false));
        for figures in [run(&mut ends[0], link(1), true), there.join().unwrap()] {
            let figures = figures.unwrap();
            assert!(figures.latency > Duration::ZERO && figures.bytes_per_second > 0.0);
        }
    }

    #[test]
    fn a_flow_arrives_while_it_is_sent() {
        let mut ends = Local::mesh(2).unwrap();
        let mut other = ends.pop().unwrap();
        let there = std::thread::spawn(move || {
            answer(&mut other, link(0), false)?;
            flow(&mut other, link(0), false)
        });
        answer(&mut ends[0], link(1), true).unwrap();
        assert_eq!(flow(&mut ends[0], link(1), true).unwrap(), []);
        let arrivals = there.join().unwrap().unwrap();
        let bytes: usize = arrivals.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes > 0 && bytes.is_multiple_of(FLOW_PIECE), "{bytes}");
        assert!(arrivals[arrivals.len() - 1].0 - arrivals[0].0 > FLOW / 2);
    }

    #[test]
    fn an_end_that_is_alone_says_how_far_it_came() {
        let mut ends = Local::mesh(2).unwrap();
        let gone = ends.pop().unwrap();
        let (transport, timeout) = (&mut ends[0], Duration::from_millis(1));
        let (stage, spin) = (Stage::Meeting, Duration::ZERO);
        let mut end = Endpoint { transport, link: link(1), stage, timeout, spin };
        assert!(matches!(end.figures(true), Err(Fault::Late)));
        drop(gone);
        let failed = run(&mut ends[0], link(1), true).unwrap_err();
        assert!(failed.is_told() && failed.stage == Stage::Meeting, "{failed:?}");
    }

    #[test]
    fn wrong_bytes_are_noticed() {
        let mut ends = Local::mesh(2).unwrap();
        ends[1].send(link(0), TAG, &[1; 8]).unwrap();
        let failed = run(&mut ends[0], link(1), true).unwrap_err();
        assert!(matches!(failed.why, Fault::Wrong) && failed.stage == Stage::Short, "{failed:?}");
        ends[1].send(link(0), TAG + 1, &[PATTERN; 8]).unwrap();
        let failed = run(&mut ends[0], link(1), true).unwrap_err();
        assert!(matches!(failed.why, Fault::Wrong), "{failed:?}");
    }

    #[test]
    fn the_chain_of_a_failure_names_each_cause_once() {
        let cause = || io::Error::other("the cause");
        let lost = LinkError { link: link(1), transport: "tcp", fault: LinkFault::Io(cause()) };
        for why in [Fault::Link(lost), Fault::Wait(cause())] {
            let failed = Failed { stage: Stage::Meeting, why };
            let text = Chain(&failed).to_string();
            assert_eq!(text.matches("the cause").count(), 1, "{text}");
        }
    }
}
