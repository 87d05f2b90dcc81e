//! The receiving half of a link: a ring that the peer writes, and what has arrived in it, or by
//! invitation elsewhere.
//!
//! Nothing that the peer says is believed before it is checked against what it was granted.

use std::collections::VecDeque;

use ringfold_types::limits::RDMA_CELLS;

use super::geometry::{
    AWAITS, Bare, CREDIT_FRAGMENTS, CREDIT_LINES, FLAGS_AT, HEADER_BYTES, LINE_BYTES, PLACED,
    RING_LINES, SEEN_AT, capacity, lines, payload_at,
};
use super::invitation::{Invitation, PLACES, Seen, place_of};
use crate::contract::Fragment;
use crate::rdma::message::{Grant, Heard};
use crate::rdma::sys::{Inbox, Mr};

const _: () = assert!(RDMA_CELLS <= 64, "a bit for each");

/// See the module's head.
#[derive(Debug)]
pub(in crate::rdma) struct Inbound {
    ring: Inbox,
    /// What lets the peer write, by cable; none where it may not.
    rights: Vec<Option<Mr>>,
    /// Of the next fragment in order; all that have arrived.
    sequence: u64,
    /// Fragments that arrived by another way than those before them.
    early: [Option<Told>; RDMA_CELLS],
    /// The line at which the next one begins, unless it does not fit.
    line: u32,
    arrived: VecDeque<Arrived>,
    /// Of the last one that arrived.
    tag: u32,
    /// Where the peer's mailbox is.
    mailbox: Grant,
    /// All bytes that have arrived in order,
    lined_up: u64,
    /// where the peer was last invited to write,
    invited: Option<Invited>,
    /// whether the peer awaits another invitation,
    is_awaited: bool,
    /// and the number of the last. The peer may not have seen those that lie in its mailbox yet,
    /// nor ever, if they went by a path that is lost.
    invitations: u32,
    unseen: [Option<Unseen>; PLACES],
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
    place: Place,
    bytes: usize,
    /// With those that were skipped for it.
    lines: u32,
}

/// What the number of a fragment tells of it.
#[derive(Clone, Copy, Debug)]
struct Told {
    lines: u32,
    bare: Option<Bare>,
}

/// Where a payload is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the ring, from this byte on.
    Ring(usize),
    /// At this address, where it was invited.
    Invited(usize),
}

/// What an invitation was about.
#[derive(Clone, Copy, Debug)]
struct Invited {
    tag: u32,
    /// The byte of the stream from which on, and up to which.
    from: u64,
    end: u64,
    address: usize,
}

/// A caller looks elsewhere than it began to, or a peer has split an element, so that the caller
/// comes back for all of it.
const ELSEWHERE: &str = "bytes have arrived elsewhere than they are received";

/// A peer says that it wrote where it was not told to.
const UNINVITED: &str = "a fragment where nothing was invited";

