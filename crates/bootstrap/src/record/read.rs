//! Decodes copies of records. A copy may be torn, cut off or forged.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::Path;

use ringfold_types::{Way, limits};

use super::format::{
    CALL_WORDS, FAILURES, GROUPS, LINKS, MAGIC, Ring, VERSION, at, group, group_at, untimed,
};

/// The record of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the process on its host.
    pub pid: u64,
    /// When the process began, in the kernel's ticks since the start of the system.
    pub begun: u64,
    /// The name of the host.
    pub host: String,
    /// The number of the job, in two words. Ranks of a job have the same one.
    pub job: [u64; 2],
    /// The name of the job.
    pub name: String,
    /// The rank of the process in its first group.
    pub rank: u64,
    /// The number of ranks in its first group; 0 before it has joined.
    pub size: u64,
    /// The failures, oldest first.
    pub failures: Vec<RecordedEvent>,
    /// The events of links and groups, oldest first.
    pub links: Vec<RecordedEvent>,
    /// The groups of which the process is or was a member.
    pub groups: Vec<RecordedGroup>,
    /// The number of groups that found no place.
    pub unrecorded: u64,
    /// The nanoseconds for which calls waited. A wait counts once it has ended.
    pub waited: u64,
    /// The bytes sent by each way, and how often others took the place of a lost way. The order is
    /// that of [`Way::all`].
    pub traffic: Vec<[u64; 2]>,
    /// The folder to which a failure copies the record; empty without one.
    pub(super) dump: String,
    /// The last stamp in the copy that others made after the end of the process.
    pub(super) dumped: u64,
    has_counter: bool,
    start: [u64; 3],
    copied: [u64; 3],
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The number of the event among those of its kind, from 1 on.
    pub number: u64,
    /// The stamp; see [`Record::time_of`].
    pub at: u64,
    /// The event, without control characters.
    pub text: String,
}

/// A group of which a process is or was a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedGroup {
    /// The number of the group in two words, which is the same on all members.
    pub id: [u64; 2],
    /// The name of the group.
    pub name: String,
    /// The rank of the process.
    pub rank: u64,
    /// The number of ranks.
    pub size: u64,
    /// The number of the failure that ended the group; 0 without one.
    pub failure: u64,
    /// Whether the rank has left the group.
    pub is_left: bool,
    /// The stamp of joining.
    pub joined: u64,
    /// The number of the first call that has not finished.
    pub finished: u64,
    /// The latest calls, oldest first.
    pub calls: Vec<RecordedCall>,
    /// The stamp of the latest message between two ranks that has ended.
    pub message_ended: Option<u64>,
    /// The message for which the rank waits, and the stamp of the begin of the wait.
    pub awaited: Option<(AwaitedMessage, u64)>,
    /// The longest wait for a message before, in units of stamps.
    pub longest_wait: u64,
    /// Where the rank answers looks from this host.
    pub look: Option<LookPort>,
}

/// A message between two ranks for which a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedMessage {
    /// Whether the rank sends it.
    pub is_sent: bool,
    /// The other rank; `None` for any.
    pub peer: Option<u32>,
    /// The tag; `None` for any.
    pub tag: Option<u32>,
}

impl AwaitedMessage {
    const OPEN: u64 = 1;
    const SENT: u64 = 2;
    const HAS_PEER: u64 = 4;
    const HAS_TAG: u64 = 8;

    /// The words of a record while the rank waits. The first one is 0 while it does not.
    pub(crate) fn to_words(self) -> [u64; 2] {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = Self::OPEN
            | flag(self.is_sent, Self::SENT)
            | flag(self.peer.is_some(), Self::HAS_PEER)
            | flag(self.tag.is_some(), Self::HAS_TAG);
        [flags, u64::from(self.peer.unwrap_or(0)) << 32 | u64::from(self.tag.unwrap_or(0))]
    }

    /// The message of these words, if the rank waits for it.
    #[expect(clippy::cast_possible_truncation, reason = "a word holds two numbers")]
    fn from_words([flags, numbers]: [u64; 2]) -> Option<Self> {
        let has = |flag| flags & flag != 0;
        has(Self::OPEN).then(|| Self {
            is_sent: has(Self::SENT),
            peer: has(Self::HAS_PEER).then_some((numbers >> 32) as u32),
            tag: has(Self::HAS_TAG).then_some(numbers as u32),
        })
    }
}

/// The place where a rank answers looks at its group, and the key that opens it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LookPort {
    /// The address, which is of this host.
    pub address: SocketAddr,
    pub(crate) key: [u8; 32],
}

impl fmt::Debug for LookPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LookPort({})", self.address)
    }
}

/// A call of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The number of the call in its group.
    pub seq: u64,
    /// The words of its name, which may have any value.
    pub words: [u64; 5],
    /// The stamp of its begin.
    pub begin: u64,
    /// The stamp of its end, unless the call was short or has not ended.
    pub end: Option<u64>,
    /// Whether the rank has finished it.
    pub is_finished: bool,
}

/// A file that is no record of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRecord(&'static str);

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidRecord {}

