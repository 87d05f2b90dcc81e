//! The sends of a queue pair: fragments, credits, ready-to-receive messages and questions, and
//! their completion.

use std::io;
use std::time::{Duration, Instant};

use super::{Path, Phase};
use crate::rdma::registry::Loan;
use crate::rdma::ring::layout::{Immediate, LINE_BYTES};
use crate::rdma::ring::outbound::{Outbound, Ready};
use crate::rdma::sys::Put;

/// Longest payload in bytes that an announcement carries itself in networks that may reorder
/// packets (adaptive routing). A longer payload is written before its announcement, since devices
/// let only plain writes take any path.
const RDMA_ADAPTIVE_BYTES: usize = 8 * 1024;

impl Path {
    /// Returns whether a fragment can be written.
    pub(in crate::rdma) fn takes_fragments(&self) -> bool {
        self.is_usable() && self.sends.takes_fragments()
    }

    /// Returns whether credit can be given. A question may always be asked.
    pub(in crate::rdma) fn takes_credit(&self) -> bool {
        self.is_usable() && self.sends.takes_credit()
    }

    /// Writes a fragment of `lane` to the peer. A `loan` makes its payload zero-copy. `tells` makes
    /// the device signal the completion. Returns the number of the send.
    pub(in crate::rdma) fn write(
        &mut self,
        lane: &Outbound,
        ready: &Ready,
        loan: Option<&Loan>,
        tells: bool,
    ) -> io::Result<u32> {
        let image = lane.right(self.cable).ok_or(io::ErrorKind::PermissionDenied)?;
        let (at, bytes) = (ready.at + LINE_BYTES, ready.bytes.saturating_sub(LINE_BYTES));
        let lent = loan.map(|Loan { right, at }| (&**right, (*at, bytes)));
        // With adaptive routing the payload is a write of its own before that of the header, so
        // that its packets may overtake each other.
        let is_split = self.is_adaptive && bytes > RDMA_ADAPTIVE_BYTES;
        let lent = lent.or_else(|| is_split.then_some((image, (at, bytes))));
        let in_ring = || is_split.then(|| lane.target(self.cable, at));
        let placed = ready.placed.or_else(in_ring);
        let (to, remote_key) = lane.target(self.cable, ready.at);
        let range = (ready.at, if lent.is_some() { LINE_BYTES } else { ready.bytes });
        let put = Put { from: image, range, lent, to, remote_key, placed };
        let number = self.put(Some(put), ready.number, tells)?;
        self.sends.mark_fragment(tells, ready.bytes);
        Ok(number)
    }

    /// Counts bytes of the last fragment, whose completion the device signals.
    pub(in crate::rdma) const fn count(&mut self, bytes: u32) {
        self.sends.count(bytes);
    }

    /// The counted bytes that are under way.
    pub(in crate::rdma) const fn bytes_under_way(&self) -> u32 {
        self.sends.bytes_under_way()
    }

    /// Returns the counted bytes that are newly known to have arrived.
    pub(in crate::rdma) const fn take_done_bytes(&mut self) -> u32 {
        self.sends.take_done_bytes()
    }

    /// Sends credit.
    pub(in crate::rdma) fn give(&mut self, credit: Immediate) -> io::Result<()> {
        self.put(None, credit, false)?;
        Ok(())
    }

    /// Returns whether a ready-to-receive message can be written now.
    pub(in crate::rdma) fn takes_rtrs(&self) -> bool {
        self.is_usable() && self.sends.takes_rtrs() && self.can_send_rtr()
    }

    /// Returns whether the path can carry ready-to-receive messages at all.
    pub(in crate::rdma) fn can_send_rtr(&self) -> bool {
        self.pair.get().is_some_and(|qp| qp.can_write_inline(LINE_BYTES))
    }

    /// Writes a ready-to-receive message, of one or two lines, into the peer's mailbox.
    pub(in crate::rdma) fn write_rtr(
        &mut self,
        lines: &[u8],
        to: (u64, u32),
        number: Immediate,
    ) -> io::Result<()> {
        let next = self.sends.next(if lines.len() > LINE_BYTES { 2 } else { 1 }, false);
        let id = self.id.encode(Some(next.number));
        self.pair.qp_mut()?.write_inline(id, lines, to, number.encode(), next.tells)?;
        self.sends.post(next);
        Ok(())
    }

    /// Posts a write, if there is one, and the immediate that it brings. Returns the number of the
    /// send.
    fn put(&mut self, put: Option<Put<'_>>, number: Immediate, tells: bool) -> io::Result<u32> {
        let is_placed = put.is_some_and(|put| put.placed.is_some());
        let requests = if is_placed || put.is_some() && self.is_iwarp() { 2 } else { 1 };
        let next = self.sends.next(requests, tells);
        let id = self.id.encode(Some(next.number));
        self.pair.qp_mut()?.put(id, put, number.encode(), next.tells)?;
        self.sends.post(next);
        Ok(next.number)
    }

    /// Asks the peer's device whether all sends have arrived. The question is long while the path
    /// is proven with long packets.
    pub(super) fn question(&mut self) -> io::Result<()> {
        let target = self.handshake.theirs();
        let payload = self.proof.payload(&target).filter(|_| !self.life.is_usable());
        let requests = if payload.is_some() && self.pair.is_iwarp() { 2 } else { 1 };
        let next = self.sends.next(requests, true);
        self.pair.qp_mut()?.ask(self.id.encode(Some(next.number)), &target, payload)?;
        self.sends.post(next);
        if let Some(watch) = &mut self.watch {
            watch.asked(Instant::now());
        }
        Ok(())
    }

    /// Returns whether the peer's device has all fragments.
    pub(in crate::rdma) fn is_drained(&self) -> bool {
        self.has_ended() || self.sends.has_arrived()
    }

    /// Asks when the last fragment has arrived, unless that was asked already.
    pub(in crate::rdma) fn ask(&mut self) -> io::Result<()> {
        let is_asking = self.watch.as_ref().is_some_and(|watch| watch.is_asking());
        let may = self.sends.takes_questions() && !is_asking && !self.has_ended();
        if may && self.sends.must_ask() {
            self.sends.mark_asked();
            self.question()?;
        }
        Ok(())
    }

    /// Asks whether the peer's device answers. Returns the time of silence if a question is open
    /// already.
    pub(in crate::rdma) fn watch(&mut self) -> Result<io::Result<()>, Duration> {
        match &self.watch {
            Some(watch) if watch.is_asking() => Err(watch.silence()),
            _ => Ok(self.question()),
        }
    }

    /// Handles the completion of all sends up to this one, and maybe their arrival. Returns whether
    /// that proves the path.
    pub(in crate::rdma) fn done(&mut self, number: u32, has_arrived: bool) -> io::Result<bool> {
        self.sends.done(number);
        if let Some(watch) = &mut self.watch {
            if !has_arrived {
                return Ok(false);
            }
            watch.answered(Instant::now());
        }
        self.sends.answered(number);
        if self.is_usable() {
            self.life.acknowledge(self.sends.arrived_bytes());
        } else if self.phase() == Phase::Proving && self.proof.lengthen() {
            self.life.prove();
            self.question()?;
            return Ok(false);
        }
        Ok(self.life.proven())
    }
}
