//! The order in which inputs were combined into a value, as a number.
//!
//! Sums of floats depend on their order. So two results have the same bits for certain only if they
//! come from the same tree of operations. An input is a leaf, and each operator has two operands. A
//! `Fold` is a hash of that tree. Two different trees have the same hash with a chance of 2^-64.

/// The hash of a tree of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fold(u64);

impl Fold {
    /// The tree of a rank's input alone, in either form: a change to the accumulator is exact.
    pub(super) fn input(rank: usize) -> Self {
        Self(mix(rank as u64 ^ 0x1157_0000_0000_0000))
    }

    /// The tree of a token, which is no value.
    pub(super) const fn token() -> Self {
        Self(0)
    }

    /// The tree whose operator combines two others. Its operands have no order: the kernels give
    /// the same bits for a + b and b + a (`crates/reduce/tests/kernels/axioms.rs` tests it).
    pub(super) fn with(self, other: Self) -> Self {
        let (low, high) = (self.0.min(other.0), self.0.max(other.0));
        Self(mix(mix(low).wrapping_add(high)))
    }

    /// The tree that ends by a division, for averages, and by rounding from the accumulator to the
    /// element.
    pub(super) fn finished(self) -> Self {
        Self(mix(!self.0))
    }

    /// The tree that ends by rounding a partial result from the accumulator to the element.
    /// Rounding again changes nothing, but makes another tree.
    pub(super) fn rounded(self) -> Self {
        Self(mix(self.0 ^ 0x4e0d_0000_0000_0000))
    }
}

/// The word of `SplitMix64` after this one.
fn mix(word: u64) -> u64 {
    ringfold_types::mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_trees_differ_and_operands_commute() {
        let [a, b, c, d] = [0, 1, 2, 3].map(Fold::input);
        let trees = [
            a,
            a.finished(),
            a.rounded(),
            a.with(b),
            a.with(b).finished(),
            a.with(b).rounded(),
            a.with(b.rounded()),
            a.with(b).with(c),
            b.with(c).with(a),
            a.with(c).with(b),
            a.with(b).rounded().with(c),
            a.with(b).with(c).with(d),
            a.with(b).with(c.with(d)),
            a.with(c).with(b.with(d)),
        ];
        for (at, tree) in trees.iter().enumerate() {
            assert!(!trees[..at].contains(tree), "tree {at}");
        }
        assert_eq!(a.with(b), b.with(a));
        assert_eq!(c.with(a.with(b)), b.with(a).with(c));
    }
}
