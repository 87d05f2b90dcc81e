//! The registration cache: memory that was made for callers, in which devices read long messages
//! that are sent, and write those that are received.
//!
//! Registration takes a device longer than a send, so it should be done once. A caller's own memory
//! does not allow that. The caller may give it back to the system, other pages may appear at the
//! same address, and the device would go on reading the old ones. So the cache holds only memory
//! that the transport has made (`Pages`). It is unmapped after its last deregistration. Until then
//! idle memory stays registered for the next caller that asks for as much.

use std::io;
use std::sync::Arc;

use ringfold_types::limits::RDMA_IDLE_BYTES;

use super::budget::Budget;
use super::diagnostics;
use super::sys::{Known, Mr, Pages, Pd, Placement};

/// The registration cache.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// The entries, the oldest first.
    all: Vec<Entry>,
    /// The promise that allows peers to write to them.
    placement: Option<Placement>,
}

#[derive(Debug)]
struct Entry {
    pages: Known,
    rights: Vec<(Use, Mr)>,
    /// The domains in which registration has failed, and is not tried again.
    without: Vec<(Use, Arc<Pd>)>,
}

/// The purpose of a registration. Each serves one purpose only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Our device reads the bytes that are sent.
    Read,
    /// The peer's device writes the bytes that are received, maybe in any order.
    Write { in_any_order: bool },
}

/// A position in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Loan<'a> {
    pub(super) right: &'a Mr,
    /// The position of the bytes in its region.
    pub(super) at: usize,
}

/// The cost of callers' registered memory.
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
    pub(super) fn new(placement: Option<Placement>) -> Self {
        Self { all: Vec::new(), placement }
    }

    /// Makes zeroed pages. It reuses idle ones if it `may_reuse` them, which means that no peer may
    /// still be writing there.
    pub(super) fn make(
        &mut self,
        bytes: usize,
        may_reuse: bool,
        budget: &mut Budget,
    ) -> io::Result<Pages> {
        for entry in &mut self.all {
            if may_reuse
                && entry.pages.bytes() == bytes
                && let Some(pages) = entry.pages.again(entry.rights.len())
            {
                entry.without.clear();
                return Ok(pages);
            }
        }
        self.trim(RDMA_IDLE_BYTES.saturating_sub(bytes), budget);
        let (pages, known) = Pages::new(bytes)?;
        self.all.push(Entry { pages: known, rights: Vec::new(), without: Vec::new() });
        Ok(pages)
    }

    /// Gives idle pages back to the system, the oldest first, until `most` bytes of them are left.
    pub(super) fn trim(&mut self, most: usize, budget: &mut Budget) {
        let idle = |entry: &Entry| if entry.is_idle() { entry.pages.bytes() } else { 0 };
        let mut bytes: usize = self.all.iter().map(idle).sum();
        self.all.retain(|entry| {
            if bytes <= most || !entry.is_idle() {
                return true;
            }
            // Other pages may have become idle since they were counted.
            bytes = bytes.saturating_sub(entry.pages.bytes());
            budget.unregister(entry.pages.bytes() * entry.rights.len());
            false
        });
    }

    /// Returns the position of `bytes` (not empty), if they lie in pages.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<Place> {
        let begin = bytes.as_ptr().addr();
        self.all.iter().enumerate().find_map(|(entry, it)| {
            let at = begin.checked_sub(it.pages.begin())?;
            let room = it.pages.bytes().checked_sub(at)?;
            (bytes.len() <= room).then_some(Place { entry, at })
        })
    }

    /// Lends the bytes there to the queue pairs of a domain, unless they cannot be registered.
    pub(super) fn lend(
        &mut self,
        Place { entry, at }: Place,
        pd: &Arc<Pd>,
        budget: &mut Budget,
    ) -> Option<Loan<'_>> {
        let right = self.all[entry].right(Use::Read, pd, budget)?;
        Some(Loan { right, at })
    }

    /// Lets the peer of the domain's queue pairs write there, maybe `in_any_order`. Returns the key
    /// to all of these pages, or nothing if they cannot be registered or there is no `Placement`.
    pub(super) fn open(
        &mut self,
        Place { entry, .. }: Place,
        pd: &Arc<Pd>,
        in_any_order: bool,
        budget: &mut Budget,
    ) -> Option<u32> {
        self.placement?;
        let right = self.all[entry].right(Use::Write { in_any_order }, pd, budget)?;
        Some(right.remote_key())
    }

    /// Deregisters all pages of a domain. When this returns, its device no longer accesses them.
    ///
    /// # Errors
    /// The device refuses. It may go on as long as the domain has a queue pair.
    pub(super) fn forget(&mut self, pd: &Arc<Pd>, budget: &mut Budget) -> io::Result<()> {
        let mut outcome = Ok(());
        for entry in &mut self.all {
            for (_, right) in entry.rights.extract_if(.., |(_, right)| right.is_of(pd)) {
                budget.unregister(entry.pages.bytes());
                let released = right.deregister();
                outcome = outcome.and(released);
            }
            entry.without.retain(|(_, it)| !Arc::ptr_eq(it, pd));
        }
        outcome
    }

    pub(super) fn costs(&self) -> Costs {
        let mut costs = Costs::default();
        for entry in &self.all {
            for (purpose, _) in &entry.rights {
                costs.bytes += entry.pages.bytes();
                match purpose {
                    Use::Read => costs.reads += 1,
                    Use::Write { .. } => costs.writes += 1,
                }
            }
        }
        costs
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.pages.is_idle(self.rights.len())
    }

    /// Returns the registration of these pages in a domain, which is made at the first use.
    fn right(&mut self, purpose: Use, pd: &Arc<Pd>, budget: &mut Budget) -> Option<&Mr> {
        let is_it = |(of, right): &(Use, Mr)| *of == purpose && right.is_of(pd);
        let known = match self.rights.iter().position(is_it) {
            Some(known) => known,
            None if self.without.iter().any(|it| it.0 == purpose && Arc::ptr_eq(&it.1, pd)) => {
                return None;
            }
            None => {
                match register(&self.pages, purpose, pd, budget) {
                    Ok(right) => self.rights.push((purpose, right)),
                    Err(why) => {
                        let bytes = self.pages.bytes();
                        tracing::info!(
                            "rdma: messages in pages of {bytes} bytes are copied: {why}"
                        );
                        self.without.push((purpose, Arc::clone(pd)));
                        return None;
                    }
                }
                self.rights.len() - 1
            }
        };
        Some(&self.rights[known].1)
    }
}

