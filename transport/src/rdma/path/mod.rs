//! A queue pair to a peer, and its lives. `sends` is what goes by it, `iwarp` what it needs more
//! there, `destruction` how it goes.

mod destruction;
mod id;
mod iwarp;
mod sends;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{
    HANDSHAKE_MS, RDMA_CELLS, RDMA_FLUSH_MS, RDMA_RETRY_MAX_MS, RDMA_RETRY_MS,
};

use super::Settings;
use super::address::Address;
use super::geometry::LINE_BYTES;
use super::invitation::PLACES;
use super::message::RailCard;
use super::rail::Rail;
use super::sys::{Connection, Cq, Pd, Qp, Route, Sizes, Target, Ticket};
use super::words;
use destruction::Destruction;
pub(super) use id::{Id, Work};

/// Sends that a queue pair holds.
const SENDS: u32 = 256;
/// Every so many sends the device says how far it is.
const SIGNAL_EVERY: u32 = 32;
/// Credits for a lane that may be under way at a time: a ring has less than three times the lines
/// that bring one, and four quarters of fragments, and where another path was lost one is repeated.
const CREDITS: usize = 10;
/// What the receiver says of a lane at a time at most.
const WORDS: usize = CREDITS + PLACES;
/// Receives that may have been used before others are posted.
const SPENT_MAX: usize = 16;
/// What is asked for: a line of the ring. Not every device has much more.
const INLINE_BYTES: u32 = 64;
const _: () = assert!(INLINE_BYTES as usize == LINE_BYTES);

/// See the module's head. It has many lives: one that has ended, and of which both ends know what
/// it carried, can be made again.
#[derive(Debug)]
pub(super) struct Path {
    /// Which of the peer's pairs of rails it is on.
    pub(super) cable: usize,
    id: Id,
    stage: Stage,
    /// When the stage began, as far as time moves it on.
    since: Instant,
    /// Lives in a row that ended before they carried anything.
    failures: u32,
    /// When to make it again, if that is for this end to begin.
    pub(super) again: Option<Instant>,
    qp: Option<Qp>,
    queue: Option<Arc<Cq>>,
    /// Of our first packet.
    sequence: u32,
    /// What the peer has offered.
    theirs: Option<Target>,
    is_connected: bool,
    /// The peer may be able to write by it until it is flushed or destroyed.
    is_exposed: bool,
    /// The destruction of a queue pair by which the peer could write. The peer hears nothing of
    /// this life's end before the device is done.
    destruction: Option<Destruction>,
    /// The peer has said that it can be written to.
    is_ready: bool,
    /// When it is over: what we have said, and the peer has.
    has_told: bool,
    has_heard: bool,
    /// Sends posted, those that are done as far as we know, those that have arrived, the last that
    /// brings a fragment, and the last of those for which the device was asked; counted without
    /// end.
    posted: u32,
    done: u32,
    answered: u32,
    last_fragment: u32,
    asked: u32,
    /// When the question was asked that is not answered, and the last was.
    asking: Option<Instant>,
    answered_at: Instant,
    /// Receives that are posted, and those used and not posted again.
    receives: usize,
    spent: usize,
    /// Whether its packets may overtake each other.
    is_adaptive: bool,
    /// Over iWARP: whether this end connects to the other,
    calls: bool,
    /// what the other has to show if not,
    ticket: Ticket,
    connection: Option<Arc<Connection>>,
    /// and an attempt to connect, beside the calls and maybe for longer than a life.
    dial: Option<JoinHandle<io::Result<()>>>,
    /// How long packets may take to pass for the first time,
    pub(super) proof: Duration,
    /// and how long the peer's device may not answer after that.
    silence: Duration,
}

/// How far a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer has been told of it.
    Offered,
    /// Over iWARP: both know of it, and it is being connected.
    Connecting,
    /// Both ends can be written to; whether packets pass is being tried.
    Proving,
    /// It carries data.
    Proven,
    /// It cannot be used, or not any more.
    Ended,
}

impl Path {
    /// One that was never made.
    pub(super) fn new(peer: Rank, path: usize, cable: usize) -> Self {
        Self {
            cable,
            id: Id { peer, path, life: 0 },
            stage: Stage::Ended,
            since: Instant::now(),
            failures: 0,
            again: None,
            qp: None,
            queue: None,
            sequence: 0,
            theirs: None,
            is_connected: false,
            is_exposed: false,
            destruction: None,
            is_ready: false,
            has_told: true,
            has_heard: true,
            posted: 0,
            done: 0,
            answered: 0,
            last_fragment: 0,
            asked: 0,
            asking: None,
            answered_at: Instant::now(),
            receives: 0,
            spent: 0,
            is_adaptive: false,
            calls: false,
            ticket: Ticket::default(),
            connection: None,
            dial: None,
            proof: Duration::ZERO,
            silence: Duration::ZERO,
        }
    }

