//! Groups of calls: their beginning and their end.
#![allow(unsafe_code)]

use std::ptr::{null_mut, without_provenance_mut};

use ringfold::{CallGroup, Communicator};
use ringfold_foreign::{Places, Region, add_to};

use crate::comm::{facts, with};
use crate::fault::{Fault, reported};
use crate::kept::kept;
use crate::memory;
use crate::pending::{self, Handle, Pending};
use crate::types::{ringfold_comm_t, ringfold_request_t, ringfold_result};

/// Starts a group of calls, and writes a handle that takes the place of `comm` in the calls of the
/// group: messages and collectives with equal parts. Such a call is checked and kept, and returns
/// at once. ringfold_group_end performs all of them together. Until then their memory belongs to
/// the group. Calls with `comm` itself are no part of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_group_start(
    comm: ringfold_comm_t,
    group: *mut ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a handle.
        let group = unsafe { memory::out(group, "group") }?;
        group.write(null_mut());
        facts(comm, |rank, size| {
            let (comm, calls, refused) = (comm.addr(), Vec::new(), None);
            group.write(Pending { comm, rank, size, calls, refused }.keep()?);
            Ok(())
        })
    })
}

/// Performs the calls of a group, and frees its handle even if the result is an error. Blocks until
/// all are done. Its messages start together, so sends and receives in any order do not deadlock.
/// Its collectives begin when its messages are done. Short ones of the same kind, type, operation
/// and root become one call, so all ranks must add the same ones in the same order. If a call was
/// refused, or two calls use the same memory and one of them writes it, none begins.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_group_end(group: ringfold_comm_t) -> ringfold_result {
    reported(|| {
        let pending = found(group)?.take()?;
        pending.check()?;
        with(without_provenance_mut(pending.comm), |comm| {
            let wire = comm.wire();
            // SAFETY: the caller lends the memory until this call ends, and the calls are apart.
            Ok(comm.group(|group| unsafe { add_to(group, &pending.calls, wire) })?)
        })
    })
}

/// Starts the calls of a group, frees its handle even if the result is an error, and writes a
/// request, which ends with the last of them. Does not wait for other ranks. The group is checked
/// as by ringfold_group_end, which another rank may call for the same group. The collectives do not
/// wait for the messages. The memory belongs to the calls until ringfold_wait has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_group(
    group: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    reported(|| {
        let pending = found(group)?.take()?;
        let begin = |comm: &mut Communicator| {
            pending.check()?;
            let wire = comm.wire();
            let add = |_: &mut Places, group: &mut CallGroup<'_>| {
                // SAFETY: the caller lends the memory until the calls have ended, and they are
                // apart.
                unsafe { add_to(group, &pending.calls, wire) };
            };
            Ok(comm.start_group(Places::InPlace(Region::EMPTY), add)?)
        };
        // SAFETY: the caller points to memory of a handle.
        unsafe { kept(without_provenance_mut(pending.comm), request, begin) }
    })
}

/// Frees the handle of a group without performing its calls. ringfold_comm_free does so for all
/// groups of its communicator.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_group_discard(group: ringfold_comm_t) -> ringfold_result {
    reported(|| found(group)?.take().map(drop))
}

fn found(group: ringfold_comm_t) -> Result<Handle, Fault> {
    pending::of(group).ok_or_else(|| Fault::handle(pending::NAME, group.addr() as u64))
}
