//! The natural order of names.

use std::cmp::Ordering;

/// A name, in an order where numbers in names compare by value: `mlx5_2` comes before `mlx5_10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Natural<S>(pub S);

impl<S: AsRef<str> + Eq> Ord for Natural<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        let whole = (self.0.as_ref(), other.0.as_ref());
        let (mut a, mut b) = (whole.0.as_bytes(), whole.1.as_bytes());
        loop {
            match (a.first(), b.first()) {
                (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                    let ((x, after_a), (y, after_b)) = (number(a), number(b));
                    let order = x.len().cmp(&y.len()).then(x.cmp(y));
                    if order.is_ne() {
                        return order;
                    }
                    (a, b) = (after_a, after_b);
                }
                (Some(x), Some(y)) if x == y => (a, b) = (&a[1..], &b[1..]),
                // Numbers of one value may have different leading zeros.
                (x, y) => return x.cmp(&y).then(whole.0.cmp(whole.1)),
            }
        }
    }
}

impl<S: AsRef<str> + Eq> PartialOrd for Natural<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The digits at the beginning, without leading zeros, and the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let start = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
    (&digits[start..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers() {
        let ordered = ["", "eth0", "mlx5_0", "mlx5_00", "mlx5_9", "mlx5_9v2", "mlx5_10", "n1r2"];
        let mut names = ordered;
        names.reverse();
        names.sort_by_key(|name| Natural(*name));
        assert_eq!(names, ordered);
    }
}
