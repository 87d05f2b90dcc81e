//! The point-to-point messages of a communicator, and the receives that choose among them.
//!
//! A receive takes the first message of its source with its tag. Messages with equal tags from one
//! rank to another never overtake each other. A message that comes before its receive waits at the
//! front of its link, where it holds its sender up. If a receive wants a later message of that
//! rank, the first one moves to a queue of limited length.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ringfold_collectives::Progress;
use ringfold_collectives::pairs::distance;
use ringfold_transport::LinkFault;
use ringfold_types::Rank;
use ringfold_types::limits::{INLINE_BYTES, UNEXPECTED_BYTES_MAX};

use super::ends::{End, Foreground, Receiving, Sending};
use super::header::{Elements, HEADER_BYTES, Header};
use super::track::Track;
use super::{LEFT_GRACE, has_left};
use crate::error::{CallError, Error, Failure, Message, Operation};
use crate::router::Router;
use crate::ticket::Outcome;
use crate::watch::Watch;

pub(super) const TRACK: Track = Track::POINT_TO_POINT;

/// Bytes by which the queue grows while a long message arrives.
const ROOM_BYTES: usize = 1024 * 1024;

/// Bytes that a message in the queue costs beside its own.
const ENTRY_BYTES: usize = 2 * size_of::<Unexpected>();

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

    /// Receives a short message that is here as a whole, if nothing else waits and it is the next
    /// one of its sender. Everything else is left to `receive`.
    #[inline]
    pub(crate) fn receives_at_once(
        &self,
        receiving: &mut Receiving,
        router: &mut Router,
    ) -> Option<Message> {
        let from = receiving.from.filter(|from| *from != self.own)?;
        if !self.from.is_empty() || !self.any.is_empty() || self.unexpected.0 > 0 {
            return None;
        }
        let link = TRACK.link(from);
        let front = router.readable(link).ok()??;
        let (header, rest) = TRACK.begins(front).ok()?;
        let bytes = usize::try_from(header.bytes).ok().filter(|bytes| *bytes <= INLINE_BYTES)?;
        let body = rest.get(..bytes)?;
        let elements = receiving.elements;
        if !receiving.takes(header.tag) || !header.elements.fits(elements) {
            return None;
        }
        receiving.bytes().get_mut(..bytes)?.copy_from_slice(body);
        router.to(link).consume(link, HEADER_BYTES + bytes);
        Some(Message { is_sent: false, peer: from, tag: header.tag, bytes })
    }

    /// Adds a receive. It ends here if its message waits in the queue.
    ///
    /// # Errors
    /// The types differ.
    pub(crate) fn receive(&mut self, mut receiving: Receiving) -> Result<(), CallError> {
        self.note(&receiving.end, receiving.deadline);
        self.receives += 1;
        receiving.number = self.receives;
        if self.unexpected.0 > 0
            && let Some((peer, at)) = self.find_unexpected(receiving.from, receiving.tag)
        {
            return self.take_unexpected(peer, at, receiving);
        }
        match receiving.from {
            Some(from) => {
                self.inboxes[from.index()].posted.push_back(receiving);
                insert(&mut self.from, distance(from, self.own, self.size));
            }
            None => self.any.push_back(receiving),
        }
        Ok(())
    }

    /// The first message in the queues that such a receive takes.
    fn find_unexpected(&self, from: Option<Rank>, tag: Option<u32>) -> Option<(Rank, usize)> {
        let of_peer = |peer: usize| {
            let queue = &self.inboxes[peer].unexpected;
            let is_wanted =
                |it: &Unexpected| it.taker.is_none() && tag.is_none_or(|tag| tag == it.message.tag);
            let at = queue.iter().position(is_wanted)?;
            Some((queue[at].number, (Rank::at(peer), at)))
        };
        let found = match from {
            Some(from) => of_peer(from.index()),
            None => (0..self.size).filter_map(of_peer).min_by_key(|(number, _)| *number),
        };
        found.map(|(_, place)| place)
    }

    /// Gives a message in the queue to a receive.
    fn take_unexpected(
        &mut self,
        peer: Rank,
        at: usize,
        mut receiving: Receiving,
    ) -> Result<(), CallError> {
        let inbox = &mut self.inboxes[peer.index()];
        let waiting = &mut inbox.unexpected[at];
        let message = waiting.message;
        if let Err(error) = receiving.check_type(&message, waiting.elements) {
            self.put_back(receiving);
            return Err(error);
        }
        if message.bytes > receiving.bytes().len() {
            receiving.refuse(&mut self.foreground, self.own, message);
            return Ok(());
        }
        waiting.taker = Some(receiving);
        if waiting.bytes.len() == message.bytes {
            self.hand_over(peer, at);
        }
        Ok(())
    }

    /// Ends a receive whose message is whole in the queue.
    fn hand_over(&mut self, peer: Rank, at: usize) {
        let Some(whole) = self.inboxes[peer.index()].unexpected.remove(at) else { return };
        let (count, bytes) = self.unexpected;
        self.unexpected = (count - 1, bytes - whole.message.bytes - ENTRY_BYTES);
        if let Some(mut taker) = whole.taker {
            taker.bytes()[..whole.bytes.len()].copy_from_slice(&whole.bytes);
            taker.end(&mut self.foreground, Ok(Some(whole.message)));
        }
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

    /// Takes the first receive that wants a message with this tag.
    fn matching(&mut self, peer: Rank, tag: u32) -> Option<Receiving> {
        let posted = &mut self.inboxes[peer.index()].posted;
        let of_peer = posted.iter().position(|it| it.takes(tag));
        let of_any = self.any.iter().position(|it| it.takes(tag));
        match (of_peer, of_any) {
            (Some(one), Some(other)) if self.any[other].number < posted[one].number => {
                self.any.remove(other)
            }
            (Some(at), _) => posted.remove(at),
            (None, Some(at)) => self.any.remove(at),
            (None, None) => None,
        }
    }

    /// Puts a receive back that `matching` has taken, until the failure ends it.
    fn put_back(&mut self, receiving: Receiving) {
        match receiving.from {
            Some(from) => {
                self.inboxes[from.index()].posted.push_front(receiving);
                insert(&mut self.from, distance(from, self.own, self.size));
            }
            None => self.any.push_front(receiving),
        }
    }

    /// Receives what has arrived from a rank and is wanted. Whether anything was.
    fn receive_from(&mut self, from: Rank, router: &mut Router) -> Result<bool, CallError> {
        if from == self.own {
            return Ok(false);
        }
        let mut has_moved = false;
        loop {
            match self.receive_rest(from, router)? {
                Rest::Nothing => {}
                Rest::Whole => has_moved = true,
                Rest::Part { moved } => return Ok(has_moved || moved),
            }
            let posted = &mut self.inboxes[from.index()].posted;
            if posted.is_empty() && self.any.is_empty() {
                return Ok(has_moved);
            }
            let front = match router.readable(TRACK.link(from)) {
                Ok(Some(front)) => front,
                Ok(None) => return Ok(has_moved),
                // The check before a park tells why a link has ended that no receive names, or
                // behind which other messages wait.
                Err(link)
                    if !matches!(link.fault, LinkFault::Died)
                        && (posted.is_empty()
                            || !self.inboxes[from.index()].unexpected.is_empty()) =>
                {
                    return Ok(has_moved);
                }
                Err(link) => return Err(link.into()),
            };
            let Ok((header, rest)) = TRACK.begins(front) else { return Err(garbled(from)) };
            let Ok(bytes) = usize::try_from(header.bytes) else { return Err(garbled(from)) };
            let message = Message { is_sent: false, peer: from, tag: header.tag, bytes };
            let body = rest.get(..bytes).filter(|_| bytes <= INLINE_BYTES);
            let Some(mut receiving) = self.matching(from, header.tag) else {
                if !self.set_aside(message, header.elements, router) {
                    return Ok(has_moved);
                }
                has_moved = true;
                continue;
            };
            if let Err(error) = receiving.check_type(&message, header.elements) {
                self.put_back(receiving);
                return Err(error);
            }
            has_moved = true;
            if bytes > receiving.bytes().len() {
                receiving.refuse(&mut self.foreground, self.own, message);
                continue;
            }
            if receiving.from.is_none() {
                self.looks_first_at = (from.index() + 1) % self.size;
            }
            if let Some(body) = body {
                // A short message that is here as a whole.
                receiving.bytes()[..bytes].copy_from_slice(body);
                router.to(TRACK.link(from)).consume(TRACK.link(from), HEADER_BYTES + bytes);
                receiving.end(&mut self.foreground, Ok(Some(message)));
                continue;
            }
            router.to(TRACK.link(from)).consume(TRACK.link(from), HEADER_BYTES);
            let inbox = &mut self.inboxes[from.index()];
            inbox.arriving = Some(Arriving { message, receiving, arrived: 0 });
            insert(&mut self.from, distance(from, self.own, self.size));
        }
    }

    /// Receives the rest of the message that has begun to arrive from a rank.
    fn receive_rest(&mut self, from: Rank, router: &mut Router) -> Result<Rest, CallError> {
        let inbox = &mut self.inboxes[from.index()];
        if let Some(arriving) = &mut inbox.arriving {
            let Arriving { message, receiving, arrived } = arriving;
            let bytes = &mut receiving.bytes()[..message.bytes];
            let moved = TRACK.receive(router, from, bytes, arrived)?.map_err(|_| garbled(from))?;
            if *arrived < message.bytes {
                return Ok(Rest::Part { moved });
            }
            if let Some(whole) = inbox.arriving.take() {
                whole.receiving.end(&mut self.foreground, Ok(Some(whole.message)));
            }
            return Ok(Rest::Whole);
        }
        let last = inbox.unexpected.len().wrapping_sub(1);
        let Some(Unexpected { message, bytes, taker, .. }) = inbox.unexpected.get_mut(last) else {
            return Ok(Rest::Nothing);
        };
        if bytes.len() == message.bytes {
            return Ok(Rest::Nothing);
        }
        let mut has_moved = false;
        let (link, tag) = (TRACK.link(from), TRACK.tag_of_body(message.bytes));
        while bytes.len() < message.bytes {
            if router.readable(link)?.is_none() {
                return Ok(Rest::Part { moved: has_moved });
            }
            // Only bytes that have arrived cost memory.
            let before = bytes.len();
            bytes.resize(message.bytes.min(before + ROOM_BYTES), 0);
            let received = router.to(link).recv(link, tag, &mut bytes[before..]);
            let more = match &received {
                Ok(Some(received)) if received.tag == tag => received.bytes,
                _ => 0,
            };
            bytes.truncate(before + more);
            match received? {
                Some(received) if received.tag != tag => return Err(garbled(from)),
                Some(received) if received.bytes > 0 => has_moved = true,
                _ => return Ok(Rest::Part { moved: has_moved }),
            }
        }
        if taker.is_some() {
            self.hand_over(from, last);
        }
        Ok(Rest::Whole)
    }

    /// Takes a message that no receive wants yet from its link, if the queue has room.
    fn set_aside(&mut self, message: Message, elements: Elements, router: &mut Router) -> bool {
        let (count, bytes) = self.unexpected;
        let cost = message.bytes.saturating_add(ENTRY_BYTES);
        if cost > UNEXPECTED_BYTES_MAX - bytes {
            return false;
        }
        let link = TRACK.link(message.peer);
        router.to(link).consume(link, HEADER_BYTES);
        self.unexpected = (count + 1, bytes + cost);
        self.arrivals += 1;
        let (number, bytes) = (self.arrivals, Vec::new());
        let unexpected = Unexpected { message, elements, number, bytes, taker: None };
        self.inboxes[message.peer.index()].unexpected.push_back(unexpected);
        insert(&mut self.from, distance(message.peer, self.own, self.size));
        true
    }

    /// The first message that such a receive would take, if it has begun to arrive. Does not wait.
    pub(crate) fn probe(
        &mut self,
        from: Option<Rank>,
        tag: Option<u32>,
        router: &mut Router,
        watch: &Watch,
    ) -> Result<Option<Message>, CallError> {
        let found = self.look(from, tag, router, watch);
        self.prune();
        found
    }

    /// Whether a receive wants a message of this rank with this tag.
    fn is_awaited(&self, peer: Rank, tag: u32) -> bool {
        let posted = self.inboxes[peer.index()].posted.iter();
        posted.chain(&self.any).any(|it| it.takes(tag))
    }

    /// Forgets the ranks of which nothing is to be received.
    fn prune(&mut self) {
        let mut from = std::mem::take(&mut self.from);
        from.retain(|distance| self.inboxes[self.sender(*distance).index()].is_busy());
        self.from = from;
    }

    fn look(
        &mut self,
        from: Option<Rank>,
        tag: Option<u32>,
        router: &mut Router,
        watch: &Watch,
    ) -> Result<Option<Message>, CallError> {
        self.open();
        self.advance(router)?;
        if self.unexpected.0 > 0
            && let Some((peer, at)) = self.find_unexpected(from, tag)
        {
            return Ok(Some(self.inboxes[peer.index()].unexpected[at].message));
        }
        // Whether a message with another tag stays on its link.
        let mut is_full = false;
        let first = from.map_or(self.looks_first_at, Rank::index);
        let (peers, size) = (if from.is_some() { 1 } else { self.size }, self.size);
        for peer in (0..peers).map(|at| Rank::at((first + at) % size)) {
            while peer != self.own {
                if let Rest::Part { .. } = self.receive_rest(peer, router)? {
                    break;
                }
                let front = match router.readable(TRACK.link(peer)) {
                    Ok(Some(front)) => front,
                    Ok(None) => break,
                    // Other messages of a rank that has left may still wait in the queue.
                    Err(link) if !matches!(link.fault, LinkFault::Died) => {
                        let has_others = !self.inboxes[peer.index()].unexpected.is_empty();
                        if from.is_none() || has_others {
                            break;
                        }
                        return Err(link.into());
                    }
                    Err(link) => return Err(link.into()),
                };
                let Ok((header, _)) = TRACK.begins(front) else { return Err(garbled(peer)) };
                let Ok(bytes) = usize::try_from(header.bytes) else { return Err(garbled(peer)) };
                let message = Message { is_sent: false, peer, tag: header.tag, bytes };
                if self.is_awaited(peer, message.tag) {
                    // A receive that was started before takes it.
                    self.receive_from(peer, router)?;
                    continue;
                }
                if tag.is_none_or(|tag| tag == message.tag) {
                    return Ok(Some(message));
                }
                if !self.set_aside(message, header.elements, router) {
                    is_full = true;
                    break;
                }
            }
        }
        let Some(from) = from.filter(|_| !is_full) else { return Ok(None) };
        let is_done = self.inboxes[from.index()].unexpected.is_empty();
        if is_done && has_left(watch, from) { Err(CallError::Left(from)) } else { Ok(None) }
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

/// How much of a message has arrived.
enum Rest {
    /// No message has begun.
    Nothing,
    Part {
        moved: bool,
    },
    Whole,
}

/// Adds a distance to a sorted list, unless it is there.
fn insert(distances: &mut Vec<usize>, distance: usize) {
    if let Err(at) = distances.binary_search(&distance) {
        distances.insert(at, distance);
    }
}

/// The error for bytes that no rank sends here.
fn garbled(peer: Rank) -> CallError {
    CallError::Unexpected { peer, cause: "bytes that are no message".to_owned() }
}
