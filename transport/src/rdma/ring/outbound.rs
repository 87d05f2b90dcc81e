//! The sending half of a link: the image of the ring in the peer's memory, and the fragments that
//! the peer has not consumed yet.
//!
//! The device reads the image. A line is written again only after the peer has given credit for it,
//! so nothing is lost that the device may have to repeat.
//!
//! Of a zero-copy (*lent*) fragment the image holds the header only. The payload lies in memory
//! that the caller leaves alone until the bytes are accepted, which is when the device has brought
//! them to the peer. If the path is lost before, the payload is copied into the image, whose room
//! was reserved, and goes on like any other.
//!
//! A long fragment goes directly to the receiver's memory after a ready-to-receive message. It also
//! reserves its room in both rings, and takes that room when it must be sent again.

use std::collections::VecDeque;

use ringfold_types::limits::{LINK_BYTES_MIN, RDMA_CELLS, RDMA_LEND_BYTES, RDMA_RING_BYTES};

use super::layout::{
    CREDIT_FRAGMENTS, CREDIT_LINES, FLAGS_AT, HEADER_BYTES, Immediate, LAPS_LINES, LINE_BYTES,
    Most, PLACED, RING_LINES, SEEN_AT, SPLINTER_LINES, WANTS_RTR, capacity, lines, payload_at,
};
use super::rtr::Rtr;
use super::rtr_state::RtrState;
use crate::rdma::message::{Arrivals, Grant};
use crate::rdma::sys::{Mr, Outbox};

/// The sending half of a link.
#[derive(Debug)]
pub(in crate::rdma) struct Outbound {
    lane: usize,
    grant: Grant,
    image: Outbox,
    /// The registrations that let devices read the image, by cable. Cables without one cannot.
    rights: Vec<Option<Mr>>,
    /// The sequence number of the next fragment, which is the number of all fragments.
    sequence: u64,
    /// The bytes of all fragments.
    sent: u64,
    /// The ready-to-receive messages that the sender has seen.
    rtr: RtrState,
    /// The number of the first fragment after the last lent message.
    message_from: u64,
    /// The line at which the next fragment begins, unless it does not fit.
    line: u32,
    /// The fragments without credit, oldest first.
    in_flight: VecDeque<Piece>,
    /// Their lines, skipped ones included.
    busy: u32,
    /// All lines that the peer ever gave credit for.
    credited: u64,
    /// Fragments in flight that went down with their path, and must be written again.
    lost: usize,
    /// The first fragment that was not reported as accepted, because it is lent or comes after a
    /// lent one.
    unaccepted: u64,
    /// The bytes from that fragment on.
    unaccepted_bytes: usize,
}

/// A fragment in the ring.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The lines of the fragment, and the lines that were skipped for it.
    lines: u32,
    bytes: usize,
    ready: Ready,
    /// The path that the fragment took. None if that path is gone and the fragment has not arrived.
    path: Option<usize>,
    payload: Payload,
}

/// The location of a fragment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    /// In the image.
    Image,
    /// In the caller's memory. The path is done with it when it is done with that send. The path
    /// never is if it refused the write.
    Lent(Option<u32>),
    /// The payload has arrived at the peer, and is not in the image.
    Arrived,
}

/// A fragment in the image that is to be written to the peer.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct Ready {
    /// The byte of the image at which the fragment begins.
    pub(in crate::rdma) at: usize,
    /// Bytes of the fragment with its header.
    pub(in crate::rdma) bytes: usize,
    pub(in crate::rdma) number: Immediate,
    /// The address of the payload in the receiver's memory, and its key. Without it the payload
    /// follows the header.
    pub(in crate::rdma) placed: Option<(u64, u32)>,
}

/// The way of a fragment.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct By {
    pub(in crate::rdma) path: usize,
    /// The cable of the path, if its device can write directly to the receiver's memory.
    pub(in crate::rdma) cable: Option<usize>,
    /// The most bytes of a write.
    pub(in crate::rdma) most: Most,
}

