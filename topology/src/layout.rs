//! Which ranks share a host. A value: compared, cached, and the same on every rank.

use ringfold_types::Rank;

/// Where the ranks of a communicator are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    host_of: Vec<u32>,
}

impl Layout {
    /// `size` ranks on one host.
    #[must_use]
    pub fn one_host(size: usize) -> Self {
        Self { host_of: vec![0; size] }
    }

    /// Every rank on the host whose name stands at its place; equal names are one host. Hosts are
    /// numbered in order of first appearance.
    #[must_use]
    pub fn from_host_names<N: PartialEq>(names: &[N]) -> Self {
        let mut firsts: Vec<&N> = Vec::new();
        let mut number = |name| match firsts.iter().position(|first| *first == name) {
            Some(host) => host,
            None => {
                firsts.push(name);
                firsts.len() - 1
            }
        };
        let host_of = names.iter().map(|name| Rank::at(number(name)).0).collect();
        Self { host_of }
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.host_of.len()
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.host_of.iter().max().map_or(0, |last| *last as usize + 1)
    }

    /// The number of the host that `rank` runs on.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn host(&self, rank: Rank) -> u32 {
        self.host_of[rank.index()]
    }

    /// Whether two ranks can share memory.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn same_host(&self, a: Rank, b: Rank) -> bool {
        self.host(a) == self.host(b)
    }
}
