//! Pointers of the caller, as the references and buffers of Rust.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::null_mut;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use ringfold::{Buffers, Call, DataType, Rank};

use crate::fault::Fault;

/// The place to which a function writes a result.
///
/// # Safety
/// The pointer is NULL, or points to memory of a `T` that the caller lends for the call.
pub(crate) unsafe fn out<'a, T>(
    pointer: *mut T,
    name: &str,
) -> Result<&'a mut MaybeUninit<T>, Fault> {
    if !pointer.is_aligned() {
        return Err(Fault::argument(format!("{name} is not aligned")));
    }
    // SAFETY: it is aligned, and by the contract it points to memory of a `T` if it is not NULL.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }
        .ok_or_else(|| Fault::argument(format!("{name} is NULL")))
}

/// A text of the caller. Bytes that are no UTF-8 become replacement characters.
///
/// # Safety
/// The pointer is NULL, or points to bytes with a zero at their end, which stay for the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<Cow<'a, str>, Fault> {
    if pointer.is_null() {
        return Err(Fault::argument(format!("{name} is NULL")));
    }
    // SAFETY: the contract is that of this function, and the pointer is not NULL.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_string_lossy())
}

/// Elements of the caller.
///
/// # Safety
/// The pointer is NULL, or points to `len` elements that nobody writes during the call.
pub(crate) unsafe fn slice<'a, T>(
    pointer: *const T,
    len: usize,
    name: &str,
) -> Result<&'a [T], Fault> {
    check(pointer, len, name)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the pointer is neither NULL nor unaligned, and the length fits the address space; by
    // the contract it points to that many elements, which stay as they are.
    Ok(unsafe { from_raw_parts(pointer, len) })
}

/// Bytes of the caller, whose length was checked. They are not accessed before a call.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    start: *mut u8,
    len: usize,
}

// SAFETY: only the contracts of `slice` and `slice_mut` give access to the bytes, from any thread.
unsafe impl Send for Region {}

impl Region {
    pub(crate) const EMPTY: Self = Self { start: null_mut(), len: 0 };

    /// Checks the bounds of `len` bytes.
    #[inline]
    pub(crate) fn new(start: *mut u8, len: usize, name: &str) -> Result<Self, Fault> {
        check(start, len, name)?;
        Ok(Self { start, len })
    }

    /// Checks the bounds of `count` elements.
    pub(crate) fn of_elements(
        start: *const c_void,
        (count, data_type): (usize, DataType),
        name: &str,
    ) -> Result<Self, Fault> {
        let len = count.checked_mul(data_type.bytes());
        Self::new(start.cast_mut().cast(), len.unwrap_or(usize::MAX), name)
    }

    /// Checks the bounds of `count` elements behind the first `begin` elements from `start`.
    pub(crate) fn from_element(
        start: *const c_void,
        begin: usize,
        (count, data_type): (usize, DataType),
        name: &str,
    ) -> Result<Self, Fault> {
        if start.is_null() {
            return Self::of_elements(start, (count, data_type), name);
        }
        let begin = begin.checked_mul(data_type.bytes());
        let address = begin.and_then(|begin| start.addr().checked_add(begin));
        let Some(address) = address else { return Err(too_long(name)) };
        Self::of_elements(start.with_addr(address), (count, data_type), name)
    }

    /// The `count` elements behind the first `begin` elements, which are inside.
    pub(crate) fn part(self, begin: usize, (count, data_type): (usize, DataType)) -> Self {
        let [begin, len] = [begin, count].map(|elements| elements * data_type.bytes());
        Self { start: self.start.wrapping_byte_add(begin), len }
    }

    /// The addresses of the bytes.
    pub(crate) fn addresses(self) -> Range<usize> {
        self.start.addr()..self.start.addr() + self.len
    }

    /// Refuses an output that overlaps this input.
    pub(crate) fn check_apart(self, output: Self, call: impl Display) -> Result<(), Fault> {
        let [input, output] = [self, output].map(Self::addresses);
        if input.start.max(output.start) < input.end.min(output.end) {
            return Err(overlap(call));
        }
        Ok(())
    }

