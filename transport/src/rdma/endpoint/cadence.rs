//! The polls that look at more than the completion queues.

/// Polls of the completion queues for each poll of the connections, which is a system call.
const POLLS_PER_LOOK: u32 = 64;
/// Polls of the connections for each poll of the devices' own events.
const LOOKS_PER_EVENTS: u32 = 64;

/// Counts polls of the completion queues and of the connections.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    polls: u32,
    looks: u32,
}

impl Cadence {
    /// Counts a poll. Returns whether the connections are due.
    pub(super) const fn poll(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS_PER_LOOK)
    }

    /// Counts a poll of the connections. Returns whether the devices' events are due.
    pub(super) const fn look(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_PER_EVENTS)
    }
}
