//! The clocks of a traced group: all ranks give their events the time of one of them.
//!
//! Ranks with the same clock need no comparison. Of the ranks with another clock than rank 0, the
//! first one asks rank 0 for the time, several times and by the transport between them. A question
//! cannot arrive before it was sent, and neither can an answer. The closest bounds say how far the
//! clocks are apart: the error is half of the difference between the fastest ways there and back.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime};

use ringfold_transport::Link;
use ringfold_transport::layer::Watched;
use ringfold_types::limits::RANKS_MAX;
use ringfold_types::{Digest, Lane, Rank, mix};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::error::InitError;
use super::members::Members;
use crate::backoff::park;
use crate::router::{Router, Via, WAKE_FDS_MAX};
use crate::trace::{self, Owner, Traced, Traffic};

/// Round trips between two ranks with different clocks after the last one that brought the bounds
/// closer by a tenth. By fewer, one way may never meet a peer that is awake.
const ROUNDS: usize = 128;

/// The most round trips between two ranks.
const ROUNDS_MAX: usize = 1024;

/// The tag of the messages.
const TAG: u32 = 1;

/// Attempts before a rank parks. One that has waited in a park goes before those that compute.
const ATTEMPTS: u32 = 16;

/// The longest park of a rank.
const PARK: Duration = Duration::from_millis(100);

/// The question for the time, and the last one.
const QUESTION: [u8; 1] = [0];
const LAST_QUESTION: [u8; 1] = [1];

/// The longest encoding of a statement, in bytes.
const STATEMENT_BYTES: usize = 32;

/// The statement of a rank about its clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Statement {
    /// The number of its clock: ranks with the same one read the same time.
    clock: u64,
    /// The nanoseconds from that clock to the common one, if a group before has compared them.
    offset: Option<i64>,
    /// A number that is likely no other group's.
    number: u64,
    /// Whether its process has begun the file of the trace anew.
    has_emptied: bool,
}

/// Aligns the clocks of the members, begins the trace of this process, and has the router trace its
/// messages. All members call it. Blocks until they have done so.
///
/// # Errors
/// A member does not answer in time.
pub(super) fn trace_group(
    members: &Members<'_>,
    router: &mut Router,
    name: &str,
    is_newcomer: bool,
) -> Result<(), InitError> {
    let (own, size) = (members.rank(), members.infos.len());
    let (offset, number) = (trace::clock_offset(), any_number());
    let has_emptied = trace::has_emptied();
    let statement = Statement { clock: clock(own), offset, number, has_emptied };
    let bytes = postcard::to_stdvec(&statement).unwrap_or_default();
    let all = members.exchange(&bytes, STATEMENT_BYTES)?;
    let decode = |(rank, bytes): (usize, &Vec<u8>)| {
        postcard::from_bytes::<Statement>(bytes)
            .map_err(|_| failed(Rank::at(rank), "it is garbled"))
    };
    let all: Vec<Statement> = all.iter().enumerate().map(decode).collect::<Result<_, _>>()?;
    let mut offsets = BTreeMap::new();
    for (clock, offset) in all.iter().filter_map(|it| Some((it.clock, it.offset?))) {
        offsets.entry(clock).or_insert(offset);
    }
    let of_first = *offsets.entry(all[0].clock).or_insert(0);
    let mut leaders = BTreeMap::new();
    for (rank, it) in all.iter().enumerate().filter(|(_, it)| !offsets.contains_key(&it.clock)) {
        leaders.entry(it.clock).or_insert_with(|| Rank::at(rank));
    }
    if !leaders.is_empty() {
        let mut in_order: Vec<Rank> = leaders.values().copied().collect();
        in_order.sort_unstable();
        let mut own_offset = Vec::new();
        if own == Rank(0) {
            in_order.iter().try_for_each(|leader| tell(members, router, *leader, of_first))?;
        } else if in_order.contains(&own) {
            own_offset = ask(members, router)?.to_le_bytes().to_vec();
        }
        let found = members.exchange(&own_offset, size_of::<i64>())?;
        for (clock, leader) in leaders {
            let bytes = found[leader.index()].as_slice().try_into();
            let bytes = bytes.map_err(|_| failed(leader, "it has no offset"))?;
            offsets.insert(clock, i64::from_le_bytes(bytes));
        }
    }
    let clock_offset = offsets.get(&statement.clock).copied().unwrap_or_default();
    let (host, process) = (&members.own().host, std::process::id());
    let title = format!("rank {own} of {size} ({host}, PID {process})");
    let has_place = !is_newcomer && all.iter().any(|it| it.has_emptied);
    let pid = pid_in_trace(own, has_place);
    trace::begin(Owner { pid, title, clock_offset });
    if trace::is_on() {
        let group = members.control.group_id();
        let traffic = Traffic { group, name: name.to_owned(), number: all[0].number, own };
        let traced = || Traced::new(traffic.clone());
        router.replace_each(|via| match via {
            Via::Memory(inner) => Via::Memory(Box::new(Watched::new(inner, traced()))),
            Via::Messages(inner) => Via::Messages(Box::new(Watched::new(inner, traced()))),
        });
    }
    Ok(())
}

