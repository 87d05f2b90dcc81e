//! Private memory of this process that devices may access: RDMA rings, and `Pages`, which callers
//! use for their buffers.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The smallest page size.
const PAGE_BYTES: usize = 4096;

/// Pages of this process, which its children made by `fork` do not have. Each region has one owner,
/// which reads and writes it: a half of a ring, or `Pages`.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// The memory belongs to a caller.
    is_lent: bool,
}

/// Memory of this rank, used like a boxed slice. A device may read messages from it and write
/// messages into it. A child process made by `fork` does not have it.
#[derive(Debug)]
pub struct Pages(Arc<Region>);

/// A promise about a transport: its callers let peers write messages straight into `Pages`. Without
/// it `recv` copies, and no peer gets the right to write there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement(());

/// A transport's record of pages that it has made, or of a caller's buffer.
#[derive(Clone, Debug)]
pub(crate) struct Known(Arc<Region>);

/// A caller's buffer, lent to devices for the time of a call.
#[derive(Clone, Copy, Debug)]
pub struct UserBuffer {
    base: NonNull<u8>,
    bytes: usize,
    is_written: bool,
}

// SAFETY: it gives out only the address.
unsafe impl Send for UserBuffer {}
// SAFETY: the pages belong to the process; the owner's borrows limit their use.
unsafe impl Send for Region {}
// SAFETY: shared references give out only addresses.
unsafe impl Sync for Region {}
impl Region {
    /// Makes zeroed pages. Children do not inherit them: copy-on-write in a child could move a page
    /// away from the device.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Self { base, bytes, is_lent: false };
        // SAFETY: the range is the mapping, and the advice does not change what it holds.
        unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(Arc::new(region))
    }

    /// As `new`, and touches every page, which spares the first messages the page faults. The pages
    /// are large ones where the system allows.
    pub(crate) fn touched(bytes: usize) -> io::Result<Arc<Self>> {
        let region = Self::new(bytes)?;
        region.prefer_large_pages();
        for at in (0..bytes).step_by(PAGE_BYTES) {
            // SAFETY: within the mapping, which no other code knows yet.
            unsafe { region.base.as_ptr().add(at).write_volatile(0) };
        }
        Ok(region)
    }

    /// Asks for large pages; a device needs fewer translations for them.
    fn prefer_large_pages(&self) {
        // SAFETY: the range is the mapping, and the advice does not change what it holds.
        unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) }.ok();
    }

    /// The address of the first byte. Valid while the region lives.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of byte `at`, as the device uses it.
    pub(crate) fn address(&self, at: usize) -> u64 {
        assert!(at <= self.bytes, "byte {at} of {}", self.bytes);
        (self.base.as_ptr().addr() + at) as u64
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the memory belongs to a caller.
    pub(crate) const fn is_lent(&self) -> bool {
        self.is_lent
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_lent {
            return;
        }
        // SAFETY: `new` made the mapping, and every registration of it holds an `Arc` of the
        // region.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl Placement {
    /// Makes the promise.
    ///
    /// # Safety
    /// All callers of `recv` and `expect` of this transport must keep this rule for a `dst` in
    /// `Pages`: after the call, nobody accesses bytes of `dst` until `recv` reports that they have
    /// arrived, or `withdraw` has returned. A caller that panics must keep it too. Such a caller
    /// may drop the pages meanwhile: the transport gives them to no one else.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl UserBuffer {
    /// Lends bytes that devices may read.
    ///
    /// # Safety
    /// Whenever the transport sends or receives in the buffer, nobody writes to it meanwhile. The
    /// borrow of a leased buffer must last until the transport has released it
    /// (`RegisteredMemory::release`).
    #[must_use]
    pub const unsafe fn input(bytes: &[u8]) -> Self {
        let base = NonNull::new(bytes.as_ptr().cast_mut()).expect("a slice is somewhere");
        Self { base, bytes: bytes.len(), is_written: false }
    }

    /// Lends bytes that devices may read, and peers write by a `Placement`.
    ///
    /// # Safety
    /// As `input`. The caller of `recv` and `expect` keeps the rule of `Placement::new` for the
    /// bytes.
    #[must_use]
    pub const unsafe fn output(bytes: &mut [u8]) -> Self {
        let base = NonNull::new(bytes.as_mut_ptr()).expect("a slice is somewhere");
        Self { base, bytes: bytes.len(), is_written: true }
    }

    /// Both buffers as one, if they lie side by side.
    pub(crate) fn join(self, other: Self) -> Option<Self> {
        let end = |it: Self| it.base.as_ptr().addr() + it.bytes;
        let first = if end(self) == other.base.as_ptr().addr() { self } else { other };
        let last = if first.base == self.base { other } else { self };
        let is_joined =
            self.is_written == other.is_written && end(first) == last.base.as_ptr().addr();
        is_joined.then_some(Self { bytes: first.bytes + last.bytes, ..first })
    }

    /// Returns whether devices may use this buffer as they may use the other.
    pub(crate) const fn serves(self, other: Self) -> bool {
        self.is_written || !other.is_written
    }

    pub(crate) const fn is_written(self) -> bool {
        self.is_written
    }

    /// The address of the first byte.
    pub(crate) fn begin(self) -> usize {
        self.base.as_ptr().addr()
    }

    pub(crate) const fn bytes(self) -> usize {
        self.bytes
    }
}

impl Pages {
    /// Makes zeroed memory, and the transport's record of it.
    pub(crate) fn new(bytes: usize) -> io::Result<(Self, Known)> {
        let region = Region::new(bytes)?;
        region.prefer_large_pages();
        Ok((Self(Arc::clone(&region)), Known(region)))
    }

    /// Lends the first `bytes` bytes for reading.
    ///
    /// # Panics
    /// If the memory is shorter.
    #[must_use]
    pub fn front(&self, bytes: usize) -> &[u8] {
        assert!(bytes <= self.0.bytes, "{bytes} bytes of {}", self.0.bytes);
        // SAFETY: within the mapping, which lives as long as `self`. Only unique borrows of `self`
        // write to it, and devices of peers. A peer gets the right to write only if a `Placement`
        // promises that nobody accesses the bytes meanwhile. A peer that knows the job's secret and
        // breaks the protocol changes bytes that are only ever read as bytes.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), bytes) }
    }

    /// Lends the first `bytes` bytes for writing.
    ///
    /// # Panics
    /// As `front`.
    pub fn front_mut(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.0.bytes, "{bytes} bytes of {}", self.0.bytes);
        // SAFETY: as in `front`, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), bytes) }
    }
}

