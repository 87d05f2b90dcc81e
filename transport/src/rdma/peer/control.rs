//! The messages for a peer that wait for its control connection.

use std::collections::VecDeque;

use crate::rdma::message::{Message, TcpFragment};
use crate::rdma::ring::layout::Immediate;
use crate::rdma::ring::outbound::Ready;

/// The messages for a peer, and after them fragments that go by TCP.
#[derive(Debug, Default)]
pub(super) struct ControlQueue {
    messages: VecDeque<Message>,
    /// The fragments, each with its lane.
    fragments: VecDeque<(usize, Ready)>,
}

impl ControlQueue {
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Queues a fragment in the image of a lane.
    pub(super) fn push_fragment(&mut self, lane: usize, ready: Ready) {
        self.fragments.push_back((lane, ready));
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.fragments.is_empty()
    }

    /// Drops the fragments.
    pub(super) fn drop_fragments(&mut self) {
        self.fragments.clear();
    }

    /// The next message: that of a fragment, if there is no other.
    pub(super) fn next(&mut self) -> Option<Message> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message);
        }
        let (lane, Ready { at, bytes, number, .. }) = self.fragments.pop_front()?;
        let Immediate::Fragment { sequence, lines, .. } = number else { return None };
        Some(Message::TcpFragment(TcpFragment { lane, sequence, lines, at, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_come_after_messages() {
        let number = Immediate::Fragment { lane: 1, sequence: 9, lines: 2 };
        let ready = Ready { at: 64, bytes: 128, number, placed: None };
        let mut queue = ControlQueue::default();
        queue.push_fragment(1, ready);
        queue.push(Message::Ready { path: 3 });
        assert_eq!(queue.next(), Some(Message::Ready { path: 3 }));
        assert!(!queue.has_messages() && !queue.is_empty());
        let fragment = TcpFragment { lane: 1, sequence: 9, lines: 2, at: 64, bytes: 128 };
        assert_eq!(queue.next(), Some(Message::TcpFragment(fragment)));
        queue.push_fragment(1, ready);
        queue.drop_fragments();
        assert_eq!((queue.next(), queue.is_empty()), (None, true));
    }
}
