//! The cables and paths to a peer, and the choice among them.

use std::time::Instant;

use ringfold_types::limits::{PATHS_MAX, RDMA_LEND_BYTES};

use super::cable::Cable;
use super::own::Own;
use crate::rdma::path::Path;
use crate::rdma::rail::Rails;
use crate::rdma::registry::{Loan, Place};
use crate::rdma::ring::layout::{Most, RDMA_STRIPE_BYTES};
use crate::shares::{Shares, Slow};

/// Bytes of the shortest write that a path carries of a divided message.
const LEAST: u64 = RDMA_STRIPE_BYTES as u64;
/// The number of the way by TCP, in place of a path's.
pub(super) const BY_TCP: usize = PATHS_MAX;

/// The cables to a peer, and the paths on them. A fragment takes the path with the fewest bytes
/// under way for its share, and equal paths take turns. One of the paths is the *control path*: it
/// alone carries credits and ready-to-receive messages, so these stay in order.
#[derive(Debug, Default)]
pub(super) struct Routes {
    cables: Vec<Cable>,
    paths: Vec<Path>,
    shares: Shares,
    /// The path whose turn it is among equals.
    turn: usize,
    control_path: Option<usize>,
}

impl Routes {
    /// Adds a cable and returns its number.
    pub(super) fn add_cable(&mut self, cable: Cable) -> usize {
        self.cables.push(cable);
        self.cables.len() - 1
    }

    /// Adds a path on one of the cables.
    pub(super) fn add_path(&mut self, path: Path) {
        debug_assert!(path.cable() < self.cables.len(), "{path:?}");
        self.paths.push(path);
        self.shares.add();
    }

    /// Sets the rate of a rail's port, which has changed.
    pub(super) fn set_rate(&mut self, rail: usize, gigabits: u32) {
        for at in 0..self.paths.len() {
            if self.cable_of(at).rail() == rail {
                self.shares.set_own(at, gigabits);
            }
        }
    }

    /// Sets the rates of the ports at both ends of a path, which begins a life.
    pub(super) fn set_rates(&mut self, path: usize, gigabits: [u32; 2]) {
        self.shares.set(path, gigabits);
    }

    /// The weight of a path among all.
    #[cfg(test)]
    pub(super) fn weight(&self, path: usize) -> u64 {
        self.shares.weight(path)
    }

    pub(super) fn cables(&self) -> &[Cable] {
        &self.cables
    }

    pub(super) fn cables_mut(&mut self) -> &mut [Cable] {
        &mut self.cables
    }

    pub(super) fn paths(&self) -> &[Path] {
        &self.paths
    }

    pub(super) fn paths_mut(&mut self) -> &mut [Path] {
        &mut self.paths
    }

    /// A path, with its cable.
    pub(super) fn path_mut(&mut self, path: usize) -> (&mut Path, &Cable) {
        let path = &mut self.paths[path];
        let cable = &self.cables[path.cable()];
        (path, cable)
    }

    pub(super) fn cable_of(&self, path: usize) -> &Cable {
        &self.cables[self.paths[path].cable()]
    }

    pub(super) fn cable_of_mut(&mut self, path: usize) -> &mut Cable {
        &mut self.cables[self.paths[path].cable()]
    }

    /// The number of paths that have not ended.
    pub(super) fn alive(&self) -> usize {
        self.paths.iter().filter(|path| !path.has_ended()).count()
    }

    /// The paths by a rail that have not ended.
    pub(super) fn by_rail(&self, rail: usize) -> Vec<usize> {
        let is_by = |at: &usize| !self.paths[*at].has_ended() && self.cable_of(*at).rail() == rail;
        (0..self.paths.len()).filter(is_by).collect()
    }

    /// The paths by a rail that have ended.
    pub(super) fn ended_by(&mut self, rail: usize) -> impl Iterator<Item = &mut Path> {
        let cables = &self.cables;
        let is_by = move |path: &&mut Path| path.has_ended() && cables[path.cable()].rail() == rail;
        self.paths.iter_mut().filter(is_by)
    }

