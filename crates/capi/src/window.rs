//! Windows, and calls that work directly in them.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use ringfold::{Call, Collective, Communicator, Rank, SharedWindow, Wire};
use ringfold_foreign::{Places, Region};

use crate::collective::element;
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::kept::keep;
use crate::memory;
use crate::operation::operation;
use crate::table::Table;
use crate::types::{
    RawType, ringfold_comm_t, ringfold_op_t, ringfold_request_t, ringfold_result, ringfold_window_t,
};

type Shared = SharedWindow<u8>;

/// All windows that C has handles of.
static WINDOWS: Table<Shared> = Table::new(1);

/// The name of a handle in errors.
const NAME: &str = "window";

fn find(window: ringfold_window_t) -> Result<Shared, Fault> {
    let handle = window.addr() as u64;
    let found = WINDOWS.get(handle).ok_or_else(|| Fault::handle(NAME, handle))?;
    Ok(Shared::clone(&found))
}

/// Makes a window of `bytes` bytes, all zero, and writes its handle and the address of its memory.
/// Every rank must call it with the same number. Blocks until all ranks have the window. All ranks
/// of one host have it mapped, and with RDMA the devices know it. Its memory also serves as
/// ordinary memory of any call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_window_alloc(
    bytes: usize,
    comm: ringfold_comm_t,
    window: *mut ringfold_window_t,
    memory: *mut *mut c_void,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a handle and of an address.
        let (window, memory) =
            unsafe { (memory::out(window, "window")?, memory::out(memory, "memory")?) };
        window.write(null_mut());
        memory.write(null_mut());
        let mut made = with(comm, |comm| Ok(comm.alloc::<u8>(bytes)?))?;
        let address = made.as_mut_ptr();
        let handle = WINDOWS.insert(made.share()).and_then(|it| usize::try_from(it).ok());
        window.write(without_provenance_mut(handle.ok_or_else(|| Fault::full(NAME))?));
        memory.write(address.cast());
        Ok(())
    })
}

/// Frees a window and its memory on this rank, once its calls have ended and prepared ones are
/// freed. Does not wait. A window may be freed after its communicator.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_window_free(window: ringfold_window_t) -> ringfold_result {
    reported(|| {
        let handle = window.addr() as u64;
        let freed = WINDOWS.remove(handle);
        freed.map(drop).ok_or_else(|| Fault::handle(NAME, handle))
    })
}

/// Writes the reduction of `count` elements from byte `offset` of all ranks' windows `input` to the
/// same bytes of every rank's window `output`. In place: `input` is NULL or equals `output`. Peers
/// read and write the windows directly until the call is done.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_all_reduce_window(
    input: ringfold_window_t,
    output: ringfold_window_t,
    offset: usize,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        let (call, input, output) = windows((input, output), (count, r#type), op)?;
        with(comm, |comm| {
            let call = Call { wire: comm.wire(), ..call };
            Ok(comm.perform_in_shared_windows(&call, input.as_ref(), &output, offset)?)
        })
    })
}

/// Starts ringfold_all_reduce_window, as ringfold_start_all_reduce starts its call. The elements of
/// the call belong to it until ringfold_wait has returned. Calls of one window follow one another.
/// If one fails, writes of the program to any part of the window since its start may be lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_reduce_window(
    input: ringfold_window_t,
    output: ringfold_window_t,
    offset: usize,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let begin = |comm: &mut Communicator| {
        let (call, input, output) = windows((input, output), (count, r#type), op)?;
        let call = Call { wire: comm.wire(), ..call };
        let kept = Places::InPlace(Region::EMPTY);
        Ok(comm.start_in_windows(&call, input.as_ref(), &output, offset, kept)?)
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { keep(comm, request, begin) }
}

/// The windows of a call on this many elements. Without an input it is in place.
fn windows(
    (input, output): (ringfold_window_t, ringfold_window_t),
    (count, data_type): (usize, RawType),
    op: ringfold_op_t,
) -> Result<(Call, Option<Shared>, Shared), Fault> {
    let (data_type, op) = (element(data_type)?, operation(op)?);
    let (collective, root, wire) = (Collective::AllReduce, Rank(0), Wire::Element);
    let call = Call { collective, count, data_type, op, root, wire };
    let is_in_place = input.is_null() || input == output;
    let input = if is_in_place { None } else { Some(find(input)?) };
    Ok((call, input, find(output)?))
}
