//! When devices are given what was gathered for them, and when they wake who sleeps: to ring a
//! doorbell is a write across PCI Express, or a call of the kernel, so that it should be done for
//! many requests at once, and the peer need wake up once for them.

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

    /// Whether completions of own work matter. If not, only what the peers' doorbells brought last
    /// needs to wake us: by then all of it is there.
    pub(super) fn awaits_devices(&self) -> bool {
        let mut contacts = self.contacts.iter().flatten();
        self.has_iwarp || contacts.any(|contact| contact.peer.awaits_device())
    }

    /// Lets devices wake who sleeps.
    pub(super) fn hear(&mut self, only_calls: bool) {
        self.hears_only_calls = only_calls;
        let mut rails = self.rails.0.iter_mut().filter(|rail| !rail.is_gone);
        // Nobody should sleep until something that will not be told.
        if rails.try_for_each(|rail| rail.notify(only_calls)).is_err() {
            self.ring();
        }
    }

    /// Now.
    pub(super) fn ring_all(&mut self) {
        while let Some(index) = self.unrung.pop() {
            if let Some(Contact { peer, .. }) = self.contacts[index].as_deref_mut() {
                peer.ring();
                self.is_busy |= !peer.is_flushed();
            }
        }
    }
}
