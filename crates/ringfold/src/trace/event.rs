//! Events of a traced process.

use ringfold_bootstrap::RecordedCall;

/// The number of a group, as in its record.
pub(crate) type GroupId = [u64; 2];

/// The process of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// The number of the process in the trace.
    pub(crate) pid: u64,
    /// The name of its track.
    pub(crate) title: String,
    /// The nanoseconds from its monotonic clock to that of the first rank 0.
    pub(crate) clock_offset: i64,
}

/// An event of a group. Times are stamps of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) group: GroupId,
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A collective. Whether it has ended well.
    Call(RecordedCall),
    Wait,
    Message(Passed),
    /// The first bytes of a call between two ranks.
    Bytes(Arrow),
}

/// A message between two ranks, as one of them passed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) peer: u32,
    pub(super) tag: u32,
    pub(super) bytes: u64,
    pub(super) arrow: Arrow,
}

/// One end of an arrow from a sender to a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrow {
    /// The number of the arrow, which both ends derive.
    pub(super) id: u64,
    pub(super) is_sent: bool,
}
