//! The lanes to and from a peer: their rings, the bytes that wait for one, and the mailbox.

use std::io;
use std::sync::Arc;

use ringfold_types::limits::{LANES_MAX, RDMA_RING_BYTES};

use super::fault::Fault;
use crate::overflow::Overflow;
use crate::rdma::message::{Arrivals, Grant, TcpFragment};
use crate::rdma::path::Used;
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::layout::Immediate;
use crate::rdma::ring::outbound::Outbound;
use crate::rdma::ring::rtr::{MAILBOX_BYTES, Mailbox};
use crate::rdma::sys::Pd;

/// The lanes to and from a peer. An outgoing lane is *open* once the peer has made a ring for it.
#[derive(Debug)]
pub(super) struct Lanes {
    outgoing: Vec<Outgoing>,
    incoming: Vec<Option<Inbound>>,
    /// Memory for the peer's ready-to-receive messages and questions, if there are cables.
    mailbox: Option<Mailbox>,
}

/// A lane towards the peer.
#[derive(Debug, Default)]
struct Outgoing {
    way: Way,
    /// Accepted bytes that wait for the ring, or for room in it.
    held: Overflow,
}

/// The state of an outgoing lane.
#[derive(Debug, Default)]
enum Way {
    #[default]
    Unused,
    /// The peer was asked for a ring.
    Asked,
    Open(Box<Outbound>),
}

const NO_RING: &str = "a fragment of a lane that has no ring";
const NO_RING_FOR_CREDIT: &str = "credit for a lane that has no ring";

