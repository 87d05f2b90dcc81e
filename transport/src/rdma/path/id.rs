//! Whose work a completion is about.

use ringfold_types::Rank;

/// Whose work a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Id {
    pub(in crate::rdma) peer: Rank,
    pub(in crate::rdma) path: usize,
    /// How often the path was made before, modulo 128.
    pub(in crate::rdma) life: u8,
}

/// Which of them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Work {
    /// A send, posted after so many others.
    Send(u32),
    /// A receive, into that place where there are places.
    Receive(u32),
}

const RECEIVE: u64 = 1 << 63;

impl Id {
    /// For a send that was posted after `posted` others, or for receives, to which the number of
    /// their place may be added.
    pub(super) fn encode(self, posted: Option<u32>) -> u64 {
        let path = u64::from(self.life) << 56 | (self.path as u64 & 0xff) << 32;
        let who = path | u64::from(self.peer.0 & 0xffff) << 40;
        who | posted.map_or(RECEIVE, u64::from)
    }

    /// Whose it is, and which.
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
