//! The way of bytes to a peer: paths or TCP write them, lent or copied, or they are held.

use ringfold_types::Way;
use ringfold_types::limits::RDMA_LEND_BYTES;

use super::Peer;
use super::fault::Fault;
use super::own::Own;
use super::routes::BY_TCP;
use crate::rdma::diagnostics::{self, RailEvent};
use crate::rdma::message::TcpFragment;
use crate::rdma::path::Path;
use crate::rdma::registry::{Loan, Place};
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::outbound::{By, Outbound, Ready};
use crate::shares::Slow;
use crate::sys::sent;

impl Peer {
    /// Offers bytes to the peer. Returns how many were accepted. A caller that `is_patient` tries
    /// again soon.
    pub(in crate::rdma) fn send(
        &mut self,
        lane: usize,
        tag: u32,
        bytes: &[u8],
        is_patient: bool,
        own: &mut Own<'_>,
    ) -> Result<usize, Fault> {
        let (mut accepted, unaccepted) = self.accept(lane, bytes);
        if let Some(fault) = self.ending.fault() {
            return if accepted > 0 { Ok(accepted) } else { Err(fault.clone()) };
        }
        self.repeat(lane);
        self.flush_lane(lane);
        let place = if bytes.len() >= RDMA_LEND_BYTES { own.registry.find(bytes) } else { None };
        let mut written = accepted + unaccepted;
        let may_wait = unaccepted == 0 && place.is_some();
        let is_long = bytes.len() - written >= RDMA_LEND_BYTES;
        if may_wait && is_long && self.waits_for_answer(lane, tag, is_patient) {
            return Ok(accepted);
        }
        while written < bytes.len() && !self.lanes.holds(lane) {
            let place = place.map(|place| (place.skip(written), &mut *own));
            match self.write(lane, tag, &bytes[written..], bytes.len(), place) {
                0 => break,
                more => written += more,
            }
        }
        accepted += self.accept(lane, &[]).0;
        if accepted < written {
            self.ask_borrowers(lane);
        }
        if written > 0 {
            return Ok(accepted);
        }
        // The ring is full, but a minimum was promised to be accepted.
        let outbound = self.lanes.outbound(lane);
        let is_kept = outbound.is_some_and(Outbound::promise_is_kept) && !self.lanes.holds(lane);
        Ok(if is_kept { 0 } else { self.lanes.hold(lane, tag, bytes) })
    }

    /// Returns whether the peer may soon tell where it wants the next bytes, and there are so many.
    pub(in crate::rdma) fn is_asking(&self, lane: usize, bytes: usize) -> bool {
        bytes >= RDMA_LEND_BYTES && self.lanes.outbound(lane).is_some_and(Outbound::is_asking)
    }

    /// Returns whether a message that could be lent must not begin or go on yet.
    fn waits_for_answer(&mut self, lane: usize, tag: u32, is_patient: bool) -> bool {
        let Some(way) = self.way() else { return false };
        let cable = self.routes.placing(way);
        let outbound = self.lanes.outbound_mut(lane);
        outbound.is_some_and(|outbound| outbound.waits_for_answer(tag, cable, is_patient))
    }

    /// Returns how many of `bytes` are newly accepted, from their front, and how many after them
    /// are under way.
    fn accept(&mut self, lane: usize, bytes: &[u8]) -> (usize, usize) {
        let Some(outbound) = self.lanes.outbound_mut(lane) else { return (0, 0) };
        let accepted = outbound.accept();
        if let Some(unaccepted) = bytes.get(accepted..) {
            outbound.take_back(unaccepted);
        }
        (accepted, outbound.unaccepted_bytes())
    }

