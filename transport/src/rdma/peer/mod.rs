//! All links between this rank and one other.
//!
//! * `greeting`: the exchange of rails; `setup`: paths and rings are made; `connecting`: iWARP
//!   connections;
//! * `cable`, `routes`: pairs of rails, the paths on them, and the choice among these;
//! * `lanes`: the rings of all lanes; `sending`, `receiving`: their use;
//! * `failover`: paths that end and begin again; `fallback`: TCP in their place;
//! * `control`: the messages for the control connection;
//! * `ending`, `fault`: the end of the links.

mod cable;
mod connecting;
mod control;
mod ending;
mod failover;
mod fallback;
mod fault;
mod greeting;
mod lanes;
mod own;
mod receiving;
mod routes;
mod sending;
mod setup;
#[cfg(test)]
mod tests;

use std::ops::AddAssign;
use std::time::Instant;

use ringfold_types::Rank;
use ringfold_types::limits::LANES_MAX;

use self::control::ControlQueue;
use self::ending::Ending;
use self::fallback::Fallback;
use self::greeting::Greeting;
use self::lanes::Lanes;
use self::routes::Routes;
use super::diagnostics::RailEvent;
use super::message::Message;
use super::path::Path;
use super::ring::outbound::Outbound;

pub(super) use self::fault::Fault;
pub(super) use self::own::Own;

/// All links between this rank and one other.
#[derive(Debug)]
pub(super) struct Peer {
    rank: Rank,
    greeting: Greeting,
    routes: Routes,
    lanes: Lanes,
    control: ControlQueue,
    fallback: Fallback,
    ending: Ending,
    /// The events that are not yet in the log.
    events: Vec<RailEvent>,
}

/// The cost of a peer's links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) paths: usize,
    /// Registrations.
    pub(super) rights: usize,
    /// Bytes of the registrations.
    pub(super) bytes: usize,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, Self { paths, rights, bytes }: Self) {
        self.paths += paths;
        self.rights += rights;
        self.bytes += bytes;
    }
}

impl Peer {
    /// Makes a peer with which nothing was exchanged yet.
    pub(super) fn new(rank: Rank, lanes: usize, may_use_tcp: bool) -> Self {
        Self {
            rank,
            greeting: Greeting::default(),
            routes: Routes::default(),
            lanes: Lanes::new(lanes),
            control: ControlQueue::default(),
            fallback: Fallback::new(may_use_tcp),
            ending: Ending::default(),
            events: Vec::new(),
        }
    }

    /// Returns whether every exchange is complete, so nothing is expected on the connection.
    pub(super) fn is_settled(&self) -> bool {
        let is_at_rest = |path: &Path| path.is_usable() || path.is_settled();
        let waits = self.greeting.waits()
            || self.fallback.is_used()
            || !self.routes.paths().iter().all(is_at_rest)
            || (0..self.lanes.count()).any(|lane| self.lanes.is_asked(lane));
        self.ending.is_over() || self.control.is_empty() && (!waits || self.ending.is_done())
    }

    /// The reason why nothing can be sent.
    pub(super) const fn fault(&self) -> Option<&Fault> {
        self.ending.fault()
    }

    /// Ends the links. The first reason counts, unless the peer is gone: that explains earlier
    /// faults.
    pub(super) fn end(&mut self, fault: Fault) {
        if !self.ending.is_over() {
            tracing::debug!(peer = self.rank.0, ?fault, "rdma link ended");
            let paths = self.routes.paths_mut().iter_mut();
            paths.filter(|path| !path.has_ended()).for_each(Path::end);
            self.lanes.drop_held();
            self.control.drop_fragments();
        }
        self.ending.fail(fault);
    }

    /// Handles the peer's goodbye, after so many fragments of each lane. The peer then has
    /// everything that it wanted.
    fn dismiss(&mut self, fragments: [u64; LANES_MAX]) {
        self.ending.promise(fragments);
        self.lanes.outbounds_mut().for_each(Outbound::all_arrived);
    }

    /// Ends the links because the peer is gone. Fragments that it sent before may still be under
    /// way.
    pub(super) fn leave(&mut self) {
        if self.ending.has_goodbye() {
            self.lanes.outbounds_mut().for_each(Outbound::all_arrived);
        }
        self.ending.leave(Instant::now());
    }

    /// Says goodbye with the number of fragments, after all sends have arrived.
    pub(super) fn part(&mut self) {
        if self.greeting.has_met() && !self.ending.is_over() {
            self.control.push(Message::Bye { fragments: self.lanes.fragments() });
        }
    }

    /// Returns whether data goes by TCP, because no path is left.
    pub(super) const fn is_by_tcp(&self) -> bool {
        self.fallback.is_used() && !self.ending.is_over()
    }

    /// Returns whether there are events for the log.
    pub(super) const fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events since the last call, for the log.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = RailEvent> {
        self.events.drain(..)
    }

    /// Returns whether messages wait for the connection.
    pub(super) fn has_messages(&self) -> bool {
        self.control.has_messages()
    }

    /// Returns the next message for the peer, which may be a fragment that goes by TCP.
    pub(super) fn next_message(&mut self) -> Option<Message> {
        self.control.next()
    }

    /// Queues a message.
    #[cfg(test)]
    pub(super) fn push(&mut self, message: Message) {
        self.control.push(message);
    }

    pub(super) fn costs(&self) -> Costs {
        let (rights, bytes) = self.lanes.costs(self.routes.cables().len());
        Costs { paths: self.routes.alive(), rights, bytes }
    }
}
