//! Aggregators (in-network reduction): their trees, and the control port where jobs ask for groups.
//!
//! * `control`: requests to one aggregator, and its answers;
//! * `trees`: the aggregators of a site, from a list of addresses or a tree file;
//! * `place`: the part of each aggregator for the members of one group;
//! * `grant`: the requests for all aggregators of a tree.
//!
//! A member that uses aggregators calls these in turn: `Trees::of_setting`, `Trees::with_parents`,
//! `Trees::place`, and `grant` for each placement.

pub(crate) mod control;
mod grant;
mod place;
mod trees;

pub use control::{
    Above, Ask, AskError, FromAggregator, Granted, GroupStats, Parent, Stats, Terms, ToAggregator,
    ask, listen, parent, serve, stats,
};
pub use grant::{LeafGrant, TreeGrant, grant};
pub use place::{PlacedGroup, Placement, Placements};
pub use trees::{Aggregator, Trees, TreesError};

#[cfg(test)]
mod tests;
