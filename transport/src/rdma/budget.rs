//! The queue pairs and registered bytes that a rank's links may have together.
//!
//! A peer gets its share when the two first exchange messages. If too little is left, the peer gets
//! fewer queue pairs on each pair of rails, then fewer rails, then none, and its data goes by TCP.
//!
//! Registered bytes count once for each rail, as they do for `ulimit -l`.

use ringfold_types::Rank;
use ringfold_types::limits::RDMA_RING_BYTES;

use super::ring::rtr::MAILBOX_BYTES;
use super::settings::Settings;

/// Lanes, both ways, for which a peer's share of bytes suffices: no schedule uses more.
pub(super) const LANES: usize = 2;

/// Returns the bytes of a peer's share on each rail, for an endpoint with so many lanes.
#[must_use]
pub const fn peer_bytes(lanes: usize) -> usize {
    let lanes = if lanes < LANES { lanes } else { LANES };
    2 * lanes * RDMA_RING_BYTES + MAILBOX_BYTES
}

/// The queue pairs and bytes that are left.
#[derive(Debug)]
pub(super) struct Budget {
    queue_pairs: Account,
    bytes: Account,
    /// Bytes of a peer's share on each rail.
    peer_bytes: usize,
    /// Peers that got less than they could use.
    pub(super) curbed: usize,
    /// Peers that got nothing.
    pub(super) refused: usize,
}

#[derive(Debug)]
struct Account {
    most: usize,
    left: usize,
}

/// A peer's share: a number of our rails, and of queue pairs on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) rails: usize,
    pub(super) each: u8,
}

impl Budget {
    pub(super) fn new(settings: &Settings, lanes: usize) -> Self {
        let &Settings { queue_pairs_max, bytes_max, .. } = settings;
        Self {
            queue_pairs: Account { most: queue_pairs_max, left: queue_pairs_max },
            bytes: Account { most: bytes_max, left: bytes_max },
            peer_bytes: peer_bytes(lanes),
            curbed: 0,
            refused: 0,
        }
    }

    /// Takes the share of one more peer, which could use `rails` rails with `each` queue pairs.
    /// Returns the reason if there is none.
    pub(super) fn share(&mut self, peer: Rank, rails: usize, each: u8) -> Result<Share, String> {
        let by_bytes = self.bytes.left / self.peer_bytes;
        let share = rails.min(by_bytes).min(self.queue_pairs.left);
        if share == 0 && rails > 0 {
            self.refused += 1;
            return Err(if by_bytes == 0 { self.no_bytes() } else { self.no_queue_pairs() });
        }
        let most = self.queue_pairs.left.checked_div(share).unwrap_or(0);
        let most = u8::try_from(most).unwrap_or(u8::MAX);
        let share = Share { rails: share, each: each.min(most) };
        if (share.rails, share.each) < (rails, each) {
            self.curbed += 1;
            let is_by_bytes = share.rails < rails && share.rails == by_bytes;
            let why = if is_by_bytes { self.no_bytes() } else { self.no_queue_pairs() };
            let Share { rails: some, each: few } = share;
            tracing::info!(
                "rdma: rank {peer} gets {some} of {rails} rails and {few} of {each} queue pairs on \
                 each: {why}"
            );
        }
        self.queue_pairs.left -= share.rails * usize::from(share.each);
        self.bytes.left -= share.rails * self.peer_bytes;
        Ok(share)
    }

    /// Takes back the part of a share that was not used.
    pub(super) const fn settle(&mut self, share: Share, rails: usize, queue_pairs: usize) {
        self.queue_pairs.left += share.rails * share.each as usize - queue_pairs;
        self.bytes.left += (share.rails - rails) * self.peer_bytes;
    }

    /// Takes bytes that are registered beyond a share: those of a ring or of pages, once for each
    /// rail.
    pub(super) fn register(&mut self, bytes: usize) -> Result<(), String> {
        match self.bytes.left.checked_sub(bytes) {
            Some(left) => self.bytes.left = left,
            None => return Err(self.no_bytes()),
        }
        Ok(())
    }