/// The number of this process in a trace. Viewers hide process 0. A process in place of a dead rank
/// may have the rank of one that lives, and a job that others trace to the same file has their
/// ranks too. These have no place of their own.
fn pid_in_trace(rank: Rank, has_place: bool) -> u64 {
    if has_place { u64::from(rank.0) + 1 } else { RANKS_MAX as u64 + u64::from(std::process::id()) }
}

/// The number of this rank's clock: of the running system and its time namespace, which may shift
/// the clock.
fn clock(own: Rank) -> u64 {
    let system = fs::read("/proc/sys/kernel/random/boot_id");
    let namespace = fs::read_link("/proc/self/ns/time");
    match (system, namespace) {
        (Ok(system), Ok(namespace)) => {
            let namespace = namespace.as_os_str().as_encoded_bytes();
            Digest::default().bytes(&system).bytes(namespace).finish()
        }
        // It is compared with rank 0's.
        _ => any_number() ^ u64::from(own.0),
    }
}

fn any_number() -> u64 {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    mix(since_1970.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32))
}

/// The nanoseconds of this rank's clock.
fn now() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Answers the questions of another rank for the time, which is `offset` from that of this rank.
fn tell(
    members: &Members<'_>,
    router: &mut Router,
    peer: Rank,
    offset: i64,
) -> Result<(), InitError> {
    loop {
        let question = receive(members, router, peer)?;
        let arrived = now() + offset;
        let mut answer = [0; 16];
        answer[..8].copy_from_slice(&arrived.to_le_bytes());
        answer[8..].copy_from_slice(&(now() + offset).to_le_bytes());
        send(members, router, peer, &answer)?;
        if question == LAST_QUESTION {
            return Ok(());
        }
    }
}

/// Asks rank 0 for the time. Returns the nanoseconds from this rank's clock to it.
fn ask(members: &Members<'_>, router: &mut Router) -> Result<i64, InitError> {
    let mut bounds = Bounds::default();
    let (mut best, mut since) = (i64::MAX, 0);
    for round in 1..=ROUNDS_MAX {
        let is_last = round - since > ROUNDS || round == ROUNDS_MAX;
        let sent = now();
        let question = if is_last { LAST_QUESTION } else { QUESTION };
        send(members, router, Rank(0), &question)?;
        let answer = receive::<16>(members, router, Rank(0))?;
        let came = now();
        let [arrived, answered] = [&answer[..8], &answer[8..]]
            .map(|it| i64::from_le_bytes(it.try_into().unwrap_or_default()));
        bounds.add([sent, arrived, answered, came]);
        if is_last {
            break;
        }
        if bounds.width() < best - best / 10 {
            (best, since) = (bounds.width(), round);
        }
    }
    Ok(bounds.middle())
}

