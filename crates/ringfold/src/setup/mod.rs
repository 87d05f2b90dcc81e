//! What a rank finds out of its host's place in the fabric, tells the others, and makes of their
//! answers.
//!
//! * `own`: the evidence of this rank, read before the ranks meet; `file`: the user's description
//!   of the fabric;
//! * `wire`: evidence as bytes; `exchange`: everyone's evidence, told over the control plane;
//! * `agreed`: the layout, labels and addresses that follow from it; `report`: the same for people.

mod agreed;
mod exchange;
mod file;
mod own;
mod report;
mod wire;

pub(crate) use agreed::Agreed;
pub(crate) use exchange::{ExchangeFailed, exchange};
pub use file::TopologyError;
pub(crate) use own::{Own, filter, interfaces};
pub use wire::UnreadableEvidence;
#[doc(hidden)]
pub use wire::is_evidence;
