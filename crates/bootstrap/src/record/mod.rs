//! The record of this process: its recent calls, failures and events of links, in words that other
//! processes may read while it runs, while it is stopped, and after its death.
//!
//! `format` has the layout, `count` counts calls, and `read` and `counters` decode a copy. A
//! process has at most one record. The groups of a process without a record, and those that find no
//! place in it, use ordinary memory.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use self::clock::moment;
use self::count::{end_kind, trace_failure};
use self::format::{
    EVENT_HEAD_WORDS, FAILURES, GROUP_WORDS, GROUPS, GroupWords, LINKS, MAGIC, Ring, VERSION, at,
    group, group_at,
};
use self::read::LookPort;
use self::tracer::Tracer;

mod clock;
pub(crate) mod copy;
pub(crate) mod count;
pub(crate) mod counters;
pub(crate) mod folder;
pub(crate) mod format;
pub(crate) mod read;
pub(crate) mod tracer;

/// The words of a record.
pub const RECORD_WORDS: usize = format::RECORD_WORDS;

/// The word of a record that is not zero once there is a failure.
pub const KEEP_WORD: usize = at::KEEP;

/// The words of a record that count traffic by way.
pub const TRAFFIC_AT: Range<usize> = at::TRAFFIC;

/// The facts of a process for its record.
#[derive(Clone, Debug)]
pub struct RecordFacts {
    /// The name of the host.
    pub host: String,
    /// The clock of the stamps, and whether it is the counter of the processor.
    pub clock: (fn() -> u64, bool),
    /// The folder to which a failure copies the record, and those of dead ranks of the host: an
    /// absolute path of at most `limits::DUMP_PATH_BYTES`.
    pub dump: Option<PathBuf>,
    /// The folder with the records of this host, if this process has its own there.
    pub folder: Option<PathBuf>,
    /// The tracer of this process, if it is traced.
    pub tracer: Option<Tracer>,
}

/// The record of this process.
struct Recorder {
    words: &'static [AtomicU64],
    /// The number of the process. A child made by `fork` has another one, and no record.
    pid: u32,
    facts: RecordFacts,
    writer: Mutex<Writer>,
}

/// The lock of everything but calls.
#[derive(Default)]
struct Writer {
    failures: u64,
    links: u64,
    /// For each place its latest use, from 1.
    used: [u64; GROUPS],
}

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// Places in ordinary memory that no group uses.
static SPARE: Mutex<Vec<&'static GroupWords>> = Mutex::new(Vec::new());

/// The place of a group, which is free again after its drop.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) words: &'static GroupWords,
    is_recorded: bool,
}

/// The facts of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupFacts<'a> {
    pub(crate) id: u128,
    pub(crate) rank: u64,
    pub(crate) size: u64,
    pub(crate) name: &'a str,
}

/// Begins the record of this process in `words`, which must be `RECORD_WORDS` words of zero. Only
/// the first call counts.
pub fn start_record(words: &'static [AtomicU64], facts: RecordFacts) {
    if words.len() != RECORD_WORDS {
        return tracing::debug!("a record of {} words", words.len());
    }
    let pid = std::process::id();
    let recorder = Recorder { words, pid, facts, writer: Mutex::default() };
    let mut is_first = false;
    let recorder = RECORDER.get_or_init(|| {
        is_first = true;
        recorder
    });
    if is_first {
        let (clock, is_counter) = recorder.facts.clock;
        count::start(words, is_counter.then_some(clock), recorder.facts.tracer);
        recorder.write_header();
    }
}

/// The record of this process.
fn recorder() -> Option<&'static Recorder> {
    RECORDER.get().filter(|recorder| recorder.pid == std::process::id())
}

/// Whether this process, or the one from which it was forked, has begun its record.
#[must_use]
pub fn has_record() -> bool {
    RECORDER.get().is_some()
}

/// Records an event of a link or of a group, in at most 232 bytes. Later events push it out, but no
/// calls.
pub fn record_event(text: &str) {
    if let Some(recorder) = recorder() {
        let mut writer = recorder.writer();
        recorder.write_event(LINKS, writer.links, text);
        writer.links += 1;
    }
}

/// Records a failure, which keeps the record after the end of the process, and copies the record to
/// the folder for dumps. Has the group at this place name it.
pub(crate) fn record_failure(place: &Place, text: &str) {
    let Some(recorder) = recorder() else { return };
    trace_failure(place.words, (recorder.facts.clock.0)());
    let mut writer = recorder.writer();
    recorder.write_event(FAILURES, writer.failures, text);
    writer.failures += 1;
    place.words[group::FAILURE].store(writer.failures, Ordering::Relaxed);
    recorder.words[at::KEEP].store(1, Ordering::Relaxed);
    let Some(dump) = &recorder.facts.dump else { return };
    let folder = recorder.facts.folder.as_deref();
    if let Err(error) = copy::copy(recorder.words, recorder.moment(), folder, dump) {
        tracing::warn!(
            "the record is not in RINGFOLD_DUMP={}, and the job goes on: {error}",
            dump.display()
        );
    }
}

/// The number of this process, and when it began in the kernel's ticks.
fn this_process() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    (std::process::id().into(), read::process_stat(&stat).map_or(0, |(_, begun)| begun))
}

impl Recorder {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> [u64; 3] {
        moment(self.facts.clock.0)
    }

