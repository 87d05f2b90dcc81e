//! The host of this process, and the cores that it may use.

use std::fs;
use std::thread;

/// A host, in the sense of shared memory: two processes with equal `id` can map each other's memory
/// and connect to each other's abstract sockets. Containers of one machine with networks of their
/// own are different hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Identifies this boot of this machine, and the network namespace.
    pub id: String,
    /// The name for people, not necessarily unique.
    pub name: String,
}

impl Host {
    /// The host of this process. Reads `/proc`. A value that is missing there is empty.
    #[must_use]
    pub fn this() -> Self {
        let line = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let boot = line("/proc/sys/kernel/random/boot_id");
        let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
        Self {
            id: format!("{boot}/{}", network.display()),
            name: line("/proc/sys/kernel/hostname"),
        }
    }
}

/// Number of cores that this process may run on; at least 1.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
