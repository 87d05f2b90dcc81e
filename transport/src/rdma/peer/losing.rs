//! Paths that end, what becomes of what they carried, and how they are made again.
//!
//! Whoever cannot use a path says so (`Without`), and the other end lets go of it too. When nothing
//! more can arrive by it, each says what has (`Heard`), and the sender writes the rest again by
//! another way. Then it is settled, and either end may offer a new queue pair for it: the one whose
//! port has come back at once, the lower rank from time to time. Where no path is left, fragments
//! go by TCP, in the same order and to the same places of the ring: ways can change at any
//! time, and what arrives twice or not at all is no other matter than between paths.

use std::time::{Duration, Instant};

use ringfold_types::limits::{HANDSHAKE_MS, LANES_MAX, RDMA_PARTING_MS, RDMA_RETURN_MS};

use super::{Cable, Fault, Own, Peer};
use crate::rdma::Settings;
use crate::rdma::inbound::Inbound;
use crate::rdma::message::{Heard, Message};
use crate::rdma::outages::News;
use crate::rdma::path::{Path, Stage};
use crate::rdma::rail::Rails;
use crate::rdma::words;

impl Peer {
    /// Work of that life of a path has failed.
    pub(in crate::rdma) fn fail(
        &mut self,
        path: usize,
        life: u8,
        (status, vendor): (u32, u32),
        settings: &Settings,
    ) {
        let Some(it) = self.paths.get(path).filter(|path| path.lives(life)) else { return };
        let name = self.name(it.cable());
        let silence = words::silence(settings.timeout, settings.retries);
        self.lose(path, &words::status(status, vendor, &name, silence));
    }

    /// For people, by its end of a cable.
    pub(super) fn name(&self, cable: usize) -> String {
        let Cable { theirs, plate, .. } = &self.cables[cable];
        words::peer(self.rank, &plate.host, &plate.port, theirs.gid)
    }

    /// Goes on without a path, by others or by TCP; where neither is there, that was the end.
    pub(in crate::rdma) fn lose(&mut self, path: usize, why: &str) {
        let Some(it) = self.paths.get_mut(path).filter(|path| !path.has_ended()) else { return };
        let had_carried = it.is_usable();
        it.end();
        let cable = it.cable();
        // Connections of a peer that has said its last word end with it.
        if self.is_done() {
            return;
        }
        self.to_say.push_back(Message::Without { path, returns: self.returns.is_some() });
        let (rank, left) = (self.rank, self.alive());
        let Cable { rail, name, .. } = &self.cables[cable];
        let what = format!("path {path} to rank {rank} by {name} is lost, {left} left: {why}");
        if had_carried || self.paths[path].is_first() {
            self.news.push(News::Lost { rail: *rail, what });
        } else {
            tracing::debug!("rdma: {what}");
        }
        self.inbound.iter_mut().flatten().for_each(Inbound::repeat);
        self.fall_back(&format!("by {name}: {why}"));
    }

    fn alive(&self) -> usize {
        self.paths.iter().filter(|path| !path.has_ended()).count()
    }

    /// Where no path is left, TCP remains; or else that was the end.
    pub(super) fn fall_back(&mut self, why: &str) {
        let may_return = self.returns.is_some() && !self.may_use_tcp;
        if self.alive() > 0 || self.is_by_tcp || self.fault.is_some() || may_return {
            return;
        }
        let rank = self.rank;
        if self.may_use_tcp {
            let what = format!("no path to rank {rank} is left; using tcp ({why})");
            self.news.push(News::ByTcp { what, was_there: !self.paths.is_empty() });
            self.is_by_tcp = true;
        } else {
            let why = format!("{why}, and RINGFOLD_TRANSPORT leaves no other way");
            let was_there = !self.paths.is_empty();
            self.end(if was_there { Fault::Lost(why) } else { Fault::Unreachable(why) });
        }
    }

    /// The port of a rail has another address: its paths end, and are made again. Where there is no
    /// other way, the link waits for them.
    pub(in crate::rdma) fn relocate(&mut self, rail: usize, why: &str) {
        let paths = self.paths_by(rail);
        if !paths.is_empty() {
            self.returns = None;
            self.expect_return();
        }
        for path in paths {
            self.lose(path, why);
        }
    }

    /// A path that ends now is made again soon. Attempts in vain do not prolong the wait.
    pub(super) fn expect_return(&mut self) {
        let until = Instant::now() + Duration::from_millis(RDMA_RETURN_MS);
        self.returns.get_or_insert(until);
    }

    /// Packets pass: the path carries data from now on.
    pub(in crate::rdma) fn proven(&mut self, path: usize) {
        self.returns = None;
        let (rank, it) = (self.rank, &self.paths[path]);
        let Cable { rail, name, .. } = &self.cables[it.cable()];
        let what = format!("path {path} to rank {rank} by {name} carries data");
        self.news.push(News::Carries { rail: *rail, what, again: !it.is_first() });
        if it.calls() {
            self.to_say.push_back(Message::Ready { path });
        }
        if std::mem::take(&mut self.is_by_tcp) {
            let what = format!("there is a path to rank {rank} again, by {name}");
            self.news.push(News::ByRail { what });
        }
    }

    /// Whether some path by a rail carries data.
    #[cfg(test)]
    pub(in crate::rdma) fn carries(&self, rail: usize) -> bool {
        self.paths.iter().any(|path| path.is_usable() && self.cables[path.cable()].rail == rail)
    }

