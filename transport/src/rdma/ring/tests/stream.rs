//! A stream over paths that overtake each other, and are lost with their fragments.

use std::collections::VecDeque;
use std::ops::Range;

use ringfold_harness::Random;
use ringfold_types::limits::{RAILS_MAX, RDMA_LEND_BYTES, RDMA_PIECE_BYTES};

use super::{by, halves};
use crate::rdma::message::Grant;
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::layout::{Immediate, LINE_BYTES, RING_LINES, lap};
use crate::rdma::ring::outbound::{Outbound, Ready};
use crate::rdma::ring::rtr::Rtr;

/// The messages under way from one half to the other, by path, in order.
#[derive(Default)]
struct Paths {
    fragments: [VecDeque<Fragment>; PATHS],
    is_dead: [bool; PATHS],
    credits: Vec<u32>,
    /// The ready-to-receive messages, each with its path, slot and credit.
    rtrs: Vec<(usize, Rtr, usize, u32)>,
    /// The number of sends posted by each path.
    posted: [u32; PATHS],
    /// Sends whose completion is under way.
    done: VecDeque<(usize, u32)>,
}

/// A fragment. A lent one has the position of its payload in the stream, and the number of its
/// send.
#[derive(Clone, Copy)]
struct Fragment(Ready, Option<(usize, u32)>);

const PATHS: usize = 3;

impl Paths {
    /// Returns a path that lives.
    fn any(&self, random: &mut Random) -> usize {
        let alive: Vec<_> = (0..PATHS).filter(|path| !self.is_dead[*path]).collect();
        alive[random.below(alive.len())]
    }

    /// Delivers the first fragment of a path to the other end, from the image or the caller's
    /// memory.
    fn arrive(&mut self, path: usize, from: &Outbound, caller: &Caller, to: &mut Receiver) {
        let Some(Fragment(ready, lent)) = self.fragments[path].pop_front() else { return };
        let payload = match lent {
            _ if ready.bytes <= LINE_BYTES => &[][..],
            Some((at, _)) => caller.read(at, ready.bytes - LINE_BYTES),
            None => from.image(ready.at + LINE_BYTES, ready.bytes - LINE_BYTES),
        };
        let header = from.image(ready.at, LINE_BYTES.min(ready.bytes));
        match ready.placed {
            Some((address, key)) => to.place(address, key, payload),
            None => to.inbound.store(ready.at + header.len(), payload),
        }
        if let Some((_, posted)) = lent {
            self.done.push_back((path, posted));
        }
        match ready.number {
            Immediate::Fragment { lane: 0, sequence, lines } => {
                to.inbound.store(ready.at, header);
                to.inbound.arrive(sequence, lines).unwrap();
            }
            number => panic!("{number:?}"),
        }
    }

    /// Ends a path. Some fragments under way by it arrive before that. The others, and a credit,
    /// never do. Returns how many of the lost fragments were direct writes.
    fn lose_one(
        &mut self,
        random: &mut Random,
        outbound: &mut Outbound,
        caller: &Caller,
        receiver: &mut Receiver,
    ) -> usize {
        let path = self.any(random);
        for _ in 0..random.below(3) {
            self.arrive(path, outbound, caller, receiver);
        }
        self.is_dead[path] = true;
        let lost = std::mem::take(&mut self.fragments[path]);
        self.done.retain(|(it, _)| *it != path);
        self.rtrs.retain(|(it, ..)| *it != path);
        self.credits.pop();
        receiver.inbound.repeat();
        receiver.inbound.forget(path);
        outbound.lose(path, receiver.inbound.state()).unwrap();
        lost.iter().filter(|it| it.0.placed.is_some()).count()
    }
}

/// The sender of a stream, a message at a time.
#[derive(Default)]
struct Caller {
    /// The position in the stream of the first message that is not yet accepted in full.
    begin: usize,
    message: Vec<u8>,
    accepted: usize,
}

impl Caller {
    fn rest(&self) -> &[u8] {
        &self.message[self.accepted..]
    }

    /// Takes back so many bytes, and uses them for something else at once.
    fn accept(&mut self, bytes: usize) {
        let accepted = self.accepted + bytes;
        self.message[self.accepted..accepted].fill(0x5a);
        self.accepted = accepted;
    }

