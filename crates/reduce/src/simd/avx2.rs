//! x86-64 with AVX2 and F16C: 256-bit registers.

#[allow(clippy::wildcard_imports, reason = "naming each instruction twice helps nobody")]
use std::arch::x86_64::*;

use ringfold_types::DataType;

use crate::job::Job;
use crate::scalar::{Accumulator, Fold, Max, Min, Prod, Sum};
use crate::simd::block::{self, Run, Stream, VectorCombine};
use crate::simd::codec::{Bf16, Codec, E4M3, E5M2, F16, Float8, Same};
use crate::simd::vector::{Bits, Single, Vector, loops, vector};

loops!("avx2,f16c");

/// Non-temporal stores.
struct NonTemporal;

impl Stream for NonTemporal {
    #[inline(always)]
    unsafe fn stream(from: *const u8, into: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(size_of::<__m256i>()) {
            // SAFETY: the caller promises the CPU and whole lines, which registers divide.
            unsafe {
                let register = from.add(at).cast::<__m256i>().read();
                _mm256_stream_si256(into.add(at).cast(), register);
            }
        }
    }
}

vector! {
    I8(__m256i), [i8; 32],
    sum: |a, b| _mm256_add_epi8(a, b),
    prod: |a, b| prod_epi8(a, b),
    min: |a, b| _mm256_min_epi8(a, b),
    max: |a, b| _mm256_max_epi8(a, b),
}

vector! {
    U8(__m256i), [u8; 32],
    sum: |a, b| _mm256_add_epi8(a, b),
    prod: |a, b| prod_epi8(a, b),
    min: |a, b| _mm256_min_epu8(a, b),
    max: |a, b| _mm256_max_epu8(a, b),
}

vector! {
    I32(__m256i), [i32; 8],
    sum: |a, b| _mm256_add_epi32(a, b),
    prod: |a, b| _mm256_mullo_epi32(a, b),
    min: |a, b| _mm256_min_epi32(a, b),
    max: |a, b| _mm256_max_epi32(a, b),
}

vector! {
    U32(__m256i), [u32; 8],
    sum: |a, b| _mm256_add_epi32(a, b),
    prod: |a, b| _mm256_mullo_epi32(a, b),
    min: |a, b| _mm256_min_epu32(a, b),
    max: |a, b| _mm256_max_epu32(a, b),
}

vector! {
    I64(__m256i), [i64; 4],
    sum: |a, b| _mm256_add_epi64(a, b),
    prod: |a, b| prod_epi64(a, b),
    min: |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)),
    max: |a, b| _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)),
}

vector! {
    U64(__m256i), [u64; 4],
    sum: |a, b| _mm256_add_epi64(a, b),
    prod: |a, b| prod_epi64(a, b),
    min: |a, b| _mm256_blendv_epi8(a, b, greater_epu64(a, b)),
    max: |a, b| _mm256_blendv_epi8(b, a, greater_epu64(a, b)),
}

// For NaNs and zeros the instructions return their second operand. So both orders are computed and
// joined. For the minimum, `or` joins the sign bits of zeros (one -0 suffices); for the maximum,
// `and` does (one +0 suffices). `or` keeps a NaN; for `and`, all ones replace it.
vector! {
    F32(__m256), [f32; 8],
    sum: |a, b| _mm256_add_ps(a, b),
    prod: |a, b| _mm256_mul_ps(a, b),
    min: |a, b| _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a)),
    max: |a, b| _mm256_or_ps(
        _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a)),
        _mm256_cmp_ps::<_CMP_UNORD_Q>(a, b),
    ),
    quotient: |a, b| _mm256_div_ps(a, b),
    canonical: |v, nan| _mm256_blendv_ps(v, nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(v, v)),
}

vector! {
    F64(__m256d), [f64; 4],
    sum: |a, b| _mm256_add_pd(a, b),
    prod: |a, b| _mm256_mul_pd(a, b),
    min: |a, b| _mm256_or_pd(_mm256_min_pd(a, b), _mm256_min_pd(b, a)),
    max: |a, b| _mm256_or_pd(
        _mm256_and_pd(_mm256_max_pd(a, b), _mm256_max_pd(b, a)),
        _mm256_cmp_pd::<_CMP_UNORD_Q>(a, b),
    ),
    quotient: |a, b| _mm256_div_pd(a, b),
    canonical: |v, nan| _mm256_blendv_pd(v, nan, _mm256_cmp_pd::<_CMP_UNORD_Q>(v, v)),
}

impl Bits for U32 {
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm256_and_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn shift_left(self, by: u32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm256_sllv_epi32(self.0, Self::splat(by).0) })
    }

    #[inline(always)]
    unsafe fn shift_right(self, by: u32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm256_srlv_epi32(self.0, Self::splat(by).0) })
    }

    #[inline(always)]
    unsafe fn select_greater(self, than: Self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm256_blendv_epi8(no.0, yes.0, _mm256_cmpgt_epi32(self.0, than.0)) })
    }
}

