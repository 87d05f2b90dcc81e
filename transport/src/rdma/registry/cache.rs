//! The memory that all endpoints of a process share: pages, and callers' buffers that stay
//! registered. Nobody holds the lock while memory is zeroed, registered or unmapped.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ringfold_types::limits::{RDMA_IDLE_BYTES, RDMA_REGISTRATIONS_MAX};

use super::right::{Right, Use};
use crate::rdma::budget::Budget;
use crate::rdma::lock::lock;
use crate::rdma::sys::{Known, Mr, Pages, Pd, UserBuffer};

/// The memory that the endpoints of a process have made for callers, and that callers keep
/// registered.
#[derive(Debug, Default)]
pub(in crate::rdma) struct Cache {
    /// The entries, the oldest first.
    all: Mutex<Vec<Entry>>,
    /// The number of changes of the entries and of withdrawn registrations.
    version: AtomicU64,
    /// The number of endpoints that have used the cache.
    endpoints: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pages: Known,
    pub(super) rights: Vec<Right>,
    /// The domains in which registration has failed, and is not tried again for some uses.
    without: Vec<(Use, Arc<Pd>)>,
    pub(super) writers: Writers,
    /// The holders of the entry, if it is a caller's own buffer.
    pub(super) kept: Option<Weak<Kept>>,
}

/// A caller's own buffer that stays registered while somebody holds it: its caller, and the calls
/// that use it.
#[derive(Debug)]
pub(in crate::rdma) struct Kept {
    cache: Arc<Cache>,
}

/// The peers that may have been let write to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    Nobody,
    /// Only peers of the endpoint with this number.
    Of(u64),
    /// Peers of several endpoints, or of one that is gone.
    Unknown,
}

impl Cache {
    /// Counts an endpoint, and returns its number.
    pub(super) fn enter(&self) -> u64 {
        self.endpoints.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends the use by an endpoint. Late writes by its queue pairs must find nobody else's memory.
    pub(super) fn quit(&self, number: u64) {
        let mut all = self.entries();
        let written = all.iter_mut().filter(|entry| entry.writers == Writers::Of(number));
        written.for_each(|entry| entry.writers = Writers::Unknown);
        let taken = self.take_idle(&mut all, RDMA_IDLE_BYTES);
        drop(all);
        drop(taken);
    }

    /// The entries, the oldest first.
    pub(super) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        lock(&self.all)
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Makes zeroed pages. It reuses idle ones if no peer may still be writing there: the endpoint
    /// of that number tells by `may_reuse` whether none of its peers does.
    pub(super) fn make(&self, bytes: usize, number: u64, may_reuse: bool) -> io::Result<Pages> {
        let mut all = self.entries();
        let is_free = |writers| match writers {
            Writers::Nobody => true,
            Writers::Of(of) => of == number && may_reuse,
            Writers::Unknown => false,
        };
        for entry in &mut *all {
            if is_free(entry.writers)
                && entry.pages.bytes() == bytes
                && let Some(mut pages) = entry.pages.again(entry.rights.len())
            {
                entry.without.clear();
                self.changed();
                drop(all);
                pages.front_mut(bytes).fill(0);
                return Ok(pages);
            }
        }
        let taken = self.take_idle(&mut all, RDMA_IDLE_BYTES.saturating_sub(bytes));
        drop(all);
        drop(taken);
        let (pages, known) = Pages::new(bytes)?;
        self.add(Entry::new(known, Vec::new(), None));
        Ok(pages)
    }

    fn add(&self, entry: Entry) {
        self.entries().push(entry);
        self.changed();
    }

    /// Gives idle pages back to the system, the oldest first, until `most` bytes of them are left.
    /// Another endpoint that is at work on the cache does so in its turn.
    pub(super) fn trim(&self, most: usize) {
        let taken = self.all.try_lock().map(|mut all| self.take_idle(&mut all, most));
        drop(taken);
    }

    /// Takes idle pages out, the oldest first, until `most` bytes of them are left. The caller
    /// drops them without the lock, which gives them back to the system.
    fn take_idle(&self, all: &mut Vec<Entry>, most: usize) -> Vec<Entry> {
        let idle = |entry: &Entry| if entry.is_idle() { entry.pages.bytes() } else { 0 };
        let mut bytes: usize = all.iter().map(idle).sum();
        if bytes <= most {
            return Vec::new();
        }
        // Nobody may find the pages once their addresses can belong to others.
        self.changed();
        let taken = all.extract_if(.., |entry| {
            let is_taken = bytes > most && entry.is_idle();
            if is_taken {
                // Other pages may have become idle since they were counted.
                bytes = bytes.saturating_sub(entry.pages.bytes());
            }
            is_taken
        });
        taken.collect()
    }

    /// Registers a caller's buffer with these domains. The same buffer is registered once.
    ///
    /// # Errors
    /// No domain has it, for this reason.
    pub(super) fn keep(
        self: &Arc<Self>,
        buffer: UserBuffer,
        purpose: Use,
        domains: &[Arc<Pd>],
        budget: &Budget,
    ) -> Result<Arc<Kept>, String> {
        let memory = Known::lent(buffer);
        let is_same = |entry: &Entry| entry.is_at(memory.begin(), memory.bytes());
        let all = self.entries();
        let mut same = all.iter().filter(|entry| is_same(entry));
        if let Some(kept) = same.find_map(|entry| entry.kept.as_ref()?.upgrade()) {
            return Ok(kept);
        }
        if all.iter().filter(|entry| entry.kept.is_some()).count() >= RDMA_REGISTRATIONS_MAX {
            return Err(format!(
                "the process has {RDMA_REGISTRATIONS_MAX} registered buffers, which is the most"
            ));
        }
        drop(all);
        let (mut rights, mut refusal) = (Vec::new(), None);
        for pd in domains {
            match Right::new(&memory, purpose, pd, budget) {
                Ok(right) => rights.push(right),
                Err(why) => refusal = Some(why),
            }
        }
        if rights.is_empty() {
            return Err(refusal.unwrap_or_else(|| "every device is gone".to_owned()));
        }
        let kept = Arc::new(Kept { cache: Arc::clone(self) });
        self.add(Entry::new(memory, rights, Some(Arc::downgrade(&kept))));
        Ok(kept)
    }

    /// Returns the registration in a domain of the entry at that place. It is made unless it has
    /// failed. `writer` is the number of the endpoint. Its peers may write if that is the purpose.
    pub(super) fn right(
        &self,
        (begin, bytes): (usize, usize),
        purpose: Use,
        pd: &Arc<Pd>,
        budget: &Budget,
        writer: u64,
    ) -> Option<Arc<Mr>> {
        let is_it = |entry: &&mut Entry| entry.is_at(begin, bytes) && !entry.is_over();
        let mut all = self.entries();
        let mut entry = all.iter_mut().find(is_it)?;
        if entry.may_register(purpose, pd) {
            // Pages that somebody knows stay in the cache.
            let pages = entry.pages.clone();
            drop(all);
            let outcome = Right::new(&pages, purpose, pd, budget);
            all = self.entries();
            entry = all.iter_mut().find(is_it)?;
            entry.note(purpose, pd, outcome);
        }
        let right = entry.right(purpose, pd);
        if matches!(purpose, Use::Write { .. }) && right.is_some() {
            entry.writers.add(writer);
        }
        right
    }

    /// Forgets the registrations that have failed, so they are tried again.
    pub(super) fn retry(&self) {
        self.entries().iter_mut().for_each(|entry| entry.without.clear());
        self.changed();
    }

    /// Takes the registrations in a domain out. Those that nobody uses any more end.
    pub(in crate::rdma) fn leave(&self, pd: &Arc<Pd>) {
        let taken = self.withdraw(pd);
        let lent = taken.into_iter().filter(|right| right.mr.lent_bytes().is_some());
        // A device that refuses is in the log. It may go on reading.
        lent.for_each(|right| drop(right.end()));
    }

    /// Takes the registrations in a domain out.
    pub(super) fn withdraw(&self, pd: &Arc<Pd>) -> Vec<Right> {
        let mut taken = Vec::new();
        for entry in &mut *self.entries() {
            taken.extend(entry.rights.extract_if(.., |right| right.mr.is_of(pd)));
            entry.without.retain(|(_, it)| !Arc::ptr_eq(it, pd));
        }
        self.changed();
        taken
    }
}

impl Drop for Kept {
    /// Deregisters the buffer. When this returns, no device accesses it.
    fn drop(&mut self) {
        let is_it = |entry: &mut Entry| {
            entry.kept.as_ref().is_some_and(|kept| kept.as_ptr() == std::ptr::from_ref(self))
        };
        let mut all = self.cache.entries();
        let taken = Vec::from_iter(all.extract_if(.., is_it));
        // Nobody may find the buffer once its memory can belong to others.
        self.cache.changed();
        drop(all);
        // A device that refuses is in the log. It may go on reading.
        taken.into_iter().flat_map(|entry| entry.rights).for_each(|right| drop(right.end()));
    }
}

impl Writers {
    /// Adds the peers of an endpoint.
    pub(super) fn add(&mut self, number: u64) {
        *self = match *self {
            Self::Nobody => Self::Of(number),
            Self::Of(known) if known == number => Self::Of(number),
            _ => Self::Unknown,
        };
    }
}

impl Entry {
    const fn new(pages: Known, rights: Vec<Right>, kept: Option<Weak<Kept>>) -> Self {
        Self { pages, rights, without: Vec::new(), writers: Writers::Nobody, kept }
    }

