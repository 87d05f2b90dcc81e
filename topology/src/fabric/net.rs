//! Networks, and stacks of networks that carry the same hosts.

/// The purpose of a network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A plane of the fabric, or a rail of one.
    Plane(u8),
    /// Leaf switches that lost their cables to the rest.
    Fragment,
    /// Another purpose, such as storage.
    Outside,
}

/// A network: switches that cables connect.
pub(super) struct Net {
    /// Its purpose.
    pub(super) role: Role,
    /// Its leaf switches.
    pub(super) leaves: Vec<usize>,
    /// Its hosts, ascending.
    pub(super) hosts: Vec<usize>,
    /// The rate that most of its ports have, or the fastest of several such; 0 if unknown.
    pub(super) gbps: u32,
    /// Number of ports of hosts in it.
    pub(super) ports: usize,
    /// Number of ports in it that a host usually has.
    pub(super) ports_per_host: usize,
    /// Number of ports that it would have if none were missing.
    pub(super) ports_whole: usize,
    /// Number of its leaf switches that a leaf group usually has.
    pub(super) width: usize,
    /// The stack that it is in; the largest stack is 0.
    pub(super) stack: usize,
}

/// Networks beside each other on the same hosts.
#[derive(Clone)]
pub(super) struct Stack {
    /// Their numbers.
    pub(super) nets: Vec<usize>,
    /// Number of planes that they form.
    pub(super) planes: usize,
    /// Whether each of them is a rail of its plane.
    pub(super) is_rail_only: bool,
    /// Whether devices with several ports identify the planes, or there is only one network.
    pub(super) is_evident: bool,
    /// Whether networks beside it may belong to it.
    pub(super) has_others: bool,
    /// Whether it belongs to the fabric.
    pub(super) is_main: bool,
}
