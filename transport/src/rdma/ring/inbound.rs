//! The receiving half of a link: the ring that the peer writes, and the fragments that have arrived
//! in it or directly in the caller's memory.
//!
//! Everything that the peer writes is checked against its grants before use.

use std::collections::VecDeque;

use ringfold_types::limits::RDMA_CELLS;

use super::layout::{
    CREDIT_FRAGMENTS, CREDIT_LINES, FLAGS_AT, HEADER_BYTES, LINE_BYTES, PLACED, RING_LINES,
    SEEN_AT, WANTS_RTR, lines, payload_at,
};
use super::rtr::{Rtr, SLOTS, Seen, slot_of};
use crate::contract::Fragment;
use crate::rdma::message::{Arrivals, Grant};
use crate::rdma::sys::{Inbox, Mr};

const _: () = assert!(RDMA_CELLS <= 64, "a bit for each");

/// The receiving half of a link.
#[derive(Debug)]
pub(in crate::rdma) struct Inbound {
    ring: Inbox,
    /// The registrations that let the peer write, by cable. Cables without one cannot.
    rights: Vec<Option<Mr>>,
    /// The sequence number of the next fragment in order, which is the number of those that have
    /// arrived.
    sequence: u64,
    /// The lines of fragments that have arrived before earlier ones, by sequence number modulo
    /// `RDMA_CELLS`.
    early: [Option<u32>; RDMA_CELLS],
    /// The line at which the next fragment begins, unless it does not fit.
    line: u32,
    arrived: VecDeque<Arrived>,
    /// The address of the peer's mailbox.
    mailbox: Grant,
    /// All bytes that have arrived in order.
    lined_up: u64,
    /// The last ready-to-receive messages, which tell the peer where to write. They are in the
    /// order of the stream.
    open_rtrs: VecDeque<OpenRtr>,
    /// The peer asks for another ready-to-receive message.
    wants_rtr: bool,
    /// The number of the last ready-to-receive message.
    last_rtr: u32,
    /// The ready-to-receive messages that the peer may not have seen yet, by slot. Those that went
    /// by a lost path may never be seen.
    unseen: [Option<Unseen>; SLOTS],
    /// Consumed bytes of the first fragment.
    consumed: usize,
    /// Lines of fragments that the peer has no credit for.
    busy: u32,
    /// Fragments that the peer has no credit for.
    fragments: u32,
    /// Consumed lines that the peer has no credit for.
    uncredited_lines: u32,
    /// Consumed fragments that the peer has no credit for.
    uncredited_fragments: u32,
    /// All lines that the peer was ever given credit for.
    given: u64,
    /// The peer was given credit before.
    has_given: bool,
    /// The last credit may be lost.
    must_repeat: bool,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    tag: u32,
    place: Place,
    bytes: usize,
    /// The lines of the fragment, and the lines that were skipped for it.
    lines: u32,
}

/// A fragment as its header describes it.
#[derive(Clone, Copy, Debug)]
struct Content {
    tag: u32,
    place: Place,
    bytes: usize,
    wants_rtr: bool,
}

/// The location of a payload.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the ring, from this byte on.
    Ring(usize),
    /// At this address, which a ready-to-receive message told.
    Direct(usize),
}

/// The memory that a ready-to-receive message opened to the peer.
#[derive(Clone, Copy, Debug)]
struct OpenRtr {
    tag: u32,
    /// The first byte of the stream.
    from: u64,
    /// The end of the bytes in the stream.
    end: u64,
    address: usize,
}

/// The error of a caller that receives into other memory than it began with. A peer that splits an
/// element causes it too, because the caller then receives the whole element again.
const ELSEWHERE: &str = "bytes have arrived at another address than they are received at";

/// The error of a peer that claims to have written memory without a ready-to-receive message.
const NO_RTR: &str = "a fragment written directly without a ready-to-receive message";

/// A ready-to-receive message that the peer may not have seen yet.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    number: u32,
    path: usize,
}

