//! The answer: a fabric's kind, the rails of its ports, and its oddities.

use crate::certainty::{Certainty, Finding};

/// The kinds of fabric that have a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every port is on one switch.
    SingleSwitch,
    /// Port i of every host of a group is on leaf switch i of the group, and leaf switches are
    /// joined by spines.
    RailOptimized,
    /// As `RailOptimized`, without a path between rails.
    RailOnly,
    /// Leaf, spine and maybe core switches; a host's ports share a leaf, or are spread at will.
    FatTree {
        /// Levels of switches.
        levels: u32,
        /// Capacity from hosts into leaf switches, over capacity from leaf switches upwards.
        oversubscription: Ratio,
    },
    /// Groups of switches, each joined to every other group; a group is a leaf-spine network.
    DragonflyPlus,
    /// A grid of switches that closes on itself, with so many switches along each dimension.
    Torus {
        /// Switches along each dimension, ascending.
        dims: Vec<u32>,
    },
    /// Every switch is joined to all others along each dimension (a hypercube has 2 along each).
    HyperX {
        /// Switches along each dimension, ascending.
        dims: Vec<u32>,
    },
    /// None of these.
    Other {
        /// Levels of switches, as far as ports have a distance from them; 0 without switches.
        levels: u32,
    },
}

/// A ratio of capacities, kept as two integers so that values can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(pub u64, pub u64);

/// Where a port is. The pair is the label: ports with equal rail and plane reach each other
/// without leaving both.
///
/// Equal networks beside each other are planes where one device has ports in several of them, or
/// where each has rails of its own. Otherwise a host has one port of another device in each, and
/// they are the rails of `Kind::RailOnly`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The rail. Every port of a plane without rails is on rail 0.
    pub rail: u16,
    /// The plane: a network of its own beside others that carry the same rail.
    pub plane: u8,
}

/// Where a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// The host's name, as ports have it.
    pub host: String,
    /// Leaf groups that share spines; the outermost level.
    pub pod: u32,
    /// Hosts that share leaf switches.
    pub group: u32,
    /// Its number in fabric order: neighbours in this order are near each other. On a torus the
    /// order follows the dimensions.
    pub order: u32,
}

/// Something that does not fit the rest of the fabric, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// The port of a host that it is about, as an index, if it is about one.
    pub port: Option<usize>,
    /// What it is: a cable in the wrong leaf, a missing or slower port, ...
    pub what: String,
}

/// What is known of a fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// Its kind.
    pub kind: Finding<Kind>,
    /// Number of rails; 0 if there are none: a host has one port in each plane, or all its ports
    /// of a plane share a leaf. So it is never 1.
    pub rails: Finding<u16>,
    /// Number of planes; 1 if there is but one.
    pub planes: Finding<u8>,
    /// Number of subnets with hosts: parts that only routers join, or nothing at all. Planes and
    /// the rails of `Kind::RailOnly` are subnets too.
    pub subnets: Finding<u32>,
    /// By index of `Fabric::ports`: where the port is, and how sure that is. Nothing for a port
    /// that is down, and for one outside the fabric of `kind`: on a storage or management network
    /// beside it, or of a switch's aggregation node.
    pub places: Vec<(Option<Place>, Certainty)>,
    /// By index of `Fabric::ports`: the subnet that the port is in, from 0; nothing if it is down.
    pub subnet_of: Vec<Option<u32>>,
    /// Hosts in fabric order.
    pub hosts: Vec<HostPlace>,
    /// Ports on different rails reach each other.
    pub crosses: Finding<bool>,
    /// What does not fit.
    pub oddities: Vec<Oddity>,
}
