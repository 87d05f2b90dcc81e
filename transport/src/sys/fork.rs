//! Child processes made by `fork`, for example data loaders: they inherit every descriptor.
//!
//! A connection ends for its peer when the last process closes it. So a child that keeps one open
//! hides its parent's death. Descriptors close by themselves in children that call `exec`. In other
//! children the handler here closes them, inside `fork`.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use ringfold_types::limits::RANKS_MAX;

/// The number of forks between this process and its first ancestor that called `watch`.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The sockets to close in children. Rank 0 has a control connection to every rank, and every other
/// rank has one.
static SOCKETS: [Socket; RANKS_MAX] = [const { Socket::new() }; RANKS_MAX];

/// A socket: its descriptor, which may have been closed and reused, and its inode, which tells the
/// difference.
struct Socket {
    /// The bitwise complement of the descriptor, which keeps the table of free entries out of the
    /// program file.
    descriptor: AtomicI32,
    inode: AtomicU64,
}

/// An entry without a socket.
const FREE: RawFd = -1;
/// An entry that a thread is about to fill.
const TAKEN: RawFd = -2;

impl Socket {
    const fn new() -> Self {
        Self { descriptor: AtomicI32::new(!FREE), inode: AtomicU64::new(0) }
    }

    /// The descriptor, if it still belongs to this socket. Safe in a signal handler.
    fn open(&self) -> Option<RawFd> {
        // Acquire: pairs with the store in `enter`.
        let descriptor = !self.descriptor.load(Ordering::Acquire);
        let inode = self.inode.load(Ordering::Relaxed);
        (inode_of(descriptor)? == inode).then_some(descriptor)
    }

    /// Fills this entry if it is free or its socket is closed. Returns whether it did.
    fn enter(&self, descriptor: RawFd, inode: u64) -> bool {
        let current = self.descriptor.load(Ordering::Relaxed);
        let is_free = current != !TAKEN && self.open().is_none();
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        if !is_free || self.descriptor.compare_exchange(current, !TAKEN, acquire, relaxed).is_err()
        {
            return false;
        }
        self.inode.store(inode, Ordering::Relaxed);
        self.descriptor.store(!descriptor, Ordering::Release);
        true
    }
}

/// The inode of an open socket. Safe in a signal handler.
fn inode_of(descriptor: RawFd) -> Option<u64> {
    if descriptor < 0 {
        return None;
    }
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the system writes the descriptor's status there, or returns an error.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the system has written the status.
    let status = unsafe { status.assume_init() };
    (status.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(status.st_ino)
}

/// Closes `socket` in all children that `fork` makes from now on, while it is open in this process.
/// A child must not use the owner of the socket.
pub fn close_in_children(socket: BorrowedFd<'_>) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    watch();
    let descriptor = socket.as_raw_fd();
    let Some(inode) = inode_of(descriptor) else { return };
    let begin = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut places = (0..RANKS_MAX).map(|step| &SOCKETS[begin.wrapping_add(step) % RANKS_MAX]);
    if !places.any(|place| place.enter(descriptor, inode)) {
        tracing::warn!(
            "a child made by `fork` may hide the end of this process from its peers: too many \
             sockets"
        );
    }
}

/// Installs the handler that runs in children, once.
fn watch() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the handler only loads and stores atomics and calls `fstat` and `close`, which is
        // allowed in a child of a process with several threads.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
        if refused != 0 {
            let why = std::io::Error::from_raw_os_error(refused);
            tracing::warn!("this process cannot detect that it was forked: {why}");
        }
    });
}

extern "C" fn begin_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for socket in &SOCKETS {
        if let Some(descriptor) = socket.open() {
            // SAFETY: the descriptor belongs to the socket in this entry. Its owner in this process
            // belongs to a thread that was not forked, or is never dropped (see `Process`).
            unsafe { libc::close(descriptor) };
        }
    }
}

/// The process that made something. A forked child, which has a copy of that thing, is another
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Returns this process.
    #[must_use]
    pub fn this() -> Self {
        watch();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether `self` is this process. Costs one load.
    #[must_use]
    #[inline]
    pub fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Runs `child` in a child process made by `fork`; the child then exits without cleanup. Returns
/// the child's process number. For tests only: in a process with several threads a child must not
/// need a lock that another thread may have held. The C library takes care of its own locks.
///
/// # Errors
/// The system cannot make a process.
#[cfg(any(test, feature = "testing"))]
pub fn fork_for_test(child: impl FnOnce()) -> std::io::Result<u32> {
    // SAFETY: the child runs `child` and exits; it never returns to the caller's code.
    let number = unsafe { libc::fork() };
    match number {
        0 => {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: exits this process and runs no handlers.
            unsafe { libc::_exit(i32::from(caught.is_err())) }
        }
        number => u32::try_from(number).map_err(|_| std::io::Error::last_os_error()),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_number_that_became_another_file_stays_open() {
        let (kept, _peer) = UnixStream::pair().unwrap();
        let (other, _its_peer) = UnixStream::pair().unwrap();
        let inode = |socket: &UnixStream| inode_of(socket.as_raw_fd()).unwrap();
        let place = Socket::new();
        assert!(place.enter(kept.as_raw_fd(), inode(&kept)) && place.open().is_some());
        assert!(!place.enter(other.as_raw_fd(), inode(&other)), "the entry is taken");
        // As if the descriptor's number now belonged to another socket.
        place.inode.store(inode(&other), Ordering::Relaxed);
        assert_eq!(place.open(), None);
        assert!(place.enter(other.as_raw_fd(), inode(&other)));
    }
}