impl Inbound {
    pub(in crate::rdma) fn new(ring: Inbox, rights: Vec<Option<Mr>>, mailbox: Grant) -> Self {
        Self {
            ring,
            rights,
            mailbox,
            sequence: 0,
            early: [None; RDMA_CELLS],
            line: 0,
            arrived: VecDeque::with_capacity(RDMA_CELLS),
            lined_up: 0,
            open_rtrs: VecDeque::with_capacity(SLOTS),
            wants_rtr: false,
            last_rtr: 0,
            unseen: [None; SLOTS],
            consumed: 0,
            busy: 0,
            fragments: 0,
            uncredited_lines: 0,
            uncredited_fragments: 0,
            given: 0,
            has_given: false,
            must_repeat: false,
        }
    }

    /// The address and keys of the ring for the peer.
    pub(in crate::rdma) fn grant(&self) -> Grant {
        Grant::new(self.ring.address(), self.rights.iter().map(Option::as_ref))
    }

    /// The address and keys of the peer's mailbox.
    pub(in crate::rdma) const fn mailbox(&self) -> Grant {
        self.mailbox
    }

    /// Handles the arrival of a fragment. Returns whether the fragment was under way. A fragment
    /// that has arrived before, or whose number is too far ahead, changes nothing.
    pub(in crate::rdma) fn arrive(
        &mut self,
        sequence: u8,
        lines: u32,
    ) -> Result<bool, &'static str> {
        let distance = usize::from(sequence.wrapping_sub(self.sequence.to_le_bytes()[0]));
        let place = usize::from(sequence) % RDMA_CELLS;
        if lines == 0 || lines > RING_LINES {
            return Err("a fragment of no lines, or of more than a ring has");
        }
        if distance >= RDMA_CELLS || self.early[place].is_some() {
            return Ok(false);
        }
        self.early[place] = Some(lines);
        while let Some(lines) = self.early[self.early_at(0)].take() {
            self.line_up(lines)?;
            self.sequence += 1;
        }
        Ok(true)
    }

    /// The index in `early` of the fragment that comes `ahead` after the next.
    fn early_at(&self, ahead: usize) -> usize {
        (usize::from(self.sequence.to_le_bytes()[0]) + ahead) % RDMA_CELLS
    }

    /// Stores bytes that came by TCP at their place in the ring.
    pub(in crate::rdma) fn store(&mut self, at: usize, bytes: &[u8]) {
        self.ring.store(at, bytes);
    }

    /// Returns whether some of so many fragments have not arrived. A peer never has more under way
    /// than fit.
    pub(in crate::rdma) fn lacks(&self, fragments: u64) -> Result<bool, &'static str> {
        match fragments.checked_sub(self.sequence) {
            Some(missing) if missing <= RDMA_CELLS as u64 => Ok(missing > 0),
            _ => Err("an impossible number of fragments was promised"),
        }
    }

    /// Takes the next fragment in order, which has arrived.
    fn line_up(&mut self, count: u32) -> Result<(), &'static str> {
        let to_end = RING_LINES - self.line;
        let (begin, skipped) = if count > to_end { (0, to_end) } else { (self.line, 0) };
        self.busy += skipped + count;
        self.fragments += 1;
        if self.busy > RING_LINES || self.fragments as usize > RDMA_CELLS {
            return Err("a fragment without credit for it");
        }
        let content = self.read(begin as usize * LINE_BYTES, count)?;
        let Content { tag, place, bytes, wants_rtr } = content;
        self.wants_rtr = wants_rtr;
        self.line = (begin + count) % RING_LINES;
        self.lined_up += bytes as u64;
        self.arrived.push_back(Arrived { tag, place, bytes, lines: skipped + count });
        Ok(())
    }

    /// Reads the fragment of `count` lines whose header is at byte `at` of the ring.
    fn read(&mut self, at: usize, count: u32) -> Result<Content, &'static str> {
        // The header is read once: later writes of the peer do not count.
        let header: [u8; HEADER_BYTES] = self.ring.read(at);
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (tag, bytes) = (word(0), word(4) as usize);
        if bytes == 0 || bytes > RING_LINES as usize * LINE_BYTES || lines(bytes) != count {
            return Err("a fragment of another length than its lines");
        }
        let flags = word(FLAGS_AT);
        if flags & !(PLACED | WANTS_RTR) != 0 {
            return Err("a fragment with unknown flags");
        }
        let place = if flags & PLACED == 0 {
            Place::Ring(at + payload_at(bytes))
        } else {
            Place::Direct(self.direct_at(tag, bytes as u64)?)
        };
        self.saw(Seen::decode(word(SEEN_AT)));
        Ok(Content { tag, place, bytes, wants_rtr: flags & WANTS_RTR != 0 })
    }

    /// Returns the address at which the next bytes of the stream were expected.
    fn direct_at(&self, tag: u32, bytes: u64) -> Result<usize, &'static str> {
        let (from, end) = (self.lined_up, self.lined_up + bytes);
        let covers = |it: &&OpenRtr| it.tag == tag && it.from <= from && end <= it.end;
        let it = self.open_rtrs.iter().find(covers).ok_or(NO_RTR)?;
        let skipped = usize::try_from(from - it.from).unwrap_or(usize::MAX);
        Ok(it.address.wrapping_add(skipped))
    }

    /// Notes that the peer has seen these ready-to-receive messages.
    fn saw(&mut self, seen: Seen) {
        for (place, unseen) in self.unseen.iter_mut().enumerate() {
            *unseen = unseen.filter(|it| !seen.is_last(it.number, place));
        }
    }

    /// The bytes that have arrived and are not consumed.
    fn unconsumed(&self) -> usize {
        self.arrived.iter().map(|it| it.bytes).sum::<usize>() - self.consumed
    }

    /// All bytes that the caller has consumed.
    fn received(&self) -> u64 {
        self.lined_up - self.unconsumed() as u64
    }

    /// Returns whether bytes are still expected directly in the caller's memory.
    pub(in crate::rdma) fn has_open_rtr(&self) -> bool {
        let received = self.received();
        self.open_rtrs.iter().any(|it| received < it.end)
    }

    /// Forgets the ready-to-receive messages. The peer can no longer write to that memory.
    pub(in crate::rdma) fn give_up(&mut self) {
        self.open_rtrs.clear();
    }

    /// Returns whether the peer asks for a ready-to-receive message for bytes under `tag`, and has
    /// none.
    pub(in crate::rdma) fn is_asked(&self, tag: u32) -> bool {
        let is_alike = || self.arrived.iter().all(|it| it.tag == tag);
        self.wants_rtr && !self.has_open_rtr() && is_alike()
    }

    /// Returns whether one more ready-to-receive message may be sent: the mailbox has room, and the
    /// messages before it, except for one, have ended. Before its first fragment the sender may not
    /// know the ring, and would take the message for a false one.
    pub(in crate::rdma) fn may_send_rtr(&self) -> bool {
        let received = self.received();
        let open = self.open_rtrs.iter().filter(|it| received < it.end).count();
        self.lined_up > 0 && open < SLOTS && self.next_slot().is_some()
    }

    /// Returns how many bytes of the stream after the next `skip` ones have arrived, or are
    /// expected already.
    pub(in crate::rdma) fn known_after(&self, skip: usize) -> usize {
        let from = self.received() + skip as u64;
        let end = self.open_rtrs.back().map_or(self.lined_up, |it| it.end.max(self.lined_up));
        usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX)
    }

    /// The slot of the mailbox for the next ready-to-receive message, if it is free.
    fn next_slot(&self) -> Option<usize> {
        let place = slot_of(self.last_rtr.wrapping_add(1));
        self.unseen[place].is_none().then_some(place)
    }

    /// Makes a ready-to-receive message that lets the peer write `bytes` bytes, those after the
    /// next `skip` ones that the caller receives, to `to`. It goes by `path`. Returns the message
    /// and its slot in the mailbox, if a slot is free.
    pub(in crate::rdma) fn make_rtr(
        &mut self,
        tag: u32,
        (skip, bytes): (usize, usize),
        to: Grant,
        path: usize,
    ) -> Option<(Rtr, usize)> {
        let (place, received) = (self.next_slot()?, self.received());
        let from = received + skip as u64;
        let address = usize::try_from(to.address).ok()?;
        self.last_rtr = self.last_rtr.wrapping_add(1);
        let number = self.last_rtr;
        self.unseen[place] = Some(Unseen { number, path });
        self.open_rtrs.retain(|it| received < it.end);
        self.open_rtrs.push_back(OpenRtr { tag, from, end: from + bytes as u64, address });
        self.wants_rtr = false;
        Some((Rtr { number, tag, from, bytes: bytes as u64, to }, place))
    }

    /// Frees the slots of messages that went by `path`. They were seen or are lost, and will not be
    /// written any more.
    pub(in crate::rdma) fn forget(&mut self, path: usize) {
        for place in &mut self.unseen {
            *place = place.filter(|it| it.path != path);
        }
    }

    /// Returns the first fragment. It is an error if the fragment lies in the caller's memory,
    /// because a caller that received there must go on there.
    pub(in crate::rdma) fn front(&self) -> Result<Option<Fragment<'_>>, &'static str> {
        let Some(front) = self.arrived.front() else { return Ok(None) };
        let Place::Ring(at) = front.place else { return Err(ELSEWHERE) };
        let bytes = self.ring.lend(at + self.consumed..at + front.bytes);
        Ok(Some(Fragment { tag: front.tag, bytes }))
    }

    /// Returns the tag of the first fragment, and how much of it lies at the front of `dst`. That
    /// is nothing under another `tag`. Returns `None` if the fragment is in the ring. It is an
    /// error if the fragment lies in other memory.
    pub(in crate::rdma) fn placed(
        &self,
        tag: u32,
        dst: &[u8],
    ) -> Result<Option<(u32, usize)>, &'static str> {
        let Some(front) = self.arrived.front() else { return Ok(None) };
        let Place::Direct(at) = front.place else { return Ok(None) };
        if front.tag != tag {
            return Ok(Some((front.tag, 0)));
        }
        if dst.as_ptr().addr() != at.wrapping_add(self.consumed) {
            return Err(ELSEWHERE);
        }
        Ok(Some((tag, dst.len().min(front.bytes - self.consumed))))
    }

    /// Gives back the first `bytes` of the first fragment. Returns whether credit is due.
    pub(in crate::rdma) fn consume(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        let front = *self.arrived.front().expect("something was readable");
        self.consumed += bytes;
        assert!(self.consumed <= front.bytes, "consumed {bytes} bytes more than was readable");
        if self.consumed == front.bytes {
            self.arrived.pop_front();
            self.consumed = 0;
            self.uncredited_lines += front.lines;
            self.uncredited_fragments += 1;
        }
        self.owes()
    }

    /// Returns whether credit is due.
    pub(in crate::rdma) const fn owes(&self) -> bool {
        self.must_repeat
            || self.uncredited_lines >= CREDIT_LINES
            || self.uncredited_fragments >= CREDIT_FRAGMENTS
    }

    /// All lines to give credit for.
    pub(in crate::rdma) const fn total(&self) -> u64 {
        self.given + self.uncredited_lines as u64
    }

    /// Notes that credit for all consumed lines is being sent.
    pub(in crate::rdma) const fn gave_credit(&mut self) {
        self.given = self.total();
        self.has_given = true;
        self.busy -= self.uncredited_lines;
        self.fragments -= self.uncredited_fragments;
        (self.uncredited_lines, self.uncredited_fragments) = (0, 0);
        self.must_repeat = false;
    }

    /// Notes that the last credit may be lost.
    pub(in crate::rdma) const fn repeat(&mut self) {
        self.must_repeat = self.has_given;
    }

    /// The arrivals: all fragments before `next` in order, and later ones as bits counted from it.
    pub(in crate::rdma) fn state(&self) -> Arrivals {
        let ahead = (0..RDMA_CELLS).filter(|ahead| self.early[self.early_at(*ahead)].is_some());
        Arrivals { next: self.sequence, early: ahead.fold(0, |bits, ahead| bits | 1 << ahead) }
    }
}
