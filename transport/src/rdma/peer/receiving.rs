//! The way of bytes from a peer: they arrive in the ring or directly in the caller's memory, are
//! consumed, and are paid for with credit.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use ringfold_types::limits::RDMA_LEND_BYTES;

use super::Peer;
use super::fault::Fault;
use super::own::Own;
use crate::contract::{Fragment, Received};
use crate::rdma::message::{Grant, Message, TcpFragment};
use crate::rdma::path::Arrived;
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::layout::{Immediate, lap};
use crate::rdma::ring::rtr::{bytes_for, slot_at};
use crate::sys::copy;

impl Peer {
    /// Returns the first fragment that has arrived.
    pub(in crate::rdma) fn readable(&self, lane: usize) -> Result<Option<Fragment<'_>>, Fault> {
        if let Some(inbound) = self.lanes.inbound(lane)
            && let Some(front) = inbound.front()?
        {
            return Ok(Some(front));
        }
        match self.ending.fault() {
            // The peer is gone, but some fragments that it sent before may still arrive.
            Some(Fault::Closed) if self.may_arrive(lane) => Ok(None),
            Some(fault) => Err(fault.clone()),
            None => Ok(None),
        }
    }

    /// Returns whether more of a lane may arrive from a peer that has left.
    fn may_arrive(&self, lane: usize) -> bool {
        let awaited = self.ending.awaited(lane, Instant::now());
        let both = self.lanes.inbound(lane).zip(awaited);
        both.is_some_and(|(inbound, awaited)| matches!(inbound.lacks(awaited), Ok(true)))
    }

    /// Moves bytes that have arrived to the front of `dst`. Returns how many, and their tag. The
    /// peer may be told to write the bytes after all arrived ones to the rest of `dst` directly.
    pub(in crate::rdma) fn recv(
        &mut self,
        lane: usize,
        tag: u32,
        dst: &mut [u8],
        own: &mut Own<'_>,
    ) -> Result<Option<Received>, Fault> {
        let placed = match self.lanes.inbound(lane) {
            Some(inbound) => inbound.placed(tag, dst)?,
            None => None,
        };
        let (found, bytes) = match placed {
            Some(placed) => {
                // The device's writes before its completion are visible from here on.
                fence(Ordering::Acquire);
                placed
            }
            None => {
                // The peer learns its answer before the copy below takes its time.
                if dst.len() >= RDMA_LEND_BYTES
                    && self.lanes.inbound(lane).is_some_and(|inbound| inbound.is_asked(tag))
                {
                    self.expect(lane, tag, (0, dst), own);
                }
                match self.readable(lane)? {
                    None => return Ok(None),
                    Some(front) if front.tag != tag => (front.tag, 0),
                    Some(front) => {
                        let bytes = front.bytes.len().min(dst.len());
                        copy(&mut dst[..bytes], &front.bytes[..bytes]);
                        (tag, bytes)
                    }
                }
            }
        };
        self.consume(lane, bytes);
        Ok(Some(Received { tag: found, bytes }))
    }

    /// Tells the peer to write the bytes of the stream after the next `skip` ones to `dst`, without
    /// those that have arrived. Returns whether that is done, or will never be possible.
    pub(in crate::rdma) fn expect(
        &mut self,
        lane: usize,
        tag: u32,
        (skip, dst): (usize, &mut [u8]),
        own: &mut Own<'_>,
    ) -> bool {
        if dst.len() < RDMA_LEND_BYTES || self.ending.is_over() || self.fallback.is_used() {
            return true;
        }
        let Some(place) = own.registry.find(dst) else { return true };
        let Some(inbound) = self.lanes.inbound(lane) else { return false };
        if !inbound.may_send_rtr() {
            return false;
        }
        let known = inbound.known_after(skip);
        let Some(dst) = dst.get_mut(known..).filter(|it| it.len() >= RDMA_LEND_BYTES) else {
            return true;
        };
        let Some(path) = self.routes.control_path() else { return false };
        if !self.routes.paths()[path].takes_rtrs() {
            return false;
        }
        let cable = self.routes.paths()[path].cable();
        let Some(inbound) = self.lanes.inbound_mut(lane) else { return false };
        let theirs = inbound.mailbox();
        if theirs.keys[cable] == 0 {
            return true;
        }
        let mut to =
            Grant { address: dst.as_mut_ptr().expose_provenance() as u64, ..Grant::default() };
        for (key, cable) in to.keys.iter_mut().zip(self.routes.cables()) {
            let rail = &own.rails.0[cable.rail()];
            if cable.is_usable() && !rail.is_iwarp() {
                let in_any_order = own.settings.relaxed_ordering;
                let right = own.registry.open(place, &rail.pd, in_any_order, own.budget);
                *key = right.unwrap_or(0);
            }
        }
        if to.keys.iter().all(|key| *key == 0) {
            return true;
        }
        let Some((rtr, slot)) = inbound.make_rtr(tag, (skip + known, dst.len()), to, path) else {
            return true;
        };
        let at = theirs.address.wrapping_add(slot_at(lane, slot) as u64);
        let number = Immediate::Rtr { lane, slot, total: lap(inbound.total()) };
        inbound.gave_credit();
        let lines = &rtr.encode()[..bytes_for(self.routes.cables().len())];
        let (it, _) = self.routes.path_mut(path);
        if let Err(error) = it.write_rtr(lines, (at, theirs.keys[cable]), number) {
            self.lose(path, &format!("a ready-to-receive message was refused: {error}"));
        }
        true
    }

    /// Returns whether the peer may be writing to callers' pages.
    pub(in crate::rdma) fn has_open_rtr(&self) -> bool {
        self.lanes.inbounds().any(Inbound::has_open_rtr)
    }

    /// Gives back bytes of the first fragment.
    pub(in crate::rdma) fn consume(&mut self, lane: usize, bytes: usize) {
        match self.lanes.inbound_mut(lane) {
            Some(inbound) => {
                if inbound.consume(bytes) && !self.ending.is_over() {
                    self.pay(lane);
                }
            }
            None => assert_eq!(bytes, 0, "consumed more than was readable"),
        }
    }

    /// Stores bytes of a fragment that came by TCP at their place in the ring.
    pub(in crate::rdma) fn store(
        &mut self,
        fragment: TcpFragment,
        from: usize,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        self.lanes.store(fragment, from, bytes)
    }

    /// Returns whether credit is due that could not be given.
    pub(in crate::rdma) fn owes(&self) -> bool {
        !self.ending.is_done() && self.lanes.inbounds().any(Inbound::owes)
    }

    /// Gives the credit that is due on a lane, if possible. Returns whether it did.
    pub(super) fn pay(&mut self, lane: usize) -> bool {
        let inbound = self.lanes.inbound(lane).filter(|inbound| inbound.owes());
        let Some(total) = inbound.map(Inbound::total) else { return false };
        match self.routes.control_path() {
            Some(at) => {
                let (path, _) = self.routes.path_mut(at);
                if !path.takes_credit() {
                    return false;
                }
                if let Err(error) = path.give(Immediate::Credit { lane, total: lap(total) }) {
                    self.lose(at, &format!("a credit was refused: {error}"));
                    return false;
                }
            }
            None if self.fallback.is_used() => self.control.push(Message::Credit { lane, total }),
            None => return false,
        }
        if let Some(inbound) = self.lanes.inbound_mut(lane) {
            inbound.gave_credit();
        }
        true
    }

    /// Handles an immediate that has arrived by that life of a path. Returns whether the path is
    /// lost.
    pub(in crate::rdma) fn arrive(
        &mut self,
        path: usize,
        life: u8,
        arrived: Arrived,
    ) -> Result<bool, Fault> {
        let it = self.routes.paths_mut().get_mut(path).filter(|path| path.lives(life));
        // The peer was told that it did not arrive, and sends it again.
        let Some(it) = it else { return Ok(false) };
        let number = it.number(arrived).ok_or("a message without an immediate")?;
        let refused = it.arrived().err();
        // Soft-RoCE may bring a write again under new packet numbers. Each fragment counts once, so
        // the reports of arrivals stay true, and another way carries on.
        let is_first = self.lanes.take(Immediate::decode(number))?;
        let why = match refused {
            Some(error) => format!("a receive was refused: {error}"),
            None if is_first => return Ok(false),
            None => "a device brought a write twice; update driver and firmware".to_owned(),
        };
        self.lose(path, &why);
        Ok(true)
    }

    /// Notes that work of that life of a path was flushed. Returns whether the path's end is new.
    pub(in crate::rdma) fn flushed(&mut self, path: usize, life: u8, is_receive: bool) -> bool {
        let it = self.routes.paths_mut().get_mut(path).filter(|path| path.lives(life));
        it.is_some_and(|it| {
            if is_receive {
                it.flushed();
            }
            !it.has_ended()
        })
    }
}