    fn write_header(&self) {
        let (pid, begun) = this_process();
        let has_counter = u64::from(self.facts.clock.1);
        let facts = [(at::PID, pid), (at::BEGUN, begun), (at::HAS_COUNTER, has_counter)];
        for (place, value) in facts.into_iter().chain(at::START.zip(self.moment())) {
            self.words[place].store(value, Ordering::Relaxed);
        }
        write_text(&self.words[at::HOST], &self.facts.host);
        if let Some(dump) = self.facts.dump.as_ref().and_then(|dump| dump.to_str()) {
            write_text(&self.words[at::DUMP], dump);
        }
        self.words[at::VERSION].store(VERSION, Ordering::Relaxed);
        self.words[at::MAGIC].store(MAGIC, Ordering::Release);
    }

    /// Writes event number `count` of a ring.
    fn write_event(&self, ring: Ring, count: u64, text: &str) {
        let entry = &self.words[ring.entry(count)];
        let (head, body) = entry.split_at(EVENT_HEAD_WORDS);
        head[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        head[1].store((self.facts.clock.0)(), Ordering::Relaxed);
        head[2].store(write_text(body, text), Ordering::Relaxed);
        head[0].store(count + 1, Ordering::Release);
    }
}

impl Place {
    /// A place in ordinary memory.
    pub(crate) fn spare() -> Self {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let words = spare
            .unwrap_or_else(|| Box::leak(Box::new([const { AtomicU64::new(0) }; GROUP_WORDS])));
        Self { words, is_recorded: false }
    }

    /// A place in the record, or in ordinary memory if there is none. Groups that this rank has
    /// left make room for it, the oldest first.
    pub(crate) fn recorded(facts: GroupFacts<'_>) -> Self {
        let Some(recorder) = recorder() else { return Self::spare() };
        let mut writer = recorder.writer();
        let is_free = |index: usize| {
            let state =
                recorder.words[group_at(index).start + group::STATE].load(Ordering::Relaxed);
            state.is_multiple_of(2)
        };
        let oldest = (0..GROUPS).filter(|index| is_free(*index)).min_by_key(|it| writer.used[*it]);
        let place = oldest.and_then(|index| {
            writer.used[index] = 1 + writer.used.iter().max().copied().unwrap_or(0);
            <&GroupWords>::try_from(&recorder.words[group_at(index)]).ok()
        });
        let Some(words) = place else {
            recorder.words[at::UNRECORDED].fetch_add(1, Ordering::Relaxed);
            return Self::spare();
        };
        // The next communicator of the same ranks has the same name and key.
        let is_taken = |[low, high]: [u64; 2]| {
            (0..GROUPS).map(|index| &recorder.words[group_at(index)]).any(|other| {
                let of = |at: usize| other[at].load(Ordering::Relaxed);
                !of(group::STATE).is_multiple_of(2)
                    && (of(group::ID.start), of(group::ID.start + 1)) == (low, high)
                    && of(group::RANK) == facts.rank
            })
        };
        let [mut low, high] = halves(facts.id);
        while is_taken([low, high]) {
            low = low.wrapping_add(1);
        }
        if recorder.words[at::SIZE].load(Ordering::Relaxed) == 0 {
            write_text(&recorder.words[at::NAME], facts.name);
            let [first, second] = [at::JOB.start, at::JOB.start + 1];
            for (place, value) in [(first, low), (second, high), (at::RANK, facts.rank)] {
                recorder.words[place].store(value, Ordering::Relaxed);
            }
            recorder.words[at::SIZE].store(facts.size, Ordering::Release);
        }
        let state = words[group::STATE].load(Ordering::Relaxed);
        words[group::STATE].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        words[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let joined = (recorder.facts.clock.0)();
        let [first, second] = [group::ID.start, group::ID.start + 1];
        let values = [
            (first, low),
            (second, high),
            (group::RANK, facts.rank),
            (group::SIZE, facts.size),
            (group::JOINED, joined),
        ];
        values.into_iter().for_each(|(at, value)| words[at].store(value, Ordering::Relaxed));
        write_text(&words[group::NAME], facts.name);
        words[group::STATE].store(state + 1, Ordering::Release);
        Self { words, is_recorded: true }
    }
}

impl Place {
    /// Records where the rank answers looks, and the key that opens it.
    pub(crate) fn set_look(&self, LookPort { address, key }: LookPort) {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let [low, high] = halves(u128::from_le_bytes(ip.octets()));
        let key = key.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it));
        let places = group::LOOK_ADDRESS.zip([low, high]).chain(group::LOOK_KEY.zip(key));
        places.for_each(|(at, value)| self.words[at].store(value, Ordering::Relaxed));
        self.words[group::LOOK_PORT].store(address.port().into(), Ordering::Release);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A child made by `fork` is no member.
        if recorder().is_some() {
            end_kind(self.words);
        }
        if self.is_recorded {
            if recorder().is_some() {
                self.words[group::STATE].fetch_add(1, Ordering::Release);
            }
        } else {
            self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self.words);
        }
    }
}

/// Writes as much of a text as the words hold, and zeros after it. Returns the number of bytes.
fn write_text(words: &[AtomicU64], text: &str) -> u64 {
    let bytes = text.as_bytes();
    for (index, word) in words.iter().enumerate() {
        let mut piece = [0; 8];
        let rest = bytes.get(index * 8..).unwrap_or_default();
        piece.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        word.store(u64::from_le_bytes(piece), Ordering::Relaxed);
    }
    bytes.len().min(words.len() * 8) as u64
}

/// The low and the high half.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn halves(whole: u128) -> [u64; 2] {
    [whole as u64, (whole >> u64::BITS) as u64]
}

#[cfg(test)]
mod tests;
