//! Fragments, credits, invitations and questions by a queue pair; and how far the device is with
//! them.

use std::io;
use std::time::{Duration, Instant};

use ringfold_types::limits::RDMA_ADAPTIVE_BYTES;

use super::Path;
use crate::rdma::registry::Loan;
use crate::rdma::ring::geometry::{LINE_BYTES, Number};
use crate::rdma::ring::outbound::{Outbound, Ready};
use crate::rdma::sys::Put;

impl Path {
    /// Whether a fragment can be written.
    pub(in crate::rdma) fn takes_fragments(&self) -> bool {
        self.is_usable() && self.sends.takes_fragments()
    }

    /// Whether credit can be given. A question may always be asked.
    pub(in crate::rdma) fn takes_credit(&self) -> bool {
        self.is_usable() && self.sends.takes_credit()
    }

    /// Writes a fragment of `lane` to the peer, whose payload may be lent. The device `tells` when
    /// it is done, or need not. Which of the sends it is.
    pub(in crate::rdma) fn write(
        &mut self,
        lane: &Outbound,
        ready: &Ready,
        loan: Option<Loan<'_>>,
        tells: bool,
    ) -> io::Result<u32> {
        let image = lane.right(self.cable).ok_or(io::ErrorKind::PermissionDenied)?;
        let (at, bytes) = (ready.at + LINE_BYTES, ready.bytes.saturating_sub(LINE_BYTES));
        let lent = loan.map(|Loan { right, at }| (right, (at, bytes)));
        // A split payload may go packet by packet: a write of its own, before that of the header.
        let is_split = self.is_adaptive && bytes > RDMA_ADAPTIVE_BYTES;
        let lent = lent.or_else(|| is_split.then_some((image, (at, bytes))));
        let in_ring = || is_split.then(|| lane.target(self.cable, at));
        let placed = ready.placed.or_else(in_ring);
        let (to, remote_key) = lane.target(self.cable, ready.at);
        let range = (ready.at, if lent.is_some() { LINE_BYTES } else { ready.bytes });
        let put = Put { from: image, range, lent, to, remote_key, placed };
        let number = self.put(Some(put), ready.number, tells)?;
        self.sends.mark_fragment(tells);
        Ok(number)
    }

    /// Gives credit.
    pub(in crate::rdma) fn give(&mut self, credit: Number) -> io::Result<()> {
        self.put(None, credit, false)?;
        Ok(())
    }

    /// Whether the peer can be invited by it,
    pub(in crate::rdma) fn takes_invitations(&self) -> bool {
        self.is_usable() && self.sends.takes_invitations() && self.can_invite()
    }

    /// be it not now,
    pub(in crate::rdma) fn can_invite(&self) -> bool {
        self.pair.get().is_some_and(|qp| qp.can_tell(LINE_BYTES))
    }

    /// and invites it, by one or two lines in its mailbox.
    pub(in crate::rdma) fn invite(
        &mut self,
        lines: &[u8],
        to: (u64, u32),
        number: Number,
    ) -> io::Result<()> {
        let next = self.sends.next(if lines.len() > LINE_BYTES { 2 } else { 1 }, false);
        let id = self.id.encode(Some(next.number));
        self.pair.qp_mut()?.tell(id, lines, to, number.encode(), next.tells)?;
        self.sends.post(next);
        Ok(())
    }

    /// Posts a write, if there is one, and the number that it brings; which of the sends it is.
    fn put(&mut self, put: Option<Put<'_>>, number: Number, tells: bool) -> io::Result<u32> {
        let is_placed = put.is_some_and(|put| put.placed.is_some());
        let requests = if is_placed || put.is_some() && self.is_iwarp() { 2 } else { 1 };
        let next = self.sends.next(requests, tells);
        let id = self.id.encode(Some(next.number));
        self.pair.qp_mut()?.put(id, put, number.encode(), next.tells)?;
        self.sends.post(next);
        Ok(next.number)
    }

    /// Asks the peer's device whether all has arrived.
    pub(super) fn question(&mut self) -> io::Result<()> {
        let next = self.sends.next(1, true);
        let (id, target) = (self.id.encode(Some(next.number)), self.handshake.theirs());
        self.pair.qp_mut()?.ask(id, &target)?;
        self.sends.post(next);
        if let Some(watch) = &mut self.watch {
            watch.asked(Instant::now());
        }
        Ok(())
    }

    /// Whether the peer's device has all fragments.
    pub(in crate::rdma) fn is_drained(&self) -> bool {
        self.has_ended() || self.sends.has_arrived()
    }

    /// Asks the device to say when the last fragment is done, unless it was asked.
    pub(in crate::rdma) fn ask(&mut self) -> io::Result<()> {
        let is_asking = self.watch.as_ref().is_some_and(|watch| watch.is_asking());
        let may = self.sends.takes_questions() && !is_asking && !self.has_ended();
        if may && self.sends.must_ask() {
            self.sends.mark_asked();
            self.question()?;
        }
        Ok(())
    }

    /// Asks whether the peer's device is there; or says how long it has not answered.
    pub(in crate::rdma) fn watch(&mut self) -> Result<io::Result<()>, Duration> {
        match &self.watch {
            Some(watch) if watch.is_asking() => Err(watch.silence()),
            _ => Ok(self.question()),
        }
    }

    /// The device says that it is done with all sends up to this one, and maybe that they have
    /// arrived. Whether that proves the path.
    pub(in crate::rdma) fn done(&mut self, number: u32, has_arrived: bool) -> bool {
        self.sends.done(number);
        if let Some(watch) = &mut self.watch {
            if !has_arrived {
                return false;
            }
            watch.answered(Instant::now());
        }
        self.sends.answered(number);
        self.life.proven()
    }
}
