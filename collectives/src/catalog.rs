//! All algorithms, by collective.

use ringfold_types::{Collective, same_name};

use crate::algorithm::Algorithm;
use crate::uneven::Uneven;
use crate::{
    allgather, allreduce, alltoall, barrier, broadcast, exscan, gather, reduce, reduce_scatter,
    scan, scatter,
};

impl Algorithm {
    /// All algorithms for a collective.
    #[must_use]
    pub const fn of(collective: Collective) -> &'static [Self] {
        match collective {
            Collective::AllReduce => allreduce::ALGORITHMS,
            Collective::AllGather => allgather::ALGORITHMS,
            Collective::ReduceScatter => reduce_scatter::ALGORITHMS,
            Collective::Broadcast => broadcast::ALGORITHMS,
            Collective::Reduce => reduce::ALGORITHMS,
            Collective::Barrier => barrier::ALGORITHMS,
            Collective::AllToAll => alltoall::ALGORITHMS,
            Collective::Gather => gather::ALGORITHMS,
            Collective::Scatter => scatter::ALGORITHMS,
            Collective::Scan => scan::ALGORITHMS,
            Collective::Exscan => exscan::ALGORITHMS,
        }
    }

    /// The algorithm of `collective` with this name in any spelling, if there is one.
    #[must_use]
    pub fn named(collective: Collective, name: &str) -> Option<&'static Self> {
        Self::of(collective).iter().find(|algorithm| same_name(algorithm.name, name))
    }
}

impl Uneven {
    /// All such algorithms for a collective.
    #[must_use]
    pub const fn of(collective: Collective) -> &'static [Self] {
        match collective {
            Collective::AllGather => allgather::UNEVEN,
            Collective::ReduceScatter => reduce_scatter::UNEVEN,
            _ => &[],
        }
    }

    /// The one of `collective` with this name in any spelling, if there is one.
    #[must_use]
    pub fn named(collective: Collective, name: &str) -> Option<&'static Self> {
        Self::of(collective).iter().find(|it| same_name(it.algorithm.name, name))
    }
}
