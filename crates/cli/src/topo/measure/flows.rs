//! The flows between the two hosts of a pairing: one for each NIC, alone and two at once.

use std::collections::BTreeSet;

/// Measurements of each flow, and of each two at once. A busy machine slows some of them.
const REPEATS: usize = 3;

/// Returns the pairs of NICs that carry a flow, the low end's NIC first. No NIC is in two pairs.
/// `reached` has the pairs that answered.
pub(super) fn choose(reached: &BTreeSet<[usize; 2]>) -> Vec<[usize; 2]> {
    let mut chosen: Vec<[usize; 2]> = Vec::new();
    let is_equal = |pair: &&[usize; 2]| pair[0] == pair[1];
    let equal = reached.iter().filter(is_equal);
    let other = reached.iter().filter(|pair| !is_equal(pair));
    for pair in equal.chain(other) {
        if chosen.iter().all(|busy| busy[0] != pair[0] && busy[1] != pair[1]) {
            chosen.push(*pair);
        }
    }
    chosen
}

/// Returns the steps of a pairing with `flows` flows: the indices of the flows that run at once.
pub(super) fn steps(flows: usize) -> Vec<Vec<usize>> {
    let alone = (0..flows).map(|flow| vec![flow]);
    let two = (0..flows).flat_map(|one| (one + 1..flows).map(move |other| vec![one, other]));
    let once: Vec<_> = alone.chain(two).collect();
    once.iter().cycle().take(REPEATS * once.len()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_in_one_flow() {
        let all = (0..3).flat_map(|low| (0..4).map(move |high| [low, high])).collect();
        assert_eq!(choose(&all), [[0, 0], [1, 1], [2, 2]]);
        let crossed = BTreeSet::from([[0, 1], [1, 0], [2, 2]]);
        assert_eq!(choose(&crossed), [[2, 2], [0, 1], [1, 0]]);
        assert!(choose(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn each_flow_runs_alone_and_with_each_other() {
        assert!(steps(0).is_empty());
        assert_eq!(steps(1), vec![vec![0]; REPEATS]);
        assert_eq!(steps(3)[..6], [vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2]]);
        assert_eq!(steps(3).len(), 6 * REPEATS);
    }
}
