//! The buffers that callers lend for the time of a call.

use std::io;
use std::sync::Arc;

use ringfold_types::limits::{RDMA_LEASE_BYTES, RDMA_LEASE_MAX_BYTES};

use super::right::{Right, Use};
use crate::rdma::budget::Budget;
use crate::rdma::sys::{Known, Mr, Pd, UserBuffer};

/// Leased buffers of one call. A send looks through all of them.
const LEASES_MAX: usize = 64;
/// Uses of memory that are copied after a refusal, before registration is tried again. The number
/// doubles each time.
const REFUSED_USES: u32 = 64;

/// The leased buffers of the present call.
#[derive(Debug)]
pub(super) struct Leases {
    all: Vec<Lease>,
    /// Buffers of so many bytes cannot be registered, and no longer ones.
    refused: usize,
    /// Uses of memory that were copied since a registration was refused, and their most.
    copied: (u32, u32),
}

/// A caller's buffer.
#[derive(Debug)]
struct Lease {
    buffer: UserBuffer,
    memory: Known,
    purpose: Use,
    rights: Vec<Right>,
}

impl Default for Leases {
    fn default() -> Self {
        Self { all: Vec::new(), refused: RDMA_LEASE_MAX_BYTES + 1, copied: (0, REFUSED_USES) }
    }
}

impl Leases {
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The begin and the bytes of each buffer.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        self.all.iter().map(|it| (it.memory.begin(), it.memory.bytes()))
    }

    /// The memory of the buffers, with its registrations.
    pub(super) fn rights(&self) -> impl Iterator<Item = (&Known, &[Right])> {
        self.all.iter().map(|it| (&it.memory, &it.rights[..]))
    }

    /// Returns whether the lease at that place serves a buffer.
    pub(super) fn serves(&self, at: usize, buffer: UserBuffer) -> bool {
        self.all[at].buffer.serves(buffer)
    }

    /// Takes a caller's buffer, unless it is too short. Buffers that are written have that purpose.
    /// Returns whether refused registrations are to be tried again.
    pub(super) fn add(&mut self, buffer: UserBuffer, written: Use) -> bool {
        if buffer.bytes() < RDMA_LEASE_BYTES {
            return false;
        }
        let joined = self.all.iter().enumerate().find_map(|(at, lease)| {
            let joined = lease.buffer.join(buffer)?;
            let may_join = lease.rights.is_empty() && joined.bytes() < self.refused;
            may_join.then_some((at, joined))
        });
        let buffer = match joined {
            Some((at, joined)) => {
                self.all.swap_remove(at);
                joined
            }
            None if self.all.len() == LEASES_MAX => return false,
            None => buffer,
        };
        let memory = Known::lent(buffer);
        let purpose = Use::of(buffer, written);
        if memory.bytes() < self.refused {
            self.all.push(Lease { buffer, memory, purpose, rights: Vec::new() });
            return false;
        }
        memory.bytes() <= RDMA_LEASE_MAX_BYTES && self.note_copy()
    }

    /// Counts a use of memory whose registration was refused. Returns whether it is to be tried
    /// again, as after some uses.
    pub(super) const fn note_copy(&mut self) -> bool {
        let (count, most) = self.copied;
        if count < most {
            self.copied.0 += 1;
            return false;
        }
        self.copied = (0, most.saturating_mul(2));
        self.refused = RDMA_LEASE_MAX_BYTES + 1;
        true
    }

    /// Returns the registration of a leased buffer in a domain, which is made at the first use and
    /// serves all uses. After a failure no buffer is registered that is as long, for some uses.
    pub(super) fn right(
        &mut self,
        at: usize,
        purpose: Use,
        pd: &Arc<Pd>,
        budget: &Budget,
    ) -> Option<Arc<Mr>> {
        let lease = &mut self.all[at];
        if purpose != Use::Read && lease.purpose == Use::Read {
            return None;
        }
        if let Some(right) = lease.rights.iter().find(|right| right.mr.is_of(pd)) {
            return Some(Arc::clone(&right.mr));
        }
        let bytes = lease.memory.bytes();
        if bytes >= self.refused {
            return None;
        }
        match Right::new(&lease.memory, lease.purpose, pd, budget) {
            Ok(right) => {
                let mr = Arc::clone(&right.mr);
                lease.rights.push(right);
                Some(mr)
            }
            Err(why) => {
                tracing::info!("rdma: messages in buffers of {bytes} bytes are copied: {why}");
                self.refused = bytes;
                None
            }
        }
    }

    /// Gives all buffers back. When this returns, no device accesses them.
    pub(super) fn release(&mut self) {
        for mut lease in self.all.drain(..) {
            // A device that refuses is in the log. It may go on reading.
            lease.deregister(|_| true).ok();
        }
    }

    /// Deregisters all buffers from a domain.
    ///
    /// # Errors
    /// The device is gone and has refused.
    pub(super) fn forget(&mut self, pd: &Arc<Pd>) -> io::Result<()> {
        let released = self.all.iter_mut().map(|it| it.deregister(|right| right.mr.is_of(pd)));
        released.fold(Ok(()), io::Result::and)
    }
}

impl Lease {
    /// Deregisters the buffer from some domains. When this returns, their devices no longer access
    /// it.
    ///
    /// # Errors
    /// A device that is gone has refused.
    fn deregister(&mut self, is_one: impl Fn(&Right) -> bool) -> io::Result<()> {
        let rights = self.rights.extract_if(.., |right| is_one(right));
        rights.map(Right::end).fold(Ok(()), io::Result::and)
    }
}
