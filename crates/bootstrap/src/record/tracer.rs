//! Hands the calls and waits of a traced process to its tracer.

use std::sync::atomic::Ordering;

use ringfold_types::limits;

use super::format::{CALL_WORDS, GroupWords, group};
use super::read::{RecordedCall, text};

/// The functions that get the calls and waits of a process, from the threads that perform them.
#[derive(Clone, Copy, Debug)]
pub struct Tracer {
    /// Gets each call of a group when it ends or fails.
    pub call: fn(TracedGroup, RecordedCall),
    /// Gets the begin and the end of each wait of a group, as stamps.
    pub wait: fn(TracedGroup, u64, u64),
}

/// The group of a call or a wait.
#[derive(Clone, Copy, Debug)]
pub struct TracedGroup(pub(crate) &'static GroupWords);

impl TracedGroup {
    /// The number of the group in two words, as in its record. Groups without a place in the record
    /// have zeros.
    #[must_use]
    pub fn id(self) -> [u64; 2] {
        [group::ID.start, group::ID.start + 1].map(|at| self.of(at))
    }

    /// The name of the group; empty without a place in the record.
    #[must_use]
    pub fn name(self) -> String {
        text(&group::NAME.map(|at| self.of(at)).collect::<Vec<_>>(), u64::MAX)
    }

    fn of(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    /// Call number `seq`, which ends at this time, or has failed then.
    fn call(self, seq: u64, end: u64, is_finished: bool) -> Option<RecordedCall> {
        let slots = limits::CALLS_REMEMBERED as u64;
        let place = group::CALLS + usize::try_from(seq % slots).unwrap_or(0) * CALL_WORDS;
        let entry: [u64; CALL_WORDS] = std::array::from_fn(|index| self.of(place + index));
        let [stamp, words @ .., begin, _] = entry;
        let call = RecordedCall { seq, words, begin, end: Some(end), is_finished };
        (stamp == seq.wrapping_add(1)).then_some(call)
    }

    /// The call that has just ended at this time.
    pub(crate) fn ended(self, seq: u64, at: u64) -> Option<RecordedCall> {
        self.call(seq, at, true)
    }

    /// The first call that has not ended, if there is one. It fails at this time.
    pub(crate) fn failed(self, at: u64) -> Option<RecordedCall> {
        let finished = self.of(group::FINISHED);
        (0..2).find_map(|next| self.call(finished.wrapping_add(next), at, false))
    }
}
