//! The recent calls of this rank: the calling thread writes them in a few nanoseconds. The control
//! thread reads them after a failure, and other processes at any time.
//!
//! The log is a ring of seqlocks made of plain atomics. The writer never waits. A reader skips an
//! entry that is being written.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ringfold_types::{Call, UnevenCall, limits};
use serde::{Deserialize, Serialize};

use crate::record::count::{begin_kind, count_call, count_short, count_wait};
use crate::record::format::{CALL_WORDS, group};
use crate::record::read::{AwaitedMessage, LookPort, RecordedCall};
use crate::record::{GroupFacts, Place, record_failure};

/// The last `limits::CALLS_REMEMBERED` calls of a rank. They are in the record of the process,
/// which other processes may read.
///
/// One thread writes at a time. Two concurrent writers could garble an entry, but never memory.
#[derive(Debug)]
pub struct CallLog(Place);

/// An entry: a stamp, which is `BEING_WRITTEN` or the call's number plus one, then the words of the
/// call, its begin and its end.
type Entry = [AtomicU64; CALL_WORDS];

/// The log's record of a call, built once for all calls that repeat it.
#[derive(Clone, Copy, Debug)]
pub struct CallName([u64; WORDS]);

/// Words of a record: three for the call and two for its windows.
const WORDS: usize = 5;

impl CallName {
    /// Records `call`. `algorithm` is the caller's code for the algorithm that runs it.
    #[must_use]
    pub const fn new(call: &Call, algorithm: u8) -> Self {
        let [kinds, count, root] = call.to_words();
        Self([kinds, count, root | (algorithm as u64) << ALGORITHM_SHIFT, 0, 0])
    }

    /// Records an uneven collective.
    #[must_use]
    pub const fn uneven(call: &UnevenCall) -> Self {
        let [kinds, count, root, hash] = call.to_words();
        Self([kinds, count, root, 0, hash])
    }

    /// The same record, for buffers in windows.
    #[must_use]
    pub const fn in_windows(self, windows: CallWindows) -> Self {
        let [kinds, count, last, ..] = self.0;
        let [numbers, begin] = windows.to_words();
        Self([kinds, count, last, numbers, begin])
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// In its first exchange, whose bytes nothing has counted.
    Exchange,
    /// Without a wait, after so few bytes that its time is not worth a stamp.
    Short,
    /// At this time of the record's clock.
    At(u64),
}

/// The windows of a call, by their numbers on the communicator, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWindows {
    /// The window of the input; in place it equals `output`.
    pub input: u32,
    /// The window of the output.
    pub output: u32,
    /// The byte offset in both windows at which the elements begin.
    pub begin: u64,
}

impl CallWindows {
    /// No window: the mark of an all-gather by which the ranks make a group.
    pub const GROUP: Self = Self { input: 0, output: 0, begin: 1 };

