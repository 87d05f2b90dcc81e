//! Conversions between the elements of each data type and registers of accumulators.
//!
//! Registers come in pairs, because two registers of `f32` are one register of 16-bit elements.

use std::marker::PhantomData;

use crate::format::{self, Format, INFINITY_BITS, NAN_BITS};
use crate::simd::vector::{Bits, Single, Vector};

/// A data type in an instruction set.
///
/// # Safety
///
/// As for `Vector`. Pointers are valid for a pair of registers in the form that is read or written.
pub(super) trait Codec {
    /// A register of accumulators.
    type Vector: Vector;

    /// Bytes of an element.
    const BYTES: usize;

    /// Reads elements.
    unsafe fn decode(at: *const u8) -> [Self::Vector; 2];

    /// Writes elements, rounded to nearest even. Every NaN must be canonical already.
    unsafe fn encode(pair: [Self::Vector; 2], at: *mut u8);

    /// Reads accumulators into the lanes in which `decode` puts elements.
    #[inline(always)]
    unsafe fn load(at: *const u8) -> [Self::Vector; 2] {
        // SAFETY: the caller promises the CPU and a pair of registers.
        unsafe {
            let second = at.add(size_of::<Self::Vector>());
            [Self::Vector::load(at), Self::Vector::load(second)]
        }
    }

    /// Writes accumulators from those lanes.
    #[inline(always)]
    unsafe fn store([first, second]: [Self::Vector; 2], at: *mut u8) {
        // SAFETY: the caller promises the CPU and a pair of registers.
        unsafe {
            first.store(at);
            second.store(at.add(size_of::<Self::Vector>()));
        }
    }
}

/// Elements that are their own accumulators.
pub(super) struct Same<V>(PhantomData<V>);

impl<V: Vector> Codec for Same<V> {
    type Vector = V;

    const BYTES: usize = size_of::<V::Lane>();

    #[inline(always)]
    unsafe fn decode(at: *const u8) -> [V; 2] {
        // SAFETY: the caller's promise.
        unsafe { Self::load(at) }
    }

    #[inline(always)]
    unsafe fn encode(pair: [V; 2], at: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { Self::store(pair, at) }
    }
}

/// IEEE 754 binary16, which every instruction set here converts.
pub(super) struct F16<S>(PhantomData<S>);

impl<S: Single> Codec for F16<S> {
    type Vector = S;

    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn decode(at: *const u8) -> [S; 2] {
        // SAFETY: the caller's promise.
        unsafe { S::load_f16(at) }
    }

    #[inline(always)]
    unsafe fn encode(pair: [S; 2], at: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { S::store_f16(pair, at) }
    }
}

/// The upper half of an `f32`, rounded by integer arithmetic: the instructions for it flush
/// denormals.
pub(super) struct Bf16<S>(PhantomData<S>);

impl<S: Single> Codec for Bf16<S> {
    type Vector = S;

    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn decode(at: *const u8) -> [S; 2] {
        // SAFETY: the caller's promise.
        unsafe { S::load_bf16(at) }
    }

    #[inline(always)]
    unsafe fn encode([first, second]: [S; 2], at: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { S::store_bf16([bf16_round(first), bf16_round(second)], at) }
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [S; 2] {
        // SAFETY: the caller's promise.
        unsafe { S::spread(Same::<S>::load(at)) }
    }

    #[inline(always)]
    unsafe fn store(pair: [S; 2], at: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { Same::<S>::store(S::gather(pair), at) }
    }
}

/// Rounds to the upper half of the bits.
///
/// # Safety
///
/// As for `Vector`.
#[inline(always)]
unsafe fn bf16_round<S: Single>(value: S) -> S::Bits {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let bits = value.to_bits();
        let odd = bits.shift_right(16).and(S::Bits::splat(1));
        bits.sum(S::Bits::splat(0x7fff)).sum(odd)
    }
}

/// An 8-bit float.
pub(super) struct Float8<S, T>(PhantomData<(S, T)>);

/// The format of an 8-bit float.
pub(super) trait Layout {
    const FORMAT: Format;
}

/// OCP E4M3.
pub(super) struct E4M3;

impl Layout for E4M3 {
    const FORMAT: Format = format::E4M3;
}

/// OCP E5M2.
pub(super) struct E5M2;

impl Layout for E5M2 {
    const FORMAT: Format = format::E5M2;
}

impl<S: Single, T: Layout> Codec for Float8<S, T> {
    type Vector = S;

    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn decode(at: *const u8) -> [S; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = S::load_bytes(at);
            [decode::<S, T>(first), decode::<S, T>(second)]
        }
    }

    #[inline(always)]
    unsafe fn encode([first, second]: [S; 2], at: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { S::store_bytes([encode::<S, T>(first), encode::<S, T>(second)], at) }
    }
}

/// `Format::decode` in all lanes.
///
/// # Safety
///
/// As for `Vector`.
#[inline(always)]
unsafe fn decode<S: Single, T: Layout>(code: S::Bits) -> S {
    let format = T::FORMAT;
    // SAFETY: the caller promises the CPU.
    unsafe {
        let splat = |bits| S::Bits::splat(bits);
        let sign_bit = splat(1 << format.sign);
        let magnitude = code.and(splat((1 << format.sign) - 1));
        let sign = code.and(sign_bit).shift_left(31 - format.sign);

        let wide = magnitude.shift_left(format.shift());
        let normal = wide.sum(splat(format.rebias()));
        // A denormal is a normal value of the lowest exponent without its implicit one.
        let with_one = S::from_bits(wide.sum(splat(format.normal_min())));
        let denormal = with_one.sum(S::splat(-f32::from_bits(format.normal_min()))).to_bits();

        let mut bits = splat(1 << format.mantissa).select_greater(magnitude, denormal, normal);
        if format.infinity > format.largest {
            bits = magnitude.select_greater(splat(format.largest), splat(INFINITY_BITS), bits);
        }
        bits = magnitude.select_greater(splat(format.infinity), splat(NAN_BITS), bits);
        S::from_bits(bits.or(sign))
    }
}

/// `Format::encode` in all lanes.
///
/// # Safety
///
/// As for `Vector`.
#[inline(always)]
unsafe fn encode<S: Single, T: Layout>(value: S) -> S::Bits {
    let format = T::FORMAT;
    // SAFETY: the caller promises the CPU.
    unsafe {
        let splat = |bits| S::Bits::splat(bits);
        let bits = value.to_bits();
        let magnitude = bits.and(splat(!(1 << 31)));
        let sign = bits.shift_right(31 - format.sign).and(splat(1 << format.sign));

        let odd = magnitude.shift_right(format.shift()).and(splat(1));
        let half = (1 << (format.shift() - 1)) - 1;
        let rebias = format.rebias().wrapping_neg();
        let rounded = magnitude.sum(splat(rebias.wrapping_add(half))).sum(odd);
        let normal = rounded.shift_right(format.shift());
        let largest = splat(format.largest);
        let normal = normal.select_greater(largest, splat(format.overflow), normal);

        let magic = format.denormal_magic();
        let denormal = S::from_bits(magnitude).sum(S::splat(f32::from_bits(magic)));
        let denormal = denormal.to_bits().sum(splat(magic.wrapping_neg()));

        let mut code = splat(format.normal_min()).select_greater(magnitude, denormal, normal);
        if format.infinity != format.overflow {
            let finite = splat(INFINITY_BITS - 1);
            code = magnitude.select_greater(finite, splat(format.infinity), code);
        }
        magnitude.select_greater(splat(INFINITY_BITS), splat(format.nan), code.or(sign))
    }
}
