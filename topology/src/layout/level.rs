//! The distance between two ranks.

use std::fmt;

use ringfold_types::Rank;

use super::{Layout, Reach};

/// The highest level of the network that a message between two ranks crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// None: the message stays on a host, or on the machine of several containers.
    Host,
    /// Leaf switches of one group.
    Group,
    /// Spine switches of a pod: to other leaf groups, and to other rails of the same group.
    Pod,
    /// The switches that connect pods.
    Fabric,
}

impl Level {
    /// All levels, from the lowest to the highest.
    pub const ALL: [Self; 4] = [Self::Host, Self::Group, Self::Pod, Self::Fabric];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "within hosts",
            Self::Group => "within leaf groups",
            Self::Pod => "across spines",
            Self::Fabric => "across pods",
        })
    }
}

impl Layout {
    /// The level that a message from one rank to another crosses. Hosts without paths count as one
    /// leaf group.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn level(&self, from: Rank, to: Rank) -> Level {
        let [a, b] = [from, to].map(|rank| self.path(self.host(rank)).unwrap_or_default());
        if self.same_machine(from, to) {
            Level::Host
        } else if a.pod != b.pod {
            Level::Fabric
        } else if a.group != b.group || self.leaves_rail(from, to) {
            Level::Pod
        } else {
            Level::Group
        }
    }

    /// Whether a message between ranks of two machines has to change rails: both ranks have known
    /// rails, and none in common.
    ///
    /// # Panics
    /// If there is no such rank.
    /// If there is no such rank.
    #[must_use]
    pub fn leaves_rail(&self, from: Rank, to: Rank) -> bool {
        let [a, b] = [from, to].map(|rank| self.reach(rank).reaches);
        !self.same_machine(from, to) && !a.is_empty() && !b.is_empty() && !a.meets(b)
    }

    /// Whether ranks of two machines both prefer known rails, and none in common.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn leaves_preferred(&self, from: Rank, to: Rank) -> bool {
        let [a, b] = [from, to].map(|rank| self.reach(rank).prefers);
        !self.same_machine(from, to) && !a.is_empty() && !b.is_empty() && !a.meets(b)
    }

    /// Whether some messages must change rails although rails are not known to reach each other.
    #[must_use]
    pub fn keeps_rails_apart(&self) -> bool {
        let all = self.reach.iter().map(|it| it.reaches).filter(|it| !it.is_empty());
        !self.rails_cross && all.reduce(Reach::and).is_some_and(Reach::is_empty)
    }

    fn same_machine(&self, a: Rank, b: Rank) -> bool {
        let machine = |rank| self.path(self.host(rank)).map(|it| (it.pod, it.group, it.machine));
        self.same_host(a, b) || machine(a).is_some() && machine(a) == machine(b)
    }
}