/// Room for a fragment.
struct Room {
    skipped: u32,
    bytes: usize,
}

impl Outbound {
    pub(in crate::rdma) fn new(
        lane: usize,
        grant: Grant,
        image: Outbox,
        rights: Vec<Option<Mr>>,
    ) -> Self {
        Self {
            lane,
            grant,
            image,
            rights,
            sequence: 0,
            sent: 0,
            rtr: RtrState::default(),
            message_from: 0,
            line: 0,
            in_flight: VecDeque::with_capacity(RDMA_CELLS),
            busy: 0,
            credited: 0,
            lost: 0,
            unaccepted: 0,
            unaccepted_bytes: 0,
        }
    }

    /// Takes a ready-to-receive message from that slot of the mailbox. A false one harms nobody but
    /// the receiver, whose memory it names.
    pub(in crate::rdma) fn take_rtr(&mut self, it: Rtr, slot: usize) {
        self.rtr.take_rtr(it, slot);
    }

    /// Returns whether a lent message, or the rest of it, is held back. It waits until a
    /// ready-to-receive message comes, or until the device is done with the fragments under way,
    /// which it signals. Neither takes long. It also waits for a credit that is due, because more
    /// bytes in the ring would only give a busy receiver more to copy. A receiver that has consumed
    /// the front of the message, and has not answered, wants the rest in memory of another kind.
    pub(in crate::rdma) fn is_kept_back(&self, tag: u32, cable: Option<usize>) -> bool {
        let is_lent = |it: &Piece| matches!(it.payload, Payload::Lent(_));
        let is_under_way = |it: &Piece| is_lent(it) && it.ready.placed.is_none();
        self.rtr.is_missing(tag, self.sent, cable)
            && self.first_in_flight() <= self.message_from
            && (self.unaccepted().any(is_under_way) || self.is_credit_due())
    }

    /// The number of the oldest fragment in flight.
    fn first_in_flight(&self) -> u64 {
        self.sequence - self.in_flight.len() as u64
    }

    /// Returns whether the receiver gives credit as soon as it has consumed all fragments.
    fn is_credit_due(&self) -> bool {
        self.busy >= CREDIT_LINES || self.in_flight.len() >= CREDIT_FRAGMENTS as usize
    }

    /// Returns whether no byte of a message is under way, and the peer was asked where it wants the
    /// next ones.
    pub(in crate::rdma) const fn is_asking(&self) -> bool {
        self.unaccepted_bytes == 0 && self.rtr.is_asking()
    }

    /// Returns whether to wait for the answer before a message begins or goes on, while nothing is
    /// under way. The answer is under way if the peer waits for the message. So the wait is short,
    /// and none if the caller is not patient, unless a credit is due and ends it.
    pub(in crate::rdma) fn waits_for_answer(
        &mut self,
        tag: u32,
        cable: Option<usize>,
        is_patient: bool,
    ) -> bool {
        let is_kept_back = cable.is_some() && self.is_kept_back(tag, cable);
        let may_wait = cable.is_some() && self.is_asking();
        is_kept_back || may_wait && self.rtr.waits(tag, self.sent, is_patient)
    }

    /// Notes that all of a lent message is under way.
    pub(in crate::rdma) fn end_message(&mut self) {
        self.message_from = self.sequence;
        self.rtr.end_message();
    }

