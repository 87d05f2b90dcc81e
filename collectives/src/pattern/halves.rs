//! Ranks halved again and again until each is alone. Where a half is larger by one, its last rank
//! has no partner and hands over to the first of the other half, which is not asked so again: later
//! it is always in the larger half.

use core::ops::Range;

use ringfold_types::Rank;

/// One halving of a run of ranks, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Halving {
    /// The half that the rank is in.
    pub(crate) own: Range<usize>,
    /// The half that it is not in.
    pub(crate) other: Range<usize>,
    /// The rank of the other half that takes what this one has for it.
    pub(crate) taker: Rank,
    /// The rank of the other half with the same place in it, if there is one: it hands over to
    /// this rank,
    pub(crate) partner: Option<Rank>,
    /// and so does this one, which has no partner, if this rank is the first of its half.
    pub(crate) extra: Option<Rank>,
}

impl Halving {
    /// The ranks of the other half whose taker this rank is.
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

/// The halvings that `rank` takes part in, from that of all ranks to that of the last two or three.
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

/// The longest chain of messages when everyone hands over in one halving after the other. It is
/// the same the other way round, when halves are joined.
///
/// Seldom less than the number of halvings: just above a power of two, those who wait in one of
/// them have not waited in another.
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
    fn everyone_has_one_taker_who_knows_it() {
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
    fn whoever_was_given_nothing_is_given_something_next() {
        for size in 1..=130 {
            for rank in (0..size).map(Rank::at) {
                let given: Vec<usize> = halvings(rank, size).map(|h| h.givers().count()).collect();
                assert!(given.windows(2).all(|pair| pair[0] + pair[1] > 0), "{rank} of {size}");
                assert!(given.last().is_none_or(|last| *last > 0), "{rank} of {size}");
            }
        }
    }
}
