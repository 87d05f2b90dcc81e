//! A queue pair to a peer, and its lives.
//!
//! * `life`: the phases of a life, and the pause before the next;
//! * `queue_pair`: the device's objects; `destruction`: their end;
//! * `handshake`: the messages of both ends before packets pass;
//! * `proof`: the first packets, short and long;
//! * `iwarp`: the connection that iWARP needs, and a watch for silence;
//! * `send_queue`: the numbers of sends; `writing`: fragments, credits and questions;
//! * `id`: the peer, path and life of a completion.

mod destruction;
mod handshake;
mod id;
mod iwarp;
mod life;
mod proof;
mod queue_pair;
mod send_queue;
mod writing;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::RDMA_CELLS;

use self::handshake::Handshake;
use self::iwarp::{Dialer, Watch};
use self::life::Life;
use self::proof::Proof;
use self::queue_pair::{QueuePair, SPENT_MAX};
use self::send_queue::SendQueue;
use super::address::Address;
use super::card::RailCard;
use super::diagnostics;
use super::rail::Rail;
use super::ring::rtr::SLOTS;
use super::settings::Settings;
use super::sys::{Connection, Route, Target, Ticket};

pub(super) use self::id::{Id, Work};
pub(super) use self::life::Phase;

/// Credits of a lane that may be under way together. A ring has less than three times the lines
/// that bring one, and four quarters of the fragments. A lost path adds one repetition.
const CREDITS: usize = 10;
/// Messages about a lane that the receiver may have under way together.
const CONTROL_MESSAGES: usize = CREDITS + SLOTS;

/// A path to a peer. It has many lives: the next begins after the last is settled.
#[derive(Debug)]
pub(super) struct Path {
    /// The cable, which is one of the peer's pairs of rails.
    cable: usize,
    id: Id,
    life: Life,
    pair: QueuePair,
    handshake: Handshake,
    // Dropped after the queue pair that it connects.
    dialer: Dialer,
    proof: Proof,
    /// The log says already that long packets do not pass.
    is_short_known: bool,
    sends: SendQueue,
    /// The watch for silence, over iWARP.
    watch: Option<Watch>,
    /// Packets may overtake each other.
    is_adaptive: bool,
}

/// The inputs that a new life of a path needs.
pub(super) struct Making<'a> {
    pub(super) rail: &'a mut Rail,
    pub(super) settings: &'a Settings,
    /// The number of lanes in all.
    pub(super) lanes: usize,
    pub(super) used: Used,
    /// This end connects, over iWARP.
    pub(super) initiates: bool,
    /// The time that the first packet may take.
    pub(super) proof: Duration,
}

/// The arrival of an immediate: in a completion, or over iWARP as a message in a buffer slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrived {
    Immediate(u32),
    Message { slot: u32, bytes: u32 },
}

/// The lanes in use: those on which the peer sends, and those on which it answers us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) rings: usize,
    pub(super) images: usize,
}

impl Used {
    /// The receives that a queue pair has posted.
    const fn receives(self) -> usize {
        SPENT_MAX + self.rings * RDMA_CELLS + self.images * CONTROL_MESSAGES
    }
}

impl Path {
    /// Makes a path that was never connected.
    pub(super) fn new(peer: Rank, path: usize, cable: usize) -> Self {
        Self {
            cable,
            id: Id { peer, path, life: 0 },
            life: Life::new(),
            pair: QueuePair::default(),
            handshake: Handshake::default(),
            dialer: Dialer::default(),
            proof: Proof::default(),
            is_short_known: false,
            sends: SendQueue::default(),
            watch: None,
            is_adaptive: false,
        }
    }

    /// Makes a path that carries data without a device.
    #[cfg(test)]
    pub(super) fn carrying(peer: Rank, path: usize, cable: usize) -> Self {
        let mut it = Self::new(peer, path, cable);
        it.life.begin();
        it.life.prove();
        it.life.proven();
        it
    }

    /// Begins a life.
    pub(super) fn begin(&mut self) {
        self.life.begin();
        self.id.life = (self.id.life + 1) % 128;
        self.pair.clear(self.dialer.take());
        self.handshake = Handshake::default();
        self.sends = SendQueue::default();
        self.watch = None;
    }

    /// Lets nobody wait for an attempt to connect that is under way, at the end of the links.
    pub(super) fn abandon(&mut self) {
        if self.dialer.is_dialing() {
            self.pair.clear(self.dialer.take());
        }
    }

    /// Makes a queue pair that is ready to be connected.
    pub(super) fn make(&mut self, making: Making<'_>) -> io::Result<()> {
        let Making { rail, settings, lanes, used, initiates, proof } = making;
        if self.dialer.is_dialing() {
            return Err(io::Error::other("the last attempt to connect has not ended"));
        }
        let tag = self.id.encode(None);
        let most = Used { rings: lanes, images: lanes }.receives();
        self.pair.make(rail, (tag, most, used.receives()))?;
        self.pair.post_receives(used.receives())?;
        self.handshake = Handshake::new(tag)?;
        self.proof = Proof::new(rail.probe()?);
        let is_iwarp = self.is_iwarp();
        self.is_adaptive = rail.is_adaptive(settings) && !is_iwarp;
        self.dialer.begin(initiates && is_iwarp);
        let silence = diagnostics::silence(settings.timeout, settings.retries);
        self.watch = is_iwarp.then(|| Watch::new(silence, Instant::now()));
        self.life.offer(proof);
        Ok(())
    }