    /// Returns whether some path that carries data has a port that is up.
    pub(super) fn is_any_up(&self, rails: &Rails) -> bool {
        let is_up = |path: &Path| rails.0[self.cables[path.cable()].rail()].is_up;
        self.paths.iter().any(|path| path.is_usable() && is_up(path))
    }

    /// Returns whether some path by a rail carries data.
    #[cfg(test)]
    pub(super) fn carries(&self, rail: usize) -> bool {
        self.paths.iter().any(|path| path.is_usable() && self.cables[path.cable()].rail() == rail)
    }

    /// The path that carries the next fragment, if any can: the one that would first be done with
    /// another write, and among equals the one whose turn it is.
    pub(super) fn next(&self) -> Option<usize> {
        let paths = self.paths.len();
        let turns = (0..paths).map(|step| (self.turn + step) % paths);
        let carriers = turns.filter(|at| self.paths[*at].takes_fragments() && !self.is_idle(*at));
        let bytes = |at: usize| u64::from(self.paths[at].bytes_under_way()) + LEAST;
        let weight = |at: usize| self.shares.weight(at);
        carriers.min_by(|one, other| {
            (bytes(*one) * weight(*other)).cmp(&(bytes(*other) * weight(*one)))
        })
    }

    /// Returns whether fragments of so many bytes are counted, whose completion the device then
    /// signals: there is a choice between paths, and the fragments are long.
    pub(super) const fn counts(&self, bytes: usize) -> bool {
        self.paths.len() > 1 && bytes >= RDMA_LEND_BYTES
    }

    /// Counts bytes of the last fragment of a path.
    pub(super) fn count(&mut self, path: usize, bytes: u32) {
        let it = &mut self.paths[path];
        it.count(bytes);
        if it.bytes_under_way() == bytes {
            self.shares.begin(path, Instant::now());
        }
    }

    /// Notes counted bytes of a path that have arrived. Returns a path that has become slow, if
    /// there is one.
    pub(super) fn arrived(&mut self, path: usize) -> Option<Slow> {
        let it = &mut self.paths[path];
        let bytes = it.take_done_bytes();
        if bytes == 0 {
            return None;
        }
        let is_idle = it.bytes_under_way() == 0;
        let ended = (0..self.paths.len()).filter(|at| self.paths[*at].has_ended());
        ended.for_each(|at| self.shares.end(at));
        self.shares.arrived(path, (bytes, is_idle), Instant::now())
    }

    /// Notes that the path had its turn.
    pub(super) fn took_turn(&mut self, path: usize) {
        self.turn = (path + 1) % self.paths.len();
    }

    /// Returns whether a path carries no data, because its cable is a spare one and others carry
    /// it.
    fn is_idle(&self, path: usize) -> bool {
        let is_spare = |path: &Path| self.cables[path.cable()].is_spare();
        is_spare(&self.paths[path])
            && self.paths.iter().any(|path| path.is_usable() && !is_spare(path))
    }

    /// The most bytes of a message of so many bytes that one write by `way` takes.
    pub(super) fn most(&self, bytes: usize, way: usize) -> Most {
        if way == BY_TCP {
            return Most::of(bytes, (1, 1));
        }
        let carries = |at: &usize| self.paths[*at].is_usable() && !self.is_idle(*at);
        let weights = (0..self.paths.len()).filter(carries).map(|at| self.shares.weight(at));
        Most::of(bytes, (self.shares.weight(way), weights.sum()))
    }

    /// The cable of that way, if its device can write directly to the receiver's memory.
    pub(super) fn placing(&self, way: usize) -> Option<usize> {
        let path = self.paths.get(way).filter(|path| !path.is_iwarp());
        path.map(Path::cable)
    }

    /// Lends bytes to a path, if its completions report arrivals.
    pub(super) fn lend(&self, way: usize, place: Place, own: &mut Own<'_>) -> Option<Loan> {
        let cable = Some(&self.cables[self.placing(way)?]).filter(|cable| cable.is_usable())?;
        let pd = &own.rails.0[cable.rail()].pd;
        own.registry.lend(place, pd, own.budget)
    }

