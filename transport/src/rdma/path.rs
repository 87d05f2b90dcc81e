//! A queue pair to a peer, and how much work it has.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{
    RDMA_CELLS, RDMA_FLUSH_MS, RDMA_PROOF_MS, RDMA_RETRY_MAX_MS, RDMA_RETRY_MS,
};

use super::Settings;
use super::geometry::{LINE_BYTES, Number};
use super::message::RailCard;
use super::outbound::{Outbound, Ready};
use super::rail::Rail;
use super::sys::{Cq, LinkLayer, Pd, Put, Qp, Route, Sizes, Target};

/// Sends that a queue pair holds.
const SENDS: u32 = 256;
/// Every so many sends the device says how far it is.
const SIGNAL_EVERY: u32 = 32;
/// Sends that fragments leave to credits.
const RESERVED: u32 = 8;
/// Credits for a lane that may be under way at a time: a ring has two halves of lines and four
/// quarters of fragments, and where another path was lost one is repeated.
const CREDITS: usize = 10;
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
    is_connected: bool,
    /// The peer has said that it can be written to.
    is_ready: bool,
    /// When it is over: what we have said, and the peer has.
    has_told: bool,
    has_heard: bool,
    /// Sends posted, those that are done as far as we know, the last that brings a fragment, and
    /// the last of those for which the device was asked; counted without end.
    posted: u32,
    done: u32,
    last_fragment: u32,
    asked: u32,
    /// Receives that are posted, and those used and not posted again.
    receives: usize,
    spent: usize,
}

/// How far a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer has been told of it.
    Offered,
    /// Both ends can be written to; whether packets pass is being tried.
    Proving,
    /// It carries data.
    Proven,
    /// It cannot be used, or not any more.
    Ended,
}

/// Whose work a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) peer: Rank,
    pub(super) path: usize,
    /// How often the path was made before, modulo 128.
    pub(super) life: u8,
}

const RECEIVE: u64 = 1 << 63;

impl Id {
    /// For a send that was posted after `posted` others, or for receives.
    fn encode(self, posted: Option<u32>) -> u64 {
        let path = u64::from(self.life) << 56 | (self.path as u64 & 0xff) << 32;
        let who = path | u64::from(self.peer.0 & 0xffff) << 40;
        who | posted.map_or(RECEIVE, u64::from)
    }

