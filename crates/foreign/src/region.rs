//! Bytes at an address.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::null_mut;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// The reason why bytes at an address cannot be memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// They exceed the address space.
    TooLong,
    /// They have no address.
    Null,
}

/// Bytes of the caller, whose bounds were checked. They are not accessed before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: an address belongs to no thread. Only the contracts of `slice` and `slice_mut` give
// access to the bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// No bytes.
    pub const EMPTY: Self = Self { start: null_mut(), bytes: 0 };

    /// Checks the bounds of `bytes` bytes.
    ///
    /// # Errors
    /// The bytes exceed the address space, or have no address.
    #[inline]
    pub fn new(start: *mut u8, bytes: usize) -> Result<Self, Unfit> {
        if isize::try_from(bytes).is_err() || start.addr().checked_add(bytes).is_none() {
            return Err(Unfit::TooLong);
        }
        if bytes > 0 && start.is_null() { Err(Unfit::Null) } else { Ok(Self { start, bytes }) }
    }

    /// The bytes of a slice.
    pub const fn of(slice: &mut [u8]) -> Self {
        Self { start: slice.as_mut_ptr(), bytes: slice.len() }
    }

    /// The address of the first byte.
    #[inline]
    pub const fn start(self) -> *mut u8 {
        self.start
    }

    /// The length.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// The addresses of the bytes.
    #[inline]
    pub fn addresses(self) -> Range<usize> {
        self.start.addr()..self.start.addr() + self.bytes
    }

    /// The `bytes` bytes behind the first `begin` bytes.
    ///
    /// # Panics
    /// If they are not inside.
    #[must_use]
    pub const fn part(self, begin: usize, bytes: usize) -> Self {
        assert!(begin <= self.bytes && bytes <= self.bytes - begin, "a part is inside");
        Self { start: self.start.wrapping_byte_add(begin), bytes }
    }

    /// Whether both have a byte in common.
    #[inline]
    pub fn overlaps(self, other: Self) -> bool {
        let [one, other] = [self, other].map(Self::addresses);
        one.start.max(other.start) < one.end.min(other.end)
    }

    /// The bytes, to read.
    ///
    /// # Safety
    /// They belong to the caller. Nobody writes them during `'a`.
    #[inline]
    pub const unsafe fn slice<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the pointer is not NULL and the length fits the address space, as was checked; by
        // the contract it points to that many bytes, which stay as they are.
        unsafe { from_raw_parts(self.start, self.bytes) }
    }

    /// The bytes, to read and to write.
    ///
    /// # Safety
    /// They belong to the caller. Nobody else accesses them during `'a`.
    #[inline]
    pub const unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the pointer is not NULL and the length fits the address space, as was checked; by
        // the contract it points to that many bytes, which are the callee's alone during the call.
        unsafe { from_raw_parts_mut(self.start, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    #[test]
    fn bounds_are_checked() {
        let at = without_provenance_mut;
        for bytes in [isize::MAX as usize + 1, usize::MAX] {
            assert_eq!(Region::new(at(8), bytes).err(), Some(Unfit::TooLong));
        }
        assert_eq!(Region::new(at(usize::MAX), 1).err(), Some(Unfit::TooLong));
        assert_eq!(Region::new(null_mut(), 1).err(), Some(Unfit::Null));
        assert!(Region::new(at(8), isize::MAX as usize).is_ok());
        assert!(Region::new(at(usize::MAX - 1), 1).is_ok());
        assert!(Region::new(null_mut(), 0).is_ok() && Region::new(at(usize::MAX), 0).is_ok());
    }

    #[test]
    fn regions_overlap_by_a_byte() {
        let region = |start, bytes| Region::new(without_provenance_mut(start), bytes).unwrap();
        assert!(region(8, 8).overlaps(region(15, 1)) && region(15, 1).overlaps(region(8, 8)));
        assert!(!region(8, 8).overlaps(region(16, 8)) && !region(16, 8).overlaps(region(8, 8)));
        assert!(!region(8, 8).overlaps(region(12, 0)), "no bytes");
    }
}
