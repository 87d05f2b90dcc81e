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
//! there without a lock, until memory is made or given back. Nobody holds the lock of the cache
//! while memory is zeroed, registered or unmapped.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ringfold_types::limits::{
    RDMA_IDLE_BYTES, RDMA_LEASE_BYTES, RDMA_LEASE_MAX_BYTES, RDMA_REGISTRATIONS_MAX,
};

use super::budget::{Budget, Payment};
use super::diagnostics;
use super::lock::lock;
use super::sys::{Known, Mr, Pages, Pd, Placement, UserBuffer};

/// Leased buffers of one call. A send looks through all of them.
const LEASES_MAX: usize = 64;
/// Uses of memory that are copied after a refusal, before registration is tried again. The number
/// doubles each time.
const REFUSED_USES: u32 = 64;

/// The memory that the endpoints of a process have made for callers, and that callers keep
/// registered.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// The entries, the oldest first.
    all: Mutex<Vec<Entry>>,
    /// The number of changes of the entries and of withdrawn registrations.
    version: AtomicU64,
    /// The number of endpoints that have used the cache.
    endpoints: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    pages: Known,
    rights: Vec<Right>,
    /// The domains in which registration has failed, and is not tried again for some uses.
    without: Vec<(Use, Arc<Pd>)>,
    writers: Writers,
    /// The holders of the entry, if it is a caller's own buffer.
    kept: Option<Weak<Kept>>,
}

/// A caller's own buffer that stays registered while somebody holds it: its caller, and the calls
/// that use it.
#[derive(Debug)]
pub(super) struct Kept {
    cache: Arc<Cache>,
}

/// A registration, and the bytes that the process pays for it.
#[derive(Debug)]
struct Right {
    purpose: Use,
    mr: Arc<Mr>,
    _paid: Payment,
}

/// The peers that may have been let write to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    Nobody,
    /// Only peers of the endpoint with this number.
    Of(u64),
    /// Peers of several endpoints, or of one that is gone.
    Unknown,
}

/// The purpose of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Our device reads the bytes that are sent. Any registration serves.
    Read,
    /// The peer's device writes the bytes that are received, maybe in any order.
    Write { in_any_order: bool },
}

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
    leases: Vec<Lease>,
    /// The registered buffers of callers that the present call uses.
    held: Vec<Arc<Kept>>,
    /// Leased buffers of so many bytes cannot be registered, and no longer ones.
    refused: usize,
    /// Uses of memory that were copied since a registration was refused, and their most.
    copied: (u32, u32),
    /// The promise that allows peers to write to them.
    placement: Option<Placement>,
}

/// A caller's buffer.
#[derive(Debug)]
struct Lease {
    buffer: UserBuffer,
    memory: Known,
    purpose: Use,
    rights: Vec<Right>,
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

impl Cache {
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Takes idle pages out, the oldest first, until `most` bytes of them are left. The caller
    /// drops them without the lock, which gives them back to the system.
    fn trim(&self, all: &mut Vec<Entry>, most: usize) -> Vec<Entry> {
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

    /// Takes the registrations in a domain out. Those that nobody uses any more end.
    pub(super) fn leave(&self, pd: &Arc<Pd>) {
        let taken = self.withdraw(pd);
        let lent = taken.into_iter().filter(|right| right.mr.lent_bytes().is_some());
        // A device that refuses is in the log. It may go on reading.
        lent.for_each(|right| drop(right.end()));
    }

    fn withdraw(&self, pd: &Arc<Pd>) -> Vec<Right> {
        let mut taken = Vec::new();
        for entry in &mut *lock(&self.all) {
            taken.extend(entry.rights.extract_if(.., |right| right.mr.is_of(pd)));
            entry.without.retain(|(_, it)| !Arc::ptr_eq(it, pd));
        }
        self.changed();
        taken
    }
}

impl Registry {
    pub(super) fn new(cache: Arc<Cache>, placement: Option<Placement>) -> Self {
        let number = cache.endpoints.fetch_add(1, Ordering::Relaxed);
        let (all, leases, held) = (Vec::new(), Vec::new(), Vec::new());
        let (version, refused, copied) = (0, RDMA_LEASE_MAX_BYTES + 1, (0, REFUSED_USES));
        Self { cache, number, version, all, leases, held, refused, copied, placement }
    }

