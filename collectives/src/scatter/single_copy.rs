//! Linear with rendezvous sends: every rank copies its block straight from the root's memory, where
//! the transport lets ranks read it. They do so at once, and the root copies nothing.
//!
//! Steps: 1. Sent by the root: n-1 blocks.
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
