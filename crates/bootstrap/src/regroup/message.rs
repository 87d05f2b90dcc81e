//! The messages between ranks that regroup, and the places where they meet.

use std::net::{IpAddr, SocketAddr};

use ringfold_types::limits;
use serde::{Deserialize, Serialize};

use super::election::{Purpose, Quorum, Stage};
use super::witness::Mark;
use crate::control::local_process::LocalProcess;
use crate::runs;

/// The place where a rank answers other ranks, and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// `None` if the rank reached rank 0 by a loopback address, or is rank 0. Others then use the
    /// address at which they reach rank 0.
    pub(crate) ip: Option<IpAddr>,
    /// 0 if the rank has no port.
    pub(crate) port: u16,
    pub(crate) process: LocalProcess,
    /// The mark of the rank's witness.
    pub(crate) witness: Option<Mark>,
}

/// The information of one rank that every rank gets: the place where it regroups, and its peer
/// information.
pub(crate) type Entry = (Place, Vec<u8>);

/// Encodes what every rank gets of one rank, in at most `limits::ROSTER_ENTRY_BYTES_MAX` bytes.
pub(crate) fn encode_entry(place: &Place, info: &[u8]) -> Vec<u8> {
    let head = postcard::to_allocvec(place).unwrap_or_default();
    [&head[..], info].concat()
}

/// Decodes the entry of one rank.
pub(crate) fn decode_entry(bytes: &[u8]) -> Option<Entry> {
    let (place, info) = postcard::take_from_bytes(bytes).ok()?;
    Some((place, info.to_vec()))
}

const _: () = {
    // Two tags, an IPv6 address, a port, a process number, a digest, a tag, and a mark.
    const PLACE_BYTES_MAX: usize = 2 + 16 + 3 + 5 + 16 + 1 + 16;
    assert!(limits::PEER_INFO_BYTES_MAX + PLACE_BYTES_MAX <= limits::ROSTER_ENTRY_BYTES_MAX);
};

/// The first message of a rank that asks another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    /// The election of which it speaks: 0 for that of the next group, n for the n-th agreement.
    pub(crate) election: u64,
}

/// A later message of a rank that asks another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromVisitor {
    /// The reason why it asks. It repeats this as long as it lives.
    Ask(Purpose),
    /// It is a member of the new group.
    Joined,
}

/// A message of a rank that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToVisitor {
    /// Its progress. It repeats this as long as it lives.
    Stage(Stage),
    Invited(Invitation),
    /// The leader gives up the group to which it has invited.
    GivenUp,
    NoQuorum(Quorum),
    /// The visitor wants to leave out other ranks than the leader does.
    Differs,
}

/// The new group, for its members alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    /// The members, in their old order.
    #[serde(with = "runs")]
    pub(crate) members: Vec<u32>,
    /// Where the first member listens for the others.
    pub(crate) address: Option<SocketAddr>,
    /// A random number, from which the key of the group derives. Only members know it.
    pub(crate) nonce: u128,
}

impl Invitation {
    /// Whether it names `rank` among members of a group of `size`.
    pub(crate) fn is_for(&self, rank: u32, size: usize) -> bool {
        let is_ascending = self.members.is_sorted_by(|one, next| one < next);
        let is_below = self.members.last().is_some_and(|last| (*last as usize) < size);
        is_ascending && is_below && self.members.binary_search(&rank).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_without_this_rank_is_none() {
        let is_for = |members: &[u32]| {
            let members = members.to_vec();
            Invitation { members, address: None, nonce: 0 }.is_for(2, 4)
        };
        assert!(is_for(&[2]) && is_for(&[0, 2, 3]));
        for wrong in [&[][..], &[0, 1], &[2, 0], &[0, 0, 2], &[0, 2, 4]] {
            assert!(!is_for(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn the_longest_entry_fits() {
        let process = LocalProcess::own();
        let (ip, witness) = (Some([u16::MAX; 8].into()), Some([7; 16]));
        let place = Place { ip, port: u16::MAX, process, witness };
        let info = vec![7; limits::PEER_INFO_BYTES_MAX];
        let bytes = encode_entry(&place, &info);
        assert!(bytes.len() <= limits::ROSTER_ENTRY_BYTES_MAX);
        assert_eq!(decode_entry(&bytes), Some((place, info)));
        assert_eq!(decode_entry(&bytes[..9]), None);
    }
}
