//! Memory that stays registered with RDMA devices.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use ringfold::Registration;
use ringfold_foreign::register;

use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::memory::{self, region};
use crate::table::Table;
use crate::types::{ringfold_comm_t, ringfold_registration_t, ringfold_result};

/// All registrations that C has handles of. Those of memory that no device has are `None`.
static REGISTRATIONS: Table<Option<Registration>> = Table::new(4);

/// The name of a handle in errors.
const NAME: &str = "registration";

/// Registers `bytes` bytes of memory with the RDMA devices of this rank, and writes the handle of
/// the registration. Long messages of all communicators of the process then leave from this memory,
/// and arrive in it, without a copy, and no call registers it again. Memory may be registered
/// several times, whole and in parts, and each handle is deregistered. Succeeds without effect if
/// the rank has no RDMA or `bytes` is 0. If no device registers the memory, as beyond `ulimit -l`,
/// the log says why, and calls use the memory as any other. Memory that the CPU cannot read, as
/// that of a GPU, gives RINGFOLD_ERROR_ARGUMENT. Waits for a call of another thread. While memory
/// is registered, a faulty peer to which a message was announced there may write to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_register(
    comm: ringfold_comm_t,
    memory: *mut c_void,
    bytes: usize,
    registration: *mut ringfold_registration_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a handle.
        let registration = unsafe { memory::out(registration, "registration") }?;
        registration.write(null_mut());
        let region = region(memory, bytes, "the memory")?;
        let made = with(comm, |comm| Ok(register(comm, region)?))?;
        let handle = REGISTRATIONS.insert(made).and_then(|it| usize::try_from(it).ok());
        registration.write(without_provenance_mut(handle.ok_or_else(|| Fault::full(NAME))?));
        Ok(())
    })
}

/// Deregisters memory, before it is freed. Does not wait: calls that use the memory end first, so
/// the memory stays registered until they have returned. May follow ringfold_comm_free and a call
/// that has failed. In a child made by fork it leaves the registration to the parent.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_comm_deregister(
    registration: ringfold_registration_t,
) -> ringfold_result {
    reported(|| {
        let handle = registration.addr() as u64;
        let ended = REGISTRATIONS.remove(handle);
        ended.map(drop).ok_or_else(|| Fault::handle(NAME, handle))
    })
}
