//! Copies of memory with a speed that does not depend on alignment.
//!
//! The C library copies long stretches by `rep movsb` if the CPU says that this is fast. On AMD's
//! Zen 3 it is several times slower than a loop for some offsets of source and destination within
//! their pages. Memory from `malloc` begins 16 bytes into a page and often has such an offset.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

/// Least length of a copy by the loop below, in bytes.
#[cfg(target_arch = "x86_64")]
const LOOP_BYTES: usize = 512;

#[cfg(test)]
thread_local! {
    static COPIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The bytes that this thread has copied.
#[cfg(test)]
pub(crate) fn copied() -> u64 {
    COPIED.get()
}

/// Copies all of `from` into `into`.
///
/// # Panics
/// If their lengths differ.
#[inline]
pub fn copy(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy keeps its length");
    // SAFETY: both have that length, and a unique borrow overlaps no other.
    unsafe { copy_bytes(from.as_ptr(), into.as_mut_ptr(), from.len()) }
}

/// Copies `bytes` bytes.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline]
pub(crate) unsafe fn copy_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(test)]
    COPIED.set(COPIED.get() + bytes as u64);
    // The most common short length needs no function call.
    if bytes == size_of::<u64>() {
        // SAFETY: the caller's promise.
        return unsafe { into.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes >= LOOP_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise; the CPU has AVX, and there are more than two blocks.
        return unsafe { by_avx::<false>(from, into, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_nonoverlapping(from, into, bytes) }
}

/// Copies all of `from` by non-temporal stores, which leave no lines in the caches, if the CPU has
/// them. For copies so long that the caches would evict the data, and much else, before anyone
/// reads it.
///
/// # Panics
/// If their lengths differ.
pub fn copy_non_temporal(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy keeps its length");
    // SAFETY: both have that length, and a unique borrow overlaps no other.
    unsafe { stream_bytes(from.as_ptr(), into.as_mut_ptr(), from.len()) }
}

/// As `copy_bytes`, by non-temporal stores if the CPU has them. Other threads see later writes of
/// this thread after the copied bytes.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
pub(super) unsafe fn stream_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= LOOP_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise; the CPU has AVX, and there are more than two blocks.
        return unsafe { by_avx::<true>(from, into, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(from, into, bytes) }
}

/// Copies by registers of 32 bytes, four at a time, to aligned addresses; by non-temporal stores if
/// `STREAMS`.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`; the CPU has AVX, and `bytes` is at least 160.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn by_avx<const STREAMS: bool>(from: *const u8, into: *mut u8, bytes: usize) {
    use std::arch::x86_64::{
        __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256,
        _mm256_stream_si256,
    };

    const REGISTER: usize = size_of::<__m256i>();
    const BLOCK: usize = 4 * REGISTER;
    // SAFETY: all reads and writes lie within `bytes` bytes from `from` and `into`: the first
    // register, whole blocks while one is left, and the last block. The last block may overwrite
    // copied bytes with the same values.
    unsafe {
        _mm256_storeu_si256(into.cast(), _mm256_loadu_si256(from.cast()));
        let mut at = into.addr().wrapping_neg() % REGISTER;
        while at + BLOCK <= bytes {
            let load = |index: usize| _mm256_loadu_si256(from.add(at + index * REGISTER).cast());
            let block = [load(0), load(1), load(2), load(3)];
            for (index, register) in block.into_iter().enumerate() {
                let place = into.add(at + index * REGISTER).cast();
                if STREAMS {
                    _mm256_stream_si256(place, register);
                } else {
                    _mm256_store_si256(place, register);
                }
            }
            at += BLOCK;
        }
        let last = bytes - BLOCK;
        for index in 0..4 {
            let register = _mm256_loadu_si256(from.add(last + index * REGISTER).cast());
            _mm256_storeu_si256(into.add(last + index * REGISTER).cast(), register);
        }
        if STREAMS {
            // Non-temporal stores are not ordered with other stores.
            _mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{copy, copy_non_temporal};

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        let from: Vec<u8> = (0..5000_u32).map(|at| (at * 7 + at / 256).to_le_bytes()[0]).collect();
        for len in (0..70).chain(500..700).chain([1024, 4095, 4096, 4097]) {
            for (source, target) in [(0, 0), (1, 0), (0, 1), (16, 3), (31, 33), (64, 48)] {
                let mut into = vec![0xa5; len + 100];
                for copy in [copy, copy_non_temporal] {
                    into.fill(0xa5);
                    copy(&mut into[target..target + len], &from[source..source + len]);
                    assert_eq!(into[target..target + len], from[source..source + len], "{len}");
                    let untouched = into[..target].iter().chain(&into[target + len..]);
                    assert!(untouched.copied().all(|byte| byte == 0xa5), "{len}");
                }
            }
        }
    }
}
