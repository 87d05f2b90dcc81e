//! The messages between ranks and the coordinator.

use std::net::IpAddr;

use ringfold_types::{Rank, limits};
use serde::{Deserialize, Serialize};

use super::local_process::LocalProcess;
use crate::arbiter::FailureReport;
use crate::arbiter::call_log::History;
use crate::arbiter::failure_cause::{FailureCause, Listed, ranks};
use crate::regroup::witness::Mark;

/// A message from a rank to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToCoordinator {
    /// The first message of a rank.
    Join(JoinRequest),
    Report(FailureReport),
    /// The answer to `FromCoordinator::Ask`.
    Answer(History),
    /// This rank's contribution to an exchange, and the exchange's number, counted from 1.
    Contribute(u64, Vec<u8>),
    /// The first message of a rank that reconnects.
    Return(Return),
    /// The answer to `FromCoordinator::Hold`.
    Holds,
    /// The coordinator was silent for too long, so this rank has returned this cause.
    Stated(FailureCause),
    /// The last message of a rank.
    Goodbye(History),
    /// The rank that `FromCoordinator::Fetch` named did not forward the message of this number.
    NotFetched(u64),
    /// Asks all ranks, or one, a question.
    Inquire(Option<u32>, Vec<u8>),
    /// The answer to `FromCoordinator::Question` of this number.
    Reply(u64, Vec<u8>),
    /// The rank wants to know when this rank has left.
    Watch(u32),
    /// A group of ranks cannot be made.
    GroupFailed(GroupFailure),
}

/// The reason why some ranks cannot make a group among themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupFailure {
    /// The random number of the group.
    pub(crate) group: u128,
    /// The rank in the group that cannot join.
    pub(crate) rank: u32,
    pub(crate) reason: String,
}

/// A rank's request to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    pub(crate) rank: u32,
    pub(crate) host: String,
    /// The peer information, or the reason why the rank cannot join.
    pub(crate) peer_info: Result<Vec<u8>, String>,
    /// The port where it forwards messages, if it may have to.
    pub(crate) relay: Option<u16>,
    /// The port where it regroups with others; 0 if it has none.
    pub(crate) meeting: u16,
    /// A random number of this process for this job. It tells a rank that joins again after its
    /// connection broke from another process of the same rank.
    pub(crate) process: ProcessId,
    /// The same process, for others of its host.
    pub(crate) local: LocalProcess,
    /// The mark of its witness.
    pub(crate) witness: Option<Mark>,
}

/// A random number of one process.
pub(crate) type ProcessId = [u8; 16];

/// A random number that only one rank and the coordinator know.
pub(crate) type Token = [u8; 16];

/// The port where a rank reconnects, the token that proves its identity, and the process of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReturnTicket {
    pub(crate) port: u16,
    pub(crate) token: Token,
    pub(crate) local: LocalProcess,
}

/// The first message of a rank that reconnects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Return {
    pub(crate) rank: u32,
    pub(crate) token: Token,
}

/// A message from the coordinator to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromCoordinator {
    /// All ranks have joined. This is their peer information, by rank.
    Roster(Roster),
    /// The job failed to start, or the coordinator refuses this rank.
    Refused(Refusal),
    /// Asks for the rank's history of calls.
    Ask,
    /// Asks the rank to hold on: a failure cause exists, and follows soon.
    Hold,
    FailureCause(FailureCause),
    /// The contributions of all ranks to the exchange of this number, by rank.
    Contributions(u64, Vec<Vec<u8>>),
    /// The answer to `ToCoordinator::Goodbye`.
    Farewell,
    /// Rank 0 leaves in peace, and no coordinator watches any more.
    Closing,
    /// The answer to `ToCoordinator::Join`: the rank is accepted, and waits for the others.
    Accepted(Option<ReturnTicket>),
    /// The rank named here has the message of this number: 0 for the roster, when all ranks have
    /// joined, and n for the result of exchange n.
    Fetch(u64, Source),
    /// A question of a rank, and the number of its inquiry.
    Question(u64, Vec<u8>),
    /// A question, and the answers of all ranks in rank order, or of the one that was asked.
    Answers(Vec<u8>, Vec<Vec<u8>>),
    /// The answer to `ToCoordinator::Watch`: this rank has left in peace.
    Left(u32),
    /// A group of ranks cannot be made.
    GroupFailed(GroupFailure),
}

/// The entries of all ranks, by rank: the place where a rank regroups, and its peer information.
/// They travel packed, since ranks of one host have most of theirs in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "PackedRoster", try_from = "PackedRoster")]
pub(crate) struct Roster(pub(crate) Vec<Vec<u8>>);

