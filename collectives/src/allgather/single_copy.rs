//! Direct all-gather with rendezvous sends: every rank copies each other block straight from its
//! sender's memory, where the transport lets ranks read it.
//!
//! Steps: 1. Sent by each rank: n-1 blocks.
//!
//! Source: `direct`, by single copies.

use super::direct;
use crate::algorithm::{Algorithm, Needs};
use crate::uneven::Uneven;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "single_copy",
    needs: Needs::Rendezvous,
    schedule: |plan| (direct::ALGORITHM.schedule)(plan).named(ALGORITHM.name),
    ..direct::ALGORITHM
};

pub(super) const UNEVEN: Uneven = Uneven {
    algorithm: &ALGORITHM,
    schedule: |plan, blocks| (direct::UNEVEN.schedule)(plan, blocks).named(ALGORITHM.name),
};
