//! Telling the CPU's caches what comes.
#![allow(unsafe_code)]

use std::ptr::NonNull;

#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;

/// Asks for the line at `place`, which is about to be written: others have it in their caches, and
/// giving it up takes them about as long as a message takes.
#[inline]
pub(crate) fn will_write<T>(place: NonNull<T>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which changes no memory and no register and cannot fault, whatever the
    // address; CPUs that do not know it pass it over.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) place.as_ptr(),
            options(readonly, nostack, preserves_flags)
        );
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{}]",
            in(reg) place.as_ptr(),
            options(readonly, nostack, preserves_flags)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}

/// Hands the lines of `bytes`, which were just written, to the cache that cores share: another core
/// that reads them there does not have to ask for them. Where the CPU can; else nothing happens.
#[inline]
pub fn hand_over(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..bytes.len() + bytes.as_ptr().addr() % LINE_BYTES).step_by(LINE_BYTES) {
        let first = bytes.as_ptr().wrapping_sub(bytes.as_ptr().addr() % LINE_BYTES);
        // SAFETY: a hint, which changes no memory and no register and cannot fault: of the opcodes
        // that do nothing on CPUs that do not know them.
        unsafe {
            std::arch::asm!(
                "cldemote [{}]",
                in(reg) first.wrapping_add(at),
                options(readonly, nostack, preserves_flags)
            );
        }
    }
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    let _ = bytes;
}
