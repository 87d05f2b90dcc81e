//! The requests that C has handles of.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard, TryLockError};

use ringfold::{Communicator, Prepared, Request};
use ringfold_foreign::Places;

use crate::comm::{Later, with};
use crate::fault::{Fault, reported};
use crate::memory;
use crate::table::{Held, Table};
use crate::types::{ringfold_comm_t, ringfold_request_t, ringfold_result};

/// All requests that C has handles of.
pub(crate) static REQUESTS: Table<Kept> = Table::new(6);

/// A request of C.
pub(crate) enum Kept {
    Started(Request<Places>),
    /// A call that is started many times.
    Prepared {
        /// The handle of its communicator.
        comm: usize,
        prepared: Mutex<Prepared<Places>>,
    },
}

impl Kept {
    /// The request, which no other thread uses if it is a prepared one.
    pub(crate) fn used(&self) -> Result<Used<'_>, Fault> {
        match self {
            Self::Started(request) => Ok(Used::Started(request)),
            Self::Prepared { prepared, .. } => alone(prepared).map(Used::Prepared),
        }
    }
}

/// A prepared call, for this thread alone.
pub(crate) fn alone(
    prepared: &Mutex<Prepared<Places>>,
) -> Result<MutexGuard<'_, Prepared<Places>>, Fault> {
    match prepared.try_lock() {
        Ok(prepared) => Ok(prepared),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Fault::argument("another thread, or this call twice, uses the prepared request"))
        }
    }
}

/// A request that this thread uses.
pub(crate) enum Used<'k> {
    Started(&'k Request<Places>),
    Prepared(MutexGuard<'k, Prepared<Places>>),
}

impl Deref for Used<'_> {
    type Target = Request<Places>;

    fn deref(&self) -> &Request<Places> {
        match self {
            Self::Started(request) => request,
            Self::Prepared(prepared) => prepared,
        }
    }
}

/// The name of a handle in errors.
pub(crate) const NAME: &str = "request";

/// Writes a request of what `begin` starts, or prepares it if the handle says so.
///
/// # Safety
/// `request` is NULL or points to memory of a handle.
pub(crate) unsafe fn keep(
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
    begin: impl FnOnce(&mut Communicator) -> Result<Request<Places>, Fault>,
) -> ringfold_result {
    // SAFETY: the contract.
    reported(|| unsafe { kept(comm, request, begin) })
}

/// Does the same, as a part of a function.
///
/// # Safety
/// As for `keep`.
pub(crate) unsafe fn kept(
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
    begin: impl FnOnce(&mut Communicator) -> Result<Request<Places>, Fault>,
) -> Result<(), Fault> {
    // SAFETY: the contract.
    let request = unsafe { memory::out(request, "request") }?;
    request.write(null_mut());
    let room = REQUESTS.reserve().ok_or_else(|| Fault::full(NAME))?;
    let made = match Later::of(comm) {
        None => with(comm, |it| Ok(Kept::Started(begin(it)?)))?,
        Some(Later(comm)) => {
            let prepared = Mutex::new(with(comm, |it| it.prepare(begin))?);
            Kept::Prepared { comm: comm.addr(), prepared }
        }
    };
    let handle = usize::try_from(room.fill(made)).map_err(|_| Fault::full(NAME))?;
    request.write(without_provenance_mut(handle));
    Ok(())
}

/// The request of a handle.
pub(crate) fn find(request: ringfold_request_t) -> Result<Held<'static, Kept>, Fault> {
    let handle = request.addr() as u64;
    REQUESTS.get(handle).ok_or_else(|| Fault::handle(NAME, handle))
}