impl Known {
    /// The record of a caller's buffer.
    pub(crate) fn lent(UserBuffer { base, bytes, .. }: UserBuffer) -> Self {
        Self(Arc::new(Region { base, bytes, is_lent: true }))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The address of the first byte.
    pub(crate) fn begin(&self) -> usize {
        self.0.base.as_ptr().addr()
    }

    /// The memory itself, for registration.
    pub(crate) const fn region(&self) -> &Arc<Region> {
        &self.0
    }

    /// Returns the pages for reuse, with their old content, if their user has dropped them and
    /// exactly `rights` registrations of them exist.
    pub(crate) fn again(&mut self, rights: usize) -> Option<Pages> {
        if !self.is_idle(rights) {
            return None;
        }
        // The last user may have written to them in another thread.
        fence(Ordering::Acquire);
        Some(Pages(Arc::clone(&self.0)))
    }

    /// Whether their user has dropped them and exactly `rights` registrations of them exist. A
    /// caller's buffer never is.
    pub(crate) fn is_idle(&self, rights: usize) -> bool {
        !self.0.is_lent && Arc::strong_count(&self.0) == 1 + rights
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;

    /// Bytes that have aligned large pages wherever they lie.
    const BYTES: usize = 8 << 20;

    /// Returns the KiB of large pages in the mapping of an address.
    fn large_kib(address: usize) -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bound = |text| usize::from_str_radix(text, 16);
            let Some((Ok(begin), Ok(end))) = range.map(|it| (bound(it.0), bound(it.1))) else {
                return true;
            };
            !(begin..end).contains(&address)
        });
        let found = lines.find_map(|line| line.strip_prefix("AnonHugePages:"));
        found.unwrap().trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// Devices translate addresses page by page, and keep few translations.
    #[test]
    fn touched_memory_has_large_pages_where_they_are_for_those_that_ask() {
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if !setting.is_ok_and(|setting| setting.contains("[madvise]")) {
            // Writes past the test harness, which captures printed output.
            let what =
                b"SKIPPED: large pages, which this system does not make for those that ask\n";
            return io::Write::write_all(&mut io::stderr(), what).unwrap();
        }
        let region = Region::touched(BYTES).unwrap();
        assert!(large_kib(region.base().as_ptr().addr()) > 0);
    }
}
