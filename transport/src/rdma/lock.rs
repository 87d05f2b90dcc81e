//! A lock that outlives panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks data that a panicking thread leaves whole.
pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
