//! x86-64 with AVX-512 F, BW, VL and DQ: 512-bit registers.

#[allow(clippy::wildcard_imports, reason = "naming each instruction twice helps nobody")]
use std::arch::x86_64::*;

use ringfold_types::DataType;

use crate::job::Job;
use crate::scalar::{Accumulator, Fold, Max, Min, Prod, Sum};
use crate::simd::block::{self, Run, Stream, VectorCombine};
use crate::simd::codec::{Bf16, Codec, E4M3, E5M2, F16, Float8, Same};
use crate::simd::vector::{Bits, Single, Vector, loops, vector};

loops!("avx512f,avx512bw,avx512vl,avx512dq");

/// Non-temporal stores.
struct NonTemporal;

impl Stream for NonTemporal {
    #[inline(always)]
    unsafe fn stream(from: *const u8, into: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(size_of::<__m512i>()) {
            // SAFETY: the caller promises the CPU and whole lines, which registers divide.
            unsafe {
                let register = from.add(at).cast::<__m512i>().read();
                _mm512_stream_si512(into.add(at).cast(), register);
            }
        }
    }
}

vector! {
    I8(__m512i), [i8; 64],
    sum: |a, b| _mm512_add_epi8(a, b),
    prod: |a, b| prod_epi8(a, b),
    min: |a, b| _mm512_min_epi8(a, b),
    max: |a, b| _mm512_max_epi8(a, b),
}

vector! {
    U8(__m512i), [u8; 64],
    sum: |a, b| _mm512_add_epi8(a, b),
    prod: |a, b| prod_epi8(a, b),
    min: |a, b| _mm512_min_epu8(a, b),
    max: |a, b| _mm512_max_epu8(a, b),
}

vector! {
    I32(__m512i), [i32; 16],
    sum: |a, b| _mm512_add_epi32(a, b),
    prod: |a, b| _mm512_mullo_epi32(a, b),
    min: |a, b| _mm512_min_epi32(a, b),
    max: |a, b| _mm512_max_epi32(a, b),
}

vector! {
    U32(__m512i), [u32; 16],
    sum: |a, b| _mm512_add_epi32(a, b),
    prod: |a, b| _mm512_mullo_epi32(a, b),
    min: |a, b| _mm512_min_epu32(a, b),
    max: |a, b| _mm512_max_epu32(a, b),
}

vector! {
    I64(__m512i), [i64; 8],
    sum: |a, b| _mm512_add_epi64(a, b),
    prod: |a, b| _mm512_mullo_epi64(a, b),
    min: |a, b| _mm512_min_epi64(a, b),
    max: |a, b| _mm512_max_epi64(a, b),
}

vector! {
    U64(__m512i), [u64; 8],
    sum: |a, b| _mm512_add_epi64(a, b),
    prod: |a, b| _mm512_mullo_epi64(a, b),
    min: |a, b| _mm512_min_epu64(a, b),
    max: |a, b| _mm512_max_epu64(a, b),
}

// As in AVX2, both orders are computed, because the instructions return the second operand for
// zeros and NaNs.
vector! {
    F32(__m512), [f32; 16],
    sum: |a, b| _mm512_add_ps(a, b),
    prod: |a, b| _mm512_mul_ps(a, b),
    min: |a, b| _mm512_or_ps(_mm512_min_ps(a, b), _mm512_min_ps(b, a)),
    max: |a, b| _mm512_mask_mov_ps(
        _mm512_and_ps(_mm512_max_ps(a, b), _mm512_max_ps(b, a)),
        _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b),
        F32::splat(f32::NAN).0,
    ),
    quotient: |a, b| _mm512_div_ps(a, b),
    canonical: |v, nan| _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v), nan),
}

vector! {
    F64(__m512d), [f64; 8],
    sum: |a, b| _mm512_add_pd(a, b),
    prod: |a, b| _mm512_mul_pd(a, b),
    min: |a, b| _mm512_or_pd(_mm512_min_pd(a, b), _mm512_min_pd(b, a)),
    max: |a, b| _mm512_mask_mov_pd(
        _mm512_and_pd(_mm512_max_pd(a, b), _mm512_max_pd(b, a)),
        _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(a, b),
        F64::splat(f64::NAN).0,
    ),
    quotient: |a, b| _mm512_div_pd(a, b),
    canonical: |v, nan| _mm512_mask_mov_pd(v, _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(v, v), nan),
}