/// The bounds of the nanoseconds from this rank's clock to another one.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    least: i64,
    most: i64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { least: i64::MIN, most: i64::MAX }
    }
}

impl Bounds {
    /// Narrows the bounds by a round trip: the times when the question was sent and the answer came
    /// by this clock, and those in between by the other one.
    fn add(&mut self, [sent, arrived, answered, came]: [i64; 4]) {
        self.most = self.most.min(arrived.wrapping_sub(sent));
        self.least = self.least.max(answered.wrapping_sub(came));
    }

    const fn width(self) -> i64 {
        self.most.saturating_sub(self.least)
    }

    const fn middle(self) -> i64 {
        self.least.wrapping_add(self.width() / 2)
    }
}

fn link(peer: Rank) -> Link {
    Link { peer, lane: Lane(0) }
}

fn send(
    members: &Members<'_>,
    router: &mut Router,
    peer: Rank,
    bytes: &[u8],
) -> Result<(), InitError> {
    let mut sent = 0;
    attempt(members, router, peer, |router| {
        let more = router.to(link(peer)).send(link(peer), TAG, &bytes[sent..]);
        sent += more.map_err(|error| failed(peer, error))?;
        Ok((sent == bytes.len()).then_some(()))
    })
}

fn receive<const BYTES: usize>(
    members: &Members<'_>,
    router: &mut Router,
    peer: Rank,
) -> Result<[u8; BYTES], InitError> {
    attempt(members, router, peer, |router| {
        let front = router.readable(link(peer)).map_err(|error| failed(peer, error))?;
        let Some(front) = front else { return Ok(None) };
        let bytes = front.bytes.first_chunk().copied();
        if bytes.is_some() {
            router.to(link(peer)).consume(link(peer), BYTES);
        }
        Ok(bytes)
    })
}

/// Tries until there is a result, the group has failed, or the time is up.
fn attempt<T>(
    members: &Members<'_>,
    router: &mut Router,
    peer: Rank,
    mut once: impl FnMut(&mut Router) -> Result<Option<T>, InitError>,
) -> Result<T, InitError> {
    for attempts in 0_u32.. {
        if let Some(done) = once(router)? {
            return Ok(done);
        }
        router.poll().map_err(|error| failed(peer, error))?;
        if let Some(cause) = members.control.failure_cause() {
            return Err(InitError::Failed { rank: members.rank(), cause });
        }
        if Instant::now() >= members.deadline {
            break;
        }
        if attempts >= ATTEMPTS {
            router.arm();
            let done =
                router.poll().map_err(|error| failed(peer, error)).and_then(|_| once(router));
            if let Ok(None) = &done {
                park_on(router, members.control.wake_fd());
            }
            router.disarm();
            if let Some(done) = done? {
                return Ok(done);
            }
        }
    }
    Err(failed(peer, "it does not answer in time"))
}

/// Parks until a transport or the control plane wakes this rank.
fn park_on(router: &Router, control: BorrowedFd<'_>) {
    let fds: [Option<BorrowedFd<'_>>; WAKE_FDS_MAX + 1] = {
        let mut fds = router.wake_fds().chain([control]);
        std::array::from_fn(|_| fds.next())
    };
    park(&fds, PARK);
}

fn failed(peer: Rank, why: impl ToString) -> InitError {
    InitError::Clock { peer, reason: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_ways_bound_the_offset() {
        let mut bounds = Bounds::default();
        // The other clock is 1,000 ahead. The fastest ways take 30 each, in different rounds.
        bounds.add([100, 1130, 1140, 540]);
        assert_eq!((bounds.least, bounds.most), (600, 1030));
        bounds.add([600, 2600, 2610, 1640]);
        assert_eq!((bounds.least, bounds.most, bounds.middle()), (970, 1030, 1000));
        bounds.add([9000, 99_000, 99_001, 99_999]);
        assert_eq!(bounds.middle(), 1000);
    }
}
