//! An order in which ranks at equal positions of their hosts prefer equal rails.

use ringfold_types::Rank;

use crate::layout::reach::{RankReach, Reach};

/// The order of the ranks of `hosts`, which are in fabric order.
///
/// At equal positions of hosts that are alike, ranks prefer equal rails. The rail that most hosts
/// have comes first, so that at least the first positions are alike.
pub(crate) fn aligned(hosts: &[&[Rank]], reach: &[RankReach]) -> Vec<Rank> {
    let preferred = |rank: &Rank| reach.get(rank.index()).map_or(Reach::NONE, |it| it.prefers);
    let mut counts = [0_usize; u64::BITS as usize];
    for ranks in hosts {
        let rails: Reach = ranks.iter().map(preferred).collect();
        (0..).zip(&mut counts).for_each(|(at, count)| *count += usize::from(rails.has_bit(at)));
    }
    let most = counts.iter().max().copied().unwrap_or(0);
    let lead = (0..).zip(counts).find(|(_, count)| *count == most).map_or(0, |(at, _)| at);
    let in_order = |ranks: &&[Rank]| {
        let mut ranks = ranks.to_vec();
        ranks.sort_by_key(|rank| preferred(rank).first_bit_from(lead));
        ranks
    };
    hosts.iter().flat_map(in_order).collect()
}