    /// Makes zeroed pages. It reuses idle ones if no peer may still be writing there: this endpoint
    /// tells by `may_reuse` whether none of its peers does.
    pub(super) fn make(&mut self, bytes: usize, may_reuse: bool) -> io::Result<Pages> {
        let mut all = lock(&self.cache.all);
        let is_free = |writers| match writers {
            Writers::Nobody => true,
            Writers::Of(number) => number == self.number && may_reuse,
            Writers::Unknown => false,
        };
        for entry in &mut *all {
            if is_free(entry.writers)
                && entry.pages.bytes() == bytes
                && let Some(mut pages) = entry.pages.again(entry.rights.len())
            {
                entry.without.clear();
                self.cache.changed();
                drop(all);
                pages.front_mut(bytes).fill(0);
                return Ok(pages);
            }
        }
        let taken = self.cache.trim(&mut all, RDMA_IDLE_BYTES.saturating_sub(bytes));
        drop(all);
        drop(taken);
        let (pages, known) = Pages::new(bytes)?;
        let (rights, without, writers) = (Vec::new(), Vec::new(), Writers::Nobody);
        let mut all = lock(&self.cache.all);
        all.push(Entry { pages: known, rights, without, writers, kept: None });
        self.cache.changed();
        Ok(pages)
    }

    /// Gives idle pages back to the system, the oldest first, until `most` bytes of them are left.
    /// Another endpoint that is at work on the cache does so in its turn.
    pub(super) fn trim(&self, most: usize) {
        let taken = self.cache.all.try_lock().map(|mut all| self.cache.trim(&mut all, most));
        drop(taken);
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
        let memory = Known::lent(buffer);
        let is_same = |entry: &Entry| {
            (entry.pages.begin(), entry.pages.bytes()) == (memory.begin(), memory.bytes())
        };
        let all = lock(&self.cache.all);
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
        let purpose = self.purpose(buffer, in_any_order);
        let (mut rights, mut refusal) = (Vec::new(), None);
        for pd in domains {
            match register(&memory, purpose, pd, budget) {
                Ok((mr, paid)) => rights.push(Right { purpose, mr, _paid: paid }),
                Err(why) => refusal = Some(why),
            }
        }
        if rights.is_empty() {
            return Err(refusal.unwrap_or_else(|| "every device is gone".to_owned()));
        }
        let kept = Arc::new(Kept { cache: Arc::clone(&self.cache) });
        let (without, writers, holders) =
            (Vec::new(), Writers::Nobody, Some(Arc::downgrade(&kept)));
        let entry = Entry { pages: memory, rights, without, writers, kept: holders };
        lock(&self.cache.all).push(entry);
        self.cache.changed();
        Ok(kept)
    }

    /// The purpose of the registration of a caller's buffer.
    fn purpose(&self, buffer: UserBuffer, in_any_order: bool) -> Use {
        let is_written = buffer.is_written() && self.placement.is_some();
        if is_written { Use::Write { in_any_order } } else { Use::Read }
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
        if buffer.bytes() < RDMA_LEASE_BYTES
            || place.is_some_and(|place| {
                !place.is_leased || self.leases[place.entry].buffer.serves(buffer)
            })
        {
            return;
        }
        let joined = self.leases.iter().enumerate().find_map(|(at, lease)| {
            let joined = lease.buffer.join(buffer)?;
            let may_join = lease.rights.is_empty() && joined.bytes() < self.refused;
            may_join.then_some((at, joined))
        });
        let buffer = match joined {
            Some((at, joined)) => {
                self.leases.swap_remove(at);
                joined
            }
            None if self.leases.len() == LEASES_MAX => return,
            None => buffer,
        };
        let memory = Known::lent(buffer);
        let purpose = self.purpose(buffer, in_any_order);
        if memory.bytes() < self.refused {
            self.leases.push(Lease { buffer, memory, purpose, rights: Vec::new() });
        } else if memory.bytes() <= RDMA_LEASE_MAX_BYTES {
            self.note_copy();
        }
    }

    /// Counts a use of memory whose registration was refused. After some uses it is tried again.
    fn note_copy(&mut self) {
        let (count, most) = self.copied;
        if count < most {
            self.copied.0 += 1;
            return;
        }
        self.copied = (0, most.saturating_mul(2));
        self.refused = RDMA_LEASE_MAX_BYTES + 1;
        lock(&self.cache.all).iter_mut().for_each(|entry| entry.without.clear());
        self.cache.changed();
    }

    /// Returns whether callers have lent buffers.
    pub(super) const fn is_leasing(&self) -> bool {
        !self.leases.is_empty() || !self.held.is_empty()
    }

    /// Gives leased buffers back. When this returns, no device accesses them.
    pub(super) fn release(&mut self) {
        for mut lease in self.leases.drain(..) {
            // A device that refuses is in the log. It may go on reading.
            lease.deregister(|_| true).ok();
        }
        self.held.clear();
    }

    /// Returns the position of `bytes` (not empty), if they lie in pages or a leased buffer.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<Place> {
        self.locate(bytes.as_ptr().addr(), bytes.len())
    }

