//! Memory that processes share: a file without a name, and the mapping of a part of it.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

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

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// A shared mapping of a part of a file. Others may map the same part and write to it at any time,
/// so it hands out no references, only a pointer that is valid while it lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on, which must be a multiple of the page size.
    /// The file must be as `sealed_memory` makes it: one that could be shrunk would let its owner
    /// kill us by a bus error.
    pub(crate) fn new(
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        access: Access,
    ) -> io::Result<Self> {
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
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing, and no
        // reference into it exists.
        let base =
            unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Makes sure that all pages are there, so that no access has to wait for one, or dies for want
    /// of memory. Large pages are asked for where they fit.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let advise = |advice| {
            // SAFETY: the range is this mapping, and neither advice changes what it holds.
            unsafe { madvise(self.base.as_ptr().cast(), self.bytes, advice) }
        };
        if self.bytes >= LARGE_PAGE_BYTES {
            // Refused where the system is set to have none.
            advise(Advice::LinuxHugepage).ok();
        }
        match advise(Advice::LinuxPopulateWrite) {
            // Before Linux 5.14: pages come when they are touched.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The first byte. Page-aligned; valid for `bytes()` bytes, for the access that was asked for,
    /// as long as `self` lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of a mapping that `new` made, and whoever holds a
        // pointer into it holds `self` as well.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

// SAFETY: a mapping belongs to the process, not to a thread; `base` is never used by its methods.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references give out nothing but the address.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let file = sealed_memory(c"ringfold-test", 3 * 65_536).unwrap();
        let one = Mapping::new(&file, 65_536, 65_536, Access::ReadWrite).unwrap();
        let other = Mapping::new(&file, 0, 3 * 65_536, Access::Read).unwrap();
        assert_eq!((one.bytes(), other.bytes()), (65_536, 3 * 65_536));
        // SAFETY: both lie within their mappings, and this thread is alone.
        unsafe {
            one.base().add(7).write(42);
            assert_eq!(other.base().add(65_536 + 7).read(), 42);
        }
    }

    #[test]
    fn what_is_unfit_is_refused() {
        let file = sealed_memory(c"ringfold-test", 65_536).unwrap();
        for (offset, bytes) in [(65_536, 1), (0, 65_537), (u64::MAX, 2), (0, 0)] {
            let error = Mapping::new(&file, offset, bytes, Access::Read).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        assert!(ftruncate(&file, 4096).is_err(), "shrunk");
        assert!(ftruncate(&file, 131_072).is_err(), "grown");
        let open = memfd_create(c"ringfold-test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 65_536).unwrap();
        assert!(Mapping::new(&open, 0, 65_536, Access::Read).is_err(), "can be shrunk");
    }
}
