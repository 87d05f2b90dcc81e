//! Linear with rendezvous sends: the root copies each block straight from its owner's memory, where
//! the transport lets ranks read it. The others copy nothing.
//!
//! Steps: 1. Sent by each rank but the root: its block.
//!
//! Source: `linear`, by single copies.

use super::linear;
use crate::algorithm::{Algorithm, Needs};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "single_copy",
    needs: Needs::Rendezvous,
    schedule: |plan| (linear::ALGORITHM.schedule)(plan).named(ALGORITHM.name),
    ..linear::ALGORITHM
};
