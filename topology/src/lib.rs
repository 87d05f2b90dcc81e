//! The properties of the machine and of the fabric that decide which schedule is best.
//!
//! * `layout`: the places of the ranks; the value that schedules take;
//! * `prices`: the times of messages on each class of links;
//! * `aggregation`: the aggregators that combine data between hosts;
//! * `machine`: one host; `fabric`: the network between hosts, and its kind;
//! * `evidence`: the facts about both that ranks exchange, as a `statement` behind the feature
//!   `wire`; `agree`: the answer of all ranks;
//! * `site`: an administrator's description of a fabric; `subnet`: the networks of addresses;
//! * `natural`: the order of names;
//! * `discover`: the readers of files and of the operating system, which no other module accesses;
//!   behind the feature of that name.
#![forbid(unsafe_code)]

mod aggregation;
pub mod agree;
pub mod certainty;
#[cfg(feature = "discover")]
pub mod discover;
pub mod evidence;
pub mod fabric;
mod layout;
pub mod machine;
mod natural;
mod order;
pub mod prices;
pub mod site;
#[cfg(feature = "wire")]
pub mod statement;
pub mod subnet;

pub use aggregation::{Aggregation, AggregationTree};
pub use layout::{Layout, Level, Occupancy, Path, PeerMemory, RankReach, Reach};
pub use natural::Natural;
pub use order::Order;

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
