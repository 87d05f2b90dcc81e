//! Linear with rendezvous sends: the root copies each block straight from its owner's memory, where
//! the transport lets ranks read it. The others copy nothing.
//!
//! Steps: 1. Sent by each rank but the root: its block.
//!
//! Source: `linear`, by single copies.

use ringfold_types::Collective;

use super::linear::{moved, named, stated};
use crate::algorithm::{Algorithm, Needs, Way};
use crate::rails;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Gather,
    name: "single_copy",
    needs: Needs::Rendezvous,
    way: Way::AtRoot,
    schedule: |plan| named(ALGORITHM.name, plan),
    stated,
    moved,
    stays_on_rail: rails::at_root,
};
