//! Memory that devices read and write.

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi;
use super::device::{Context, check};
use crate::sys::{Known, Region};

/// A protection domain: queue pairs access only memory of their own domain.
pub(in crate::rdma) struct Pd {
    raw: NonNull<abi::Pd>,
    context: Context,
}

/// Memory that a peer writes and this rank reads.
#[derive(Debug)]
pub(in crate::rdma) struct Inbox(Arc<Region>);

/// Memory that this rank writes and the device reads.
#[derive(Debug)]
pub(in crate::rdma) struct Outbox(Arc<Region>);

/// The registration of a region in one protection domain.
pub(in crate::rdma) struct Mr {
    raw: NonNull<abi::Mr>,
    pd: Arc<Pd>,
    /// The region, which is unmapped only after the deregistration.
    region: Arc<Region>,
    local_key: u32,
    remote_key: u32,
    /// The device was asked to deregister.
    is_gone: AtomicBool,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}
// SAFETY: as for the domain.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Pd {
    pub(in crate::rdma) fn new(context: &Context) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library().alloc_pd)(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { raw, context: context.clone() }))
    }

    pub(super) fn raw(&self) -> *mut abi::Pd {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: every object of the domain held it, and is gone.
        unsafe { (self.context.library().dealloc_pd)(self.raw()) };
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pd({})", self.context.name())
    }
}

impl Inbox {
    pub(in crate::rdma) fn new(bytes: usize) -> io::Result<Self> {
        Region::touched(bytes).map(Self)
    }

    /// Lets the peers of the domain's queue pairs write all of it. With `in_any_order` the device
    /// may put their writes in place in any order, but never over iWARP. Completions still come
    /// after the writes, since completions are never relaxed. Pins the pages.
    pub(in crate::rdma) fn expose(&self, pd: &Arc<Pd>, in_any_order: bool) -> io::Result<Mr> {
        Mr::new(pd, &self.0, write_access(pd, in_any_order))
    }

    /// As `expose`, and over iWARP lets the peers read it too, and the device read into it, which
    /// takes all rights there.
    pub(in crate::rdma) fn expose_to_questions(&self, pd: &Arc<Pd>) -> io::Result<Mr> {
        let read = if pd.context.is_iwarp() { abi::ACCESS_REMOTE_READ } else { 0 };
        Mr::new(pd, &self.0, write_access(pd, false) | read)
    }

    /// The address that peers use.
    pub(in crate::rdma) fn address(&self) -> u64 {
        self.0.address(0)
    }

    /// Reads the present content. The read is not repeated if the peer changes it.
    pub(in crate::rdma) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at <= self.0.bytes() && N <= self.0.bytes() - at, "{N} bytes at {at}");
        // SAFETY: within the mapping, which lives as long as `self`. Every value is valid for
        // bytes. The read is volatile, so the compiler does not repeat it.
        unsafe { self.0.base().as_ptr().add(at).cast::<[u8; N]>().read_volatile() }
    }

    /// Stores bytes at byte `at`, as a device would.
    pub(in crate::rdma) fn store(&mut self, at: usize, from: &[u8]) {
        let end = at.checked_add(from.len());
        assert!(end.is_some_and(|end| end <= self.0.bytes()), "{} bytes at {at}", from.len());
        // SAFETY: within the mapping by the assertion. Nothing of it is lent while `self` is
        // borrowed uniquely, so `from` is no part of it.
        unsafe { crate::sys::copy_bytes(from.as_ptr(), self.0.base().as_ptr().add(at), from.len()) }
    }

    /// Lends the bytes of the range. The peer was told when it may write there. If it writes at
    /// other times, it changes bytes that are only ever read as bytes, as in `shm`.
    pub(in crate::rdma) fn lend(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.0.bytes(), "{range:?}");
        // SAFETY: within the mapping, which lives as long as `self`. We never write to it, all of
        // it is readable, and every value is valid for a byte.
        unsafe { std::slice::from_raw_parts(self.0.base().as_ptr().add(range.start), range.len()) }
    }
}

impl Outbox {
    pub(in crate::rdma) fn new(bytes: usize) -> io::Result<Self> {
        Region::touched(bytes).map(Self)
    }

    /// Lets the device read it for the domain's queue pairs. Pins the pages.
    pub(in crate::rdma) fn register(&self, pd: &Arc<Pd>) -> io::Result<Mr> {
        Mr::new(pd, &self.0, 0)
    }

