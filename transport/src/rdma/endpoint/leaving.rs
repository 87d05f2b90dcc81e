//! The end of a rank's links.

use std::time::{Duration, Instant};

use ringfold_types::limits::HANDSHAKE_MS;

use super::Rdma;
use crate::contract::Transport as _;
use crate::rdma::budget::Budget;

/// Pause between looks while leaving.
const PAUSE: Duration = Duration::from_micros(50);

impl Rdma {
    /// Whether nothing that was sent depends on this rank any more.
    fn is_drained(&self) -> bool {
        let contacts = self.contacts.iter().flatten();
        self.is_flushed() && contacts.into_iter().all(|contact| contact.peer.is_drained())
    }

    /// Whether the connections have taken all that there was to say.
    fn is_said(&self) -> bool {
        let mut contacts = self.contacts.iter().flatten();
        contacts.all(|contact| contact.talk.is_said() || contact.peer.fault().is_some())
    }

    /// Says what the links cost.
    fn tell_costs(&self) {
        let costs = self.contacts.iter().flatten().map(|contact| contact.peer.costs());
        let (peers, paths, rights, own_bytes) = costs.fold((0, 0, 0, 0), |sum, cost| {
            (sum.0 + 1, sum.1 + cost.0, sum.2 + cost.1, sum.3 + cost.2)
        });
        let (read, written, lent_bytes) = self.registry.costs();
        let (rank, bytes) = (self.config.rank, own_bytes + lent_bytes);
        let (most, most_bytes) = self.budget.most();
        let Budget { curbed, refused, .. } = self.budget;
        tracing::info!(
            "rdma: rank {rank} had {peers} peers, {paths} queue pairs of {most}, {rights} memory \
             regions and {read} of callers to send and {written} to receive with {bytes} bytes of \
             {most_bytes}; {curbed} peers got less than they could use, and {refused} nothing"
        );
    }
}

impl Drop for Rdma {
    /// Devices forget what they were to send when their queue pairs go, so this waits until the
    /// peers' devices have it; and tells the peers how much it was.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
        let is_late = || std::thread::panicking() || Instant::now() > deadline;
        while !self.is_drained() && !is_late() {
            // What is lost is no longer waited for.
            self.work().ok();
            self.change_all(|peer, _| peer.ask());
            std::thread::sleep(PAUSE);
        }
        if self.is_drained() {
            self.change_all(|peer, _| peer.part());
        } else {
            // Nobody is promised what may not arrive.
            tracing::warn!("accepted bytes did not reach their peers");
        }
        while !is_late() && !self.is_said() && self.look().is_ok() {
            std::thread::sleep(PAUSE);
        }
        self.change_all(|peer, _| peer.abandon());
        self.tell_costs();
    }
}
