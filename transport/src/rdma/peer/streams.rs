//! What goes to a peer and comes from it, once there are paths and rings.

use super::{Fault, Outgoing, Peer, Way};
use crate::contract::Fragment;
use crate::rdma::geometry::Number;
use crate::rdma::inbound::Inbound;
use crate::rdma::path::Path;

impl Peer {
    /// Offers bytes to the peer; how many were accepted.
    pub(in crate::rdma) fn send(
        &mut self,
        lane: usize,
        tag: u32,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.flush_lane(lane)?;
        let mut accepted = 0;
        while accepted < bytes.len() && self.outbound[lane].held.is_empty() {
            match self.write(lane, tag, &bytes[accepted..])? {
                0 => break,
                written => accepted += written,
            }
        }
        if accepted > 0 {
            return Ok(accepted);
        }
        // There is no room, but some was promised.
        let Outgoing { way, held } = &mut self.outbound[lane];
        match way {
            Way::Open(outbound) if held.is_empty() && outbound.promise_is_kept() => Ok(0),
            _ => Ok(held.hold(tag, bytes)),
        }
    }

    /// Writes one fragment; how many bytes went into it.
    fn write(&mut self, lane: usize, tag: u32, bytes: &[u8]) -> Result<usize, Fault> {
        let Way::Open(outbound) = &mut self.outbound[lane].way else { return Ok(0) };
        let paths = self.paths.len();
        let turns = (0..paths).map(|step| (self.turn + step) % paths);
        let Some(turn) = turns.into_iter().find(|at| self.paths[*at].takes_fragments()) else {
            return Ok(0);
        };
        let Some((written, ready)) = outbound.push(tag, bytes, turn) else { return Ok(0) };
        self.turn = (turn + 1) % paths;
        self.sent += 1;
        match self.paths[turn].write(outbound, &ready) {
            Ok(()) => Ok(written),
            Err(error) => {
                let fault = Fault::Lost(format!("a write was refused: {error}"));
                self.end(fault.clone());
                Err(fault)
            }
        }
    }

    /// Writes what was lost with a path again; whether anything was.
    fn repeat(&mut self, lane: usize) -> Result<bool, Fault> {
        let mut moved = false;
        while let Way::Open(outbound) = &mut self.outbound[lane].way
            && let Some((place, ready)) = outbound.lost()
            && let Some(path) = self.paths.iter().position(Path::takes_fragments)
        {
            if let Err(error) = self.paths[path].write(outbound, &ready) {
                let fault = Fault::Lost(format!("a write was refused: {error}"));
                self.end(fault.clone());
                return Err(fault);
            }
            outbound.repeated(place, path);
            moved = true;
        }
        Ok(moved)
    }

    /// Writes what was held back on a lane, as far as there is room; whether anything was.
    fn flush_lane(&mut self, lane: usize) -> Result<bool, Fault> {
        if self.outbound[lane].held.is_empty() {
            return Ok(false);
        }
        // Taken out for a moment, so that its bytes can be lent to `write`.
        let mut held = std::mem::take(&mut self.outbound[lane].held);
        let mut moved = false;
        while let Some((tag, bytes)) = held.front() {
            match self.write(lane, tag, bytes)? {
                0 => break,
                written => held.consume(written),
            }
            moved = true;
        }
        self.outbound[lane].held = held;
        Ok(moved)
    }

    /// Writes what was held back, and gives the credit that is due; whether anything moved.
    pub(in crate::rdma) fn flush(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let mut moved = false;
        for lane in 0..self.outbound.len() {
            moved |= self.repeat(lane).unwrap_or(true);
            // Where it fails, the next use of the link says why.
            moved |= self.flush_lane(lane).unwrap_or(true);
            moved |= self.pay(lane);
        }
        moved
    }

    /// Whether `flush` has something to do.
    pub(in crate::rdma) fn is_flushed(&self) -> bool {
        let is_flushed = |lane: &Outgoing| {
            let is_lost = matches!(&lane.way, Way::Open(outbound) if outbound.lost().is_some());
            lane.held.is_empty() && !is_lost
        };
        self.fault.is_some()
            || self.outbound.iter().all(is_flushed) && !self.paths.iter().any(Path::is_unsettled)
    }

    /// Whether credit is due that could not be given.
    pub(in crate::rdma) fn owes(&self) -> bool {
        self.fault.is_none() && self.inbound.iter().flatten().any(Inbound::owes)
    }

    /// Gives the credit that is due on a lane, if it can; whether it did.
    fn pay(&mut self, lane: usize) -> bool {
        let Some(inbound) = self.inbound[lane].as_mut().filter(|inbound| inbound.owes()) else {
            return false;
        };
        let Some(path) = self.paths.iter_mut().find(|path| path.takes_credit()) else {
            return false;
        };
        let credit = Number::Credit { lane, total: inbound.total() };
        if let Err(error) = path.give(credit) {
            self.end(Fault::Lost(format!("a credit was refused: {error}")));
            return false;
        }
        inbound.said();
        self.sent += 1;
        true
    }

    /// The front of what has arrived.
    pub(in crate::rdma) fn readable(&self, lane: usize) -> Result<Option<Fragment<'_>>, Fault> {
        if let Some(front) = self.inbound[lane].as_ref().and_then(Inbound::front) {
            return Ok(Some(front));
        }
        match &self.fault {
            // It is gone, but its device was not done before it said so.
            Some(Fault::Closed) if self.promised.is_some_and(|sent| self.received < sent) => {
                Ok(None)
            }
            Some(fault) => Err(fault.clone()),
            None => Ok(None),
        }
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

    /// A number has arrived.
    pub(in crate::rdma) fn arrive(&mut self, path: usize, number: u32) -> Result<(), Fault> {
        let Some(path) = self.paths.get_mut(path) else { return Ok(()) };
        self.received += 1;
        if let Err(error) = path.arrived()
            && self.fault.is_none()
        {
            return Err(Fault::Lost(format!("a receive was refused: {error}")));
        }
        match Number::decode(number) {
            Number::Fragment { lane, sequence, lines } => {
                let inbound = self.inbound.get_mut(lane).and_then(Option::as_mut);
                let inbound = inbound.ok_or("a fragment of a lane that has no ring")?;
                Ok(inbound.arrive(sequence, lines)?)
            }
            Number::Credit { lane, total } => {
                match self.outbound.get_mut(lane).map(|it| &mut it.way) {
                    Some(Way::Open(outbound)) => Ok(outbound.credit(total)?),
                    _ => Err("credit for a lane that has no ring".into()),
                }
            }
        }
    }
}
