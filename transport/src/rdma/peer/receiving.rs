//! What comes from a peer is found, invited elsewhere and consumed, and paid for with credit.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use ringfold_types::limits::RDMA_LEND_BYTES;

use super::{Fault, Own, Peer};
use crate::contract::{Fragment, Received};
use crate::rdma::geometry::{Number, lap};
use crate::rdma::inbound::Inbound;
use crate::rdma::invitation::{bytes_for, place_at};
use crate::rdma::message::{Grant, Load, Message};
use crate::sys::copy;

impl Peer {
    /// The front of what has arrived.
    pub(in crate::rdma) fn readable(&self, lane: usize) -> Result<Option<Fragment<'_>>, Fault> {
        if let Some(inbound) = &self.inbound[lane]
            && let Some(front) = inbound.front()?
        {
            return Ok(Some(front));
        }
        match &self.fault {
            // It is gone, but not all that it sent before has been seen.
            Some(Fault::Closed) if self.may_arrive(lane) => Ok(None),
            Some(fault) => Err(fault.clone()),
            None => Ok(None),
        }
    }

    /// Whether more of a lane may arrive from a peer that has left.
    fn may_arrive(&self, lane: usize) -> bool {
        let (Some(promised), Some(inbound)) = (&self.promised, &self.inbound[lane]) else {
            return false;
        };
        matches!(inbound.lacks(promised[lane]), Ok(true))
            && self.patience().is_some_and(|patience| Instant::now() < patience)
    }

    /// Moves what has arrived to the front of `dst`; how much, and its tag. Where that is nothing,
    /// the peer may be invited to write the rest there.
    pub(in crate::rdma) fn recv(
        &mut self,
        lane: usize,
        tag: u32,
        dst: &mut [u8],
        own: &mut Own<'_>,
    ) -> Result<Option<Received>, Fault> {
        let placed = match &self.inbound[lane] {
            Some(inbound) => inbound.placed(tag, dst)?,
            None => None,
        };
        let (found, bytes) = match placed {
            Some(placed) => {
                // What a device has written, of which its completion told, is seen from here on.
                fence(Ordering::Acquire);
                placed
            }
            None => match self.readable(lane)? {
                None => {
                    self.invite(lane, tag, dst, own);
                    return Ok(None);
                }
                Some(front) if front.tag != tag => (front.tag, 0),
                Some(front) => {
                    let bytes = front.bytes.len().min(dst.len());
                    copy(&mut dst[..bytes], &front.bytes[..bytes]);
                    (tag, bytes)
                }
            },
        };
        self.consume(lane, bytes);
        Ok(Some(Received { tag: found, bytes }))
    }

    /// Invites the peer to write what comes next on a lane to `dst`, if that is long, in pages, and
    /// not invited.
    fn invite(&mut self, lane: usize, tag: u32, dst: &mut [u8], own: &mut Own<'_>) {
        let may_invite = self.inbound[lane].as_ref().is_some_and(Inbound::may_invite);
        if dst.len() < RDMA_LEND_BYTES || self.fault.is_some() || !may_invite {
            return;
        }
        let Some(place) = own.registry.find(dst) else { return };
        let Some(path) = self.voice().filter(|at| self.paths[*at].takes_invitations()) else {
            return;
        };
        let Some(inbound) = &mut self.inbound[lane] else { return };
        let theirs = inbound.mailbox();
        if theirs.keys[self.paths[path].cable] == 0 {
            return;
        }
        let mut to =
            Grant { address: dst.as_mut_ptr().expose_provenance() as u64, ..Grant::default() };
        for (key, cable) in to.keys.iter_mut().zip(&self.cables) {
            let pd = cable.pd.as_ref().filter(|_| !own.rails.0[cable.rail].is_iwarp());
            let in_any_order = own.settings.relaxed_ordering;
            let right = pd.and_then(|pd| own.registry.open(place, pd, in_any_order, own.budget));
            *key = right.unwrap_or(0);
        }
        if to.keys.iter().all(|key| *key == 0) {
            return;
        }
        let Some((invitation, place)) = inbound.invite(tag, dst.len(), to, path) else { return };
        let at = theirs.address.wrapping_add(place_at(lane, place) as u64);
        let number = Number::Invitation { lane, place, total: lap(inbound.total()) };
        inbound.said();
        let lines = &invitation.encode()[..bytes_for(self.cables.len())];
        let key = theirs.keys[self.paths[path].cable];
        if let Err(error) = self.paths[path].invite(lines, (at, key), number) {
            self.lose(path, &format!("an invitation was refused: {error}"));
        }
    }

    /// Whether the peer may be writing to pages.
    pub(in crate::rdma) fn is_inviting(&self) -> bool {
        self.inbound.iter().flatten().any(Inbound::is_inviting)
    }

    /// Gives back what was lent.
    pub(in crate::rdma) fn consume(&mut self, lane: usize, bytes: usize) {
        match &mut self.inbound[lane] {
            Some(inbound) => {
                if inbound.consume(bytes) && self.fault.is_none() {
                    self.pay(lane);
                }
            }
            None => assert_eq!(bytes, 0, "consumed more than was readable"),
        }
    }

    /// Puts bytes of a fragment that came by TCP where a device would have.
    pub(in crate::rdma) fn store(
        &mut self,
        load: Load,
        from: usize,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let inbound = self.inbound.get_mut(load.lane).and_then(Option::as_mut);
        let inbound = inbound.ok_or("a fragment of a lane that has no ring")?;
        inbound.load(load.at + from, bytes);
        Ok(())
    }

    /// Whether credit is due that could not be given.
    pub(in crate::rdma) fn owes(&self) -> bool {
        !self.is_done() && self.inbound.iter().flatten().any(Inbound::owes)
    }

    /// The path by which this end says what it is done with and where it wants the rest: one, while
    /// it lives, so that nothing old comes after what is new. One that can invite, if there is one,
    /// and not by a spare cable, if there is another.
    fn voice(&mut self) -> Option<usize> {
        let lives = |at: &usize| self.paths[*at].is_usable();
        if self.voice.filter(lives).is_none() {
            let rank = |at: &usize| {
                let path = &self.paths[*at];
                (!path.can_invite(), self.cables[path.cable].is_spare)
            };
            self.voice = (0..self.paths.len()).filter(lives).min_by_key(rank);
        }
        self.voice
    }

    /// Gives the credit that is due on a lane, if it can; whether it did.
    pub(super) fn pay(&mut self, lane: usize) -> bool {
        let Some(inbound) = self.inbound[lane].as_mut().filter(|inbound| inbound.owes()) else {
            return false;
        };
        let total = inbound.total();
        match self.voice() {
            Some(at) if !self.paths[at].takes_credit() => return false,
            Some(at) => {
                let credit = Number::Credit { lane, total: lap(total) };
                if let Err(error) = self.paths[at].give(credit) {
                    self.lose(at, &format!("a credit was refused: {error}"));
                    return false;
                }
            }
            None if self.is_by_tcp => self.to_say.push_back(Message::Credit { lane, total }),
            None => return false,
        }
        if let Some(inbound) = &mut self.inbound[lane] {
            inbound.said();
        }
        true
    }
}
