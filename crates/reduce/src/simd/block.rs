//! The loop of all SIMD levels: combines a block of values in registers over all operands, and
//! writes it.

use std::mem::MaybeUninit;

use crate::job::{Finish, Form, Job, Line};
use crate::scalar::{Accumulator, Max, Min, Prod, Sum};
use crate::simd::codec::Codec;
use crate::simd::vector::Vector;

/// Computes the values of a job from an index on, and returns the first index that it did not
/// compute.
///
/// # Safety
///
/// The CPU has the instruction set of the function. `dst` and all operands hold as many values as
/// the job counts. The index is not greater than that count.
pub(super) type Run = unsafe fn(&mut Job<'_>, usize) -> usize;

/// Pairs of registers in a block. Eight registers hide the latency of a sum and leave as many for
/// conversions. Fewer would cost more checks of operands and forms.
const PAIRS: usize = 4;

/// Bytes of the longest block: 512-bit registers.
const BLOCK_BYTES: usize = PAIRS * 2 * 64;

/// Operands beyond which a block fetches the lines of later blocks. The prefetchers of a CPU follow
/// few streams. Eight operands gain by it, as `cargo bench -p ringfold-innetwork` shows.
const FOLLOWED_MAX: usize = 4;

/// Bytes from a block of an operand to the lines that it fetches: the best of 512, 1,024 and 2,048
/// for eight operands on a Zen 3.
const AHEAD_BYTES: usize = 512;

/// A block's elements before they are written by non-temporal stores.
#[repr(align(64))]
struct Block(MaybeUninit<[u8; BLOCK_BYTES]>);

/// The non-temporal stores of an instruction set.
pub(super) trait Stream {
    /// Copies whole cache lines. Other threads may see later stores before these.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set. Both stretches are `bytes` long and begin at a cache line.
    unsafe fn stream(from: *const u8, into: *mut u8, bytes: usize);
}

/// A `Combine` of registers.
pub(super) trait VectorCombine {
    /// # Safety
    ///
    /// As for `Vector`.
    unsafe fn combine<V: Vector>(left: V, right: V) -> V;
}

macro_rules! combine {
    ($($name:ident $method:ident),+) => {$(
        impl VectorCombine for $name {
            #[inline(always)]
            unsafe fn combine<V: Vector>(left: V, right: V) -> V {
                // SAFETY: the caller promises the CPU.
                unsafe { left.$method(right) }
            }
        }
    )+};
}

combine!(Sum sum, Prod prod, Min min, Max max);

/// Computes the values of a job from index `from` on, except the last ones that do not fill a pair
/// of registers. Returns the index of the first of these.
///
/// # Safety
///
/// The CPU has the instruction set of `C`. `dst`, all others and every operand hold `count` values,
/// and `from` is not greater than `count`.
#[inline(always)]
pub(super) unsafe fn run<C: Codec, F: VectorCombine, S: Stream>(
    job: &mut Job<'_>,
    from: usize,
) -> usize {
    let pair = 2 * C::Vector::LANES;
    let mut at = from;
    while job.count - at >= PAIRS * pair {
        // SAFETY: the caller's promise; that many values are left.
        unsafe { block::<C, F, S, PAIRS>(job, at) };
        at += PAIRS * pair;
    }
    while job.count - at >= pair {
        // SAFETY: the caller's promise; that many values are left.
        unsafe { block::<C, F, S, 1>(job, at) };
        at += pair;
    }
    at
}

/// Computes `N` pairs of registers from value `at` on.
///
/// # Safety
///
/// As for `run`, and that many values exist.
#[inline(always)]
unsafe fn block<C: Codec, F: VectorCombine, S: Stream, const N: usize>(
    job: &mut Job<'_>,
    at: usize,
) {
    let Some((first, others)) = job.operands.split_first() else { return };
    if N == PAIRS && job.operands.len() > FOLLOWED_MAX {
        for operand in job.operands {
            let (values_at, form) = job.values(operand);
            fetch::<C, N>(values_at, form, at);
        }
    }
    // SAFETY: the caller promises the CPU, and that values up to the end of the block exist in
    // `dst`, in the others and in every operand. `read` and `write` access only these.
    unsafe {
        let mut values = [[C::Vector::splat(bytemuck::Zeroable::zeroed()); 2]; N];
        let (values_at, form) = job.values(first);
        read::<C, N>(values_at, form, at, |index, pair| values[index] = pair);
        for operand in others {
            let (values_at, form) = job.values(operand);
            read::<C, N>(values_at, form, at, |index, [left, right]| {
                let [l, r] = values[index];
                values[index] = [F::combine(l, left), F::combine(r, right)];
            });
        }
        for pair in &mut values {
            *pair = finished::<C>(*pair, job);
        }
        if N == PAIRS && job.non_temporal {
            return write_non_temporal::<C, S, N>(values, job, at);
        }
        write::<C, N>(values, job.dst.as_mut_ptr(), job.form, at);
        for other in job.others {
            write::<C, N>(values, *other, job.form, at);
        }
    }
}

/// Fetches the lines of a later block of an operand, which need not exist.
#[inline(always)]
fn fetch<C: Codec, const N: usize>(bytes: *const u8, form: Form, at: usize) {
    let width = match form {
        Form::Element => C::BYTES,
        Form::Accumulator => accumulator_bytes::<C>(),
    };
    let ahead = bytes.wrapping_add(at * width + AHEAD_BYTES);
    for line in (0..N * 2 * C::Vector::LANES * width).step_by(size_of::<Line>()) {
        will_read(ahead.wrapping_add(line));
    }
}

/// Fetches the line at `place` for a read that comes soon.
#[inline(always)]
fn will_read(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint of every CPU of this architecture, which cannot fault at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above; it changes no memory and no register.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) place,
            options(readonly, nostack, preserves_flags)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}

