//! Started calls: collectives that go on while the program computes.
//!
//! A communicator performs its started calls one after the other, in the order in which they were
//! started, which must be the same on all ranks. The thread that waits for one drives them. While
//! no thread waits, one helper thread of the process does, which sleeps on descriptors.

mod callers;
mod driver;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod interleaved_tests;
pub(crate) mod job;
#[cfg(test)]
mod message_tests;
mod prepared;
#[cfg(test)]
mod prepared_tests;
pub(crate) mod progress;
mod scope;
pub(crate) mod slot;
mod start;
#[cfg(test)]
mod tests;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ringfold_lend::Owner;
use ringfold_types::Rank;

pub use self::prepared::Prepared;
pub use self::scope::Scope;
use self::slot::Slot;
use crate::engine::Engine;
use crate::error::{Error, Message};
use crate::ticket::Ticket;

/// The longest sleep of a thread in `wait_any` before it advances the calls itself.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A collective that was started and owns its buffers until it ends.
///
/// [`wait`](Self::wait), or awaiting the request, returns the buffers with the result. Dropping a
/// request does not cancel the call: it goes on, and its buffers are freed at its end. Any thread
/// may wait, but no function that a call runs, such as a wait hook or a waker.
///
/// ```
/// use ringfold::{Communicator, ReduceOp};
///
/// let mut comm = Communicator::init()?;
/// let request = comm.start_all_reduce(vec![1.0_f32; 1000], ReduceOp::Sum)?;
/// let busy: u64 = (0..1000).sum();
/// let sums = request.wait()?;
/// assert_eq!((sums[999], busy), (comm.size() as f32, 499_500));
/// # Ok::<(), ringfold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a request that is dropped keeps the result from the program"]
pub struct Request<B> {
    rank: Rank,
    buffers: Owner<B>,
    ticket: Arc<Ticket>,
    slot: Arc<Slot<Engine>>,
    /// Notes the message of a receive in its buffers.
    note: fn(&mut B, Message),
    event: OnceLock<Arc<Event>>,
}

/// A descriptor that becomes readable when a call has ended.
#[derive(Debug)]
struct Event(ringfold_transport::Waker);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

impl<B> Request<B> {
    pub(crate) fn new(
        rank: Rank,
        buffers: Owner<B>,
        ticket: Arc<Ticket>,
        slot: Arc<Slot<Engine>>,
    ) -> Self {
        Self { rank, buffers, ticket, slot, note: |_, _| (), event: OnceLock::new() }
    }

    /// Has `note` note the message of a receive.
    pub(crate) fn noting(self, note: fn(&mut B, Message)) -> Self {
        Self { note, ..self }
    }

    /// Whether the call has ended. Does not wait; it advances the call if no other thread does.
    pub fn test(&self) -> bool {
        if !self.ticket.has_ended() && !self.slot.is_forked() {
            self.slot.advance();
        }
        self.ticket.has_ended()
    }

    /// Blocks until the call has ended, or `limit` has passed, and at most 100 ms longer. Whether
    /// the call has ended. In a child process it returns at once.
    pub fn wait_for(&self, limit: Duration) -> bool {
        if !self.ticket.has_ended() && !self.slot.is_forked() {
            self.slot.wait_for(&self.ticket, Instant::now().checked_add(limit));
        }
        self.ticket.has_ended()
    }

