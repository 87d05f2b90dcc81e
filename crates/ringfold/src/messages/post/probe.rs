//! Probes: they look for the message that a receive would take, and leave it.

use ringfold_types::Rank;

use super::Post;
use super::receive::{Front, Rest, front, is_fatal};
use crate::error::{CallError, Message};
use crate::messages::has_left;
use crate::router::Router;
use crate::watch::Watch;

impl Post {
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

    /// Looks for that message.
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
            if peer == self.own
                && let Some(message) = self.sent_to_itself(tag)
            {
                return Ok(Some(message));
            }
            while peer != self.own {
                if let Rest::Part { .. } = self.receive_rest(peer, router)? {
                    break;
                }
                // Other messages of a rank that has left may still wait in the queue.
                let may_end = from.is_none() || !self.inboxes[peer.index()].unexpected.is_empty();
                let Front { message, elements, .. } = match front(router, peer) {
                    Ok(Some(front)) => front,
                    Ok(None) => break,
                    Err(error) if may_end && !is_fatal(&error) => break,
                    Err(error) => return Err(error),
                };
                if self.is_awaited(peer, message.tag) {
                    // A receive that was started before takes it.
                    self.receive_from(peer, router)?;
                    continue;
                }
                if tag.is_none_or(|tag| tag == message.tag) {
                    return Ok(Some(message));
                }
                if !self.set_aside(message, elements, router) {
                    is_full = true;
                    break;
                }
            }
        }
        let Some(from) = from.filter(|_| !is_full) else { return Ok(None) };
        let is_done = self.inboxes[from.index()].unexpected.is_empty();
        if is_done && has_left(watch, from) { Err(CallError::Left(from)) } else { Ok(None) }
    }

    /// The first message of this rank to itself with this tag.
    fn sent_to_itself(&mut self, tag: Option<u32>) -> Option<Message> {
        let sent = self.outboxes.get_mut(self.own.index())?;
        let found = sent.iter_mut().find(|it| tag.is_none_or(|tag| tag == it.tag))?;
        Some(Message { is_sent: false, peer: self.own, ..found.message() })
    }

    /// Whether a receive wants a message of this rank with this tag.
    fn is_awaited(&self, peer: Rank, tag: u32) -> bool {
        let posted = self.inboxes[peer.index()].posted.iter();
        posted.chain(&self.any).any(|it| it.takes(tag))
    }
}