    /// Writes one fragment of a message of `all` bytes. Returns how many bytes went into it. They
    /// are lent if they lie in pages.
    fn write(
        &mut self,
        lane: usize,
        tag: u32,
        bytes: &[u8],
        all: usize,
        place: Option<(Place, &mut Own<'_>)>,
    ) -> usize {
        let Some(way) = self.way() else { return 0 };
        let is_long = bytes.len() >= RDMA_LEND_BYTES;
        let place = place.filter(|_| is_long);
        let loan = place.and_then(|(place, own)| self.routes.lend(way, place, own));
        let cable = self.routes.placing(way);
        let by = By { path: way, cable, most: self.routes.most(all, way) };
        let Some(outbound) = self.lanes.outbound_mut(lane) else { return 0 };
        let is_lent = loan.is_some();
        if is_lent && outbound.is_kept_back(tag, by.cable) {
            return 0;
        }
        let Some((written, ready)) = outbound.push(tag, bytes, by, is_lent) else { return 0 };
        // The completion of the last lent fragment covers all those before it on this path.
        let is_last = bytes.len() - written < RDMA_LEND_BYTES;
        let tells = is_lent && (is_last || outbound.is_kept_back(tag, by.cable));
        if is_lent && is_last {
            outbound.end_message();
        }
        self.write_by(way, lane, ready, loan.map(|loan| (loan, tells)));
        written
    }

    /// Writes a fragment in the image. A path that refuses is lost together with the fragment.
    fn write_by(&mut self, way: usize, lane: usize, ready: Ready, loan: Option<(Loan, bool)>) {
        if way == BY_TCP {
            return self.control.push_fragment(lane, ready);
        }
        self.routes.took_turn(way);
        sent(Way::by_rdma(self.routes.cable_of(way).rail()), ready.bytes);
        let Some(outbound) = self.lanes.outbound_mut(lane) else { return };
        let (loan, tells) = loan.unzip();
        let counts = self.routes.counts(ready.bytes);
        let tells = counts || tells.unwrap_or(false);
        let (path, _) = self.routes.path_mut(way);
        match path.write(outbound, &ready, loan.as_ref(), tells) {
            Ok(posted) if loan.is_some() => outbound.lent(posted),
            Ok(_) => {}
            Err(error) => return self.lose(way, &format!("a write was refused: {error}")),
        }
        if counts {
            self.routes.count(way, u32::try_from(ready.bytes).unwrap_or(u32::MAX));
        }
    }

    /// The path whose turn it is to carry a fragment, or `BY_TCP`, if there is any.
    fn way(&self) -> Option<usize> {
        self.routes.next().or_else(|| self.fallback.is_used().then_some(BY_TCP))
    }

    /// The rail of the path whose turn it is.
    #[cfg(test)]
    pub(in crate::rdma) fn rail(&self) -> Option<usize> {
        Some(self.routes.cable_of(self.routes.next()?).rail())
    }

    /// The weight of the paths on a rail among all.
    #[cfg(test)]
    pub(in crate::rdma) fn weight(&self, rail: usize) -> u64 {
        let paths = 0..self.routes.paths().len();
        let on_it = paths.filter(|path| self.routes.cable_of(*path).rail() == rail);
        on_it.map(|path| self.routes.weight(path)).sum()
    }

    /// Asks the devices that borrow bytes to report completion. Credit for the end of a message, or
    /// for a full ring, may never come.
    fn ask_borrowers(&mut self, lane: usize) {
        for path in 0..self.routes.paths().len() {
            let Some(outbound) = self.lanes.outbound(lane) else { return };
            if outbound.borrowers().any(|borrower| borrower == path) {
                self.ask_path(path);
            }
        }
    }

    /// Asks all devices to report completion.
    pub(in crate::rdma) fn ask(&mut self) {
        for path in 0..self.routes.paths().len() {
            self.ask_path(path);
        }
    }

    /// Asks a device to report completion. A path that refuses is lost.
    fn ask_path(&mut self, path: usize) {
        if let Err(error) = self.routes.path_mut(path).0.ask() {
            self.lose(path, &format!("a question was refused: {error}"));
        }
    }

    /// Returns whether the peer's device has all fragments.
    pub(in crate::rdma) fn is_drained(&self) -> bool {
        self.ending.is_done() || self.routes.paths().iter().all(Path::is_drained)
    }

    /// Writes fragments that were lost with a path again. Returns whether there were any.
    fn repeat(&mut self, lane: usize) -> bool {
        let mut moved = false;
        while let Some((place, ready)) = self.lanes.outbound(lane).and_then(Outbound::lost)
            && let Some(way) = self.way()
        {
            let Some(outbound) = self.lanes.outbound_mut(lane) else { break };
            outbound.repeated(place, way);
            self.write_by(way, lane, ready, None);
            moved = true;
        }
        moved
    }

    /// The bytes of an open lane's image for a fragment that goes by TCP, without the first `from`.
    pub(in crate::rdma) fn image(&self, fragment: TcpFragment, from: usize) -> &[u8] {
        self.lanes.image(fragment, from)
    }

    /// Writes the held bytes of a lane, as far as there is room. Returns whether there were any.
    fn flush_lane(&mut self, lane: usize) -> bool {
        if !self.lanes.holds(lane) {
            return false;
        }
        // The bytes are taken out for a moment, so that `write` can borrow them.
        let mut held = self.lanes.take_held(lane);
        let mut moved = false;
        while let Some((tag, bytes)) = held.front() {
            match self.write(lane, tag, bytes, bytes.len(), None) {
                0 => break,
                written => held.consume(written),
            }
            self.accept(lane, &[]);
            moved = true;
        }
        self.lanes.set_held(lane, held);
        moved
    }

    /// Handles the completion of sends of that life of a path. Returns whether that is worth a line
    /// of the log.
    pub(in crate::rdma) fn done(
        &mut self,
        path: usize,
        life: u8,
        number: u32,
        has_arrived: bool,
    ) -> bool {
        let it = self.routes.paths_mut().get_mut(path).filter(|path| path.lives(life));
        let Some(it) = it else { return false };
        let proves = it.done(number, has_arrived);
        self.lanes.outbounds_mut().for_each(|outbound| outbound.done(path, number));
        match proves {
            Ok(false) => {}
            Ok(true) => self.proven(path),
            Err(error) => self.lose(path, &format!("a question was refused: {error}")),
        }
        if let Some(slow) = self.routes.arrived(path) {
            self.note_slow(slow);
        }
        self.has_events() || self.has_messages()
    }

    /// Notes that a path has become slow.
    fn note_slow(&mut self, Slow { path, percent }: Slow) {
        let cable = self.routes.cable_of(path);
        let (rail, name) = (cable.rail(), cable.name());
        let what = format!(
            "path {path} to {} by {name} carries {percent} % of its share for some seconds; it \
             gets a share by its rate; check both ports' speed, the cable and the switches",
            cable.their_name(self.rank)
        );
        self.events.push(RailEvent::Slow { rail, what });
    }

    /// Changes the shares of paths by the new rate of a rail's port.
    pub(in crate::rdma) fn set_rate(&mut self, rail: usize, gigabits: u32) {
        self.routes.set_rate(rail, gigabits);
    }

    /// Begins to take back all memory that is lent or open to the peer, because nobody will send or
    /// receive the rest: devices access it by the queue pairs of its paths, which end.
    /// `await_withdrawal` does the rest.
    pub(in crate::rdma) fn withdraw(&mut self) {
        let has_open_rtr = self.has_open_rtr();
        let is_lending = self.lanes.outbounds().any(|outbound| outbound.unaccepted_bytes() > 0);
        if !has_open_rtr && !is_lending {
            return;
        }
        // After the peer's goodbye it is not known any more which path borrowed the memory.
        let has_left = self.ending.has_goodbye();
        let is_any = has_open_rtr || has_left;
        let opened = if is_any { 0..self.routes.paths().len() } else { 0..0 };
        let borrowers = self.lanes.outbounds().flat_map(Outbound::borrowers);
        let borrowers: Vec<_> = borrowers.chain(opened).collect();
        for path in borrowers {
            let (it, _) = self.routes.path_mut(path);
            if !it.has_ended() {
                it.end();
            }
            it.destroy();
        }
        self.lanes.outbounds_mut().for_each(Outbound::give_up);
        self.lanes.inbounds_mut().for_each(Inbound::give_up);
        let given_up = || Fault::Lost("a message to the peer was given up".to_owned());
        self.end(if has_left { Fault::Closed } else { given_up() });
    }

    /// Blocks until no device accesses memory by the queue pairs that `withdraw` has ended. A
    /// device that keeps one loses all memory of callers.
    pub(in crate::rdma) fn await_withdrawal(&mut self, own: &mut Own<'_>) {
        for path in 0..self.routes.paths().len() {
            let (it, cable) = self.routes.path_mut(path);
            let Err(kept) = it.await_destruction() else { continue };
            tracing::warn!("rdma: {}", diagnostics::destruction(cable.name(), &kept));
            if let Err(error) = own.registry.forget(&own.rails.0[cable.rail()].pd) {
                let name = cable.name();
                tracing::error!("rdma: {name} may still write memory given back: {error}");
            }
        }
    }

    /// Writes held bytes, and gives the credit that is due. Returns whether anything moved.
    pub(in crate::rdma) fn flush(&mut self) -> bool {
        if self.ending.is_over() {
            return false;
        }
        let mut moved = false;
        for lane in 0..self.lanes.count() {
            moved |= self.repeat(lane);
            moved |= self.flush_lane(lane);
            moved |= self.pay(lane);
        }
        moved
    }

    /// Returns whether `flush` has nothing to do.
    pub(in crate::rdma) fn is_flushed(&self) -> bool {
        let waits_for = |at| self.lanes.outbounds().any(|outbound| outbound.waits_for(at));
        let is_unsettled =
            |(at, path): (usize, &Path)| path.has_ended() && !path.is_settled() && waits_for(at);
        self.ending.is_done()
            || self.control.is_empty()
                && self.lanes.is_flushed()
                && !self.routes.paths().iter().enumerate().any(is_unsettled)
    }
}
