//! Tokens of kernel events: the 64 bits that epoll keeps for each descriptor.

const KIND_SHIFT: u32 = 56;

/// The subject of an event. An event of a closed connection may still arrive and then names its
/// successor. So every receiver treats a token as a hint to check, not as a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Tick,
    Listener(usize),
    Greeting(usize),
    Link(usize),
    Waker,
}

impl Token {
    pub(super) const fn encode(self) -> u64 {
        let (kind, index) = match self {
            Self::Tick => (0, 0),
            Self::Listener(index) => (1, index),
            Self::Greeting(index) => (2, index),
            Self::Link(index) => (3, index),
            Self::Waker => (4, 0),
        };
        (kind << KIND_SHIFT) | index as u64
    }

    pub(super) fn decode(bits: u64) -> Self {
        let index = usize::try_from(bits & ((1 << KIND_SHIFT) - 1)).unwrap_or(usize::MAX);
        match bits >> KIND_SHIFT {
            0 => Self::Tick,
            1 => Self::Listener(index),
            2 => Self::Greeting(index),
            3 => Self::Link(index),
            _ => Self::Waker,
        }
    }
}
