//! The parts of a design that all shapes share, and the resulting networks.

use crate::wiring::{Label, Wiring};

/// The switches of one plane of one subnet.
pub(crate) struct Network {
    /// By group: one leaf, or one for each rail.
    pub(crate) leaves: Vec<Vec<usize>>,
    /// The highest switches, where routers are attached.
    pub(crate) top: Vec<usize>,
}

/// The parts of a design that do not depend on its shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) rails: usize,
    pub(crate) plane: usize,
    /// The number of the first group of hosts.
    pub(crate) first_group: usize,
    /// Cables between two switches that are connected.
    pub(crate) times: usize,
}

impl Site {
    /// The label of a plane without rails.
    pub(super) fn plain(self) -> Option<Label> {
        Some(Label { rail: None, plane: self.plane })
    }
}

/// One leaf for each group, without rails.
pub(super) fn plain_leaves(wiring: &mut Wiring, site: Site, groups: usize) -> Vec<usize> {
    (0..groups).map(|group| wiring.leaf(None, site.plane, site.first_group + group)).collect()
}

/// A network whose switches all have hosts.
pub(super) fn flat(switches: Vec<usize>) -> Network {
    let leaves = switches.iter().map(|switch| vec![*switch]).collect();
    Network { leaves, top: switches }
}
