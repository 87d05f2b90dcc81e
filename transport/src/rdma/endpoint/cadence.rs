//! The polls in which more than the completion queues is looked at.

/// Every so many polls the connections are looked at, which is a system call,
const POLLS_PER_LOOK: u32 = 64;
/// and every so many looks the devices' own events.
const LOOKS_PER_EVENTS: u32 = 64;

/// Counts polls, and looks at the connections.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    polls: u32,
    looks: u32,
}

impl Cadence {
    /// Counts a poll; whether it is time for a look at the connections.
    pub(super) const fn poll(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS_PER_LOOK)
    }

    /// Counts a look; whether it is time for the devices' events.
    pub(super) const fn look(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_PER_EVENTS)
    }
}
