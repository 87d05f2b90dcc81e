//! Times puts of the RDMA transport alone: messages from registered memory to registered memory, a
//! few in flight at a time, like those of `ib_write_bw`.
//!
//! `put RANK DEVICES ADDRESS PORT SECONDS BATCHES BYTES:CALLS...`
//!
//! Rank 0 sends to rank 1. They listen at `ADDRESS`, on `PORT` and on the port after it. `DEVICES`
//! is a list of RDMA devices as for the library, as in `mlx5_0`. A batch ends when rank 1 has
//! reported the arrival of all messages. Prints a line like that of `peer-timing`: `cell out BYTES
//! BYTES CALLS BATCHES MICROSECONDS WRONG`. The time is that of one message, the median of the
//! batches.
#![expect(clippy::print_stdout, reason = "the results")]
#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a few calls")]
#![expect(clippy::cast_sign_loss, reason = "times are positive")]

use std::error::Error;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ringfold_lend::placement;
use ringfold_transport::rdma::{self, Rails, Rdma, Settings};
use ringfold_transport::tcp::{self, Liveness, Tcp};
use ringfold_transport::{Link, Pages, Transport};
use ringfold_types::{Lane, Rank};
use rustix::event::{PollFd, PollFlags, poll};

type Failure = Box<dyn Error>;

/// Messages in flight at a time, each on a lane of its own.
const DEPTH: usize = 4;
/// Bytes in flight at a time, unless two messages are longer. With more bytes the buffers would be
/// colder in the caches than the one of `ib_write_bw`, which costs more than it gains.
const IN_FLIGHT: usize = 512 << 10;
/// The tag of short messages, by which the ranks wait for each other.
const WAITING: u32 = u32::MAX;
/// Time to connect to the other rank.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// Yields before this rank parks.
const YIELDS: u32 = 2;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rank, devices, address, port, seconds, batches, cells @ ..] = words.as_slice() else {
        return Err("put RANK DEVICES ADDRESS PORT SECONDS BATCHES BYTES:CALLS...".into());
    };
    let rank = match rank.as_str() {
        "0" => Rank(0),
        "1" => Rank(1),
        _ => return Err("there are only ranks 0 and 1".into()),
    };
    let cell = |word: &String| -> Result<(usize, usize), Failure> {
        let (bytes, calls) = word.split_once(':').ok_or("a cell is BYTES:CALLS")?;
        Ok((bytes.parse::<usize>()?.max(1), calls.parse::<usize>()?.max(1)))
    };
    let cells = cells.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    let (seconds, batches) = (seconds.parse::<f64>()?, batches.parse::<usize>()?.max(1));
    let mut end = End::connect(rank, devices, address.parse()?, port.parse()?)?;
    let longest = cells.iter().map(|(bytes, _)| *bytes).max().unwrap_or(1);
    for _ in 0..DEPTH {
        let by = end.transport.registered_memory();
        let by = by.ok_or("no device can write to registered memory")?;
        let pages = by.pages(longest)?;
        end.memory.push(pages);
    }
    for (bytes, calls) in cells {
        let wrong = end.check(bytes)?;
        let warm = end.batch(bytes, (calls / 10).max(DEPTH))? / (calls / 10).max(DEPTH) as f64;
        let calls = end.agree(calls.min((seconds / batches as f64 / warm) as usize).max(1))?;
        let mut times = Vec::new();
        for _ in 0..batches {
            times.push(end.batch(bytes, calls)? / calls as f64);
        }
        times.sort_by(f64::total_cmp);
        if end.sends {
            let time = times[batches / 2] * 1e6;
            println!("cell out {bytes} {bytes} {calls} {batches} {time:.4} {wrong}");
        }
    }
    // The peer has all that it waits for.
    end.until(|transport| Ok(Progress::of(transport.is_flushed())))
}

/// One of the two ranks.
struct End {
    transport: Rdma,
    peer: Rank,
    sends: bool,
    /// By lane.
    memory: Vec<Pages>,
}

impl End {
    fn connect(rank: Rank, devices: &str, address: IpAddr, port: u16) -> Result<Self, Failure> {
        let peer = Rank(1 - rank.0);
        let place = |rank: Rank| port + u16::from(rank != Rank(0));
        // No secret: the exposed bytes are of no use to a false peer.
        let key = [0; 32];
        let door = Tcp::listen(tcp::Config {
            key,
            rank,
            size: 2,
            lanes: DEPTH,
            bind: vec![address],
            ports: Some(place(rank)..=place(rank)),
            liveness: Liveness::default(),
        })?;
        let theirs = SocketAddr::new(address, place(peer));
        // The other rank may start later.
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect_timeout(&theirs, TIMEOUT).is_err() {
            if Instant::now() > deadline {
                return Err(format!("rank {peer} does not listen at {theirs}").into());
            }
            std::thread::sleep(PAUSE);
        }
        let tcp = door.connect([(peer, vec![theirs])])?;
        let mut settings = Settings::default();
        settings.devices = devices.parse()?;
        let rails = Rails::open(&settings, None)?;
        let (reaches, may_use_tcp) = (vec![true; 2], false);
        // A batch checks its messages only after all have arrived.
        let placement = Some(placement());
        let lanes = DEPTH;
        let config = rdma::Config { key, rank, lanes, settings, reaches, may_use_tcp, placement };
        let transport = Rdma::new(rails, tcp, config)?;
        Ok(Self { transport, peer, sends: rank == Rank(0), memory: Vec::new() })
    }