impl Bits for U32 {
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm512_and_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn shift_left(self, by: u32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm512_sllv_epi32(self.0, Self::splat(by).0) })
    }

    #[inline(always)]
    unsafe fn shift_right(self, by: u32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm512_srlv_epi32(self.0, Self::splat(by).0) })
    }

    #[inline(always)]
    unsafe fn select_greater(self, than: Self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller promises the CPU.
        unsafe {
            let greater = _mm512_cmpgt_epi32_mask(self.0, than.0);
            Self(_mm512_mask_mov_epi32(no.0, greater, yes.0))
        }
    }
}

impl Single for F32 {
    type Bits = U32;

    #[inline(always)]
    unsafe fn to_bits(self) -> U32 {
        // SAFETY: the caller promises the CPU.
        U32(unsafe { _mm512_castps_si512(self.0) })
    }

    #[inline(always)]
    unsafe fn from_bits(bits: U32) -> Self {
        // SAFETY: the caller promises the CPU.
        Self(unsafe { _mm512_castsi512_ps(bits.0) })
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> [Self; 2] {
        // SAFETY: the caller promises the CPU and 32 elements.
        unsafe {
            let first = at.cast::<__m256i>().read_unaligned();
            let second = at.add(32).cast::<__m256i>().read_unaligned();
            [Self(_mm512_cvtph_ps(first)), Self(_mm512_cvtph_ps(second))]
        }
    }

    #[inline(always)]
    unsafe fn store_f16([first, second]: [Self; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 32 elements.
        unsafe {
            let first = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(first.0);
            let second = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(second.0);
            at.cast::<__m256i>().write_unaligned(first);
            at.add(32).cast::<__m256i>().write_unaligned(second);
        }
    }

    /// Even elements first, then odd ones: this moves no lanes.
    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> [Self; 2] {
        // SAFETY: the caller promises the CPU and 32 elements.
        unsafe {
            let both = U32::load(at);
            let even = both.shift_left(16);
            let odd = both.and(U32::splat(0xffff_0000));
            [Self::from_bits(even), Self::from_bits(odd)]
        }
    }

    #[inline(always)]
    unsafe fn store_bf16([even, odd]: [U32; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 32 elements.
        unsafe {
            let even = even.shift_right(16).0;
            U32(_mm512_mask_mov_epi16(even, 0xaaaa_aaaa, odd.0)).store(at);
        }
    }

    #[inline(always)]
    unsafe fn spread([first, second]: [Self; 2]) -> [Self; 2] {
        // SAFETY: the caller promises the CPU.
        unsafe {
            let even = U32::load(EVEN.as_ptr().cast()).0;
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            let even = _mm512_permutex2var_ps(first.0, even, second.0);
            let odd = _mm512_permutex2var_ps(first.0, odd, second.0);
            [Self(even), Self(odd)]
        }
    }

    #[inline(always)]
    unsafe fn gather([even, odd]: [Self; 2]) -> [Self; 2] {
        // SAFETY: the caller promises the CPU.
        unsafe {
            let first = U32::load(ALTERNATE.as_ptr().cast()).0;
            let second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
            let first = _mm512_permutex2var_ps(even.0, first, odd.0);
            let second = _mm512_permutex2var_ps(even.0, second, odd.0);
            [Self(first), Self(second)]
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(at: *const u8) -> [U32; 2] {
        // SAFETY: the caller promises the CPU and 32 elements.
        unsafe {
            let (first, second) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast()));
            [U32(_mm512_cvtepu8_epi32(first)), U32(_mm512_cvtepu8_epi32(second))]
        }
    }

    #[inline(always)]
    unsafe fn store_bytes([first, second]: [U32; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and 32 elements.
        unsafe {
            _mm_storeu_si128(at.cast(), _mm512_cvtepi32_epi8(first.0));
            _mm_storeu_si128(at.add(16).cast(), _mm512_cvtepi32_epi8(second.0));
        }
    }
}

/// Indices of the even lanes of two registers; those of the second begin at 16.
static EVEN: [u32; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];

/// Indices that alternate between the first eight lanes of two registers.
static ALTERNATE: [u32; 16] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];

/// Products of bytes, computed for the even and the odd ones as 16-bit lanes.
///
/// # Safety
///
/// The CPU has AVX-512 BW.
#[inline(always)]
unsafe fn prod_epi8(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let even = _mm512_mullo_epi16(a, b);
        let odd = _mm512_mullo_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b));
        _mm512_mask_mov_epi8(_mm512_slli_epi16::<8>(odd), 0x5555_5555_5555_5555, even)
    }
}
