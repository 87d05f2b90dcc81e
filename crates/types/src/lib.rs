//! The words that every crate of ringfold shares: who (`Rank`), what of (`DataType`), how combined
//! (`ReduceOp`), which operation (`Call`), which part of a buffer (`Slice`), and how much is too
//! much (`limits`).
//!
//! No dependencies, no `std`: these values are compared, printed and sent, nothing else.
#![no_std]
#![forbid(unsafe_code)]

mod call;
mod data_type;
pub mod limits;
mod op;
mod rank;
mod slice;

pub use call::{Call, Collective, InvalidCall};
pub use data_type::{DataType, UnknownDataType};
pub use op::{ReduceOp, Scale, UnknownReduceOp};
pub use rank::{Lane, Rank};
pub use slice::{Buffer, Slice};
