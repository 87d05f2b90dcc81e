//! Pairwise with rendezvous sends: every rank copies each block straight from its sender's memory,
//! where the transport lets ranks read it. Each memory has one reader at a time.
//!
//! Steps: n-1. Sent by each rank: n-1 blocks.
//!
//! Source: `pairwise`, by single copies.

use ringfold_types::Collective;

use super::pairwise::{named, stated};
use crate::algorithm::{Algorithm, Moved, Needs, Way};
use crate::rails;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllToAll,
    name: "single_copy",
    needs: Needs::Rendezvous,
    way: Way::InTurn,
    schedule: |plan| named(ALGORITHM.name, plan),
    stated,
    moved: Moved::results,
    stays_on_rail: rails::among_all,
};
