//! Memory that processes share: a file without a name, and the mapping of a part of it.
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

/// A file of `bytes` zero bytes that exists in memory only, has no name, and can be neither shrunk
/// nor grown by anyone. Its pages exist once they are touched. `name` is for `/proc/*/maps`.
pub(crate) fn sealed_memory(name: &CStr, bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let bytes = u64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Bytes of a large page, on x86-64 and as a rule on AArch64.
const LARGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// `MADV_COLLAPSE`, of Linux 6.1: makes large pages of small ones, now.
const COLLAPSE: libc::c_int = 25;

/// A shared mapping of a part of a file. Others may map the same part and write to it at any time,
/// so it hands out no references, only a pointer that is valid while it lives.
///
/// Where it is long enough, it lies so that it can have the file's large pages: as far from a
/// multiple of their size as in the file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Its addresses, and others around them.
    kept: Arc<Addresses>,
    _lease: Option<Arc<dyn Lease>>,
}

/// A thing that a part of a mapping keeps alive besides.
pub(crate) trait Lease: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {}

/// Addresses to which nobody else maps anything, until dropped: then what is mapped there ends.
#[derive(Debug)]
struct Addresses {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on, which must be a multiple of the page size.
    /// The file must be as `sealed_memory` makes it: one that could be shrunk would let its owner
    /// kill us by a bus error.
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
        // SAFETY: the range is within `kept`, of which nobody else knows and which holds nothing.
        unsafe { mmap(base.as_ptr().cast(), bytes, protection, flags, file, offset) }?;
        Ok(Self { base, bytes, kept: Arc::new(kept), _lease: None })
    }

    /// The part `range` of it, as a mapping of its own that keeps `lease` besides its addresses.
    /// The range begins at a multiple of the page size.
    pub(crate) fn part(&self, range: Range<usize>, lease: Arc<dyn Lease>) -> Self {
        assert!(range.start < range.end && range.end <= self.bytes, "{range:?}");
        // SAFETY: within this mapping, whose addresses the part keeps too.
        let base = unsafe { self.base.add(range.start) };
        Self { base, bytes: range.len(), kept: Arc::clone(&self.kept), _lease: Some(lease) }
    }

    /// Makes sure that the pages of `range` are there, as `populate` does for all.
    pub(crate) fn make(&self, range: Range<usize>) -> io::Result<()> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = range.start - range.start % page;
        match self.advise(start..range.end, libc::MADV_POPULATE_WRITE) {
            // Before Linux 5.14: pages come when they are touched.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes all pages of a `range` that nobody has used, which begins where a large page can:
    /// large ones where they fit. A system that gives these to no shared memory by itself
    /// (`shmem_enabled`, which most distributions leave at `never`) does so all the same when it is
    /// told to, unless that is `deny`.
    pub(crate) fn make_pages(&self, range: Range<usize>) -> io::Result<()> {
        let large = range.len() / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        let large = range.start..range.start + large;
        self.wish_large(range.clone());
        for at in large.clone().step_by(LARGE_PAGE_BYTES) {
            // A small one in each, without which there is nothing to make it of. If there is no
            // memory for it, `make` says so.
            self.advise(at..at + 1, libc::MADV_POPULATE_WRITE).ok();
        }
        if !large.is_empty() {
            // Where this is refused or unknown, or memory is too scattered, pages are small.
            self.advise(large, COLLAPSE).ok();
        }
        self.make(range)
    }

    /// Makes sure that all pages are there, so that no access has to wait for one, or dies for want
    /// of memory. They are as large as the file's; the system is asked to make large ones of those
    /// that it lacks.
    pub(crate) fn populate(&self) -> io::Result<()> {
        self.wish_large(0..self.bytes);
        self.make(0..self.bytes)
    }

    /// Asks for large pages wherever the system makes some from now on.
    fn wish_large(&self, range: Range<usize>) {
        if range.len() >= LARGE_PAGE_BYTES {
            // Refused where the system is set to have none.
            self.advise(range, libc::MADV_HUGEPAGE).ok();
        }
    }

    /// Puts private memory with the same bytes in place of the file's, at the same addresses. It
    /// takes whole pages, so nothing else may lie in the last one. From then on this process has
    /// the bytes for itself: other processes keep the file. Threads of this process may read
    /// meanwhile.
    ///
    /// # Errors
    /// The system has no memory for it. The mapping may be gone then: the caller lends nothing of
    /// it any more, and an access to bytes that were lent before ends this process.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        let (both, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // The system maps whole pages, and so whole words.
        let bytes = self.bytes.next_multiple_of(size_of::<u64>());
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let copy = unsafe { mmap_anonymous(ptr::null_mut(), bytes, both, flags) }?;
        let fill = || {
            // SAFETY: the fresh mapping, of which nobody else knows.
            if unsafe { libc::madvise(copy, bytes, libc::MADV_POPULATE_WRITE) } != 0 {
                let error = io::Error::last_os_error();
                // Before Linux 5.14: pages come when they are touched.
                if error.kind() != io::ErrorKind::InvalidInput {
                    return Err(error);
                }
            }
            let words = bytes / size_of::<u64>();
            // SAFETY: the pages of this mapping, which is page-aligned. Only other processes write
            // there at the same time, and each word is read by one atomic load.
            let from =
                unsafe { slice::from_raw_parts(self.base.as_ptr().cast::<AtomicU64>(), words) };
            // SAFETY: the fresh mapping, which is page-aligned, as long, and zeroed.
            let into = unsafe { slice::from_raw_parts_mut(copy.cast::<u64>(), words) };
            for (into, from) in into.iter_mut().zip(from) {
                *into = from.load(Ordering::Relaxed);
            }
            let base = self.base.as_ptr().cast();
            // SAFETY: the old place is the fresh mapping, which nobody uses from now on. The new
            // one is within `kept`, holds the same bytes before and after, and is replaced by one
            // call of the kernel, so that references into it stay valid.
            let moved = unsafe { mremap_fixed(copy, bytes, bytes, MremapFlags::MAYMOVE, base) };
            moved.map(drop).inspect_err(|_| {
                // The system may have taken the old mapping away before it failed. Nobody else
                // shall get the addresses as long as they are kept.
                let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
                // SAFETY: within `kept`; the old contents are given up, see `Errors`.
                let kept = unsafe { mmap_anonymous(base, bytes, ProtFlags::empty(), flags) };
                debug_assert!(kept.is_ok(), "{kept:?}");
            })?;
            Ok(())
        };
        let moved = fill();
        if moved.is_err() {
            // SAFETY: the fresh mapping, which nobody else knows and which was not moved.
            let unmapped = unsafe { munmap(copy, bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
        moved
    }

    /// Tells the system about the pages of `range`. The advice must change nothing that they hold.
    fn advise(&self, range: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?}");
        // SAFETY: the range is within this mapping, and of the advices above none changes what
        // memory holds.
        let told = unsafe {
            libc::madvise(self.base.as_ptr().add(range.start).cast(), range.len(), advice)
        };
        if told == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The first byte. Page-aligned; valid for `bytes()` bytes, to be read and written, as long as
    /// `self` lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Addresses {
    /// Some for `bytes` bytes of a file from `offset` on, and where among them these should lie to
    /// have its large pages.
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
        // SAFETY: `ahead` is less than `spare`, or there is none and it counts for nothing.
        let place = if spare == 0 { start } else { unsafe { start.add(ahead) } };
        Ok((kept, place))
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are those of a mapping that `keep` made, and whoever holds a
        // pointer into it holds an `Arc` of `self` as well.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

// SAFETY: addresses belong to the process, not to a thread; nothing is done with them but to unmap.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

// SAFETY: a mapping belongs to the process, not to a thread; its methods tell the system about
// its pages, no more.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references give out nothing but the address.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests;
