//! Disjoint sets of small numbers, the natural order of names, and majorities.

use std::cmp::Ordering;

/// Disjoint sets of the numbers below some size.
pub(super) struct Sets {
    parent: Vec<usize>,
}

impl Sets {
    /// Every number below `size` in a set of its own.
    pub(super) fn new(size: usize) -> Self {
        Self { parent: (0..size).collect() }
    }

    /// The number that represents the set of `of`.
    pub(super) fn find(&mut self, mut of: usize) -> usize {
        while self.parent[of] != of {
            self.parent[of] = self.parent[self.parent[of]];
            of = self.parent[of];
        }
        of
    }

    /// Joins the sets of `a` and `b`. The smaller number represents both.
    pub(super) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }
}

/// Compares names, with their numbers by value: `mlx5_2` comes before `mlx5_10`.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
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
            (x, y) => return x.cmp(&y),
        }
    }
}

/// The digits at the beginning, without leading zeros, and the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let start = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
    (&digits[start..], rest)
}

/// The smallest value that occurs at least half as often as the most frequent one. So a few missing
/// values do not change it.
pub(super) fn usual<T: Ord + Copy>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    let runs = || values.chunk_by(|a, b| a == b);
    let most = runs().map(<[_]>::len).max()?;
    runs().find(|run| run.len() * 2 >= most).map(|run| run[0])
}

/// The value with the most weight; the smallest of several. `None` without values.
pub(super) fn mode<T: Ord + Copy>(values: impl IntoIterator<Item = (T, usize)>) -> Option<T> {
    let mut values: Vec<(T, usize)> = values.into_iter().collect();
    values.sort_unstable_by_key(|(value, _)| *value);
    let runs = values.chunk_by(|a, b| a.0 == b.0);
    let weighed = runs.map(|run| (run.iter().map(|(_, weight)| weight).sum::<usize>(), run[0].0));
    weighed.rev().max_by_key(|(weight, _)| *weight).map(|(_, value)| value)
}
