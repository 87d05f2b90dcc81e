//! What a rank says of its place and its ports, so that all ranks come to the same layout.

use crate::fabric::Place;
use crate::machine::Network;

/// What one rank knows. Ranks exchange it before they connect. Ranks of one host that see the same
/// have equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Where its host is in the fabric.
    pub path: Option<HostPath>,
    /// Whether ports on different rails reach each other, if a source says so with certainty.
    pub crosses: Option<bool>,
    /// Its ports.
    pub ports: Vec<PortEvidence>,
}

/// Where a host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortEvidence {
    /// Device and port, as in `mlx5_0:1`, or the interface, as in `eth0`.
    pub name: String,
    /// Its network.
    pub network: Network,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// What it is attached to, by every source that says something; only what is certain.
    pub attached: Vec<Attached>,
}

/// What a port is attached to, as far as its host can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attached {
    /// An IP subnet.
    Subnet {
        /// Digest of network and prefix length.
        network: u64,
        /// Digest of the port's address: two ports with the same are on different networks.
        address: u64,
    },
    /// The switch with this digest of its LLDP chassis identifier.
    Switch(u64),
    /// A rail and plane, as declared, or as a site file or the fabric's graph says.
    Rail(Place, Source),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Subnets => "subnets",
            Self::Slurm => "Slurm",
            Self::Lldp => "LLDP",
            Self::Fabric => "the fabric file",
            Self::Site => "the site file",
            Self::Declared => "the user",
        })
    }
}
