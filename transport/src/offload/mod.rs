//! In-network reduction: a provider combines chunks of data on their way, and every member of a
//! group gets the result. Providers stand beside the transports, since hardware of this kind has no
//! peers to send to.
//!
//! * `contract`: the traits `Provider` and `Group`, which all callers use, and their values;
//! * `error`: the reasons why a group or a provider is given up;
//! * `header`: the 24 bytes before each message between a member and an aggregator;
//! * `messages`: the messages of one link;
//! * `slots`: the results that a member keeps, in two generations;
//! * `aggregator`: the provider whose groups are links to aggregators;
//! * `links`: the links of a group, over TCP or over the RDMA of `devices`;
//! * `end`: one end of a link for tests, behind the feature `testing`.
//!
//! Each tree of aggregators is a device of its own, and a call's chunks are striped over the groups
//! of all devices. `ringfold_bootstrap::aggregators` finds the trees. `Trees::place` gives them in
//! the order of the devices, where device g belongs to rail g modulo the number of rails. `grant`
//! asks for the groups of one tree, and its answer has the tree's leaves.
//!
//! The terms are those of SHARP and SwitchML: an *aggregator* combines the chunks of its *children*
//! (streaming aggregation), and a slot alternates between two generations.
pub mod aggregator;
mod contract;
mod devices;
#[cfg(any(test, feature = "testing"))]
mod end;
mod error;
pub mod header;
pub mod links;
pub mod messages;
mod slots;

pub use contract::{Awaited, Chunk, Device, Group, Outcome, Properties, Provider, Reduction};
pub use devices::RdmaDevices;
#[cfg(any(test, feature = "testing"))]
pub use end::End;
pub use error::OffloadError;
pub use slots::Slots;
