//! Broadcast by rendezvous sends: the root sends its buffer to all. Where the transport lets ranks
//! read each other's memory, they all copy it from there at once.
//!
//! Steps: 1. Sent by the root: n-1 times the buffer.
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