/// An invitation on its way.
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
            tag: 0,
            lined_up: 0,
            invited: None,
            is_awaited: false,
            invitations: 0,
            unseen: [None; PLACES],
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
    pub(in crate::rdma) fn grant(&self) -> Grant {
        Grant::new(self.ring.address(), self.rights.iter().map(Option::as_ref))
    }

    /// Where the peer finds invitations.
    pub(in crate::rdma) const fn mailbox(&self) -> Grant {
        self.mailbox
    }

    /// Takes note of a fragment that is there.
    pub(in crate::rdma) fn arrive(&mut self, sequence: u8, lines: u32) -> Result<(), &'static str> {
        self.hear(sequence, Told { lines, bare: None })
    }

    /// Takes note of one that is there and bare.
    pub(in crate::rdma) fn arrive_bare(
        &mut self,
        sequence: u8,
        bare: Bare,
    ) -> Result<(), &'static str> {
        self.hear(sequence, Told { lines: bare.lines, bare: Some(bare) })
    }

    fn hear(&mut self, sequence: u8, told: Told) -> Result<(), &'static str> {
        let distance = usize::from(sequence.wrapping_sub(self.sequence.to_le_bytes()[0]));
        let place = usize::from(sequence) % RDMA_CELLS;
        if told.lines == 0 || told.lines > RING_LINES {
            return Err("a fragment of no lines, or more than there are");
        }
        if distance >= RDMA_CELLS || self.early[place].is_some() {
            return Err("a fragment out of order");
        }
        self.early[place] = Some(told);
        while let Some(told) = self.early[self.early_at(0)].take() {
            self.line_up(told)?;
            self.sequence += 1;
        }
        Ok(())
    }

    /// What is noted of the fragment that comes `ahead` after the next.
    fn early_at(&self, ahead: usize) -> usize {
        (usize::from(self.sequence.to_le_bytes()[0]) + ahead) % RDMA_CELLS
    }

    /// Puts in place what came by another way than a device's writing.
    pub(in crate::rdma) fn load(&mut self, at: usize, bytes: &[u8]) {
        self.ring.store(at, bytes);
    }

    /// Whether fragments are missing of so many in all; no peer has more under way than fit.
    pub(in crate::rdma) fn lacks(&self, fragments: u64) -> Result<bool, &'static str> {
        match fragments.checked_sub(self.sequence) {
            Some(missing) if missing <= RDMA_CELLS as u64 => Ok(missing > 0),
            _ => Err("other fragments were promised than can be"),
        }
    }

    /// The next fragment in order is there.
    fn line_up(&mut self, told: Told) -> Result<(), &'static str> {
        let count = told.lines;
        let to_end = RING_LINES - self.line;
        let (begin, skipped) = if count > to_end { (0, to_end) } else { (self.line, 0) };
        self.busy += skipped + count;
        self.fragments += 1;
        if self.busy > RING_LINES || self.fragments as usize > RDMA_CELLS {
            return Err("a fragment without credit for it");
        }
        let at = begin as usize * LINE_BYTES;
        let (tag, bytes, place);
        (tag, bytes, place, self.is_awaited) = match told.bare {
            Some(bare) => self.see(at, bare)?,
            None => self.read(at, count)?,
        };
        self.tag = tag;
        self.line = (begin + count) % RING_LINES;
        self.lined_up += bytes as u64;
        self.arrived.push_back(Arrived { tag, place, bytes, lines: skipped + count });
        Ok(())
    }

    /// Of a bare fragment at byte `at` of the ring: its tag and length, where its payload is, and
    /// whether it asks.
    fn see(
        &mut self,
        at: usize,
        Bare { lines, asks, ahead }: Bare,
    ) -> Result<(u32, usize, Place, bool), &'static str> {
        let bytes = capacity(lines);
        if lines < 2 {
            return Err("a fragment without a header and anything else");
        }
        if let Some(ahead) = ahead {
            return Ok((self.tag.wrapping_add(ahead), bytes, Place::Ring(at + LINE_BYTES), asks));
        }
        let tag = self.invited.ok_or(UNINVITED)?.tag;
        let place = Place::Invited(self.invited_at(tag, bytes as u64)?);
        // A sender that has not seen them all writes a header, which says which it has.
        self.unseen = [None; PLACES];
        Ok((tag, bytes, place, asks))
    }

    /// What the header at byte `at` of the ring says of a fragment of so many lines: its tag and
    /// length, where its payload is, and whether it asks.
    fn read(&mut self, at: usize, count: u32) -> Result<(u32, usize, Place, bool), &'static str> {
        // What the peer writes there from now on is no longer believed.
        let header: [u8; HEADER_BYTES] = self.ring.read(at);
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (tag, bytes) = (word(0), word(4) as usize);
        if bytes == 0 || bytes > RING_LINES as usize * LINE_BYTES || lines(bytes) != count {
            return Err("a fragment of another length than its lines");
        }
        let flags = word(FLAGS_AT);
        if flags & !(PLACED | AWAITS) != 0 {
            return Err("a fragment that says what nobody knows");
        }
        let place = if flags & PLACED == 0 {
            Place::Ring(at + payload_at(bytes))
        } else {
            Place::Invited(self.invited_at(tag, bytes as u64)?)
        };
        self.saw(Seen::decode(word(SEEN_AT)));
        Ok((tag, bytes, place, flags & AWAITS != 0))
    }

    /// The address at which the next bytes of the stream were invited.
    fn invited_at(&self, tag: u32, bytes: u64) -> Result<usize, &'static str> {
        let it = self.invited.filter(|it| it.tag == tag && self.lined_up + bytes <= it.end);
        let it = it.ok_or(UNINVITED)?;
        let skipped = usize::try_from(self.lined_up - it.from).unwrap_or(usize::MAX);
        Ok(it.address.wrapping_add(skipped))
    }

    /// The peer had seen these invitations.
    fn saw(&mut self, seen: Seen) {
        for (place, unseen) in self.unseen.iter_mut().enumerate() {
            *unseen = unseen.filter(|it| !seen.is_last(it.number, place));
        }
    }

    /// Whether somebody waits for bytes where they were invited.
    pub(in crate::rdma) fn is_inviting(&self) -> bool {
        let waiting = self.arrived.iter().map(|it| it.bytes as u64).sum::<u64>();
        let received = self.lined_up + self.consumed as u64 - waiting;
        self.invited.is_some_and(|it| received < it.end)
    }

    /// Nobody waits where the peer was invited, and it can write there no more.
    pub(in crate::rdma) const fn give_up(&mut self) {
        self.invited = None;
    }

    /// Whether the next bytes should be invited: the peer has asked, and there is room in the
    /// mailbox.
    pub(in crate::rdma) fn may_invite(&self) -> bool {
        let is_awaited = self.is_awaited && !self.is_inviting();
        is_awaited && self.arrived.is_empty() && self.next_place().is_some()
    }

    /// Where the next invitation goes in the mailbox, if it can.
    fn next_place(&self) -> Option<usize> {
        let place = place_of(self.invitations.wrapping_add(1));
        self.unseen[place].is_none().then_some(place)
    }

    /// Invites the next `bytes` bytes to `to`, by `path`: what to write to the peer, and in which
    /// place of its mailbox; nothing if there is none.
    pub(in crate::rdma) fn invite(
        &mut self,
        tag: u32,
        bytes: usize,
        to: Grant,
        path: usize,
    ) -> Option<(Invitation, usize)> {
        let (place, from) = (self.next_place()?, self.lined_up);
        let address = usize::try_from(to.address).ok()?;
        self.invitations = self.invitations.wrapping_add(1);
        let number = self.invitations;
        self.unseen[place] = Some(Unseen { number, path });
        self.invited = Some(Invited { tag, from, end: from + bytes as u64, address });
        self.is_awaited = false;
        Some((Invitation { number, tag, from, bytes: bytes as u64, to }, place))
    }

    /// What went by `path` is either seen or lost, and will not be written any more.
    pub(in crate::rdma) fn forget(&mut self, path: usize) {
        for place in &mut self.unseen {
            *place = place.filter(|it| it.path != path);
        }
    }

    /// What is at the front. Not if that lies where `invite` said: whoever began to wait for it
    /// there must go on so.
    pub(in crate::rdma) fn front(&self) -> Result<Option<Fragment<'_>>, &'static str> {
        let Some(front) = self.arrived.front() else { return Ok(None) };
        let Place::Ring(at) = front.place else { return Err(ELSEWHERE) };
        let bytes = self.ring.lend(at + self.consumed..at + front.bytes);
        Ok(Some(Fragment { tag: front.tag, bytes }))
    }

    /// The tag of the front, and how much of it lies at the front of `dst` because it was invited
    /// there, which is nothing under another `tag`; none if it is in the ring. Not if it was
    /// invited elsewhere.
    pub(in crate::rdma) fn placed(
        &self,
        tag: u32,
        dst: &[u8],
    ) -> Result<Option<(u32, usize)>, &'static str> {
        let Some(front) = self.arrived.front() else { return Ok(None) };
        let Place::Invited(at) = front.place else { return Ok(None) };
        if front.tag != tag {
            return Ok(Some((front.tag, 0)));
        }
        if dst.as_ptr().addr() != at.wrapping_add(self.consumed) {
            return Err(ELSEWHERE);
        }
        Ok(Some((tag, dst.len().min(front.bytes - self.consumed))))
    }

    /// Gives back the first `bytes` of the front; whether credit is due.
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
            self.unsaid_lines += front.lines;
            self.unsaid_fragments += 1;
        }
        self.owes()
    }

    /// Whether credit is due.
    pub(in crate::rdma) const fn owes(&self) -> bool {
        self.must_repeat
            || self.unsaid_lines >= CREDIT_LINES
            || self.unsaid_fragments >= CREDIT_FRAGMENTS
    }

    /// Lines to give credit for, in all.
    pub(in crate::rdma) const fn total(&self) -> u64 {
        self.given + self.unsaid_lines as u64
    }

    /// The peer will be told.
    pub(in crate::rdma) const fn said(&mut self) {
        self.given = self.total();
        self.has_given = true;
        self.busy -= self.unsaid_lines;
        self.fragments -= self.unsaid_fragments;
        (self.unsaid_lines, self.unsaid_fragments) = (0, 0);
        self.must_repeat = false;
    }

    /// What was said last may be lost.
    pub(in crate::rdma) const fn repeat(&mut self) {
        self.must_repeat = self.has_given;
    }

    /// What has arrived: all fragments before this one in order, and the others whose bits are set,
    /// counted from it.
    pub(in crate::rdma) fn state(&self) -> Heard {
        let ahead = (0..RDMA_CELLS).filter(|ahead| self.early[self.early_at(*ahead)].is_some());
        Heard { next: self.sequence, early: ahead.fold(0, |bits, ahead| bits | 1 << ahead) }
    }
}