    fn locate(&mut self, begin: usize, bytes: usize) -> Option<Place> {
        if self.version != self.cache.version.load(Ordering::Acquire) {
            self.look();
        }
        let position = |of: usize, all: usize| {
            let at = begin.checked_sub(of)?;
            (bytes <= all.checked_sub(at)?).then_some(at)
        };
        let leased = self.leases.iter().enumerate().find_map(|(entry, it)| {
            let at = position(it.memory.begin(), it.memory.bytes())?;
            Some(Place { is_leased: true, entry, at })
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
        let all = lock(&self.cache.all);
        self.version = self.cache.version.load(Ordering::Acquire);
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
            return self.lease_right(entry, purpose, pd, budget);
        }
        let view = &mut self.all[entry];
        let is_it = |it: &&(Use, Arc<Pd>, _)| it.0 == purpose && Arc::ptr_eq(&it.1, pd);
        if let Some((_, _, known)) = view.rights.iter().find(is_it) {
            let known = known.upgrade();
            if known.is_none() {
                self.note_copy();
            }
            return known;
        }
        let is_it = |it: &&mut Entry| {
            (it.pages.begin(), it.pages.bytes()) == (view.begin, view.bytes) && !it.is_over()
        };
        let mut all = lock(&self.cache.all);
        let mut entry = all.iter_mut().find(is_it)?;
        if entry.may_register(purpose, pd) {
            // Pages that somebody knows stay in the cache.
            let pages = entry.pages.clone();
            drop(all);
            let outcome = register(&pages, purpose, pd, budget);
            all = lock(&self.cache.all);
            entry = all.iter_mut().find(is_it)?;
            entry.note(purpose, pd, outcome);
        }
        let right = entry.right(purpose, pd);
        if matches!(purpose, Use::Write { .. }) && right.is_some() {
            entry.writers.add(self.number);
        }
        let known = right.as_ref().map_or_else(Weak::new, Arc::downgrade);
        view.rights.push((purpose, Arc::clone(pd), known));
        right
    }

    /// Returns the registration of a leased buffer in a domain, which is made at the first use and
    /// serves all uses. After a failure no buffer is registered that is as long, for some uses.
    fn lease_right(
        &mut self,
        entry: usize,
        purpose: Use,
        pd: &Arc<Pd>,
        budget: &Budget,
    ) -> Option<Arc<Mr>> {
        let lease = &mut self.leases[entry];
        if purpose != Use::Read && lease.purpose == Use::Read {
            return None;
        }
        if let Some(right) = lease.rights.iter().find(|right| right.mr.is_of(pd)) {
            return Some(Arc::clone(&right.mr));
        }
        let bytes = lease.memory.bytes();
        if bytes >= self.refused {
            return None;
        }
        match register(&lease.memory, lease.purpose, pd, budget) {
            Ok((mr, paid)) => {
                let (purpose, known) = (lease.purpose, Arc::clone(&mr));
                lease.rights.push(Right { purpose, mr: known, _paid: paid });
                Some(mr)
            }
            Err(why) => {
                tracing::info!("rdma: messages in buffers of {bytes} bytes are copied: {why}");
                self.refused = bytes;
                None
            }
        }
    }

    /// Deregisters all pages of a domain, which other endpoints may use too. When this returns, its
    /// device no longer accesses them.
    ///
    /// # Errors
    /// The device refuses. It may go on as long as the domain has a queue pair.
    pub(super) fn forget(&mut self, pd: &Arc<Pd>) -> io::Result<()> {
        let mut outcome = Ok(());
        for lease in &mut self.leases {
            let released = lease.deregister(|right| right.mr.is_of(pd));
            outcome = outcome.and(released);
        }
        for right in self.cache.withdraw(pd) {
            let released = right.end();
            outcome = outcome.and(released);
        }
        outcome
    }

    pub(super) fn costs(&self) -> Costs {
        let mut costs = Costs::default();
        let all = lock(&self.cache.all);
        let entries = all.iter().map(|entry| (&entry.pages, &entry.rights));
        for (memory, rights) in
            entries.chain(self.leases.iter().map(|lease| (&lease.memory, &lease.rights)))
        {
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
    /// Late writes by queue pairs of this endpoint must find nobody else's memory.
    fn drop(&mut self) {
        let mut all = lock(&self.cache.all);
        let written = all.iter_mut().filter(|entry| entry.writers == Writers::Of(self.number));
        written.for_each(|entry| entry.writers = Writers::Unknown);
        let taken = self.cache.trim(&mut all, RDMA_IDLE_BYTES);
        drop(all);
        drop(taken);
    }
}

impl Writers {
    /// Adds the peers of an endpoint.
    fn add(&mut self, number: u64) {
        *self = match *self {
            Self::Nobody => Self::Of(number),
            Self::Of(known) if known == number => Self::Of(number),
            _ => Self::Unknown,
        };
    }
}

impl Lease {
    /// Deregisters the buffer from some domains. When this returns, their devices no longer access
    /// it.
    ///
    /// # Errors
    /// A device that is gone has refused.
    fn deregister(&mut self, is_one: impl Fn(&Right) -> bool) -> io::Result<()> {
        let rights = self.rights.extract_if(.., |right| is_one(right));
        rights.map(Right::end).fold(Ok(()), io::Result::and)
    }
}

impl Right {
    /// Deregisters the memory.
    ///
    /// # Errors
    /// The device refuses. If the memory is a caller's own buffer, the device is gone.
    fn end(self) -> io::Result<()> {
        let (ended, lent) = (self.mr.deregister(), self.mr.lent_bytes());
        let (Err(error), Some(bytes)) = (&ended, lent) else { return ended };
        tracing::error!("rdma: a buffer of {bytes} bytes stays registered: {error}");
        let is_gone = error.raw_os_error() == Some(libc::EIO);
        if self.purpose != Use::Read && !is_gone {
            // Nothing else would keep peers from writing to memory that is given back.
            std::process::abort();
        }
        ended
    }
}

impl Drop for Kept {
    /// Deregisters the buffer. When this returns, no device accesses it.
    fn drop(&mut self) {
        let is_it = |entry: &mut Entry| {
            entry.kept.as_ref().is_some_and(|kept| kept.as_ptr() == std::ptr::from_ref(self))
        };
        let mut all = lock(&self.cache.all);
        let taken = Vec::from_iter(all.extract_if(.., is_it));
        // Nobody may find the buffer once its memory can belong to others.
        self.cache.changed();
        drop(all);
        // A device that refuses is in the log. It may go on reading.
        taken.into_iter().flat_map(|entry| entry.rights).for_each(|right| drop(right.end()));
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.pages.is_idle(self.rights.len())
    }

    /// Returns whether the entry is a caller's buffer that nobody holds any more.
    fn is_over(&self) -> bool {
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
    fn note(&mut self, purpose: Use, pd: &Arc<Pd>, outcome: Result<(Arc<Mr>, Payment), String>) {
        match outcome {
            Ok(_) if self.right(purpose, pd).is_some() => {}
            Ok((mr, paid)) => self.rights.push(Right { purpose, mr, _paid: paid }),
            Err(why) => {
                let bytes = self.pages.bytes();
                tracing::info!("rdma: messages in pages of {bytes} bytes are copied: {why}");
                self.without.push((purpose, Arc::clone(pd)));
            }
        }
    }
}

fn register(
    pages: &Known,
    purpose: Use,
    pd: &Arc<Pd>,
    budget: &Budget,
) -> Result<(Arc<Mr>, Payment), String> {
    let paid = budget.register_pages(pages.bytes())?;
    let right = match purpose {
        Use::Read => pages.register(pd),
        Use::Write { in_any_order } => pages.expose(pd, in_any_order),
    };
    let right = right.map_err(|error| diagnostics::registration(&error, pages.bytes()))?;
    Ok((Arc::new(right), paid))
}

#[cfg(test)]
mod tests {
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
        let [mut registry, mut other] = registries();
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
        let [mut registry, mut other] = registries();
        let pages = registry.make(4096, true).unwrap();
        let at = pages.front(1).as_ptr();
        lock(&registry.cache.all)[0].writers.add(registry.number);
        drop(pages);
        let is_again = |registry: &mut Registry, may| {
            registry.make(4096, may).unwrap().front(1).as_ptr() == at
        };
        assert!(!is_again(&mut other, true) && !is_again(&mut registry, false));
        assert!(is_again(&mut registry, true));
        drop(registry);
        assert!(!is_again(&mut other, true));
    }

    #[test]
    fn idle_pages_are_bounded() {
        let [mut registry, _] = registries();
        let kept = registry.make(4096, true).unwrap();
        for bytes in [RDMA_IDLE_BYTES / 2, RDMA_IDLE_BYTES / 4, RDMA_IDLE_BYTES / 2 + 4096] {
            drop(registry.make(bytes, true).unwrap());
        }
        let left = |registry: &Registry| {
            lock(&registry.cache.all).iter().map(|entry| entry.pages.bytes()).collect::<Vec<_>>()
        };
        assert_eq!(left(&registry), [4096, RDMA_IDLE_BYTES / 4, RDMA_IDLE_BYTES / 2 + 4096]);
        registry.trim(0);
        assert_eq!(registry.find(kept.front(1)), Some(Place { is_leased: false, entry: 0, at: 0 }));
        assert_eq!(left(&registry), [4096]);
    }
}
