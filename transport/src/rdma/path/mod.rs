//! A queue pair to a peer, and its lives.
//!
//! * `life`: the stages of a life, and the pause before the next;
//! * `queue_pair`: the device's objects, `destruction`: how they go;
//! * `handshake`: the words of both ends before packets pass;
//! * `iwarp`: the connection that iWARP needs, and a watch for silence;
//! * `send_queue`: the sends by number; `writing`: fragments, credits and questions;
//! * `id`: the peer, path and life of a completion.

mod destruction;
mod handshake;
mod id;
mod iwarp;
mod life;
mod queue_pair;
mod send_queue;
mod writing;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::RDMA_CELLS;

use self::handshake::Handshake;
use self::iwarp::{Dialer, Watch};
use self::life::Life;
use self::queue_pair::{QueuePair, SPENT_MAX};
use self::send_queue::SendQueue;
use super::address::Address;
use super::card::RailCard;
use super::rail::Rail;
use super::ring::invitation::PLACES;
use super::settings::Settings;
use super::sys::{Connection, Pd, Route, Target, Ticket};
use super::words;

pub(super) use self::id::{Id, Work};
pub(super) use self::life::Stage;

/// Credits for a lane that may be under way at a time: a ring has less than three times the lines
/// that bring one, and four quarters of fragments, and where another path was lost one is repeated.
const CREDITS: usize = 10;
/// What the receiver says of a lane at a time at most.
const WORDS: usize = CREDITS + PLACES;

/// A path to a peer. It has many lives: the next one can begin when the last one is settled.
#[derive(Debug)]
pub(super) struct Path {
    /// Which of the peer's pairs of rails it is on.
    cable: usize,
    id: Id,
    life: Life,
    pair: QueuePair,
    handshake: Handshake,
    // After the queue pair that it connects.
    dialer: Dialer,
    sends: SendQueue,
    /// Over iWARP.
    watch: Option<Watch>,
    /// Whether its packets may overtake each other.
    is_adaptive: bool,
}

/// The ingredients of a path.
pub(super) struct Making<'a> {
    pub(super) rail: &'a mut Rail,
    pub(super) pd: &'a Arc<Pd>,
    pub(super) settings: &'a Settings,
    /// Lanes that there may be,
    pub(super) lanes: usize,
    /// and those that the peer may write to already.
    pub(super) rings: usize,
    /// Over iWARP, this end connects.
    pub(super) calls: bool,
    /// How long packets may take to pass for the first time.
    pub(super) proof: Duration,
}

/// The bringer of a number: a completion, or over iWARP a message, which lies at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrived {
    Number(u32),
    Message { place: u32, bytes: u32 },
}

impl Path {
    /// One that was never made.
    pub(super) fn new(peer: Rank, path: usize, cable: usize) -> Self {
        Self {
            cable,
            id: Id { peer, path, life: 0 },
            life: Life::new(),
            pair: QueuePair::default(),
            handshake: Handshake::default(),
            dialer: Dialer::default(),
            sends: SendQueue::default(),
            watch: None,
            is_adaptive: false,
        }
    }

    /// One that carries data, without a device.
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

    /// Lets nobody wait for an attempt to connect that is under way; as the end of it all.
    pub(super) fn abandon(&mut self) {
        if self.dialer.is_dialing() {
            self.pair.clear(self.dialer.take());
        }
    }

    /// Makes a queue pair that is ready to be connected.
    pub(super) fn make(&mut self, making: Making<'_>) -> io::Result<()> {
        let Making { rail, pd, settings, lanes, rings, calls, proof } = making;
        if self.dialer.is_dialing() {
            return Err(io::Error::other("the last attempt to connect has not ended"));
        }
        let (tag, most) = (self.id.encode(None), lanes * (RDMA_CELLS + WORDS) + SPENT_MAX);
        self.pair.make(rail, pd, settings.partition_key_index, (tag, most))?;
        self.pair.post_receives(lanes * WORDS + SPENT_MAX + rings * RDMA_CELLS)?;
        self.handshake = Handshake::new(tag)?;
        let is_iwarp = self.is_iwarp();
        self.is_adaptive = rail.is_adaptive(settings) && !is_iwarp;
        self.dialer.begin(calls && is_iwarp);
        let silence = words::silence(settings.timeout, settings.retries);
        self.watch = is_iwarp.then(|| Watch::new(silence, Instant::now()));
        self.life.offer(proof);
        Ok(())
    }

