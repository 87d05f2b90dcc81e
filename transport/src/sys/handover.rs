//! Writing what another CPU reads: through the caches, or past them.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use super::copy::{copy_bytes, stream_bytes};

/// Shorter stretches go through the caches, which is soon done.
const BYTES_MIN: usize = 8192;

/// Stretches after which both ways are timed again: how far CPUs are from each other changes where
/// ranks or virtual CPUs move.
const TIMED_EVERY: u32 = 128;

/// How many times as long it must take to write through the caches. Who reads is slower after
/// writes past them, so they must save more than that. On AMD's Zen 3 it is 1.5 to 1.8 times where
/// the two CPUs share a cache, and there all together is slower past them; where not it is 5 to 8
/// times, and all together takes a third of the time past them.
const TIMES: u32 = 3;

/// Of one writer: which way to go.
///
/// What was read of another CPU's stays in its caches, so that who writes there again has to take
/// it from them first, line by line. Between CPUs that share a cache that is done in passing; else
/// it takes longer than to write to memory and read from there.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    stretches: u32,
    /// The time of a stretch through the caches, for `BYTES_MIN` bytes.
    through: Duration,
    goes_past: bool,
}

impl Handover {
    /// Copies `bytes` bytes.
    ///
    /// # Safety
    /// As `std::ptr::copy_nonoverlapping`.
    #[inline]
    pub(crate) unsafe fn copy(&mut self, from: *const u8, into: *mut u8, bytes: usize) {
        if bytes >= BYTES_MIN {
            // SAFETY: as the caller's.
            return unsafe { self.copy_long(from, into, bytes) };
        }
        // SAFETY: as the caller's.
        unsafe { copy_bytes(from, into, bytes) }
    }

    /// # Safety
    /// As `copy`.
    unsafe fn copy_long(&mut self, from: *const u8, into: *mut u8, bytes: usize) {
        let number = self.stretches % TIMED_EVERY;
        self.stretches = self.stretches.wrapping_add(1);
        // SAFETY: as the caller's.
        let through = || unsafe { copy_bytes(from, into, bytes) };
        // SAFETY: as the caller's.
        let past = || unsafe { stream_bytes(from, into, bytes) };
        match number {
            0 => self.through = timed(bytes, through),
            1 => self.goes_past = self.through > TIMES * timed(bytes, past),
            _ if self.goes_past => past(),
            _ => through(),
        }
    }
}

/// How long it takes for `BYTES_MIN` of `bytes` bytes.
fn timed(bytes: usize, copy: impl Fn()) -> Duration {
    let begin = Instant::now();
    copy();
    begin.elapsed().mul_f64(BYTES_MIN as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MIN, Handover, TIMED_EVERY};

    #[test]
    fn whichever_way_it_goes_everything_is_copied_and_nothing_else() {
        let from: Vec<u8> =
            (0..40_000_u32).map(|at| (at * 7 + at / 256).to_le_bytes()[0]).collect();
        let mut into = vec![0; from.len()];
        for goes_past in [false, true] {
            for len in [1, BYTES_MIN - 1, BYTES_MIN, BYTES_MIN + 1, 16_384, 30_000] {
                for (source, target) in [(0, 0), (16, 0), (1, 3), (0, 31), (64, 128)] {
                    // Past the two that are timed.
                    let mut handover = Handover { stretches: 2, goes_past, ..Handover::default() };
                    into.fill(0xa5);
                    let (begin, end) = (from[source..].as_ptr(), into[target..].as_mut_ptr());
                    // SAFETY: both are longer than that from there on, and apart.
                    unsafe { handover.copy(begin, end, len) };
                    assert_eq!(into[target..target + len], from[source..source + len], "{len}");
                    let untouched = into[..target].iter().chain(&into[target + len..]);
                    assert!(untouched.copied().all(|byte| byte == 0xa5), "{len}");
                }
            }
        }
    }

    #[test]
    fn what_is_much_slower_is_left_and_tried_again() {
        let (from, mut into) = (vec![1; BYTES_MIN], vec![0; BYTES_MIN]);
        let mut copy = |handover: &mut Handover| {
            // SAFETY: both are as long, and apart.
            unsafe { handover.copy(from.as_ptr(), into.as_mut_ptr(), BYTES_MIN) }
        };
        let slow = std::time::Duration::from_secs(1000);
        let mut handover = Handover { stretches: 1, through: slow, goes_past: false };
        copy(&mut handover);
        assert!(handover.goes_past, "nothing takes so long");
        (2..TIMED_EVERY).for_each(|_| copy(&mut handover));
        assert_eq!(handover.through, slow, "it stays so for a while");
        copy(&mut handover);
        assert!(handover.through < slow, "and is timed again");
        handover.through = std::time::Duration::ZERO;
        copy(&mut handover);
        assert!(!handover.goes_past, "nothing takes no time");
    }
}