/// Reads the record in a file, which its process may write meanwhile.
///
/// # Errors
/// The file cannot be read, or is no record.
pub fn open_record(path: &Path) -> io::Result<Record> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let first = bytes_of(path)?;
    read_record(&first, &bytes_of(path)?).map_err(invalid)
}

/// Decodes two copies of a record, the second made after the first. Parts that differ count as
/// being written, and are left out.
///
/// # Errors
/// The bytes are no record of this version.
pub fn read_record(first: &[u8], second: &[u8]) -> Result<Record, InvalidRecord> {
    let copies = copies_of(first, second)?;
    let words = &copies[1];
    let moment = |range: Range<usize>| [0, 1, 2].map(|index| words[range.start + index]);
    Ok(Record {
        pid: words[at::PID],
        begun: words[at::BEGUN],
        host: text(&words[at::HOST], u64::MAX),
        job: pair(words, at::JOB),
        name: text(&words[at::NAME], u64::MAX),
        rank: words[at::RANK],
        size: words[at::SIZE],
        failures: events(FAILURES, &copies),
        links: events(LINKS, &copies),
        groups: (0..GROUPS).filter_map(|index| read_group(index, &copies)).collect(),
        unrecorded: words[at::UNRECORDED],
        waited: words[at::WAITED],
        traffic: traffic_of(&copies),
        dump: text(&words[at::DUMP], u64::MAX),
        dumped: words[at::DUMPED],
        has_counter: words[at::HAS_COUNTER] != 0,
        start: moment(at::START),
        copied: moment(at::COPIED),
    })
}

/// The words of two copies of a record, whose second one is of this version.
pub(super) fn copies_of(first: &[u8], second: &[u8]) -> Result<[Vec<u64>; 2], InvalidRecord> {
    if [first, second].iter().any(|bytes| bytes.len() != limits::RECORD_BYTES) {
        return Err(InvalidRecord("it does not have the length of a record"));
    }
    let copies = [to_words(first), to_words(second)];
    check_version(&copies[1]).map(|()| copies)
}

/// Fails unless these are the words of a record of this version.
pub(super) fn check_version(words: &[u64]) -> Result<(), InvalidRecord> {
    if words[at::MAGIC] != MAGIC {
        return Err(InvalidRecord("it is no record of ringfold"));
    }
    if words[at::VERSION] != VERSION {
        return Err(InvalidRecord("it is a record of another version of ringfold"));
    }
    Ok(())
}

/// The traffic in two copies of a record. Short calls of two ranks, whose ends have no times, send
/// their bytes by shared memory.
pub(super) fn traffic_of([first, second]: &[Vec<u64>; 2]) -> Vec<[u64; 2]> {
    let (sent, lost) = first[at::TRAFFIC].split_at(Way::COUNT);
    let mut traffic: Vec<[u64; 2]> = sent.iter().zip(lost).map(|it| [*it.0, *it.1]).collect();
    for place in (0..GROUPS).map(group_at) {
        let (before, after) = (&first[place.clone()], &second[place]);
        let Some((.., bytes)) = untimed(before, after) else { continue };
        traffic[Way::Shm.index()][0] = traffic[Way::Shm.index()][0].saturating_add(bytes);
    }
    traffic
}

impl Record {
    /// The time of a stamp in nanoseconds since 1970. `now` is a later moment of the same host: a
    /// stamp, and monotonic nanoseconds. It does not count for a record that a failure has copied.
    #[must_use]
    pub fn time_of(&self, stamp: u64, now: [u64; 2]) -> u64 {
        let [first, monotonic, since_1970] = self.start;
        let [last, end, _] = if self.copied[0] == 0 { [now[0], now[1], 0] } else { self.copied };
        let nanoseconds = if self.has_counter {
            let (ticks, nanoseconds) = (last.saturating_sub(first), end.saturating_sub(monotonic));
            let passed = u128::from(stamp.saturating_sub(first)) * u128::from(nanoseconds);
            u64::try_from(passed / u128::from(ticks.max(1))).unwrap_or(u64::MAX)
        } else {
            stamp.saturating_sub(monotonic)
        };
        since_1970.saturating_add(nanoseconds)
    }

    /// When the record began, in nanoseconds since 1970.
    #[must_use]
    pub const fn started_at(&self) -> u64 {
        self.start[2]
    }

    /// The stamp of the latest event or call; 0 without any.
    #[must_use]
    pub fn last_stamp(&self) -> u64 {
        let events = self.failures.iter().chain(&self.links).map(|event| event.at);
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        events.chain(calls.map(|call| call.end.unwrap_or(call.begin))).max().unwrap_or(0)
    }

    /// The moment of the copy in nanoseconds since 1970, for a record that a failure has copied.
    #[must_use]
    pub fn copied_at(&self) -> Option<u64> {
        (self.copied[0] != 0).then_some(self.copied[2])
    }
}

/// The state and the begin of a process in `/proc/PID/stat`.
#[must_use]
pub fn process_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The letter of the state of the process of a record on this host, as `ps` has it. `None` if the
/// process has ended.
#[must_use]
pub fn state_of(record: &Record) -> Option<char> {
    state_of_process(record.pid, record.begun)
}

