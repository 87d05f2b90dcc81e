//! The digits of distances in a radix.

/// The values of the places of the digits of the distances below `size`, the highest first.
pub(crate) fn weights(size: usize, radix: usize) -> impl Iterator<Item = usize> {
    let places = (0_u32..).take_while(move |place| within(radix, *place, size)).count();
    (0..u32::try_from(places).unwrap_or(0)).rev().map(move |place| radix.pow(place))
}

/// Whether some distance below `size` has a digit other than 0 at `place`.
fn within(radix: usize, place: u32, size: usize) -> bool {
    radix.checked_pow(place).is_some_and(|weight| weight < size)
}

/// The distances below `size` that have `digit` at the place with this weight, in order.
pub(crate) fn moved(
    size: usize,
    radix: usize,
    weight: usize,
    digit: usize,
) -> impl Iterator<Item = usize> {
    let runs = (digit * weight..size).step_by(radix.saturating_mul(weight));
    runs.flat_map(move |first| first..size.min(first + weight))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn digits_add_up_to_each_distance() {
        for radix in [2_usize, 3, 4, 8] {
            for size in 1..=130 {
                let mut sums = alloc::vec![0_usize; size];
                let all: Vec<usize> = weights(size, radix).collect();
                assert!(all.is_sorted_by(|a, b| a > b));
                for weight in all {
                    for digit in 1..radix {
                        for distance in moved(size, radix, weight, digit) {
                            assert!(sums[distance].is_multiple_of(radix * weight), "highest first");
                            sums[distance] += digit * weight;
                        }
                    }
                }
                assert!(sums.into_iter().eq(0..size), "radix {radix}, {size} ranks");
            }
        }
    }
}
