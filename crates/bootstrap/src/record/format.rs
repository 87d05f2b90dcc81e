//! The layout of a record, in words of 64 bits in the byte order of the host.
//!
//! ```text
//! header     the process, its clocks, its first group
//! failures   the latest failures, oldest first in a ring
//! links      the latest events of links and of the group, in another ring
//! groups     for each group its facts, and the latest calls in a ring
//! kinds      for each kind of call the number of calls by their duration
//! ```
//!
//! One process writes. An entry of a ring has a stamp, which is zero while the entry changes, so a
//! reader that finds the same entry twice has it whole.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use ringfold_types::limits;

/// The first word of a record.
pub(crate) const MAGIC: u64 = 0x646c_6f66_676e_6972;
/// The version of this layout.
pub(crate) const VERSION: u64 = 3;

pub(crate) const HEADER_WORDS: usize = 512;

/// The places of the header's words.
pub(crate) mod at {
    use std::ops::Range;

    use ringfold_types::Way;

    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    /// Not zero once there is a failure.
    pub(crate) const KEEP: usize = 2;
    pub(crate) const PID: usize = 3;
    /// When the process began, in the kernel's ticks since the start of the system.
    pub(crate) const BEGUN: usize = 4;
    /// Whether stamps are of the processor's counter.
    pub(crate) const HAS_COUNTER: usize = 5;
    /// One moment as a stamp, in monotonic nanoseconds, and in nanoseconds since 1970.
    pub(crate) const START: Range<usize> = 6..9;
    /// A later moment, once the record is copied after a failure.
    pub(crate) const COPIED: Range<usize> = 9..12;
    /// The first group: its number, the rank, and the number of ranks.
    pub(crate) const JOB: Range<usize> = 12..14;
    pub(crate) const RANK: usize = 14;
    pub(crate) const SIZE: usize = 15;
    pub(crate) const HOST: Range<usize> = 16..24;
    pub(crate) const NAME: Range<usize> = 24..40;
    /// The groups that found no place.
    pub(crate) const UNRECORDED: usize = 40;
    /// The nanoseconds for which calls waited.
    pub(crate) const WAITED: usize = 41;
    /// The last stamp that the copy in the folder for dumps has, which others made after the end
    /// of the process.
    pub(crate) const DUMPED: usize = 42;
    /// For each way its bytes, and then for each way its losses.
    pub(crate) const TRAFFIC: Range<usize> = 64..64 + 2 * Way::COUNT;
    /// The path of the folder for dumps.
    pub(crate) const DUMP: Range<usize> = 384..512;
}

/// A ring of events: a stamp, a time, and a text with its length before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    begin: usize,
    entries: usize,
    words: usize,
}

impl Ring {
    /// The words of entry number `count`, from 0 on.
    pub(crate) fn entry(self, count: u64) -> Range<usize> {
        let index = usize::try_from(count % self.entries as u64).unwrap_or(0);
        let begin = self.begin + index * self.words;
        begin..begin + self.words
    }

    pub(crate) const fn entries(self) -> usize {
        self.entries
    }

    const fn end(self) -> usize {
        self.begin + self.entries * self.words
    }
}

/// The words before the text of an event: stamp, time, length.
pub(crate) const EVENT_HEAD_WORDS: usize = 3;

pub(crate) const FAILURES: Ring = Ring { begin: HEADER_WORDS, entries: 8, words: 128 };
pub(crate) const LINKS: Ring = Ring { begin: FAILURES.end(), entries: 32, words: 32 };

/// The groups of a process that have a place at once.
pub(crate) const GROUPS: usize = 16;

/// The places of a group's words.
pub(crate) mod group {
    use std::ops::Range;

