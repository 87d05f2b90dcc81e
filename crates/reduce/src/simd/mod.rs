//! The same results in vector registers. All `unsafe` code of the crate is in this folder, and this
//! file is its only entry: a [`Loop`] exists only if the CPU has its instructions.
//!
//! | file | content |
//! |---|---|
//! | `vector` | the traits that an instruction set implements, and macros for it |
//! | `codec` | conversions between each data type and registers, over those traits |
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

use self::block::Run;
use crate::job::Job;
use crate::level::Level;
use crate::scalar::Fold;

/// A loop that this CPU can run.
#[derive(Clone, Copy)]
pub(crate) struct Loop(Run);

impl Loop {
    /// The loop of a level, or `None` if the level has none for this fold or the CPU lacks it.
    pub(crate) fn choose(level: Level, data_type: DataType, fold: Fold) -> Option<Self> {
        if !level.is_available() {
            return None;
        }
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::choose(data_type, fold).map(Self),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::choose(data_type, fold).map(Self),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => neon::choose(data_type, fold).map(Self),
            _ => None,
        }
    }

    /// Computes the values of a job from `from` on except the last few, and returns the first index
    /// that it did not compute.
    pub(crate) fn run(self, job: &mut Job<'_>, from: usize) -> usize {
        // SAFETY: `choose` has checked the CPU, and `Kernel` has checked the lengths.
        let done = unsafe { (self.0)(job, from) };
        #[cfg(target_arch = "x86_64")]
        if job.non_temporal {
            // Non-temporal stores are not ordered with other stores.
            // SAFETY: every CPU of this architecture has it.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
        done
    }
}
