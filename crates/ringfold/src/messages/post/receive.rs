//! Receives: each takes the first message of its source with its tag, from its link or the queue.

use ringfold_collectives::pairs::distance;
use ringfold_transport::LinkFault;
use ringfold_types::Rank;
use ringfold_types::limits::{INLINE_BYTES, UNEXPECTED_BYTES_MAX};

use super::{Arriving, Post, TRACK, Unexpected, insert};
use crate::error::{CallError, Message};
use crate::messages::ends::Receiving;
use crate::messages::header::{Elements, HEADER_BYTES};
use crate::router::Router;

/// Bytes by which the queue grows while a long message arrives.
const ROOM_BYTES: usize = 1024 * 1024;

/// Bytes that a message in the queue costs beside its own.
const ENTRY_BYTES: usize = 2 * size_of::<Unexpected>();

/// How much of a message has arrived.
pub(super) enum Rest {
    /// No message has begun.
    Nothing,
    Part {
        moved: bool,
    },
    Whole,
}

/// A message at the front of its link.
pub(in crate::messages) struct Front<'r> {
    pub(in crate::messages) message: Message,
    pub(super) elements: Elements,
    /// The bytes of a short message that is here as a whole.
    body: Option<&'r [u8]>,
}

impl Post {
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
    pub(super) fn find_unexpected(
        &self,
        from: Option<Rank>,
        tag: Option<u32>,
    ) -> Option<(Rank, usize)> {
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
        let Front { message, elements, body } = front(router, from).ok()??;
        if !receiving.takes(message.tag) || !elements.fits(receiving.elements) {
            return None;
        }
        receiving.bytes().get_mut(..message.bytes)?.copy_from_slice(body?);
        let link = TRACK.link(from);
        router.to(link).consume(link, HEADER_BYTES + message.bytes);
        Some(message)
    }

    /// Takes the first receive that wants a message with this tag.
    pub(super) fn matching(&mut self, peer: Rank, tag: u32) -> Option<Receiving> {
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
    pub(super) fn put_back(&mut self, receiving: Receiving) {
        match receiving.from {
            Some(from) => self.inboxes[from.index()].posted.push_front(receiving),
            None => self.any.push_front(receiving),
        }
    }

    /// Receives what has arrived from a rank and is wanted. Whether anything was.
    pub(super) fn receive_from(
        &mut self,
        from: Rank,
        router: &mut Router,
    ) -> Result<bool, CallError> {
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
            let inbox = &self.inboxes[from.index()];
            let posted = &inbox.posted;
            if posted.is_empty() && self.any.is_empty() {
                return Ok(has_moved);
            }
            let may_end = posted.is_empty() || !inbox.unexpected.is_empty();
            let Front { message, elements, body } = match front(router, from) {
                Ok(Some(front)) => front,
                Ok(None) => return Ok(has_moved),
                // The check before a park tells why a link has ended that no receive names, or
                // behind which other messages wait.
                Err(error) if may_end && !is_fatal(&error) => return Ok(has_moved),
                Err(error) => return Err(error),
            };
            let bytes = message.bytes;
            let Some(mut receiving) = self.matching(from, message.tag) else {
                if !self.set_aside(message, elements, router) {
                    return Ok(has_moved);
                }
                has_moved = true;
                continue;
            };
            if let Err(error) = receiving.check_type(&message, elements) {
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
    pub(super) fn receive_rest(
        &mut self,
        from: Rank,
        router: &mut Router,
    ) -> Result<Rest, CallError> {
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
            let received = router.recv(link, tag, &mut bytes[before..]);
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
    pub(super) fn set_aside(
        &mut self,
        message: Message,
        elements: Elements,
        router: &mut Router,
    ) -> bool {
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
}

/// The message at the front of the link of a rank.
///
/// # Errors
/// The link is unusable, or the bytes are no message.
#[inline]
pub(in crate::messages) fn front(
    router: &Router,
    peer: Rank,
) -> Result<Option<Front<'_>>, CallError> {
    let Some(fragment) = router.readable(TRACK.link(peer))? else { return Ok(None) };
    let (header, rest) = TRACK.begins(fragment).map_err(|_| garbled(peer))?;
    let bytes = usize::try_from(header.bytes).map_err(|_| garbled(peer))?;
    let message = Message { is_sent: false, peer, tag: header.tag, bytes };
    let body = rest.get(..bytes).filter(|_| bytes <= INLINE_BYTES);
    Ok(Some(Front { message, elements: header.elements, body }))
}

/// Whether an error says more than that the link of a rank has ended, which may have left.
pub(super) const fn is_fatal(error: &CallError) -> bool {
    !matches!(error, CallError::Link(link) if !matches!(link.fault, LinkFault::Died))
}

/// The error for bytes that no rank sends here.
fn garbled(peer: Rank) -> CallError {
    CallError::Unexpected { peer, cause: "bytes that are no message".to_owned() }
}
