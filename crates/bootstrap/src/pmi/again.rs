//! What came of the conversations that are over. A launcher speaks PMI-1 with a process once and
//! hangs up at the end; what it said then serves the process's next communicators.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;

use crate::secret::Secret;

/// Which socket, by the system's number for it: a descriptor's own may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Which(u64, u64);

/// What a conversation led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    /// The name of the key-value space.
    pub(crate) space: String,
    /// Where the first hub listened; nowhere if there was nobody to meet.
    pub(crate) hub: Option<SocketAddr>,
    /// The secret that the ranks shared there, if they did.
    pub(crate) secret: Option<Secret>,
}

/// A process has few sockets to its launcher: one.
static MET: Mutex<BTreeMap<Which, Met>> = Mutex::new(BTreeMap::new());

pub(super) fn which(socket: impl AsFd) -> Option<Which> {
    fstat(socket).ok().map(|stat| Which(stat.st_dev, stat.st_ino))
}

pub(super) fn remember(which: Which, met: Met) {
    all().insert(which, met);
}

/// What the conversation on `socket` led to, if it is over.
pub(crate) fn met(socket: impl AsFd) -> Option<Met> {
    all().get(&which(socket)?).cloned()
}

fn all() -> MutexGuard<'static, BTreeMap<Which, Met>> {
    MET.lock().unwrap_or_else(PoisonError::into_inner)
}
