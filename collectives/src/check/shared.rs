//! The state that calls in a row share: links, signals, staging buffers, and the knowledge of each
//! rank about the others.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::races::Races;
use super::signals::Signals;
use super::stream::Stream;
use crate::schedule::Schedule;

#[derive(Default)]
pub(super) struct Shared {
    /// By receiver, the elements on the wire to it, by sender and lane.
    pub(super) links: Vec<BTreeMap<(usize, usize), Stream>>,
    /// The accesses of all lanes of all ranks, where ranks use each other's memory.
    pub(super) races: Option<Races>,
    pub(super) signals: Option<Signals>,
    /// By rank, whether it now uses the other's staging buffer as its own, of two ranks.
    pub(super) swapped: Vec<bool>,
}

impl Shared {
    /// Before the first of `calls`. With `follows`, the ranks may be in an earlier call.
    pub(super) fn before<'s>(
        calls: impl Iterator<Item = &'s [Schedule]> + Clone,
        follows: bool,
    ) -> Self {
        let size = calls.clone().map(<[_]>::len).max().unwrap_or(0);
        let lanes = calls.clone().flatten().map(|it| it.lanes().len()).max().unwrap_or(1);
        let races = calls.clone().any(use_memory_of_others);
        let races = races.then(|| Races::between_ranks(size, lanes, follows));
        Self {
            links: (0..size).map(|_| BTreeMap::new()).collect(),
            signals: races.as_ref().map(|_| Signals::new(size, follows)),
            races,
            swapped: alloc::vec![false; size],
        }
    }
}

/// Whether ranks use each other's memory.
pub(super) fn use_memory_of_others(schedules: &[Schedule]) -> bool {
    schedules.iter().any(|schedule| schedule.needs_windows() || schedule.needs_staging())
}
