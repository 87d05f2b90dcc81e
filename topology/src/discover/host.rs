//! Which host this process is on, and how much of it it may use.

use std::fs;
use std::thread;

/// The host as far as sharing memory is concerned: two processes with equal `id` can reach each
/// other's memory and abstract sockets. Containers of one machine that have networks of their own
/// are different hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Distinguishes this boot of this machine, and the network namespace in it.
    pub id: String,
    /// The name that people know it by; not necessarily unique.
    pub name: String,
}

impl Host {
    /// The host of this process. Reads `/proc`; what it does not find is empty.
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

/// Cores that this process may run on; at least 1.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
