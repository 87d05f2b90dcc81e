//! Broadcast by rendezvous sends: the root sends its buffer to all. Where the transport lets ranks
//! read each other's memory, they all copy it from there at once.
//!
//! Steps: 1. Sent by the root: n-1 times the buffer.
//!
//! Source: a flat tree, by single copies.

use ringfold_types::{Buffer, Collective, Slice};

use crate::algorithm::{Algorithm, Moved, Needs, Way};
use crate::fan::{self, stated};
use crate::rails;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::Broadcast,
    name: "single_copy",
    needs: Needs::Rendezvous,
    way: Way::AtRoot,
    schedule: |plan| {
        let own = Slice::new(Buffer::Input, 0, plan.call.count);
        fan::schedule(ALGORITHM.name, plan, |_| own)
    },
    stated,
    moved: Moved::results,
    stays_on_rail: rails::at_root,
};
