//! Instruction sets, and their availability on this CPU.

use std::fmt;

/// The instructions of a kernel. All levels give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// One value at a time, on every CPU. This level defines the results.
    Scalar,
    /// 128-bit registers of 64-bit Arm.
    Neon,
    /// 256-bit registers of x86-64, with F16C.
    Avx2,
    /// 512-bit registers of x86-64: the F, BW, VL and DQ parts.
    Avx512,
}

impl Level {
    /// All levels; of one architecture, faster ones come later.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512];

    /// Whether this CPU has the level.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        }
    }

    /// The fastest level of this CPU.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|level| level.is_available()).unwrap_or(Self::Scalar)
    }

    /// The lower-case name, as in `avx2`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
