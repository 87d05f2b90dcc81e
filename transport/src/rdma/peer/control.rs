//! The messages for a peer that wait for its control connection.

use std::collections::VecDeque;

use crate::rdma::message::{Load, Message};
use crate::rdma::ring::geometry::Number;
use crate::rdma::ring::outbound::Ready;

/// The messages for a peer, and after them fragments that go by TCP.
#[derive(Debug, Default)]
pub(super) struct ControlQueue {
    messages: VecDeque<Message>,
    /// The fragments, each with its lane.
    loads: VecDeque<(usize, Ready)>,
}

impl ControlQueue {
    pub(super) fn say(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Queues a fragment in the image of a lane.
    pub(super) fn load(&mut self, lane: usize, ready: Ready) {
        self.loads.push_back((lane, ready));
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.loads.is_empty()
    }

    /// Drops the fragments.
    pub(super) fn drop_loads(&mut self) {
        self.loads.clear();
    }

    /// The next message: that of a fragment, if there is no other.
    pub(super) fn next(&mut self) -> Option<Message> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message);
        }
        let (lane, Ready { at, bytes, number, .. }) = self.loads.pop_front()?;
        let Number::Fragment { sequence, lines, .. } = number else { return None };
        Some(Message::Load(Load { lane, sequence, lines, at, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_come_after_messages() {
        let number = Number::Fragment { lane: 1, sequence: 9, lines: 2 };
        let ready = Ready { at: 64, bytes: 128, number, placed: None };
        let mut queue = ControlQueue::default();
        queue.load(1, ready);
        queue.say(Message::Ready { path: 3 });
        assert_eq!(queue.next(), Some(Message::Ready { path: 3 }));
        assert!(!queue.has_messages() && !queue.is_empty());
        let load = Load { lane: 1, sequence: 9, lines: 2, at: 64, bytes: 128 };
        assert_eq!(queue.next(), Some(Message::Load(load)));
        queue.load(1, ready);
        queue.drop_loads();
        assert_eq!((queue.next(), queue.is_empty()), (None, true));
    }
}
