//! Dissemination: in each round a rank talks to those twice as far away as in the round before.
//! After a logarithmic number of rounds each rank has heard of all.

/// The distances, round by round.
pub(crate) fn distances(size: usize) -> impl Iterator<Item = usize> {
    core::iter::successors(Some(1_usize), |distance| distance.checked_mul(2))
        .take_while(move |distance| *distance < size)
}

/// Number of rounds.
pub(crate) const fn rounds(size: usize) -> usize {
    size.next_power_of_two().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_rounds_as_it_takes_to_hear_of_all() {
        for size in 1..=130 {
            assert_eq!(distances(size).count(), rounds(size));
            // After a message from distance `heard`, a rank that had heard of `heard` ranks has
            // heard of twice as many.
            let heard = distances(size).fold(1, |heard, distance| {
                assert_eq!(heard, distance);
                heard * 2
            });
            assert!(heard >= size && heard < 2 * size, "{heard} of {size}");
        }
    }
}
