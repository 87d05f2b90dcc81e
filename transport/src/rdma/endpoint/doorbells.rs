//! When devices are given what was gathered for them: to ring a doorbell is a write across PCI
//! Express, or a call of the kernel, so that it should be done for many requests at once.

use super::{Contact, Rdma};

impl Rdma {
    /// With the next poll, by which time there may be more for this peer; or at once if the caller
    /// is about to sleep.
    pub(super) fn ring_later(&mut self, index: usize) {
        let Some(Contact { peer, .. }) = self.contacts[index].as_deref_mut() else { return };
        if peer.has_gathered() && !self.unrung.contains(&index) {
            self.unrung.push(index);
        }
        if self.is_armed {
            self.ring_all();
        }
    }

    /// Now.
    pub(super) fn ring_all(&mut self) {
        while let Some(index) = self.unrung.pop() {
            let Some(Contact { peer, .. }) = self.contacts[index].as_deref_mut() else { continue };
            peer.ring();
            if !peer.is_flushed() {
                // A path may be lost, and the peer is to be told.
                self.is_busy = true;
                if self.is_armed {
                    self.ring();
                }
            }
        }
    }
}
