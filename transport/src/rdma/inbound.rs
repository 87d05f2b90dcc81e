//! The receiving half of a link: a ring that the peer writes, and what has arrived in it.
//!
//! Nothing that the peer says is believed before it is checked against what it was granted.

use std::collections::VecDeque;

use ringfold_types::limits::RDMA_CELLS;

use super::geometry::{CREDIT_FRAGMENTS, CREDIT_LINES, LINE_BYTES, RING_LINES, lines, payload_at};
use super::message::Heard;
use super::sys::{Inbox, Mr};
use crate::contract::Fragment;

const _: () = assert!(RDMA_CELLS <= 64, "a bit for each");

/// See the module's head.
#[derive(Debug)]
pub(super) struct Inbound {
    ring: Inbox,
    /// What lets the peer write, by cable; none where it may not.
    rights: Vec<Option<Mr>>,
    /// Of the next fragment in order; all that have arrived.
    sequence: u64,
    /// Lines of fragments that arrived by another way than those before them; 0 for none.
    early: [u32; RDMA_CELLS],
    /// The line at which the next one begins, unless it does not fit.
    line: u32,
    arrived: VecDeque<Arrived>,
    /// Bytes of the first that were consumed.
    consumed: usize,
    /// Lines and fragments that the peer has no credit for.
    busy: u32,
    fragments: u32,
    /// Those of them that we are done with.
    unsaid_lines: u32,
    unsaid_fragments: u32,
    /// All lines that the peer was ever given credit for, if any,
    given: u64,
    has_given: bool,
    /// and whether it may not have heard the last of it.
    must_repeat: bool,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    tag: u32,
    at: usize,
    bytes: usize,
    /// With those that were skipped for it.
    lines: u32,
}

impl Inbound {
    pub(super) fn new(ring: Inbox, rights: Vec<Option<Mr>>) -> Self {
        Self {
            ring,
            rights,
            sequence: 0,
            early: [0; RDMA_CELLS],
            line: 0,
            arrived: VecDeque::with_capacity(RDMA_CELLS),
            consumed: 0,
            busy: 0,
            fragments: 0,
            unsaid_lines: 0,
            unsaid_fragments: 0,
            given: 0,
            has_given: false,
            must_repeat: false,
        }
    }

    /// Where the peer finds the ring.
    pub(super) fn address(&self) -> u64 {
        self.ring.address()
    }

    /// The keys to it, by cable.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.rights.iter().map(|right| right.as_ref().map_or(0, Mr::remote_key))
    }

    /// Takes note of a fragment that is there.
    pub(super) fn arrive(&mut self, sequence: u8, lines: u32) -> Result<(), &'static str> {
        let distance = usize::from(sequence.wrapping_sub(self.sequence.to_le_bytes()[0]));
        let place = usize::from(sequence) % RDMA_CELLS;
        if lines == 0 || lines > RING_LINES {
            return Err("a fragment of no lines, or more than there are");
        }
        if distance >= RDMA_CELLS || self.early[place] != 0 {
            return Err("a fragment out of order");
        }
        self.early[place] = lines;
        loop {
            let place = self.early_at(0);
            match std::mem::take(&mut self.early[place]) {
                0 => return Ok(()),
                lines => self.line_up(lines)?,
            }
            self.sequence += 1;
        }
    }

    /// What is noted of the fragment that comes `ahead` after the next.
    fn early_at(&self, ahead: usize) -> usize {
        (usize::from(self.sequence.to_le_bytes()[0]) + ahead) % RDMA_CELLS
    }

    /// Puts in place what came by another way than a device's writing.
    pub(super) fn load(&mut self, at: usize, bytes: &[u8]) {
        self.ring.store(at, bytes);
    }

    /// Whether fragments are missing of so many in all; no peer has more under way than fit.
    pub(super) fn lacks(&self, fragments: u64) -> Result<bool, &'static str> {
        match fragments.checked_sub(self.sequence) {
            Some(missing) if missing <= RDMA_CELLS as u64 => Ok(missing > 0),
            _ => Err("other fragments were promised than can be"),
        }
    }

    /// The next fragment in order is there.
    fn line_up(&mut self, count: u32) -> Result<(), &'static str> {
        let to_end = RING_LINES - self.line;
        let (begin, skipped) = if count > to_end { (0, to_end) } else { (self.line, 0) };
        self.busy += skipped + count;
        self.fragments += 1;
        if self.busy > RING_LINES || self.fragments as usize > RDMA_CELLS {
            return Err("a fragment without credit for it");
        }
        let at = begin as usize * LINE_BYTES;
        // What the peer writes there from now on is no longer believed.
        let header: [u8; 8] = self.ring.read(at);
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (tag, bytes) = (word(0), word(4) as usize);
        if bytes == 0 || bytes > RING_LINES as usize * LINE_BYTES || lines(bytes) != count {
            return Err("a fragment of another length than its lines");
        }
        self.line = (begin + count) % RING_LINES;
        let at = at + payload_at(bytes);
        self.arrived.push_back(Arrived { tag, at, bytes, lines: skipped + count });
        Ok(())
    }

    /// What is at the front.
    pub(super) fn front(&self) -> Option<Fragment<'_>> {
        let front = self.arrived.front()?;
        let bytes = self.ring.lend(front.at + self.consumed..front.at + front.bytes);
        Some(Fragment { tag: front.tag, bytes })
    }

    /// Gives back the first `bytes` of the front; whether credit is due.
    pub(super) fn consume(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        let front = *self.arrived.front().expect("something was readable");
        self.consumed += bytes;
        assert!(self.consumed <= front.bytes, "consumed {bytes} bytes more than was readable");
        if self.consumed == front.bytes {
            self.arrived.pop_front();
            self.consumed = 0;
            self.unsaid_lines += front.lines;
            self.unsaid_fragments += 1;
        }
        self.owes()
    }

    /// Whether credit is due.
    pub(super) const fn owes(&self) -> bool {
        self.must_repeat
            || self.unsaid_lines >= CREDIT_LINES
            || self.unsaid_fragments >= CREDIT_FRAGMENTS
    }

    /// Lines to give credit for, in all.
    pub(super) const fn total(&self) -> u64 {
        self.given + self.unsaid_lines as u64
    }

    /// The peer will be told.
    pub(super) const fn said(&mut self) {
        self.given = self.total();
        self.has_given = true;
        self.busy -= self.unsaid_lines;
        self.fragments -= self.unsaid_fragments;
        (self.unsaid_lines, self.unsaid_fragments) = (0, 0);
        self.must_repeat = false;
    }

    /// What was said last may be lost.
    pub(super) const fn repeat(&mut self) {
        self.must_repeat = self.has_given;
    }

    /// What has arrived: all fragments before this one in order, and the others whose bits are set,
    /// counted from it.
    pub(super) fn state(&self) -> Heard {
        let ahead = (0..RDMA_CELLS).filter(|ahead| self.early[self.early_at(*ahead)] != 0);
        Heard { next: self.sequence, early: ahead.fold(0, |bits, ahead| bits | 1 << ahead) }
    }
}
