//! An even assignment at the least cost, by the Hungarian method.

/// Assigns each of `takers` at least one of `givers` and each giver at least one taker, as evenly
/// as possible. Among such assignments, it finds one with the least sum of `cost(taker, giver)`.
/// The result has the givers of each taker, ascending. Equal input gives equal output. Without
/// takers or givers the result is empty.
///
/// Costs must be at least 0 and small compared with `EVEN`. The time grows with the cube of the
/// larger side.
pub(super) fn assign(
    takers: usize,
    givers: usize,
    cost: impl Fn(usize, usize) -> i128,
) -> Vec<Vec<usize>> {
    let mut got = vec![Vec::new(); takers];
    let (many, few) = (takers.max(givers), takers.min(givers));
    if few == 0 {
        return got;
    }
    // Each of the many gets one place with one of the few. The last places should stay empty.
    let places = many.div_ceil(few);
    let is_last = |place: usize| places * few > many && place / few + 1 == places;
    let chosen = choose(many, places * few, |one, place| {
        let (taker, giver) = if takers < givers { (place % few, one) } else { (one, place % few) };
        cost(taker, giver) + if is_last(place) { EVEN } else { 0 }
    });
    for (one, place) in chosen.into_iter().enumerate() {
        let (taker, giver) = if takers < givers { (place % few, one) } else { (one, place % few) };
        got[taker].push(giver);
    }
    got.iter_mut().for_each(|givers| givers.sort_unstable());
    got
}

/// The cost of a place beyond those that all of the few have: evenness is more important than cost.
const EVEN: i128 = 1 << 100;

/// Chooses a different place for each row, at the least sum of costs. There must be at least as
/// many places as rows.
fn choose(rows: usize, places: usize, cost: impl Fn(usize, usize) -> i128) -> Vec<usize> {
    // Index `places` means no place: a path begins there, at the row that has none yet.
    let mut row_of: Vec<Option<usize>> = vec![None; places + 1];
    let (mut row_price, mut price) = (vec![0i128; rows], vec![0i128; places + 1]);
    for row in 0..rows {
        row_of[places] = Some(row);
        let mut best = vec![(i128::MAX, places); places];
        let mut is_done = vec![false; places + 1];
        let mut at = places;
        while let Some(current) = row_of[at] {
            is_done[at] = true;
            for place in (0..places).filter(|place| !is_done[*place]) {
                let reduced = cost(current, place) - row_price[current] - price[place];
                if reduced < best[place].0 {
                    best[place] = (reduced, at);
                }
            }
            let free = (0..places).filter(|place| !is_done[*place]);
            let Some(next) = free.min_by_key(|place| best[*place].0) else { break };
            let step = best[next].0;
            for place in 0..=places {
                match row_of[place] {
                    Some(row) if is_done[place] => {
                        row_price[row] += step;
                        price[place] -= step;
                    }
                    _ if place < places => best[place].0 = best[place].0.saturating_sub(step),
                    _ => {}
                }
            }
            at = next;
        }
        while at != places {
            let before = best[at].1;
            row_of[at] = row_of[before];
            at = before;
        }
    }
    let mut chosen = vec![0; rows];
    for (place, row) in row_of.iter().take(places).enumerate() {
        if let Some(row) = row {
            chosen[*row] = place;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::assign;

    #[test]
    fn all_get_some_and_loads_are_even() {
        for (takers, givers) in [(1, 8), (8, 1), (3, 8), (8, 3), (8, 8), (64, 10), (5, 16)] {
            let got = assign(takers, givers, |t, g| [3, 0, 2, 1][(t * 7 + g * 5) % 4]);
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
        let costs: [[i128; 2]; 2] = [[0, 1], [0, 9]];
        assert_eq!(assign(2, 2, |t, g| costs[t][g]), [[1], [0]]);
        // No order of all 4! is cheaper.
        let costs: [[i128; 4]; 4] = [[4, 1, 3, 7], [2, 0, 5, 3], [3, 2, 2, 9], [9, 4, 6, 8]];
        let got = assign(4, 4, |t, g| costs[t][g]);
        let sum: i128 = got.iter().enumerate().map(|(t, of)| costs[t][of[0]]).sum();
        let mut least = i128::MAX;
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
