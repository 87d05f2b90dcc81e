//! Windows, and calls that work directly in them.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Mutex;

use ringfold::{Call, Collective, Rank, Window};
use ringfold_foreign::{WindowError, all_reduce_windows};

use crate::collective::element;
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::memory;
use crate::operation::operation;
use crate::table::{Held, Table};
use crate::types::{RawType, ringfold_comm_t, ringfold_op_t, ringfold_result, ringfold_window_t};

/// All windows that C has handles of. A call locks its windows after its communicator.
static WINDOWS: Table<Mutex<Window<u8>>> = Table::new(1);

/// The name of a handle in errors.
const NAME: &str = "window";

fn find(window: ringfold_window_t) -> Result<Held<'static, Mutex<Window<u8>>>, Fault> {
    let handle = window.addr() as u64;
    WINDOWS.get(handle).ok_or_else(|| Fault::handle(NAME, handle))
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
        let handle = WINDOWS.insert(Mutex::new(made)).and_then(|it| usize::try_from(it).ok());
        window.write(without_provenance_mut(handle.ok_or_else(|| Fault::full(NAME))?));
        memory.write(address.cast());
        Ok(())
    })
}

/// Frees a window and its memory on this rank. Waits for a call of another thread that uses it. A
/// window may be freed after its communicator.
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
        let (data_type, op) = (element(r#type)?, operation(op)?);
        let found = find(output)?;
        let input = if input.is_null() || input == output { None } else { Some(find(input)?) };
        with(comm, |comm| {
            let (collective, root, wire) = (Collective::AllReduce, Rank(0), comm.wire());
            let call = Call { collective, count, data_type, op, root, wire };
            let done = all_reduce_windows(comm, &call, input.as_deref(), &found, offset);
            done.map_err(|error| match error {
                WindowError::InUse => {
                    Fault::argument("another communicator uses the window at this time")
                }
                WindowError::Call(error) => error.into(),
            })
        })
    })
}
