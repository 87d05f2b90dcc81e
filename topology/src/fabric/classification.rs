//! The result of classification: a fabric's kind, the rails of its ports, and its oddities.

use crate::certainty::{Certainty, Finding};

/// The kinds of fabric that have a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every port is on one switch.
    SingleSwitch,
    /// Port i of every host of a group is on leaf switch i of the group, and spines connect the
    /// leaf switches.
    RailOptimized,
    /// Like `RailOptimized`, without a path between rails.
    RailOnly,
    /// Leaf, spine and possibly core switches. A host's ports share a leaf, or are spread
    /// arbitrarily.
    FatTree {
        /// Levels of switches.
        levels: u32,
        /// Capacity from hosts into leaf switches, over capacity from leaf switches upwards.
        oversubscription: Ratio,
    },
    /// Groups of switches. Each is a leaf-spine network and is connected to every other group.
    DragonflyPlus,
    /// A grid of switches that closes on itself.
    Torus {
        /// Switches along each dimension, ascending.
        dims: Vec<u32>,
    },
    /// A grid of switches in which each is connected to all others along each dimension. A
    /// hypercube has 2 switches along each.
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

/// A ratio of capacities. It has two integers, so that values can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(pub u64, pub u64);

/// The place of a port. The pair is its label: ports with equal rail and plane reach each other
/// within both.
///
/// Equal networks beside each other are planes if one device has ports in several of them, or if
/// each has rails of its own. Otherwise a host has one port of another device in each, and they are
/// the rails of `Kind::RailOnly`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// The rail. Every port of a plane without rails is on rail 0.
    pub rail: u16,
    /// The plane: one of several separate networks that carry the same rail.
    pub plane: u8,
}

/// The place of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// The host's name, as in its ports.
    pub host: String,
    /// The pod: leaf groups that share spines. It is the outermost level.
    pub pod: u32,
    /// The leaf group: hosts that share leaf switches.
    pub group: u32,
    /// Its number in fabric order. Neighbours in this order are near each other. On a torus the
    /// order follows the dimensions.
    pub order: u32,
}

/// An exception in the fabric, as a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// The index of the host port that it is about, if it is about one.
    pub port: Option<usize>,
    /// The exception: a cable in the wrong leaf, a missing or slower port, and so on.
    pub what: String,
}

/// The result of classifying a fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// Its kind.
    pub kind: Finding<Kind>,
    /// Number of rails. It is 0 if there are none: a host has one port in each plane, or all its
    /// ports of a plane share a leaf. So it is never 1.
    pub rails: Finding<u16>,
    /// Number of planes, at least 1.
    pub planes: Finding<u8>,
    /// Number of subnets with hosts: parts that only routers connect, or that nothing connects.
    /// Planes and the rails of `Kind::RailOnly` are subnets too.
    pub subnets: Finding<u32>,
    /// By index of `Fabric::ports`: the place of the port, and its certainty. `None` for a port
    /// that is down, and for one outside the fabric of `kind`: on a storage or management network,
    /// or of a switch's aggregation node.
    pub places: Vec<(Option<Place>, Certainty)>,
    /// By index of `Fabric::ports`: the subnet of the port, from 0; `None` if it is down.
    pub subnet_of: Vec<Option<u32>>,
    /// Hosts in fabric order.
    pub hosts: Vec<HostPlace>,
    /// Whether ports on different rails reach each other.
    pub crosses: Finding<bool>,
    /// Exceptions from the rest of the fabric.
    pub oddities: Vec<Oddity>,
}
