//! The registration cache: memory that was made for callers, in which devices read long messages
//! that are sent, and write those that are received.
//!
//! Registration takes a device longer than a send, so it should be done once. A caller's own memory
//! does not allow that. The caller may give it back to the system, other pages may appear at the
//! same address, and the device would go on reading the old ones. So the cache holds only memory
//! that the transport has made (`Pages`). It is unmapped after its last deregistration. Until then
//! idle memory stays registered for the next caller that asks for as much.
//!
//! A caller may also lend its own buffer for the time of a call. The endpoint of the call then
//! registers it, and deregisters it before the call returns. A buffer that its caller keeps
//! registered is an entry of the cache instead. The calls that use it hold it, so it stays
//! registered until they are over.
//!
//! All endpoints of a process share the `Cache`, so a device registers memory once for all peers
//! and communicators. The `Registry` is what one endpoint knows of it. A send finds its memory
//! there without a lock, until memory is made or given back.
//!
//! * `cache`: the memory that all endpoints share; `leases`: the buffers of one call;
//! * `right`: a registration with a device.

mod cache;
mod leases;
mod right;

use std::io;
use std::sync::{Arc, Weak};

use self::cache::Entry;
use self::leases::Leases;
use self::right::{Right, Use};
use super::budget::Budget;
use super::sys::{Mr, Pages, Pd, Placement, UserBuffer};

pub(super) use self::cache::{Cache, Kept};

/// The registration cache, as one endpoint knows it.
#[derive(Debug)]
pub(super) struct Registry {
    cache: Arc<Cache>,
    /// The number of this endpoint.
    number: u64,
    /// The version of the cache that `all` shows.
    version: u64,
    all: Vec<View>,
    /// The buffers that callers have lent.
    leases: Leases,
    /// The registered buffers of callers that the present call uses.
    held: Vec<Arc<Kept>>,
    /// The promise that allows peers to write to them.
    placement: Option<Placement>,
}

/// An entry of the cache, and the registrations that this endpoint has used. One that could not be
/// made, or was withdrawn, is no longer there.
#[derive(Debug)]
struct View {
    begin: usize,
    bytes: usize,
    rights: Vec<(Use, Arc<Pd>, Weak<Mr>)>,
    kept: Option<Weak<Kept>>,
}

/// A position in pages, or in a leased buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    is_leased: bool,
    entry: usize,
    at: usize,
}

impl Place {
    /// The position so many bytes on.
    pub(super) const fn skip(self, bytes: usize) -> Self {
        Self { at: self.at + bytes, ..self }
    }
}

/// Bytes that a device may read in place.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) right: Arc<Mr>,
    /// The position of the bytes in its region.
    pub(super) at: usize,
}

/// The cost of callers' registered memory in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    /// Registrations by which our devices read.
    pub(super) reads: usize,
    /// Registrations by which peers write.
    pub(super) writes: usize,
    /// Bytes of all registrations.
    pub(super) bytes: usize,
}

impl Registry {
    pub(super) fn new(cache: Arc<Cache>, placement: Option<Placement>) -> Self {
        let (number, all, held) = (cache.enter(), Vec::new(), Vec::new());
        Self { cache, number, version: 0, all, leases: Leases::default(), held, placement }
    }

    /// Makes zeroed pages. It reuses idle ones if no peer may still be writing there: this endpoint
    /// tells by `may_reuse` whether none of its peers does.
    pub(super) fn make(&self, bytes: usize, may_reuse: bool) -> io::Result<Pages> {
        self.cache.make(bytes, self.number, may_reuse)
    }

    /// Gives idle pages back to the system, the oldest first, until `most` bytes of them are left.
    /// Another endpoint that is at work on the cache does so in its turn.
    pub(super) fn trim(&self, most: usize) {
        self.cache.trim(most);
    }

    /// Registers a caller's buffer with these domains, where peers may write `in_any_order`. The
    /// same buffer is registered once.
    ///
    /// # Errors
    /// No domain has it, for this reason.
    pub(super) fn register(
        &self,
        buffer: UserBuffer,
        domains: &[Arc<Pd>],
        in_any_order: bool,
        budget: &Budget,
    ) -> Result<Arc<Kept>, String> {
        let purpose = Use::of(buffer, self.written(in_any_order));
        self.cache.keep(buffer, purpose, domains, budget)
    }

