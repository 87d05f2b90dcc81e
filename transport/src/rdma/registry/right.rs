//! A registration of memory with a device, and its cost for the process.

use std::io;
use std::sync::Arc;

use crate::rdma::budget::{Budget, Payment};
use crate::rdma::diagnostics;
use crate::rdma::sys::{Known, Mr, Pd, UserBuffer};

/// The purpose of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Our device reads the bytes that are sent. Any registration serves.
    Read,
    /// The peer's device writes the bytes that are received, maybe in any order.
    Write { in_any_order: bool },
}

impl Use {
    /// The purpose of a caller's buffer. Those that are written have that purpose.
    pub(super) const fn of(buffer: UserBuffer, written: Self) -> Self {
        if buffer.is_written() { written } else { Self::Read }
    }
}

/// A registration, and the bytes that the process pays for it.
#[derive(Debug)]
pub(super) struct Right {
    pub(super) purpose: Use,
    pub(super) mr: Arc<Mr>,
    _paid: Payment,
}

impl Right {
    /// Registers memory in a domain, or returns the reason why that cannot be.
    pub(super) fn new(
        memory: &Known,
        purpose: Use,
        pd: &Arc<Pd>,
        budget: &Budget,
    ) -> Result<Self, String> {
        let paid = budget.register_pages(memory.bytes())?;
        let mr = match purpose {
            Use::Read => memory.register(pd),
            Use::Write { in_any_order } => memory.expose(pd, in_any_order),
        };
        let mr = mr.map_err(|error| diagnostics::registration(&error, memory.bytes()))?;
        Ok(Self { purpose, mr: Arc::new(mr), _paid: paid })
    }

    /// Deregisters the memory.
    ///
    /// # Errors
    /// The device refuses. If the memory is a caller's own buffer, the device is gone.
    pub(super) fn end(self) -> io::Result<()> {
        let (ended, lent) = (self.mr.deregister(), self.mr.lent_bytes());
        let (Err(error), Some(bytes)) = (&ended, lent) else { return ended };
        tracing::error!("rdma: a buffer of {bytes} bytes stays registered: {error}");
        let is_gone = error.raw_os_error() == Some(libc::EIO);
        if self.purpose != Use::Read && !is_gone {
            // Nothing else would keep peers from writing to memory that is given back.
            std::process::abort();
        }
        ended
    }
}
