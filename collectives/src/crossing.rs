//! The messages and bytes of a call that cross each level of a fabric: within hosts, within leaf
//! groups, across spines and across pods. Messages that change rails are counted too.
//!
//! `measured` counts them in schedules.

use core::borrow::Borrow;

use ringfold_topology::{Layout, Level};
use ringfold_types::Rank;

use crate::schedule::{Form, Schedule, Step};

/// Some messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of messages.
    pub messages: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Load {
    fn add(&mut self, messages: u64, bytes: u64) {
        self.messages += messages;
        self.bytes += bytes;
    }
}

/// The messages of all ranks in one call, by the level that they cross.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossing {
    levels: [Load; Level::ALL.len()],
    /// Messages between ranks that have no rail in common. `at` counts them too.
    pub off_rail: Load,
    /// Messages between ranks that prefer no common rail, even if they share one. `at` counts them
    /// too.
    pub off_preferred: Load,
}

impl Crossing {
    /// The messages that cross `level` and no higher one.
    #[must_use]
    pub const fn at(&self, level: Level) -> Load {
        self.levels[level as usize]
    }

    /// The messages that cross spines or pods.
    #[must_use]
    pub fn across_spines(&self) -> Load {
        let mut load = self.at(Level::Pod);
        let Load { messages, bytes } = self.at(Level::Fabric);
        load.add(messages, bytes);
        load
    }

    fn add(&mut self, layout: &Layout, [from, to]: [Rank; 2], messages: u64, bytes: u64) {
        self.levels[layout.level(from, to) as usize].add(messages, bytes);
        if layout.leaves_rail(from, to) {
            self.off_rail.add(messages, bytes);
        }
        if layout.leaves_preferred(from, to) {
            self.off_preferred.add(messages, bytes);
        }
    }
}

/// Counts the messages that the schedules of all ranks send, for ranks placed as in `layout`.
/// Accesses to other ranks' memory are not messages.
#[must_use]
pub fn measured(schedules: impl IntoIterator<Item: Borrow<Schedule>>, layout: &Layout) -> Crossing {
    let mut crossing = Crossing::default();
    for schedule in schedules {
        let schedule = schedule.borrow();
        for step in schedule.lanes().iter().flatten() {
            if let Step::Send { to, src } = step {
                let form = Form::of(src.buffer).data_type(schedule.call());
                let bytes = (src.len * form.bytes()) as u64;
                crossing.add(layout, [schedule.rank(), *to], 1, bytes);
            }
        }
    }
    crossing
}