    /// Lends the bytes of the range, as the device reads them.
    pub(in crate::rdma) fn lend(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.0.bytes(), "{range:?}");
        // SAFETY: within the mapping, which lives as long as `self` and is written by unique
        // borrows of `self` only. Every value is valid for a byte.
        unsafe { std::slice::from_raw_parts(self.0.base().as_ptr().add(range.start), range.len()) }
    }

    /// Copies `from` to byte `at`. The device may be reading there only if its result no longer
    /// matters.
    pub(in crate::rdma) fn write(&mut self, at: usize, from: &[u8]) {
        let end = at.checked_add(from.len());
        assert!(end.is_some_and(|end| end <= self.0.bytes()), "{} bytes at {at}", from.len());
        // SAFETY: within the mapping by the assertion. Nothing of it is lent while `self` is
        // borrowed uniquely, so `from` is no part of it, and `self` is the only way to write.
        unsafe { crate::sys::copy_bytes(from.as_ptr(), self.0.base().as_ptr().add(at), from.len()) }
    }
}

impl Known {
    /// Lets the device read the pages for the domain's queue pairs. Pins them.
    pub(in crate::rdma) fn register(&self, pd: &Arc<Pd>) -> io::Result<Mr> {
        Mr::new(pd, self.region(), 0)
    }

    /// Lets the peers of the domain's queue pairs write all of the pages, as `Inbox::expose` does.
    /// Peers learn the address only in `recv` or `expect`, whose rule a `Placement` promises. A
    /// peer that writes at other times breaks the protocol. Pins the pages.
    pub(in crate::rdma) fn expose(&self, pd: &Arc<Pd>, in_any_order: bool) -> io::Result<Mr> {
        Mr::new(pd, self.region(), write_access(pd, in_any_order))
    }
}

/// The access flags that let a peer write, and nothing else.
fn write_access(pd: &Arc<Pd>, in_any_order: bool) -> i32 {
    let is_relaxed = in_any_order && !pd.context.is_iwarp();
    let relaxed = if is_relaxed { abi::ACCESS_RELAXED_ORDERING } else { 0 };
    abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE | relaxed
}

impl Mr {
    fn new(pd: &Arc<Pd>, region: &Arc<Region>, access: i32) -> io::Result<Self> {
        let (base, at) = (region.base().as_ptr().cast(), region.address(0));
        let (register, access) = (pd.context.library().reg_mr, access.cast_unsigned());
        // SAFETY: the domain lives, and the range is mapped until after the deregistration.
        let raw = unsafe { register(pd.raw(), base, region.bytes(), at, access) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: just registered.
        let (local_key, remote_key) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        let (pd, region) = (Arc::clone(pd), Arc::clone(region));
        Ok(Self { raw, pd, region, local_key, remote_key, is_gone: AtomicBool::new(false) })
    }

    pub(super) const fn local_key(&self) -> u32 {
        self.local_key
    }

    /// The key that the peer needs to write.
    pub(in crate::rdma) const fn remote_key(&self) -> u32 {
        self.remote_key
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// The address that peers use for byte `at` of the memory.
    pub(in crate::rdma) fn address(&self, at: usize) -> u64 {
        self.region.address(at)
    }

    /// The length of the memory, if it is a caller's own buffer.
    pub(in crate::rdma) fn lent_bytes(&self) -> Option<usize> {
        self.region.is_lent().then(|| self.region.bytes())
    }

    /// Returns whether the registration is in that domain.
    pub(in crate::rdma) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }
}

impl Mr {
    /// Deregisters. When this returns, the device no longer accesses the memory by this
    /// registration, and work that names it fails.
    ///
    /// # Errors
    /// The device refuses, and may go on. The memory is leaked, so nobody uses it again.
    pub(in crate::rdma) fn deregister(&self) -> io::Result<()> {
        if self.is_gone.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: registered by `new`, and this is the only access to it after that.
        let released = check(unsafe { (self.pd.context.library().dereg_mr)(self.raw.as_ptr()) });
        if released.is_err() {
            std::mem::forget((Arc::clone(&self.pd), Arc::clone(&self.region)));
        }
        released
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if let Err(error) = self.deregister() {
            tracing::warn!("rdma: {self:?} cannot be deregistered: {error}; see `dmesg`");
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr").field("region", &self.region).finish_non_exhaustive()
    }
}
