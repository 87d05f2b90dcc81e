//! The queue pairs and registered bytes that the links of a process may have together.
//!
//! A peer gets its share when the two first exchange messages. If too little is left, the peer gets
//! fewer queue pairs on each pair of rails, then fewer rails, then none, and its data goes by TCP.
//!
//! Registered bytes count once for each rail, as they do for `ulimit -l`. Callers' memory counts
//! once for each of its registrations, and the queues of a queue pair as `QUEUE_PAIR_BYTES`.

use std::sync::{Arc, Mutex};

use ringfold_types::Rank;
use ringfold_types::limits::RDMA_RING_BYTES;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::lock::lock;
use super::ring::rtr::MAILBOX_BYTES;
use super::settings::Settings;

/// Lanes, both ways, for which a peer's share of bytes suffices: no schedule uses more.
pub(super) const LANES: usize = 2;

/// Locked memory for the queues of a queue pair, as mlx5 lays them out: 16 KiB each for sends and
/// for the most receives, and up to 32 KiB for completions.
pub(super) const QUEUE_PAIR_BYTES: usize = 64 * 1024;

/// Returns the bytes of a peer's share on each rail, for an endpoint with so many lanes.
#[must_use]
pub const fn peer_bytes(lanes: usize) -> usize {
    let lanes = if lanes < LANES { lanes } else { LANES };
    2 * lanes * RDMA_RING_BYTES + MAILBOX_BYTES + QUEUE_PAIR_BYTES
}

/// The queue pairs and bytes that all endpoints of the process have taken.
#[derive(Debug, Default)]
pub(super) struct Usage(Mutex<Amount>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    queue_pairs: usize,
    bytes: usize,
}

impl Amount {
    const fn add(&mut self, Self { queue_pairs, bytes }: Self) {
        self.queue_pairs += queue_pairs;
        self.bytes += bytes;
    }

    /// Takes an amount away that was added.
    const fn sub(&mut self, Self { queue_pairs, bytes }: Self) {
        self.queue_pairs -= queue_pairs;
        self.bytes -= bytes;
    }
}

/// The queue pairs and bytes of its process that an endpoint takes. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Budget {
    usage: Arc<Usage>,
    /// The most that the process may have.
    most: Amount,
    /// The most bytes that the process may lock, by `ulimit -l`.
    lockable: usize,
    /// The most bytes that this endpoint may have.
    own_most: usize,
    /// The amount that this endpoint has.
    own: Amount,
    /// Bytes of a peer's share on each rail.
    peer_bytes: usize,
    /// Peers that got less than they could use.
    pub(super) curbed: usize,
    /// Peers that got nothing.
    pub(super) refused: usize,
}

/// Bytes of callers' memory that are registered. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Payment {
    usage: Arc<Usage>,
    bytes: usize,
}

impl Drop for Payment {
    fn drop(&mut self) {
        lock(&self.usage.0).bytes -= self.bytes;
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        lock(&self.usage.0).sub(self.own);
    }
}

/// A peer's share: a number of our rails, and of queue pairs on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) rails: usize,
    pub(super) each: u8,
}

impl Budget {
    pub(super) fn new(usage: Arc<Usage>, settings: &Settings, lanes: usize) -> Self {
        let &Settings { queue_pairs_max: queue_pairs, bytes_max: bytes, apart, .. } = settings;
        Self {
            usage,
            most: Amount { queue_pairs, bytes },
            lockable: lockable(),
            own_most: apart.unwrap_or(usize::MAX),
            own: Amount::default(),
            peer_bytes: peer_bytes(lanes),
            curbed: 0,
            refused: 0,
        }
    }

    /// The amount that is left to this endpoint while the process uses `used`.
    fn left(&self, used: Amount) -> Amount {
        Amount {
            queue_pairs: self.most.queue_pairs.saturating_sub(used.queue_pairs),
            bytes: self.most.bytes.saturating_sub(used.bytes).min(self.own_most - self.own.bytes),
        }
    }

