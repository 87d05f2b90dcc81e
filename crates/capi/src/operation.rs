//! Reduction operations: predefined ones, those with a factor, and those of the program.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::panic::resume_unwind;

use ringfold::{Communicator, ReduceOp, UserOp};
use ringfold_foreign::Places;

use crate::callback;
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::kept::kept;
use crate::memory::{self, apart, region};
use crate::table::Table;
use crate::types::{
    ringfold_combine_t, ringfold_comm_t, ringfold_op_t, ringfold_request_t, ringfold_result,
};

/// The operations that are not predefined. Their handles are above all predefined operations.
static OPS: Table<Made> = Table::new(2);

/// The name of a handle in errors.
const NAME: &str = "reduction operation";

/// An operation that C has made.
enum Made {
    Scaled(ReduceOp),
    Own(UserOp<u8>, usize),
}

/// The operation that C means.
#[inline]
pub(crate) fn operation(op: ringfold_op_t) -> Result<ReduceOp, Fault> {
    // Operations with a factor have handles.
    let predefined = u8::try_from(op).ok().and_then(ReduceOp::from_code);
    if let Some(op) = predefined.filter(|op| !matches!(op, ReduceOp::PreMulSum(_))) {
        return Ok(op);
    }
    match OPS.get(op).as_deref() {
        Some(Made::Scaled(op)) => Ok(*op),
        Some(Made::Own(op, _)) => Err(Fault::argument(format!(
            "{:?} is an operation of the program, which ringfold_all_reduce_by takes",
            op.name()
        ))),
        None => Err(Fault::argument(format!("{op:#x} is no {NAME}"))),
    }
}

/// Makes the sum of all elements after this rank's elements are multiplied by `factor`. Factors may
/// differ between ranks. Free it with ringfold_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_op_create_pre_mul_sum(
    factor: f64,
    op: *mut ringfold_op_t,
) -> ringfold_result {
    // SAFETY: the caller points to memory of an operation.
    unsafe { give(op, || Ok(Made::Scaled(ReduceOp::pre_mul_sum(factor)))) }
}

/// Gives C a handle of an operation.
///
/// # Safety
/// `op` is NULL or points to memory of an operation.
unsafe fn give(
    op: *mut ringfold_op_t,
    make: impl FnOnce() -> Result<Made, Fault>,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the contract.
        let op = unsafe { memory::out(op, "op") }?;
        op.write(0);
        op.write(OPS.insert(make()?).ok_or_else(|| Fault::full(NAME))?);
        Ok(())
    })
}

/// A function of the program and its context.
struct Combine {
    function: unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize) -> c_int,
    context: *mut c_void,
    element: usize,
}

// SAFETY: the header asks for a function that any thread may call with this context, at any time.
unsafe impl Send for Combine {}
// SAFETY: as above.
unsafe impl Sync for Combine {}

impl Combine {
    /// Calls the function. Panics if it fails, without the message of a panic.
    fn combine(&self, into: &mut [u8], from: &[u8]) {
        let (count, context) = (into.len() / self.element, self.context);
        // SAFETY: both slices have that many elements, and the function does what the header asks
        // of it.
        let code = callback::call(|| unsafe {
            (self.function)(context, into.as_mut_ptr().cast(), from.as_ptr().cast(), count)
        });
        if code != 0 {
            resume_unwind(Box::new(format!("its function returned {code}")));
        }
    }
}

/// Makes an operation of the program, on elements of `element_bytes` bytes, which must be
/// commutative and associative. All ranks must make the same ones in the same order, with equal
/// names and sizes. Blocks until all ranks have compared them. ringfold_all_reduce_by takes the
/// operation. A name has at most 64 bytes, an element at most 16384, and a communicator at most
/// 1024 operations in its time. Free it with ringfold_op_free, before or after the communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_op_create(
    name: *const c_char,
    element_bytes: usize,
    combine: ringfold_combine_t,
    context: *mut c_void,
    comm: ringfold_comm_t,
    op: *mut ringfold_op_t,
) -> ringfold_result {
    let make = || {
        // SAFETY: the caller points to a text.
        let name = unsafe { memory::text(name, "the name") }?;
        let function = combine.ok_or_else(|| Fault::argument("the function is NULL"))?;
        let combine = Combine { function, context, element: element_bytes };
        with(comm, |comm| {
            let combine = move |into: &mut [u8], from: &[u8]| combine.combine(into, from);
            let op = comm.register_op_on_bytes(&name, element_bytes, combine)?;
            Ok(Made::Own(op, element_bytes))
        })
    };
    // SAFETY: the caller points to memory of an operation.
    unsafe { give(op, make) }
}

