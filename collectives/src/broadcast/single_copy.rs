//! Broadcast by rendezvous sends: the root sends its buffer to all. Where the transport lets ranks
//! read each other's memory, they all copy it from there at once.
//!
//! Steps: 1. Sent by the root: n-1 times the buffer.
//!
//! Source: `linear`, by single copies.

use ringfold_types::Collective;

use super::linear::named;
use crate::algorithm::{Algorithm, Moved, Needs, Way};
use crate::fan::stated;
use crate::rails;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "single_copy",
    needs: Needs::Rendezvous,
    way: Way::AtRoot,
    schedule: |plan| named(ALGORITHM.name, plan),
    stated,
    moved: Moved::results,
    stays_on_rail: rails::at_root,
};
