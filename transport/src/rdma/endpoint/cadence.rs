//! The polls that look at more than the completion queues.

/// Polls of the completion queues for each poll of the connections, which is a system call.
const POLLS_PER_CONNECTION_POLL: u32 = 64;
/// The same, where some connection is expected to bring something.
const POLLS_PER_EXPECTANT_POLL: u32 = 16;
/// Polls of the connections for each poll of the devices' own events.
const CONNECTION_POLLS_PER_EVENTS: u32 = 64;

/// Counts polls of the completion queues and of the connections.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    polls: u32,
    connection_polls: u32,
}

impl Cadence {
    /// Counts a poll. Returns whether the connections are due. `is_expectant` means that one is
    /// expected to bring something.
    pub(super) const fn poll(&mut self, is_expectant: bool) -> bool {
        let every = if is_expectant { POLLS_PER_EXPECTANT_POLL } else { POLLS_PER_CONNECTION_POLL };
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(every)
    }

    /// The polls of the connections since the beginning.
    #[cfg(test)]
    pub(super) const fn connection_polls(&self) -> u32 {
        self.connection_polls
    }

    /// Counts a poll of the connections. Returns whether the devices' events are due.
    pub(super) const fn poll_connections(&mut self) -> bool {
        self.connection_polls = self.connection_polls.wrapping_add(1);
        self.connection_polls.is_multiple_of(CONNECTION_POLLS_PER_EVENTS)
    }
}