    fn is_idle(&self) -> bool {
        self.pages.is_idle(self.rights.len())
    }

    fn is_at(&self, begin: usize, bytes: usize) -> bool {
        (self.pages.begin(), self.pages.bytes()) == (begin, bytes)
    }

    /// Returns whether the entry is a caller's buffer that nobody holds any more.
    pub(super) fn is_over(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.strong_count() == 0)
    }

    /// Returns the registration of these pages in a domain.
    fn right(&self, purpose: Use, pd: &Arc<Pd>) -> Option<Arc<Mr>> {
        let serves = |right: &&Right| {
            (right.purpose == purpose || purpose == Use::Read) && right.mr.is_of(pd)
        };
        self.rights.iter().find(serves).map(|right| Arc::clone(&right.mr))
    }

    /// Returns whether the pages are not registered in a domain, and that has not failed.
    fn may_register(&self, purpose: Use, pd: &Arc<Pd>) -> bool {
        let has_failed = |it: &(Use, Arc<Pd>)| it.0 == purpose && Arc::ptr_eq(&it.1, pd);
        self.right(purpose, pd).is_none() && !self.without.iter().any(has_failed)
    }

    /// Notes the outcome of a registration. Another endpoint may have made the same one meanwhile.
    fn note(&mut self, purpose: Use, pd: &Arc<Pd>, outcome: Result<Right, String>) {
        match outcome {
            Ok(_) if self.right(purpose, pd).is_some() => {}
            Ok(right) => self.rights.push(right),
            Err(why) => {
                let bytes = self.pages.bytes();
                tracing::info!("rdma: messages in pages of {bytes} bytes are copied: {why}");
                self.without.push((purpose, Arc::clone(pd)));
            }
        }
    }
}