    /// The address for the peer: the queue pair, or over iWARP the port to connect to and the
    /// ticket to show there.
    pub(super) fn target(&self, rail: &Rail) -> Option<Target> {
        let qp = self.pair.get()?;
        let number = rail.connector.as_ref().map_or_else(|| qp.number(), |it| it.port().into());
        let (address, key) = qp.may_be_read();
        let (sequence, ticket) = (self.handshake.sequence(), *self.handshake.ticket());
        Some(Target { number, sequence, ticket, address, key })
    }

    pub(super) const fn cable(&self) -> usize {
        self.cable
    }

    /// Whether it was never made before.
    pub(super) const fn is_first(&self) -> bool {
        self.id.life == 1
    }

    pub(super) const fn stage(&self) -> Stage {
        self.life.stage()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.life.has_ended()
    }

    /// Whether it carries data.
    pub(super) fn is_usable(&self) -> bool {
        self.life.is_usable()
    }

    /// Whether it is to be connected.
    pub(super) const fn is_connecting(&self) -> bool {
        self.life.is_connecting()
    }

    /// Whether it is over and both ends know all arrivals.
    pub(super) fn is_settled(&self) -> bool {
        self.life.is_settled()
    }

    /// Whether completions of that life still count.
    pub(super) const fn lives(&self, life: u8) -> bool {
        self.id.life == life && !self.life.has_told()
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.pair.is_iwarp()
    }

    /// Whether the peer is to be told when the path is proven, so that it tries too.
    pub(super) const fn calls(&self) -> bool {
        self.dialer.calls()
    }

    pub(super) const fn has_offer(&self) -> bool {
        self.handshake.has_offer()
    }

