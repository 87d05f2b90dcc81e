//! Functions of the program that the library calls while a communicator is in use.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The callbacks that run now, in all threads.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a callback.
#[inline]
pub(crate) fn runs_here() -> bool {
    // A thread sees its own addition in any order of memory.
    RUNNING.load(Ordering::Relaxed) != 0 && IS_IN_CALLBACK.get()
}

/// Calls a function of the program, which must not unwind.
pub(crate) fn call<R>(function: impl FnOnce() -> R) -> R {
    RUNNING.fetch_add(1, Ordering::Relaxed);
    IS_IN_CALLBACK.set(true);
    let result = function();
    IS_IN_CALLBACK.set(false);
    RUNNING.fetch_sub(1, Ordering::Relaxed);
    result
}
