//! A rank's end of the control plane: what it tells the others about itself, and the one verdict
//! that it may hear from them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};

use crate::aborter::{Aborter, Way};
use crate::call_log::CallName;
use crate::exchange::{ExchangeError, offer_bytes_max};
use crate::judge::Complaint;
use crate::member::Member;
use crate::room::Room;
use crate::seat::Seat;
use crate::verdict::Verdict;

/// A rank's connection to the other ranks beside the data path.
///
/// `entered`, `finished` and `verdict` are for the hot path: a few nanoseconds, no locks, no system
/// calls. To drop a `Control` without `leave` tells the others that this rank has failed.
#[derive(Debug)]
pub struct Control {
    rank: Rank,
    size: usize,
    seat: Arc<Seat>,
    link: Link,
    left: bool,
}

#[derive(Debug)]
pub(crate) enum Link {
    Local(Arc<Room>),
    Member(Member),
}

impl Control {
    pub(crate) const fn new(rank: Rank, size: usize, seat: Arc<Seat>, link: Link) -> Self {
        Self { rank, size, seat, link, left: false }
    }

    /// This rank.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Notes that call number `seq`, which only grows, begins. To be called by one thread at a
    /// time.
    #[inline]
    pub fn entered(&self, seq: u64, name: &CallName) {
        self.seat.calls.entered(seq, name);
    }

    /// Notes that call number `seq` is done, and so are all before it. To be called by the thread
    /// that calls `entered`.
    #[inline]
    pub fn finished(&self, seq: u64) {
        self.seat.calls.finished(seq);
    }

    /// The verdict, once there is one; it never changes. One atomic load while there is none.
    #[inline]
    #[must_use]
    pub fn verdict(&self) -> Option<Arc<Verdict>> {
        self.seat.verdict().cloned()
    }

    /// Becomes readable, and stays so, when there is a verdict. Not to be read from.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.seat.wake_fd()
    }

    /// Tells the others that something is wrong. Does not block; a verdict follows within about
    /// `limits::HUB_SILENCE_MS`.
    pub fn complain(&self, complaint: Complaint) {
        match &self.link {
            Link::Local(room) => room.complain(self.rank, complaint),
            Link::Member(member) => member.complain(complaint),
        }
    }

    /// Waits until everything that had arrived on the control connection is handled: a verdict
    /// among it is returned by `verdict` from then on. A rank that was stopped calls it before it
    /// touches memory that its peers share. Takes microseconds where all is well; in rank 0 it also
    /// waits until a failure that was reported has its verdict. Blocks for `limits::CATCH_UP_MS` at
    /// most; where the control thread has ended, not at all. Returns whether all is handled.
    pub fn catch_up(&self) -> bool {
        match &self.link {
            Link::Member(member) => member.catch_up(Duration::from_millis(limits::CATCH_UP_MS)),
            Link::Local(_) => true,
        }
    }

    /// A handle that gives this rank up from any thread.
    #[must_use]
    pub fn aborter(&self) -> Aborter {
        let way = match &self.link {
            Link::Local(room) => Way::Local(Arc::clone(room)),
            Link::Member(member) => Way::Member(member.commands()),
        };
        Aborter { rank: self.rank, way }
    }

    /// Bytes that each of `size` ranks may put into an exchange.
    #[must_use]
    pub const fn exchange_bytes_max(size: usize) -> usize {
        offer_bytes_max(size)
    }

    /// Gives `bytes` to every rank and returns everyone's, in rank order. All ranks must call it,
    /// and equally often. Blocks; meant for setting things up, as it passes through rank 0.
    ///
    /// # Errors
    /// A verdict, or `timeout` has passed, or `bytes` are too many.
    pub fn exchange(
        &self,
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let max = offer_bytes_max(self.size);
        if bytes.len() > max {
            return Err(ExchangeError::TooLarge { bytes: bytes.len(), max });
        }
        if let Some(verdict) = self.verdict() {
            return Err(ExchangeError::Failed(verdict));
        }
        let all = match &self.link {
            Link::Local(room) => room.exchange(self.rank, bytes, timeout),
            Link::Member(member) => member.exchange(bytes, timeout),
        };
        all.map_err(|e| self.verdict().map_or(e, ExchangeError::Failed))
    }

    /// Says goodbye, and waits for the others to: rank 0, which carries the control plane, at most
    /// `Options::linger`, the others at most `limits::PARTING_MS`, and threads of one process not
    /// at all. When all have, their latest calls (`limits::CALLS_REMEMBERED`) are compared, and
    /// those who still wait hear of a difference that kept nobody waiting.
    ///
    /// # Errors
    /// The verdict, whether it is new or not.
    pub fn leave(mut self) -> Result<(), Arc<Verdict>> {
        self.left = true;
        match &mut self.link {
            Link::Local(room) => room.leave(self.rank),
            Link::Member(member) => member.leave(),
        }
        self.verdict().map_or(Ok(()), Err)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let how = if std::thread::panicking() { "panicked" } else { "dropped its communicator" };
        let reason = format!("it {how} without leaving the job");
        match &mut self.link {
            Link::Local(room) => room.abandon(self.rank, reason),
            Link::Member(member) => member.abandon(reason),
        }
    }
}
