//! Calls that are collected first and then performed together.

use std::ptr::without_provenance_mut;
use std::sync::{Mutex, PoisonError};

use ringfold::Rank;
use ringfold_foreign::{Entry, are_apart, lock};

use crate::fault::Fault;
use crate::table::Table;
use crate::types::ringfold_comm_t;

/// All groups of calls that were started and not ended.
static GROUPS: Table<Mutex<Pending>> = Table::new(3);

/// The name of a handle in errors.
pub(crate) const NAME: &str = "group of calls";

/// The calls of a group, in their order.
pub(crate) struct Pending {
    /// The handle of the communicator that performs them.
    pub(crate) comm: usize,
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) calls: Vec<Entry>,
    /// The error of the first call that was refused.
    pub(crate) refused: Option<Fault>,
}

/// The handle of a group, which may have been freed.
#[derive(Clone, Copy)]
pub(crate) struct Handle(u64);

/// The group that a handle in the place of a communicator's stands for.
#[inline]
pub(crate) fn of(comm: ringfold_comm_t) -> Option<Handle> {
    let handle = comm.addr() as u64;
    GROUPS.is_kind(handle).then_some(Handle(handle))
}

impl Handle {
    /// Adds the calls that `make` makes for a rank of a group of ranks. An error remains with the
    /// group, which then performs nothing.
    #[cold]
    pub(crate) fn add<const N: usize>(
        self,
        make: impl FnOnce(Rank, usize) -> Result<[Entry; N], Fault>,
    ) -> Result<(), Fault> {
        let pending = GROUPS.get(self.0).ok_or_else(|| self.unknown())?;
        let mut pending = lock(&pending);
        match make(pending.rank, pending.size) {
            Ok(calls) => pending.calls.extend(calls),
            Err(fault) => {
                pending.refused.get_or_insert_with(|| fault.clone());
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Takes the group out of the table.
    pub(crate) fn take(self) -> Result<Pending, Fault> {
        let pending = GROUPS.remove(self.0).ok_or_else(|| self.unknown())?;
        Ok(pending.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The error of a function that a group does not take, unless there is no such group.
    pub(crate) fn misplaced(self) -> Option<Fault> {
        GROUPS.get(self.0).map(|_| {
            Fault::misplaced(format!(
                "{:#x} is a group of calls, which takes messages and collectives with equal parts; \
                 this function needs the communicator",
                self.0
            ))
        })
    }

    fn unknown(self) -> Fault {
        Fault::handle(NAME, self.0)
    }
}

impl Pending {
    /// Gives C a handle of the group.
    pub(crate) fn keep(self) -> Result<ringfold_comm_t, Fault> {
        let handle = GROUPS.insert(Mutex::new(self)).and_then(|it| usize::try_from(it).ok());
        handle.map(without_provenance_mut).ok_or_else(|| Fault::full(NAME))
    }

    /// Checks that all calls were accepted, and that none writes what another one uses.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if let Some(Fault { result, message }) = &self.refused {
            let message = format!("no call of the group has begun, for one was refused: {message}");
            return Err(Fault { result: *result, message });
        }
        if !are_apart(&self.calls) {
            return Err(Fault::argument(
                "two calls of the group use the same memory, and one of them writes it",
            ));
        }
        Ok(())
    }
}

/// Discards all groups of a communicator.
pub(crate) fn discard_of(comm: ringfold_comm_t) {
    let comm = comm.addr();
    GROUPS.remove_all(|pending| lock(pending).comm == comm);
}
