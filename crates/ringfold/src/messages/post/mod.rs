//! The point-to-point messages of a communicator, and the receives that choose among them.
//!
//! A receive takes the first message of its source with its tag. Messages with equal tags from one
//! rank to another never overtake each other. A message that comes before its receive waits at the
//! front of its link, where it holds its sender up. If a receive wants a later message of that
//! rank, the first one moves to a queue of limited length.

mod probe;
mod receive;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ringfold_collectives::Progress;
use ringfold_collectives::pairs::distance;
use ringfold_types::Rank;
use ringfold_types::limits::INLINE_BYTES;

pub(super) use self::receive::front;
use super::ends::{End, Foreground, Receiving, Sending};
use super::header::{Elements, HEADER_BYTES, Header};
use super::track::Track;
use super::{LEFT_GRACE, has_left};
use crate::error::{CallError, Error, Failure, Message, Operation};
use crate::router::Router;
use crate::ticket::Outcome;
use crate::watch::Watch;

const TRACK: Track = Track::POINT_TO_POINT;

/// A message whose bytes arrive where its receive wants them.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) message: Message,
    pub(super) receiving: Receiving,
    arrived: usize,
}

/// A message that came before its receive.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) message: Message,
    elements: Elements,
    /// The number of the message in the order of all.
    number: u64,
    bytes: Vec<u8>,
    /// The receive that gets the message when it is whole.
    taker: Option<Receiving>,
}

/// The messages from one rank.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Receives from this rank, in their order.
    pub(super) posted: VecDeque<Receiving>,
    pub(super) arriving: Option<Arriving>,
    /// In the order of their arrival. Only the last one may not be whole.
    pub(super) unexpected: VecDeque<Unexpected>,
}

/// The messages of a communicator that have not ended.
#[derive(Debug)]
pub(crate) struct Post {
    pub(super) own: Rank,
    size: usize,
    /// The messages to each rank, in their order. Empty before the first message.
    pub(super) outboxes: Vec<VecDeque<Sending>>,
    pub(super) inboxes: Vec<Inbox>,
    /// Receives from any rank, in their order.
    pub(super) any: VecDeque<Receiving>,
    /// The distances from this rank to those to which it sends, in order.
    pub(super) to: Vec<usize>,
    /// The distances to this rank from those of which it receives, in order.
    pub(super) from: Vec<usize>,
    receives: u64,
    arrivals: u64,
    /// Messages in the queues, and their bytes.
    unexpected: (usize, usize),
    /// The rank at which a receive from any rank begins to look for a message.
    looks_first_at: usize,
    /// Whether the transports may not have sent bytes of messages that have ended.
    is_unflushed: bool,
    /// No deadline of a message is sooner.
    pub(super) due: Option<Instant>,
    foreground: Foreground,
    /// When this rank began to park, since when nothing has moved.
    idle_since: Option<Instant>,
    /// The message that has failed beside a blocking call.
    pub(crate) blamed: Option<Operation>,
    /// Since when the link of a rank that has not left is unusable.
    broken_since: Option<Instant>,
}

impl Inbox {
    /// The receives that have not ended.
    pub(super) fn receives(&mut self) -> impl Iterator<Item = &mut Receiving> {
        let arriving = self.arriving.iter_mut().map(|it| &mut it.receiving);
        let takers = self.unexpected.iter_mut().filter_map(|it| it.taker.as_mut());
        arriving.chain(takers).chain(&mut self.posted)
    }

    /// Whether receives from this rank have not ended.
    fn has_receives(&self) -> bool {
        let is_open = |it: &Unexpected| it.taker.is_some();
        !self.posted.is_empty() || self.arriving.is_some() || self.unexpected.iter().any(is_open)
    }

    /// Whether the rank may have to receive something here.
    fn is_busy(&self) -> bool {
        let is_open = |it: &Unexpected| it.bytes.len() < it.message.bytes;
        !self.posted.is_empty()
            || self.arriving.is_some()
            || self.unexpected.back().is_some_and(is_open)
    }
}

impl Post {
    pub(crate) fn new(own: Rank, size: usize) -> Self {
        Self {
            own,
            size,
            outboxes: Vec::new(),
            inboxes: Vec::new(),
            any: VecDeque::new(),
            to: Vec::new(),
            from: Vec::new(),
            receives: 0,
            arrivals: 0,
            unexpected: (0, 0),
            looks_first_at: 0,
            is_unflushed: false,
            due: None,
            foreground: Foreground::default(),
            idle_since: None,
            blamed: None,
            broken_since: None,
        }
    }

