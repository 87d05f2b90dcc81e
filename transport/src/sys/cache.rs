//! Hints to the CPU's caches.
#![allow(unsafe_code)]

use std::ptr::NonNull;

#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;

/// Fetches the line at `place` for a write that comes soon. Other CPUs have the line in their
/// caches, and they take about as long to give it up as a message takes.
#[inline]
pub(crate) fn will_write<T>(place: NonNull<T>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which changes no memory and no register and cannot fault at any address; CPUs
    // that do not know the instruction ignore it.
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

/// Moves the just-written lines of `bytes` to the cache that cores share (`cldemote`). Another core
/// then reads them there and need not request them from this core. Does nothing on CPUs without
/// that instruction.
#[inline]
pub fn demote(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..bytes.len() + bytes.as_ptr().addr() % LINE_BYTES).step_by(LINE_BYTES) {
        let first = bytes.as_ptr().wrapping_sub(bytes.as_ptr().addr() % LINE_BYTES);
        // SAFETY: a hint, which changes no memory and no register and cannot fault; CPUs that do
        // not know the opcode ignore it.
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
