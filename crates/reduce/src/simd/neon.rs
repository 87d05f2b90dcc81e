//! 64-bit Arm with NEON: 128-bit registers.

#[allow(clippy::wildcard_imports, reason = "naming each instruction twice helps nobody")]
use std::arch::aarch64::*;

use ringfold_types::DataType;

use crate::job::Job;
use crate::scalar::{Accumulator, Fold, Max, Min, Prod, Sum};
use crate::simd::block::{self, Run, Stream, VectorCombine};
use crate::simd::codec::{Bf16, Codec, E4M3, E5M2, F16, Float8, Same};
use crate::simd::vector::{Bits, Single, Vector, loops, vector};

loops!("neon");

/// Ordinary stores: Rust has no non-temporal ones for NEON.
struct NonTemporal;

impl Stream for NonTemporal {
    #[inline(always)]
    unsafe fn stream(from: *const u8, into: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise; a block on the stack overlaps no destination.
        unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
    }
}

vector! {
    I8(int8x16_t), [i8; 16],
    sum: |a, b| vaddq_s8(a, b),
    prod: |a, b| vmulq_s8(a, b),
    min: |a, b| vminq_s8(a, b),
    max: |a, b| vmaxq_s8(a, b),
}

vector! {
    U8(uint8x16_t), [u8; 16],
    sum: |a, b| vaddq_u8(a, b),
    prod: |a, b| vmulq_u8(a, b),
    min: |a, b| vminq_u8(a, b),
    max: |a, b| vmaxq_u8(a, b),
}

vector! {
    I32(int32x4_t), [i32; 4],
    sum: |a, b| vaddq_s32(a, b),
    prod: |a, b| vmulq_s32(a, b),
    min: |a, b| vminq_s32(a, b),
    max: |a, b| vmaxq_s32(a, b),
}

vector! {
    U32(uint32x4_t), [u32; 4],
    sum: |a, b| vaddq_u32(a, b),
    prod: |a, b| vmulq_u32(a, b),
    min: |a, b| vminq_u32(a, b),
    max: |a, b| vmaxq_u32(a, b),
}

vector! {
    I64(int64x2_t), [i64; 2],
    sum: |a, b| vaddq_s64(a, b),
    prod: |a, b| {
        let product = prod_u64(vreinterpretq_u64_s64(a), vreinterpretq_u64_s64(b));
        vreinterpretq_s64_u64(product)
    },
    min: |a, b| vbslq_s64(vcgtq_s64(a, b), b, a),
    max: |a, b| vbslq_s64(vcgtq_s64(a, b), a, b),
}

vector! {
    U64(uint64x2_t), [u64; 2],
    sum: |a, b| vaddq_u64(a, b),
    prod: |a, b| prod_u64(a, b),
    min: |a, b| vbslq_u64(vcgtq_u64(a, b), b, a),
    max: |a, b| vbslq_u64(vcgtq_u64(a, b), a, b),
}

// The instructions return NaN for a NaN, and treat -0 as smaller than +0.
vector! {
    F32(float32x4_t), [f32; 4],
    sum: |a, b| vaddq_f32(a, b),
    prod: |a, b| vmulq_f32(a, b),
    min: |a, b| vminq_f32(a, b),
    max: |a, b| vmaxq_f32(a, b),
    quotient: |a, b| vdivq_f32(a, b),
    canonical: |v, nan| vbslq_f32(vceqq_f32(v, v), v, nan),
}

vector! {
    F64(float64x2_t), [f64; 2],
    sum: |a, b| vaddq_f64(a, b),
    prod: |a, b| vmulq_f64(a, b),
    min: |a, b| vminq_f64(a, b),
    max: |a, b| vmaxq_f64(a, b),
    quotient: |a, b| vdivq_f64(a, b),
    canonical: |v, nan| vbslq_f64(vceqq_f64(v, v), v, nan),
}

impl Bits for U32 {
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { vandq_u32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { vorrq_u32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn shift_left(self, by: u32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { vshlq_u32(self.0, vdupq_n_s32(by.cast_signed())) })
    }

    #[inline(always)]
    unsafe fn shift_right(self, by: u32) -> Self {
        // SAFETY: the caller promises the CPU. A negative count shifts to the right.
        Self(unsafe { vshlq_u32(self.0, vdupq_n_s32(-by.cast_signed())) })
    }

    #[inline(always)]
    unsafe fn select_greater(self, than: Self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        unsafe {
            let (left, right) = (vreinterpretq_s32_u32(self.0), vreinterpretq_s32_u32(than.0));
            Self(vbslq_u32(vcgtq_s32(left, right), yes.0, no.0))
        }
    }
}

impl Single for F32 {
    type Bits = U32;

    #[inline(always)]
    unsafe fn to_bits(self) -> U32 {
        // SAFETY: the caller promises the CPU.
        U32(unsafe { vreinterpretq_u32_f32(self.0) })
    }

    #[inline(always)]
    unsafe fn from_bits(bits: U32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { vreinterpretq_f32_u32(bits.0) })
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> [Self; 2] {
        // SAFETY: the caller promises the CPU and 8 elements.
        unsafe {
            let first = at.cast::<float16x4_t>().read_unaligned();
            let second = at.add(8).cast::<float16x4_t>().read_unaligned();
            [Self(vcvt_f32_f16(first)), Self(vcvt_f32_f16(second))]
        }
    }

    #[inline(always)]
    unsafe fn store_f16([first, second]: [Self; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 8 elements.
        unsafe {
            at.cast::<float16x4_t>().write_unaligned(vcvt_f16_f32(first.0));
            at.add(8).cast::<float16x4_t>().write_unaligned(vcvt_f16_f32(second.0));
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> [Self; 2] {
        // SAFETY: the caller promises the CPU and 8 elements.
        unsafe {
            let both = at.cast::<uint16x8_t>().read_unaligned();
            let first = vshll_n_u16::<16>(vget_low_u16(both));
            let second = vshll_n_u16::<16>(vget_high_u16(both));
            [Self::from_bits(U32(first)), Self::from_bits(U32(second))]
        }
    }

    #[inline(always)]
    unsafe fn store_bf16([first, second]: [U32; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 8 elements.
        unsafe {
            let both = vcombine_u16(vshrn_n_u32::<16>(first.0), vshrn_n_u32::<16>(second.0));
            at.cast::<uint16x8_t>().write_unaligned(both);
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(at: *const u8) -> [U32; 2] {
        // SAFETY: the caller promises the CPU and 8 elements.
        unsafe {
            let words = vmovl_u8(at.cast::<uint8x8_t>().read_unaligned());
            [U32(vmovl_u16(vget_low_u16(words))), U32(vmovl_u16(vget_high_u16(words)))]
        }
    }

    #[inline(always)]
    unsafe fn store_bytes([first, second]: [U32; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 8 elements.
        unsafe {
            let words = vcombine_u16(vmovn_u32(first.0), vmovn_u32(second.0));
            at.cast::<uint8x8_t>().write_unaligned(vmovn_u16(words));
        }
    }
}

/// Products of 64-bit lanes, for which there is no instruction.
///
/// # Safety
///
/// The CPU has NEON.
#[inline(always)]
unsafe fn prod_u64(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let low = vgetq_lane_u64::<0>(a).wrapping_mul(vgetq_lane_u64::<0>(b));
        let high = vgetq_lane_u64::<1>(a).wrapping_mul(vgetq_lane_u64::<1>(b));
        vcombine_u64(vcreate_u64(low), vcreate_u64(high))
    }
}