    /// Whether no message waits to be sent or received.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.to.is_empty() && self.from.is_empty() && self.any.is_empty() && !self.is_unflushed
    }

    /// Whether messages to other ranks wait to be sent.
    pub(crate) fn has_unsent_to_others(&self) -> bool {
        self.to.iter().any(|distance| *distance != 0) || self.is_unflushed
    }

    /// Whether messages wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.to.is_empty() || self.is_unflushed
    }

    /// Whether the messages of the blocking call have ended.
    pub(crate) const fn is_foreground_done(&self) -> bool {
        self.foreground.left == 0
    }

    /// The rank at this distance from this one.
    pub(super) fn receiver(&self, distance: usize) -> Rank {
        Rank::at((self.own.index() + distance) % self.size)
    }

    /// The rank from which this one has this distance.
    pub(super) fn sender(&self, distance: usize) -> Rank {
        Rank::at((self.own.index() + self.size - distance) % self.size)
    }

    /// A message that has not ended.
    pub(crate) fn first(&mut self) -> Option<Operation> {
        for at in 0..self.to.len() {
            let to = self.receiver(self.to[at]);
            if let Some(first) = self.outboxes[to.index()].front_mut() {
                return Some(Operation::Message(first.message()));
            }
        }
        for at in 0..self.from.len() {
            let from = self.sender(self.from[at]);
            if let Some(first) = self.inboxes[from.index()].receives().next() {
                return Some(first.operation());
            }
        }
        self.any.front_mut().map(Receiving::operation)
    }

    /// Notes whether the transports have sent all bytes.
    pub(crate) const fn note_flushed(&mut self, are_flushed: bool) {
        self.is_unflushed = !are_flushed;
    }

    /// Whether a receive waits for a message of this rank to itself with this tag.
    pub(crate) fn receives_own(&self, tag: u32) -> bool {
        let own = self.inboxes.get(self.own.index());
        own.into_iter().flat_map(|own| &own.posted).chain(&self.any).any(|it| it.takes(tag))
    }

    /// Whether a message of this rank to itself waits for such a receive.
    pub(crate) fn sends_own(&self, receiving: &Receiving) -> bool {
        let own = self.outboxes.get(self.own.index());
        own.into_iter().flatten().any(|it| receiving.takes(it.tag))
    }

    /// Whether a receive writes to its buffer.
    pub(crate) fn is_receiving(&self) -> bool {
        self.inboxes.iter().any(|inbox| inbox.arriving.is_some())
    }

    /// The outcome of the blocking call, whose messages have ended.
    pub(crate) fn take_outcome(&mut self) -> Outcome {
        self.foreground.outcome.take().unwrap_or(Ok(None))
    }

    fn note(&mut self, end: &End, deadline: Option<Instant>) {
        self.due = [self.due, deadline].into_iter().flatten().min();
        if matches!(end, End::Foreground) {
            self.foreground.left += 1;
        }
        self.open();
    }

    /// Makes the lists of all ranks, which cost nothing before the first message.
    #[inline]
    fn open(&mut self) {
        if self.outboxes.is_empty() {
            self.outboxes.resize_with(self.size, VecDeque::new);
            self.inboxes.resize_with(self.size, Inbox::default);
        }
    }

    /// Adds a message.
    pub(crate) fn send(&mut self, sending: Sending) {
        self.note(&sending.end, sending.deadline);
        let distance = distance(self.own, sending.to, self.size);
        self.outboxes[sending.to.index()].push_back(sending);
        insert(&mut self.to, distance);
    }

    /// Sends a short message if nothing else waits and the transport takes it. Whether all of it is
    /// sent.
    #[inline]
    pub(crate) fn sends_at_once(
        &mut self,
        sending: &mut Sending,
        router: &mut Router,
    ) -> Result<bool, CallError> {
        if !self.to.is_empty() || sending.to == self.own {
            return Ok(false);
        }
        let Sending { to, tag, elements, memory, accepted, .. } = sending;
        let bytes = memory.memory().0.unwrap_or_default();
        if bytes.len() > INLINE_BYTES {
            return Ok(false);
        }
        let header = Header { tag: *tag, elements: *elements, bytes: bytes.len() as u64 };
        TRACK.send(router, *to, &header, bytes, accepted)?;
        Ok(*accepted == HEADER_BYTES + bytes.len())
    }

    /// Sends and receives what is possible now.
    pub(crate) fn advance(&mut self, router: &mut Router) -> Result<Progress, CallError> {
        let mut has_moved = false;
        let mut at = 0;
        while let Some(distance) = self.to.get(at) {
            let to = self.receiver(*distance);
            has_moved |= if to == self.own { self.move_own()? } else { self.send_to(to, router)? };
            if self.outboxes[to.index()].is_empty() {
                self.to.remove(at);
            } else {
                at += 1;
            }
        }
        if self.any.is_empty() {
            for at in 0..self.from.len() {
                has_moved |= self.receive_from(self.sender(self.from[at]), router)?;
            }
        } else {
            let (first, size) = (self.looks_first_at, self.size);
            for from in (0..size).map(|at| (first + at) % size) {
                has_moved |= self.receive_from(Rank::at(from), router)?;
            }
        }
        if has_moved {
            self.prune();
            self.idle_since = None;
        }
        if self.is_unflushed && router.is_flushed() {
            self.is_unflushed = false;
        }
        Ok(match (self.is_idle(), has_moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Idle,
        })
    }

    fn send_to(&mut self, to: Rank, router: &mut Router) -> Result<bool, CallError> {
        let mut has_moved = false;
        while let Some(first) = self.outboxes[to.index()].front_mut() {
            let (bytes, _) = first.memory.memory();
            let bytes = bytes.unwrap_or_default();
            let header =
                Header { tag: first.tag, elements: first.elements, bytes: bytes.len() as u64 };
            has_moved |= TRACK.send(router, to, &header, bytes, &mut first.accepted)?;
            if first.accepted < HEADER_BYTES + bytes.len() {
                break;
            }
            self.is_unflushed = true;
            if let Some(sent) = self.outboxes[to.index()].pop_front() {
                sent.end(&mut self.foreground, Ok(None));
            }
        }
        Ok(has_moved)
    }

    /// Copies messages of this rank to itself to their receives.
    fn move_own(&mut self) -> Result<bool, CallError> {
        let own = self.own.index();
        let (mut has_moved, mut at) = (false, 0);
        while let Some(sending) = self.outboxes[own].get_mut(at) {
            let (elements, tag) = (sending.elements, sending.tag);
            let message = Message { is_sent: false, peer: self.own, ..sending.message() };
            let Some(mut receiving) = self.matching(self.own, tag) else {
                at += 1;
                continue;
            };
            has_moved = true;
            if let Err(error) = receiving.check_type(&message, elements) {
                self.put_back(receiving);
                return Err(error);
            }
            if message.bytes > receiving.bytes().len() {
                receiving.refuse(&mut self.foreground, self.own, message);
                continue;
            }
            if let Some(mut sending) = self.outboxes[own].remove(at) {
                receiving.bytes()[..message.bytes].copy_from_slice(sending.bytes());
                sending.end(&mut self.foreground, Ok(None));
                receiving.end(&mut self.foreground, Ok(Some(message)));
            }
        }
        Ok(has_moved)
    }

    /// Forgets the ranks of which nothing is to be received.
    fn prune(&mut self) {
        let mut from = std::mem::take(&mut self.from);
        from.retain(|distance| self.inboxes[self.sender(*distance).index()].is_busy());
        self.from = from;
    }

    /// Checks, before a park, whether ranks for which this one waits have left.
    pub(crate) fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        if self.is_idle() {
            return Ok(());
        }
        if self.idle_since.get_or_insert_with(Instant::now).elapsed() < LEFT_GRACE {
            return Ok(());
        }
        let (own, size) = (self.own.index(), self.size);
        let to = self.to.iter().map(|distance| self.receiver(*distance));
        let from = self.from.iter().map(|distance| self.sender(*distance));
        let from = from.filter(|from| self.inboxes[from.index()].has_receives());
        let mut named = to.chain(from).filter(|peer| *peer != self.own);
        if let Some(gone) = named.find(|peer| has_left(watch, *peer)) {
            return Err(CallError::Left(gone));
        }
        let others = || (0..size).filter(|peer| *peer != own).map(Rank::at);
        // Asks for the news of all ranks.
        if !self.any.is_empty()
            && others().filter(|peer| has_left(watch, *peer)).count() + 1 == size
            && let Some(last) = others().next_back()
        {
            return Err(CallError::Left(last));
        }
        let is_awaited =
            |peer: &Rank| !self.any.is_empty() || self.inboxes[peer.index()].has_receives();
        let is_present = |peer: &Rank| watch.left_since(*peer).is_none();
        let mut present = others().filter(|peer| is_awaited(peer) && is_present(peer));
        let Some(broken) = present.find_map(|peer| router.readable(TRACK.link(peer)).err()) else {
            self.broken_since = None;
            return Ok(());
        };
        // The link of a rank that leaves may end before the news of that comes.
        let since = self.broken_since.get_or_insert_with(Instant::now);
        if since.elapsed() < 2 * LEFT_GRACE { Ok(()) } else { Err(broken.into()) }
    }

    /// Ends all messages by a failure.
    pub(crate) fn end_all(&mut self, failure: &Arc<Failure>) {
        let Self { outboxes, inboxes, any, foreground, .. } = self;
        let failed = || Err(Error::Failed(Arc::clone(failure)));
        let sends = outboxes.iter_mut().flat_map(|it| it.drain(..));
        sends.for_each(|it| it.end(foreground, failed()));
        for inbox in inboxes {
            let posted = inbox.posted.drain(..);
            let arriving = inbox.arriving.take().map(|it| it.receiving);
            let takers = inbox.unexpected.drain(..).filter_map(|it| it.taker);
            posted.chain(arriving).chain(takers).for_each(|it| it.end(foreground, failed()));
        }
        any.drain(..).for_each(|it| it.end(foreground, failed()));
        self.to.clear();
        self.from.clear();
        (self.unexpected, self.is_unflushed, self.due) = ((0, 0), false, None);
    }
}

/// Adds a distance to a sorted list, unless it is there.
fn insert(distances: &mut Vec<usize>, distance: usize) {
    if let Err(at) = distances.binary_search(&distance) {
        distances.insert(at, distance);
    }
}
