//! A queue pair to a peer, and how much work it has.

use std::io;
use std::sync::Arc;

use ringfold_types::Rank;
use ringfold_types::limits::RDMA_CELLS;

use super::Settings;
use super::geometry::{LINE_BYTES, Number};
use super::message::RailCard;
use super::outbound::{Outbound, Ready};
use super::rail::Rail;
use super::sys::{LinkLayer, Pd, Put, Qp, Route, Sizes, Target};

/// Sends that a queue pair holds.
const SENDS: u32 = 256;
/// Every so many sends the device says how far it is.
const SIGNAL_EVERY: u32 = 32;
/// Sends that fragments leave to credits.
const RESERVED: u32 = 8;
/// Credits for a lane that may be under way at a time: a ring has at most eight quarters of lines
/// and of fragments, and where another path was lost one is repeated.
const CREDITS: usize = 10;
/// Receives that may have been used before others are posted.
const SPENT_MAX: usize = 16;
/// What is asked for: a line of the ring. Not every device has much more.
const INLINE_BYTES: u32 = 64;
const _: () = assert!(INLINE_BYTES as usize == LINE_BYTES);

/// See the module's head.
#[derive(Debug)]
pub(super) struct Path {
    /// Which of the peer's pairs of rails it is on.
    pub(super) cable: usize,
    qp: Qp,
    id: Id,
    /// Of our first packet.
    pub(super) sequence: u32,
    pub(super) is_connected: bool,
    /// The peer has said that it can be written to.
    pub(super) is_ready: bool,
    /// It cannot be used, or not any more.
    pub(super) is_dead: bool,
    /// We have said what had arrived when it died, and the peer has.
    pub(super) has_told: bool,
    pub(super) has_heard: bool,
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

/// Whose work a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) peer: Rank,
    pub(super) path: usize,
}

const RECEIVE: u64 = 1 << 63;

impl Id {
    /// For a send that was posted after `posted` others, or for receives.
    fn encode(self, posted: Option<u32>) -> u64 {
        let who = u64::from(self.peer.0 & 0xffff) << 40 | (self.path as u64 & 0xff) << 32;
        who | posted.map_or(RECEIVE, u64::from)
    }

    /// Whose it is, and for sends how many were posted before.
    #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
    pub(super) const fn decode(id: u64) -> (Self, Option<u32>) {
        let (peer, path) = (Rank((id >> 40 & 0xffff) as u32), (id >> 32 & 0xff) as usize);
        (Self { peer, path }, if id & RECEIVE == 0 { Some(id as u32) } else { None })
    }
}

impl Path {
    /// A queue pair that is ready to be connected.
    pub(super) fn new(
        id: Id,
        cable: usize,
        rail: &mut Rail,
        pd: &Arc<Pd>,
        lanes: usize,
    ) -> io::Result<Self> {
        let receives = lanes * (RDMA_CELLS + CREDITS) + SPENT_MAX;
        let receives = u32::try_from(receives).unwrap_or(u32::MAX);
        // When it fails, all its work completes.
        let queue = rail.queue(receives + SENDS)?;
        let qp = Qp::new(pd, &queue, Sizes { sends: SENDS, receives, inline_bytes: INLINE_BYTES })?;
        qp.init(rail.port.number)?;
        qp.receive(id.encode(None), lanes * CREDITS + SPENT_MAX)?;
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(Self {
            cable,
            qp,
            id,
            sequence: u32::from_le_bytes(random) & 0x00ff_ffff,
            is_connected: false,
            is_ready: false,
            is_dead: false,
            has_told: false,
            has_heard: false,
            posted: 0,
            done: 0,
            last_fragment: 0,
            asked: 0,
            receives: lanes * CREDITS + SPENT_MAX,
            spent: 0,
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.qp.number()
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
        self.qp.connect(&route, target, self.sequence)?;
        self.is_connected = true;
        Ok(())
    }

    /// Lets the peer write the fragments of one more lane.
    pub(super) fn expect_lane(&mut self) -> io::Result<()> {
        self.post_receives(RDMA_CELLS)
    }

    fn post_receives(&mut self, count: usize) -> io::Result<()> {
        self.qp.receive(self.id.encode(None), count)?;
        self.receives += count;
        Ok(())
    }

    /// Whether the peer could write by it before it died.
    const fn was_used(&self) -> bool {
        self.is_dead && self.is_connected && self.is_ready
    }

    /// Whether it is dead, and nothing more will come of it, and the peer has not been told.
    pub(super) const fn must_tell(&self) -> bool {
        self.was_used() && !self.has_told && self.receives == 0
    }

    /// Whether it is dead, and what became of what it carried is not known.
    pub(super) const fn is_unsettled(&self) -> bool {
        self.was_used() && !(self.has_told && self.has_heard)
    }

    pub(super) const fn is_usable(&self) -> bool {
        self.is_connected && self.is_ready && !self.is_dead
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
        let from = lane.right(self.cable);
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
        self.qp.put(self.id.encode(Some(posted)), put, number.map(Number::encode), tells)?;
        self.posted = posted;
        Ok(())
    }

    /// Whether the peer's device has all fragments.
    pub(super) fn is_drained(&self) -> bool {
        let (unsaid, left) = (self.under_way(), self.posted.wrapping_sub(self.last_fragment));
        self.is_dead || unsaid <= left
    }

    /// Asks the device to say when the last fragment is done, unless it was asked.
    pub(super) fn ask(&mut self) {
        let is_new =
            self.posted.wrapping_sub(self.last_fragment) < self.posted.wrapping_sub(self.asked);
        if is_new && self.under_way() < SENDS && !self.is_drained() {
            self.asked = self.last_fragment;
            // Where it fails, there is nothing to wait for.
            self.is_dead |= self.post(None, None, true).is_err();
        }
    }

    /// The device says that it is done with all sends up to this one.
    pub(super) const fn done(&mut self, posted: u32) {
        self.done = posted;
    }

    /// A number has arrived.
    pub(super) fn arrived(&mut self) -> io::Result<()> {
        self.receives -= 1;
        self.spent += 1;
        if self.spent < SPENT_MAX || self.is_dead {
            return Ok(());
        }
        let spent = std::mem::take(&mut self.spent);
        self.post_receives(spent)
    }

    /// A receive was taken back.
    pub(super) const fn flushed(&mut self) {
        self.receives -= 1;
    }

    /// Ends it: nothing is written to us or sent any more.
    pub(super) fn fail(&mut self) {
        if !self.is_dead {
            self.is_dead = true;
            self.qp.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_name_their_work() {
        let id = Id { peer: Rank(16_383), path: 31 };
        assert_eq!(Id::decode(id.encode(Some(u32::MAX))), (id, Some(u32::MAX)));
        assert_eq!(Id::decode(id.encode(None)), (id, None));
    }
}
