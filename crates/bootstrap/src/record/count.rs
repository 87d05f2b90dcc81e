//! Counts calls by kind and duration, and the time for which calls wait.
//!
//! A kind is a collective, an algorithm and a size class. Calls that repeat their predecessor
//! change nothing here when they begin. A call whose end has no time changes nothing at all: a
//! reader finds their number from that of all finished calls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ringfold_types::limits::CALL_KINDS_MAX;
use ringfold_types::{Call, Way};

use super::format::{DURATIONS, GroupWords, KINDS, at, current, group, kind};
use super::tracer::{TracedGroup, Tracer};

/// The largest sizes of calls of each class but the last two: larger calls, and those with uneven
/// parts.
const SIZES: [u64; 6] = [1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28];

/// The names of the size classes.
const SIZE_NAMES: [&str; SIZES.len() + 2] =
    ["256B", "4KiB", "64KiB", "1MiB", "16MiB", "256MiB", "more", "uneven"];

/// The key of the kind for calls that find no place.
const OTHER: u64 = u64::MAX;

/// Nanoseconds of a tick of the record's clock, times 2^32.
static TICK: AtomicU64 = AtomicU64::new(1 << 32);

/// The record of this process, and the beginning of its time.
struct Counting {
    words: &'static [AtomicU64],
    /// The clock of the stamps, if it is the counter of the processor.
    counter: Option<fn() -> u64>,
    /// The first stamp, and its moment.
    start: (u64, Instant),
}

/// The record of a process that is not traced.
static COUNTING: OnceLock<Counting> = OnceLock::new();

/// The record of a process that is traced. Its calls take a longer path, so that those of others
/// take no instruction more.
static TRACED: OnceLock<(Counting, Tracer)> = OnceLock::new();

/// Counts in the `words` of the record from now on. The clock of stamps is `counter`, if it is that
/// of the processor, and else counts nanoseconds.
pub(super) fn start(
    words: &'static [AtomicU64],
    counter: Option<fn() -> u64>,
    tracer: Option<Tracer>,
) {
    let start = (counter.map_or(0, |clock| clock()), Instant::now());
    let counting = Counting { words, counter, start };
    match tracer {
        None => drop(COUNTING.set(counting)),
        Some(tracer) => drop(TRACED.set((counting, tracer))),
    }
}

/// The record of this process.
fn counting() -> Option<&'static Counting> {
    COUNTING.get().or_else(|| TRACED.get().map(|(counting, _)| counting))
}

/// A kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKind {
    /// The code of the collective, as in the words of calls.
    pub collective: u8,
    /// The caller's code for the algorithm.
    pub algorithm: u8,
    size: u8,
}

impl CallKind {
    /// The kind of the call with these words of a log, and the bytes of a rank's part.
    pub(crate) fn of([kinds, count, last, ..]: [u64; 5]) -> (Self, u64) {
        let [root @ .., _, _, _, _] = last.to_le_bytes();
        let [_, _, _, _, algorithm, ..] = last.to_le_bytes();
        let [collective, ..] = kinds.to_le_bytes();
        let call = Call::from_words([kinds, count, u32::from_le_bytes(root).into()]).ok();
        let bytes = call.map(|it| (it.count as u64).saturating_mul(it.data_type.bytes() as u64));
        let class = bytes.map_or(SIZES.len() + 1, |it| SIZES.partition_point(|most| *most < it));
        let size = u8::try_from(class).unwrap_or_default();
        (Self { collective, algorithm, size }, bytes.unwrap_or_default())
    }

    fn key(self) -> u64 {
        u64::from_le_bytes([self.collective, self.algorithm, self.size, 1, 0, 0, 0, 0])
    }

    /// The kind of this key; `None` for that of calls without a place. The key may be any.
    pub(super) fn from_key(key: u64) -> Option<Self> {
        let [collective, algorithm, size, 1, 0, 0, 0, 0] = key.to_le_bytes() else { return None };
        Some(Self { collective, algorithm, size })
    }

    /// The name of the size class: the largest size of its calls, `more` or `uneven`.
    #[must_use]
    pub fn size(self) -> &'static str {
        SIZE_NAMES.get(usize::from(self.size)).copied().unwrap_or("unknown")
    }
}

/// The nanoseconds of these ticks of the record's clock.
#[inline]
fn nanoseconds_of(ticks: u64) -> u64 {
    let whole = u128::from(ticks) * u128::from(TICK.load(Ordering::Relaxed));
    u64::try_from(whole >> u32::BITS).unwrap_or(u64::MAX)
}

/// The index of a duration among the counted ones.
#[inline]
const fn index_of(nanoseconds: u64) -> usize {
    let micros = nanoseconds.div_ceil(1000);
    let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
    let index = bits.div_ceil(2) as usize;
    if index < DURATIONS { index } else { DURATIONS - 1 }
}

/// Adds the time for which a call of a group waited, between two stamps.
pub(crate) fn count_wait(words: &'static GroupWords, since: u64, until: u64) {
    match COUNTING.get() {
        Some(counting) => counting.waited(until.saturating_sub(since)),
        None => trace_wait(words, since, until),
    }
}

#[cold]
fn trace_wait(words: &'static GroupWords, since: u64, until: u64) {
    if let Some((counting, tracer)) = TRACED.get() {
        counting.waited(until.saturating_sub(since));
        (tracer.wait)(TracedGroup(words), since, until);
    }
}

impl Counting {
    fn waited(&self, ticks: u64) {
        self.words[at::WAITED].fetch_add(nanoseconds_of(ticks), Ordering::Relaxed);
    }