    /// The purpose of callers' buffers that are written.
    fn written(&self, in_any_order: bool) -> Use {
        self.placement.map_or(Use::Read, |_| Use::Write { in_any_order })
    }

    /// Holds the registered buffers of callers that lie in this one.
    fn hold(&mut self, buffer: UserBuffer) {
        let (begin, end) = (buffer.begin(), buffer.begin() + buffer.bytes());
        let is_used = |view: &&View| view.begin < end && begin < view.begin + view.bytes;
        for kept in self.all.iter().filter(is_used).filter_map(|view| view.kept.as_ref()?.upgrade())
        {
            if !self.held.iter().any(|held| Arc::ptr_eq(held, &kept)) {
                self.held.push(kept);
            }
        }
    }

    /// Takes a caller's buffer, which peers may write `in_any_order`. A short one serves only if
    /// it is registered already.
    pub(super) fn lease(&mut self, buffer: UserBuffer, in_any_order: bool) {
        let place = self.locate(buffer.begin(), buffer.bytes());
        self.hold(buffer);
        let serves = |place: Place| !place.is_leased || self.leases.serves(place.entry, buffer);
        if place.is_some_and(serves) {
            return;
        }
        if self.leases.add(buffer, self.written(in_any_order)) {
            self.cache.retry();
        }
    }

    /// Returns whether callers have lent buffers.
    pub(super) const fn is_leasing(&self) -> bool {
        !self.leases.is_empty() || !self.held.is_empty()
    }

    /// Gives leased buffers back. When this returns, no device accesses them.
    pub(super) fn release(&mut self) {
        self.leases.release();
        self.held.clear();
    }

