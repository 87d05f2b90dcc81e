//! What this rank did lately: written by the thread that makes calls in a few nanoseconds, read by
//! the control thread when something went wrong.
//!
//! A ring of seqlocks made of plain atomics: the writer never waits, a reader that meets a write
//! skips the entry.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use ringfold_types::{Call, limits};
use serde::{Deserialize, Serialize};

/// The last `limits::CALLS_REMEMBERED` calls of a rank.
///
/// One thread writes at a time; were there two, an entry could be garbled, never memory.
#[derive(Debug)]
pub struct CallLog {
    entries: [Entry; limits::CALLS_REMEMBERED],
    /// How many calls are done: all with lower numbers.
    finished: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(32))]
struct Entry {
    /// `BEING_WRITTEN`, or the call's number and one.
    stamp: AtomicU64,
    words: [AtomicU64; 3],
}

/// What the log says of a call, made once for all calls that repeat it.
#[derive(Clone, Copy, Debug)]
pub struct CallName([u64; 3]);

impl CallName {
    /// The name of `call`; `algorithm` is the caller's code for how it is performed.
    #[must_use]
    pub fn new(call: &Call, algorithm: u8) -> Self {
        let [kinds, count, root] = call.to_words();
        Self([kinds, count, root | u64::from(algorithm) << ALGORITHM_SHIFT])
    }
}

const BEING_WRITTEN: u64 = 0;
/// The root takes the low half of its word, the algorithm the byte above.
const ALGORITHM_SHIFT: u32 = 32;

impl Default for CallLog {
    fn default() -> Self {
        let entries = std::array::from_fn(|_| Entry::default());
        Self { entries, finished: AtomicU64::new(0) }
    }
}

impl CallLog {
    /// Notes that call number `seq` begins. Numbers grow.
    #[inline]
    pub fn entered(&self, seq: u64, name: &CallName) {
        let entry = self.entry(seq);
        entry.stamp.store(BEING_WRITTEN, Ordering::Relaxed);
        fence(Ordering::Release);
        for (slot, word) in entry.words.iter().zip(name.0) {
            slot.store(word, Ordering::Relaxed);
        }
        entry.stamp.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Notes that call number `seq` is done, and so are all before it.
    #[inline]
    pub fn finished(&self, seq: u64) {
        self.finished.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// The calls remembered, oldest first.
    #[must_use]
    pub fn history(&self) -> History {
        // Before the calls: what is said to be done was among them then, or is forgotten.
        let finished = self.finished.load(Ordering::Acquire);
        let mut calls: Vec<Logged> =
            self.entries.iter().filter_map(|entry| entry.read(finished)).collect();
        calls.sort_unstable_by_key(|c| c.seq);
        History { calls }
    }

    #[inline]
    fn entry(&self, seq: u64) -> &Entry {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose the entry")]
        let index = seq as usize & (limits::CALLS_REMEMBERED - 1);
        &self.entries[index]
    }
}

impl Entry {
    /// The call, where `finished` are done.
    fn read(&self, finished: u64) -> Option<Logged> {
        let before = self.stamp.load(Ordering::Acquire);
        if before == BEING_WRITTEN {
            return None;
        }
        let [kinds, count, last] = [0, 1, 2].map(|i| self.words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if before != self.stamp.load(Ordering::Relaxed) {
            return None;
        }
        let seq = before.wrapping_sub(1);
        let [root @ .., _, _, _, _] = last.to_le_bytes();
        let [_, _, _, _, algorithm, ..] = last.to_le_bytes();
        Some(Logged {
            seq,
            words: [kinds, count, u64::from(u32::from_le_bytes(root))],
            algorithm,
            finished: seq < finished,
        })
    }
}

/// A call as one rank tells it to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Which call of the communicator, counted from 0.
    pub seq: u64,
    /// The call, as `Call::to_words`; off the wire they may be anything.
    pub words: [u64; 3],
    /// The algorithm that ran it, by the code of the caller.
    pub algorithm: u8,
    /// Whether the rank is through with it.
    pub finished: bool,
}

/// The bit of a caller's code for an algorithm that says that the call's buffers are windows.
pub const IN_WINDOWS: u8 = 0x80;

impl Logged {
    /// By what and where the call ran, as in `by algorithm 3` and `in windows by algorithm 7`.
    #[must_use]
    pub fn way(&self) -> String {
        let place = if self.algorithm & IN_WINDOWS == 0 { "" } else { "in windows " };
        format!("{place}by algorithm {}", self.algorithm & !IN_WINDOWS)
    }

    /// The call in words, as in `allreduce [f32 x 1024, sum]`.
    #[must_use]
    pub fn text(&self) -> String {
        Call::from_words(self.words).map_or_else(|_| "an unknown call".into(), |c| c.to_string())
    }
}

/// Recent calls of one rank, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The calls, by growing `seq`.
    pub calls: Vec<Logged>,
}

impl History {
    /// The latest call entered.
    #[must_use]
    pub fn last(&self) -> Option<&Logged> {
        self.calls.last()
    }

    /// Call number `seq`, if it is remembered.
    #[must_use]
    pub fn at(&self, seq: u64) -> Option<&Logged> {
        self.calls.iter().find(|c| c.seq == seq)
    }

    /// The first call that was entered and is not done.
    #[must_use]
    pub fn unfinished(&self) -> Option<&Logged> {
        self.calls.iter().find(|c| !c.finished)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]
mod tests {
    use ringfold_types::{Collective, DataType, Rank, ReduceOp};

    use super::*;

    fn call(count: usize) -> Call {
        Call {
            collective: Collective::Broadcast,
            count,
            data_type: DataType::F32,
            op: ReduceOp::Sum,
            root: Rank(7),
        }
    }

    #[test]
    fn remembers_the_latest_calls_in_order() {
        let log = CallLog::default();
        assert_eq!(log.history(), History::default());
        let last = limits::CALLS_REMEMBERED as u64 + 5;
        for seq in 0..=last {
            log.entered(seq, &CallName::new(&call(seq as usize), 9));
            if seq != last {
                log.finished(seq);
            }
        }
        let history = log.history();
        assert_eq!(history.calls.len(), limits::CALLS_REMEMBERED);
        assert!(history.calls.is_sorted_by_key(|c| c.seq));
        let latest = history.last().unwrap();
        assert_eq!((latest.seq, latest.algorithm, latest.finished), (last, 9, false));
        assert_eq!(Call::from_words(latest.words), Ok(call(last as usize)));
        assert_eq!(history.unfinished(), Some(latest));
        assert_eq!(history.at(5), None);
    }

    #[test]
    fn a_reader_never_sees_half_an_entry() {
        let log = CallLog::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for seq in 0..200_000 {
                    log.entered(seq, &CallName::new(&call(seq as usize), seq as u8));
                    log.finished(seq);
                }
            });
            while !writer.is_finished() {
                for c in log.history().calls {
                    assert_eq!(c.words, call(c.seq as usize).to_words());
                    assert_eq!(c.algorithm, c.seq as u8);
                }
            }
        });
    }
}