    /// Connects to the peer's end; whether the peer may write from now on.
    pub(super) fn connect(
        &mut self,
        rail: &Rail,
        (theirs, address): (&RailCard, Address),
        settings: &Settings,
        target: Target,
    ) -> io::Result<bool> {
        self.handshake.take(target);
        if self.is_iwarp() {
            self.life.connect();
            if self.dialer.calls() {
                let connector = rail.connector.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                let port = u16::try_from(target.number).map_err(io::Error::other)?;
                let to = SocketAddr::new(Ipv6Addr::from(theirs.gid).to_canonical(), port);
                self.dialer.find(connector, to, self.id.encode(None))?;
            }
            return Ok(false);
        }
        let route = Route {
            port: rail.port.number,
            gid_index: rail.gid.index,
            gid: address.gid,
            lid: address.lid,
            mtu: rail.port.mtu.min(theirs.mtu),
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

    /// Over iWARP, the way to the peer is known: connects, beside the calls.
    pub(super) fn found(&mut self) -> io::Result<()> {
        if self.stage() != Stage::Connecting {
            return Ok(());
        }
        let number = self.pair.qp_mut()?.number();
        self.dialer.dial(number, self.handshake.theirs().ticket)
    }

    /// Takes the connection of a peer that shows the ticket we gave it, or gives it back.
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

    /// The connection is there.
    pub(super) fn made(&mut self) -> io::Result<()> {
        self.pair.expose();
        self.handshake.connected();
        if self.dialer.calls() {
            // The other end has accepted it.
            self.handshake.ready();
        }
        self.prove()
    }

    /// Whether others on its rail were connected in the meantime, of which there may be many more
    /// than a busy machine makes in that time: then it has as long again, from the last one on.
    pub(super) fn may_yet_come(&mut self, last: Instant) -> bool {
        self.life.extend(last)
    }

    /// Why there is no connection, once it has taken too long.
    pub(super) fn why_none(&mut self) -> io::Error {
        self.dialer.why_none()
    }

    /// The peer can be written to.
    pub(super) fn ready(&mut self) -> io::Result<()> {
        self.handshake.ready();
        self.prove()
    }

    /// Finds out whether packets pass, once both ends can be written to.
    fn prove(&mut self) -> io::Result<()> {
        if self.is_connecting() && self.handshake.is_complete() {
            self.life.prove();
            self.question()?;
        }
        Ok(())
    }

    /// How long packets may take to pass for the first time.
    pub(super) const fn proof(&self) -> Duration {
        self.life.proof()
    }

    /// Lets the peer write the fragments of one more lane.
    pub(super) fn expect_lane(&mut self) -> io::Result<()> {
        self.pair.post_receives(RDMA_CELLS)
    }

    /// The number that an arrival brings, if it brings one.
    pub(super) fn number(&self, arrived: Arrived) -> Option<u32> {
        match arrived {
            Arrived::Number(number) => Some(number),
            Arrived::Message { place, bytes } => self.pair.get()?.note(place, bytes),
        }
    }

    /// A number was taken.
    pub(super) fn arrived(&mut self) -> io::Result<()> {
        let goes_on = !self.has_ended();
        self.pair.used(goes_on)
    }

    /// A receive was taken back.
    pub(super) const fn flushed(&mut self) {
        self.pair.flushed();
    }

    /// Ends it: nothing is written to us or sent any more.
    pub(super) fn end(&mut self) {
        self.life.end();
        if !(self.handshake.is_connected() && self.pair.fail()) {
            self.destroy();
        }
    }

    /// Lets the device destroy the queue pair: it refuses to end it, or does not flush it.
    pub(super) fn destroy(&mut self) {
        self.pair.destroy(self.dialer.take());
    }

    /// Lets the device destroy the queue pair, and blocks until that is done.
    ///
    /// # Errors
    /// The device does not let go of it.
    pub(super) fn destroy_now(&mut self) -> io::Result<()> {
        self.destroy();
        self.pair.wait()
    }

    /// Ends a life that came to nothing, and of which the peer knows nothing.
    pub(super) fn forget(&mut self) {
        self.end();
        self.life.forget();
    }

    /// Whether it is over and nothing more will come of it, and the peer has not been told.
    ///
    /// # Errors
    /// The device does not let go of the queue pair, so that the peer may still write by it.
    pub(super) fn must_tell(&self) -> io::Result<bool> {
        Ok(self.has_ended() && !self.life.has_told() && self.pair.is_silent()?)
    }

    /// This end reports the arrivals: later reports of this life do not count. The queue pair stays
    /// until there is another.
    pub(super) const fn tell(&mut self) {
        self.life.tell();
    }

    /// The peer reports the arrivals; whether it may.
    pub(super) fn heard(&mut self) -> bool {
        self.life.heard()
    }

    /// Makes it again after a pause, once time comes to it, unless something else was planned.
    pub(super) fn retry_later(&mut self, now: Instant) {
        self.life.retry_later(now);
    }

    /// Makes it again as soon as may be.
    pub(super) const fn retry_now(&mut self, now: Instant) {
        self.life.retry_at(now);
    }

    /// It is made again now, or when the peer says so.
    pub(super) const fn retried(&mut self) {
        self.life.retried();
    }

    /// When time moves it on.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage() {
            Stage::Proven => self.watch.as_ref()?.deadline(self.sends.is_answered()),
            Stage::Ended if self.pair.has_receives() => Some(self.life.flush_deadline()),
            Stage::Ended if !self.life.has_told() => self.pair.look_at(),
            _ => self.life.deadline(),
        }
    }
}
