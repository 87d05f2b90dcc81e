//! Memory of this process alone that devices may be given rights to: rings, and `Pages`, which
//! callers have for their buffers.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The smallest pages there are.
const PAGE_BYTES: usize = 4096;

/// Pages of this process, and of no child made by `fork`. Each has one owner, which reads and
/// writes them: a ring's half, or `Pages`.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

/// Memory of this rank's own, used like a boxed slice, where devices may read what is sent and
/// write what is received. A child process made by `fork` does not have it.
#[derive(Debug)]
pub struct Pages(Arc<Region>);

/// A promise about a transport: its callers allow peers to write messages straight into `Pages`.
/// Without it `recv` copies, and no peer gets the right to write there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement(());

/// Pages that were made, as the transport knows them, whoever has them.
#[derive(Debug)]
pub(crate) struct Known(Arc<Region>);

// SAFETY: the pages belong to the process; their owner's borrows say who uses them.
unsafe impl Send for Region {}
// SAFETY: shared references give out nothing but addresses.
unsafe impl Sync for Region {}
impl Region {
    /// Zeroed pages. They are not passed on to children, which could take them from the device.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Self { base, bytes };
        // SAFETY: the range is the mapping, and the advice does not change what it holds.
        unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(Arc::new(region))
    }

    /// The same, of which all pages are there now, so that the first messages need not wait for
    /// them.
    pub(crate) fn touched(bytes: usize) -> io::Result<Arc<Self>> {
        let region = Self::new(bytes)?;
        for at in (0..bytes).step_by(PAGE_BYTES) {
            // SAFETY: within the mapping, of which nobody else knows yet.
            unsafe { region.base.as_ptr().add(at).write_volatile(0) };
        }
        Ok(region)
    }

    /// Asks for large pages, of which a device remembers fewer.
    fn prefer_large_pages(&self) {
        // SAFETY: the range is the mapping, and the advice does not change what it holds.
        unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) }.ok();
    }

    /// Where they begin. Valid while the region lives.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where byte `at` lies, as the device knows it.
    pub(crate) fn address(&self, at: usize) -> u64 {
        assert!(at <= self.bytes, "byte {at} of {}", self.bytes);
        (self.base.as_ptr().addr() + at) as u64
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: made by `new`; whoever registered it held it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl Placement {
    /// Makes the promise.
    ///
    /// # Safety
    /// All callers of `recv` of this transport keep to this, where `dst` lies in `Pages`: Once
    /// `recv` was called, nobody accesses bytes of `dst` before `recv` says that they have arrived,
    /// or `withdraw` has returned. A caller that panics keeps the promise too. To drop the pages
    /// meanwhile is allowed: nobody else gets them.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Pages {
    /// Zeroed memory, and the transport's knowledge of it.
    pub(crate) fn new(bytes: usize) -> io::Result<(Self, Known)> {
        let region = Region::new(bytes)?;
        region.prefer_large_pages();
        Ok((Self(Arc::clone(&region)), Known(region)))
    }

    /// The first `bytes` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn front(&self, bytes: usize) -> &[u8] {
        assert!(bytes <= self.0.bytes, "{bytes} bytes of {}", self.0.bytes);
        // SAFETY: within the mapping, which lives as long as `self`, and which only unique borrows
        // of `self` write, and devices of peers. They get the right to only where a `Placement`
        // promises that nobody accesses what they were invited to write. A peer that knows the
        // job's secret and breaks the protocol changes bytes that are only ever read as bytes.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), bytes) }
    }

    /// Likewise, to be written.
    ///
    /// # Panics
    /// As `front`.
    pub fn front_mut(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.0.bytes, "{bytes} bytes of {}", self.0.bytes);
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), bytes) }
    }
}

impl Known {
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Where they begin.
    pub(crate) fn begin(&self) -> usize {
        self.0.base.as_ptr().addr()
    }

    /// The memory itself, to be registered.
    pub(crate) const fn region(&self) -> &Arc<Region> {
        &self.0
    }

    /// The pages again, all zero, if nobody has them any more and there are only these `rights` to
    /// them.
    pub(crate) fn again(&mut self, rights: usize) -> Option<Pages> {
        if !self.is_idle(rights) {
            return None;
        }
        // Whoever had them wrote to them before giving them up, maybe in another thread.
        fence(Ordering::Acquire);
        let mut pages = Pages(Arc::clone(&self.0));
        pages.front_mut(self.0.bytes).fill(0);
        Some(pages)
    }

    /// Whether nobody has them any more, where there are only these `rights` to them.
    pub(crate) fn is_idle(&self, rights: usize) -> bool {
        Arc::strong_count(&self.0) == 1 + rights
    }
}
