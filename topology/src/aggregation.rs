//! The aggregators that combine chunks of data on their way between hosts: their trees, their
//! abilities and their prices. The value is the same on every rank.

use std::sync::Arc;

/// A tree of aggregators whose leaves are the members of a group: one rank of each host, numbered
/// in fabric order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AggregationTree {
    /// The member with this number.
    Member(usize),
    /// An aggregator, and its children in the order in which it combines them.
    Node(Vec<Self>),
}

impl AggregationTree {
    /// One aggregator with `members` children.
    #[must_use]
    pub fn star(members: usize) -> Self {
        Self::Node((0..members).map(Self::Member).collect())
    }

    /// Aggregators with at most `children` children each, in as few levels as possible. Members are
    /// in order, and runs of members have equal lengths as far as they divide.
    ///
    /// # Panics
    /// If `children` is below 2.
    #[must_use]
    pub fn levels(members: usize, children: usize) -> Self {
        assert!(children > 1, "an aggregator needs two children");
        let mut nodes: Vec<Self> = (0..members).map(Self::Member).collect();
        while nodes.len() > children {
            nodes = nodes.chunks(children).map(|run| Self::Node(run.to_vec())).collect();
        }
        Self::Node(nodes)
    }

    /// The members below, in the order in which the tree combines them.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        match self {
            Self::Member(number) => vec![*number],
            Self::Node(children) => children.iter().flat_map(Self::members).collect(),
        }
    }

    /// The levels of aggregators.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self {
            Self::Member(_) => 0,
            Self::Node(children) => 1 + children.iter().map(Self::depth).max().unwrap_or(0),
        }
    }
}

/// The aggregators that the ranks of a communicator may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Aggregation {
    /// The tree of each group. A call is divided among the groups.
    pub tree: Arc<AggregationTree>,
    /// Number of groups, each with a tree of its own: at least 1 and at most `limits::LANES_MAX`.
    pub groups: usize,
    /// Chunks that a member may be ahead of the oldest result that it has not taken.
    pub window: usize,
    /// Bytes of the longest chunk that a member hands over.
    pub chunk_bytes: usize,
    /// Whether selection may take the aggregators without being asked. Their sums have the bits of
    /// the ranks' own steps in the same order, and none has been given up.
    pub is_automatic: bool,
    /// The time that a chunk spends in one aggregator, in picoseconds.
    pub latency_ps: u64,
    /// The time for which the links of the busiest aggregator are busy with one byte of a call, in
    /// picoseconds. 0 if each has the bandwidth of all its children.
    pub byte_ps: u64,
}

impl Aggregation {
    /// One group below one exact aggregator, with room for eight chunks of 64 KiB. Its bandwidth is
    /// that of all its `members`.
    #[must_use]
    pub fn star(members: usize) -> Self {
        Self {
            tree: AggregationTree::star(members).into(),
            groups: 1,
            window: 8,
            chunk_bytes: 64 * 1024,
            is_automatic: true,
            latency_ps: 5_000_000,
            byte_ps: 0,
        }
    }

    /// The time of one byte from or to each of `neighbours` in picoseconds, over links with this
    /// rate together in Mbit/s.
    #[must_use]
    pub fn byte_ps_of(mbps: u32, neighbours: usize) -> u64 {
        8_000_000 * neighbours as u64 / u64::from(mbps.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_hold_all_members_in_order() {
        for members in 1..70 {
            for children in [2, 3, 64] {
                let tree = AggregationTree::levels(members, children);
                assert_eq!(tree.members(), (0..members).collect::<Vec<_>>());
                let enough = (1..).find(|depth| children.pow(*depth) >= members);
                assert_eq!(Some(tree.depth()), enough.map(|depth| depth as usize));
            }
        }
    }
}
