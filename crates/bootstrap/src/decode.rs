//! Everything that reads bytes from strangers or peers, without the sockets: for fuzzing. None may
//! panic, nor allocate more than its input is worth.

use crate::message::{FromHub, ToHub, decode};
use crate::relay::Fetch;
use crate::rendezvous::{FromLauncher, ToLauncher};
use crate::{History, Judge, Verdict};

pub use crate::channel::{Assembler, BadFrame, Greeting};
pub use crate::discover::{addresses, expand_hosts};
pub use crate::pmi::{field, is_one_host, next_line};

/// Whether the bytes are what a rank may say to the hub.
#[must_use]
pub fn is_rank_message(bytes: &[u8]) -> bool {
    decode::<ToHub>(bytes).is_some()
}

/// Whether the bytes are what the hub may say to a rank; a verdict also has to be printable.
#[must_use]
pub fn is_hub_message(bytes: &[u8]) -> bool {
    match decode::<FromHub>(bytes) {
        Some(FromHub::Verdict(verdict)) => !verdict.to_string().is_empty(),
        other => other.is_some(),
    }
}

/// Whether the bytes are what a rank may say to the launcher.
#[must_use]
pub fn is_launcher_message(bytes: &[u8]) -> bool {
    decode::<ToLauncher>(bytes).is_some()
}

/// Whether the bytes are the launcher's answer.
#[must_use]
pub fn is_launcher_answer(bytes: &[u8]) -> bool {
    decode::<FromLauncher>(bytes).is_some()
}

/// Whether the bytes are what a rank may say to the one that hands on the roster.
#[must_use]
pub fn is_relay_message(bytes: &[u8]) -> bool {
    decode::<Fetch>(bytes).is_some()
}

/// The history that the bytes are, to be handed to a `Judge`.
#[must_use]
pub fn history(bytes: &[u8]) -> Option<History> {
    decode(bytes)
}

/// What a judge of two ranks makes of any two histories with which they leave.
#[must_use]
pub fn verdict_on_leaving(first: History, second: History) -> Option<Verdict> {
    let mut judge = Judge::new(vec![String::new(); 2]);
    judge.left(ringfold_types::Rank(0), first, 0);
    match judge.left(ringfold_types::Rank(1), second, 0) {
        Some(crate::Action::Pronounce(verdict)) => Some(verdict),
        _ => None,
    }
}

/// What a judge of two ranks makes of any two histories.
#[must_use]
pub fn verdict_on(first: History, second: History) -> Option<Verdict> {
    let mut judge = Judge::new(vec![String::new(); 2]);
    let seq = first.last().map_or(0, |c| c.seq);
    judge.complain(ringfold_types::Rank(0), crate::Complaint::Overdue { seq }, 0);
    judge.answer(ringfold_types::Rank(0), first, 0);
    match judge.answer(ringfold_types::Rank(1), second, 0) {
        Some(crate::Action::Pronounce(verdict)) => Some(verdict),
        _ => None,
    }
}