    /// Takes the share of one more peer, which could use `rails` rails with `each` queue pairs.
    /// Returns the reason if there is none.
    pub(super) fn share(&mut self, peer: Rank, rails: usize, each: u8) -> Result<Share, String> {
        let usage = Arc::clone(&self.usage);
        let mut used = lock(&usage.0);
        let left = self.left(*used);
        let by_bytes = left.bytes / self.amount(1, usize::from(each)).bytes;
        let share = rails.min(by_bytes).min(left.queue_pairs);
        if share == 0 && rails > 0 {
            self.refused += 1;
            return Err(if by_bytes == 0 { self.no_bytes() } else { self.no_queue_pairs() });
        }
        let most = left.queue_pairs.checked_div(share).unwrap_or(0);
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
        let taken = self.amount(share.rails, share.rails * usize::from(share.each));
        used.add(taken);
        self.own.add(taken);
        Ok(share)
    }

    /// The amount of a share of so many rails and queue pairs.
    const fn amount(&self, rails: usize, queue_pairs: usize) -> Amount {
        let further = queue_pairs.saturating_sub(rails) * QUEUE_PAIR_BYTES;
        Amount { queue_pairs, bytes: rails * self.peer_bytes + further }
    }

    /// Takes back the part of a share that was not used.
    pub(super) fn settle(&mut self, share: Share, rails: usize, queue_pairs: usize) {
        let most = share.rails * usize::from(share.each);
        let rest = self.amount(share.rails - rails, most - queue_pairs);
        lock(&self.usage.0).sub(rest);
        self.own.sub(rest);
    }

    /// Takes bytes that are registered beyond a share: those of a ring, once for each rail.
    pub(super) fn register(&mut self, bytes: usize) -> Result<(), String> {
        let usage = Arc::clone(&self.usage);
        let mut used = lock(&usage.0);
        if self.left(*used).bytes < bytes {
            return Err(self.no_bytes());
        }
        let taken = Amount { bytes, ..Amount::default() };
        used.add(taken);
        self.own.add(taken);
        Ok(())
    }

    /// Takes bytes of pages, which all endpoints of the process share. Messages in pages can be
    /// copied instead, so half of all bytes is left to rings.
    pub(super) fn register_pages(&self, bytes: usize) -> Result<Payment, String> {
        let mut used = lock(&self.usage.0);
        let most = self.most.bytes.min(self.lockable);
        if most.saturating_sub(used.bytes).saturating_sub(bytes) < most / 2 {
            let limit = if most < self.most.bytes {
                format!("RLIMIT_MEMLOCK={most}")
            } else {
                format!("RINGFOLD_IB_BYTES_MAX={most}")
            };
            return Err(format!("{limit} leaves half to rings in this process"));
        }
        used.bytes += bytes;
        Ok(Payment { usage: Arc::clone(&self.usage), bytes })
    }

    fn no_queue_pairs(&self) -> String {
        format!("RINGFOLD_IB_QPS_MAX={} leaves no more in this process", self.most.queue_pairs)
    }

    fn no_bytes(&self) -> String {
        if self.own_most < self.most.bytes {
            return format!("its links may have {} bytes of registered memory", self.own_most);
        }
        format!("RINGFOLD_IB_BYTES_MAX={} leaves no more in this process", self.most.bytes)
    }

    /// The most queue pairs and bytes that the process may have.
    pub(super) const fn most(&self) -> (usize, usize) {
        (self.most.queue_pairs, self.most.bytes)
    }
}

