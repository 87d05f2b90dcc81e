//! The end of a rank's links.

use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::HANDSHAKE_MS;

use super::Rdma;
use crate::contract::Transport as _;
use crate::rdma::path::Path;
use crate::rdma::peer::Peer;

/// Pause between looks while leaving.
const PAUSE: Duration = Duration::from_micros(50);

impl Rdma {
    fn peers(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.contacts.iter_mut().flatten().map(|contact| &mut contact.peer)
    }

    /// Whether nothing that was sent depends on this rank any more.
    fn is_drained(&self) -> bool {
        let contacts = self.contacts.iter().flatten();
        self.is_flushed() && contacts.into_iter().all(|contact| contact.peer.is_drained())
    }

    /// Says what the links cost.
    fn tell_costs(&self) {
        let costs = self.contacts.iter().flatten().map(|contact| contact.peer.costs());
        let (peers, paths, rights, bytes) = costs.fold((0, 0, 0, 0), |sum, cost| {
            (sum.0 + 1, sum.1 + cost.0, sum.2 + cost.1, sum.3 + cost.2)
        });
        let rank = self.config.rank;
        tracing::info!(
            "rdma: rank {rank} had {peers} peers, {paths} queue pairs, {rights} memory regions, \
             {bytes} bytes in rings"
        );
    }
}

impl Drop for Rdma {
    /// Devices forget what they were to send when their queue pairs go, so this waits until the
    /// peers' devices have it; and tells the peers how much it was.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
        let is_late = || std::thread::panicking() || Instant::now() > deadline;
        while !self.is_drained() {
            if is_late() {
                tracing::warn!("accepted bytes did not reach their peers");
                break;
            }
            // What is lost is no longer waited for.
            self.work().ok();
            self.peers().flat_map(|peer| &mut peer.paths).for_each(Path::ask);
            std::thread::sleep(PAUSE);
        }
        for at in std::mem::take(&mut self.known) {
            self.change(Rank::at(at), |peer, _| peer.part());
        }
        while !is_late() && self.contacts.iter().flatten().any(|it| !it.is_settled()) {
            let is_unsaid = self.contacts.iter().flatten().any(|it| !it.talk.is_said());
            if !is_unsaid || self.look().is_err() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.tell_costs();
    }
}