    /// Puts as much of `bytes` (not empty) as fits one fragment into the image, or only its header
    /// if it `is_lent`. Returns the number of bytes, and the fragment to write. The bytes are not
    /// accepted before `accept` reports them.
    pub(in crate::rdma) fn push(
        &mut self,
        tag: u32,
        bytes: &[u8],
        by: By,
        is_lent: bool,
    ) -> Option<(usize, Ready)> {
        let wanted = |direct: u64| {
            let direct = usize::try_from(direct).unwrap_or(usize::MAX);
            // The rest must begin at an element.
            if bytes.len() <= direct.min(by.most.direct) {
                bytes.len()
            } else {
                whole(direct.min(by.most.direct))
            }
        };
        let direct = self.rtr.target(tag, self.sent, by.cable).filter(|_| is_lent);
        let direct = direct.map(|it| (wanted(it.bytes), (it.address, it.key)));
        let (wanted, placed) = match direct.filter(|(bytes, _)| *bytes >= RDMA_LEND_BYTES) {
            Some((bytes, to)) => (bytes, Some(to)),
            None => (bytes.len().min(by.most.by_ring), None),
        };
        // A rest that is too short for a direct write would be copied at both ends.
        let splinter = if placed.is_some() { bytes.len() - RDMA_LEND_BYTES } else { wanted };
        let room = self.room(wanted, whole(splinter))?;
        let begin = if room.skipped > 0 { 0 } else { self.line };
        let (at, count) = (begin as usize * LINE_BYTES, lines(room.bytes));
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&tag.to_le_bytes());
        let length = u32::try_from(room.bytes).unwrap_or(u32::MAX);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        let is_asking = self.rtr.asks(bytes.len(), is_lent);
        let is_kept_back = is_lent && is_asking && bytes.len() - room.bytes >= RDMA_LEND_BYTES;
        let flags = [(placed.is_some(), PLACED), (is_asking, WANTS_RTR)];
        let flags: u32 = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        header[FLAGS_AT..SEEN_AT].copy_from_slice(&flags.to_le_bytes());
        header[SEEN_AT..].copy_from_slice(&self.rtr.seen().encode().to_le_bytes());
        self.image.write(at, &header);
        if !is_lent {
            self.image.write(at + payload_at(room.bytes), &bytes[..room.bytes]);
        }
        let (lane, sequence) = (self.lane, self.sequence.to_le_bytes()[0]);
        let number = Immediate::Fragment { lane, sequence, lines: count };
        self.sequence += 1;
        self.sent += room.bytes as u64;
        self.line = (begin + count) % RING_LINES;
        self.busy += room.skipped + count;
        let ready = Ready { at, bytes: payload_at(room.bytes) + room.bytes, number, placed };
        self.rtr.note(is_kept_back, placed.is_some());
        let (lines, bytes) = (room.skipped + count, room.bytes);
        let payload = if is_lent { Payload::Lent(None) } else { Payload::Image };
        self.in_flight.push_back(Piece { lines, bytes, ready, path: Some(by.path), payload });
        self.unaccepted_bytes += bytes;
        Some((bytes, ready))
    }

    /// Notes that the last fragment is lent, and that its path is done with it when it is done with
    /// the send `posted`.
    pub(in crate::rdma) fn lent(&mut self, posted: u32) {
        if let Some(Piece { payload, .. }) = self.in_flight.back_mut() {
            *payload = Payload::Lent(Some(posted));
        }
    }

    /// Returns the number of bytes that are newly accepted, from the front of those that were
    /// pushed.
    pub(in crate::rdma) fn accept(&mut self) -> usize {
        if self.unaccepted_bytes == 0 {
            return 0;
        }
        let is_done = |piece: &&Piece| !matches!(piece.payload, Payload::Lent(_));
        let waiting = self.unaccepted().skip_while(is_done);
        let (fragments, left) =
            waiting.fold((0, 0), |(count, bytes), piece| (count + 1, bytes + piece.bytes));
        self.unaccepted = self.sequence - fragments;
        std::mem::replace(&mut self.unaccepted_bytes, left) - left
    }

    /// Gives up reporting accepted bytes.
    pub(in crate::rdma) const fn give_up(&mut self) {
        (self.unaccepted, self.unaccepted_bytes) = (self.sequence, 0);
    }

    /// Bytes that were pushed, and are not yet reported as accepted.
    pub(in crate::rdma) const fn unaccepted_bytes(&self) -> usize {
        self.unaccepted_bytes
    }

    /// The fragments in flight that are not yet reported as accepted, and those after them.
    fn unaccepted(&self) -> impl Iterator<Item = &Piece> {
        let told = self.unaccepted.saturating_sub(self.first_in_flight());
        let told = usize::try_from(told).unwrap_or(usize::MAX);
        self.in_flight.iter().skip(told)
    }

    /// The paths that may be reading the caller's memory.
    pub(in crate::rdma) fn borrowers(&self) -> impl Iterator<Item = usize> {
        let lent =
            self.unaccepted().filter(|piece| matches!(piece.payload, Payload::Lent(Some(_))));
        lent.filter_map(|piece| piece.path)
    }

    /// Notes that a path is done with all sends up to `done`.
    pub(in crate::rdma) fn done(&mut self, path: usize, done: u32) {
        if self.unaccepted_bytes == 0 {
            return;
        }
        for piece in self.in_flight.iter_mut().filter(|piece| piece.path == Some(path)) {
            if let Payload::Lent(Some(posted)) = piece.payload
                && done.wrapping_sub(posted) < u32::MAX / 2
            {
                piece.payload = Payload::Arrived;
            }
        }
    }

    /// Notes that the peer wants nothing more.
    pub(in crate::rdma) fn all_arrived(&mut self) {
        for piece in &mut self.in_flight {
            if matches!(piece.payload, Payload::Lent(_)) {
                piece.payload = Payload::Arrived;
            }
        }
    }

    /// Finds room for a payload of `wanted` bytes, or for a part of it of up to `splinter` bytes.
    fn room(&self, wanted: usize, splinter: usize) -> Option<Room> {
        if self.in_flight.len() >= RDMA_CELLS {
            return None;
        }
        let (free, to_end) = (RING_LINES - self.busy, RING_LINES - self.line);
        let fit = |room: u32| match room {
            _ if lines(wanted) <= room => Some(wanted),
            SPLINTER_LINES.. => Some(capacity(room).min(splinter)).filter(|bytes| *bytes > 0),
            _ => None,
        };
        if let Some(bytes) = fit(free.min(to_end)) {
            return Some(Room { skipped: 0, bytes });
        }
        let bytes = fit(free.checked_sub(to_end)?)?;
        Some(Room { skipped: to_end, bytes })
    }

    /// Returns whether the ring holds `LINK_BYTES_MIN` bytes that the peer has not begun to
    /// consume, however late it gives credit. Tiny messages can use up the fragments before that.
    pub(in crate::rdma) fn promise_is_kept(&self) -> bool {
        let (mut fragments, mut lines, mut surely) = (0, 0, 0);
        for piece in &self.in_flight {
            // The peer may have consumed these without credit, or may have begun to.
            let is_unsure = fragments < CREDIT_FRAGMENTS && lines < CREDIT_LINES;
            if !is_unsure {
                surely += piece.bytes;
            }
            fragments += 1;
            lines += piece.lines;
        }
        surely >= LINK_BYTES_MIN
    }

    /// Takes the peer's credit for all lines up to `total`, modulo `LAPS_LINES`.
    pub(in crate::rdma) fn credit(&mut self, total: u32) -> Result<(), &'static str> {
        let [a, b, c, d, ..] = self.credited.to_le_bytes();
        let lines = total.wrapping_sub(u32::from_le_bytes([a, b, c, d])) % LAPS_LINES;
        // An older total was overtaken by a later one.
        let lines = if lines > LAPS_LINES / 2 { 0 } else { lines };
        self.credit_to(self.credited + u64::from(lines))
    }

    /// Takes the peer's credit for all lines up to `total`, counted without end.
    pub(in crate::rdma) fn credit_to(&mut self, total: u64) -> Result<(), &'static str> {
        let mut lines = total.saturating_sub(self.credited);
        self.credited += lines;
        while lines > 0 {
            match self.in_flight.pop_front() {
                Some(piece) if u64::from(piece.lines) <= lines => {
                    lines -= u64::from(piece.lines);
                    self.busy -= piece.lines;
                    self.lost -= usize::from(piece.path.is_none());
                }
                _ => return Err("credit for lines that were never sent"),
            }
        }
        Ok(())
    }

    /// Copies lent fragments that went down with their path into the image. `bytes` holds
    /// everything that is not yet reported as accepted.
    pub(in crate::rdma) fn take_back(&mut self, bytes: &[u8]) {
        if self.lost == 0 || self.unaccepted_bytes == 0 {
            return;
        }
        // Fragments that are no longer in flight are at the front.
        let in_flight: usize = self.unaccepted().map(|piece| piece.bytes).sum();
        let mut at = self.unaccepted_bytes - in_flight;
        let first = self.in_flight.len() - self.unaccepted().count();
        for piece in self.in_flight.iter_mut().skip(first) {
            let payload = bytes.get(at..at + piece.bytes);
            at += piece.bytes;
            if piece.path.is_none()
                && let (Payload::Lent(_), Some(payload)) = (piece.payload, payload)
            {
                self.image.write(piece.ready.at + payload_at(piece.bytes), payload);
                piece.payload = Payload::Image;
            }
        }
    }

    /// Takes the peer's report of arrivals by `path`, which is gone.
    pub(in crate::rdma) fn lose(
        &mut self,
        path: usize,
        arrivals: Arrivals,
    ) -> Result<(), &'static str> {
        if arrivals.next > self.sequence {
            return Err("fragments have arrived that were never sent");
        }
        let first = self.first_in_flight();
        for (piece, at) in self.in_flight.iter_mut().zip(first..) {
            let has_arrived = match at.checked_sub(arrivals.next) {
                None => true,
                Some(ahead) => ahead < 64 && arrivals.early >> ahead & 1 != 0,
            };
            if piece.path != Some(path) {
                continue;
            }
            match (has_arrived, piece.payload) {
                (true, Payload::Lent(_)) => piece.payload = Payload::Arrived,
                (true, _) => {}
                (false, Payload::Arrived) => {
                    return Err("fragments have not arrived that the device reported as arrived");
                }
                (false, _) => {
                    piece.path = None;
                    self.lost += 1;
                    if piece.ready.placed.take().is_some() {
                        // Its own room in the ring is reserved. The repetition does not ask.
                        self.rtr.unask();
                        self.image.write(piece.ready.at + FLAGS_AT, &[0]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether some fragment in flight took `path`.
    pub(in crate::rdma) fn waits_for(&self, path: usize) -> bool {
        self.in_flight.iter().any(|piece| piece.path == Some(path))
    }

    /// A fragment in the image that must be written again, and its index among those in flight.
    pub(in crate::rdma) fn lost(&self) -> Option<(usize, Ready)> {
        if self.lost == 0 {
            return None;
        }
        let is_lost = |it: &Piece| it.path.is_none() && it.payload == Payload::Image;
        let place = self.in_flight.iter().position(is_lost)?;
        Some((place, self.in_flight[place].ready))
    }

    /// Notes that the fragment is under way again.
    pub(in crate::rdma) fn repeated(&mut self, place: usize, path: usize) {
        self.in_flight[place].path = Some(path);
        self.lost -= 1;
    }

    /// The number of all fragments.
    pub(in crate::rdma) const fn fragments(&self) -> u64 {
        self.sequence
    }

    pub(in crate::rdma) fn right(&self, cable: usize) -> Option<&Mr> {
        self.rights[cable].as_ref()
    }

    /// The bytes of the image that a device reads.
    pub(in crate::rdma) fn image(&self, at: usize, bytes: usize) -> &[u8] {
        self.image.lend(at..at + bytes)
    }

    /// The address of byte `at` of the ring at the peer, and the key to it.
    pub(in crate::rdma) fn target(&self, cable: usize, at: usize) -> (u64, u32) {
        debug_assert!(at < RDMA_RING_BYTES);
        (self.grant.address.wrapping_add(at as u64), self.grant.keys[cable])
    }
}

/// Rounds down to whole lines.
const fn whole(bytes: usize) -> usize {
    bytes - bytes % LINE_BYTES
}