impl Lanes {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            outgoing: (0..lanes).map(|_| Outgoing::default()).collect(),
            incoming: (0..lanes).map(|_| None).collect(),
            mailbox: None,
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.outgoing.len()
    }

    /// The outgoing ring of a lane, if it is open.
    pub(super) fn outbound(&self, lane: usize) -> Option<&Outbound> {
        match &self.outgoing.get(lane)?.way {
            Way::Open(outbound) => Some(outbound),
            Way::Unused | Way::Asked => None,
        }
    }

    pub(super) fn outbound_mut(&mut self, lane: usize) -> Option<&mut Outbound> {
        match &mut self.outgoing.get_mut(lane)?.way {
            Way::Open(outbound) => Some(outbound),
            Way::Unused | Way::Asked => None,
        }
    }

    /// The outgoing rings.
    pub(super) fn outbounds(&self) -> impl Iterator<Item = &Outbound> {
        (0..self.outgoing.len()).filter_map(|lane| self.outbound(lane))
    }

    pub(super) fn outbounds_mut(&mut self) -> impl Iterator<Item = &mut Outbound> {
        self.outgoing.iter_mut().filter_map(|lane| match &mut lane.way {
            Way::Open(outbound) => Some(&mut **outbound),
            Way::Unused | Way::Asked => None,
        })
    }

    /// The incoming ring of a lane, if there is one.
    pub(super) fn inbound(&self, lane: usize) -> Option<&Inbound> {
        self.incoming.get(lane)?.as_ref()
    }

    pub(super) fn inbound_mut(&mut self, lane: usize) -> Option<&mut Inbound> {
        self.incoming.get_mut(lane)?.as_mut()
    }

    /// The incoming rings.
    pub(super) fn inbounds(&self) -> impl Iterator<Item = &Inbound> {
        self.incoming.iter().flatten()
    }

    pub(super) fn inbounds_mut(&mut self) -> impl Iterator<Item = &mut Inbound> {
        self.incoming.iter_mut().flatten()
    }

    /// Marks that the peer is asked for a ring. Returns whether this is the first request.
    pub(super) fn ask(&mut self, lane: usize) -> bool {
        let way = &mut self.outgoing[lane].way;
        let is_new = matches!(way, Way::Unused);
        if is_new {
            *way = Way::Asked;
        }
        is_new
    }

    /// Returns whether the peer was asked for a ring of that lane and has not made it.
    pub(super) fn is_asked(&self, lane: usize) -> bool {
        self.outgoing.get(lane).is_some_and(|lane| matches!(lane.way, Way::Asked))
    }

    /// Opens a lane to the peer's ring.
    pub(super) fn open(&mut self, lane: usize, outbound: Outbound) {
        self.outgoing[lane].way = Way::Open(Box::new(outbound));
    }

    /// Returns whether the peer may have a ring for that lane, which has none yet.
    pub(super) fn may_grant(&self, lane: usize) -> bool {
        self.incoming.get(lane).is_some_and(Option::is_none)
    }

    /// Takes the ring that the peer writes for a lane.
    pub(super) fn grant(&mut self, lane: usize, inbound: Inbound) {
        self.incoming[lane] = Some(inbound);
    }

    /// Lets the peer write the mailbox by the queue pairs of a cable, which have that domain.
    pub(super) fn open_mailbox(&mut self, cable: usize, pd: &Arc<Pd>) -> io::Result<()> {
        let mut mailbox = self.mailbox.take().map_or_else(Mailbox::new, Ok)?;
        let opened = mailbox.open(cable, pd);
        self.mailbox = Some(mailbox);
        opened
    }

    /// The address and keys of the mailbox for the peer.
    pub(super) fn mailbox(&self) -> Grant {
        self.mailbox.as_ref().map(Mailbox::grant).unwrap_or_default()
    }

    /// Holds bytes until the lane is open or has room. Returns how many were taken.
    pub(super) fn hold(&mut self, lane: usize, tag: u32, bytes: &[u8]) -> usize {
        self.outgoing[lane].held.hold(tag, bytes)
    }

    /// Returns whether bytes are held.
    pub(super) fn holds(&self, lane: usize) -> bool {
        !self.outgoing[lane].held.is_empty()
    }

    /// Takes the held bytes out; `set_held` puts back those that are left.
    pub(super) fn take_held(&mut self, lane: usize) -> Overflow {
        std::mem::take(&mut self.outgoing[lane].held)
    }

    pub(super) fn set_held(&mut self, lane: usize, held: Overflow) {
        self.outgoing[lane].held = held;
    }

    /// Drops the held bytes.
    pub(super) fn drop_held(&mut self) {
        self.outgoing.iter_mut().for_each(|lane| lane.held = Overflow::default());
    }

    /// Returns whether no lane holds bytes or has fragments to write again.
    pub(super) fn is_flushed(&self) -> bool {
        self.outgoing.iter().all(|lane| lane.held.is_empty())
            && self.outbounds().all(|outbound| outbound.lost().is_none())
    }

    /// Handles an immediate, which arrived by a path or by TCP. Returns whether it can have arrived
    /// now: a fragment arrives once.
    pub(super) fn take(&mut self, number: Immediate) -> Result<bool, Fault> {
        match number {
            Immediate::Fragment { lane, sequence, lines } => {
                Ok(self.inbound_mut(lane).ok_or(NO_RING)?.arrive(sequence, lines)?)
            }
            Immediate::Credit { lane, total } => {
                self.outbound_mut(lane).ok_or(NO_RING_FOR_CREDIT)?.credit(total)?;
                Ok(true)
            }
            Immediate::Rtr { lane, slot, total } => {
                let rtr = self.mailbox.as_ref().map(|mailbox| mailbox.read(lane, slot));
                let both = self.outbound_mut(lane).zip(rtr);
                let (outbound, rtr) =
                    both.ok_or("a ready-to-receive message for a lane that has no ring")?;
                outbound.credit(total)?;
                outbound.take_rtr(rtr, slot);
                Ok(true)
            }
        }
    }

    /// Takes credit that came by TCP, counted without end.
    pub(super) fn credit_to(&mut self, lane: usize, total: u64) -> Result<(), Fault> {
        Ok(self.outbound_mut(lane).ok_or(NO_RING_FOR_CREDIT)?.credit_to(total)?)
    }

    /// Stores bytes of a fragment that came by TCP at their place in the ring.
    pub(super) fn store(
        &mut self,
        fragment: TcpFragment,
        from: usize,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        self.inbound_mut(fragment.lane).ok_or(NO_RING)?.store(fragment.at + from, bytes);
        Ok(())
    }

    /// The bytes of an open lane's image for a fragment that goes by TCP, without the first `from`.
    pub(super) fn image(&self, fragment: TcpFragment, from: usize) -> &[u8] {
        self.outbound(fragment.lane)
            .map_or(&[], |outbound| &outbound.image(fragment.at, fragment.bytes)[from..])
    }

    /// Handles the peer's report of all arrivals by a path that has ended.
    pub(super) fn lose(
        &mut self,
        path: usize,
        arrivals: [Arrivals; LANES_MAX],
    ) -> Result<(), Fault> {
        for (lane, arrivals) in arrivals.into_iter().enumerate() {
            if let Some(outbound) = self.outbound_mut(lane) {
                outbound.lose(path, arrivals)?;
            }
        }
        Ok(())
    }

    /// The arrivals on each lane.
    pub(super) fn arrivals(&self) -> [Arrivals; LANES_MAX] {
        std::array::from_fn(|lane| self.inbound(lane).map(Inbound::state).unwrap_or_default())
    }

    /// The number of fragments that were sent on each lane.
    pub(super) fn fragments(&self) -> [u64; LANES_MAX] {
        std::array::from_fn(|lane| self.outbound(lane).map_or(0, Outbound::fragments))
    }

    /// Checks the number of fragments that the peer claims to have sent on each lane.
    pub(super) fn check(&self, fragments: &[u64; LANES_MAX]) -> Result<(), Fault> {
        for (inbound, fragments) in self.incoming.iter().zip(fragments) {
            match inbound {
                Some(inbound) => drop(inbound.lacks(*fragments)?),
                None if *fragments == 0 => {}
                None => return Err("fragments were promised without a ring".into()),
            }
        }
        Ok(())
    }

    /// The lanes that have a ring, and those that have an image of the peer's ring.
    pub(super) fn used(&self) -> Used {
        Used { rings: self.inbounds().count(), images: self.outbounds().count() }
    }

    /// The number of registrations of rings and mailbox on so many cables, and their bytes.
    pub(super) fn costs(&self, cables: usize) -> (usize, usize) {
        let Used { rings, images } = self.used();
        let rings = (rings + images) * cables;
        let mailboxes = self.mailbox.as_ref().map_or(0, Mailbox::rights);
        (rings + mailboxes, rings * RDMA_RING_BYTES + mailboxes * MAILBOX_BYTES)
    }
}

/// The fault of a rank without memory for a ring.
pub(super) fn no_memory(error: io::Error) -> Fault {
    Fault::Lost(format!("no memory for a ring of {RDMA_RING_BYTES} bytes: {error}"))
}
