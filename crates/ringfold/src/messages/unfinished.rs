//! The messages of a post that have not ended, for errors and time limits.

use std::time::{Duration, Instant};

use ringfold_bootstrap::AwaitedMessage;
use ringfold_types::Rank;

use super::ends::{End, Receiving};
use super::post::{Post, front};
use crate::error::{CallError, Message, Operation};
use crate::router::Router;

/// A message that has not ended.
struct Unfinished {
    peer: Option<Rank>,
    operation: Operation,
    deadline: Option<Instant>,
}

impl Post {
    /// The longest wait before a started message may be overdue. Zero if one is.
    pub(crate) fn time_left(&mut self) -> Duration {
        let left = |due: Option<Instant>| {
            due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()))
        };
        if left(self.due).is_zero() {
            // That message may have ended.
            self.due = self.all().iter().filter_map(|it| it.deadline).min();
        }
        left(self.due)
    }

    /// Notes the message that an error ends beside a blocking call.
    pub(super) fn blame(&mut self, error: CallError) -> CallError {
        let overdue = if let CallError::Overdue = error { self.overdue() } else { None };
        self.blamed = Some(overdue.unwrap_or_else(|| self.concerned(error.peer())));
        error
    }

    /// The operation that an error concerning `peer` ends.
    pub(crate) fn concerned(&mut self, peer: Option<Rank>) -> Operation {
        // A message that no receive wants yet may have begun to arrive, or one may still leave.
        let of_no_receive = Operation::Receive { from: peer, tag: None, bytes: 0 };
        self.unfinished(peer).unwrap_or(of_no_receive)
    }

    /// The first unfinished message: one with `peer` if there is any.
    pub(crate) fn unfinished(&mut self, peer: Option<Rank>) -> Option<Operation> {
        let all = self.all();
        let of_peer = all.iter().find(|it| peer.is_none_or(|peer| it.peer == Some(peer)));
        of_peer.or_else(|| all.first()).map(|it| it.operation)
    }

    /// The message whose time has ended first.
    pub(crate) fn overdue(&mut self) -> Option<Operation> {
        let all = self.all().into_iter();
        let first = all.filter_map(|it| Some((it.deadline?, it.operation))).min_by_key(|it| it.0);
        first.map(|(_, operation)| operation)
    }

    /// The first unfinished message whose outcome goes to an end for which `is_awaited` holds.
    pub(crate) fn awaited(&mut self, is_awaited: impl Fn(&End) -> bool) -> Option<AwaitedMessage> {
        let message = |operation| match operation {
            Operation::Message(Message { is_sent, peer, tag, .. }) => {
                Some(AwaitedMessage { is_sent, peer: Some(peer.0), tag: Some(tag) })
            }
            Operation::Receive { from, tag, .. } => {
                Some(AwaitedMessage { is_sent: false, peer: from.map(|it| it.0), tag })
            }
            _ => None,
        };
        let mut first = None;
        self.each(|it, end| {
            if first.is_none() && is_awaited(end) {
                first = message(it.operation);
            }
        });
        first
    }

    /// All unfinished messages: first the receives from named ranks, then others, then the sends.
    fn all(&mut self) -> Vec<Unfinished> {
        let mut all = Vec::new();
        self.each(|it, _| all.push(it));
        all
    }

    /// Calls `see` with each of these messages and the end of its outcome. Allocates nothing.
    fn each(&mut self, mut see: impl FnMut(Unfinished, &End)) {
        let mut of_receiving = |peer, it: &mut Receiving| {
            let (operation, deadline) = (it.operation(), it.deadline);
            see(Unfinished { peer, operation, deadline }, &it.end);
        };
        for inbox in &mut self.inboxes {
            let peer = inbox.arriving.as_ref().map(|it| it.message.peer);
            inbox.receives().for_each(|it| of_receiving(it.from.or(peer), it));
        }
        self.any.iter_mut().for_each(|it| of_receiving(None, it));
        for it in self.outboxes.iter_mut().flatten() {
            let (peer, operation) = (Some(it.to), Operation::Message(it.message()));
            see(Unfinished { peer, operation, deadline: it.deadline }, &it.end);
        }
    }

    /// The tags of messages from `peer`, or from any rank, that no receive wants.
    pub(crate) fn unwanted(&self, peer: Option<Rank>, router: &Router) -> Vec<Message> {
        let is_of = |it: &Rank| peer.is_none_or(|peer| peer == *it) && *it != self.own;
        let peers = (0..self.inboxes.len()).map(Rank::at).filter(is_of);
        let of_peer = peers.flat_map(|peer| {
            let queue = self.inboxes[peer.index()].unexpected.iter().map(|it| it.message);
            let front = front(router, peer).ok().flatten().map(|it| it.message);
            queue.chain(front)
        });
        of_peer.collect()
    }
}
