//! The evidence of all ranks.

use crate::evidence::Evidence;

/// The statements of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// By number of host: the number of its machine. Containers of a machine are several hosts.
    pub machines: Vec<u32>,
    /// Evidence, each of one host. Ranks of a host with equal evidence share an entry.
    pub evidence: Vec<HostEvidence>,
    /// By rank.
    pub ranks: Vec<RankEvidence>,
}

/// Evidence, and its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostEvidence {
    /// The number of the host.
    pub host: u32,
    /// The statements of ranks on that host.
    pub evidence: Evidence,
}

/// The statements of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankEvidence {
    /// The number of its host.
    pub host: u32,
    /// The index of its evidence; `None` if it has none.
    pub evidence: Option<u32>,
    /// The ports of its evidence that it prefers. The first port is the lowest bit.
    pub preferred: u32,
}