    /// Whose it is, and for sends how many were posted before.
    #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
    pub(super) const fn decode(id: u64) -> (Self, Option<u32>) {
        let (peer, path) = (Rank((id >> 40 & 0xffff) as u32), (id >> 32 & 0xff) as usize);
        let life = (id >> 56 & 0x7f) as u8;
        (Self { peer, path, life }, if id & RECEIVE == 0 { Some(id as u32) } else { None })
    }
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
            is_connected: false,
            is_ready: false,
            has_told: true,
            has_heard: true,
            posted: 0,
            done: 0,
            last_fragment: 0,
            asked: 0,
            receives: 0,
            spent: 0,
        }
    }

    /// Begins a life.
    pub(super) fn begin(&mut self) {
        debug_assert!(self.is_settled(), "{self:?}");
        let id = Id { life: (self.id.life + 1) % 128, ..self.id };
        let fresh = Self { id, failures: self.failures, ..Self::new(id.peer, id.path, self.cable) };
        let Self { qp, queue, .. } = std::mem::replace(self, fresh);
        self.queue = queue;
        if let Some(qp) = qp {
            // Soft devices take seconds for it while packets of its wait for an address.
            let bury = thread::Builder::new().name("ringfold-rdma".to_owned());
            // Where there can be no thread, this one waits.
            bury.spawn(move || drop(qp)).ok();
        }
        (self.has_told, self.has_heard) = (false, false);
    }

    /// Makes a queue pair that is ready to be connected, by which the peer may write to `rings` of
    /// so many `lanes`.
    pub(super) fn make(
        &mut self,
        rail: &mut Rail,
        pd: &Arc<Pd>,
        lanes: usize,
        rings: usize,
    ) -> io::Result<()> {
        let most = lanes * (RDMA_CELLS + CREDITS) + SPENT_MAX;
        let receives = u32::try_from(most).unwrap_or(u32::MAX);
        // When it fails, all its work completes.
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => rail.queue(receives + SENDS)?,
        };
        let queue = self.queue.insert(queue);
        let qp = Qp::new(pd, queue, Sizes { sends: SENDS, receives, inline_bytes: INLINE_BYTES })?;
        qp.init(rail.port.number)?;
        self.qp = Some(qp);
        self.post_receives(lanes * CREDITS + SPENT_MAX + rings * RDMA_CELLS)?;
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        self.sequence = u32::from_le_bytes(random) & 0x00ff_ffff;
        self.stage = Stage::Offered;
        Ok(())
    }

    /// The peer knows nothing of the life that came to nothing.
    pub(super) const fn forget(&mut self) {
        (self.has_told, self.has_heard) = (true, true);
    }

    /// Where the peer finds it.
    pub(super) fn target(&self) -> Option<Target> {
        Some(Target { number: self.qp.as_ref()?.number(), sequence: self.sequence })
    }

    /// Whether it was never made before.
    pub(super) const fn is_first(&self) -> bool {
        self.id.life == 1
    }

    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Connects to the peer's end.
    pub(super) fn connect(
        &mut self,
        rail: &Rail,
        theirs: &RailCard,
        settings: &Settings,
        target: Target,
    ) -> io::Result<()> {
        let same_subnet = rail.gid.bytes[..8] == theirs.gid[..8];
        // Some Ethernet devices have a LID, which means nothing there.
        let is_infiniband = rail.port.link_layer == LinkLayer::InfiniBand;
        let has_lids = rail.port.lid != 0 && theirs.lid != 0;
        let by_lid = is_infiniband && has_lids && same_subnet;
        let route = Route {
            port: rail.port.number,
            gid_index: rail.gid.index,
            gid: (!by_lid).then_some(theirs.gid),
            lid: if by_lid { theirs.lid } else { 0 },
            mtu: rail.port.mtu.min(theirs.mtu),
            service_level: settings.service_level,
            traffic_class: settings.traffic_class,
            timeout: settings.timeout,
            retries: settings.retries,
        };
        self.qp()?.connect(&route, target, self.sequence)?;
        self.is_connected = true;
        self.prove()
    }

    /// The peer can be written to.
    pub(super) fn ready(&mut self) -> io::Result<()> {
        self.is_ready = true;
        self.prove()
    }

    /// Finds out whether packets pass, once both ends can be written to: a write of nothing is
    /// done only when the other end's device has answered.
    fn prove(&mut self) -> io::Result<()> {
        if self.stage == Stage::Offered && self.is_connected && self.is_ready {
            (self.stage, self.since) = (Stage::Proving, Instant::now());
            self.post(None, None, true)?;
        }
        Ok(())
    }

    fn qp(&self) -> io::Result<&Qp> {
        self.qp.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Lets the peer write the fragments of one more lane.
    pub(super) fn expect_lane(&mut self) -> io::Result<()> {
        self.post_receives(RDMA_CELLS)
    }

    fn post_receives(&mut self, count: usize) -> io::Result<()> {
        self.qp()?.receive(self.id.encode(None), count)?;
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
    pub(super) fn must_tell(&self) -> bool {
        self.has_ended() && !self.has_told && self.receives == 0
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
            Stage::Proving => Some(self.since + Duration::from_millis(RDMA_PROOF_MS)),
            Stage::Ended if self.receives > 0 => {
                Some(self.since + Duration::from_millis(RDMA_FLUSH_MS))
            }
            Stage::Ended if self.is_settled() => self.again,
            _ => None,
        }
    }

    /// How long to wait until it is made again.
    pub(super) fn pause(&self) -> Duration {
        let pause = Duration::from_millis(RDMA_RETRY_MS) * (1 << self.failures.min(16));
        pause.min(Duration::from_millis(RDMA_RETRY_MAX_MS))
    }

    fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    /// Whether a fragment can be written.
    pub(super) fn takes_fragments(&self) -> bool {
        self.is_usable() && self.under_way() < SENDS - RESERVED
    }

    /// Whether credit can be given.
    pub(super) fn takes_credit(&self) -> bool {
        self.is_usable() && self.under_way() < SENDS
    }

    /// Writes a fragment of `lane` to the peer.
    pub(super) fn write(&mut self, lane: &Outbound, ready: &Ready) -> io::Result<()> {
        let (to, remote_key) = lane.target(self.cable, ready.at);
        let from = lane.right(self.cable).ok_or(io::ErrorKind::PermissionDenied)?;
        let put = Put { from, range: (ready.at, ready.bytes), to, remote_key };
        self.post(Some(put), Some(ready.number), false)?;
        self.last_fragment = self.posted;
        Ok(())
    }

    /// Gives credit.
    pub(super) fn give(&mut self, credit: Number) -> io::Result<()> {
        self.post(None, Some(credit), false)
    }

    fn post(
        &mut self,
        put: Option<Put<'_>>,
        number: Option<Number>,
        must_tell: bool,
    ) -> io::Result<()> {
        let posted = self.posted.wrapping_add(1);
        let tells = must_tell || posted.is_multiple_of(SIGNAL_EVERY);
        self.qp()?.put(self.id.encode(Some(posted)), put, number.map(Number::encode), tells)?;
        self.posted = posted;
        Ok(())
    }

    /// Whether the peer's device has all fragments.
    pub(super) fn is_drained(&self) -> bool {
        let (unsaid, left) = (self.under_way(), self.posted.wrapping_sub(self.last_fragment));
        self.has_ended() || unsaid <= left
    }

    /// Asks the device to say when the last fragment is done, unless it was asked.
    pub(super) fn ask(&mut self) {
        let is_new =
            self.posted.wrapping_sub(self.last_fragment) < self.posted.wrapping_sub(self.asked);
        if is_new && self.under_way() < SENDS && !self.is_drained() {
            self.asked = self.last_fragment;
            // Where it fails, the queue pair has, which its completions say.
            self.post(None, None, true).ok();
        }
    }

    /// The device says that it is done with all sends up to this one. Whether that proves it.
    pub(super) const fn done(&mut self, posted: u32) -> bool {
        self.done = posted;
        let is_news = matches!(self.stage, Stage::Proving);
        if is_news {
            self.stage = Stage::Proven;
            self.failures = 0;
        }
        is_news
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
        match &self.qp {
            // What has arrived completes, and then what is taken back.
            Some(qp) if self.is_connected => qp.fail(),
            _ => self.destroy(),
        }
    }

    /// Takes it from the device, which may have forgotten to say what became of it.
    pub(super) fn destroy(&mut self) {
        self.qp = None;
        self.receives = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_name_their_work() {
        let id = Id { peer: Rank(16_383), path: 31, life: 127 };
        assert_eq!(Id::decode(id.encode(Some(u32::MAX))), (id, Some(u32::MAX)));
        assert_eq!(Id::decode(id.encode(None)), (id, None));
    }
}