/// As `state_of`, for the process with this number that began then.
pub(super) fn state_of_process(pid: u64, begun: u64) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (state, begun_there) = process_stat(&stat)?;
    (begun_there == begun && !matches!(state, 'Z' | 'X')).then_some(state)
}

/// Whether the process of a record on this host has not ended.
pub(super) fn is_running(record: &Record) -> bool {
    state_of(record).is_some()
}

pub(super) fn pair(words: &[u64], place: Range<usize>) -> [u64; 2] {
    [words[place.start], words[place.start + 1]]
}

/// The text in these words, of at most `bytes` bytes. It ends at the first zero byte.
pub(super) fn text(words: &[u64], bytes: u64) -> String {
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = all.iter().position(|byte| *byte == 0).unwrap_or(all.len());
    let len = len.min(usize::try_from(bytes).unwrap_or(len));
    let text = String::from_utf8_lossy(&all[..len]);
    text.chars().map(|it| if it.is_control() { '?' } else { it }).collect()
}

/// The events of a ring, oldest first.
fn events(ring: Ring, [first, second]: &[Vec<u64>; 2]) -> Vec<RecordedEvent> {
    let entries = (0..ring.entries() as u64).filter_map(|index| {
        let [number, at, bytes, body @ ..] = &second[ring.entry(index)] else { return None };
        let is_whole = *number != 0 && first[ring.entry(index)] == second[ring.entry(index)];
        is_whole.then(|| RecordedEvent { number: *number, at: *at, text: text(body, *bytes) })
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable_by_key(|event| event.number);
    entries
}

/// The group at this place, if there is one that can be.
fn read_group(index: usize, copies: &[Vec<u64>; 2]) -> Option<RecordedGroup> {
    let [first, second] = copies.each_ref().map(|words| &words[group_at(index)]);
    let (state, rank, size) = (second[group::STATE], second[group::RANK], second[group::SIZE]);
    let is_possible = state != 0 && rank < size && size <= limits::RANKS_MAX as u64;
    if first[group::STATE] != state || !is_possible {
        return None;
    }
    // Of the first copy: the second has all calls that were finished then.
    let finished = first[group::FINISHED];
    let calls = (0..limits::CALLS_REMEMBERED).filter_map(|slot| {
        let place = group::CALLS + slot * CALL_WORDS;
        let (before, entry) =
            (&first[place..place + CALL_WORDS], &second[place..place + CALL_WORDS]);
        let [stamp, words @ .., begin, end] = entry else { return None };
        // The end may have come between the copies.
        if *stamp == 0 || before[..CALL_WORDS - 1] != entry[..CALL_WORDS - 1] {
            return None;
        }
        let (seq, words) = (stamp.wrapping_sub(1), words.try_into().ok()?);
        let end = Some(*end).filter(|end| end >= begin && *end != 0);
        Some(RecordedCall { seq, words, begin: *begin, end, is_finished: seq < finished })
    });
    let mut calls: Vec<_> = calls.collect();
    calls.sort_unstable_by_key(|call| call.seq);
    let wait = group::AWAITED.start..group::WAIT_BEGUN + 1;
    let is_whole = first[wait.clone()] == second[wait];
    let message = AwaitedMessage::from_words(pair(second, group::AWAITED));
    let awaited = message.filter(|_| is_whole).map(|it| (it, second[group::WAIT_BEGUN]));
    Some(RecordedGroup {
        id: pair(second, group::ID),
        name: text(&second[group::NAME], u64::MAX),
        rank,
        size,
        failure: second[group::FAILURE],
        is_left: state.is_multiple_of(2),
        joined: second[group::JOINED],
        finished,
        calls,
        message_ended: Some(second[group::MESSAGE_ENDED]).filter(|at| *at != 0),
        awaited,
        longest_wait: second[group::WAIT_LONGEST],
        look: look_port(second),
    })
}

/// Where the rank of a group answers looks.
fn look_port(group: &[u64]) -> Option<LookPort> {
    let port = u16::try_from(group[group::LOOK_PORT]).ok().filter(|port| *port != 0)?;
    let [low, high] = pair(group, group::LOOK_ADDRESS).map(u64::to_le_bytes);
    let ip: [u8; 16] = [low, high].concat().try_into().ok()?;
    let key: Vec<u8> = group[group::LOOK_KEY].iter().flat_map(|it| it.to_le_bytes()).collect();
    let address = SocketAddr::new(IpAddr::from(ip).to_canonical(), port);
    Some(LookPort { address, key: key.try_into().ok()? })
}

/// Opens the file of a record.
///
/// # Errors
/// The file cannot be opened, or is no regular file.
pub(super) fn open_file(path: &Path) -> io::Result<fs::File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    fs::File::open(path)
}

/// The bytes of a file that may be a record: at most one more than a record has.
///
/// # Errors
/// The file cannot be read, or is no regular file.
pub(super) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(limits::RECORD_BYTES + 1);
    open_file(path)?.take(limits::RECORD_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The words of these bytes.
#[expect(clippy::host_endian_bytes, reason = "records have the byte order of their host")]
pub(super) fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// The bytes of these words.
pub(crate) fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
