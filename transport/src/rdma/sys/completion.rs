//! Completions, and waiting for them.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::abi;
use super::device::{Context, check};

/// Completions taken from a queue at once.
const BATCH: i32 = 16;

/// A descriptor on which the completion queues of one device notify a waiting thread.
pub(in crate::rdma) struct Channel {
    raw: NonNull<abi::Channel>,
    context: Context,
}

/// A completion queue.
pub(in crate::rdma) struct Cq {
    raw: NonNull<abi::Cq>,
    poll: abi::PollCq,
    notify: abi::NotifyCq,
    /// The device has reported that the queue cannot be used any more.
    has_failed: Box<AtomicBool>,
    channel: Arc<Channel>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}
// SAFETY: as above.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

/// The notification of a queue that has a completion.
#[derive(Debug)]
pub(in crate::rdma) struct Notification(*mut abi::Cq);

/// The completion of work of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Completion {
    /// The identity that the work was posted with.
    pub(in crate::rdma) id: u64,
    pub(in crate::rdma) outcome: Outcome,
}

/// The outcome of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Outcome {
    /// Our work is done. On InfiniBand and RoCE all that was posted to its queue before has
    /// arrived.
    Done,
    /// A question (`Qp::ask`) was answered, so everything that was posted before has arrived.
    Answered,
    /// The peer's work has arrived, with this immediate. The peer's earlier writes can be read.
    Arrived(u32),
    /// A message of so many bytes has arrived in the buffer of the receive.
    Message(u32),
    /// The queue pair is in error, for this reason of the device.
    Failed { status: u32, vendor: u32 },
}

impl Channel {
    pub(in crate::rdma) fn new(context: &Context) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library().create_channel)(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { raw, context: context.clone() };
        let fd = channel.fd();
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    /// The descriptor, which is readable when a queue that was asked to notify has a completion.
    pub(in crate::rdma) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, and so as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }

    /// Takes a notification that has come, if any.
    pub(in crate::rdma) fn notification(&self) -> Option<Notification> {
        let library = self.context.library();
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives and does not block, and there is room for the answers.
        let status =
            unsafe { (library.cq_event)(self.raw.as_ptr(), &raw mut cq, &raw mut context) };
        if status != 0 {
            return None;
        }
        // SAFETY: the event was just taken from this queue, which cannot go before it is
        // acknowledged.
        unsafe { (library.ack_cq_events)(cq, 1) };
        Some(Notification(cq))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its queues held it, and are gone.
        unsafe { (self.context.library().destroy_channel)(self.raw.as_ptr()) };
    }
}

impl Cq {
    /// Makes a queue with room for `entries` completions. `user` chooses among the device's
    /// completion vectors, each of which usually interrupts another CPU.
    pub(in crate::rdma) fn new(
        channel: &Arc<Channel>,
        entries: u32,
        user: usize,
    ) -> io::Result<Arc<Self>> {
        let context = &channel.context;
        let unable = || io::Error::from(io::ErrorKind::Unsupported);
        let poll = context.ops().poll_cq.ok_or_else(unable)?;
        let notify = context.ops().req_notify_cq.ok_or_else(unable)?;
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let (create, own) = (context.library().create_cq, channel.raw.as_ptr());
        let has_failed = Box::new(AtomicBool::new(false));
        let mark = (&raw const *has_failed).cast_mut().cast();
        let vector = context.vector(user);
        // SAFETY: context and channel live. libibverbs only keeps the mark.
        let raw = unsafe { create(context.raw(), entries, mark, own, vector) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { raw, poll, notify, has_failed, channel: Arc::clone(channel) }))
    }

    pub(super) fn raw(&self) -> *mut abi::Cq {
        self.raw.as_ptr()
    }

    /// Makes room for `entries` completions. Those that are in the queue stay.
    pub(in crate::rdma) fn resize(&self, entries: u32) -> io::Result<()> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: the queue lives, and the driver locks it.
        check(unsafe { (self.channel.context.library().resize_cq)(self.raw(), entries) })
    }

    /// Takes some completions, oldest first. Returns whether there may be more.
    pub(in crate::rdma) fn poll(&self, into: &mut Vec<Completion>) -> io::Result<bool> {
        let mut found = [const { std::mem::MaybeUninit::<abi::Wc>::uninit() }; BATCH as usize];
        // SAFETY: the queue lives, and there is room for as many completions as are asked for.
        let count = unsafe { (self.poll)(self.raw(), BATCH, found.as_mut_ptr().cast()) };
        let taken = usize::try_from(count)
            .map_err(|_| io::Error::other("a completion queue cannot be read"))?;
        into.extend(found.iter().take(taken).map(|wc| {
            // SAFETY: the first `count` were written.
            unsafe { completion(wc.as_ptr()) }
        }));
        Ok(count == BATCH)
    }

    /// Lets the channel's descriptor become readable, once, at the next completion. Completions
    /// that are already in the queue may not count, so poll once more before waiting.
    pub(in crate::rdma) fn notify(&self) -> io::Result<()> {
        // SAFETY: the queue lives.
        check(unsafe { (self.notify)(self.raw(), 0) })
    }

    /// Returns whether the device has reported that the queue cannot be used any more.
    pub(in crate::rdma) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns whether this is the queue that has notified.
    pub(in crate::rdma) fn has_sent(&self, notification: &Notification) -> bool {
        self.raw() == notification.0
    }
}

/// Reads the valid fields of a completion. Of a failed one these are the identity, the status and
/// the vendor's status.
///
/// # Safety
/// `wc` was written by the device's driver.
unsafe fn completion(wc: *const abi::Wc) -> Completion {
    // SAFETY: by the caller. Drivers always write the fields that are read first, and those fields
    // tell whether the others were written.
    unsafe {
        let outcome = if (*wc).status != 0 {
            Outcome::Failed { status: (*wc).status, vendor: (*wc).vendor_err }
        } else {
            match (*wc).opcode {
                abi::WC_RECV_RDMA_WITH_IMM => Outcome::Arrived(u32::from_be((*wc).imm_data)),
                abi::WC_RECV => Outcome::Message((*wc).byte_len),
                abi::WC_RDMA_READ => Outcome::Answered,
                _ => Outcome::Done,
            }
        };
        Completion { id: (*wc).wr_id, outcome }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: its queue pairs held it, and are gone; every event was acknowledged.
        unsafe { (self.channel.context.library().destroy_cq)(self.raw()) };
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.context.name())
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cq({})", self.channel.context.name())
    }
}