    /// Counts the end of a call of a group after so many ticks, in the kind with this index.
    #[inline]
    fn ended(&self, index: usize, words: &GroupWords, ticks: u64) {
        let nanoseconds = nanoseconds_of(ticks);
        let kind = self.words_of(index);
        kind[kind::CALLS.start + index_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        kind[kind::NANOSECONDS].fetch_add(nanoseconds, Ordering::Relaxed);
        add_one(&words[group::TIMED]);
    }

    /// Learns the length of a tick from the time since the record began.
    fn measure_tick(&self) {
        let Some(clock) = self.counter else { return };
        let ticks = clock().saturating_sub(self.start.0);
        let tick = (self.start.1.elapsed().as_nanos() << u32::BITS) / u128::from(ticks.max(1));
        TICK.store(u64::try_from(tick).unwrap_or(1 << 32), Ordering::Relaxed);
    }

    /// The index of the kind with this key. A new kind takes a free place, or the last one.
    fn kind(&self, key: u64) -> usize {
        for index in 0..CALL_KINDS_MAX - 1 {
            let word = &self.words[KINDS.start + index * kind::WORDS + kind::KEY];
            match word.load(Ordering::Relaxed) {
                known if known == key => return index,
                0 => {
                    self.measure_tick();
                    let (order, free) = (Ordering::Relaxed, word);
                    match free.compare_exchange(0, key, order, order) {
                        Ok(_) => return index,
                        Err(taken) if taken == key => return index,
                        Err(_) => {}
                    }
                }
                _ => {}
            }
        }
        let last = CALL_KINDS_MAX - 1;
        self.words[KINDS.start + last * kind::WORDS].store(OTHER, Ordering::Relaxed);
        last
    }

    #[inline]
    fn words_of(&self, index: usize) -> &[AtomicU64] {
        let begin = KINDS.start + index.min(CALL_KINDS_MAX - 1) * kind::WORDS;
        &self.words[begin..begin + kind::WORDS]
    }
}

/// Has the calls of a group be of this kind, from call number `seq` on.
pub(crate) fn begin_kind(words: &GroupWords, seq: u64, name: [u64; 5]) {
    let Some(counting) = counting() else { return };
    let (kind, bytes) = CallKind::of(name);
    let index = counting.kind(kind.key());
    let before = current(words[group::KIND].load(Ordering::Relaxed));
    let bytes_before = words[group::BYTES_EACH].load(Ordering::Relaxed);
    if before.is_some_and(|(before, _)| before == index) && bytes_before == bytes {
        return;
    }
    end_kind(words);
    words[group::TIMED].store(0, Ordering::Relaxed);
    words[group::SHORT].store(0, Ordering::Relaxed);
    words[group::BYTES_EACH].store(bytes, Ordering::Relaxed);
    words[group::KIND].store(seq << 8 | (index as u64 + 1), Ordering::Release);
}

/// Adds the calls of a group whose ends have no times to those of their kind, and their bytes to
/// the traffic.
pub(crate) fn end_kind(words: &GroupWords) {
    let of = |at: usize| words[at].load(Ordering::Relaxed);
    let (Some(counting), Some((index, first))) = (counting(), current(of(group::KIND))) else {
        return;
    };
    let calls = of(group::FINISHED).saturating_sub(first).saturating_sub(of(group::TIMED));
    // A reader counts them in the group or in the kind, and never in both: it reads kinds first.
    words[group::KIND].store(0, Ordering::Release);
    counting.words_of(index)[kind::UNTIMED].fetch_add(calls, Ordering::Relaxed);
    let exchanges = calls.saturating_sub(of(group::SHORT));
    let bytes = exchanges.saturating_mul(of(group::BYTES_EACH));
    counting.words[at::TRAFFIC.start + Way::Shm.index()].fetch_add(bytes, Ordering::Relaxed);
}

/// Adds 1 to a word of a group, which one thread writes.
#[inline]
fn add_one(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Counts the end of a short call of a group.
#[inline]
pub(crate) fn count_short(words: &GroupWords) {
    add_one(&words[group::SHORT]);
}

/// Whether a tracer takes the calls of this process.
#[must_use]
#[inline]
pub fn is_traced() -> bool {
    TRACED.get().is_some()
}

/// Counts the end of call number `seq` of a group, between two stamps.
#[inline]
pub(crate) fn count_call(words: &'static GroupWords, seq: u64, begin: u64, end: u64) {
    let current = current(words[group::KIND].load(Ordering::Relaxed));
    match (COUNTING.get(), current) {
        (Some(counting), Some((index, _))) => {
            counting.ended(index, words, end.saturating_sub(begin));
        }
        _ => trace_call(words, seq, begin, end),
    }
}

#[cold]
fn trace_call(words: &'static GroupWords, seq: u64, begin: u64, end: u64) {
    let Some((counting, tracer)) = TRACED.get() else { return };
    if let Some((index, _)) = current(words[group::KIND].load(Ordering::Relaxed)) {
        counting.ended(index, words, end.saturating_sub(begin));
    }
    let group = TracedGroup(words);
    group.ended(seq, end).into_iter().for_each(|call| (tracer.call)(group, call));
}

/// Hands the call that a failure ends at this time to the tracer, if there is one.
pub(crate) fn trace_failure(words: &'static GroupWords, at: u64) {
    if let Some((_, tracer)) = TRACED.get() {
        let group = TracedGroup(words);
        group.failed(at).into_iter().for_each(|call| (tracer.call)(group, call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_go_up_to_powers_of_four_microseconds() {
        let indices = [0, 1, 1000, 1001, 4000, 4001, 16_000, 16_001, 67_108_864_000, u64::MAX];
        assert_eq!(indices.map(index_of), [0, 0, 0, 1, 1, 2, 2, 3, 13, 14]);
        assert_eq!(index_of(67_108_864_001), DURATIONS - 1);
    }
}
