//! Chooses how to write memory that another CPU reads: through the caches or by non-temporal
//! stores.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use super::copy::{copy_bytes, stream_bytes};

/// Shorter copies go through the caches.
const BYTES_MIN: usize = 8192;

/// Copies between two measurements of both ways. The distance between the CPUs changes when ranks
/// or virtual CPUs migrate.
const TIMED_EVERY: u32 = 128;

/// Non-temporal stores are used if they are more than this many times faster. The reader is slower
/// after non-temporal stores, so they must save more than they cost it.
const TIMES: u32 = 3;

/// One writer's choice.
///
/// The reader's caches keep the lines that it has read. A writer that reuses these lines must first
/// take each of them back. This is cheap if the two CPUs share a cache. Otherwise it takes longer
/// than a write to memory and a read from memory.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    stretches: u32,
    /// The time of a copy through the caches, scaled to `BYTES_MIN` bytes.
    through: Duration,
    goes_past: bool,
}

impl Handover {
    /// Copies `bytes` bytes by the faster way.
    ///
    /// # Safety
    /// As `std::ptr::copy_nonoverlapping`.
    #[inline]
    pub(crate) unsafe fn copy(&mut self, from: *const u8, into: *mut u8, bytes: usize) {
        if bytes >= BYTES_MIN {
            // SAFETY: the caller's promise.
            return unsafe { self.copy_long(from, into, bytes) };
        }
        // SAFETY: the caller's promise.
        unsafe { copy_bytes(from, into, bytes) }
    }

    /// # Safety
    /// As `copy`.
    unsafe fn copy_long(&mut self, from: *const u8, into: *mut u8, bytes: usize) {
        let number = self.stretches % TIMED_EVERY;
        self.stretches = self.stretches.wrapping_add(1);
        // SAFETY: the caller's promise.
        let through = || unsafe { copy_bytes(from, into, bytes) };
        // SAFETY: the caller's promise.
        let past = || unsafe { stream_bytes(from, into, bytes) };
        match number {
            0 => self.through = timed(bytes, through),
            1 => self.goes_past = self.through > TIMES * timed(bytes, past),
            _ if self.goes_past => past(),
            _ => through(),
        }
    }
}

/// The time of `copy`, which copies `bytes` bytes, scaled to `BYTES_MIN` bytes.
fn timed(bytes: usize, copy: impl Fn()) -> Duration {
    let begin = Instant::now();
    copy();
    begin.elapsed().mul_f64(BYTES_MIN as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MIN, Handover, TIMED_EVERY};

    #[test]
    fn both_ways_copy_everything_and_nothing_else() {
        let from: Vec<u8> =
            (0..40_000_u32).map(|at| (at * 7 + at / 256).to_le_bytes()[0]).collect();
        let mut into = vec![0; from.len()];
        for goes_past in [false, true] {
            for len in [1, BYTES_MIN - 1, BYTES_MIN, BYTES_MIN + 1, 16_384, 30_000] {
                for (source, target) in [(0, 0), (16, 0), (1, 3), (0, 31), (64, 128)] {
                    // Skips the two copies that are timed.
                    let mut handover = Handover { stretches: 2, goes_past, ..Handover::default() };
                    into.fill(0xa5);
                    let (begin, end) = (from[source..].as_ptr(), into[target..].as_mut_ptr());
                    // SAFETY: both are longer than that from there on, and do not overlap.
                    unsafe { handover.copy(begin, end, len) };
                    assert_eq!(into[target..target + len], from[source..source + len], "{len}");
                    let untouched = into[..target].iter().chain(&into[target + len..]);
                    assert!(untouched.copied().all(|byte| byte == 0xa5), "{len}");
                }
            }
        }
    }

    #[test]
    fn a_much_slower_way_is_left_and_timed_again() {
        let (from, mut into) = (vec![1; BYTES_MIN], vec![0; BYTES_MIN]);
        let mut copy = |handover: &mut Handover| {
            // SAFETY: both have that length, and do not overlap.
            unsafe { handover.copy(from.as_ptr(), into.as_mut_ptr(), BYTES_MIN) }
        };
        let slow = std::time::Duration::from_secs(1000);
        let mut handover = Handover { stretches: 1, through: slow, goes_past: false };
        copy(&mut handover);
        assert!(handover.goes_past, "non-temporal stores are faster than that");
        (2..TIMED_EVERY).for_each(|_| copy(&mut handover));
        assert_eq!(handover.through, slow, "the choice stays for a while");
        copy(&mut handover);
        assert!(handover.through < slow, "and both ways are timed again");
        handover.through = std::time::Duration::ZERO;
        copy(&mut handover);
        assert!(!handover.goes_past, "the caches are faster than that");
    }
}
