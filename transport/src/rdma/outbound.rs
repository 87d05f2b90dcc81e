//! The sending half of a link: the image of the ring in the peer's memory, and what of it the peer
//! is not done with.
//!
//! The image is what the device reads. A line is written again only when the peer has said that it
//! is done with what was there, so nothing that the device may yet have to repeat gets lost.

use std::collections::VecDeque;

use ringfold_types::limits::{LINK_BYTES_MIN, RDMA_CELLS, RDMA_PIECE_BYTES, RDMA_RING_BYTES};

use super::geometry::{
    CREDIT_FRAGMENTS, CREDIT_LINES, HEADER_BYTES, LAPS_LINES, LINE_BYTES, Number, RING_LINES,
    SPLINTER_LINES, capacity, lines, payload_at,
};
use super::message::{Grant, Heard};
use super::sys::{Mr, Outbox};

/// See the module's head.
#[derive(Debug)]
pub(super) struct Outbound {
    lane: usize,
    grant: Grant,
    image: Outbox,
    /// The right to read the image, by cable; none where it may not be.
    rights: Vec<Option<Mr>>,
    /// Of the next fragment; all that there were.
    sequence: u64,
    /// The line at which it begins, unless it does not fit.
    line: u32,
    /// What the peer is not done with, oldest first.
    in_flight: VecDeque<Piece>,
    /// Its lines, skipped ones included.
    busy: u32,
    /// All lines that the peer ever gave credit for.
    credited: u64,
    /// Fragments in flight that went down with their path, and must be written again.
    lost: usize,
}

/// A fragment in the ring.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// With those that were skipped for it.
    lines: u32,
    bytes: usize,
    ready: Ready,
    /// The path that it took; none if that is gone and it has not arrived.
    path: Option<usize>,
}

/// A fragment that lies in the image and is to be written to the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// Where it lies, and how long it is with its header.
    pub(super) at: usize,
    pub(super) bytes: usize,
    pub(super) number: Number,
}

/// Where a fragment fits.
struct Room {
    skipped: u32,
    bytes: usize,
}

impl Outbound {
    pub(super) fn new(lane: usize, grant: Grant, image: Outbox, rights: Vec<Option<Mr>>) -> Self {
        Self {
            lane,
            grant,
            image,
            rights,
            sequence: 0,
            line: 0,
            in_flight: VecDeque::with_capacity(RDMA_CELLS),
            busy: 0,
            credited: 0,
            lost: 0,
        }
    }