    /// The address for the peer: the queue pair, or over iWARP the port to connect to and the
    /// ticket to show there.
    pub(super) fn target(&self, rail: &Rail) -> Option<Target> {
        let qp = self.pair.get()?;
        let number = rail.connector.as_ref().map_or_else(|| qp.number(), |it| it.port().into());
        let (address, key) = self.proof.target();
        let (sequence, ticket) = (self.handshake.sequence(), *self.handshake.ticket());
        Some(Target { number, sequence, ticket, address, key })
    }

    pub(super) const fn cable(&self) -> usize {
        self.cable
    }

    /// Returns whether this is the path's first life.
    pub(super) const fn is_first(&self) -> bool {
        self.id.life == 1
    }

    pub(super) const fn phase(&self) -> Phase {
        self.life.phase()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.life.has_ended()
    }

    /// Returns whether the path carries data.
    pub(super) fn is_usable(&self) -> bool {
        self.life.is_usable()
    }

    /// Returns whether the path is still to be connected.
    pub(super) const fn is_connecting(&self) -> bool {
        self.life.is_connecting()
    }

    /// Returns whether the life is over and both ends know all arrivals.
    pub(super) fn is_settled(&self) -> bool {
        self.life.is_settled()
    }

    /// Returns whether completions of that life still count.
    pub(super) const fn lives(&self, life: u8) -> bool {
        self.id.life == life && !self.life.has_reported()
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.pair.is_iwarp()
    }

    /// Returns whether the peer must be told once the path is proven, so that it tries too.
    pub(super) const fn initiates(&self) -> bool {
        self.dialer.initiates()
    }

    pub(super) const fn has_offer(&self) -> bool {
        self.handshake.has_offer()
    }

    /// Connects to the peer's end. Returns whether the peer may write from now on.
    pub(super) fn connect(
        &mut self,
        rail: &Rail,
        (theirs, address): (&RailCard, Address),
        settings: &Settings,
        target: Target,
    ) -> io::Result<bool> {
        self.handshake.take(target);
        let mtu = rail.port.mtu.min(theirs.mtu);
        self.proof.set_mtu(mtu);
        if self.is_iwarp() {
            self.life.connect();
            if self.dialer.initiates() {
                let connector = rail.connector.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                let port = u16::try_from(target.number).map_err(io::Error::other)?;
                let to = SocketAddr::new(Ipv6Addr::from(theirs.gid).to_canonical(), port);
                self.dialer.resolve(connector, to, self.id.encode(None))?;
            }
            return Ok(false);
        }
        let route = Route {
            port: rail.port.number,
            gid_index: rail.gid.index,
            gid: address.gid,
            lid: address.lid,
            mtu,
            service_level: settings.service_level,
            traffic_class: settings.traffic_class,
            timeout: settings.timeout,
            retries: settings.retries,
        };
        self.pair.expose();
        self.pair.qp_mut()?.connect(&route, target, self.handshake.sequence())?;
        self.handshake.connected();
        self.prove()?;
        Ok(true)
    }

    /// Connects in a thread of its own, once the route is resolved (iWARP).
    pub(super) fn route_resolved(&mut self) -> io::Result<()> {
        if self.phase() != Phase::Connecting {
            return Ok(());
        }
        let number = self.pair.qp_mut()?.number();
        self.dialer.dial(number, self.handshake.theirs().ticket)
    }

    /// Takes the connection of a peer that shows our ticket, or gives it back.
    pub(super) fn admit(
        &mut self,
        connection: Connection,
        ticket: &Ticket,
    ) -> Result<io::Result<()>, Connection> {
        let is_expected = self.is_connecting() && self.dialer.is_waiting();
        match self.pair.get() {
            Some(qp) if is_expected && ticket == self.handshake.ticket() => {
                let (number, tag) = (qp.number(), self.id.encode(None));
                self.pair.expose();
                Ok(self.dialer.accept(connection, number, tag))
            }
            _ => Err(connection),
        }
    }

    /// Notes that the connection is established.
    pub(super) fn established(&mut self) -> io::Result<()> {
        self.pair.expose();
        self.handshake.connected();
        if self.dialer.initiates() {
            // A connection is established once the other end has accepted it.
            self.handshake.ready();
        }
        self.prove()
    }

    /// Returns whether others on its rail were connected in the meantime. A busy host may need more
    /// time for many connections, so the path's deadline counts from the last of them.
    pub(super) fn may_yet_come(&mut self, last: Instant) -> bool {
        self.life.extend(last)
    }

    /// Returns the error of a connection that has taken too long.
    pub(super) fn why_none(&mut self) -> io::Error {
        self.dialer.why_none()
    }

    /// Notes that the peer can be written to.
    pub(super) fn ready(&mut self) -> io::Result<()> {
        self.handshake.ready();
        self.prove()
    }

