//! The decoders of all bytes from unauthenticated or authenticated peers, without the sockets, for
//! fuzzing. None may panic, or allocate much more than its input's size.

use crate::channel::frames::decode;
use crate::control::message::{FromCoordinator, ToCoordinator};
use crate::control::relay::Fetch;
use crate::look::{Places, Question, Records};
use crate::record::counters::counters_of;
use crate::record::format::{MAGIC, RECORD_WORDS, VERSION, at};
use crate::record::read::{Record, read_record, to_bytes};
use crate::rendezvous::{FromLauncher, ToLauncher};
use crate::{Arbiter, FailureCause, History};

pub use crate::channel::frames::{Assembler, BadFrame};
pub use crate::channel::greeting::Greeting;
pub use crate::discover::launchers::addresses;
pub use crate::discover::pmi::{field, is_one_host, next_line};

/// Whether the bytes are a message from a rank to the coordinator.
#[must_use]
pub fn is_rank_message(bytes: &[u8]) -> bool {
    decode::<ToCoordinator>(bytes).is_some()
}

/// Whether the bytes are a message from the coordinator to a rank. A failure cause must also be
/// printable.
#[must_use]
pub fn is_coordinator_message(bytes: &[u8]) -> bool {
    match decode::<FromCoordinator>(bytes) {
        Some(FromCoordinator::FailureCause(cause)) => !cause.to_string().is_empty(),
        other => other.is_some(),
    }
}

/// Whether the bytes are a message from a rank to the launcher.
#[must_use]
pub fn is_launcher_message(bytes: &[u8]) -> bool {
    decode::<ToLauncher>(bytes).is_some()
}

/// Whether the bytes are the launcher's answer.
#[must_use]
pub fn is_launcher_answer(bytes: &[u8]) -> bool {
    decode::<FromLauncher>(bytes).is_some()
}

/// Whether the bytes are a request for a message to the rank that forwards it.
#[must_use]
pub fn is_relay_message(bytes: &[u8]) -> bool {
    decode::<Fetch>(bytes).is_some()
}

/// Whether the bytes are a question or an answer of `ringfold top` at a rank of another host. The
/// records in an answer must also be printable.
#[must_use]
pub fn is_look(bytes: &[u8]) -> bool {
    let records = decode::<Records>(bytes).map(Records::unpack);
    let is_answer = records.is_some_and(|look| {
        look.processes.iter().for_each(|(record, _)| print(record));
        true
    });
    is_answer || decode::<Question>(bytes).is_some() || decode::<Places>(bytes).is_some()
}

/// Reads two copies of a record with these words at these places of each, and zeros elsewhere.
/// Returns whether they are a record, which must also be printable.
#[must_use]
pub fn is_record(copies: [&[(u16, u64)]; 2]) -> bool {
    let mut words = vec![0; RECORD_WORDS];
    (words[at::MAGIC], words[at::VERSION]) = (MAGIC, VERSION);
    let copies = copies.map(|changes| {
        for (place, word) in changes {
            words[usize::from(*place) % RECORD_WORDS] = *word;
        }
        words.clone()
    });
    drop(counters_of(&copies));
    let [first, second] = copies.map(|words| to_bytes(&words));
    let record = read_record(&first, &second);
    record.iter().for_each(print);
    record.is_ok()
}

/// Works out all that is shown of a record.
fn print(record: &Record) {
    let now = [record.last_stamp(), u64::MAX];
    let events = record.failures.iter().chain(&record.links);
    for (stamp, text) in events.map(|it| (it.at, &it.text)) {
        assert!(record.time_of(stamp, now) >= record.started_at() && !text.contains('\n'));
    }
    for call in record.groups.iter().flat_map(|group| &group.calls) {
        assert!(!crate::Logged::from(call).text().is_empty());
        assert!(record.time_of(call.begin, now) >= record.started_at());
    }
}

/// Decodes a history for an `Arbiter`.
#[must_use]
pub fn history(bytes: &[u8]) -> Option<History> {
    decode(bytes)
}

/// The failure cause of an arbiter of two ranks that leave with these histories.
#[must_use]
pub fn cause_on_leaving(first: History, second: History) -> Option<FailureCause> {
    let mut arbiter = Arbiter::new(vec![String::new(); 2]);
    arbiter.left(ringfold_types::Rank(0), first, 0);
    match arbiter.left(ringfold_types::Rank(1), second, 0) {
        Some(crate::Action::Announce(cause)) => Some(cause),
        _ => None,
    }
}

/// The failure cause of an arbiter on an overdue call of two ranks with these histories.
#[must_use]
pub fn cause_on(first: History, second: History) -> Option<FailureCause> {
    let mut arbiter = Arbiter::new(vec![String::new(); 2]);
    let seq = first.last().map_or(0, |c| c.seq);
    arbiter.report_failure(ringfold_types::Rank(0), crate::FailureReport::Overdue { seq }, 0);
    arbiter.answer(ringfold_types::Rank(0), first, 0);
    match arbiter.answer(ringfold_types::Rank(1), second, 0) {
        Some(crate::Action::Announce(cause)) => Some(cause),
        _ => None,
    }
}