    /// Whether data has a way whose port is up.
    pub(super) fn has_way(&self, rails: &Rails) -> bool {
        let is_up = |path: &Path| rails.0[self.cables[path.cable()].rail].is_up;
        self.may_use_tcp || self.paths.iter().any(|path| path.is_usable() && is_up(path))
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
        let is_by = |path: &Path| !path.has_ended() && self.cables[path.cable()].rail == rail;
        (0..self.paths.len()).filter(|at| is_by(&self.paths[*at])).collect()
    }

    /// The device of a rail is no more.
    pub(in crate::rdma) fn lose_device(&mut self, rail: usize, why: &str, own: &mut Own<'_>) {
        for path in self.paths_by(rail) {
            self.lose(path, why);
        }
        let by_rail = self.cables.iter_mut().filter(|cable| cable.rail == rail);
        by_rail.for_each(|cable| cable.disown(own));
        // It will not say any more what became of its work.
        let cables = &self.cables;
        let is_by = |path: &&mut Path| path.has_ended() && cables[path.cable()].rail == rail;
        self.paths.iter_mut().filter(is_by).for_each(Path::destroy);
    }

    /// A rail has come back: what went by it is made again as soon as may be.
    pub(in crate::rdma) fn regain(&mut self, rail: usize) {
        for path in &mut self.paths {
            if path.has_ended() && self.cables[path.cable()].rail == rail {
                path.retry_now(Instant::now());
            }
        }
    }

    /// Tells the peer what has arrived by paths that are over, once nothing more can.
    pub(in crate::rdma) fn tell(&mut self, own: &Own<'_>) {
        for path in 0..self.paths.len() {
            let must_tell = match self.paths[path].must_tell() {
                _ if self.fault.is_some() => return,
                Ok(must_tell) => must_tell,
                Err(error) => {
                    let why =
                        words::destruction(&self.cables[self.paths[path].cable()].name, &error);
                    return self
                        .end(Fault::Lost(format!("path {path} to rank {}: {why}", self.rank)));
                }
            };
            if must_tell {
                self.paths[path].tell();
                let heard = |inbound: &Option<Inbound>| {
                    inbound.as_ref().map(Inbound::state).unwrap_or_default()
                };
                let mut lanes = [Heard::default(); LANES_MAX];
                lanes.iter_mut().zip(&self.inbound).for_each(|(to, from)| *to = heard(from));
                self.to_say.push_back(Message::Heard { path, lanes });
                self.settle(path, own);
            }
        }
    }

    /// Where both know what a path has carried, it is made again after a while.
    pub(super) fn settle(&mut self, path: usize, own: &Own<'_>) {
        let at = path;
        let path = &mut self.paths[path];
        if path.is_settled() {
            self.inbound.iter_mut().flatten().for_each(|inbound| inbound.forget(at));
        }
        if path.is_settled() && own.rank < self.rank {
            path.retry_later(Instant::now());
        }
    }

    /// When time moves something on.
    pub(in crate::rdma) fn deadline(&self) -> Option<Instant> {
        if self.fault.is_some() {
            return self.patience();
        }
        self.paths.iter().filter_map(Path::deadline).chain(self.returns).min()
    }

    /// Until when what the peer sent before it left may arrive.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.promised?;
        Some(self.left? + Duration::from_millis(RDMA_PARTING_MS))
    }

    /// Does what time demands.
    pub(in crate::rdma) fn expire(&mut self, now: Instant, own: &mut Own<'_>) {
        if self.patience().is_some_and(|patience| patience <= now) {
            self.promised = None;
        }
        if self.fault.is_some() {
            return;
        }
        if self.returns.take_if(|until| *until <= now).is_some() {
            self.fall_back(&format!("no path came back in {RDMA_RETURN_MS} ms"));
        }
        for path in 0..self.paths.len() {
            let it = &mut self.paths[path];
            if it.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            match it.stage() {
                Stage::Connecting
                    if it.may_yet_come(own.rails.0[self.cables[it.cable()].rail].connected_at) => {}
                Stage::Connecting => {
                    let why = words::connection(&it.why_none());
                    self.lose(path, &format!("no connection in {HANDSHAKE_MS} ms: {why}"));
                }
                Stage::Proven => self.watch(path),
                Stage::Proving => {
                    let why = format!("no packet came through in {} ms", it.proof().as_millis());
                    self.lose(path, &why);
                }
                _ if it.is_settled() => self.revive(path, own),
                _ => it.destroy(),
            }
        }
    }

    /// Listens for silence by a path.
    fn watch(&mut self, path: usize) {
        let name = self.name(self.paths[path].cable());
        match self.paths[path].watch() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.lose(path, &format!("a question was refused: {error}")),
            Err(silence) => self.lose(path, &words::silent(&name, silence)),
        }
    }

    /// Makes a path again, if that is possible now.
    fn revive(&mut self, path: usize, own: &mut Own<'_>) {
        let it = &mut self.paths[path];
        it.retried();
        let Cable { rail, pd: Some(_), .. } = &self.cables[it.cable()] else { return };
        if !own.rails.0[*rail].look() {
            // It will say when it is.
            return;
        }
        if let Err(why) = self.make(path, own) {
            tracing::debug!("rdma: path {path} to rank {}: {why}", self.rank);
            self.paths[path].forget();
            self.settle(path, own);
        }
    }
}