    /// A descriptor that is readable once the call has ended, for an event loop. The helper thread
    /// advances the call meanwhile. The program must not read it. It is closed with the request.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            let made = Arc::new(Event(ringfold_transport::Waker::new()?));
            let event = Arc::clone(self.event.get_or_init(|| made));
            self.ticket.signal_at_end(Waker::from(event));
        }
        let Some(event) = self.event.get() else { unreachable!("it was made") };
        Ok(event.0.as_fd())
    }

    /// Has `waker` woken in the thread that ends the call. Returns whether the call has ended; the
    /// waker is not woken then.
    pub fn wake_at_end(&self, waker: &Waker) -> bool {
        self.ticket.wake_at_end(waker)
    }

    /// Takes the result of a call that has ended, for a binding that keeps the buffers itself. A
    /// receive has its message. `None` before the end, and when the result was taken. Does not
    /// wait.
    pub fn take_result(&self) -> Option<Result<Option<Message>, Error>> {
        self.ticket.take()
    }

    /// Returns the buffers when the call has ended. Blocks until then.
    ///
    /// # Errors
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process. The buffers
    /// come back in either case.
    pub fn wait(mut self) -> Result<B, Failed<B>> {
        if !self.ticket.has_ended() && !self.slot.is_forked() {
            self.slot.wait_for(&self.ticket, None);
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<B, Failed<B>> {
        let result = if self.ticket.has_ended() {
            self.ticket.take()
        } else {
            Some(Err(Error::Forked { rank: self.rank }))
        };
        let (Some(result), Some(mut buffers)) = (result, self.buffers.take()) else {
            panic!("the request was awaited after its end");
        };
        match result {
            Ok(message) => {
                if let Some(message) = message {
                    (self.note)(&mut buffers, message);
                }
                Ok(buffers)
            }
            Err(error) => Err(Failed { error, buffers }),
        }
    }
}

impl<B> Unpin for Request<B> {}

/// Waits until one of the calls has ended, and returns its index. Blocks until then. `None` if
/// there are no requests. In a child process every call counts as ended.
///
/// ```
/// use ringfold::{Communicator, ReduceOp, wait_any};
///
/// let mut comm = Communicator::init()?;
/// let requests = [
///     comm.start_all_reduce(vec![1_u32; 10], ReduceOp::Sum)?,
///     comm.start_all_reduce(vec![1_u32; 20], ReduceOp::Sum)?,
/// ];
/// assert!(wait_any(&requests.each_ref()).is_some());
/// # Ok::<(), ringfold::Error>(())
/// ```
#[must_use]
pub fn wait_any<B>(requests: &[&Request<B>]) -> Option<usize> {
    requests.first()?;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        let has_ended = |it: &&Request<B>| it.slot.is_forked() || it.ticket.wake_at_end(&waker);
        if let Some(ended) = requests.iter().position(has_ended) {
            return Some(ended);
        }
        // Without a helper thread only this one advances the calls.
        if !requests.iter().any(|request| request.test()) {
            thread::park_timeout(SLEEP_MAX);
        }
    }
}

/// Waits until some of the calls have ended, and returns their indices. Blocks until then. Empty if
/// there are no requests. In a child process every call counts as ended.
#[must_use]
pub fn wait_some<B>(requests: &[&Request<B>]) -> Vec<usize> {
    let _first = wait_any(requests);
    let has_ended = |it: &&Request<B>| it.slot.is_forked() || it.ticket.has_ended();
    (0..requests.len()).filter(|at| has_ended(&requests[*at])).collect()
}

/// Whether all of the calls have ended. Does not wait; it advances those that no other thread does.
#[must_use]
pub fn test_all<B>(requests: &[&Request<B>]) -> bool {
    requests.iter().filter(|request| !request.test()).count() == 0
}

/// Waits until all of the calls have ended, and returns their buffers. Blocks until then.
///
/// # Errors
/// The first error among them, with all buffers. No call is left.
pub fn wait_all<B>(
    requests: impl IntoIterator<Item = Request<B>>,
) -> Result<Vec<B>, Failed<Vec<B>>> {
    let (mut first, mut all) = (None, Vec::new());
    for request in requests {
        match request.wait() {
            Ok(buffers) => all.push(buffers),
            Err(Failed { error, buffers }) => {
                first.get_or_insert(error);
                all.push(buffers);
            }
        }
    }
    match first {
        None => Ok(all),
        Some(error) => Err(Failed { error, buffers: all }),
    }
}

/// Ends the sleep of a thread in `wait_any`.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<B> Future for Request<B> {
    type Output = Result<B, Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let is_over = self.slot.is_forked() || self.ticket.wake_at_end(context.waker());
        if is_over { Poll::Ready(self.finish()) } else { Poll::Pending }
    }
}

/// The outcome of a start: a request, or the reason why there is none.
pub type Started<B> = Result<Request<B>, Failed<B>>;

/// The error of a started call, with its buffers. The contents of output buffers are undefined.
pub struct Failed<B> {
    /// The error.
    pub error: Error,
    /// The buffers of the call.
    pub buffers: B,
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> StdError for Failed<B> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error
    }
}
