//! Buffers that stay registered with devices for many calls.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, cast_slice_mut};
use ringfold_transport::Registration;

use crate::communicator::Communicator;
use crate::error::Error;

/// A buffer that stays registered with the RDMA devices of this process while this exists, as
/// [`Communicator::register`] makes it. It dereferences to the slice.
///
/// Every communicator of the process finds the registration, also in a part of the buffer. It may
/// be dropped before or after the communicator that made it.
pub struct Registered<'b, T> {
    buffer: &'b mut [T],
    registration: Option<Registration>,
}

impl Communicator {
    /// Registers `buffer` with the RDMA devices of this rank, for all calls to come. Long messages
    /// then leave from it, and arrive in it, without a copy, and no call registers it again. Each
    /// rank registers its own buffers, as many as it likes. A buffer without elements and a rank
    /// without RDMA need no registration, so this succeeds and does nothing.
    ///
    /// Without it, calls register buffers of 1 to 256 MiB for their own time, and copy others. A
    /// registration takes longer than a send, and longer still for longer buffers: it makes all of
    /// a buffer resident in memory. Register buffers that many calls use. Several buffers may
    /// overlap: parts of a registered buffer can be registered too. The same buffer takes only one
    /// registration, however often it is registered.
    ///
    /// All buffers together may take half of `RINGFOLD_IB_BYTES_MAX`, or of `ulimit -l` where that
    /// counts. Where no device registers the buffer, the log says why, this succeeds, and calls
    /// use the buffer as any other. [`Registered::is_registered`] tells.
    ///
    /// # Peers
    /// A peer that was told the place of a message in the buffer can write to the buffer as long as
    /// it stays registered. Ranks of ringfold write only what a call receives. A malicious peer
    /// that knows the job's secret could change the elements at any time, as those of a
    /// [`Window`](crate::Window). If [`forget`](std::mem::forget) keeps the registration after the
    /// memory is freed, messages in other memory at the same address go astray.
    ///
    /// # Errors
    /// [`Error::Failed`] if a call has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut gradient = vec![1.0_f32; 1 << 20];
    /// let mut gradient = comm.register(&mut gradient)?;
    /// for _step in 0..10 {
    ///     comm.all_reduce(&mut gradient, ReduceOp::Avg)?;
    /// }
    /// assert_eq!(gradient[0], 1.0);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn register<'b, T: Pod>(
        &mut self,
        buffer: &'b mut [T],
    ) -> Result<Registered<'b, T>, Error> {
        self.check_process()?;
        self.check_failure()?;
        let bytes: &mut [u8] = cast_slice_mut(buffer);
        let registration =
            if bytes.is_empty() { None } else { self.beside()?.core.router.register(bytes) };
        Ok(Registered { buffer, registration })
    }
}

impl<T> Registered<'_, T> {
    /// Returns whether a device of this rank has the buffer registered.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.registration.is_some()
    }

    /// Gives the buffer back and keeps it registered, for bindings. The caller drops the
    /// registration, if there is one, before it frees the memory.
    #[must_use]
    pub fn into_registration(mut self) -> Option<Registration> {
        self.registration.take()
    }
}

impl<T> Drop for Registered<'_, T> {
    /// Deregisters the buffer, before its borrow ends.
    fn drop(&mut self) {
        self.registration = None;
    }
}

impl<T> Deref for Registered<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer
    }
}

impl<T> DerefMut for Registered<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.buffer
    }
}

impl<T> fmt::Debug for Registered<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("len", &self.buffer.len())
            .field("is_registered", &self.is_registered())
            .finish_non_exhaustive()
    }
}
