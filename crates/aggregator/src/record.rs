//! The numbers of groups, for `ringfold aggregate --stats`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringfold_bootstrap::aggregators::{self, GroupStats};

use crate::core::Shape;
use crate::uplink::Parent;

/// The numbers of one group.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) job: String,
    pub(crate) shape: Shape,
    /// The group above, and whether this one is connected to it.
    pub(crate) above: Option<Parent>,
    pub(crate) is_above: AtomicBool,
    /// Bytes that the group may use.
    pub(crate) memory: usize,
    pub(crate) connected: AtomicU32,
    /// Connected children whose chunks go by RDMA.
    pub(crate) linked: AtomicU32,
    pub(crate) chunks: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// The groups that exist, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(Arc<Mutex<BTreeMap<u32, Arc<Record>>>>);

impl Records {
    pub(crate) fn insert(
        &self,
        group: u32,
        job: String,
        (shape, memory): (Shape, usize),
        above: Option<Parent>,
    ) -> Arc<Record> {
        let (connected, linked, is_above) = Default::default();
        let (chunks, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let record =
            Record { job, shape, above, is_above, memory, connected, linked, chunks, bytes };
        let record = Arc::new(record);
        self.with(|groups| groups.insert(group, Arc::clone(&record)));
        record
    }

    pub(crate) fn remove(&self, group: u32) {
        self.with(|groups| groups.remove(&group));
    }

    pub(crate) fn count(&self) -> usize {
        self.with(|groups| groups.len())
    }

    pub(crate) fn stats(&self) -> Vec<GroupStats> {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let stats = |(group, record): (&u32, &Arc<Record>)| GroupStats {
            job: record.job.clone(),
            group: *group,
            children: (number(record.shape.children()), record.connected.load(Ordering::Relaxed)),
            parent: record.above.map(|above| aggregators::Parent {
                at: above.at.tcp.to_string(),
                group: above.group,
                is_connected: record.is_above.load(Ordering::Relaxed),
            }),
            slots: number(record.shape.children() * record.shape.window),
            linked: record.linked.load(Ordering::Relaxed),
            memory: record.memory as u64,
            chunks: record.chunks.load(Ordering::Relaxed),
            bytes: record.bytes.load(Ordering::Relaxed),
        };
        self.with(|groups| groups.iter().map(stats).collect())
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<u32, Arc<Record>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
