//! A network, and networks that carry the same hosts.

/// The purpose of a network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A plane of the fabric, or a rail of one.
    Plane(u8),
    /// Leaf switches that lost their cables to the rest.
    Fragment,
    /// Something else, as storage.
    Outside,
}

/// A network: switches that cables join.
pub(super) struct Net {
    /// Its purpose.
    pub(super) role: Role,
    /// Its leaf switches.
    pub(super) leaves: Vec<usize>,
    /// Its hosts, ascending.
    pub(super) hosts: Vec<usize>,
    /// The rate that most ports in it have, the fastest of several; 0 if unknown.
    pub(super) gbps: u32,
    /// The number of ports of hosts in it.
    pub(super) ports: usize,
    /// How many ports in it a host usually has.
    pub(super) ports_per_host: usize,
    /// The number of ports that it would have if none were missing.
    pub(super) ports_whole: usize,
    /// How many leaf switches of it a leaf group usually has.
    pub(super) width: usize,
    /// The stack that it is in; the largest is 0.
    pub(super) stack: usize,
}

/// Networks that are beside each other on the same hosts.
#[derive(Clone)]
pub(super) struct Stack {
    /// Their numbers.
    pub(super) nets: Vec<usize>,
    /// How many planes they are.
    pub(super) planes: usize,
    /// Each is a rail of its plane.
    pub(super) is_rail_only: bool,
    /// Devices with several ports tell planes, or there is nothing to tell.
    pub(super) is_told: bool,
    /// Networks beside it may be part of it.
    pub(super) has_others: bool,
    /// It is part of the fabric.
    pub(super) is_main: bool,
}