/// Returns the most bytes that this process may lock. The devices of unit tests lock none.
fn lockable() -> usize {
    let is_free = || {
        let sets = capabilities(None);
        sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
    };
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if !cfg!(test) && !is_free() => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The budgets of two endpoints of one process.
    fn budgets(queue_pairs_max: usize, rings: usize) -> [Budget; 2] {
        let bytes_max = rings * RDMA_RING_BYTES + 4 * MAILBOX_BYTES + 16 * QUEUE_PAIR_BYTES;
        let settings = Settings { queue_pairs_max, bytes_max, ..Settings::default() };
        let usage = Arc::default();
        [(); 2].map(|()| Budget::new(Arc::clone(&usage), &settings, LANES))
    }

    fn share(rails: usize, each: u8) -> Share {
        Share { rails, each }
    }

    #[test]
    fn peers_get_less_and_then_nothing() {
        let [mut budget, _] = budgets(15, 1000);
        let shares = [(); 6].map(|()| budget.share(Rank(1), 2, 4));
        assert_eq!(
            shares[..3],
            [(2, 4), (2, 3), (1, 1)].map(|(rails, each)| Ok(share(rails, each)))
        );
        let why = "RINGFOLD_IB_QPS_MAX=15 leaves no more in this process";
        assert_eq!(shares[3..], [(); 3].map(|()| Err(why.to_owned())));
        assert_eq!((budget.curbed, budget.refused), (2, 3));
    }

    #[test]
    fn bytes_run_out_too() {
        let [mut budget, _] = budgets(1000, 13);
        assert_eq!(budget.share(Rank(1), 2, 1), Ok(share(2, 1)));
        assert_eq!(budget.share(Rank(2), 2, 1), Ok(share(1, 1)));
        assert_eq!(budget.register(RDMA_RING_BYTES), Ok(()));
        for refused in [budget.register(RDMA_RING_BYTES), budget.share(Rank(3), 2, 1).map(|_| ())] {
            let why = refused.unwrap_err();
            let most = budget.most().1;
            assert_eq!(why, format!("RINGFOLD_IB_BYTES_MAX={most} leaves no more in this process"));
        }
    }

    #[test]
    fn pages_leave_enough_for_rings() {
        let [mut budget, _] = budgets(8, 8);
        let most = budget.most.bytes;
        let paid = budget.register_pages(most / 2).unwrap();
        let why = budget.register_pages(1).unwrap_err();
        assert!(why.starts_with("RINGFOLD_IB_BYTES_MAX="), "{why}");
        assert_eq!(budget.register(RDMA_RING_BYTES), Ok(()));
        drop(paid);
        assert!(budget.register_pages(most / 2 - RDMA_RING_BYTES).is_ok());
    }

    #[test]
    fn unused_shares_come_back() {
        let [mut budget, _] = budgets(8, 8);
        let first = budget.share(Rank(1), 2, 4).unwrap();
        assert!(budget.share(Rank(2), 2, 4).is_err());
        budget.settle(first, 1, 2);
        assert_eq!(budget.share(Rank(2), 2, 4), Ok(share(1, 4)));
        budget.settle(Share::default(), 0, 0);
        // A peer without rails gets none, and counts as neither curbed nor refused.
        assert_eq!(budget.share(Rank(3), 0, 1), Ok(share(0, 0)));
    }

    #[test]
    fn endpoints_of_a_process_share_its_limits() {
        let [mut one, mut other] = budgets(8, 1000);
        assert_eq!(one.share(Rank(1), 2, 3), Ok(share(2, 3)));
        assert_eq!(other.share(Rank(1), 2, 3), Ok(share(2, 1)), "two of eight are left");
        assert!(one.share(Rank(2), 1, 1).is_err() && other.share(Rank(2), 1, 1).is_err());
        drop(one);
        assert_eq!(other.share(Rank(2), 2, 4), Ok(share(2, 3)));
        let usage = Arc::clone(&other.usage);
        drop(other);
        assert_eq!(*lock(&usage.0), Amount::default());
    }

    #[test]
    fn an_endpoint_apart_has_a_limit_of_its_own_too() {
        let settings = Settings { apart: Some(peer_bytes(LANES)), ..Settings::default() };
        let mut budget = Budget::new(Arc::default(), &settings, LANES);
        assert_eq!(budget.share(Rank(1), 1, 1), Ok(share(1, 1)));
        let why = budget.share(Rank(2), 1, 1).unwrap_err();
        assert!(why.starts_with("its links may have "), "{why}");
    }

    #[test]
    fn callers_memory_leaves_half_of_what_may_be_locked_to_rings() {
        let [mut budget, _] = budgets(15, 1000);
        budget.lockable = 1 << 20;
        let paid = budget.register_pages(1 << 19).unwrap();
        let why = budget.register_pages(1).unwrap_err();
        assert_eq!(why, "RLIMIT_MEMLOCK=1048576 leaves half to rings in this process");
        drop(paid);
        assert!(budget.register_pages(1 << 19).is_ok());
    }
}
