//! Which ranks share a host, and what of it there is for each. A value: compared, cached, and the
//! same on every rank.

use ringfold_types::Rank;

/// Where the ranks of a communicator are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    host_of: Vec<u32>,
    crowd: Crowd,
    shares_memory: bool,
}

/// Ranks that share CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Crowd {
    /// So many ranks
    pub ranks: usize,
    /// have so many CPUs; at least 1.
    pub cpus: usize,
}

impl Crowd {
    /// Whether ranks have to wait for each other's CPUs.
    #[must_use]
    pub const fn is_dense(&self) -> bool {
        self.ranks > self.cpus
    }

    /// The one of two that has fewer CPUs for each rank.
    #[must_use]
    pub const fn denser(self, other: Self) -> Self {
        if self.ranks * other.cpus >= other.ranks * self.cpus { self } else { other }
    }
}

impl Layout {
    /// `size` ranks on one host, each with a CPU of its own.
    #[must_use]
    pub fn one_host(size: usize) -> Self {
        Self::from_host_names(&vec![(); size])
    }

    /// Every rank on the host whose name stands at its place, with a CPU of its own; equal names
    /// are one host. Hosts are numbered in order of first appearance.
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
        Self { host_of, crowd: Crowd { ranks: 1, cpus: 1 }, shares_memory: false }
    }

    /// The same ranks where `crowd` has the fewest CPUs for each.
    #[must_use]
    pub fn with_crowd(self, crowd: Crowd) -> Self {
        Self { crowd, ..self }
    }

    /// The same ranks, all of which can map each other's memory, or not.
    #[must_use]
    pub fn sharing_memory(self, shares_memory: bool) -> Self {
        Self { shares_memory, ..self }
    }

    /// Whether all ranks can map each other's memory, so that calls can pass through stages.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// Those ranks that have the fewest CPUs for each. They may be on several hosts: containers
    /// share the CPUs of their machine.
    #[must_use]
    pub fn crowd(&self) -> Crowd {
        self.crowd
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denser_are_those_with_fewer_cpus_for_each() {
        let crowd = |ranks, cpus| Crowd { ranks, cpus };
        assert_eq!(crowd(8, 2).denser(crowd(40, 20)), crowd(8, 2));
        assert_eq!(crowd(40, 20).denser(crowd(8, 2)), crowd(8, 2));
        assert!(crowd(3, 2).is_dense() && !crowd(2, 2).is_dense());
    }
}
