//! The results of finished PMI-1 sessions. A launcher holds one session with a process and then
//! closes the socket. Later communicators of the process use the recorded result.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;

use crate::discover::secret::Secret;

/// Identifies a socket by the kernel's number for it, because descriptor numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SocketId(u64, u64);

/// The result of a finished session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastSession {
    /// The name of the key-value space.
    pub(crate) space: String,
    /// The address of the first coordinator. `None` in a job of one rank.
    pub(crate) coordinator: Option<SocketAddr>,
    /// The secret that the ranks shared in the session, if they did.
    pub(crate) secret: Option<Secret>,
}

/// The finished sessions of this process. It usually has one.
static PAST: Mutex<BTreeMap<SocketId, PastSession>> = Mutex::new(BTreeMap::new());

pub(super) fn socket_id(socket: impl AsFd) -> Option<SocketId> {
    fstat(socket).ok().map(|stat| SocketId(stat.st_dev, stat.st_ino))
}

pub(super) fn remember(id: SocketId, session: PastSession) {
    all().insert(id, session);
}

/// The result of the session on `socket`, if it is finished.
pub(crate) fn past_session(socket: impl AsFd) -> Option<PastSession> {
    all().get(&socket_id(socket)?).cloned()
}

fn all() -> MutexGuard<'static, BTreeMap<SocketId, PastSession>> {
    PAST.lock().unwrap_or_else(PoisonError::into_inner)
}
