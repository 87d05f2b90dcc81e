//! An even assignment at the least cost, by successive shortest paths.

/// Assigns each of `takers` at least one of `givers` and each giver at least one taker, as evenly
/// as possible, and among such assignments at the least sum of `cost(taker, giver)`. The result
/// has the givers of each taker, ascending. Equal input gives equal output. Without takers or
/// givers, nobody gets anything.
///
/// Costs must be small against `EVEN`.
pub(super) fn assign(
    takers: usize,
    givers: usize,
    cost: impl Fn(usize, usize) -> i64,
) -> Vec<Vec<usize>> {
    let cost: Vec<Vec<i128>> =
        (0..takers).map(|t| (0..givers).map(|g| i128::from(cost(t, g))).collect()).collect();
    let mut state = State { cost, pairs: vec![vec![false; givers]; takers] };
    if takers > 0 && givers > 0 {
        for _ in 0..takers.max(givers) {
            state.augment();
        }
    }
    let of = |row: Vec<bool>| (0..givers).filter(|giver| row[*giver]).collect();
    state.pairs.into_iter().map(of).collect()
}

/// The cost of a second partner above that of a first, and so on: evenness comes first.
const EVEN: i128 = 1 << 80;

struct State {
    cost: Vec<Vec<i128>>,
    pairs: Vec<Vec<bool>>,
}

impl State {
    /// Adds one pair, and changes others where that is cheaper.
    fn augment(&mut self) {
        let (takers, givers) = (self.pairs.len(), self.pairs[0].len());
        let load = |count: usize| EVEN * i128::try_from(count).unwrap_or(i128::MAX / EVEN);
        let taken = |row: &Vec<bool>| row.iter().filter(|is| **is).count();
        // The cost to reach each taker and giver, and the other side's number that it came from.
        let mut to_taker: Vec<(i128, Option<usize>)> =
            self.pairs.iter().map(|row| (load(taken(row)), None)).collect();
        let mut to_giver: Vec<(i128, Option<usize>)> = vec![(i128::MAX, None); givers];
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            for (t, g) in (0..takers * givers).map(|at| (at / givers, at % givers)) {
                let cost = self.cost[t][g];
                if !self.pairs[t][g] && to_taker[t].0 + cost < to_giver[g].0 {
                    to_giver[g] = (to_taker[t].0 + cost, Some(t));
                    is_settled = false;
                } else if self.pairs[t][g]
                    && to_giver[g].1.is_some()
                    && to_giver[g].0 - cost < to_taker[t].0
                {
                    to_taker[t] = (to_giver[g].0 - cost, Some(g));
                    is_settled = false;
                }
            }
        }
        let given = |g: usize| self.pairs.iter().filter(|row| row[g]).count();
        let end = (0..givers)
            .filter(|g| to_giver[*g].1.is_some())
            .min_by_key(|g| to_giver[*g].0 + load(given(*g)));
        let Some(mut g) = end else { return };
        while let Some(t) = to_giver[g].1 {
            self.pairs[t][g] = true;
            let Some(back) = to_taker[t].1 else { break };
            self.pairs[t][back] = false;
            g = back;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::assign;

    #[test]
    fn all_get_some_and_loads_are_even() {
        for (takers, givers) in [(1, 8), (8, 1), (3, 8), (8, 3), (8, 8), (64, 10), (5, 16)] {
            let got = assign(takers, givers, |t, g| ((t * 7 + g * 5) % 4) as i64);
            let total: usize = got.iter().map(Vec::len).sum();
            assert_eq!(total, takers.max(givers));
            let (low, high) = (total / takers, total.div_ceil(takers));
            assert!(got.iter().all(|of| (low..=high).contains(&of.len())), "{takers} {givers}");
            let (low, high) = (total / givers, total.div_ceil(givers));
            for g in 0..givers {
                let load = got.iter().filter(|of| of.contains(&g)).count();
                assert!((low..=high).contains(&load), "{takers} {givers}: {g} has {load}");
            }
        }
        assert_eq!(assign(0, 3, |_, _| 0), Vec::<Vec<usize>>::new());
        assert_eq!(assign(2, 0, |_, _| 0), vec![Vec::<usize>::new(); 2]);
    }

    /// The first taker leaves the only near giver to the second.
    #[test]
    fn the_sum_is_least_and_not_the_first_choice() {
        let costs = [[0, 1], [0, 9]];
        assert_eq!(assign(2, 2, |t, g| costs[t][g]), [[1], [0]]);
        // All 4! orders tried: none is cheaper.
        let costs = [[4, 1, 3, 7], [2, 0, 5, 3], [3, 2, 2, 9], [9, 4, 6, 8]];
        let got = assign(4, 4, |t, g| costs[t][g]);
        let sum: i64 = got.iter().enumerate().map(|(t, of)| costs[t][of[0]]).sum();
        let mut least = i64::MAX;
        for code in 0..256usize {
            let at = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
            let mut seen = at;
            seen.sort_unstable();
            if seen == [0, 1, 2, 3] {
                least = least.min((0..4).map(|t| costs[t][at[t]]).sum());
            }
        }
        assert_eq!(sum, least);
    }
}
