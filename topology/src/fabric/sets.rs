//! Disjoint sets of small numbers, and majorities.

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
