//! Aggregators (in-network reduction): their trees, and the control port where jobs ask for groups.
//!
//! * `control`: requests to one aggregator, and its answers;
//! * `file`: the aggregators of a site, from a list of addresses or a tree file;
//! * `place`: the part of each aggregator for the members of one group;
//! * `grant`: the requests for all aggregators of a tree;
//! * `find`: the trees that serve a communicator, and the requests to all of them;
//! * `offer`: the answers, as rank 0 tells them to the other ranks.
//!
//! Rank 0 calls `Trees::of_setting` and `find`, and each rank makes a provider of the `Offer`.

mod control;
mod file;
mod find;
mod grant;
mod offer;
mod place;

#[cfg(feature = "server")]
pub(crate) use control::SOURCES;
pub use control::{
    Above, Ask, AskError, FromAggregator, Granted, GroupStats, Parent, Stats, Terms, ToAggregator,
    ask, parent, stats,
};
pub use file::{Aggregator, Trees, TreesError};
pub use find::find;
pub use grant::{LeafGrant, TreeGrant, grant};
pub use offer::{Answer, Offer, decode, encode};
pub use place::{PlacedGroup, Placement, Placements};

#[cfg(test)]
mod tests;
