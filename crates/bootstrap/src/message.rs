//! What ranks and the hub say to each other.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call_log::History;
use crate::judge::Complaint;
use crate::verdict::Verdict;

/// What a rank says to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToHub {
    /// The first message.
    Join(Joining),
    Complain(Complaint),
    /// The answer to `FromHub::Ask`.
    Answer(History),
    /// This rank's part of an exchange, of which the first is number 1.
    Offer(u64, Vec<u8>),
    /// The first message of a rank whose connection broke.
    Return(Return),
    /// The answer to `FromHub::Hold`.
    Holds,
    /// The hub was silent for too long: this rank has returned this cause.
    Stated(Verdict),
    /// The last message.
    Goodbye(History),
    /// The rank that `FromHub::Fetch` named did not hand on the roster.
    NoRoster,
}

/// What a rank says of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Joining {
    pub(crate) rank: u32,
    pub(crate) host: String,
    pub(crate) card: Vec<u8>,
    /// The port where it hands on the roster, if it may have to.
    pub(crate) relay: Option<u16>,
    /// Made at random by this process for this job: it tells a rank that joins once more, because
    /// its connection broke, from another process of the same rank.
    pub(crate) process: ProcessId,
}

/// A random number.
pub(crate) type ProcessId = [u8; 16];

/// Known to one rank and the coordinator.
pub(crate) type Ticket = [u8; 16];

/// Where a rank comes back, as the coordinator tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    pub(crate) port: u16,
    pub(crate) ticket: Ticket,
}

/// The first message of a rank that comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Return {
    pub(crate) rank: u32,
    pub(crate) ticket: Ticket,
}

/// What the hub says to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromHub {
    /// Everyone is here; their cards by rank.
    Roster(Vec<Vec<u8>>),
    /// The job does not come about, or not with you.
    Refused(Refusal),
    /// Say where you are.
    Ask,
    /// There is a verdict, which follows: go on waiting for it.
    Hold,
    Verdict(Verdict),
    /// Everyone's part of the exchange of this number, by rank.
    Offers(u64, Vec<Vec<u8>>),
    /// The answer to `ToHub::Goodbye`.
    Farewell,
    /// Rank 0 leaves, in peace; nobody watches any more.
    Closing,
    /// The answer to `ToHub::Join`: the rank has its place, and waits for the others.
    Seated(Option<Invitation>),
    /// Everyone is here; this rank has the roster.
    Fetch(Parent),
}

/// Where a rank finds the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parent {
    pub(crate) rank: u32,
    /// `None` if that rank is on rank 0's host: then at the address at which the child reached rank
    /// 0.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Why a rank is not in the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// Another process already is that rank.
    Duplicate,
    /// The rank is not below the size, or its card is too long.
    Invalid,
    /// These had not joined in time. Connections that the coordinator turned away may explain it.
    Missing { ranks: Vec<u32>, turned_away: String },
    /// One joined and went away before all were there.
    Lost { rank: u32 },
}

/// The message as bytes for the wire.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "a Vec grows, and our messages have known shapes")]
    postcard::to_stdvec(message).expect("control messages are encodable")
}

/// The message that `bytes` are, if they are one to the last byte.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