/// Calls `take` with each pair of registers of a block of an operand.
///
/// # Safety
///
/// As for `block`.
#[inline(always)]
unsafe fn read<C: Codec, const N: usize>(
    bytes: *const u8,
    form: Form,
    at: usize,
    mut take: impl FnMut(usize, [C::Vector; 2]),
) {
    for index in 0..N {
        let at = at + index * 2 * C::Vector::LANES;
        // SAFETY: the caller's promise.
        let pair = unsafe {
            match form {
                Form::Element => C::decode(bytes.add(at * C::BYTES)),
                Form::Accumulator => C::load(bytes.add(at * accumulator_bytes::<C>())),
            }
        };
        take(index, pair);
    }
}

/// Writes a block.
///
/// # Safety
///
/// As for `block`.
#[inline(always)]
unsafe fn write<C: Codec, const N: usize>(
    values: [[C::Vector; 2]; N],
    dst: *mut u8,
    form: Form,
    at: usize,
) {
    for (index, pair) in values.into_iter().enumerate() {
        let at = at + index * 2 * C::Vector::LANES;
        // SAFETY: the caller's promise.
        unsafe {
            match form {
                Form::Element => C::encode(pair, dst.add(at * C::BYTES)),
                Form::Accumulator => C::store(pair, dst.add(at * accumulator_bytes::<C>())),
            }
        }
    }
}

/// Writes the elements of a block by non-temporal stores, through a buffer that stays in the
/// first-level cache. So codecs need no such stores.
///
/// # Safety
///
/// As for `block`.
#[inline(always)]
unsafe fn write_non_temporal<C: Codec, S: Stream, const N: usize>(
    values: [[C::Vector; 2]; N],
    job: &mut Job<'_>,
    at: usize,
) {
    let bytes = N * 2 * C::Vector::LANES * C::BYTES;
    debug_assert!(job.form == Form::Element && bytes <= BLOCK_BYTES);
    let mut block = Block(MaybeUninit::uninit());
    let elements = block.0.as_mut_ptr().cast::<u8>();
    // SAFETY: `bytes` are at most the size of a block, and are written before they are read. The
    // caller promises the destination, which holds whole blocks from a cache line on.
    unsafe {
        write::<C, N>(values, elements, Form::Element, 0);
        S::stream(elements, job.dst.as_mut_ptr().add(at * C::BYTES), bytes);
        for other in job.others {
            S::stream(elements, other.add(at * C::BYTES), bytes);
        }
    }
}

/// A pair with canonical NaNs, and with the last step applied if elements are to be written.
///
/// # Safety
///
/// As for `Vector`.
#[inline(always)]
unsafe fn finished<C: Codec>([left, right]: [C::Vector; 2], job: &Job<'_>) -> [C::Vector; 2] {
    // SAFETY: the caller promises the CPU.
    unsafe {
        let [left, right] = match job.finish {
            Finish::Divide { ranks } if job.form == Form::Element => {
                [left.divide(ranks), right.divide(ranks)]
            }
            Finish::Scale { factor } if job.form == Form::Element => {
                let factor = C::Vector::splat(Accumulator::from_factor(factor));
                [left.prod(factor), right.prod(factor)]
            }
            _ => [left, right],
        };
        [left.canonical(), right.canonical()]
    }
}

const fn accumulator_bytes<C: Codec>() -> usize {
    size_of::<<C::Vector as Vector>::Lane>()
}
