//! In-network reduction: a provider combines chunks of data on their way, and every member of a
//! group gets the result. Providers stand beside the transports, since hardware of this kind has no
//! peers to send to.
//!
//! * `contract`: the traits `Provider` and `Group`, which all callers use, and their values;
//! * `slots`: the results that a member keeps;
//! * `error`: the reasons why a group or a provider is given up;
//! * `wire`: the messages between a member and an aggregator, and the links that carry them;
//! * `provider`: the provider whose groups are links to aggregators;
//! * `trees`: the aggregators of a site, and the requests for their groups;
//! * `member`: a communicator's groups, from their grant until they are given up;
//! * `server`: an aggregator, behind the feature `server`.
//!
//! Each tree of aggregators is a device of its own, and a call's chunks are striped over the groups
//! of all devices. `Trees::place` gives the trees in the order of the devices, where device g
//! belongs to rail g modulo the number of rails.
//!
//! The terms are those of SHARP and SwitchML: an *aggregator* combines the chunks of its *children*
//! (streaming aggregation), and a slot alternates between two generations.
#![forbid(unsafe_code)]

mod contract;
mod error;
pub mod member;
pub mod provider;
#[cfg(feature = "server")]
pub mod server;
mod slots;
pub mod trees;
pub mod wire;

pub use contract::{Awaited, Chunk, Device, Group, Properties, Provider, Reduction};
pub use error::OffloadError;
pub use slots::{Outcome, Slots};
pub use wire::devices::RdmaDevices;
#[cfg(any(test, feature = "testing"))]
pub use wire::end::End;

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
