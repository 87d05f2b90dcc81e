//! Copying memory, without surprises.
//!
//! The C library copies long stretches by `rep movsb` where the CPU announces that to be fast. On
//! AMD's Zen 3 it is, unless source and destination lie unluckily within their pages: then it is
//! six times slower than a loop, as for what `malloc` returns, which begins 16 bytes into a page.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

/// Bytes from which a loop of our own copies.
#[cfg(target_arch = "x86_64")]
const LOOP_BYTES: usize = 512;

/// Copies all of `from` into `into`.
///
/// # Panics
/// If they are not of the same length.
#[inline]
pub fn copy(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy keeps its length");
    // SAFETY: both are that long, and a unique borrow overlaps no other.
    unsafe { copy_bytes(from.as_ptr(), into.as_mut_ptr(), from.len()) }
}

/// Copies `bytes` bytes.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline]
pub(crate) unsafe fn copy_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    // The most common length of a short message costs no call.
    if bytes == size_of::<u64>() {
        // SAFETY: as the caller's.
        return unsafe { into.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes >= LOOP_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: as the caller's; the CPU has AVX, and there are more than two blocks.
        return unsafe { by_avx::<false>(from, into, bytes) };
    }
    // SAFETY: as the caller's.
    unsafe { copy_nonoverlapping(from, into, bytes) }
}

/// Copies all of `from` past the caches, which keep nothing of it, where that is possible: for what
/// is so long that they would lose it, and much else, before it is read.
///
/// # Panics
/// If they are not of the same length.
pub fn copy_past(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy keeps its length");
    // SAFETY: both are that long, and a unique borrow overlaps no other.
    unsafe { stream_bytes(from.as_ptr(), into.as_mut_ptr(), from.len()) }
}

/// `copy_bytes` past the caches, which keep nothing of it, where that is possible; what is written
/// after it is seen after it.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
pub(super) unsafe fn stream_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= LOOP_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: as in `copy_bytes`.
        return unsafe { by_avx::<true>(from, into, bytes) };
    }
    // SAFETY: as the caller's.
    unsafe { copy_bytes(from, into, bytes) }
}

/// Copies by registers of 32 bytes, four at a time, to aligned places; if it `STREAMS`, past the
/// caches.
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
    // SAFETY: all that is read and written lies within `bytes` bytes from `from` and `into`: the
    // first register, blocks as long as one is left, and the last block, which may cover some of
    // what was copied before with the same.
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
            // Such stores are in no order with others else.
            _mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{copy, copy_past};

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        let from: Vec<u8> = (0..5000_u32).map(|at| (at * 7 + at / 256).to_le_bytes()[0]).collect();
        for len in (0..70).chain(500..700).chain([1024, 4095, 4096, 4097]) {
            for (source, target) in [(0, 0), (1, 0), (0, 1), (16, 3), (31, 33), (64, 48)] {
                let mut into = vec![0xa5; len + 100];
                for copy in [copy, copy_past] {
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