    /// Takes bytes of pages. Messages in pages can be copied instead, so half of all bytes is left
    /// to rings.
    pub(super) fn register_pages(&mut self, bytes: usize) -> Result<(), String> {
        if self.bytes.left.saturating_sub(bytes) < self.bytes.most / 2 {
            return Err(format!("RINGFOLD_IB_BYTES_MAX={} leaves half to rings", self.bytes.most));
        }
        self.register(bytes)
    }

    /// Gives back bytes that are no longer registered.
    pub(super) const fn unregister(&mut self, bytes: usize) {
        self.bytes.left += bytes;
    }

    fn no_queue_pairs(&self) -> String {
        format!("RINGFOLD_IB_QPS_MAX={} leaves no more", self.queue_pairs.most)
    }

    fn no_bytes(&self) -> String {
        format!("RINGFOLD_IB_BYTES_MAX={} leaves no more", self.bytes.most)
    }

    /// The most queue pairs and bytes.
    pub(super) const fn most(&self) -> (usize, usize) {
        (self.queue_pairs.most, self.bytes.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(queue_pairs_max: usize, rings: usize) -> Budget {
        let bytes_max = rings * RDMA_RING_BYTES + 4 * MAILBOX_BYTES;
        Budget::new(&Settings { queue_pairs_max, bytes_max, ..Settings::default() }, LANES)
    }

    #[test]
    fn peers_get_less_and_then_nothing() {
        let mut budget = budget(15, 1000);
        let shares = [(); 6].map(|()| budget.share(Rank(1), 2, 4));
        let share = |rails, each| Ok(Share { rails, each });
        assert_eq!(shares[..3], [share(2, 4), share(2, 3), share(1, 1)]);
        let why = "RINGFOLD_IB_QPS_MAX=15 leaves no more";
        assert_eq!(shares[3..], [(); 3].map(|()| Err(why.to_owned())));
        assert_eq!((budget.curbed, budget.refused), (2, 3));
    }

    #[test]
    fn bytes_run_out_too() {
        let mut budget = budget(1000, 13);
        assert_eq!(budget.share(Rank(1), 2, 1), Ok(Share { rails: 2, each: 1 }));
        assert_eq!(budget.share(Rank(2), 2, 1), Ok(Share { rails: 1, each: 1 }));
        assert_eq!(budget.register(RDMA_RING_BYTES), Ok(()));
        for refused in [budget.register(RDMA_RING_BYTES), budget.share(Rank(3), 2, 1).map(|_| ())] {
            let why = refused.unwrap_err();
            assert_eq!(why, format!("RINGFOLD_IB_BYTES_MAX={} leaves no more", budget.most().1));
        }
    }

    #[test]
    fn pages_leave_enough_for_rings() {
        let mut budget = budget(8, 8);
        let most = budget.bytes.most;
        assert_eq!(budget.register_pages(most / 2), Ok(()));
        let why = budget.register_pages(1).unwrap_err();
        assert!(why.starts_with("RINGFOLD_IB_BYTES_MAX="), "{why}");
        assert_eq!(budget.register(RDMA_RING_BYTES), Ok(()));
        budget.unregister(most / 2);
        assert_eq!(budget.register_pages(most / 2 - RDMA_RING_BYTES), Ok(()));
    }

    #[test]
    fn unused_shares_come_back() {
        let mut budget = budget(8, 8);
        let share = budget.share(Rank(1), 2, 4).unwrap();
        assert!(budget.share(Rank(2), 2, 4).is_err());
        budget.settle(share, 1, 2);
        assert_eq!(budget.share(Rank(2), 2, 4), Ok(Share { rails: 1, each: 4 }));
        budget.settle(Share::default(), 0, 0);
        // A peer without rails gets none, and counts as neither curbed nor refused.
        assert_eq!(budget.share(Rank(3), 0, 1), Ok(Share { rails: 0, each: 0 }));
    }
}
