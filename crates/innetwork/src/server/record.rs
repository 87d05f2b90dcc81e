//! The numbers of groups, for `ringfold aggregate --stats`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::trees::GroupStats;
use ringfold_types::limits::AGGREGATOR_GROUPS_MAX;

/// The groups that exist, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(Arc<Mutex<BTreeMap<u32, GroupStats>>>);

/// The numbers of one group. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Record {
    records: Records,
    pub(crate) group: u32,
    pub(crate) job: String,
}

impl Records {
    /// Adds a group, or says that there are too many.
    pub(crate) fn insert(&self, stats: GroupStats) -> Result<Record, String> {
        let (records, group, job) = (self.clone(), stats.group, stats.job.clone());
        let mut all = self.lock();
        if all.len() >= AGGREGATOR_GROUPS_MAX {
            return Err(format!("{AGGREGATOR_GROUPS_MAX} groups exist"));
        }
        all.insert(group, stats);
        Ok(Record { records, group, job })
    }

    pub(crate) fn stats(&self) -> Vec<GroupStats> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, GroupStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    pub(crate) fn change(&self, change: impl FnOnce(&mut GroupStats)) {
        if let Some(stats) = self.records.lock().get_mut(&self.group) {
            change(stats);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.records.lock().remove(&self.group);
    }
}