    /// Begins the next message or continues this one, by one fragment, which may be lent.
    fn send(&mut self, random: &mut Random, outbound: &mut Outbound, paths: &mut Paths) {
        if self.rest().is_empty() {
            let wanted = match random.below(4) {
                0 => 1 + random.below(80),
                1 => 1 + random.below(5000),
                2 => LINE_BYTES * (1 + random.below(4 * RING_LINES as usize / 16)),
                _ => 1 + random.below(4 * RDMA_PIECE_BYTES),
            };
            let begin = self.begin + self.message.len();
            let message = (begin..BYTES.min(begin + wanted)).map(byte).collect();
            *self = Self { begin, message, accepted: 0 };
        }
        self.accept(outbound.accept());
        outbound.take_back(self.rest());
        let bytes = &self.rest()[outbound.unaccepted_bytes()..];
        let at = self.begin + self.message.len() - bytes.len();
        let is_lent = bytes.len() > 80 && random.below(2) == 0;
        // The sender may hold back or not, and both must work.
        if is_lent && outbound.is_kept_back(7, Some(0)) && random.below(4) > 0 {
            return;
        }
        let path = paths.any(random);
        if !bytes.is_empty()
            && let Some((taken, ready)) = outbound.push(7, bytes, by(path), is_lent)
        {
            assert!(taken == bytes.len() || taken.is_multiple_of(16), "{taken}");
            paths.posted[path] = paths.posted[path].wrapping_add(1);
            let lent = is_lent.then_some((at, paths.posted[path]));
            if let Some((_, posted)) = lent {
                outbound.lent(posted);
            }
            paths.fragments[path].push_back(Fragment(ready, lent));
        }
        self.accept(outbound.accept());
    }

    fn read(&self, at: usize, bytes: usize) -> &[u8] {
        &self.message[at - self.begin..][..bytes]
    }
}

/// The receiver of a stream. It reads in the ring, or receives into memory in which each byte
/// stands for a byte of the stream.
struct Receiver {
    inbound: Inbound,
    memory: Vec<u8>,
    arrived: usize,
    /// The memory that the peer may write.
    open: VecDeque<Range<usize>>,
    placed: usize,
}

/// The content of memory that nobody may write.
const BLANK: u8 = 0xee;
const KEY: u32 = 9;

impl Receiver {
    fn new(inbound: Inbound) -> Self {
        Self { inbound, memory: vec![BLANK; BYTES], arrived: 0, open: VecDeque::new(), placed: 0 }
    }

    /// Writes as the peer's device does.
    fn place(&mut self, address: u64, key: u32, payload: &[u8]) {
        let at = usize::try_from(address).unwrap() - self.memory.as_ptr().addr();
        let is_in = |it: &Range<usize>| it.start <= at && at + payload.len() <= it.end;
        assert!(key == KEY && at >= self.arrived && self.open.iter().any(is_in), "{at}");
        self.memory[at..at + payload.len()].copy_from_slice(payload);
        self.placed += payload.len();
    }

    fn send_rtr(&mut self, random: &mut Random, paths: &mut Paths) {
        // The peer may also learn the place of bytes after some that come by the ring.
        let gap = [0, random.below(300_000)][random.below(2)];
        let skip = self.inbound.known_after(0) + gap;
        let from = self.arrived + skip;
        let left = BYTES.saturating_sub(from);
        if self.inbound.may_send_rtr() && left >= RDMA_LEND_BYTES {
            let bytes = left.min(RDMA_LEND_BYTES + random.below(2_000_000));
            let address = self.memory[from..].as_ptr().addr() as u64;
            let (to, path) = (Grant { address, keys: [KEY; RAILS_MAX] }, paths.any(random));
            let (it, place) = self.inbound.make_rtr(7, (skip, bytes), to, path).unwrap();
            paths.rtrs.push((path, it, place, lap(self.inbound.total())));
            self.inbound.gave_credit();
            self.open.push_back(from..from + bytes);
        }
    }

