//! The end of a link: the peer's goodbye, its absence, or a fault.

use std::time::{Duration, Instant};

use ringfold_types::limits::{LANES_MAX, RDMA_PARTING_MS};

use super::fault::Fault;

/// The end of the links to a peer. A peer that says goodbye promises fragments that are still under
/// way. They may arrive for a while after it has left.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The number of fragments that the peer sent before its goodbye, by lane.
    promised: Option<[u64; LANES_MAX]>,
    /// The time when the peer left.
    left: Option<Instant>,
    /// The reason why nothing can be sent or made any more.
    fault: Option<Fault>,
}

impl Ending {
    pub(super) const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns whether nothing can be sent or made any more.
    pub(super) const fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    /// Returns whether the peer has said goodbye.
    pub(super) const fn has_goodbye(&self) -> bool {
        self.promised.is_some()
    }

    /// Returns whether the peer wants nothing any more.
    pub(super) const fn is_done(&self) -> bool {
        self.is_over() || self.has_goodbye()
    }

    /// Ends the links. The first reason counts, unless the peer is gone: that explains earlier
    /// faults.
    pub(super) fn fail(&mut self, fault: Fault) {
        if self.fault.is_none() || fault == Fault::Closed {
            self.fault = Some(fault);
        }
    }

    /// Notes the peer's goodbye, after so many fragments of each lane.
    pub(super) const fn promise(&mut self, fragments: [u64; LANES_MAX]) {
        self.promised = Some(fragments);
    }

    /// Notes that the peer is gone.
    pub(super) fn leave(&mut self, now: Instant) {
        (self.fault, self.left) = (Some(Fault::Closed), Some(now));
    }

    /// The number of fragments of a lane that a peer promised before it left, while they may
    /// arrive.
    pub(super) fn awaited(&self, lane: usize, now: Instant) -> Option<u64> {
        self.patience().filter(|patience| now < *patience)?;
        Some(self.promised?[lane])
    }

    /// The time until which fragments of a peer that has left may arrive.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.promised?;
        Some(self.left? + Duration::from_millis(RDMA_PARTING_MS))
    }

    /// Gives up the fragments that have not arrived in time.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.patience().is_some_and(|patience| patience <= now) {
            self.promised = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_counts_unless_the_peer_is_gone() {
        let mut ending = Ending::default();
        ending.fail(Fault::Protocol("one"));
        ending.fail(Fault::Protocol("other"));
        assert_eq!(ending.fault(), Some(&Fault::Protocol("one")));
        ending.fail(Fault::Closed);
        assert_eq!(ending.fault(), Some(&Fault::Closed));
    }

    #[test]
    fn promises_hold_for_a_while_after_the_peer_has_left() {
        let (mut ending, now) = (Ending::default(), Instant::now());
        ending.promise([7; LANES_MAX]);
        assert!(ending.is_done() && !ending.is_over() && ending.patience().is_none());
        ending.leave(now);
        assert_eq!(ending.awaited(1, now), Some(7));
        let patience = ending.patience().unwrap();
        assert_eq!(ending.awaited(1, patience), None);
        ending.expire(now);
        assert!(ending.has_goodbye());
        ending.expire(patience);
        assert!(!ending.has_goodbye() && ending.is_over());
    }
}