impl Single for F32 {
    type Bits = U32;

    #[inline(always)]
    unsafe fn to_bits(self) -> U32 {
        // SAFETY: the caller promises the CPU.
        U32(unsafe { _mm256_castps_si256(self.0) })
    }

    #[inline(always)]
    unsafe fn from_bits(bits: U32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm256_castsi256_ps(bits.0) })
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> [Self; 2] {
        // SAFETY: the caller promises the CPU and 16 elements.
        unsafe {
            let (first, second) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast()));
            [Self(_mm256_cvtph_ps(first)), Self(_mm256_cvtph_ps(second))]
        }
    }

    #[inline(always)]
    unsafe fn store_f16([first, second]: [Self; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 16 elements.
        unsafe {
            let first = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(first.0);
            let second = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(second.0);
            _mm_storeu_si128(at.cast(), first);
            _mm_storeu_si128(at.add(16).cast(), second);
        }
    }

    /// Even elements first, then odd ones: this moves no lanes.
    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> [Self; 2] {
        // SAFETY: the caller promises the CPU and 16 elements.
        unsafe {
            let both = U32::load(at);
            let even = both.shift_left(16);
            let odd = both.and(U32::splat(0xffff_0000));
            [Self::from_bits(even), Self::from_bits(odd)]
        }
    }

    #[inline(always)]
    unsafe fn store_bf16([even, odd]: [U32; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 16 elements.
        unsafe { U32(_mm256_blend_epi16::<0xaa>(even.shift_right(16).0, odd.0)).store(at) }
    }

    #[inline(always)]
    unsafe fn spread([first, second]: [Self; 2]) -> [Self; 2] {
        // SAFETY: the caller promises the CPU.
        unsafe {
            let even = _mm256_shuffle_ps::<0b10_00_10_00>(first.0, second.0);
            let odd = _mm256_shuffle_ps::<0b11_01_11_01>(first.0, second.0);
            [Self(swap_middle(even)), Self(swap_middle(odd))]
        }
    }

    #[inline(always)]
    unsafe fn gather([even, odd]: [Self; 2]) -> [Self; 2] {
        // SAFETY: the caller promises the CPU.
        unsafe {
            let low = _mm256_unpacklo_ps(even.0, odd.0);
            let high = _mm256_unpackhi_ps(even.0, odd.0);
            let first = _mm256_permute2f128_ps::<0x20>(low, high);
            let second = _mm256_permute2f128_ps::<0x31>(low, high);
            [Self(first), Self(second)]
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(at: *const u8) -> [U32; 2] {
        // SAFETY: the caller promises the CPU and 16 elements.
        unsafe {
            let (first, second) = (_mm_loadl_epi64(at.cast()), _mm_loadl_epi64(at.add(8).cast()));
            [U32(_mm256_cvtepu8_epi32(first)), U32(_mm256_cvtepu8_epi32(second))]
        }
    }

    #[inline(always)]
    unsafe fn store_bytes([first, second]: [U32; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 16 elements.
        unsafe {
            // Packing works on 128-bit halves: groups of four from first and second alternate.
            let words = _mm256_packus_epi32(first.0, second.0);
            let bytes = _mm256_packus_epi16(words, words);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
            let bytes = _mm256_permutevar8x32_epi32(bytes, order);
            _mm_storeu_si128(at.cast(), _mm256_castsi256_si128(bytes));
        }
    }
}

/// Swaps the two middle quarters.
///
/// # Safety
///
/// The CPU has AVX2, as for all functions below.
#[inline(always)]
unsafe fn swap_middle(v: __m256) -> __m256 {
    // SAFETY: the caller promises the CPU.
    unsafe { _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(v))) }
}

/// Products of bytes, computed for the even and the odd ones as 16-bit lanes.
#[inline(always)]
unsafe fn prod_epi8(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let even = _mm256_mullo_epi16(a, b);
        let odd = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
        let even = _mm256_and_si256(even, _mm256_set1_epi16(0xff));
        _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))
    }
}

/// Products of 64-bit lanes: the product of the low halves plus the cross products in the upper
/// half.
#[inline(always)]
unsafe fn prod_epi64(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let cross = _mm256_mullo_epi32(a, _mm256_shuffle_epi32::<0b10_11_00_01>(b));
        let cross = _mm256_add_epi32(cross, _mm256_srli_epi64::<32>(cross));
        _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64::<32>(cross))
    }
}

/// Compares as unsigned, by a shift of both to the signed range.
#[inline(always)]
unsafe fn greater_epu64(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let lowest = _mm256_set1_epi64x(i64::MIN);
        _mm256_cmpgt_epi64(_mm256_xor_si256(a, lowest), _mm256_xor_si256(b, lowest))
    }
}
