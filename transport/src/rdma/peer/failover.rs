//! Paths that end: the failover of their fragments, and the next life.
//!
//! A rank that cannot use a path tells the peer (`PathDown`), which lets go of it too. When nothing
//! more can arrive by the path, each end reports its arrivals (`Arrivals`), and the sender writes
//! the other fragments again by another way. Then the path is settled, and either end may offer a
//! new queue pair for it: at once the end whose port has come back, and from time to time the lower
//! rank.
//!
//! Where no path is left, fragments go by TCP, in the same order and to the same places of the
//! ring. The way can change at any time. Repeated and lost arrivals are handled as between paths.

use std::time::Instant;

use ringfold_types::Way;
use ringfold_types::limits::{HANDSHAKE_MS, RDMA_RETURN_MS};

use super::Peer;
use super::cable::Cable;
use super::fault::Fault;
use super::own::Own;
use crate::rdma::diagnostics::{self, EXHAUSTED, RailEvent};
use crate::rdma::message::Message;
use crate::rdma::path::{Path, Phase};
use crate::rdma::rail::Rails;
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::settings::Settings;
use crate::sys::failed_over;

impl Peer {
    /// Handles failed work of that life of a path.
    pub(in crate::rdma) fn fail(
        &mut self,
        path: usize,
        life: u8,
        (status, vendor): (u32, u32),
        settings: &Settings,
    ) {
        if self.routes.paths().get(path).is_none_or(|path| !path.lives(life)) {
            return;
        }
        let why = self.why_only_short(path).filter(|_| status == EXHAUSTED).unwrap_or_else(|| {
            let name = self.routes.cable_of(path).their_name(self.rank);
            let silence = diagnostics::silence(settings.timeout, settings.retries);
            diagnostics::status(status, vendor, &name, silence)
        });
        self.lose(path, &why);
    }

    /// The text for a path on which short packets pass, and long ones have not yet.
    fn why_only_short(&self, path: usize) -> Option<String> {
        let (bytes, cable) =
            (self.routes.paths()[path].long_packets()?, self.routes.cable_of(path));
        Some(diagnostics::only_short(bytes, cable.name(), &cable.their_name(self.rank)))
    }

    /// Goes on without a path, by others or by TCP. Where there is neither, the link ends.
    pub(in crate::rdma) fn lose(&mut self, path: usize, why: &str) {
        let at = path;
        let path = self.routes.paths_mut().get_mut(at);
        let Some(path) = path.filter(|path| !path.has_ended()) else { return };
        let is_new = path.is_news();
        path.end();
        // A peer that has said goodbye closes its connections.
        if self.ending.is_done() {
            return;
        }
        self.control.push(Message::PathDown { path: at, returns: self.fallback.expects_return() });
        let (rank, left, cable) = (self.rank, self.routes.alive(), self.routes.cable_of(at));
        let (rail, name) = (cable.rail(), cable.name());
        let what = format!("path {at} to rank {rank} by {name} is lost, {left} left: {why}");
        let why = format!("by {name}: {why}");
        if is_new {
            failed_over(Way::by_rdma(rail));
            self.events.push(RailEvent::Lost { rail, what });
        } else {
            tracing::debug!("rdma: {what}");
        }
        self.lanes.inbounds_mut().for_each(Inbound::repeat);
        self.fall_back(&why);
    }

    /// Goes on by TCP where no path is left, or ends the link where it may not.
    pub(super) fn fall_back(&mut self, why: &str) {
        let may_use_tcp = self.fallback.may_use_tcp();
        let may_return = self.fallback.expects_return() && !may_use_tcp;
        let is_over = self.fallback.is_used() || self.ending.is_over();
        if self.routes.alive() > 0 || is_over || may_return {
            return;
        }
        let was_there = !self.routes.paths().is_empty();
        if may_use_tcp {
            let what = format!("no path to rank {} is left; using tcp ({why})", self.rank);
            self.events.push(RailEvent::ByTcp { what, was_there });
            self.fallback.begin();
        } else {
            let why = format!("{why}, and RINGFOLD_TRANSPORT leaves no other way");
            self.end(if was_there { Fault::Lost(why) } else { Fault::Unreachable(why) });
        }
    }

    /// Ends the paths of a rail whose port has another address, to make them again. Where there is
    /// no other way, the link waits for them.
    pub(in crate::rdma) fn relocate(&mut self, rail: usize, why: &str) {
        let paths = self.paths_by(rail);
        if !paths.is_empty() {
            self.fallback.expect_another_return(Instant::now());
        }
        for path in paths {
            self.lose(path, why);
        }
    }

    /// Lets a path carry data from now on, because packets pass.
    pub(super) fn proven(&mut self, path: usize) {
        let was_by_tcp = self.fallback.end();
        let (rank, at, (it, cable)) = (self.rank, path, self.routes.path_mut(path));
        let (rail, name) = (cable.rail(), cable.name());
        let what = format!("path {at} to rank {rank} by {name} carries data");
        self.events.push(RailEvent::Carries { rail, what, again: !it.is_first() });
        if was_by_tcp {
            let what = format!("there is a path to rank {rank} again, by {name}");
            self.events.push(RailEvent::ByRail { what });
        }
        if it.initiates() {
            self.control.push(Message::Ready { path });
        }
    }

    /// Returns whether some path by a rail carries data.
    #[cfg(test)]
    pub(in crate::rdma) fn carries(&self, rail: usize) -> bool {
        self.routes.carries(rail)
    }

