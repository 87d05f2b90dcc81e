//! Pointers of the caller, as the references and regions of Rust.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::slice::from_raw_parts;

use ringfold::{Call, DataType, Rank, UniqueId};
use ringfold_foreign::{Places, Region, Unfit, find_id};

use crate::fault::Fault;
use crate::types::ringfold_unique_id;

/// Reads an id of the caller.
///
/// # Safety
/// The caller points to an id.
pub(crate) unsafe fn unique_id(id: *const ringfold_unique_id) -> Result<UniqueId, Fault> {
    // SAFETY: the caller points to an id.
    let id = unsafe { slice(id, 1, "id") }?;
    let bytes: Vec<u8> = id[0].text.iter().map(|byte| *byte as u8).collect();
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    find_id(&text).map_err(|error| Fault::argument(format!("id: {error}")))
}

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
    let bytes = len.saturating_mul(size_of::<T>());
    if region(pointer.cast(), bytes, name)?.bytes() == 0 {
        return Ok(&[]);
    }
    if !pointer.is_aligned() {
        return Err(Fault::argument(format!("{name} is not aligned")));
    }
    // SAFETY: the pointer is neither NULL nor unaligned, and the length fits the address space; by
    // the contract it points to that many elements, which stay as they are.
    Ok(unsafe { from_raw_parts(pointer, len) })
}

/// Checks the bounds of `bytes` bytes of the buffer `name`.
#[inline]
pub(crate) fn region(start: *const c_void, bytes: usize, name: &str) -> Result<Region, Fault> {
    Region::new(start.cast_mut().cast(), bytes).map_err(|unfit| refused(name, unfit))
}

/// Checks the bounds of `count` elements.
pub(crate) fn elements(
    start: *const c_void,
    (count, data_type): (usize, DataType),
    name: &str,
) -> Result<Region, Fault> {
    region(start, count.saturating_mul(data_type.bytes()), name)
}

/// Checks the bounds of `count` elements behind the first `begin` elements from `start`.
pub(crate) fn elements_from(
    start: *const c_void,
    begin: usize,
    (count, data_type): (usize, DataType),
    name: &str,
) -> Result<Region, Fault> {
    if start.is_null() {
        return elements(start, (count, data_type), name);
    }
    let address = start.addr().checked_add(begin.saturating_mul(data_type.bytes()));
    let address = address.ok_or_else(|| refused(name, Unfit::TooLong))?;
    elements(start.with_addr(address), (count, data_type), name)
}

/// An input and an output that do not overlap.
#[inline]
pub(crate) fn apart(input: Region, output: Region, call: impl Display) -> Result<Places, Fault> {
    Places::apart(input, output).ok_or_else(|| overlap(call))
}

#[cold]
fn refused(name: &str, unfit: Unfit) -> Fault {
    let why = match unfit {
        Unfit::TooLong => "is longer than the address space",
        Unfit::Null => "is NULL",
    };
    Fault::argument(format!("{name} {why}"))
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
    let output = output.cast_const();
    let [input_len, output_len] = lengths(call, size)?;
    let (has_input, has_output) = (call.has_input(rank), call.has_output(rank));
    // A rank without an output may pass its input as either, as a root in place does.
    let input = if has_output || !input.is_null() { input } else { output };
    if !has_input || !has_output {
        return Ok(Places::Apart {
            input: region(input, if has_input { input_len } else { 0 }, "the input")?,
            output: region(output, if has_output { output_len } else { 0 }, "the output")?,
        });
    }
    if input.is_null() {
        return Ok(Places::InPlace(region(output, input_len.max(output_len), "the output")?));
    }
    let input = region(input, input_len, "the input")?;
    let output = region(output, output_len, "the output")?;
    Places::of_both(call, (rank, size), input, output).ok_or_else(|| overlap(call.collective))
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
