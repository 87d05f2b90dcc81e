//! Every two meet once, and nobody is in two places.

/// Rounds of pairs of `0..count`, the lower one first; a round's pairs have nobody in common. One
/// stays in place while the others go round it.
pub(super) fn rounds(count: usize) -> Vec<Vec<(usize, usize)>> {
    // Where they are odd, whoever meets this one rests.
    let even = count.next_multiple_of(2);
    let circle = even.saturating_sub(1);
    let round = |turn: usize| {
        let pair = |step: usize| {
            let one = (turn + step) % circle;
            let other = if step == 0 { circle } else { (turn + circle - step) % circle };
            (one.min(other), one.max(other))
        };
        (0..even / 2).map(pair).filter(|pair| pair.1 < count).collect()
    };
    (0..circle).map(round).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_two_meet_once() {
        for count in 0..12 {
            let rounds = rounds(count);
            assert!(rounds.len() <= count, "{count}: {rounds:?}");
            let mut met = BTreeSet::new();
            for round in rounds {
                let mut busy = BTreeSet::new();
                for (low, high) in round {
                    assert!(low < high && high < count);
                    assert!(busy.insert(low) && busy.insert(high) && met.insert((low, high)));
                }
            }
            assert_eq!(met.len(), count * count.saturating_sub(1) / 2);
        }
    }
}