    /// 0 without a group, odd for a group of which this rank is a member, else even.
    pub(crate) const STATE: usize = 0;
    pub(crate) const ID: Range<usize> = 1..3;
    pub(crate) const RANK: usize = 3;
    pub(crate) const SIZE: usize = 4;
    pub(crate) const JOINED: usize = 5;
    pub(crate) const NAME: Range<usize> = 6..22;
    /// The number of the failure that ended the group, from 1 on.
    pub(crate) const FAILURE: usize = 22;
    /// The number of finished calls, in a cache line without other facts.
    pub(crate) const FINISHED: usize = 24;
    /// The stamp of the latest message between two ranks that has ended; 0 before the first.
    pub(crate) const MESSAGE_ENDED: usize = 25;
    /// The message for which the rank waits, or for which it waited last.
    pub(crate) const AWAITED: Range<usize> = 26..28;
    /// The stamp of the begin of that wait.
    pub(crate) const WAIT_BEGUN: usize = 28;
    /// The longest wait for a message, in units of stamps. Each wait that is shorter shortens it.
    pub(crate) const WAIT_LONGEST: usize = 29;
    /// The kind of the calls that run now, from 1 on, and above it the number of the first of them.
    pub(crate) const KIND: usize = 23;
    /// Where this rank answers looks: an IPv6 address, a port, and the key that opens it.
    pub(crate) const LOOK_ADDRESS: Range<usize> = 30..32;
    pub(crate) const LOOK_PORT: usize = 32;
    pub(crate) const LOOK_KEY: Range<usize> = 33..37;
    /// The calls of this kind whose end has a time.
    pub(crate) const TIMED: usize = 37;
    /// The bytes that each call sent by shared memory that is neither timed nor short.
    pub(crate) const BYTES_EACH: usize = 38;
    /// The calls of this kind without a time whose bytes were counted as they were sent.
    pub(crate) const SHORT: usize = 39;
    pub(crate) const CALLS: usize = 40;
}

/// The words of a call: the stamp, five words of its name, its begin and its end.
pub(crate) const CALL_WORDS: usize = 8;
pub(crate) const GROUP_WORDS: usize = group::CALLS + limits::CALLS_REMEMBERED * CALL_WORDS;

/// The words of a group.
pub(crate) type GroupWords = [AtomicU64; GROUP_WORDS];

/// The words of group number `index`.
pub(crate) const fn group_at(index: usize) -> Range<usize> {
    let begin = LINKS.end() + index * GROUP_WORDS;
    begin..begin + GROUP_WORDS
}

/// The places of the words of a kind of calls.
pub(crate) mod kind {
    use std::ops::Range;

    /// Collective, algorithm and size class; 0 without a kind.
    pub(crate) const KEY: usize = 0;
    /// The calls whose end has no time, without those of `group::KIND`.
    pub(crate) const UNTIMED: usize = 1;
    /// The nanoseconds of the others.
    pub(crate) const NANOSECONDS: usize = 2;
    /// The number of the others by their duration, in the order of `DURATIONS`.
    pub(crate) const CALLS: Range<usize> = 3..18;
    pub(crate) const WORDS: usize = 24;
}

/// The durations of calls are counted up to powers of 4 of a microsecond, 67 s at most, and beyond.
pub(crate) const DURATIONS: usize = kind::CALLS.end - kind::CALLS.start;

/// The words of all kinds of calls.
pub(crate) const KINDS: Range<usize> =
    group_at(GROUPS).start..group_at(GROUPS).start + limits::CALL_KINDS_MAX * kind::WORDS;

/// The index of the kind in this word of a group, and the number of its first call.
pub(crate) const fn current(word: u64) -> Option<(usize, u64)> {
    let index = (word & 0xff) as usize;
    if index == 0 { None } else { Some((index - 1, word >> 8)) }
}

/// The kind of the calls of a group, the number of those whose ends have no times, and the bytes
/// that these sent uncounted, in two copies of its words. `None` if the kind changes meanwhile:
/// then the old one gets the calls.
pub(crate) fn untimed(before: &[u64], after: &[u64]) -> Option<(usize, u64, u64)> {
    let same = Some(after[group::KIND]).filter(|it| *it == before[group::KIND])?;
    let (kind, begin) = current(same)?;
    let calls = before[group::FINISHED].saturating_sub(begin).saturating_sub(after[group::TIMED]);
    let exchanges = calls.saturating_sub(after[group::SHORT]);
    Some((kind, calls, exchanges.saturating_mul(after[group::BYTES_EACH])))
}

/// Forgets where the ranks of a record answer looks, before a copy leaves the user's folder.
pub(crate) fn without_keys(words: &mut [u64]) {
    for group in (0..GROUPS).map(group_at) {
        if let Some(group) = words.get_mut(group) {
            group[group::LOOK_ADDRESS.start..group::LOOK_KEY.end].fill(0);
        }
    }
}

/// The words of a record.
pub(crate) const RECORD_WORDS: usize = KINDS.end;

const _: () = assert!(RECORD_WORDS * 8 == limits::RECORD_BYTES);
const _: () = assert!(at::TRAFFIC.end <= at::DUMP.start && at::DUMP.end <= HEADER_WORDS);
const _: () = assert!(HEADER_WORDS.is_multiple_of(8));
const _: () = assert!((at::DUMP.end - at::DUMP.start) * 8 == limits::DUMP_PATH_BYTES);
