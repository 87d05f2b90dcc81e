//! Linear with rendezvous sends: every rank copies its block straight from the root's memory, where
//! the transport lets ranks read it. They do so at once, and the root copies nothing.
//!
//! Steps: 1. Sent by the root: n-1 blocks.
//!
//! Source: `linear`, by single copies.

use ringfold_types::Collective;

use super::linear::named;
use crate::algorithm::{Algorithm, Moved, Needs, Way};
use crate::fan::stated;
use crate::rails;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Scatter,
    name: "single_copy",
    needs: Needs::Rendezvous,
    way: Way::AtRoot,
    schedule: |plan| named(ALGORITHM.name, plan),
    stated,
    moved: Moved::results,
    stays_on_rail: rails::at_root,
};
