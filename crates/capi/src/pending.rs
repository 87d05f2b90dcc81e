//! Calls that are collected first and then performed together.
#![allow(unsafe_code)]

use std::ptr::without_provenance_mut;
use std::sync::{Mutex, PoisonError};

use ringfold::{Call, CallGroup, Rank, Wire};

use crate::fault::Fault;
use crate::memory::{Places, Region};
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

/// A call of a group.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    Send { data: Region, to: Rank, tag: u32 },
    Recv { data: Region, from: Rank, tag: u32 },
    Collective { call: Call, places: Places },
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
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut used = Vec::new();
        let mut add = |region: Region, is_written: bool| {
            let bytes = region.addresses();
            if !bytes.is_empty() {
                used.push((bytes.start, bytes.end, is_written));
            }
        };
        for call in &self.calls {
            match *call {
                Entry::Send { data, .. } => add(data, false),
                Entry::Recv { data, .. } => add(data, true),
                Entry::Collective { places: Places::InPlace(both), .. } => add(both, true),
                Entry::Collective { places: Places::Apart { input, output }, .. } => {
                    add(input, false);
                    add(output, true);
                }
            }
        }
        used.sort_unstable();
        let (mut written_to, mut used_to) = (0, 0);
        for (start, end, is_written) in used {
            if start < written_to || is_written && start < used_to {
                return Err(Fault::argument(
                    "two calls of the group use the same memory, and one of them writes it",
                ));
            }
            used_to = used_to.max(end);
            if is_written {
                written_to = end;
            }
        }
        Ok(())
    }

    /// Adds the calls to a group of Rust.
    ///
    /// # Safety
    /// The memory of the calls belongs to the caller. Nobody else accesses it until they are done.
    /// `check` has succeeded.
    pub(crate) unsafe fn add_to(&self, group: &mut CallGroup<'_>, wire: Wire) {
        for call in &self.calls {
            // SAFETY: the contract; no two calls write the same memory, as was checked.
            unsafe {
                match *call {
                    Entry::Send { data, to, tag } => group.send::<u8>(data.slice(), to, tag),
                    Entry::Recv { data, from, tag } => {
                        group.recv::<u8>(data.slice_mut(), from, tag);
                    }
                    Entry::Collective { call, places } => {
                        group.perform(&Call { wire, ..call }, places.buffers());
                    }
                }
            }
        }
    }
}

/// Discards all groups of a communicator.
pub(crate) fn discard_of(comm: ringfold_comm_t) {
    let comm = comm.addr();
    let is_of = |pending: &Mutex<Pending>| {
        pending.lock().unwrap_or_else(PoisonError::into_inner).comm == comm
    };
    GROUPS.remove_all(is_of);
}
