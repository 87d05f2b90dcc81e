//! Element-wise reduction: `dst = op(operand, operand, ...)` over bytes.
//!
//! A [`Kernel`] is one reduction of one data type, resolved for this CPU once per call. Its
//! operands are little-endian bytes of any alignment, as in user buffers and on the wire.
//!
//! | file | content |
//! |---|---|
//! | `kernel` | the entry point: a kernel picks its level and runs its jobs |
//! | `level` | the instruction sets, and their availability on this CPU |
//! | `job` | one run: operands, their forms, and the last step of each result |
//! | `element` | the Rust types of elements |
//! | `float8`, `format` | the 8-bit floats, and the layouts and rounding of short floats |
//! | `scale` | the scaling pass of a scaled sum |
//! | `scalar/` | safe loops, which define every result bit for bit |
//! | `simd/` | the same results in vector registers; the crate's only `unsafe` |
//!
//! # Rules for the bits of results
//!
//! - Operands are combined from left to right in the accumulator type
//!   ([`DataType::accumulator`](ringfold_types::DataType::accumulator)). If the destination holds
//!   elements, the result is rounded once, to nearest even.
//! - Every NaN in a result is the canonical one of its type: positive, quiet, with no payload
//!   (`0x7fc0_0000` for `f32`, `0x7f` for the 8-bit floats). Hardware differs in the NaNs that it
//!   makes.
//! - In minimum and maximum, a NaN gives NaN, and -0 is smaller than +0.
//! - Integers wrap. Their average truncates toward zero.
//! - Logical operations give 0 or 1. Bitwise and logical operations are for integers; with floats
//!   their results have no meaning.
//! - Denormals are kept and never flushed to zero.
//! - A finite value too large for an 8-bit float becomes its largest finite value, as in CUDA; for
//!   `f16` and `bf16` it becomes infinity, as in IEEE 754.

mod element;
mod float8;
mod format;
mod job;
mod kernel;
mod level;
mod scalar;
mod scale;
mod simd;

pub use element::{Element, data_type_of};
pub use float8::{F8E4M3, F8E5M2};
pub use job::{Form, Line, Operand};
pub use kernel::Kernel;
pub use level::Level;
pub use scale::{scale, scale_fits};

const _: () = assert!(cfg!(target_endian = "little"), "elements are little-endian in memory");
