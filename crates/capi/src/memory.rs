//! Pointers of the caller, as the references and buffers of Rust.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use ringfold::{Buffers, Call, Rank};

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

/// Bytes that the caller lends for a call, to read and to write.
///
/// # Safety
/// The pointer is NULL, or points to `len` bytes that nobody else accesses during the call.
unsafe fn slice_mut<'a>(pointer: *mut u8, len: usize, name: &str) -> Result<&'a mut [u8], Fault> {
    check(pointer, len, name)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the pointer is not NULL and the length fits the address space; by the contract it
    // points to that many bytes, which are the callee's alone during the call.
    Ok(unsafe { from_raw_parts_mut(pointer, len) })
}

fn check<T>(pointer: *const T, len: usize, name: &str) -> Result<(), Fault> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    let wrong = match bytes {
        None => "is longer than the address space",
        Some(bytes) if pointer.addr().checked_add(bytes).is_none() => {
            "is longer than the address space"
        }
        Some(0) => return Ok(()),
        Some(_) if pointer.is_null() => "is NULL",
        Some(_) if !pointer.is_aligned() => "is not aligned",
        Some(_) => return Ok(()),
    };
    Err(Fault::argument(format!("{name} {wrong}")))
}

/// The buffers of a call on `rank` of a group of `size`.
///
/// The call is in place if `input` is NULL, or if it is the very part of the one buffer that is the
/// input of a call in place. Otherwise both must lie apart.
///
/// # Safety
/// Each pointer is NULL, or points to the memory that the header asks for. Nobody else accesses
/// that memory during the call.
#[inline]
pub(crate) unsafe fn buffers<'a>(
    call: &Call,
    input: *const c_void,
    output: *mut c_void,
    rank: Rank,
    size: usize,
) -> Result<Buffers<'a>, Fault> {
    let (input, output) = (input.cast::<u8>(), output.cast::<u8>());
    let [input_len, output_len] = lengths(call, size)?;
    let (has_input, has_output) = (call.has_input(rank), call.has_output(rank));
    // A rank without an output may pass its input as either, as a root in place does.
    let input = if has_output || !input.is_null() { input } else { output.cast_const() };
    if !has_input || !has_output {
        // SAFETY: the contract, and one of both is empty.
        return Ok(unsafe {
            Buffers::Apart {
                input: slice(input, if has_input { input_len } else { 0 }, "the input")?,
                output: slice_mut(output, if has_output { output_len } else { 0 }, "the output")?,
            }
        });
    }
    // The bytes of the one buffer before the input and before the output, in place.
    let [input_at, output_at] = call.in_place_at(rank).map(|at| at * call.data_type.bytes());
    let begins = [(input.addr(), input_at), (output.addr(), output_at)]
        .map(|(address, at)| address.checked_sub(at));
    if input.is_null() || begins[0].is_some() && begins[0] == begins[1] {
        let is_front = input.is_null() || output_at == 0;
        let both = if is_front { output } else { input.cast_mut() };
        // SAFETY: by the contract the longer buffer is the callee's alone, and has the other in it.
        let both = unsafe { slice_mut(both, input_len.max(output_len), "the output") }?;
        return Ok(Buffers::InPlace(both));
    }
    let [input_end, output_end] =
        [input.addr().saturating_add(input_len), output.addr().saturating_add(output_len)];
    if input.addr() < output_end && output.addr() < input_end {
        return Err(Fault::argument(format!(
            "{}: the input and the output overlap; for a call in place pass NULL as the input",
            call.collective
        )));
    }
    // SAFETY: the contract, and both lie apart.
    Ok(unsafe {
        Buffers::Apart {
            input: slice(input, input_len, "the input")?,
            output: slice_mut(output, output_len, "the output")?,
        }
    })
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