    /// Returns whether data has a way whose port is up.
    pub(super) fn has_way(&self, rails: &Rails) -> bool {
        self.fallback.may_use_tcp() || self.routes.is_any_up(rails)
    }

    /// The paths that `leave_down` would leave by a rail that is down.
    pub(in crate::rdma) fn leaves(&self, rail: usize, rails: &Rails) -> Vec<usize> {
        if self.has_way(rails) { self.paths_by(rail) } else { Vec::new() }
    }

    /// Leaves paths whose port is down where there is another way. Where there is none, the device
    /// goes on trying, and may outlast a short outage.
    pub(in crate::rdma) fn leave_down(&mut self, rails: &Rails) {
        let down = rails.0.iter().enumerate().filter(|(_, rail)| !rail.is_up);
        for (rail, it) in down {
            for path in self.leaves(rail, rails) {
                self.lose(path, &format!("{} went down", it.name()));
            }
        }
    }

    /// The paths by a rail that are not over.
    pub(in crate::rdma) fn paths_by(&self, rail: usize) -> Vec<usize> {
        self.routes.by_rail(rail)
    }

    /// Ends the paths of a rail whose device is gone.
    pub(in crate::rdma) fn lose_device(&mut self, rail: usize, why: &str) {
        for path in self.paths_by(rail) {
            self.lose(path, why);
        }
        let cables = self.routes.cables_mut().iter_mut();
        cables.filter(|cable| cable.rail() == rail).for_each(Cable::give_up);
        // The device will not complete its work any more.
        self.routes.ended_by(rail).for_each(Path::destroy);
    }

    /// Makes the paths of a rail that has come back again, as soon as possible.
    pub(in crate::rdma) fn regain(&mut self, rail: usize) {
        self.routes.ended_by(rail).for_each(|path| path.retry_now(Instant::now()));
    }

    /// Reports all arrivals by paths that are over to the peer, once nothing more can arrive.
    pub(in crate::rdma) fn report_arrivals(&mut self, own: &Own<'_>) {
        for path in 0..self.routes.paths().len() {
            if self.ending.is_over() {
                return;
            }
            match self.routes.paths()[path].must_report() {
                Ok(false) => {}
                Ok(true) => {
                    self.routes.paths_mut()[path].report();
                    self.control.push(Message::Arrivals { path, lanes: self.lanes.arrivals() });
                    self.settle(path, own);
                }
                Err(error) => {
                    let why = diagnostics::destruction(self.routes.cable_of(path).name(), &error);
                    let why = format!("path {path} to rank {}: {why}", self.rank);
                    return self.end(Fault::Lost(why));
                }
            }
        }
    }

    /// Makes a path again after a while, once both ends know all arrivals by it.
    pub(super) fn settle(&mut self, path: usize, own: &Own<'_>) {
        let it = &mut self.routes.paths_mut()[path];
        if !it.is_settled() {
            return;
        }
        if own.rank < self.rank {
            it.retry_later(Instant::now());
        }
        self.lanes.inbounds_mut().for_each(|inbound| inbound.forget(path));
    }

    /// The time when the peer needs attention though nothing happens.
    pub(in crate::rdma) fn deadline(&self) -> Option<Instant> {
        if self.ending.is_over() {
            return self.ending.patience();
        }
        self.routes.deadline().into_iter().chain(self.fallback.deadline()).min()
    }

    /// Handles all deadlines that have passed.
    pub(in crate::rdma) fn expire(&mut self, now: Instant, own: &mut Own<'_>) {
        self.ending.expire(now);
        if self.ending.is_over() {
            return;
        }
        if self.fallback.expire(now) {
            self.fall_back(&format!("no path came back in {RDMA_RETURN_MS} ms"));
        }
        for path in 0..self.routes.paths().len() {
            let (it, cable) = self.routes.path_mut(path);
            if it.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            match it.phase() {
                Phase::Connecting if it.may_yet_come(own.rails.0[cable.rail()].connected_at) => {}
                Phase::Connecting => {
                    let why = diagnostics::connection(&it.why_none());
                    self.lose(path, &format!("no connection in {HANDSHAKE_MS} ms: {why}"));
                }
                Phase::Proven => self.watch(path),
                Phase::Proving => {
                    let why = diagnostics::unproven(it.proof());
                    let why = self.why_only_short(path).unwrap_or(why);
                    self.lose(path, &why);
                }
                _ if it.is_settled() => self.revive(path, own),
                _ => it.destroy(),
            }
        }
    }

    /// Watches a path for silence.
    fn watch(&mut self, path: usize) {
        let (it, cable) = self.routes.path_mut(path);
        let name = cable.their_name(self.rank);
        match it.watch() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.lose(path, &format!("a question was refused: {error}")),
            Err(silence) => self.lose(path, &diagnostics::silent(&name, silence)),
        }
    }

    /// Makes a path again, if that is possible now.
    fn revive(&mut self, path: usize, own: &mut Own<'_>) {
        let (it, cable) = self.routes.path_mut(path);
        it.retried();
        // A port that is down reports when it is up.
        if !cable.is_usable() || !own.rails.0[cable.rail()].query_state() {
            return;
        }
        if let Err(why) = self.make(path, own) {
            tracing::debug!("rdma: path {path} to rank {}: {why}", self.rank);
            self.routes.paths_mut()[path].forget();
            self.settle(path, own);
        }
    }
}
