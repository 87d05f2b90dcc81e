//! Which ranks share a host, and what of it there is for each. A value: compared, cached, and the
//! same on every rank.

use ringfold_types::Rank;

/// Where the ranks of a communicator are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    host_of: Vec<u32>,
    crowd: Crowd,
    shares_memory: bool,
    has_rdma: bool,
    channels: usize,
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

    /// `size` ranks, each on a host of its own.
    #[must_use]
    pub fn apart(size: usize) -> Self {
        Self::hosts_of(1, size)
    }

    /// `size` ranks, so many on each host, one host after the other; maybe fewer on the last.
    ///
    /// # Panics
    /// If `ranks` is 0.
    #[must_use]
    pub fn hosts_of(ranks: usize, size: usize) -> Self {
        let host_of = (0..size).map(|rank| Rank::at(rank / ranks).0).collect();
        Self { host_of, ..Self::one_host(0) }
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
        let crowd = Crowd { ranks: 1, cpus: 1 };
        Self { host_of, crowd, shares_memory: false, has_rdma: false, channels: 1 }
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

    /// The same ranks, which reach each other by RDMA where they share no memory, or not.
    #[must_use]
    pub fn with_rdma(self, has_rdma: bool) -> Self {
        Self { has_rdma, ..self }
    }

    /// The same ranks, with so many channels.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn with_channels(self, channels: usize) -> Self {
        assert!(channels > 0, "no channel");
        Self { channels, ..self }
    }

    /// How many parts of a long call may go from rank to rank side by side: between hosts, each by
    /// a connection of its own.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Whether all ranks can map each other's memory, so that calls can pass through stages.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// Whether ranks that share no memory reach each other by RDMA.
    #[must_use]
    pub fn has_rdma(&self) -> bool {
        self.has_rdma
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

    /// The ranks of a host, in rank order; none if there is no such host.
    pub fn ranks_on(&self, host: u32) -> impl Iterator<Item = Rank> {
        let here = move |(_, of): &(usize, &u32)| **of == host;
        self.host_of.iter().enumerate().filter(here).map(|(rank, _)| Rank::at(rank))
    }

    /// The rank of every host that has `place` of its host before it, in the order of the hosts.
    #[must_use]
    pub fn at_place(&self, place: usize) -> Vec<Rank> {
        let mut before = vec![0; self.hosts()];
        let mut found = vec![None; self.hosts()];
        for (rank, host) in self.host_of.iter().enumerate() {
            let host = *host as usize;
            if before[host] == place {
                found[host] = Some(Rank::at(rank));
            }
            before[host] += 1;
        }
        found.into_iter().flatten().collect()
    }

    /// How many ranks the hosts have that have fewest and most. Nothing and nothing without ranks.
    #[must_use]
    pub fn ranks_per_host(&self) -> (usize, usize) {
        let mut ranks = vec![0; self.hosts()];
        self.host_of.iter().for_each(|host| ranks[*host as usize] += 1);
        let (fewest, most) = (ranks.iter().min(), ranks.iter().max());
        (fewest.copied().unwrap_or(0), most.copied().unwrap_or(0))
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
    fn ranks_are_found_on_their_hosts() {
        let layout = Layout::from_host_names(&["b", "a", "b", "c", "b", "a"]);
        let on = |host| layout.ranks_on(host).map(Rank::index).collect::<Vec<_>>();
        assert_eq!([on(0), on(1), on(2), on(3)], [vec![0, 2, 4], vec![1, 5], vec![3], vec![]]);
        assert_eq!(layout.ranks_per_host(), (1, 3));
        assert_eq!(layout.at_place(0), [Rank(0), Rank(1), Rank(3)]);
        assert_eq!(layout.at_place(1), [Rank(2), Rank(5)]);
        assert_eq!(layout.at_place(3), []);
        assert_eq!(Layout::apart(3), Layout::from_host_names(&[0, 1, 2]));
        assert_eq!(Layout::apart(0).ranks_per_host(), (0, 0));
        assert_eq!(Layout::hosts_of(2, 5), Layout::from_host_names(&[0, 0, 1, 1, 2]));
    }

    #[test]
    fn denser_are_those_with_fewer_cpus_for_each() {
        let crowd = |ranks, cpus| Crowd { ranks, cpus };
        assert_eq!(crowd(8, 2).denser(crowd(40, 20)), crowd(8, 2));
        assert_eq!(crowd(40, 20).denser(crowd(8, 2)), crowd(8, 2));
        assert!(crowd(3, 2).is_dense() && !crowd(2, 2).is_dense());
    }
}