    /// Moves one message on every lane. Returns the number of wrong bytes at rank 1.
    fn check(&mut self, bytes: usize) -> Result<u64, Failure> {
        let expected = |lane: usize, at: usize| (at * 31 + lane * 7 + bytes) as u8;
        for (lane, pages) in self.memory.iter_mut().enumerate() {
            for (at, byte) in pages.front_mut(bytes).iter_mut().enumerate() {
                *byte = if self.sends { expected(lane, at) } else { !expected(lane, at) };
            }
        }
        self.batch(bytes, DEPTH)?;
        let wrong = |(lane, pages): (usize, &Pages)| {
            let found = pages.front(bytes).iter().enumerate();
            found.filter(|(at, byte)| **byte != expected(lane, *at)).count()
        };
        let used = self.memory.iter().enumerate().take(depth(bytes));
        let wrong = used.map(wrong).sum::<usize>() as u64;
        self.transfer(!self.sends, wrong)
    }

    /// Makes rank 1 use rank 0's number of calls.
    fn agree(&mut self, calls: usize) -> Result<usize, Failure> {
        Ok(usize::try_from(self.transfer(self.sends, calls as u64)?)?)
    }

    /// The seconds from the meeting of both ranks until rank 1 has reported all messages.
    fn batch(&mut self, bytes: usize, calls: usize) -> Result<f64, Failure> {
        self.transfer(!self.sends, 0)?;
        let start = Instant::now();
        let mut memory = std::mem::take(&mut self.memory);
        let mut turns: [Turn; DEPTH] = std::array::from_fn(|message| Turn { message, moved: 0 });
        let depth = depth(bytes);
        let (mut left, sends, peer) = (calls, self.sends, self.peer);
        let outcome = self.until(|transport| {
            let mut progress = Progress::None;
            for (lane, (it, pages)) in turns.iter_mut().zip(&mut memory).enumerate().take(depth) {
                let link = Link { peer, lane: Lane(lane as u8) };
                while it.message < calls {
                    let tag = it.message as u32;
                    let rest = &mut pages.front_mut(bytes)[it.moved..];
                    let moved = match sends {
                        true => transport.send(link, tag, rest)?,
                        false => match transport.recv(link, tag, rest)? {
                            Some(found) if found.tag != tag => {
                                return Err("a message with another tag".into());
                            }
                            found => found.map_or(0, |found| found.bytes),
                        },
                    };
                    it.moved += moved;
                    if moved > 0 {
                        progress = Progress::Some;
                    }
                    if it.moved < bytes {
                        break;
                    }
                    (it.message, it.moved, left) = (it.message + depth, 0, left - 1);
                }
            }
            Ok(if left == 0 { Progress::Done } else { progress })
        });
        self.memory = memory;
        outcome?;
        self.transfer(!self.sends, 0)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Sends a number to the peer, or receives one. Returns the number.
    fn transfer(&mut self, sends_number: bool, number: u64) -> Result<u64, Failure> {
        let link = Link { peer: self.peer, lane: Lane(0) };
        let mut bytes = number.to_le_bytes();
        self.until(|transport| {
            Ok(Progress::of(match sends_number {
                true => transport.send(link, WAITING, &bytes)? == bytes.len(),
                false => transport.recv(link, WAITING, &mut bytes)?.is_some(),
            }))
        })?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Tries until done, as a call does: yields if nothing moves, and then parks.
    fn until(
        &mut self,
        mut attempt: impl FnMut(&mut Rdma) -> Result<Progress, Failure>,
    ) -> Result<(), Failure> {
        let mut fruitless = 0;
        loop {
            let is_last = fruitless == YIELDS;
            if is_last {
                self.transport.arm();
            }
            let polled = self.transport.poll()?;
            let progress = attempt(&mut self.transport)?;
            let is_idle = !polled && progress == Progress::None;
            if is_last {
                if is_idle {
                    let mut wake =
                        [PollFd::from_borrowed_fd(self.transport.wake_fd(), PollFlags::IN)];
                    poll(&mut wake, None)?;
                }
                self.transport.disarm();
            } else if is_idle {
                std::thread::yield_now();
            }
            if progress == Progress::Done {
                return Ok(());
            }
            fruitless = if is_idle && !is_last { fruitless + 1 } else { 0 };
        }
    }
}

/// The number of messages of this length that are in flight.
fn depth(bytes: usize) -> usize {
    (IN_FLIGHT / bytes).clamp(2, DEPTH)
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    None,
    Some,
    Done,
}

impl Progress {
    const fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::None }
    }
}

/// The progress of a lane.
#[derive(Clone, Copy, Debug)]
struct Turn {
    message: usize,
    moved: usize,
}