    /// Puts as much of `bytes` (not empty) as fits one fragment into the image. How much that was,
    /// and what to write to the peer by `path`.
    pub(super) fn push(&mut self, tag: u32, bytes: &[u8], path: usize) -> Option<(usize, Ready)> {
        let room = self.room(bytes.len().min(RDMA_PIECE_BYTES))?;
        let begin = if room.skipped > 0 { 0 } else { self.line };
        let (at, count) = (begin as usize * LINE_BYTES, lines(room.bytes));
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&tag.to_le_bytes());
        let length = u32::try_from(room.bytes).unwrap_or(u32::MAX);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        self.image.write(at, &header);
        self.image.write(at + payload_at(room.bytes), &bytes[..room.bytes]);
        let sequence = self.sequence.to_le_bytes()[0];
        let number = Number::Fragment { lane: self.lane, sequence, lines: count };
        self.sequence += 1;
        self.line = (begin + count) % RING_LINES;
        self.busy += room.skipped + count;
        let ready = Ready { at, bytes: payload_at(room.bytes) + room.bytes, number };
        let (lines, bytes) = (room.skipped + count, room.bytes);
        self.in_flight.push_back(Piece { lines, bytes, ready, path: Some(path) });
        Some((bytes, ready))
    }

    /// Where a payload of `wanted` bytes fits, or some of it.
    fn room(&self, wanted: usize) -> Option<Room> {
        if self.in_flight.len() >= RDMA_CELLS {
            return None;
        }
        let (free, to_end) = (RING_LINES - self.busy, RING_LINES - self.line);
        let fit = |room: u32| match room {
            _ if lines(wanted) <= room => Some(wanted),
            SPLINTER_LINES.. => Some(capacity(room)),
            _ => None,
        };
        if let Some(bytes) = fit(free.min(to_end)) {
            return Some(Room { skipped: 0, bytes });
        }
        let bytes = fit(free.checked_sub(to_end)?)?;
        Some(Room { skipped: to_end, bytes })
    }

    /// Whether the ring holds `LINK_BYTES_MIN` bytes that the peer has not even begun to consume,
    /// however late it says what it is done with. Tiny messages can use up the fragments before.
    pub(super) fn promise_is_kept(&self) -> bool {
        let (mut fragments, mut lines, mut surely) = (0, 0, 0);
        for piece in &self.in_flight {
            // What it may be done with and not have said, and what it may have begun.
            let is_unsure = fragments < CREDIT_FRAGMENTS && lines < CREDIT_LINES;
            if !is_unsure {
                surely += piece.bytes;
            }
            fragments += 1;
            lines += piece.lines;
        }
        surely >= LINK_BYTES_MIN
    }

    /// Takes the peer's word that it is done with so many lines in all, modulo `LAPS_LINES`.
    pub(super) fn credit(&mut self, total: u32) -> Result<(), &'static str> {
        let [a, b, c, d, ..] = self.credited.to_le_bytes();
        let lines = total.wrapping_sub(u32::from_le_bytes([a, b, c, d])) % LAPS_LINES;
        // Or else it was overtaken by a later one.
        let lines = if lines > LAPS_LINES / 2 { 0 } else { lines };
        self.credit_to(self.credited + u64::from(lines))
    }

    /// Likewise, without end.
    pub(super) fn credit_to(&mut self, total: u64) -> Result<(), &'static str> {
        let mut lines = total.saturating_sub(self.credited);
        self.credited += lines;
        while lines > 0 {
            match self.in_flight.pop_front() {
                Some(piece) if u64::from(piece.lines) <= lines => {
                    lines -= u64::from(piece.lines);
                    self.busy -= piece.lines;
                    self.lost -= usize::from(piece.path.is_none());
                }
                _ => return Err("credit for what was never sent"),
            }
        }
        Ok(())
    }

    /// Fragments that there ever were.
    pub(super) const fn fragments(&self) -> u64 {
        self.sequence
    }

    /// Takes the peer's word on what has arrived of all that took `path`, which is gone.
    pub(super) fn lose(&mut self, path: usize, heard: Heard) -> Result<(), &'static str> {
        if heard.next > self.sequence {
            return Err("fragments have arrived that were never sent");
        }
        let first = self.sequence - self.in_flight.len() as u64;
        for (piece, at) in self.in_flight.iter_mut().zip(first..) {
            let has_arrived = match at.checked_sub(heard.next) {
                None => true,
                Some(ahead) => ahead < 64 && heard.early >> ahead & 1 != 0,
            };
            if piece.path == Some(path) && !has_arrived {
                piece.path = None;
                self.lost += 1;
            }
        }
        Ok(())
    }

    /// Whether it matters what has arrived by `path`.
    pub(super) fn waits_for(&self, path: usize) -> bool {
        self.in_flight.iter().any(|piece| piece.path == Some(path))
    }

    /// A fragment that must be written again, and its place among those in flight.
    pub(super) fn lost(&self) -> Option<(usize, Ready)> {
        if self.lost == 0 {
            return None;
        }
        let (place, piece) = self.in_flight.iter().enumerate().find(|it| it.1.path.is_none())?;
        Some((place, piece.ready))
    }

    /// It is on its way again.
    pub(super) fn repeated(&mut self, place: usize, path: usize) {
        self.in_flight[place].path = Some(path);
        self.lost -= 1;
    }

    pub(super) fn right(&self, cable: usize) -> Option<&Mr> {
        self.rights[cable].as_ref()
    }

    /// What a device reads.
    pub(super) fn image(&self, at: usize, bytes: usize) -> &[u8] {
        self.image.lend(at..at + bytes)
    }

    /// Where byte `at` of the ring is for the peer, and the key to it.
    pub(super) fn target(&self, cable: usize, at: usize) -> (u64, u32) {
        debug_assert!(at < RDMA_RING_BYTES);
        (self.grant.address.wrapping_add(at as u64), self.grant.keys[cable])
    }
}