    /// The bytes, to read.
    ///
    /// # Safety
    /// They belong to the caller. Nobody writes them during the call.
    #[inline]
    pub(crate) unsafe fn slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the pointer is not NULL and the length fits the address space, as was checked; by
        // the contract it points to that many bytes, which stay as they are.
        unsafe { from_raw_parts(self.start, self.len) }
    }

    /// The bytes, to read and to write.
    ///
    /// # Safety
    /// They belong to the caller. Nobody else accesses them during the call.
    #[inline]
    pub(crate) unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: the pointer is not NULL and the length fits the address space, as was checked; by
        // the contract it points to that many bytes, which are the callee's alone during the call.
        unsafe { from_raw_parts_mut(self.start, self.len) }
    }
}

/// The memory of a call of the caller, whose bounds were checked.
#[derive(Clone, Copy)]
pub(crate) enum Places {
    InPlace(Region),
    Apart { input: Region, output: Region },
}

impl Places {
    /// The buffers of the call.
    ///
    /// # Safety
    /// The memory belongs to the caller. Nobody else accesses it during the call.
    #[inline]
    pub(crate) unsafe fn buffers<'a>(self) -> Buffers<'a> {
        // SAFETY: the contract; the memory of a call out of place lies apart.
        unsafe {
            match self {
                Self::InPlace(both) => Buffers::InPlace(both.slice_mut()),
                Self::Apart { input, output } => {
                    Buffers::Apart { input: input.slice(), output: output.slice_mut() }
                }
            }
        }
    }
}

fn check<T>(pointer: *const T, len: usize, name: &str) -> Result<(), Fault> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    let wrong = match bytes {
        None => return Err(too_long(name)),
        Some(bytes) if pointer.addr().checked_add(bytes).is_none() => return Err(too_long(name)),
        Some(0) => return Ok(()),
        Some(_) if pointer.is_null() => "is NULL",
        Some(_) if !pointer.is_aligned() => "is not aligned",
        Some(_) => return Ok(()),
    };
    Err(Fault::argument(format!("{name} {wrong}")))
}

/// The memory of a call on `rank` of a group of `size`.
///
/// The call is in place if `input` is NULL, or if it is the very part of the one buffer that is the
/// input of a call in place. Otherwise both must lie apart.
#[inline]
pub(crate) fn places(
    call: &Call,
    input: *const c_void,
    output: *mut c_void,
    rank: Rank,
    size: usize,
) -> Result<Places, Fault> {
    let (input, output) = (input.cast::<u8>().cast_mut(), output.cast::<u8>());
    let [input_len, output_len] = lengths(call, size)?;
    let (has_input, has_output) = (call.has_input(rank), call.has_output(rank));
    // A rank without an output may pass its input as either, as a root in place does.
    let input = if has_output || !input.is_null() { input } else { output };
    if !has_input || !has_output {
        return Ok(Places::Apart {
            input: Region::new(input, if has_input { input_len } else { 0 }, "the input")?,
            output: Region::new(output, if has_output { output_len } else { 0 }, "the output")?,
        });
    }
    // The bytes of the one buffer before the input and before the output, in place.
    let [input_at, output_at] = call.in_place_at(rank).map(|at| at * call.data_type.bytes());
    let begins = [(input.addr(), input_at), (output.addr(), output_at)]
        .map(|(address, at)| address.checked_sub(at));
    if input.is_null() || begins[0].is_some() && begins[0] == begins[1] {
        let is_front = input.is_null() || output_at == 0;
        let both = if is_front { output } else { input };
        return Ok(Places::InPlace(Region::new(both, input_len.max(output_len), "the output")?));
    }
    let input = Region::new(input, input_len, "the input")?;
    let output = Region::new(output, output_len, "the output")?;
    input.check_apart(output, call.collective)?;
    Ok(Places::Apart { input, output })
}

#[cold]
fn too_long(name: &str) -> Fault {
    Fault::argument(format!("{name} is longer than the address space"))
}

#[cold]
fn overlap(call: impl Display) -> Fault {
    Fault::argument(format!(
        "{call}: the input and the output overlap; for a call in place pass NULL as the input"
    ))
}

/// The bytes of the input and of the output of a call.
fn lengths(call: &Call, size: usize) -> Result<[usize; 2], Fault> {
    let bytes = call.data_type.bytes();
    let longest = call.count.checked_mul(size).and_then(|all| all.checked_mul(bytes));
    if longest.is_none_or(|longest| isize::try_from(longest).is_err()) {
        let (collective, count) = (call.collective, call.count);
        let message = format!("{collective}: {count} elements exceed the address space");
        return Err(Fault::argument(message));
    }
    Ok([call.input_len(size) * bytes, call.output_len(size) * bytes])
}
