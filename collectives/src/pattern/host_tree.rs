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
    /// In fabric order, maybe from another host on.
    leaders: Vec<Rank>,
}

impl<'a> HostTree<'a> {
    /// Led by the carriers of a shard; nothing if the fabric is unknown.
    pub(crate) fn of_shard(layout: &'a Layout, shard: usize) -> Option<Self> {
        if !layout.has_fabric() {
            return None;
        }
        let carriers = layout.carriers();
        let leaders = carriers.get(shard % carriers.len().max(1))?.to_vec();
        Some(Self { layout, leaders })
    }

    /// Led by `root` on its host, which comes first, and elsewhere by the carriers of its shard, or
    /// of any if it carries none.
    fn of_root(layout: &'a Layout, root: Rank) -> Option<Self> {
        let Self { mut leaders, .. } = Self::of_shard(layout, 0)?;
        let host = leaders.iter().position(|leader| layout.same_host(*leader, root))?;
        if let Some(carriers) = layout.carriers().iter().find(|ranks| ranks[host] == root) {
            leaders = carriers.to_vec();
        }
        leaders[host] = root;
        // From the order of the fabric to that from the root on.
        let mut by_host = leaders.clone();
        by_host.sort_unstable_by_key(|leader| layout.host(*leader));
        let order = layout.hosts_from(root);
        let leaders = order.iter().map(|host| by_host[*host as usize]).collect();
        Some(Self { layout, leaders })
    }

    /// Number of hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.leaders.len()
    }

    /// The place of the host of `rank` among all.
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

/// A binomial tree below a root: of hosts, or of ranks if the fabric is unknown.
#[derive(Clone, Debug)]
pub(crate) struct RootedTree<'a> {
    hosts: Option<HostTree<'a>>,
    root: Rank,
    size: usize,
}

impl<'a> RootedTree<'a> {
    pub(crate) fn new(layout: &'a Layout, root: Rank) -> Self {
        Self { hosts: HostTree::of_root(layout, root), root, size: layout.size() }
    }

    /// Where `rank` stands.
    pub(crate) fn place(&self, rank: Rank) -> Place {
        match &self.hosts {
            Some(hosts) => hosts.place(rank, |host| tree::place(host, Rank(0), hosts.hosts())),
            None => tree::place(rank, self.root, self.size),
        }
    }
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
                let tree = RootedTree::new(&layout, root);
                let place = |rank| tree.place(rank);
                assert_eq!(place(root).parent, None);
                let most = height(layout.hosts()) + height(layout.ranks_per_host().1);
                assert_is_tree_from(names.len(), most, place);
            }
        }
    }
}
