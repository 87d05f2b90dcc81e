//! What a rank says of its place and its ports, so that all ranks come to the same layout.

use crate::fabric::Place;
use crate::machine::Network;

/// What one rank knows. Ranks exchange it before they connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Digest of the site file; nothing without one. Ranks refuse to differ.
    pub site: Option<u64>,
    /// Where its host is in the fabric: names of groups, the outermost first, and what said so.
    pub path: Option<HostPath>,
    /// Its ports, those it prefers first.
    pub ports: Vec<PortEvidence>,
}

/// Where a host is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPath {
    /// Names or numbers of the groups around the host, the outermost first.
    pub groups: Vec<String>,
    /// Its number in fabric order, if that is known.
    pub order: Option<u32>,
    /// What said so.
    pub source: Source,
}

/// What evidence came from, the most trusted last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Nothing said anything.
    #[default]
    Nothing,
    /// IP subnets with their prefix lengths.
    Subnets,
    /// Slurm's `topology.conf` or `SLURM_TOPOLOGY_ADDR`.
    Slurm,
    /// LLDP, as `lldpctl -f json` prints it.
    Lldp,
    /// `ibnetdiscover` or `iblinkinfo`.
    Fabric,
    /// The site file that `RINGFOLD_TOPO_FILE` names.
    Site,
    /// The user, in `RINGFOLD_IB_HCA`.
    Declared,
}

/// What is known of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortEvidence {
    /// Device and port, as in `mlx5_0:1`.
    pub name: String,
    /// Its network.
    pub network: Network,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The rank prefers it: it is near the rank's GPU or CPUs, and no other rank's.
    pub is_preferred: bool,
    /// What it is attached to.
    pub attached: Attached,
}

/// What a port is attached to, as far as its host can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attached {
    /// Nobody knows.
    #[default]
    Unknown,
    /// The IP subnet with this digest of network and prefix length.
    Subnet(u64),
    /// The switch with this digest of its LLDP chassis identifier.
    Switch(u64),
    /// A rail and plane, as declared, or as a site file or the fabric's graph says.
    Rail(Place, Source),
}
