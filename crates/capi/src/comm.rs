//! The functions of communicators.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::c_char;
use std::process;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use ringfold::config::timeout_of;
use ringfold::{Aborter, Communicator, Error, Rank};
use ringfold_foreign::lock;

use crate::fault::{Fault, keep, reported};
use crate::memory;
use crate::pending;
use crate::table::{Held, Table, kind_of, of_kind};
use crate::types::{RawResult, ringfold_comm_t, ringfold_result, ringfold_unique_id};

use ringfold_result::{RINGFOLD_ERROR_FAILED, RINGFOLD_SUCCESS};

/// All communicators that C has handles of.
static COMMS: Table<SharedComm> = Table::new(KIND);

/// The kind of their handles.
const KIND: u32 = 0;

/// The name of a handle in errors.
const NAME: &str = "communicator";

/// A communicator, with the facts that threads may ask for while a call of another thread waits.
struct SharedComm {
    /// The process that made it.
    process: u32,
    rank: Rank,
    size: usize,
    aborter: Aborter,
    /// The message of the first call that failed because the job had failed.
    failed: OnceLock<String>,
    /// The communicator, for the calls, which follow one another. `None` when it is being freed.
    calls: Mutex<Option<Communicator>>,
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "a handle fits into a pointer");

#[inline]
fn number(comm: ringfold_comm_t) -> u64 {
    comm.addr() as u64
}

#[inline]
fn shared(comm: ringfold_comm_t) -> Result<Held<'static, SharedComm>, Fault> {
    COMMS.get(number(comm)).ok_or_else(|| unknown(comm))
}

#[cold]
fn unknown(comm: ringfold_comm_t) -> Fault {
    let is_there = |it: Later| COMMS.get(number(it.0)).is_some();
    if Later::of(comm).is_some_and(is_there) {
        return Fault::misplaced(format!(
            "{:#x} is a handle of ringfold_prepare, which only functions that start calls take",
            number(comm)
        ));
    }
    let of_group = pending::of(comm).and_then(pending::Handle::misplaced);
    of_group.unwrap_or_else(|| Fault::handle(NAME, number(comm)))
}

/// A communicator whose calls are prepared. Its handle is that of the communicator, but for its
/// kind.
pub(crate) struct Later(pub(crate) ringfold_comm_t);

impl Later {
    /// The kind of such a handle.
    const KIND: u32 = 5;

    /// The handle for a communicator.
    pub(crate) fn handle_for(comm: ringfold_comm_t) -> Result<ringfold_comm_t, Fault> {
        drop(shared(comm)?);
        Ok(with_kind(comm, Self::KIND))
    }

    /// The communicator of such a handle.
    #[inline]
    pub(crate) fn of(later: ringfold_comm_t) -> Option<Self> {
        let is_one = kind_of(number(later)) == u64::from(Self::KIND);
        is_one.then(|| Self(with_kind(later, KIND)))
    }
}

impl SharedComm {
    /// Locks the communicator. Waits for the calls of other threads of this process.
    #[inline]
    fn lock(&self) -> Result<MutexGuard<'_, Option<Communicator>>, Fault> {
        match self.calls.try_lock() {
            Ok(calls) => Ok(calls),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => self.lock_later(),
        }
    }

    #[cold]
    fn lock_later(&self) -> Result<MutexGuard<'_, Option<Communicator>>, Fault> {
        // A child made by `fork` has no thread that would end the call and unlock its copy.
        if self.process != process::id() {
            return Err(Error::Forked { rank: self.rank }.into());
        }
        // A panic in a call has made the communicator fail, so it is safe to lock it again.
        Ok(lock(&self.calls))
    }
}

fn with_kind(comm: ringfold_comm_t, kind: u32) -> ringfold_comm_t {
    let handle = usize::try_from(of_kind(number(comm), kind.into()));
    without_provenance_mut(handle.unwrap_or_default())
}

/// Does `work` with the communicator of a handle. Waits for the calls of other threads.
#[inline]
pub(crate) fn with<R>(
    comm: ringfold_comm_t,
    work: impl FnOnce(&mut Communicator) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let shared = shared(comm)?;
    let mut calls = shared.lock()?;
    let Some(communicator) = &mut *calls else { return Err(Fault::handle(NAME, number(comm))) };
    let done = work(communicator);
    if let Err(fault) = &done
        && fault.result == RINGFOLD_ERROR_FAILED
    {
        shared.failed.get_or_init(|| fault.message.clone());
    }
    done
}

/// Does `work` with the rank and the size of a communicator, which is not freed meanwhile.
pub(crate) fn facts<R>(
    comm: ringfold_comm_t,
    work: impl FnOnce(Rank, usize) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let shared = shared(comm)?;
    work(shared.rank, shared.size)
}