    /// No window: the mark of collectives that are packed into one, in parts of these lengths.
    #[must_use]
    pub fn packed(lens: impl Iterator<Item = usize>) -> Self {
        let (mut parts, mut hash) = (0, PACKED);
        for len in lens {
            parts += 1;
            hash = (hash ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        let parts = (parts & PARTS_MASK) << PARTS_SHIFT;
        Self { input: 0, output: 0, begin: PACKED | parts | hash >> (64 - PARTS_SHIFT) }
    }

    /// The two words of the log. Without windows both are 0.
    const fn to_words(self) -> [u64; 2] {
        [self.input as u64 | (self.output as u64) << 32, self.begin]
    }

    /// Returns `None` without windows. Words from the wire may have any value.
    #[expect(clippy::cast_possible_truncation, reason = "a word holds both numbers")]
    const fn from_words([numbers, begin]: [u64; 2]) -> Option<Self> {
        let (input, output) = (numbers as u32, (numbers >> 32) as u32);
        if numbers == 0 { None } else { Some(Self { input, output, begin }) }
    }
}

/// The bit that marks packed collectives. Below it are their number, and a hash of their lengths.
const PACKED: u64 = 1 << 63;
const PARTS_SHIFT: u32 = 32;
const PARTS_MASK: u64 = (1 << 31) - 1;

const BEING_WRITTEN: u64 = 0;
/// The root takes the low half of its word. The algorithm takes the byte above.
const ALGORITHM_SHIFT: u32 = 32;

impl Default for CallLog {
    /// A log in ordinary memory.
    fn default() -> Self {
        Self(Place::spare())
    }
}

impl CallLog {
    /// A log in the record of the process, if there is room.
    pub(crate) fn recorded(facts: GroupFacts<'_>) -> Self {
        Self(Place::recorded(facts))
    }

    /// Has the calls from number `seq` on count as calls of the kind of this one.
    #[cold]
    pub fn begins_kind(&self, seq: u64, name: &CallName) {
        begin_kind(self.0.words, seq, name.0);
    }

    /// Records that call number `seq` begins, at the time `at` of the clock of the record. Numbers
    /// must grow.
    #[inline]
    pub fn entered(&self, seq: u64, name: &CallName, at: u64) {
        let [stamp, words @ .., begin, _] = self.entry(seq);
        stamp.store(BEING_WRITTEN, Ordering::Relaxed);
        fence(Ordering::Release);
        for (slot, word) in words.iter().zip(name.0) {
            slot.store(word, Ordering::Relaxed);
        }
        begin.store(at, Ordering::Relaxed);
        stamp.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Records that call number `seq` and all calls before it are finished.
    #[inline]
    pub fn finished(&self, seq: u64, how: Finished) {
        match (how, self.entry(seq)) {
            (Finished::Exchange, _) => {}
            (Finished::Short, _) => count_short(self.0.words),
            (Finished::At(at), [.., begin, end]) => {
                end.store(at, Ordering::Relaxed);
                count_call(self.0.words, seq, begin.load(Ordering::Relaxed), at);
            }
        }
        self.0.words[group::FINISHED].store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Records that a message between this rank and another ended at the time `at`.
    #[inline]
    pub fn message_ended(&self, at: u64) {
        self.0.words[group::MESSAGE_ENDED].store(at, Ordering::Relaxed);
    }

    /// Records that the rank waits for this message: from the time `since` on, or since the last
    /// wait began.
    pub fn waits(&self, message: AwaitedMessage, since: Option<u64>) {
        let [flags, numbers] = message.to_words();
        let at = group::AWAITED.start;
        self.0.words[at + 1].store(numbers, Ordering::Relaxed);
        if let Some(since) = since {
            self.0.words[group::WAIT_BEGUN].store(since, Ordering::Relaxed);
        }
        self.0.words[at].store(flags, Ordering::Release);
    }

    /// Records that the rank waited for a message until the time `until`.
    pub fn waited(&self, until: u64) {
        let words = self.0.words;
        words[group::AWAITED.start].store(0, Ordering::Release);
        let of = |at: usize| words[at].load(Ordering::Relaxed);
        let (wait, longest) =
            (until.saturating_sub(of(group::WAIT_BEGUN)), of(group::WAIT_LONGEST));
        let shortened = longest - longest / limits::CALLS_REMEMBERED as u64;
        words[group::WAIT_LONGEST].store(wait.max(shortened), Ordering::Relaxed);
    }

    /// Counts the time for which a thread in a call waited.
    pub fn count_wait(&self, since: u64, until: u64) {
        count_wait(self.0.words, since, until);
    }

    /// Records where the rank answers looks.
    pub(crate) fn set_look(&self, port: LookPort) {
        self.0.set_look(port);
    }

    /// The number of the group in the record.
    pub(crate) fn group_id(&self) -> [u64; 2] {
        let [low, high] = [group::ID.start, group::ID.start + 1];
        [low, high].map(|at| self.0.words[at].load(Ordering::Relaxed))
    }

    /// Records the failure of the group.
    pub(crate) fn failed(&self, cause: &impl fmt::Display) {
        record_failure(&self.0, &cause.to_string());
    }

    /// The remembered calls, oldest first.
    #[must_use]
    pub fn history(&self) -> History {
        // Read before the calls: a call that counts as finished was among them then, or is
        // forgotten.
        let finished = self.0.words[group::FINISHED].load(Ordering::Acquire);
        let entries = (0..limits::CALLS_REMEMBERED as u64).map(|index| self.entry(index));
        let mut calls: Vec<Logged> = entries.filter_map(|entry| read(entry, finished)).collect();
        calls.sort_unstable_by_key(|c| c.seq);
        History { calls }
    }

    /// The entry of call number `seq`.
    #[inline]
    fn entry(&self, seq: u64) -> &Entry {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose the entry")]
        let index = seq as usize & (limits::CALLS_REMEMBERED - 1);
        &self.0.words[group::CALLS..].as_chunks().0[index]
    }
}

/// The call in an entry, if `finished` calls are finished.
fn read(entry: &Entry, finished: u64) -> Option<Logged> {
    let [stamp, words @ .., _, _] = entry;
    let before = stamp.load(Ordering::Acquire);
    if before == BEING_WRITTEN {
        return None;
    }
    let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    if before != stamp.load(Ordering::Relaxed) {
        return None;
    }
    let seq = before.wrapping_sub(1);
    Some(Logged::new(seq, words, seq < finished))
}

impl From<&RecordedCall> for Logged {
    fn from(call: &RecordedCall) -> Self {
        Self::new(call.seq, call.words, call.is_finished)
    }
}

/// A call as one rank reports it to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// The call's number on the communicator, counted from 0.
    pub seq: u64,
    /// The words of `Call::to_words`, followed by the windows in the log's encoding. From the wire
    /// they may have any value.
    pub words: [u64; WORDS],
    /// The caller's code for the algorithm that ran it.
    pub algorithm: u8,
    /// Whether the rank has finished it.
    pub finished: bool,
}

impl Logged {
    /// The call of these words of a log.
    fn new(seq: u64, words: [u64; WORDS], finished: bool) -> Self {
        let [kinds, count, last, numbers, begin] = words;
        let [root @ .., _, _, _, _] = last.to_le_bytes();
        let [_, _, _, _, algorithm, ..] = last.to_le_bytes();
        let words = [kinds, count, u64::from(u32::from_le_bytes(root)), numbers, begin];
        Self { seq, words, algorithm, finished }
    }

    /// The algorithm as text, as in `by algorithm 3`.
    #[must_use]
    pub fn way(&self) -> String {
        format!("by algorithm {}", self.algorithm)
    }

    /// The call as text, as in `allreduce [f32 x 1024, sum]`. In windows, `in window 2 from byte 0`
    /// or `from window 1 into window 2 from byte 64` follows. After an all-gather by which ranks
    /// make a group, `to make a group` follows. `packed from 2 calls` follows if it was several
    /// calls of a group of calls, with a hash of their lengths.
    #[must_use]
    pub fn text(&self) -> String {
        let [kinds, count, root, numbers, begin] = self.words;
        let Ok(call) = Call::from_words([kinds, count, root]) else {
            let uneven = UnevenCall::from_words([kinds, count, root, begin]);
            return uneven.map_or_else(|_| "an unknown call".into(), |call| call.to_string());
        };
        match CallWindows::from_words([numbers, begin]) {
            None if [numbers, begin] == CallWindows::GROUP.to_words() => {
                format!("{call} to make a group")
            }
            None if numbers == 0 && begin & PACKED != 0 => {
                let (parts, hash) = (begin >> PARTS_SHIFT & PARTS_MASK, begin & 0xffff_ffff);
                format!("{call} packed from {parts} calls (lengths {hash:08x})")
            }
            None => call.to_string(),
            Some(CallWindows { input, output, begin }) if input == output => {
                format!("{call} in window {output} from byte {begin}")
            }
            Some(CallWindows { input, output, begin }) => {
                format!("{call} from window {input} into window {output} from byte {begin}")
            }
        }
    }
}

/// Recent calls of one rank, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The calls, by growing `seq`.
    pub calls: Vec<Logged>,
}

impl History {
    /// The latest call that the rank entered.
    #[must_use]
    pub fn last(&self) -> Option<&Logged> {
        self.calls.last()
    }

    /// Call number `seq`, if the history has it.
    #[must_use]
    pub fn at(&self, seq: u64) -> Option<&Logged> {
        self.calls.iter().find(|c| c.seq == seq)
    }

    /// The first call that the rank entered and has not finished.
    #[must_use]
    pub fn unfinished(&self) -> Option<&Logged> {
        self.calls.iter().find(|c| !c.finished)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]
mod tests {
    use ringfold_types::{Collective, DataType, Rank, ReduceOp, Wire};

    use super::*;

    fn call(count: usize) -> Call {
        Call {
            collective: Collective::Broadcast,
            count,
            data_type: DataType::F32,
            op: ReduceOp::Sum,
            root: Rank(7),
            wire: Wire::default(),
        }
    }

    /// The words of the log, without windows.
    fn words(count: usize) -> [u64; WORDS] {
        let [kinds, count, root] = call(count).to_words();
        [kinds, count, root, 0, 0]
    }

    #[test]
    fn calls_in_windows_are_told_by_their_windows() {
        let log = CallLog::default();
        let places = [(1, 1, 0), (2, 2, 0), (1, 1, 64), (1, 2, 64)];
        for (seq, (input, output, begin)) in (1..).zip(places) {
            let name = CallName::new(&call(7), 3).in_windows(CallWindows { input, output, begin });
            log.entered(seq, &name, 0);
        }
        log.entered(5, &CallName::new(&call(7), 3).in_windows(CallWindows::GROUP), 0);
        let texts: Vec<String> = log.history().calls.iter().map(Logged::text).collect();
        let call = call(7);
        let want = [
            format!("{call} in window 1 from byte 0"),
            format!("{call} in window 2 from byte 0"),
            format!("{call} in window 1 from byte 64"),
            format!("{call} from window 1 into window 2 from byte 64"),
            format!("{call} to make a group"),
        ];
        assert_eq!(texts, want);
    }

    #[test]
    fn remembers_the_latest_calls_in_order() {
        let log = CallLog::default();
        assert_eq!(log.history(), History::default());
        let last = limits::CALLS_REMEMBERED as u64 + 5;
        for seq in 0..=last {
            log.entered(seq, &CallName::new(&call(seq as usize), 9), 0);
            if seq != last {
                log.finished(seq, Finished::Exchange);
            }
        }
        let history = log.history();
        assert_eq!(history.calls.len(), limits::CALLS_REMEMBERED);
        assert!(history.calls.is_sorted_by_key(|c| c.seq));
        let latest = history.last().unwrap();
        assert_eq!((latest.seq, latest.algorithm, latest.finished), (last, 9, false));
        assert_eq!(latest.words, words(last as usize));
        assert_eq!(history.unfinished(), Some(latest));
        assert_eq!(history.at(5), None);
    }

    #[test]
    fn a_reader_never_sees_half_an_entry() {
        let log = CallLog::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for seq in 0..200_000 {
                    log.entered(seq, &CallName::new(&call(seq as usize), seq as u8), 0);
                    log.finished(seq, Finished::Exchange);
                }
            });
            while !writer.is_finished() {
                for c in log.history().calls {
                    assert_eq!(c.words, words(c.seq as usize));
                    assert_eq!(c.algorithm, c.seq as u8);
                }
            }
        });
    }
}