    /// Returns the position of `bytes` (not empty), if they lie in pages or a leased buffer.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<Place> {
        self.locate(bytes.as_ptr().addr(), bytes.len())
    }

    fn locate(&mut self, begin: usize, bytes: usize) -> Option<Place> {
        if self.version != self.cache.version() {
            self.look();
        }
        let position = |of: usize, all: usize| {
            let at = begin.checked_sub(of)?;
            (bytes <= all.checked_sub(at)?).then_some(at)
        };
        let leased = self.leases.places().enumerate().find_map(|(entry, (begin, bytes))| {
            Some(Place { is_leased: true, entry, at: position(begin, bytes)? })
        });
        let mut made = self.all.iter().enumerate();
        leased.or_else(|| {
            made.find_map(|(entry, it)| {
                Some(Place { is_leased: false, entry, at: position(it.begin, it.bytes)? })
            })
        })
    }

    /// Looks at the entries of the cache, which have changed.
    #[cold]
    fn look(&mut self) {
        let all = self.cache.entries();
        self.version = self.cache.version();
        let view = |Entry { pages, kept, .. }: &Entry| View {
            begin: pages.begin(),
            bytes: pages.bytes(),
            rights: Vec::new(),
            kept: kept.clone(),
        };
        self.all.clear();
        self.all.extend(all.iter().filter(|entry| !entry.is_over()).map(view));
    }

    /// Lends the bytes there to the queue pairs of a domain, unless they cannot be registered.
    pub(super) fn lend(&mut self, place: Place, pd: &Arc<Pd>, budget: &Budget) -> Option<Loan> {
        let right = self.right(place, Use::Read, pd, budget)?;
        Some(Loan { right, at: place.at })
    }

    /// Lets the peers of the domain's queue pairs write there, maybe `in_any_order`. Returns the
    /// key to all of these pages, or nothing if they cannot be registered or there is no
    /// `Placement`.
    pub(super) fn open(
        &mut self,
        place: Place,
        pd: &Arc<Pd>,
        in_any_order: bool,
        budget: &Budget,
    ) -> Option<u32> {
        self.placement?;
        let right = self.right(place, Use::Write { in_any_order }, pd, budget)?;
        Some(right.remote_key())
    }

    fn right(
        &mut self,
        Place { is_leased, entry, .. }: Place,
        purpose: Use,
        pd: &Arc<Pd>,
        budget: &Budget,
    ) -> Option<Arc<Mr>> {
        if is_leased {
            return self.leases.right(entry, purpose, pd, budget);
        }
        let view = &mut self.all[entry];
        let is_it = |it: &&(Use, Arc<Pd>, _)| it.0 == purpose && Arc::ptr_eq(&it.1, pd);
        if let Some((_, _, known)) = view.rights.iter().find(is_it) {
            let known = known.upgrade();
            if known.is_none() && self.leases.note_copy() {
                self.cache.retry();
            }
            return known;
        }
        let place = (view.begin, view.bytes);
        let right = self.cache.right(place, purpose, pd, budget, self.number);
        let known = right.as_ref().map_or_else(Weak::new, Arc::downgrade);
        view.rights.push((purpose, Arc::clone(pd), known));
        right
    }

    /// Deregisters all pages of a domain, which other endpoints may use too. When this returns, its
    /// device no longer accesses them.
    ///
    /// # Errors
    /// The device refuses. It may go on as long as the domain has a queue pair.
    pub(super) fn forget(&mut self, pd: &Arc<Pd>) -> io::Result<()> {
        let leased = self.leases.forget(pd);
        self.cache.withdraw(pd).into_iter().map(Right::end).fold(leased, io::Result::and)
    }

    pub(super) fn costs(&self) -> Costs {
        let mut costs = Costs::default();
        let all = self.cache.entries();
        let entries = all.iter().map(|entry| (&entry.pages, &entry.rights[..]));
        for (memory, rights) in entries.chain(self.leases.rights()) {
            for right in rights {
                costs.bytes += memory.bytes();
                match right.purpose {
                    Use::Read => costs.reads += 1,
                    Use::Write { .. } => costs.writes += 1,
                }
            }
        }
        costs
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.cache.quit(self.number);
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::limits::RDMA_IDLE_BYTES;

    use super::*;

    fn registries() -> [Registry; 2] {
        let cache = Arc::default();
        [(); 2].map(|()| Registry::new(Arc::clone(&cache), None))
    }

    #[test]
    fn pages_are_found_by_any_part_of_them() {
        let [mut registry, mut other] = registries();
        let first = registry.make(8192, true).unwrap();
        let second = registry.make(4096, true).unwrap();
        let place = |entry, at| Some(Place { is_leased: false, entry, at });
        for registry in [&mut registry, &mut other] {
            assert_eq!(registry.find(first.front(8192)), place(0, 0));
            assert_eq!(registry.find(&first.front(8192)[100..]), place(0, 100));
            assert_eq!(registry.find(&second.front(4096)[4095..]), place(1, 4095));
            assert_eq!(registry.find(&[1, 2, 3]), None);
        }
    }

    #[test]
    fn pages_that_nobody_has_serve_again_and_are_zero() {
        let [registry, other] = registries();
        let mut first = registry.make(4096, true).unwrap();
        first.front_mut(4096).fill(7);
        let at = first.front(1).as_ptr();
        let second = other.make(4096, true).unwrap();
        assert_ne!(second.front(1).as_ptr(), at, "somebody has it");
        drop(first);
        let again = other.make(4096, true).unwrap();
        assert_eq!(again.front(1).as_ptr(), at);
        assert!(again.front(4096).iter().all(|byte| *byte == 0));
    }

    /// Pages that peers of an endpoint may write serve that endpoint only, and nobody once it is
    /// gone.
    #[test]
    fn pages_with_writers_serve_their_endpoint() {
        let [registry, other] = registries();
        let pages = registry.make(4096, true).unwrap();
        let at = pages.front(1).as_ptr();
        registry.cache.entries()[0].writers.add(registry.number);
        drop(pages);
        let is_again =
            |registry: &Registry, may| registry.make(4096, may).unwrap().front(1).as_ptr() == at;
        assert!(!is_again(&other, true) && !is_again(&registry, false));
        assert!(is_again(&registry, true));
        drop(registry);
        assert!(!is_again(&other, true));
    }

    #[test]
    fn idle_pages_are_bounded() {
        let [mut registry, _] = registries();
        let kept = registry.make(4096, true).unwrap();
        for bytes in [RDMA_IDLE_BYTES / 2, RDMA_IDLE_BYTES / 4, RDMA_IDLE_BYTES / 2 + 4096] {
            drop(registry.make(bytes, true).unwrap());
        }
        let left = |registry: &Registry| {
            registry.cache.entries().iter().map(|entry| entry.pages.bytes()).collect::<Vec<_>>()
        };
        assert_eq!(left(&registry), [4096, RDMA_IDLE_BYTES / 4, RDMA_IDLE_BYTES / 2 + 4096]);
        registry.trim(0);
        assert_eq!(registry.find(kept.front(1)), Some(Place { is_leased: false, entry: 0, at: 0 }));
        assert_eq!(left(&registry), [4096]);
    }
}