/// Writes the reduction of all ranks' inputs by an operation of the program to the output of every
/// rank. Both have `count` elements of the operation's size. Elements are combined in rank order.
/// In place: `input` is NULL or equals `output`. All ranks must pass the same operation and the
/// same count. If the operation fails on one rank, the job fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_all_reduce_by(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        with_own(op, (input, output), count, |op, places| {
            with(comm, |comm| {
                // SAFETY: the caller gives the memory that the header asks for.
                Ok(comm.all_reduce_by(unsafe { places.copied() }, op)?)
            })
        })
    })
}

/// Starts ringfold_all_reduce_by, as ringfold_start_all_reduce starts its call. The operation runs
/// in the thread that advances the call, which may be one of ringfold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_reduce_by(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    reported(|| {
        with_own(op, (input, output), count, |op, places| {
            let begin = |comm: &mut Communicator| {
                // SAFETY: the caller gives the memory that the header asks for.
                Ok(comm.start_all_reduce_by_in(places, |it| unsafe { it.copied() }, op)?)
            };
            // SAFETY: the caller points to memory of a handle.
            unsafe { kept(comm, request, begin) }
        })
    })
}

/// Does `work` with an operation of the program, and the memory of its call.
fn with_own(
    op: ringfold_op_t,
    (input, output): (*const c_void, *mut c_void),
    count: usize,
    work: impl FnOnce(&UserOp<u8>, Places) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let held = OPS.get(op);
    let Some(Made::Own(own, element)) = held.as_deref() else {
        return Err(Fault::argument(format!("{op:#x} is no operation of ringfold_op_create")));
    };
    let bytes = count.saturating_mul(*element);
    let is_apart = !input.is_null() && input != output.cast_const();
    let output = region(output, bytes, "the output")?;
    let places = if is_apart {
        apart(region(input, bytes, "the input")?, output, "all_reduce_by")?
    } else {
        Places::InPlace(output)
    };
    work(own, places)
}

/// Frees an operation that a function of ringfold made. Waits for calls of other threads that use
/// it. The library does not call its function any more.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_op_free(op: ringfold_op_t) -> ringfold_result {
    reported(|| OPS.remove(op).map(drop).ok_or_else(|| Fault::handle(NAME, op)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ringfold_op;

    #[test]
    fn predefined_operations_have_the_codes_of_rust() {
        use ringfold_op::{
            RINGFOLD_AVG, RINGFOLD_BAND, RINGFOLD_BOR, RINGFOLD_BXOR, RINGFOLD_LAND, RINGFOLD_LOR,
            RINGFOLD_LXOR, RINGFOLD_MAX, RINGFOLD_MIN, RINGFOLD_PROD, RINGFOLD_SUM,
        };
        for (code, op) in [
            (RINGFOLD_SUM, ReduceOp::Sum),
            (RINGFOLD_PROD, ReduceOp::Prod),
            (RINGFOLD_MIN, ReduceOp::Min),
            (RINGFOLD_MAX, ReduceOp::Max),
            (RINGFOLD_AVG, ReduceOp::Avg),
            (RINGFOLD_BAND, ReduceOp::BitAnd),
            (RINGFOLD_BOR, ReduceOp::BitOr),
            (RINGFOLD_BXOR, ReduceOp::BitXor),
            (RINGFOLD_LAND, ReduceOp::LogicalAnd),
            (RINGFOLD_LOR, ReduceOp::LogicalOr),
            (RINGFOLD_LXOR, ReduceOp::LogicalXor),
        ] {
            assert_eq!(operation(code as u64).ok(), Some(op));
        }
        for code in [5, 12, 255, 256, 1 << 32, u64::MAX] {
            assert!(operation(code).is_err(), "{code}");
        }
    }
}