    /// Begins a life.
    pub(super) fn begin(&mut self) {
        debug_assert!(self.is_settled(), "{self:?}");
        self.bury();
        let id = Id { life: (self.id.life + 1) % 128, ..self.id };
        let (queue, dial) = (self.queue.take(), self.dial.take());
        let fresh = Self { id, failures: self.failures, ..Self::new(id.peer, id.path, self.cable) };
        *self = Self { queue, dial, has_told: false, has_heard: false, ..fresh };
    }

    /// Gives the queue pair, if there is one, back to the device, beside the calls.
    fn bury(&mut self) -> Option<Destruction> {
        let qp = self.qp.take()?;
        Some(Destruction::new(qp, self.connection.take()))
    }

    /// Lets nobody wait for an attempt to connect that is under way; as the end of it all.
    pub(super) fn abandon(&mut self) {
        if self.is_dialing() {
            self.bury();
        }
    }

    /// Makes a queue pair that is ready to be connected, by which the peer may write to `rings` of
    /// so many `lanes`; over iWARP by this end, if it `calls`.
    pub(super) fn make(
        &mut self,
        rail: &mut Rail,
        pd: &Arc<Pd>,
        (lanes, rings): (usize, usize),
        calls: bool,
        settings: &Settings,
    ) -> io::Result<()> {
        if self.is_dialing() {
            return Err(io::Error::other("the last attempt to connect has not ended"));
        }
        let most = lanes * (RDMA_CELLS + WORDS) + SPENT_MAX;
        let receives = u32::try_from(most).unwrap_or(u32::MAX);
        // When it fails, all its work completes.
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => rail.queue(receives + SENDS)?,
        };
        let queue = self.queue.insert(queue);
        let qp = Qp::new(pd, queue, Sizes { sends: SENDS, receives, inline_bytes: INLINE_BYTES })?;
        qp.init(rail.port.number, settings.partition_key_index)?;
        self.is_adaptive = rail.is_adaptive(settings) && !rail.is_iwarp();
        self.qp = Some(qp);
        self.post_receives(lanes * WORDS + SPENT_MAX + rings * RDMA_CELLS)?;
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        self.sequence = u32::from_le_bytes(random) & 0x00ff_ffff;
        getrandom::fill(&mut self.ticket).map_err(io::Error::other)?;
        self.ticket[..8].copy_from_slice(&self.id.encode(None).to_le_bytes());
        self.calls = calls && self.is_iwarp();
        self.silence = words::silence(settings.timeout, settings.retries);
        self.stage = Stage::Offered;
        Ok(())
    }

    /// The peer knows nothing of the life that came to nothing.
    pub(super) const fn forget(&mut self) {
        (self.has_told, self.has_heard) = (true, true);
    }

    /// Where the peer finds it: the queue pair, or over iWARP the port to connect to, and what to
    /// show there.
    pub(super) fn target(&self, rail: &Rail) -> Option<Target> {
        let qp = self.qp.as_ref()?;
        let number = rail.connector.as_ref().map_or_else(|| qp.number(), |it| it.port().into());
        let (address, key) = qp.may_be_read();
        Some(Target { number, sequence: self.sequence, ticket: self.ticket, address, key })
    }

    /// Whether it was never made before.
    pub(super) const fn is_first(&self) -> bool {
        self.id.life == 1
    }

    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) const fn has_offer(&self) -> bool {
        self.theirs.is_some()
    }

    /// Connects to the peer's end; whether the peer may write from now on.
    pub(super) fn connect(
        &mut self,
        rail: &Rail,
        (theirs, address): (&RailCard, Address),
        settings: &Settings,
        target: Target,
    ) -> io::Result<bool> {
        self.theirs = Some(target);
        if self.is_iwarp() {
            self.meet(rail, theirs, &target)?;
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
        let sequence = self.sequence;
        self.is_exposed = true;
        self.qp()?.connect(&route, target, sequence)?;
        self.is_connected = true;
        self.prove()?;
        Ok(true)
    }

    /// The peer can be written to.
    pub(super) fn ready(&mut self) -> io::Result<()> {
        self.is_ready = true;
        self.prove()
    }

    /// Finds out whether packets pass, once both ends can be written to.
    fn prove(&mut self) -> io::Result<()> {
        if self.is_connecting() && self.is_connected && self.is_ready {
            (self.stage, self.since) = (Stage::Proving, Instant::now());
            self.question()?;
        }
        Ok(())
    }

    fn qp(&mut self) -> io::Result<&mut Qp> {
        self.qp.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Lets the peer write the fragments of one more lane.
    pub(super) fn expect_lane(&mut self) -> io::Result<()> {
        self.post_receives(RDMA_CELLS)
    }

    fn post_receives(&mut self, count: usize) -> io::Result<()> {
        let qp = self.qp.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        qp.receive(self.id.encode(None), count)?;
        self.receives += count;
        Ok(())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether it carries data.
    pub(super) fn is_usable(&self) -> bool {
        self.stage == Stage::Proven
    }

    /// Whether it is over and nothing more will come of it, and the peer has not been told.
    ///
    /// # Errors
    /// The device does not let go of the queue pair, so that the peer may still write by it.
    pub(super) fn must_tell(&self) -> io::Result<bool> {
        let is_flushed = self.has_ended() && !self.has_told && self.receives == 0;
        Ok(is_flushed && self.destruction.as_ref().map_or(Ok(true), Destruction::is_done)?)
    }

    /// We say what has arrived: whatever else of this life may yet be reported does not count. The
    /// queue pair stays until there is another.
    pub(super) const fn tell(&mut self) {
        self.has_told = true;
    }

    /// The peer has said what has arrived; whether it may.
    pub(super) fn heard(&mut self) -> bool {
        let may = self.has_ended() && !self.has_heard;
        self.has_heard = true;
        may
    }

    /// Whether it is over, and both know what became of what it carried.
    pub(super) fn is_settled(&self) -> bool {
        self.has_ended() && self.has_told && self.has_heard
    }

    /// Whether completions of that life still count.
    pub(super) const fn lives(&self, life: u8) -> bool {
        self.id.life == life && !self.has_told
    }

    /// When time moves it on.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Connecting => Some(self.since + Duration::from_millis(HANDSHAKE_MS)),
            Stage::Proving => Some(self.since + self.proof),
            Stage::Proven => self.watch_at(),
            Stage::Ended if self.receives > 0 => {
                Some(self.since + Duration::from_millis(RDMA_FLUSH_MS))
            }
            Stage::Ended if !self.has_told => self.destruction.as_ref()?.look_at(),
            Stage::Ended if self.is_settled() => self.again,
            _ => None,
        }
    }

    /// How long to wait until it is made again.
    pub(super) fn pause(&self) -> Duration {
        let pause = Duration::from_millis(RDMA_RETRY_MS) * (1 << self.failures.min(16));
        pause.min(Duration::from_millis(RDMA_RETRY_MAX_MS))
    }

    /// The number that a message of so many bytes has brought, if it is one.
    pub(super) fn note(&self, place: u32, bytes: u32) -> Option<u32> {
        self.qp.as_ref()?.note(place, bytes)
    }

    /// A number has arrived.
    pub(super) fn arrived(&mut self) -> io::Result<()> {
        self.flushed();
        self.spent += 1;
        if self.spent < SPENT_MAX || self.has_ended() {
            return Ok(());
        }
        let spent = std::mem::take(&mut self.spent);
        self.post_receives(spent)
    }

    /// A receive was taken back.
    pub(super) const fn flushed(&mut self) {
        self.receives = self.receives.saturating_sub(1);
    }

    /// Ends it: nothing is written to us or sent any more.
    pub(super) fn end(&mut self) {
        self.failures = if self.is_usable() { 0 } else { self.failures.saturating_add(1) };
        (self.stage, self.since) = (Stage::Ended, Instant::now());
        let is_ending = match &mut self.qp {
            // What has arrived completes, and then what is taken back.
            Some(qp) if self.is_connected => {
                qp.forget();
                qp.fail().is_ok()
            }
            _ => false,
        };
        if !is_ending {
            self.destroy();
        }
    }

    /// Lets the device destroy the queue pair: it refuses to end it, or does not flush it.
    pub(super) fn destroy(&mut self) {
        self.receives = 0;
        let destruction = self.bury().filter(|_| self.is_exposed);
        self.destruction = destruction.or_else(|| self.destruction.take());
    }

    /// Lets the device destroy the queue pair, and blocks until that is done.
    ///
    /// # Errors
    /// The device does not let go of it.
    pub(super) fn destroy_now(&mut self) -> io::Result<()> {
        self.destroy();
        self.destruction.as_ref().map_or(Ok(()), Destruction::wait)
    }
}
