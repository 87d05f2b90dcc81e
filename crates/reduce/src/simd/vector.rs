//! Traits of an instruction set: registers of one lane type, and of `f32` bits.
//!
//! The traits are thin names for instructions, which lets loops and conversions be written once.
//! All methods are `#[inline(always)]`, so they are compiled for the instruction set of the calling
//! loop. A call on a CPU without that set is undefined behaviour.

use bytemuck::Zeroable;

use crate::scalar::Accumulator;

/// A register of accumulators.
///
/// # Safety
///
/// Callers of any method promise that the CPU has the register's instruction set, and that pointers
/// are valid for the register's whole width. Pointers need no alignment.
pub(super) trait Vector: Copy {
    /// The type of one value.
    type Lane: Accumulator;

    /// The number of values.
    const LANES: usize;

    unsafe fn load(at: *const u8) -> Self;

    unsafe fn store(self, at: *mut u8);

    /// Puts the same value in every lane.
    unsafe fn splat(lane: Self::Lane) -> Self;

    /// `Accumulator::sum` in each lane.
    unsafe fn sum(self, other: Self) -> Self;

    /// `Accumulator::prod` in each lane.
    unsafe fn prod(self, other: Self) -> Self;

    /// `Accumulator::min` in each lane.
    unsafe fn min(self, other: Self) -> Self;

    /// `Accumulator::max` in each lane.
    unsafe fn max(self, other: Self) -> Self;

    #[inline(always)]
    unsafe fn canonical(self) -> Self {
        self
    }

    /// One lane at a time, since no instruction set here divides integers.
    #[inline(always)]
    unsafe fn divide(self, ranks: u32) -> Self {
        let mut lanes = [Self::Lane::zeroed(); LANES_MAX];
        // SAFETY: the array holds a whole register, as asserted; the caller promises the CPU.
        unsafe {
            const { assert!(Self::LANES <= LANES_MAX) };
            self.store(lanes.as_mut_ptr().cast());
            for lane in &mut lanes[..Self::LANES] {
                *lane = lane.divide(ranks);
            }
            Self::load(lanes.as_ptr().cast())
        }
    }
}

/// Lanes of the widest register: 512 bits of bytes.
const LANES_MAX: usize = 64;

/// A register of `u32`, the bits of `f32`.
///
/// # Safety
///
/// As for `Vector`.
pub(super) trait Bits: Vector<Lane = u32> {
    unsafe fn and(self, other: Self) -> Self;

    unsafe fn or(self, other: Self) -> Self;

    unsafe fn shift_left(self, by: u32) -> Self;

    unsafe fn shift_right(self, by: u32) -> Self;

    /// In each lane, `yes` if `self > than`, otherwise `no`. Compares as signed.
    unsafe fn select_greater(self, than: Self, yes: Self, no: Self) -> Self;
}

/// A register of `f32`, with conversions between pairs of it and shorter floats.
///
/// # Safety
///
/// As for `Vector`. Pointers are valid for two registers' lanes of the shorter type.
pub(super) trait Single: Vector<Lane = f32> {
    type Bits: Bits;

    unsafe fn to_bits(self) -> Self::Bits;

    unsafe fn from_bits(bits: Self::Bits) -> Self;

    /// Reads two registers of `f16`.
    unsafe fn load_f16(at: *const u8) -> [Self; 2];

    /// Writes two registers as `f16`, rounded to nearest even.
    unsafe fn store_f16(pair: [Self; 2], at: *mut u8);

    /// Reads two registers of `bf16`, in the fastest order of lanes; see `spread`.
    unsafe fn load_bf16(at: *const u8) -> [Self; 2];

    /// Writes the upper halves of the bits of two spread registers.
    unsafe fn store_bf16(pair: [Self::Bits; 2], at: *mut u8);

    /// Moves lanes from memory order to the order of `load_bf16`.
    #[inline(always)]
    unsafe fn spread(pair: [Self; 2]) -> [Self; 2] {
        pair
    }

    /// Moves lanes from the order of `load_bf16` to memory order.
    #[inline(always)]
    unsafe fn gather(pair: [Self; 2]) -> [Self; 2] {
        pair
    }

    /// Reads two registers of bytes, zero-extended.
    unsafe fn load_bytes(at: *const u8) -> [Self::Bits; 2];

    /// Writes two registers of values below 256 as bytes.
    unsafe fn store_bytes(pair: [Self::Bits; 2], at: *mut u8);
}

