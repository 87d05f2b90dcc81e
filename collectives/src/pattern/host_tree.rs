//! A tree of hosts, with a tree of ranks below each.
//!
//! One rank of each host leads it. A tree of any shape joins the leaders, and below its leader each
//! host has a binomial tree of its ranks. So each host but one sends up once, and leaders that
//! reach one rail stay on it.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::Rank;

use crate::pattern::tree::{self, Child, Place};

/// The hosts of a layout with their leaders.
#[derive(Clone, Debug)]
struct HostTree<'a> {
    layout: &'a Layout,
    /// In fabric order, possibly rotated to begin with another host.
    leaders: Vec<Rank>,
    /// By host number, its place in `leaders`.
    places: Vec<Rank>,
}

impl<'a> HostTree<'a> {
    fn new(layout: &'a Layout, leaders: Vec<Rank>) -> Self {
        let mut places = alloc::vec![Rank(0); leaders.len()];
        for (place, leader) in leaders.iter().enumerate() {
            places[layout.host(*leader) as usize] = Rank::at(place);
        }
        Self { layout, leaders, places }
    }

    /// Hosts led by the carriers of a shard. `None` if the fabric is unknown.
    fn of_shard(layout: &'a Layout, shard: usize) -> Option<Self> {
        if !layout.has_fabric() {
            return None;
        }
        let carriers = layout.carriers();
        let leaders = carriers.get(shard % carriers.len().max(1))?.to_vec();
        Some(Self::new(layout, leaders))
    }

    /// Hosts in an order that begins with the host of `root`, which leads it. The carriers of the
    /// root's shard lead the others, or those of any shard if the root carries none.
    fn of_root(layout: &'a Layout, root: Rank) -> Option<Self> {
        let Self { mut leaders, places, .. } = Self::of_shard(layout, 0)?;
        let host = places[layout.host(root) as usize].index();
        if let Some(carriers) = layout.carriers().iter().find(|ranks| ranks[host] == root) {
            leaders = carriers.to_vec();
        }
        leaders[host] = root;
        // Rotates the fabric order so that it begins with the root's host.
        let leader = |host: u32| leaders[places[host as usize].index()];
        let leaders = layout.hosts_from(root).into_iter().map(leader).collect();
        Some(Self::new(layout, leaders))
    }

    /// The position of `rank`. `outer` gives the position of each host in a tree of the hosts.
    fn place(&self, rank: Rank, outer: impl Fn(Rank) -> Place) -> Place {
        let host = self.places[self.layout.host(rank) as usize];
        let leader = self.leaders[host.index()];
        let all = self.layout.ranks_on(self.layout.host(rank));
        // The leader comes first, and all others in rank order.
        let first = all.partition_point(|it| *it < leader);
        let at = |place: Rank| match place.index() {
            0 => leader,
            place if place <= first => all[place - 1],
            place => all[place],
        };
        let own = match all.partition_point(|it| *it < rank) {
            own if own == first => 0,
            own if own < first => own + 1,
            own => own,
        };
        let inner = tree::place(Rank::at(own), Rank(0), all.len());
        let below = inner.children.iter();
        let mut children: Vec<Child> =
            below.map(|child| Child { rank: at(child.rank), ..*child }).collect();
        let above = outer(host);
        let depth = above.depth + inner.depth;
        let Some(parent) = inner.parent else {
            children.extend(above.children.iter().map(|child| self.leader(*child)));
            let parent = above.parent.map(|parent| self.leaders[parent.index()]);
            return Place { parent, depth, children };
        };
        Place { parent: Some(at(parent)), depth, children }
    }

    /// The leader of a host, as a child of another's leader. It is a leaf only if no other rank is
    /// on its host.
    fn leader(&self, host: Child) -> Child {
        let rank = self.leaders[host.rank.index()];
        let is_alone = self.layout.ranks_on(self.layout.host(rank)).len() == 1;
        Child { rank, is_leaf: host.is_leaf && is_alone }
    }
}

/// A tree with the shape that `place` gives for a rank and a size. It is a tree of hosts led by the
/// carriers of a shard, or of ranks if the fabric is unknown. One value serves all ranks of a call.
#[derive(Clone, Debug)]
pub(crate) struct ShardTree<'a, Shape> {
    hosts: Option<HostTree<'a>>,
    size: usize,
    shape: Shape,
}

impl<'a, Shape: Fn(Rank, usize) -> Place> ShardTree<'a, Shape> {
    pub(crate) fn new(layout: &'a Layout, shard: usize, shape: Shape) -> Self {
        Self { hosts: HostTree::of_shard(layout, shard), size: layout.size(), shape }
    }

    /// The position of `rank`.
    pub(crate) fn place(&self, rank: Rank) -> Place {
        match &self.hosts {
            Some(hosts) => hosts.place(rank, |host| (self.shape)(host, hosts.leaders.len())),
            None => (self.shape)(rank, self.size),
        }
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

    /// The position of `rank`.
    pub(crate) fn place(&self, rank: Rank) -> Place {
        match &self.hosts {
            Some(hosts) => {
                hosts.place(rank, |host| tree::place(host, Rank(0), hosts.leaders.len()))
            }
            None => tree::place(rank, self.root, self.size),
        }
    }

    /// The ranks in the subtree of `rank`: itself, and then those of each child in turn.
    pub(crate) fn subtree(&self, rank: Rank) -> Vec<Rank> {
        if self.hosts.is_none() {
            let at = |number| Rank::at((number + self.root.index()) % self.size);
            return tree::subtree(rank, self.root, self.size).map(at).collect();
        }
        let (mut subtree, mut open) = (Vec::new(), alloc::vec![rank]);
        while let Some(rank) = open.pop() {
            subtree.push(rank);
            open.extend(self.place(rank).children.iter().rev().map(|child| child.rank));
        }
        subtree
    }

    /// The largest distance from the root, and the most children of a rank.
    pub(crate) fn extent(&self) -> (usize, usize) {
        if self.hosts.is_none() {
            return (tree::height(self.size), self.size.next_power_of_two().ilog2() as usize);
        }
        (0..self.size).fold((0, 0), |(depth, children), rank| {
            let place = self.place(Rank::at(rank));
            (depth.max(place.depth), children.max(place.children.len()))
        })
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
                let shape = |host, hosts| double_tree::place(host, shard, hosts);
                let tree = ShardTree::new(&layout, shard, shape);
                let most = height(layout.hosts()) + height(layout.ranks_per_host().1);
                assert_is_tree_from(names.len(), most, |rank| tree.place(rank));
            }
            for root in (0..names.len()).map(Rank::at) {
                let tree = RootedTree::new(&layout, root);
                let place = |rank| tree.place(rank);
                assert_eq!(place(root).parent, None);
                let most = height(layout.hosts()) + height(layout.ranks_per_host().1);
                assert_is_tree_from(names.len(), most, place);
                assert_eq!(tree.subtree(root).len(), names.len());
                for rank in (0..names.len()).map(Rank::at) {
                    let below = place(rank).children.into_iter();
                    let below = below.flat_map(|child| tree.subtree(child.rank));
                    let all = core::iter::once(rank).chain(below);
                    assert!(all.eq(tree.subtree(rank)), "rank {rank} below {root}");
                }
            }
        }
    }
}
