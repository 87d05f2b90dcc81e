//! The chunks that ranks have handed over to a provider in the network, and the ways to use it.

use alloc::vec::Vec;

use ringfold_types::Rank;

use super::flaw::Flaw;
use super::memory::{Memory, Run};
use crate::schedule::{Form, Schedule};

/// How a run uses the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offloading {
    /// In all of the call.
    Always,
    /// Not at all: the members pass the chunks on themselves.
    Never,
    /// Until this turn of a rank, when it fails.
    Until(usize),
}

/// The chunks that members have handed over, by lane and rank.
pub(super) struct Provider {
    pub(super) posted: Vec<Vec<Vec<Part>>>,
    /// Results that they have taken.
    pub(super) taken: Vec<Vec<usize>>,
}

/// One member's part of a chunk.
pub(super) struct Part {
    /// Its values. The shift of a run is the index of its first input.
    pub(super) values: Vec<Run>,
    pub(super) form: Form,
    pub(super) len: usize,
    pub(super) depth: usize,
}

impl Provider {
    pub(super) fn new(schedules: &[Schedule]) -> Self {
        let lanes = schedules.iter().map(|it| it.lanes().len()).max().unwrap_or(0);
        let of_lane = |_| schedules.iter().map(|_| Vec::new()).collect();
        let taken = alloc::vec![alloc::vec![0; schedules.len()]; lanes];
        Self { posted: (0..lanes).map(of_lane).collect(), taken }
    }
}

/// Compares the results of two runs of the same schedules.
///
/// # Errors
/// The first result with another order of sums.
pub(super) fn same_bits(ones: &[Memory], others: &[Memory], len: usize) -> Result<(), Flaw> {
    for (index, (one, other)) in ones.iter().zip(others).enumerate() {
        let mut position = 0;
        while position < len {
            let ((run, value), (other_run, other)) = (one.run_at(position), other.run_at(position));
            if value.map(|value| value.fold) != other.map(|value| value.fold) {
                return Err(Flaw::Bits { rank: Rank::at(index), index: position });
            }
            position += run.min(other_run);
        }
    }
    Ok(())
}
