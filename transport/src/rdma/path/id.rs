//! The identity of work in completions: the peer, the path and its life.

use ringfold_types::Rank;

/// The path and life that a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Id {
    pub(in crate::rdma) peer: Rank,
    pub(in crate::rdma) path: usize,
    /// The number of earlier lives of the path, modulo 128.
    pub(in crate::rdma) life: u8,
}

/// The work that a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Work {
    /// The send with that number.
    Send(u32),
    /// A receive, with the number of its buffer slot where receives have buffers.
    Receive(u32),
}

const RECEIVE: u64 = 1 << 63;

impl Id {
    /// The identity of the send with number `posted`, or of receives without it. The number of a
    /// receive's buffer slot may be added.
    pub(super) fn encode(self, posted: Option<u32>) -> u64 {
        let path = u64::from(self.life) << 56 | (self.path as u64 & 0xff) << 32;
        let who = path | u64::from(self.peer.0 & 0xffff) << 40;
        who | posted.map_or(RECEIVE, u64::from)
    }

    /// Returns the path and life of an identity, and the work.
    #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
    pub(in crate::rdma) const fn decode(id: u64) -> (Self, Work) {
        let (peer, path) = (Rank((id >> 40 & 0xffff) as u32), (id >> 32 & 0xff) as usize);
        let life = (id >> 56 & 0x7f) as u8;
        let work = if id & RECEIVE == 0 { Work::Send(id as u32) } else { Work::Receive(id as u32) };
        (Self { peer, path, life }, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_name_their_work() {
        let id = Id { peer: Rank(16_383), path: 31, life: 127 };
        assert_eq!(Id::decode(id.encode(Some(u32::MAX))), (id, Work::Send(u32::MAX)));
        assert_eq!(Id::decode(id.encode(None)), (id, Work::Receive(0)));
        assert_eq!(Id::decode(id.encode(None) | 607), (id, Work::Receive(607)));
    }
}
