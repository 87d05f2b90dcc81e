//! The destruction of a queue pair, in a thread of its own. Soft devices take seconds for it while
//! packets wait for an address, and longer while the queue pair is being connected.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::rdma::sys::{Connection, Qp};

/// Time in milliseconds that a device may take to destroy a queue pair on which the peer may still
/// write. After that the link to the peer ends.
const RDMA_DESTROY_MS: u64 = 10_000;

/// The interval between checks of a destruction.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The result, once the device is done.
type Outcome = Arc<OnceLock<Result<(), String>>>;

/// A destruction in progress, or done.
#[derive(Debug)]
pub(super) struct Destruction {
    since: Instant,
    outcome: Outcome,
}

/// A queue pair and its connection. Dropping them blocks until the device is done.
struct Doomed {
    qp: Option<Qp>,
    outcome: Outcome,
    // Dropped after the queue pair that it connects.
    _connection: Option<Arc<Connection>>,
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let destroyed = self.qp.take().map_or(Ok(()), Qp::destroy);
        self.outcome.set(destroyed.map_err(|error| error.to_string())).ok();
    }
}

impl Destruction {
    /// Begins to destroy a queue pair, and then its connection.
    pub(super) fn new(qp: Qp, connection: Option<Arc<Connection>>) -> Self {
        let outcome = Outcome::default();
        let (qp, of) = (Some(qp), Arc::clone(&outcome));
        let doomed = Doomed { qp, outcome: of, _connection: connection };
        // If no thread can be made, the closure is dropped here, and this call blocks.
        thread::Builder::new().name("ringfold-rdma".to_owned()).spawn(move || drop(doomed)).ok();
        Self { since: Instant::now(), outcome }
    }

    /// Returns whether the device is done. From then on the queue pair takes and sends nothing.
    ///
    /// # Errors
    /// The device refuses, or takes too long. The peer may then write for an unknown time.
    pub(super) fn is_done(&self) -> io::Result<bool> {
        match self.outcome.get() {
            Some(Ok(())) => Ok(true),
            Some(Err(why)) => Err(io::Error::other(why.clone())),
            None if self.since.elapsed() < Duration::from_millis(RDMA_DESTROY_MS) => Ok(false),
            None => Err(io::Error::other(format!("it takes more than {RDMA_DESTROY_MS} ms"))),
        }
    }

    /// The time of the next check.
    pub(super) fn next_check(&self) -> Option<Instant> {
        matches!(self.is_done(), Ok(false)).then(|| Instant::now() + CHECK_INTERVAL)
    }

    /// Blocks until the device is done.
    ///
    /// # Errors
    /// The device refuses, or takes too long, as in `is_done`.
    pub(super) fn wait(&self) -> io::Result<()> {
        while !self.is_done()? {
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }
}
