//! What goes by a queue pair: fragments, credits, invitations and questions; and how far the device
//! is with them.

use std::io;
use std::time::Instant;

use ringfold_types::limits::RDMA_ADAPTIVE_BYTES;

use super::{Path, SENDS, SIGNAL_EVERY, Stage};
use crate::rdma::geometry::{LINE_BYTES, Number};
use crate::rdma::outbound::{Outbound, Ready};
use crate::rdma::registry::Loan;
use crate::rdma::sys::{Put, Qp};

/// Sends that fragments leave to credits.
const RESERVED: u32 = 8;

impl Path {
    pub(super) fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    /// Whether a fragment can be written.
    pub(in crate::rdma) fn takes_fragments(&self) -> bool {
        self.is_usable() && self.under_way() < SENDS - RESERVED
    }

    /// Whether credit can be given. A question may always be asked.
    pub(in crate::rdma) fn takes_credit(&self) -> bool {
        self.is_usable() && self.under_way() < SENDS - 1
    }

    /// How long the payload of a fragment without a header may be, that brings the number itself.
    pub(in crate::rdma) fn bare_most(&self) -> usize {
        match self.is_adaptive {
            _ if self.is_iwarp() => 0,
            true => RDMA_ADAPTIVE_BYTES,
            false => usize::MAX,
        }
    }

    /// Writes a fragment of `lane` to the peer, of which the payload may be lent, and then only
    /// once `ring` is called; the device `tells` when it is done, or need not. Which of the sends
    /// it is.
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
        let payload_to = || ready.placed.unwrap_or_else(|| lane.target(self.cable, at));
        let put = if let Number::Bare { .. } = ready.number {
            let (from, range) = lent.unwrap_or((image, (at, bytes)));
            let (to, remote_key) = payload_to();
            Put { from, range, lent: None, to, remote_key, placed: None }
        } else {
            let is_split = self.is_adaptive && bytes > RDMA_ADAPTIVE_BYTES;
            let lent = lent.or_else(|| is_split.then_some((image, (at, bytes))));
            let placed = if is_split { Some(payload_to()) } else { ready.placed };
            let (to, remote_key) = lane.target(self.cable, ready.at);
            let range = (ready.at, if lent.is_some() { LINE_BYTES } else { ready.bytes });
            Put { from: image, range, lent, to, remote_key, placed }
        };
        let was_idle = self.under_way() == 0;
        self.gather(Some(put), ready.number, tells)?;
        self.last_fragment = self.posted;
        if tells {
            self.asked = self.posted;
        }
        // Who lends waits for the completion anyway, and polls; but no NIC should idle.
        if loan.is_none() || was_idle && !self.qp()?.is_soft() {
            self.ring()?;
        }
        Ok(self.posted)
    }

    /// Gives credit.
    pub(in crate::rdma) fn give(&mut self, credit: Number) -> io::Result<()> {
        self.gather(None, credit, false)?;
        self.ring()
    }

    /// Whether `ring` would post something.
    pub(in crate::rdma) fn has_gathered(&self) -> bool {
        self.qp.as_ref().is_some_and(Qp::has_gathered)
    }

    /// Lets the device have what was gathered.
    pub(in crate::rdma) fn ring(&mut self) -> io::Result<()> {
        self.qp()?.ring()
    }

    /// Whether the peer can be invited by it,
    pub(in crate::rdma) fn takes_invitations(&self) -> bool {
        self.is_usable() && self.under_way() < SENDS - 2 && self.can_invite()
    }

    /// be it not now,
    pub(in crate::rdma) fn can_invite(&self) -> bool {
        self.qp.as_ref().is_some_and(|qp| qp.can_tell(LINE_BYTES))
    }

    /// and invites it, by one or two lines in its mailbox, once `ring` is called.
    pub(in crate::rdma) fn invite(
        &mut self,
        lines: &[u8],
        to: (u64, u32),
        number: Number,
    ) -> io::Result<()> {
        let requests = if lines.len() > LINE_BYTES { 2 } else { 1 };
        let posted = self.posted.wrapping_add(requests);
        let tells = posted / SIGNAL_EVERY != self.posted / SIGNAL_EVERY;
        let id = self.id.encode(Some(posted));
        self.qp()?.tell(id, lines, to, number.encode(), tells)?;
        self.posted = posted;
        Ok(())
    }

    fn gather(&mut self, put: Option<Put<'_>>, number: Number, tells: bool) -> io::Result<()> {
        let is_placed = put.is_some_and(|put| put.placed.is_some());
        let requests = if is_placed || put.is_some() && self.is_iwarp() { 2 } else { 1 };
        let posted = self.posted.wrapping_add(requests);
        let tells = tells || posted / SIGNAL_EVERY != self.posted / SIGNAL_EVERY;
        let id = self.id.encode(Some(posted));
        self.qp()?.put(id, put, number.encode(), tells)?;
        self.posted = posted;
        Ok(())
    }

    /// Asks the peer's device whether all has arrived.
    pub(super) fn question(&mut self) -> io::Result<()> {
        let posted = self.posted.wrapping_add(1);
        let (id, target) = (self.id.encode(Some(posted)), self.theirs.unwrap_or_default());
        self.qp()?.ask(id, &target)?;
        self.ring()?;
        self.posted = posted;
        self.asking = Some(Instant::now());
        Ok(())
    }

    /// Whether the peer's device has all fragments.
    pub(in crate::rdma) fn is_drained(&self) -> bool {
        let unsaid = self.posted.wrapping_sub(self.answered);
        self.has_ended() || unsaid <= self.posted.wrapping_sub(self.last_fragment)
    }

    /// Asks the device to say when the last fragment is done, unless it was asked; and gives it
    /// what was gathered before.
    pub(in crate::rdma) fn ask(&mut self) -> io::Result<()> {
        let is_new =
            self.posted.wrapping_sub(self.last_fragment) < self.posted.wrapping_sub(self.asked);
        let may = self.under_way() < SENDS && !(self.is_iwarp() && self.asking.is_some());
        if is_new && may && !self.is_drained() {
            self.asked = self.last_fragment;
            self.question()?;
        }
        Ok(())
    }

    /// The device says that it is done with all sends up to this one, and maybe that they have
    /// arrived. Whether that proves the path.
    pub(in crate::rdma) fn done(&mut self, posted: u32, has_arrived: bool) -> bool {
        // Answers may come after what was posted later.
        if posted.wrapping_sub(self.done) <= self.under_way() {
            self.done = posted;
        }
        if !has_arrived && self.is_iwarp() {
            return false;
        }
        (self.answered, self.asking) = (posted, None);
        if self.is_iwarp() {
            self.answered_at = Instant::now();
        }
        let is_news = self.stage == Stage::Proving;
        if is_news {
            self.stage = Stage::Proven;
            self.failures = 0;
        }
        is_news
    }
}
