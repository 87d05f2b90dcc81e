//! Round-robin pairing: every two members meet once, and a round pairs each member at most once.

/// Returns rounds of pairs of `0..count`, each pair with the lower member first. No member is in
/// two pairs of a round. The circle method: one member stays in place while the others rotate.
/// If all pairs take more than `most` rounds, it returns `most` of them, spread evenly.
pub(crate) fn rounds(
    count: usize,
    most: usize,
) -> impl ExactSizeIterator<Item = Vec<(usize, usize)>> {
    // An odd count gets one virtual member, whose partner has no pair in that round.
    let even = count.next_multiple_of(2);
    let circle = even.saturating_sub(1);
    let rounds = circle.min(most);
    (0..rounds).map(move |at| {
        let turn = at * circle / rounds;
        let pair = |step: usize| {
            let one = (turn + step) % circle;
            let other = if step == 0 { circle } else { (turn + circle - step) % circle };
            (one.min(other), one.max(other))
        };
        (0..even / 2).map(pair).filter(|pair| pair.1 < count).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The pairs that met, and the number of rounds.
    fn met(count: usize, most: usize) -> (BTreeSet<(usize, usize)>, usize) {
        let (mut met, rounds) = (BTreeSet::new(), rounds(count, most));
        let turns = rounds.len();
        for round in rounds {
            let mut busy = BTreeSet::new();
            for (low, high) in round {
                assert!(low < high && high < count);
                assert!(busy.insert(low) && busy.insert(high) && met.insert((low, high)));
            }
        }
        (met, turns)
    }

    #[test]
    fn every_two_meet_once() {
        for count in 0..12 {
            let (met, turns) = met(count, usize::MAX);
            assert_eq!(met.len(), count * count.saturating_sub(1) / 2);
            assert!(turns <= count, "{count}: {turns}");
        }
    }

    /// With more members than rounds, each member meets as many others, or one fewer. The pairs
    /// connect all members.
    #[test]
    fn limited_rounds_spread_evenly() {
        for count in [6, 7, 100, 101, 1000] {
            let (met, turns) = met(count, 4);
            assert_eq!(turns, 4);
            for member in 0..count {
                let others = met.iter().filter(|pair| pair.0 == member || pair.1 == member).count();
                assert!((3..=4).contains(&others), "{member} of {count} met {others}");
            }
            let mut linked = BTreeSet::from([0]);
            while let Some((low, high)) =
                met.iter().find(|pair| linked.contains(&pair.0) != linked.contains(&pair.1))
            {
                linked.extend([*low, *high]);
            }
            assert_eq!(linked.len(), count);
        }
    }
}