/// Gives C a handle of a communicator.
///
/// # Safety
/// `comm` is NULL or points to memory of a handle.
pub(crate) unsafe fn give(
    comm: *mut ringfold_comm_t,
    make: impl FnOnce() -> Result<Option<Communicator>, Fault>,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the contract.
        let comm = unsafe { memory::out(comm, "the pointer to the new communicator") }?;
        comm.write(null_mut());
        let Some(communicator) = make()? else { return Ok(()) };
        let shared = SharedComm {
            process: process::id(),
            rank: communicator.rank(),
            size: communicator.size(),
            aborter: communicator.aborter(),
            failed: OnceLock::new(),
            calls: Mutex::new(Some(communicator)),
        };
        let handle = COMMS.insert(shared).and_then(|handle| usize::try_from(handle).ok());
        comm.write(without_provenance_mut(handle.ok_or_else(|| Fault::full(NAME))?));
        Ok(())
    })
}

/// Writes the number of this rank, from 0 to the number of ranks less 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_rank(
    comm: ringfold_comm_t,
    rank: *mut u32,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let rank = unsafe { memory::out(rank, "rank") }?;
        rank.write(shared(comm)?.rank.0);
        Ok(())
    })
}

/// Writes the number of ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_size(
    comm: ringfold_comm_t,
    size: *mut u32,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let size = unsafe { memory::out(size, "size") }?;
        size.write(u32::try_from(shared(comm)?.size).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Sets the time that a call may take, from a millisecond to a hundred years; infinity stands for
/// the latter. A call that takes longer fails on all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_comm_set_timeout(
    comm: ringfold_comm_t,
    seconds: f64,
) -> ringfold_result {
    reported(|| {
        let timeout = timeout_of(seconds).ok_or_else(|| {
            Fault::argument(format!("a timeout of {seconds} seconds; give 0 or more"))
        })?;
        with(comm, |comm| {
            comm.set_timeout(timeout);
            Ok(())
        })
    })
}

/// Divides the ranks into groups: ranks of one `color` get a communicator of their own. `key`
/// orders the ranks of a group; ranks of equal keys keep their order. A rank with RINGFOLD_NO_COLOR
/// gets NULL. Every rank of `comm` must call it, between the same two calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_split(
    comm: ringfold_comm_t,
    color: i64,
    key: i64,
    group: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        let color = match color {
            ..0 => None,
            color => Some(u32::try_from(color).map_err(|_| {
                Fault::argument(format!("the color {color} is above {}", u32::MAX))
            })?),
        };
        with(comm, |comm| Ok(comm.split(color, key)?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(group, make) }
}

/// Makes a communicator of the same ranks, for calls that overlap those of `comm`. Every rank of
/// `comm` must call it, between the same two calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_duplicate(
    comm: ringfold_comm_t,
    group: *mut ringfold_comm_t,
) -> ringfold_result {
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(group, || with(comm, |comm| Ok(Some(comm.duplicate()?)))) }
}

/// Makes a communicator of `count` of the ranks, in the order of the list. Other ranks get NULL.
/// Every rank of `comm` must call it with the same list, between the same two calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_subset(
    comm: ringfold_comm_t,
    ranks: *const u32,
    count: usize,
    group: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        // SAFETY: the caller points to `count` numbers.
        let ranks = unsafe { memory::slice(ranks, count, "the list of ranks") }?;
        with(comm, |comm| {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            Ok(comm.subset(&ranks)?)
        })
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(group, make) }
}

/// Makes a communicator of the ranks that survive a failure, in their old order and without the
/// `count` ranks of the list, which may be empty. Every survivor must call it, with the same list,
/// once for a communicator. Ranks that have ended, are stopped or disconnected are left out. `comm`
/// remains to be freed. RINGFOLD_ERROR_REGROUP if too few ranks come, or the others have left this
/// one out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_shrink(
    comm: ringfold_comm_t,
    ranks: *const u32,
    count: usize,
    survivors: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        // SAFETY: the caller points to `count` numbers.
        let ranks = unsafe { memory::slice(ranks, count, "the list of ranks") }?;
        with(comm, |comm| {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            Ok(Some(comm.shrink_without(&ranks)?))
        })
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(survivors, make) }
}

/// Makes a communicator of these ranks and at most `newcomers` processes that join the running job
/// by ringfold_init_as_newcomer. Old ranks keep their numbers. Every rank must call it, between the
/// same two calls. Rank 0 passes an id that it has made, and the others pass NULL. Every rank gets
/// NULL if no newcomer comes within RINGFOLD_JOIN_TIMEOUT: the group stays as it is. `comm` remains
/// usable, and to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_grow(
    comm: ringfold_comm_t,
    newcomers: usize,
    id: *const ringfold_unique_id,
    larger: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        // SAFETY: the caller points to an id.
        let id = (!id.is_null()).then(|| unsafe { memory::unique_id(id) }).transpose()?;
        with(comm, |comm| Ok(comm.grow(newcomers, id.as_ref())?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(larger, make) }
}

/// Waits for the processes that `ringrun --restart` starts in place of dead ranks, and makes a
/// communicator with them, as ringfold_comm_grow does. Every rank must call it, usually after
/// ringfold_comm_shrink. Waits for at most `seconds`. Every rank gets NULL if no process comes.
/// In a new process, ringfold_init joins that communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_wait_for_replacement(
    comm: ringfold_comm_t,
    seconds: f64,
    larger: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        let timeout = timeout_of(seconds).ok_or_else(|| {
            Fault::argument(format!("a timeout of {seconds} seconds; give 0 or more"))
        })?;
        with(comm, |comm| Ok(comm.wait_for_replacement(timeout)?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(larger, make) }
}