fn register(pages: &Known, purpose: Use, pd: &Arc<Pd>, budget: &mut Budget) -> Result<Mr, String> {
    budget.register_pages(pages.bytes())?;
    let right = match purpose {
        Use::Read => pages.register(pd),
        Use::Write { in_any_order } => pages.expose(pd, in_any_order),
    };
    right.map_err(|error| {
        budget.unregister(pages.bytes());
        diagnostics::registration(&error, pages.bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::settings::Settings;

    fn registry() -> (Registry, Budget) {
        (Registry::default(), Budget::new(&Settings::default(), 1))
    }

    #[test]
    fn pages_are_found_by_any_part_of_them() {
        let (mut registry, mut budget) = registry();
        let first = registry.make(8192, true, &mut budget).unwrap();
        let second = registry.make(4096, true, &mut budget).unwrap();
        let place = |entry, at| Some(Place { entry, at });
        assert_eq!(registry.find(first.front(8192)), place(0, 0));
        assert_eq!(registry.find(&first.front(8192)[100..]), place(0, 100));
        assert_eq!(registry.find(&second.front(4096)[4095..]), place(1, 4095));
        assert_eq!(registry.find(&[1, 2, 3]), None);
    }

    #[test]
    fn pages_that_nobody_has_serve_again_and_are_zero() {
        let (mut registry, mut budget) = registry();
        let mut first = registry.make(4096, true, &mut budget).unwrap();
        first.front_mut(4096).fill(7);
        let at = first.front(1).as_ptr();
        let other = registry.make(4096, true, &mut budget).unwrap();
        assert_ne!(other.front(1).as_ptr(), at, "somebody has it");
        drop(first);
        let again = registry.make(4096, true, &mut budget).unwrap();
        assert_eq!(again.front(1).as_ptr(), at);
        assert!(again.front(4096).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn idle_pages_are_bounded() {
        let (mut registry, mut budget) = registry();
        let kept = registry.make(4096, true, &mut budget).unwrap();
        for bytes in [RDMA_IDLE_BYTES / 2, RDMA_IDLE_BYTES / 4, RDMA_IDLE_BYTES / 2 + 4096] {
            drop(registry.make(bytes, true, &mut budget).unwrap());
        }
        let left: Vec<_> = registry.all.iter().map(|entry| entry.pages.bytes()).collect();
        assert_eq!(left, [4096, RDMA_IDLE_BYTES / 4, RDMA_IDLE_BYTES / 2 + 4096]);
        registry.trim(0, &mut budget);
        assert_eq!(registry.find(kept.front(1)), Some(Place { entry: 0, at: 0 }));
        assert_eq!(registry.all.len(), 1);
    }
}
