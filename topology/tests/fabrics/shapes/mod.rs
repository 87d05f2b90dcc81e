//! Networks as the papers define them. Each function makes the switches of one plane and connects
//! them.
//!
//! * Rail-optimized: NVIDIA's DGX `SuperPOD` reference architecture. NIC i of each host of a
//!   scalable unit is on leaf i of the unit. Each leaf is connected to every spine. In the large
//!   form it is connected to the spines of its rail, and cores connect these.
//! * Rail-only: Wang et al., "Rail-only: A Low-Cost High-Performance Network for Training LLMs"
//!   (2023). Like rail-optimized, without connections between rails.
//! * Fat trees: Ohring et al., "On Generalized Fat Trees" (1995), XGFT(h; m1..mh; w1..wh). A k-ary
//!   n-tree has every m and w equal to k.
//! * `Dragonfly+`: Shpiner et al. (2017). `HyperX`: Ahn et al. (2009). `Dragonfly`: Kim et al.
//!   (2008), which has no name in the classifier and counts as unknown.

mod grids;
mod groups;
mod network;
mod trees;

use crate::wiring::Wiring;
use ringfold_harness::Random;

pub(crate) use network::{Network, Site};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Single,
    /// `cores` is 0 if every leaf is connected to every spine.
    RailOptimized {
        units: usize,
        spines: usize,
        cores: usize,
    },
    /// `spines` is 0 if a rail is one switch.
    RailOnly {
        units: usize,
        spines: usize,
    },
    /// `down` is m2..mh and `up` is w2..wh. Ports have one cable, and m1 follows from the hosts.
    FatTree {
        down: Vec<usize>,
        up: Vec<usize>,
        is_spread: bool,
    },
    DragonflyPlus {
        groups: usize,
        leaves: usize,
        spines: usize,
        links: usize,
    },
    Torus(Vec<usize>),
    HyperX(Vec<usize>),
    Regular {
        switches: usize,
        degree: usize,
    },
    Dragonfly {
        routers: usize,
        links: usize,
    },
}

impl Shape {
    /// Number of groups of hosts that share leaf switches.
    pub(crate) fn groups(&self) -> usize {
        match self {
            Self::Single => 1,
            Self::RailOptimized { units, .. } | Self::RailOnly { units, .. } => *units,
            Self::FatTree { down, .. } => down.iter().product(),
            Self::DragonflyPlus { groups, leaves, .. } => groups * leaves,
            Self::Torus(dims) | Self::HyperX(dims) => dims.iter().product(),
            Self::Regular { switches, .. } => *switches,
            Self::Dragonfly { routers, links } => routers * (routers * links + 1),
        }
    }

    pub(crate) fn has_rails(&self) -> bool {
        matches!(self, Self::RailOptimized { .. } | Self::RailOnly { .. })
    }

    pub(crate) fn build(&self, wiring: &mut Wiring, site: Site, random: &mut Random) -> Network {
        match self {
            Self::Single => {
                let leaf = wiring.leaf(None, site.plane, site.first_group);
                Network { leaves: vec![vec![leaf]], top: vec![leaf] }
            }
            Self::RailOptimized { units, spines, cores } => {
                trees::rail_optimized(wiring, site, [*units, *spines, *cores])
            }
            Self::RailOnly { units, spines } => trees::rail_only(wiring, site, *units, *spines),
            Self::FatTree { down, up, .. } => trees::fat_tree(wiring, site, down, up),
            Self::DragonflyPlus { groups, leaves, spines, links } => {
                groups::dragonfly_plus(wiring, site, [*groups, *leaves, *spines, *links])
            }
            Self::Torus(dims) => grids::torus(wiring, site, dims),
            Self::HyperX(dims) => grids::hyperx(wiring, site, dims),
            Self::Regular { switches, degree } => {
                groups::regular(wiring, site, *switches, *degree, random)
            }
            Self::Dragonfly { routers, links } => groups::dragonfly(wiring, site, *routers, *links),
        }
    }
}