    /// Consumes a part of the bytes that have arrived.
    fn consume(&mut self, random: &mut Random) {
        let some = |random: &mut Random, all: usize| match random.below(2) {
            0 => all,
            _ => 1 + random.below(all),
        };
        let dst = &self.memory[self.arrived..];
        let length = if let Some((_, placed)) = self.inbound.placed(7, dst).unwrap() {
            let length = some(random, placed);
            assert!((0..length).all(|at| dst[at] == byte(self.arrived + at)), "{}", self.arrived);
            length
        } else if let Some(front) = self.inbound.front().unwrap() {
            let length = some(random, front.bytes.len().min(dst.len()));
            let is_right = |at: usize| front.bytes[at] == byte(self.arrived + at);
            assert!((0..length).all(is_right), "{}", self.arrived);
            length
        } else {
            return;
        };
        self.inbound.consume(length);
        self.memory[self.arrived..self.arrived + length].fill(BLANK);
        self.arrived += length;
        let arrived = self.arrived;
        self.open.retain(|it| arrived < it.end);
    }
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]
}

const BYTES: usize = 6_000_000;

/// Everything arrives once and in order, whichever path overtakes another, and whichever path is
/// lost with its fragments. Credits may be lost, late or repeated, and ready-to-receive messages
/// lost or late. Lent bytes are read until they are accepted, and never again. Opened memory is
/// written until its bytes have arrived, and never again.
#[test]
fn a_stream_survives_its_paths() {
    // Bytes that were written directly, and direct writes that were lost with their path.
    let (mut placed, mut lost_placed) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed as u64);
        println!("seed {seed}");
        let (mut outbound, inbound) = halves();
        let mut receiver = Receiver::new(inbound);
        let mut paths = Paths::default();
        let mut caller = Caller::default();
        // Bytes that a completion made accepted, rather than credit.
        let (mut told, mut turns) = (0, 0);
        while receiver.arrived < BYTES {
            turns += 1;
            assert!(turns < 10_000_000, "nothing moves after {} bytes", receiver.arrived);
            match random.below(100) {
                // In half of the runs the receiver keeps up with the sender.
                0..40 if seed % 2 == 0 || random.below(20) == 0 => {
                    caller.send(&mut random, &mut outbound, &mut paths);
                }
                40..66 if seed % 2 == 0 || random.below(6) == 0 => {
                    paths.arrive(random.below(PATHS), &outbound, &caller, &mut receiver);
                }
                66..68 => receiver.send_rtr(&mut random, &mut paths),
                68..70 if !paths.rtrs.is_empty() => {
                    let at = random.below(paths.rtrs.len());
                    let (_, rtr, place, total) = paths.rtrs.swap_remove(at);
                    outbound.credit(total).unwrap();
                    outbound.take_rtr(rtr, place);
                }
                70..75 => {
                    if let Some((path, posted)) = paths.done.pop_front() {
                        let before = outbound.unaccepted_bytes();
                        outbound.done(path, posted);
                        caller.accept(outbound.accept());
                        told += before - outbound.unaccepted_bytes();
                    }
                }
                75..90 => {
                    receiver.consume(&mut random);
                    let inbound = &mut receiver.inbound;
                    if inbound.owes() {
                        paths.credits.push(lap(inbound.total()));
                        inbound.gave_credit();
                    }
                }
                90..99 if !paths.credits.is_empty() => {
                    let at = random.below(paths.credits.len());
                    outbound.credit(paths.credits.swap_remove(at)).unwrap();
                }
                99 if paths.is_dead.iter().filter(|dead| !**dead).count() > 1 => {
                    lost_placed +=
                        paths.lose_one(&mut random, &mut outbound, &caller, &mut receiver);
                }
                // Another path takes its place, with new send numbers; the test counts on.
                99 => paths.is_dead = [false; PATHS],
                _ => {}
            }
            while let Some((place, ready)) = outbound.lost() {
                assert!(ready.placed.is_none(), "again by the ring, as it lies in the image");
                let Immediate::Fragment { .. } = ready.number else { panic!("{ready:?}") };
                let path = paths.any(&mut random);
                outbound.repeated(place, path);
                paths.fragments[path].push_back(Fragment(ready, None));
            }
        }
        assert!(receiver.inbound.front().unwrap().is_none() && told > 0, "{told}");
        placed += receiver.placed;
        assert!(receiver.memory.iter().all(|byte| *byte == BLANK), "written after it arrived");
    }
    assert!(placed > BYTES && lost_placed > 10, "{placed} {lost_placed}");
}
