//! Ranks halved again and again until each is alone. Where one half has one rank more, its last
//! rank has no partner and sends to the first rank of the other half. That rank is never such a
//! first rank again, because later it is always in the larger half.

use core::ops::Range;

use ringfold_types::Rank;

/// One halving of a run of ranks, from the view of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Halving {
    /// The half that contains the rank.
    pub(crate) own: Range<usize>,
    /// The other half.
    pub(crate) other: Range<usize>,
    /// The rank of the other half that takes this rank's data for that half.
    pub(crate) taker: Rank,
    /// The rank of the other half at the same place, if there is one. It gives to this rank.
    pub(crate) partner: Option<Rank>,
    /// The rank of the other half without a partner, if this rank is the first of its half. It
    /// gives to this rank too.
    pub(crate) extra: Option<Rank>,
}

impl Halving {
    /// The ranks of the other half that give to this rank.
    pub(crate) fn givers(&self) -> impl Iterator<Item = Rank> + Clone + use<> {
        self.partner.into_iter().chain(self.extra)
    }

    fn of(run: &Range<usize>, rank: Rank) -> Self {
        let rank = rank.index();
        let middle = run.start + run.len().div_ceil(2);
        let (low, high) = (run.start..middle, middle..run.end);
        if rank < middle {
            let twin = rank - low.start + high.start;
            let partner = (twin < high.end).then(|| Rank::at(twin));
            let taker = partner.unwrap_or_else(|| Rank::at(high.start));
            Self { own: low, other: high, taker, partner, extra: None }
        } else {
            let twin = rank - high.start + low.start;
            let unpaired = rank == high.start && low.len() > high.len();
            let extra = unpaired.then(|| Rank::at(low.end - 1));
            let taker = Rank::at(twin);
            Self { own: high, other: low, taker, partner: Some(taker), extra }
        }
    }
}

/// The halvings that `rank` takes part in, from all ranks down to the last two or three.
pub(crate) fn halvings(rank: Rank, size: usize) -> impl Iterator<Item = Halving> {
    let mut run = 0..size;
    core::iter::from_fn(move || {
        (run.len() > 1).then(|| {
            let halving = Halving::of(&run, rank);
            run = halving.own.clone();
            halving
        })
    })
}

/// The longest chain of messages when all ranks give in one halving after the other. It has the
/// same length in the other direction, when halves are joined.
///
/// It is rarely shorter than the number of halvings. Just above a power of two it is, because the
/// ranks that wait in one halving have not waited in another.
pub(crate) fn longest_chain(size: usize) -> usize {
    let mut waited = alloc::vec![0; size];
    let mut runs = alloc::vec![0..size];
    while let Some(run) = runs.pop() {
        if run.len() < 2 {
            continue;
        }
        let before = waited[run.clone()].to_vec();
        for (rank, before) in run.clone().zip(before) {
            let taker = Halving::of(&run, Rank::at(rank)).taker.index();
            waited[taker] = waited[taker].max(before + 1);
        }
        let middle = Halving::of(&run, Rank::at(run.start)).own.end;
        runs.extend([run.start..middle, middle..run.end]);
    }
    waited.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_rank_has_one_taker_that_knows_it() {
        for size in (1..=70_usize).chain([1000, 1024]) {
            let all: Vec<Vec<Halving>> =
                (0..size).map(|rank| halvings(Rank::at(rank), size).collect()).collect();
            assert_eq!(all[0].len(), size.next_power_of_two().ilog2() as usize);
            for (rank, own) in all.iter().enumerate() {
                for (level, halving) in own.iter().enumerate() {
                    let taker = &all[halving.taker.index()][level];
                    assert_eq!((&taker.own, &taker.other), (&halving.other, &halving.own));
                    assert!(taker.givers().any(|giver| giver.index() == rank), "{rank} of {size}");
                    for giver in halving.givers() {
                        assert_eq!(all[giver.index()][level].taker.index(), rank);
                    }
                }
                assert!(own.last().is_none_or(|last| last.own == (rank..rank + 1)));
            }
        }
    }

    #[test]
    fn nobody_takes_from_two_twice() {
        for size in 1..=130 {
            for rank in (0..size).map(Rank::at) {
                let extra = halvings(rank, size).filter(|halving| halving.extra.is_some());
                assert!(extra.count() <= 1, "{rank} of {size}");
            }
        }
    }

    #[test]
    fn a_rank_that_got_nothing_gets_something_next() {
        for size in 1..=130 {
            for rank in (0..size).map(Rank::at) {
                let given: Vec<usize> = halvings(rank, size).map(|h| h.givers().count()).collect();
                assert!(given.windows(2).all(|pair| pair[0] + pair[1] > 0), "{rank} of {size}");
                assert!(given.last().is_none_or(|last| *last > 0), "{rank} of {size}");
            }
        }
    }
}