/// A roster as a block of LZ4.
#[derive(Serialize, Deserialize)]
struct PackedRoster {
    /// The bytes of each entry, at most `limits::ROSTER_ENTRY_BYTES_MAX`.
    lens: Vec<u16>,
    /// All entries, one behind the other.
    block: Vec<u8>,
}

impl From<Roster> for PackedRoster {
    fn from(Roster(entries): Roster) -> Self {
        let len = |entry: &Vec<u8>| u16::try_from(entry.len()).unwrap_or(u16::MAX);
        let lens = entries.iter().map(len).collect();
        Self { lens, block: lz4_flex::block::compress(&entries.concat()) }
    }
}

impl TryFrom<PackedRoster> for Roster {
    type Error = &'static str;

    fn try_from(PackedRoster { lens, block }: PackedRoster) -> Result<Self, Self::Error> {
        let lens = || lens.iter().copied().map(usize::from);
        let (count, bytes) = (lens().count(), lens().sum());
        // A byte of a block stands for at most 255.
        let is_full = count <= limits::RANKS_MAX && bytes <= 255 * block.len();
        if !is_full || lens().any(|len| len > limits::ROSTER_ENTRY_BYTES_MAX) {
            return Err("the roster is too long");
        }
        let plain = lz4_flex::block::decompress(&block, bytes);
        let mut rest = &plain.map_err(|_| "the roster is garbled")?[..];
        let entry = |len| rest.split_off(..len).map(<[u8]>::to_vec);
        lens().map(entry).collect::<Option<_>>().map(Self).ok_or("the roster is short")
    }
}

/// The rank from which a child fetches a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) rank: u32,
    /// `None` if that rank is on rank 0's host. The child then uses the address at which it reached
    /// rank 0.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Why the coordinator refuses a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// Another process has already joined as this rank.
    Duplicate,
    /// The rank is not below the size, or its peer information is too long.
    Invalid,
    /// These ranks had not joined in time. Rejected connections may explain it.
    Missing {
        #[serde(with = "ranks")]
        ranks: Listed<Rank>,
        turned_away: String,
    },
    /// This rank joined and went away before all had joined.
    Lost { rank: u32 },
    /// This rank cannot join, for this reason.
    Failed { rank: u32, reason: String },
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::channel::frames::{decode, encode};

    /// As long as the entry of a real rank. Eight ranks of each host share most bytes.
    pub(crate) fn entry(rank: u32) -> Vec<u8> {
        let host = rank / 8;
        let id = format!("4f0c{host:08x}-77aa-4c1e-9d0{}-55e1/4026531840/4026531841", host % 10);
        let settings = "allreduce:ring; 64K; shm,rdma,tcp; /etc/ringfold/topology; ".repeat(2);
        let same = format!("{id}node{host:05}{settings}ib0");
        // An address of the host, and ports of the rank.
        let ports = rank.wrapping_mul(0x9E37_79B9).to_le_bytes();
        [same.as_bytes(), &ports, &[host.to_le_bytes()[0]; 16]].concat()
    }

    fn roster(ranks: u32) -> Roster {
        Roster((0..ranks).map(entry).collect())
    }

    #[test]
    fn an_entry_of_a_packed_roster_takes_few_bytes() {
        for ranks in [0, 1, 2, 8, 1024] {
            let plain = roster(ranks);
            let message = encode(&FromCoordinator::Roster(plain.clone()));
            assert_eq!(decode(&message), Some(FromCoordinator::Roster(plain)));
            if ranks > 100 {
                assert!(message.len() <= 60 * ranks as usize, "{} bytes", message.len());
            }
        }
    }

    #[test]
    fn a_garbled_roster_is_refused_before_it_takes_memory() {
        let decoded = |lens: Vec<u16>, block: &[u8]| {
            let packed = PackedRoster { lens, block: block.to_vec() };
            decode::<Roster>(&encode(&packed))
        };
        let block = lz4_flex::block::compress(&[7; 600]);
        assert!(decoded(vec![300, 300], &block).is_some());
        assert!(decoded(vec![300, 299], &block).is_none());
        assert!(decoded(vec![300, 301], &block).is_none());
        let empty = lz4_flex::block::compress(&[]);
        assert!(decoded(vec![0; 9], &empty).is_some());
        // Without their limits these would fail otherwise, once they have memory, or not at all.
        for (lens, block) in [
            (vec![641], &block),
            (vec![576; 1000], &block),
            (vec![0; limits::RANKS_MAX + 1], &empty),
        ] {
            let refused = Roster::try_from(PackedRoster { lens, block: block.clone() });
            assert_eq!(refused, Err("the roster is too long"));
        }
        for len in 0..block.len() {
            assert!(decoded(vec![300, 300], &block[..len]).is_none(), "{len} bytes");
        }
    }
}
