//! The statements of a rank about its place and its ports. All ranks derive the same layout from
//! them.

use crate::fabric::Place;
use crate::machine::Network;

/// The statements of one rank. Ranks exchange them before they connect. Ranks of one host with the
/// same view have equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Evidence {
    /// The place of its host in the fabric.
    pub path: Option<HostPath>,
    /// Whether ports on different rails reach each other, if a source states it with certainty.
    pub crosses: Option<bool>,
    /// Its ports.
    pub ports: Vec<PortEvidence>,
}

/// The place of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct HostPath {
    /// Names or numbers of the groups around the host, the outermost first.
    pub groups: Vec<String>,
    /// Its number in fabric order, if known.
    pub order: Option<u32>,
    /// The source of this path.
    pub source: Source,
}

/// The sources of evidence, the most trusted last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub enum Source {
    /// No source.
    #[default]
    Nothing,
    /// IP subnets with their prefix lengths.
    Subnets,
    /// Slurm's `topology.conf` or `SLURM_TOPOLOGY_ADDR`.
    Slurm,
    /// LLDP, in the output of `lldpctl -f json`.
    Lldp,
    /// `ibnetdiscover` or `iblinkinfo`.
    Fabric,
    /// The site file that `RINGFOLD_TOPO_FILE` names.
    Site,
    /// The user, in `RINGFOLD_IB_HCA`.
    Declared,
}

/// The statements about one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct PortEvidence {
    /// Device and port, such as `mlx5_0:1`, or the interface, such as `eth0`.
    pub name: String,
    /// Its network.
    pub network: Network,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The network that it is attached to, according to each source that states it with certainty.
    pub attached: Vec<Attached>,
}

/// The network that a port is attached to, as far as its host can determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub enum Attached {
    /// An IP subnet.
    Subnet {
        /// Digest of network and prefix length.
        network: u64,
        /// Digest of the port's address. Two ports with equal addresses are on different networks.
        address: u64,
    },
    /// The switch with this digest of its LLDP chassis identifier.
    Switch(u64),
    /// A rail and plane, according to the user, a site file or the fabric's graph.
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
