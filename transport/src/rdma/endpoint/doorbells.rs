//! When devices are given what was gathered for them: to ring a doorbell is a write across PCI
//! Express, or a call of the kernel, so that it should be done for many requests at once.

use ringfold_types::Rank;

use super::Rdma;

impl Rdma {
    /// With the next poll, by which time there may be more for this peer; or at once if the caller
    /// is about to sleep.
    pub(super) fn ring_later(&mut self, rank: Rank) {
        self.contacts.note_gathered(rank);
        if self.waker.is_armed() {
            self.ring_all();
        }
    }

    /// Now.
    pub(super) fn ring_all(&mut self) {
        while let Some(rank) = self.contacts.next_gathered() {
            let Some(contact) = self.contacts.get_mut(rank) else { continue };
            contact.peer.ring();
            if !contact.peer.is_flushed() {
                // A path may be lost, and the peer is to be told.
                self.contacts.busy(true);
                if self.waker.is_armed() {
                    self.waker.ring();
                }
            }
        }
    }
}
