//! Pairwise with rendezvous sends: every rank copies each block straight from its sender's memory,
//! where the transport lets ranks read it. Each memory has one reader at a time.
//!
//! Steps: n-1. Sent by each rank: n-1 blocks.
//!
//! Source: `pairwise`, by single copies.

use super::pairwise;
use crate::algorithm::{Algorithm, Needs};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "single_copy",
    needs: Needs::Rendezvous,
    schedule: |plan| (pairwise::ALGORITHM.schedule)(plan).named(ALGORITHM.name),
    ..pairwise::ALGORITHM
};