/// Defines a register type over the machine's own, with its instructions.
macro_rules! vector {
    (
        $name:ident($register:ty), [$lane:ty; $lanes:literal],
        sum: |$s:ident, $t:ident| $sum:expr,
        prod: |$p:ident, $q:ident| $prod:expr,
        min: |$m:ident, $n:ident| $min:expr,
        max: |$u:ident, $v:ident| $max:expr,
        $($more:tt)*
    ) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name($register);

        const _: () = assert!(size_of::<$name>() == size_of::<[$lane; $lanes]>());

        impl Vector for $name {
            type Lane = $lane;

            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn load(at: *const u8) -> Self {
                // SAFETY: the caller promises a readable register's width.
                Self(unsafe { at.cast::<$register>().read_unaligned() })
            }

            #[inline(always)]
            unsafe fn store(self, at: *mut u8) {
                // SAFETY: the caller promises a writable register's width.
                unsafe { at.cast::<$register>().write_unaligned(self.0) }
            }

            #[inline(always)]
            unsafe fn splat(lane: $lane) -> Self {
                // SAFETY: the array is as wide as the register.
                unsafe { Self::load([lane; $lanes].as_ptr().cast()) }
            }

            #[inline(always)]
            unsafe fn sum(self, other: Self) -> Self {
                let ($s, $t) = (self.0, other.0);
                // SAFETY: the caller promises the CPU.
                Self(unsafe { $sum })
            }

            #[inline(always)]
            unsafe fn prod(self, other: Self) -> Self {
                let ($p, $q) = (self.0, other.0);
                // SAFETY: the caller promises the CPU.
                Self(unsafe { $prod })
            }

            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self {
                let ($m, $n) = (self.0, other.0);
                // SAFETY: the caller promises the CPU.
                Self(unsafe { $min })
            }

            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                let ($u, $v) = (self.0, other.0);
                // SAFETY: the caller promises the CPU.
                Self(unsafe { $max })
            }

            $crate::simd::vector::float_methods!($lane, $($more)*);
        }
    };
}

/// The methods that differ for floats.
macro_rules! float_methods {
    ($lane:ty,) => {};
    (
        $lane:ty,
        quotient: |$a:ident, $b:ident| $quotient:expr,
        canonical: |$v:ident, $nan:ident| $canonical:expr,
    ) => {
        #[inline(always)]
        unsafe fn divide(self, ranks: u32) -> Self {
            // SAFETY: the caller promises the CPU.
            unsafe {
                let ($a, $b) = (self.0, Self::splat(Accumulator::from_factor(ranks.into())).0);
                Self($quotient)
            }
        }

        #[inline(always)]
        unsafe fn canonical(self) -> Self {
            // SAFETY: the caller promises the CPU.
            unsafe {
                let ($v, $nan) = (self.0, Self::splat(Accumulator::canonical(<$lane>::NAN)).0);
                Self($canonical)
            }
        }
    };
}

/// Defines the loops of an instruction set over all types, and the choice among them.
macro_rules! loops {
    ($features:literal) => {
        /// The loop for a data type and a fold, if there is one. Its caller needs a CPU with this
        /// instruction set.
        pub(super) fn choose(data_type: DataType, fold: Fold) -> Option<Run> {
            match data_type {
                DataType::I8 => with_codec::<Same<I8>>(fold),
                DataType::U8 => with_codec::<Same<U8>>(fold),
                DataType::I32 => with_codec::<Same<I32>>(fold),
                DataType::U32 => with_codec::<Same<U32>>(fold),
                DataType::I64 => with_codec::<Same<I64>>(fold),
                DataType::U64 => with_codec::<Same<U64>>(fold),
                DataType::F16 => with_codec::<F16<F32>>(fold),
                DataType::Bf16 => with_codec::<Bf16<F32>>(fold),
                DataType::F32 => with_codec::<Same<F32>>(fold),
                DataType::F64 => with_codec::<Same<F64>>(fold),
                DataType::F8E4M3 => with_codec::<Float8<F32, E4M3>>(fold),
                DataType::F8E5M2 => with_codec::<Float8<F32, E5M2>>(fold),
            }
        }

        fn with_codec<C: Codec>(fold: Fold) -> Option<Run> {
            Some(match fold {
                Fold::Sum => run::<C, Sum>,
                Fold::Prod => run::<C, Prod>,
                Fold::Min => run::<C, Min>,
                Fold::Max => run::<C, Max>,
                // The compiler makes vector instructions of the scalar loops.
                _ => return None,
            })
        }

        /// # Safety
        ///
        /// As for `Run`.
        #[target_feature(enable = $features)]
        unsafe fn run<C: Codec, F: VectorCombine>(job: &mut Job<'_>, from: usize) -> usize {
            // SAFETY: `choose` passes only codecs of this instruction set.
            unsafe { block::run::<C, F, NonTemporal>(job, from) }
        }
    };
}

pub(super) use {float_methods, loops, vector};
