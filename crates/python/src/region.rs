//! Bytes at an address.
#![allow(unsafe_code)]

use std::slice::{from_raw_parts, from_raw_parts_mut};

use crate::queue::Fault;

/// How a call uses the memory of an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Bytes at an address. The argument that they come from keeps them during the call.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: an address belongs to no thread. Its uses are unsafe functions.
unsafe impl Send for Region {}

impl Region {
    pub(crate) const EMPTY: Self = Self { address: std::ptr::null_mut(), bytes: 0 };

    /// # Safety
    /// Nobody writes the bytes during `'a`.
    pub(crate) const unsafe fn slice<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: `checked` has refused NULL and lengths beyond the address space; the caller of
        // the binding promises the memory, and this function's caller that nobody writes it.
        unsafe { from_raw_parts(self.address, self.bytes) }
    }

    /// # Safety
    /// Nobody else uses the bytes during `'a`.
    pub(crate) const unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: as for `slice`, and nobody else uses the bytes.
        unsafe { from_raw_parts_mut(self.address, self.bytes) }
    }

    pub(crate) fn checked(self, name: &str) -> Result<Self, Fault> {
        let end = self.address.addr().checked_add(self.bytes);
        if end.is_none() || isize::try_from(self.bytes).is_err() {
            return Err(Fault::Argument(format!("{name} is longer than the address space")));
        }
        if self.bytes > 0 && self.address.is_null() {
            return Err(Fault::Argument(format!("{name} is at the address 0")));
        }
        Ok(self)
    }

    /// Whether both are the same bytes.
    pub(crate) fn is(self, other: Self) -> bool {
        self.address == other.address && self.bytes == other.bytes
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let [start, theirs] = [self.address.addr(), other.address.addr()];
        start < theirs + other.bytes && theirs < start + self.bytes
    }
}
