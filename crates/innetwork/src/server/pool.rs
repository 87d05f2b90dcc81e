//! The memory that groups may use together. A group takes its share before anything is allocated,
//! and gives it back when it ends, however it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fixed number of bytes.
#[derive(Debug)]
pub struct Pool {
    bytes: usize,
    used: AtomicUsize,
}

/// A group's share. Dropping it returns the bytes.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<Pool>,
    bytes: usize,
}

/// The pool lacks room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group needs {needed} bytes, and {free} of the aggregator's {all} are free")]
pub struct Exhausted {
    /// Bytes that the group needs.
    pub needed: usize,
    /// Bytes that no group uses.
    pub free: usize,
    /// Bytes of the pool.
    pub all: usize,
}

impl Pool {
    /// Makes a pool of `bytes` bytes. It allocates nothing itself.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, used: AtomicUsize::new(0) })
    }

    /// Bytes of the pool.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that groups use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` bytes.
    ///
    /// # Errors
    /// There are not as many.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Lease, Exhausted> {
        let grown = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(Lease { pool: Arc::clone(self), bytes }),
            Err(used) => Err(Exhausted { needed: bytes, free: self.bytes - used, all: self.bytes }),
        }
    }
}

impl Lease {
    /// Bytes of the share.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_return_and_never_exceed_the_pool() {
        let pool = Pool::new(100);
        let first = pool.take(60).unwrap();
        let error = pool.take(41).unwrap_err();
        assert_eq!(error, Exhausted { needed: 41, free: 40, all: 100 });
        let second = pool.take(40).unwrap();
        assert!(pool.take(usize::MAX).is_err());
        drop(first);
        assert_eq!(pool.used(), 40);
        drop((second, pool.take(60).unwrap()));
        assert_eq!(pool.used(), 0);
    }
}
