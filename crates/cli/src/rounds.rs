//! Every two meet once, and nobody is in two places.

/// Rounds of pairs of `0..count`, the lower one first; a round's pairs have nobody in common. One
/// stays in place while the others go round it. Where that would take more than `most` rounds there
/// are so many, spread evenly over all.
pub(crate) fn rounds(
    count: usize,
    most: usize,
) -> impl ExactSizeIterator<Item = Vec<(usize, usize)>> {
    // Where they are odd, whoever meets this one rests.
    let even = count.next_multiple_of(2);
    let circle = even.saturating_sub(1);
    let turns = circle.min(most);
    (0..turns).map(move |at| {
        let turn = at * circle / turns;
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

    /// Those who met, in so many rounds.
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

    /// Even where there are too many to meet all: everyone meets as many, or one fewer, and all are
    /// linked by who met whom.
    #[test]
    fn some_meet_where_there_are_too_many() {
        for count in [6, 7, 100, 101, 1000] {
            let (met, turns) = met(count, 4);
            assert_eq!(turns, 4);
            for who in 0..count {
                let others = met.iter().filter(|pair| pair.0 == who || pair.1 == who).count();
                assert!((3..=4).contains(&others), "{who} of {count} met {others}");
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