    /// The bytes in the longest packets, if these are under way and short ones pass.
    pub(super) fn long_packets(&self) -> Option<u32> {
        self.proof.long_packets().filter(|_| self.phase() == Phase::Proving)
    }

    /// Returns whether the end of the path is worth a line in the log. Later attempts are not,
    /// except the first on which only long packets are lost.
    pub(super) fn is_news(&mut self) -> bool {
        let is_short = self.long_packets().is_some();
        let is_new = is_short && !std::mem::replace(&mut self.is_short_known, true);
        is_new || self.is_usable() || self.is_first()
    }

    /// Sends a first packet, once both ends can be written to.
    fn prove(&mut self) -> io::Result<()> {
        if self.is_connecting() && self.handshake.is_complete() {
            self.life.prove();
            self.question()?;
        }
        Ok(())
    }

    /// The time that the first packet may take.
    pub(super) const fn proof(&self) -> Duration {
        self.life.proof()
    }

    /// Lets the peer use more lanes.
    pub(super) fn make_room(&mut self, rail: &mut Rail, was: Used, is: Used) -> io::Result<()> {
        self.pair.reserve(rail, is.receives())?;
        self.pair.post_receives(is.receives() - was.receives())
    }

    /// Returns the immediate that an arrival brings, if it brings one.
    pub(super) fn number(&self, arrived: Arrived) -> Option<u32> {
        match arrived {
            Arrived::Immediate(number) => Some(number),
            Arrived::Message { slot, bytes } => self.pair.get()?.immediate(slot, bytes),
        }
    }

    /// Notes that an immediate was handled.
    pub(super) fn arrived(&mut self) -> io::Result<()> {
        let goes_on = !self.has_ended();
        self.pair.used(goes_on)
    }

    /// Notes that a receive was flushed.
    pub(super) const fn flushed(&mut self) {
        self.pair.flushed();
    }

    /// Ends the life: the peer can write no more, and this end sends no more.
    pub(super) fn end(&mut self) {
        self.life.end();
        if !(self.handshake.is_connected() && self.pair.fail()) {
            self.destroy();
        }
    }

    /// Lets the device destroy the queue pair, because it refuses to end it or does not flush it.
    pub(super) fn destroy(&mut self) {
        self.pair.destroy(self.dialer.take());
    }

    /// Blocks until the device has destroyed the queue pair, if it was told to.
    ///
    /// # Errors
    /// The device refuses, or takes too long.
    pub(super) fn await_destruction(&self) -> io::Result<()> {
        self.pair.wait()
    }

    /// Ends a life that came to nothing and is unknown to the peer.
    pub(super) fn forget(&mut self) {
        self.end();
        self.life.forget();
    }

    /// Returns whether the arrivals are complete and not yet reported to the peer.
    ///
    /// # Errors
    /// The device does not let go of the queue pair, so the peer may still write by it.
    pub(super) fn must_report(&self) -> io::Result<bool> {
        Ok(self.has_ended() && !self.life.has_reported() && self.pair.is_silent()?)
    }

    /// Notes that this end reports its arrivals: later arrivals of this life are ignored. The queue
    /// pair stays until there is another.
    pub(super) const fn report(&mut self) {
        self.life.report();
    }

    /// Notes that the peer reports its arrivals. Returns whether the peer may do so now.
    pub(super) fn peer_reports(&mut self) -> bool {
        self.life.peer_reports()
    }

    /// Makes the path again after a pause, unless a time is set already.
    pub(super) fn retry_later(&mut self, now: Instant) {
        self.life.retry_later(now);
    }

    /// Makes the path again as soon as possible.
    pub(super) const fn retry_now(&mut self, now: Instant) {
        self.life.retry_at(now);
    }

    /// Notes that the path is made again now, or when the peer says so.
    pub(super) const fn retried(&mut self) {
        self.life.retried();
    }

    /// The time when the path needs attention though nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase() {
            Phase::Proven => self.watch.as_ref()?.deadline(self.sends.is_answered()),
            Phase::Ended if self.pair.has_receives() => Some(self.life.flush_deadline()),
            Phase::Ended if !self.life.has_reported() => self.pair.next_check(),
            _ => self.life.deadline(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log says once that long packets do not pass, and is silent about later attempts.
    #[test]
    fn the_loss_of_long_packets_is_news_once() {
        let mut path = Path::new(Rank(1), 0, 0);
        let mut news = |is_long: bool| {
            path.begin();
            path.proof = Proof::default();
            path.proof.set_mtu(5);
            path.life.prove();
            assert!(!is_long || path.proof.lengthen());
            assert_eq!(path.long_packets(), is_long.then_some(4096));
            let is_news = path.is_news();
            path.forget();
            is_news
        };
        let seen = [false, false, true, true, false, true].map(&mut news);
        assert_eq!(seen, [true, false, true, false, false, false], "the first attempt counts too");
        let mut path = Path::carrying(Rank(1), 0, 0);
        path.proof.lengthen();
        assert_eq!(path.long_packets(), None, "it carries data, so they pass");
        assert!(path.is_news());
    }
}
