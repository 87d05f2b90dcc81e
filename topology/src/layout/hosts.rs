//! The ranks of each host.

use ringfold_types::Rank;

/// The ranks by host, and the hosts by rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hosts {
    /// By rank.
    pub(super) host_of: Vec<u32>,
    /// The ranks of host 0, then those of host 1 and so on.
    ranks: Vec<Rank>,
    /// By host: the index of its first rank in `ranks`. The last entry is the number of ranks.
    starts: Vec<u32>,
    /// The ranks on the emptiest and on the fullest host.
    pub(super) each: [u32; 2],
}

impl Hosts {
    /// `host_of` must name every host from 0 to the last.
    pub(super) fn new(host_of: Vec<u32>) -> Self {
        let count = host_of.iter().max().map_or(0, |last| *last as usize + 1);
        let mut starts = vec![0; count + 1];
        host_of.iter().for_each(|host| starts[*host as usize + 1] += 1);
        for host in 0..count {
            starts[host + 1] += starts[host];
        }
        let each = || starts.windows(2).map(|both| both[1] - both[0]);
        let each = [each().min(), each().max()].map(Option::unwrap_or_default);
        let mut ends = starts.clone();
        let mut ranks = vec![Rank(0); host_of.len()];
        for (rank, host) in host_of.iter().enumerate() {
            let end = &mut ends[*host as usize];
            ranks[*end as usize] = Rank::at(rank);
            *end += 1;
        }
        Self { host_of, ranks, starts, each }
    }

    /// Number of hosts.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes of the tables.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.host_of) + size_of_val(&*self.ranks) + size_of_val(&*self.starts)
    }

    /// The ranks of a host in rank order. Empty if there is no such host.
    pub(super) fn ranks(&self, host: usize) -> &[Rank] {
        match self.starts.get(host..host + 2) {
            Some([start, end]) => &self.ranks[*start as usize..*end as usize],
            _ => &[],
        }
    }
}
