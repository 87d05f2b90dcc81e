//! As `direct`, but blocks are offered: where the transport lets ranks read each other's memory,
//! everyone takes the others' blocks from where they lie.
//!
//! Steps: 1. Sent by each rank: n-1 blocks.

use ringfold_types::Collective;

use super::direct::{messages, named, stated};
use crate::algorithm::{Algorithm, Moved, Needs, Way};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::AllGather,
    name: "attached",
    needs: Needs::Rendezvous,
    way: Way::Direct,
    schedule: |plan| named(ALGORITHM.name, plan),
    stated,
    moved: Moved::results,
    messages,
};
