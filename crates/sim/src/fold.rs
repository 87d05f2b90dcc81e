//! The ranks and links that stand for others, which do the same at the same time.

use std::collections::HashMap;

use ringfold_types::Rank;

/// A lane from one rank to another.
pub(crate) type Way = (Rank, Rank, usize);

/// The ranks and links that stand for others.
#[derive(Debug)]
pub(crate) struct Fold {
    /// By rank and aggregator: the one that stands for it.
    pub(crate) ranks: Vec<Rank>,
    /// By rank: the number of those for which it stands.
    pub(crate) of_rank: Vec<usize>,
    /// The same of links.
    pub(crate) links: Vec<usize>,
    pub(crate) of_link: Vec<usize>,
    /// By connection to a rank that stands for others: the one that stands for it.
    pub(crate) connections: HashMap<Way, Way>,
}

impl Fold {
    /// Each rank stands for itself.
    pub(crate) fn none(ranks: usize, links: usize) -> Self {
        Self {
            ranks: (0..ranks).map(Rank::at).collect(),
            of_rank: vec![1; ranks],
            links: (0..links).collect(),
            of_link: vec![1; links],
            connections: HashMap::new(),
        }
    }

    /// The rank that stands for this one.
    pub(crate) fn rank(&self, rank: Rank) -> Rank {
        self.ranks[rank.index()]
    }

    /// The number of ranks for which one stands; 0 if another stands for it.
    pub(crate) fn count(&self, rank: Rank) -> usize {
        self.of_rank[rank.index()]
    }

    /// The ranks that stand for others, or for themselves.
    pub(crate) fn standing(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..self.ranks.len()).map(Rank::at).filter(|rank| self.count(*rank) > 0)
    }

    /// The link that stands for this one.
    pub(crate) fn link(&self, link: usize) -> usize {
        self.links[link]
    }

    /// The connection that stands for one of a rank that stands for others.
    pub(crate) fn connection(&self, way: Way) -> Way {
        self.connections.get(&way).copied().unwrap_or(way)
    }

    /// The number of connections like one between these. Each rank has one such connection at most,
    /// but an aggregator may have one to each of several children.
    pub(crate) fn connections_between(&self, from: Rank, to: Rank) -> usize {
        self.count(self.rank(from)).max(self.count(self.rank(to)))
    }

    /// The links that stand for those of a way, and how many messages of connections like it each
    /// carries at a time.
    pub(crate) fn way(&self, (from, to): (Rank, Rank), links: &[usize]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for link in links.iter().map(|link| self.link(*link)) {
            match found.iter_mut().find(|(known, _)| *known == link) {
                Some((_, times)) => *times += 1,
                None => found.push((link, 1)),
            }
        }
        let count = self.connections_between(from, to);
        found.iter_mut().for_each(|(link, times)| *times = *times * count / self.of_link[*link]);
        found
    }
}