/// Writes the lasting identity of a rank: its number in the first communicator, from which
/// ringfold_comm_shrink and groups made this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_identity(
    comm: ringfold_comm_t,
    rank: u32,
    identity: *mut u32,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let identity = unsafe { memory::out(identity, "identity") }?;
        with(comm, |comm| {
            let size = comm.size();
            if Rank(rank).index() >= size {
                return Err(Fault::argument(format!("rank {rank} is not below {size}")));
            }
            identity.write(comm.identity(Rank(rank)).0);
            Ok(())
        })
    })
}

/// Makes all calls on all ranks of the communicator fail, those that wait included. Does not wait,
/// so any thread may call it at any time. The ranks' errors have the reason, which may be NULL. The
/// communicator remains to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_abort(
    comm: ringfold_comm_t,
    reason: *const c_char,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to a text.
        let given = (!reason.is_null()).then(|| unsafe { memory::text(reason, "the reason") });
        let reason =
            given.transpose()?.unwrap_or(Cow::Borrowed("the program called ringfold_comm_abort"));
        shared(comm)?.aborter.abort(reason);
        Ok(())
    })
}

/// Revokes the communicator: all calls on all ranks fail, those that wait included. Their errors
/// name the rank that revoked it. No rank counts as failed, so ringfold_comm_shrink makes a
/// communicator of all that live. One rank suffices. Does nothing after a failure. Does not wait,
/// so any thread may call it at any time. The communicator remains to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_comm_revoke(comm: ringfold_comm_t) -> ringfold_result {
    reported(|| {
        shared(comm)?.aborter.revoke();
        Ok(())
    })
}

/// Replaces `flag` by the bitwise and of the flags of all ranks, also after a failure or
/// ringfold_comm_revoke. Absorbs failures of ranks meanwhile. Every rank that lives must call it,
/// equally often. All ranks whose result is RINGFOLD_SUCCESS get the same value. Waits for ranks
/// that compute, for the time to join at most. RINGFOLD_ERROR_REGROUP if too few ranks come, or the
/// others have agreed without the flag of this one. `flag` then keeps its value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_agree(
    comm: ringfold_comm_t,
    flag: *mut u64,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to a number.
        let given = unsafe { memory::slice(flag.cast_const(), 1, "flag") }?[0];
        // SAFETY: the caller points to memory of a number.
        let flag = unsafe { memory::out(flag, "flag") }?;
        flag.write(with(comm, |comm| Ok(comm.agree(given)?))?);
        Ok(())
    })
}

/// Writes the ranks that have caused the failure, in ascending order, and their number to `count`:
/// none without a failure, and after ringfold_comm_revoke. `ranks` has room for as many numbers as
/// the communicator has ranks. Does not wait, so any thread may call it at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_failed_ranks(
    comm: ringfold_comm_t,
    ranks: *mut u32,
    count: *mut usize,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let count = unsafe { memory::out(count, "count") }?;
        let shared = shared(comm)?;
        let failed = shared.aborter.failed_ranks();
        for (at, rank) in failed.iter().enumerate() {
            // SAFETY: the caller points to as many numbers as there are ranks.
            unsafe { memory::out(ranks.wrapping_add(at), "ranks") }?.write(rank.0);
        }
        count.write(failed.len());
        Ok(())
    })
}

/// Writes whether the job has failed, without a call and without waiting: RINGFOLD_SUCCESS or
/// RINGFOLD_ERROR_FAILED. After a failure ringfold_last_error has its cause.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_async_error(
    comm: ringfold_comm_t,
    error: *mut RawResult,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a result.
        let error = unsafe { memory::out(error, "error") }?;
        error.write(RINGFOLD_SUCCESS as RawResult);
        let shared = shared(comm)?;
        let announced = || shared.aborter.failure_cause().map(|cause| cause.to_string());
        if let Some(message) = shared.failed.get().cloned().or_else(announced) {
            error.write(keep(Fault { result: RINGFOLD_ERROR_FAILED, message }) as RawResult);
        }
        Ok(())
    })
}

/// Leaves the group, and frees the handle even if the result is an error. Waits until the calls of
/// other threads have ended, and then until the other ranks leave too, for a few seconds at most.
/// Discards groups of calls that were not ended. A process must free its communicators before it
/// exits; otherwise the other ranks see that it has died.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_comm_free(comm: ringfold_comm_t) -> ringfold_result {
    reported(|| {
        let unknown = || Fault::handle(NAME, number(comm));
        // New calls find no communicator. Others may still ask for the rank, or abort.
        let communicator = shared(comm)?.lock()?.take().ok_or_else(unknown)?;
        let left = communicator.leave();
        drop(COMMS.remove(number(comm)));
        pending::discard_of(comm);
        Ok(left?)
    })
}
