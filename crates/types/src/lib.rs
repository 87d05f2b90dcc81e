//! The vocabulary that all crates of ringfold share: ranks (`Rank`, `Lane`), data types
//! (`DataType`), reduction operations (`ReduceOp`), calls (`Call`), parts of buffers (`Slice`),
//! bounds (`limits`), amounts with a suffix (`Amount`), spellings of names (`same_name`, `Hint`),
//! lists of hosts (`expand_hosts`), ways of bytes (`Way`), hashes (`Digest`, `mix`) and errors with
//! their causes (`Chain`).
//!
//! No dependencies and no `std`: these values are only compared, printed and sent.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod amount;
mod call;
mod chain;
mod data_type;
mod digest;
mod hosts;
pub mod limits;
mod names;
mod op;
mod rank;
mod slice;
mod uneven;
mod way;
mod wire;

pub use amount::{Amount, InvalidAmount};
pub use call::{Call, Collective, InvalidCall};
pub use chain::Chain;
pub use data_type::DataType;
pub use digest::{Digest, mix};
pub use hosts::{InvalidHostList, expand_hosts};
pub use names::{Hint, UnknownName, same_name};
pub use op::{ReduceOp, Scale};
pub use rank::{Lane, Rank};
pub use slice::{Buffer, Slice};
pub use uneven::{UnevenCall, UnevenCollective};
pub use way::Way;
pub use wire::Wire;

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
