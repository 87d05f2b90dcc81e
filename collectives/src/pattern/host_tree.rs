//! A tree of hosts, below each of which stands a tree of its ranks.
//!
//! One rank of each host leads it. Leaders are joined by a tree of any shape, and all ranks of a
//! host by a binomial tree below its leader. So each host but one sends up once, and leaders that
//! reach one rail keep to it.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::Rank;

use crate::pattern::tree::{self, Child, Place};

/// The hosts of a layout with their leaders.
#[derive(Clone, Debug)]
pub(crate) struct HostTree<'a> {
    layout: &'a Layout,
    /// In fabric order.
    leaders: Vec<Rank>,
}

impl<'a> HostTree<'a> {
    /// Led by the carriers of a shard; nothing if the fabric is unknown.
    pub(crate) fn of_shard(layout: &'a Layout, shard: usize) -> Option<Self> {
        let carriers = layout.carriers();
        let leaders = carriers.get(shard % carriers.len().max(1))?.to_vec();
        layout.has_fabric().then_some(Self { layout, leaders })
    }

    /// Led by `root` on its host and, if it carries a shard, by the other carriers of this shard.
    pub(crate) fn of_root(layout: &'a Layout, root: Rank) -> Option<Self> {
        let mut tree = Self::of_shard(layout, 0)?;
        let host = tree.host_of(root);
        if let Some(carriers) = layout.carriers().iter().find(|ranks| ranks[host] == root) {
            tree.leaders = carriers.to_vec();
        }
        tree.leaders[host] = root;
        Some(tree)
    }

    /// Number of hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.leaders.len()
    }

    /// The place of the host of `rank` in fabric order.
    pub(crate) fn host_of(&self, rank: Rank) -> usize {
        let is_own = |leader: &Rank| self.layout.same_host(*leader, rank);
        self.leaders.iter().position(is_own).unwrap_or(0)
    }

    /// Where `rank` stands, if `outer` says where each host stands in a tree of the hosts.
    pub(crate) fn place(&self, rank: Rank, outer: impl Fn(Rank) -> Place) -> Place {
        let host = self.host_of(rank);
        let leader = self.leaders[host];
        let all = self.layout.ranks_on(self.layout.host(rank));
        let others = all.iter().filter(|it| **it != leader).copied();
        let team: Vec<Rank> = core::iter::once(leader).chain(others).collect();
        let own = team.iter().position(|it| *it == rank).unwrap_or(0);
        let inner = tree::place(Rank::at(own), Rank(0), team.len());
        let below = inner.children.iter();
        let mut children: Vec<Child> =
            below.map(|child| Child { rank: team[child.rank.index()], ..*child }).collect();
        let above = outer(Rank::at(host));
        let depth = above.depth + inner.depth;
        let Some(parent) = inner.parent else {
            children.extend(above.children.iter().map(|child| self.leader(*child)));
            let parent = above.parent.map(|parent| self.leaders[parent.index()]);
            return Place { parent, depth, children };
        };
        Place { parent: Some(team[parent.index()]), depth, children }
    }

    /// The leader of a host, as a child of another's. It has children itself if others are with it.
    fn leader(&self, host: Child) -> Child {
        let rank = self.leaders[host.rank.index()];
        let is_alone = self.layout.ranks_on(self.layout.host(rank)).len() == 1;
        Child { rank, is_leaf: host.is_leaf && is_alone }
    }
}

/// Where `rank` stands below `root`: in a binomial tree of hosts, or, if the fabric is unknown, of
/// ranks.
pub(crate) fn place_from(layout: &Layout, rank: Rank, root: Rank) -> Place {
    let Some(hosts) = HostTree::of_root(layout, root) else {
        return tree::place(rank, root, layout.size());
    };
    let first = Rank::at(hosts.host_of(root));
    hosts.place(rank, |host| tree::place(host, first, hosts.hosts()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::double_tree;
    use crate::pattern::tree::height;
    use crate::pattern::tree::tests::assert_is_tree_from;

    #[test]
    fn every_rank_is_below_the_root() {
        for names in
            [&[0, 1, 0, 2, 2, 0][..], &[0, 0, 0, 0], &[2, 1, 0], &[0, 1, 1, 2, 2, 2, 3, 3, 3]]
        {
            let layout = Layout::from_host_names(names);
            let paths = alloc::vec![Default::default(); layout.hosts()];
            let layout = layout.with_paths(&paths);
            for shard in 0..2 {
                let tree = HostTree::of_shard(&layout, shard).unwrap();
                let hosts = tree.hosts();
                let outer = |host| double_tree::place(host, shard, hosts);
                let most = height(hosts) + height(layout.ranks_per_host().1);
                assert_is_tree_from(names.len(), most, |rank| tree.place(rank, outer));
            }
            for root in (0..names.len()).map(Rank::at) {
                let place = |rank| place_from(&layout, rank, root);
                assert_eq!(place(root).parent, None);
                let most = height(layout.hosts()) + height(layout.ranks_per_host().1);
                assert_is_tree_from(names.len(), most, place);
            }
        }
    }
}
