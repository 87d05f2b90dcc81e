//! Memory that processes share: a file without a name, and mappings of parts of it.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

/// Makes a file of `bytes` zero bytes that exists in memory only and has no name. Nobody can shrink
/// or grow it. A page of it exists once a process touches the page. `name` appears in
/// `/proc/*/maps`.
pub(crate) fn sealed_memory(name: &CStr, bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let bytes = u64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Bytes of a large page on x86-64, and usually on AArch64.
const LARGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// `MADV_COLLAPSE` of Linux 6.1: turns small pages into large ones at once.
const COLLAPSE: libc::c_int = 25;

/// A shared mapping of a part of a file. Other processes may map the same part and write to it at
/// any time. So a mapping hands out no references, only a pointer that is valid while it lives.
///
/// A mapping that is long enough is placed for large pages: its address and its file offset are
/// equal modulo the size of a large page.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// The reserved addresses of the mapping and around it.
    kept: Arc<Addresses>,
    _lease: Option<Arc<dyn Lease>>,
}

/// A resource that a part of a mapping keeps alive.
pub(crate) trait Lease: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {}

/// Reserved addresses, where no other code maps anything. The drop unmaps them and all that is
/// mapped there.
#[derive(Debug)]
struct Addresses {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on, which must be a multiple of the page size.
    /// The file must be one that `sealed_memory` made: the owner of a file that can shrink could
    /// kill this process by a bus error.
    pub(crate) fn new(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let file = file.as_fd();
        let unfit = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return unfit("shared memory that can be shrunk");
        }
        let size = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        let end = u64::try_from(bytes).ok().and_then(|bytes| offset.checked_add(bytes));
        if bytes == 0 || end.is_none_or(|end| end > size) {
            return unfit("shared memory that is too small");
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (kept, base) = Addresses::keep(offset, bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is within `kept`, which no other code knows and which holds nothing.
        unsafe { mmap(base.as_ptr().cast(), bytes, protection, flags, file, offset) }?;
        Ok(Self { base, bytes, kept: Arc::new(kept), _lease: None })
    }

    /// Returns the part `range` as a mapping of its own, which keeps `lease` and the addresses
    /// alive. The range begins at a multiple of the page size.
    pub(crate) fn part(&self, range: Range<usize>, lease: Arc<dyn Lease>) -> Self {
        assert!(range.start < range.end && range.end <= self.bytes, "{range:?}");
        // SAFETY: within this mapping, and the part keeps its addresses too.
        let base = unsafe { self.base.add(range.start) };
        Self { base, bytes: range.len(), kept: Arc::clone(&self.kept), _lease: Some(lease) }
    }

    /// Ensures that the pages of `range` exist.
    pub(crate) fn make(&self, range: Range<usize>) -> io::Result<()> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = range.start - range.start % page;
        match self.advise(start..range.end, libc::MADV_POPULATE_WRITE) {
            // Linux before 5.14 lacks the advice: pages then come when they are touched.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes all pages of an unused `range` that begins at a multiple of the large page size, with
    /// large pages where they fit. The system setting `shmem_enabled` is often `never`, and then
    /// shared memory gets no large pages by itself. An explicit request still works, unless the
    /// setting is `deny`.
    pub(crate) fn make_pages(&self, range: Range<usize>) -> io::Result<()> {
        let large = range.len() / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        let large = range.start..range.start + large;
        self.wish_large(range.clone());
        for at in large.clone().step_by(LARGE_PAGE_BYTES) {
            // The system needs one small page to make a large one of. `make` reports a lack of
            // memory.
            self.advise(at..at + 1, libc::MADV_POPULATE_WRITE).ok();
        }
        if !large.is_empty() {
            // If the system refuses, does not know the request, or has only scattered memory, pages
            // stay small.
            self.advise(large, COLLAPSE).ok();
        }
        self.make(range)
    }

    /// Ensures that all pages exist. Then no access waits for a page, and none kills the process
    /// for lack of memory. Existing pages keep their size; the system is asked to make missing ones
    /// large.
    pub(crate) fn populate(&self) -> io::Result<()> {
        self.wish_large(0..self.bytes);
        self.make(0..self.bytes)
    }

    /// Asks for large pages for all pages of `range` that the system makes from now on.
    fn wish_large(&self, range: Range<usize>) {
        if range.len() >= LARGE_PAGE_BYTES {
            // Fails if the system is configured without large pages.
            self.advise(range, libc::MADV_HUGEPAGE).ok();
        }
    }

    /// Replaces the mapping by private memory with the same bytes, at the same addresses. It
    /// replaces whole pages, so no other data may lie in the last one. After that only this process
    /// has the bytes; other processes keep the file. Threads of this process may read meanwhile.
    ///
    /// # Errors
    /// The system lacks memory. The mapping may be gone then: the caller must lend none of it any
    /// more, and an access by an older loan kills this process.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        let (both, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // The system maps whole pages, and so whole words.
        let bytes = self.bytes.next_multiple_of(size_of::<u64>());
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let copy = unsafe { mmap_anonymous(ptr::null_mut(), bytes, both, flags) }?;
        let fill = || {
            // SAFETY: the fresh mapping, which no other code knows.
            if unsafe { libc::madvise(copy, bytes, libc::MADV_POPULATE_WRITE) } != 0 {
                let error = io::Error::last_os_error();
                // Linux before 5.14 lacks the advice: pages then come when they are touched.
                if error.kind() != io::ErrorKind::InvalidInput {
                    return Err(error);
                }
            }
            let words = bytes / size_of::<u64>();
            // SAFETY: the pages of this mapping, which is page-aligned. Only other processes write
            // there at the same time, and one atomic load reads each word.
            let from =
                unsafe { slice::from_raw_parts(self.base.as_ptr().cast::<AtomicU64>(), words) };
            // SAFETY: the fresh mapping, which is page-aligned, equally long, and zeroed.
            let into = unsafe { slice::from_raw_parts_mut(copy.cast::<u64>(), words) };
            for (into, from) in into.iter_mut().zip(from) {
                *into = from.load(Ordering::Relaxed);
            }
            let base = self.base.as_ptr().cast();
            // SAFETY: the source is the fresh mapping, which no code uses from now on. The
            // destination is within `kept` and holds the same bytes before and after. One system
            // call replaces it, so references into it stay valid.
            let moved = unsafe { mremap_fixed(copy, bytes, bytes, MremapFlags::MAYMOVE, base) };
            moved.map(drop).inspect_err(|_| {
                // The system may have removed the old mapping before it failed. A reservation keeps
                // other code away from these addresses while `kept` lives.
                let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
                // SAFETY: within `kept`; the old contents are lost, see `Errors`.
                let kept = unsafe { mmap_anonymous(base, bytes, ProtFlags::empty(), flags) };
                debug_assert!(kept.is_ok(), "{kept:?}");
            })?;
            Ok(())
        };
        let moved = fill();
        if moved.is_err() {
            // SAFETY: the fresh mapping, which no other code knows and which was not moved.
            let unmapped = unsafe { munmap(copy, bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
        moved
    }

    /// Advises the system about the pages of `range`. The advice must not change their contents.
    fn advise(&self, range: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?}");
        // SAFETY: the range is within this mapping, and none of the advices above changes the
        // contents of memory.
        let told = unsafe {
            libc::madvise(self.base.as_ptr().add(range.start).cast(), range.len(), advice)
        };
        if told == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The address of the first byte: page-aligned, and valid for reads and writes of `bytes()`
    /// bytes while `self` lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Addresses {
    /// Reserves addresses for `bytes` bytes of a file from `offset` on. Also returns the address
    /// for the file's first byte that allows large pages.
    fn keep(offset: u64, bytes: usize) -> io::Result<(Self, NonNull<u8>)> {
        let spare = if bytes < LARGE_PAGE_BYTES { 0 } else { LARGE_PAGE_BYTES };
        let bytes = bytes + spare;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let kept = Self { start, bytes };
        let ahead = usize::try_from(offset % LARGE_PAGE_BYTES as u64)
            .unwrap_or(0)
            .wrapping_sub(start.addr().get())
            % LARGE_PAGE_BYTES;
        // SAFETY: `ahead` is less than `spare`, or there is no spare and `ahead` is unused.
        let place = if spare == 0 { start } else { unsafe { start.add(ahead) } };
        Ok((kept, place))
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are those of a mapping that `keep` made, and every holder of
        // a pointer into it also holds an `Arc` of `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

// SAFETY: addresses belong to the process, not to a thread; the only operation on them is to unmap.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

// SAFETY: a mapping belongs to the process, not to a thread; its methods only advise the system
// about its pages.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references give out only the address.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests;