    /// The control path: the same while it lives. Paths that can carry ready-to-receive messages
    /// come first, and then those of cables that are not spare.
    pub(super) fn control_path(&mut self) -> Option<usize> {
        let lives = |at: &usize| self.paths[*at].is_usable();
        if self.control_path.filter(lives).is_none() {
            let rank =
                |at: &usize| (!self.paths[*at].can_send_rtr(), self.cable_of(*at).is_spare());
            self.control_path = (0..self.paths.len()).filter(lives).min_by_key(rank);
        }
        self.control_path
    }

    /// The time when some path needs attention though nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.paths.iter().filter_map(Path::deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::Rank;

    use super::*;
    use crate::rdma::card::RailCard;

    /// Paths that carry data, one on each cable. `spare` tells which cables are spare.
    fn routes(spare: &[bool]) -> Routes {
        let mut routes = Routes::default();
        for (rail, is_spare) in spare.iter().enumerate() {
            let (name, theirs) = (String::new(), RailCard::default());
            let cable = routes.add_cable(Cable::new(rail, name, true, theirs, *is_spare));
            routes.add_path(Path::carrying(Rank(1), rail, cable));
        }
        routes
    }

    /// Sends so many fragments of so many bytes, none of which arrives. Returns how many each path
    /// carries.
    fn carry(routes: &mut Routes, fragments: usize, bytes: u32) -> Vec<usize> {
        let mut carried = vec![0; routes.paths().len()];
        for _ in 0..fragments {
            let path = routes.next().unwrap();
            routes.took_turn(path);
            routes.count(path, bytes);
            carried[path] += 1;
        }
        carried
    }

    fn turns(routes: &mut Routes, count: usize) -> Vec<usize> {
        let turn = |_| {
            let path = routes.next().unwrap();
            routes.took_turn(path);
            path
        };
        (0..count).map(turn).collect()
    }

    #[test]
    fn paths_take_turns_and_spare_ones_wait() {
        let mut routes = routes(&[false, true, false]);
        assert_eq!(turns(&mut routes, 4), [0, 2, 0, 2]);
        routes.paths_mut()[0].end();
        assert_eq!(turns(&mut routes, 2), [2, 2]);
        routes.paths_mut()[2].end();
        assert_eq!(turns(&mut routes, 2), [1, 1]);
        assert_eq!((routes.alive(), routes.by_rail(1)), (1, vec![1]));
        routes.paths_mut()[1].end();
        assert_eq!((routes.next(), routes.ended_by(2).count()), (None, 1));
    }

    #[test]
    fn fragments_take_the_path_with_the_fewest_bytes_for_its_rate() {
        let mut routes = routes(&[false, false, false]);
        routes.set_rate(0, 400);
        routes.set_rate(2, 100);
        assert_eq!(turns(&mut routes, 4), [0, 1, 0, 1], "nothing is under way: the fast ones");
        let carried = carry(&mut routes, 900, 128 << 10);
        assert!(carried.iter().zip([400, 400, 100]).all(|(it, by)| it.abs_diff(by) < 5));
        routes.set_rate(1, 100);
        let carried = carry(&mut routes, 200, 128 << 10);
        assert!(carried[0] > 150 && carried[1] == 0, "{carried:?}: it has trained down");
    }

    #[test]
    fn the_voice_stays_while_it_lives() {
        let mut routes = routes(&[true, false, false]);
        assert_eq!(routes.control_path(), Some(1), "no spare one");
        routes.paths_mut()[0].end();
        assert_eq!(routes.control_path(), Some(1));
        routes.paths_mut()[1].end();
        assert_eq!(routes.control_path(), Some(2));
        routes.paths_mut()[2].end();
        assert_eq!(routes.control_path(), None);
    }

    #[test]
    fn messages_are_divided_among_those_that_carry_them() {
        let routes = routes(&[false, true, false]);
        assert_eq!(routes.most(1 << 20, 2), Most::of(1 << 20, (1, 2)));
        assert_eq!(Routes::default().most(1 << 20, BY_TCP), Most::of(1 << 20, (1, 1)));
    }
}
