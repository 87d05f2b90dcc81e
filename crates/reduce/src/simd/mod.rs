//! The same results in vector registers. The only `unsafe` of the crate is in this folder, and
//! this file is its door: a [`Loop`] exists only where the CPU has its instructions.
//!
//! | file | what |
//! |---|---|
//! | `vector` | the traits that an instruction set implements, and macros for it |
//! | `codec` | how each data type becomes registers and back, over those traits |
//! | `block` | the loop, over codecs |
//! | `avx2`, `avx512`, `neon` | the instruction sets |
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod codec;
#[cfg(target_arch = "aarch64")]
mod neon;
mod vector;

use ringfold_types::DataType;

use crate::job::Job;
use crate::kernel::Level;
use crate::scalar::Fold;

/// Computes values of a job from an index on, and returns the first index that it left.
///
/// # Safety
///
/// The CPU has the instruction set that it is compiled for, and `dst` and all operands of the job
/// hold as many values as the job counts, which is no less than the index.
type Run = unsafe fn(&mut Job<'_>, usize) -> usize;

/// A loop that this CPU can run.
#[derive(Clone, Copy)]
pub(crate) struct Loop(Run);

impl Loop {
    /// The loop of a level, or `None` if the level has none or the CPU lacks it.
    pub(crate) fn choose(level: Level, data_type: DataType, fold: Fold) -> Option<Self> {
        if !has(level) {
            return None;
        }
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Some(Self(avx2::choose(data_type, fold))),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Some(Self(avx512::choose(data_type, fold))),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Some(Self(neon::choose(data_type, fold))),
            _ => None,
        }
    }

    /// Computes all but the last values of a job from `from` on, and returns the first index that
    /// it left.
    pub(crate) fn run(self, job: &mut Job<'_>, from: usize) -> usize {
        // SAFETY: `choose` has asked the CPU; `Kernel` has checked the lengths.
        let done = unsafe { (self.0)(job, from) };
        #[cfg(target_arch = "x86_64")]
        if job.past {
            // Stores past the caches are in no order with others else.
            // SAFETY: every CPU of this architecture has it.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
        done
    }
}

/// Whether this CPU has the instructions of a level.
pub(crate) fn has(level: Level) -> bool {
    match level {
        Level::Scalar => true,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
        }
        #[cfg(target_arch = "aarch64")]
        Level::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        _ => false,
    }
}
