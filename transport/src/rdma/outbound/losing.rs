//! What of a ring went down with a path: it lies in the image, or is brought there, and is written
//! again by another way.

use super::{Outbound, Payload, Piece, Ready};
use crate::rdma::geometry::{FLAGS_AT, payload_at};
use crate::rdma::message::Heard;

impl Outbound {
    /// Takes what was lent and went down with its path from `bytes`, which is all that is untold,
    /// into the image.
    pub(in crate::rdma) fn take_back(&mut self, bytes: &[u8]) {
        if self.lost == 0 || self.untold_bytes == 0 {
            return;
        }
        // Those that are no longer in flight are at the front.
        let in_flight: usize = self.untold().map(|piece| piece.bytes).sum();
        let mut at = self.untold_bytes - in_flight;
        let first = self.in_flight.len() - self.untold().count();
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

    /// Takes the peer's word on what has arrived of all that took `path`, which is gone.
    pub(in crate::rdma) fn lose(&mut self, path: usize, heard: Heard) -> Result<(), &'static str> {
        if heard.next > self.sequence {
            return Err("fragments have arrived that were never sent");
        }
        let first = self.sequence - self.in_flight.len() as u64;
        for (piece, at) in self.in_flight.iter_mut().zip(first..) {
            let has_arrived = match at.checked_sub(heard.next) {
                None => true,
                Some(ahead) => ahead < 64 && heard.early >> ahead & 1 != 0,
            };
            if piece.path != Some(path) {
                continue;
            }
            match (has_arrived, piece.payload) {
                (true, Payload::Lent(_)) => piece.payload = Payload::Arrived,
                (true, _) => {}
                (false, Payload::Arrived) => {
                    return Err("fragments have not arrived of which its device said so");
                }
                (false, _) => {
                    piece.path = None;
                    self.lost += 1;
                    // Whichever way it goes now, the image has its header.
                    piece.ready.number = piece.ready.number.with_header();
                    if piece.ready.placed.take().is_some() {
                        // Its own room in the ring is surely there. It does not ask any more.
                        self.has_asked = false;
                        self.image.write(piece.ready.at + FLAGS_AT, &[0]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether it matters what has arrived by `path`.
    pub(in crate::rdma) fn waits_for(&self, path: usize) -> bool {
        self.in_flight.iter().any(|piece| piece.path == Some(path))
    }

    /// A fragment in the image that must be written again, and its place among those in flight.
    pub(in crate::rdma) fn lost(&self) -> Option<(usize, Ready)> {
        if self.lost == 0 {
            return None;
        }
        let is_lost = |it: &Piece| it.path.is_none() && it.payload == Payload::Image;
        let place = self.in_flight.iter().position(is_lost)?;
        Some((place, self.in_flight[place].ready))
    }

    /// It is on its way again.
    pub(in crate::rdma) fn repeated(&mut self, place: usize, path: usize) {
        self.in_flight[place].path = Some(path);
        self.lost -= 1;
    }
}
