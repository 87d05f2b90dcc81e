//! Folds lists of names: `node[001-064]` for sixty-four hosts.

use std::collections::{BTreeMap, BTreeSet};

/// A longer list of parts is cut.
const PARTS_MAX: usize = 4;

/// A longer run of digits is not treated as a number.
const DIGITS_MAX: usize = 9;

/// Runs of digits, from the end of a name, that may vary in a list.
const RUNS_MAX: usize = 4;

/// Folds names into one text. Names that differ in one number become one part, as in
/// `leaf[0-3]-r1`. Equal names are printed once.
pub(super) fn fold<S: AsRef<str>>(names: &[S]) -> String {
    let by_run = |run| {
        let mut parts: BTreeMap<Pattern<'_>, BTreeSet<Number>> = BTreeMap::new();
        for name in names {
            let (pattern, number) = split(name.as_ref(), run);
            parts.entry(pattern).or_default().insert(number);
        }
        parts
    };
    let patterns = (0..RUNS_MAX).map(by_run).min_by_key(BTreeMap::len).unwrap_or_default();
    let count = patterns.len();
    let parts: Vec<String> =
        patterns.into_iter().map(|(pattern, numbers)| pattern.with(&numbers)).collect();
    // Parts that differ in one number are folded in turn: `leaf[0-3]-r[0-7]`.
    if (2..names.len()).contains(&count) {
        return fold(&parts);
    }
    match count {
        ..=PARTS_MAX => parts.join(", "),
        _ => {
            let some = &parts[..PARTS_MAX - 1];
            format!("{} and {} more", some.join(", "), count - some.len())
        }
    }
}

/// A name without one of its numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pattern<'a> {
    before: &'a str,
    after: &'a str,
    has_number: bool,
}

/// A number with its spelling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number {
    value: u32,
    digits: usize,
    is_padded: bool,
}

impl Pattern<'_> {
    fn with(&self, numbers: &BTreeSet<Number>) -> String {
        let Self { before, after, has_number } = self;
        if !has_number {
            return (*before).to_owned();
        }
        // `node10` may continue `node09` or `node9`.
        let widths: BTreeSet<_> =
            numbers.iter().filter(|it| it.is_padded).map(|it| it.digits).collect();
        let width_of = |it: &Number| if widths.contains(&it.digits) { it.digits } else { 0 };
        let mut ranges: Vec<String> = Vec::new();
        for width in widths.iter().copied().chain([0]) {
            let same = numbers.iter().filter(|it| width_of(it) == width);
            let values: Vec<u32> = same.map(|it| it.value).collect();
            ranges.extend(values.chunk_by(|one, next| one + 1 == *next).map(|of| match of {
                [first, .., last] => format!("{first:0width$}-{last:0width$}"),
                _ => of.iter().map(|one| format!("{one:0width$}")).collect(),
            }));
        }
        match numbers.len() {
            1 => format!("{before}{}{after}", ranges.concat()),
            _ => format!("{before}[{}]{after}", ranges.join(",")),
        }
    }
}

/// Splits a name into its `run`-th run of digits from the end, as a number, and the rest.
fn split(name: &str, run: usize) -> (Pattern<'_>, Number) {
    let found = runs(name).into_iter().rev().nth(run);
    let counted = found.filter(|(start, end)| end - start <= DIGITS_MAX);
    let (start, end) = counted.unwrap_or((name.len(), name.len()));
    let digits = &name[start..end];
    let pattern =
        Pattern { before: &name[..start], after: &name[end..], has_number: !digits.is_empty() };
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    let value = digits.parse().unwrap_or_default();
    (pattern, Number { value, digits: digits.len(), is_padded })
}

/// Returns the start and end of each run of digits.
fn runs(name: &str) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in name.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_a_number_are_one() {
        for (names, folded) in [
            (vec!["a"], "a"),
            (vec!["host7"], "host7"),
            (vec!["host0", "host1", "host2", "host9"], "host[0-2,9]"),
            (vec!["node08", "node09", "node10", "node11"], "node[08-11]"),
            (vec!["n9", "n10", "n11"], "n[9-11]"),
            (vec!["leaf1-r3", "leaf0-r3", "leaf2-r3"], "leaf[0-2]-r3"),
            (vec!["l0-r0", "l0-r1", "l1-r0", "l1-r1"], "l[0-1]-r[0-1]"),
            (vec!["l0-r0", "l0-r1", "l1-r0", "l1-r2"], "l0-r[0-1], l1-r[0,2]"),
            (vec!["c1n1.a.b", "c1n2.a.b"], "c1n[1-2].a.b"),
            (vec!["mlx5_0", "mlx5_1", "mlx5_0"], "mlx5_[0-1]"),
            (vec!["b", "a", "b"], "a, b"),
            (vec!["a", "b", "c", "d", "e", "f"], "a, b, c and 3 more"),
            (vec!["x99999999999999999999"], "x99999999999999999999"),
            (vec![], ""),
        ] {
            assert_eq!(fold(&names), folded);
        }
    }
}
