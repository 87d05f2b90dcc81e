//! Names that people write: spellings that count as equal, tables of aliases, and the nearest name.

use core::fmt;

/// The most bytes of a name that is compared with others to find the nearest.
const LENGTH_MAX: usize = 64;

/// Whether two names are equal but for case, and for `_` and `-` within them, as `all_reduce` and
/// `AllReduce` are.
#[must_use]
pub fn same_name(one: &str, other: &str) -> bool {
    let is_whole = |name: &str| !name.starts_with(JOINTS) && !name.ends_with(JOINTS);
    is_whole(one) == is_whole(other) && letters(one).eq(letters(other))
}

/// The characters that may join the words of a name.
const JOINTS: [char; 2] = ['_', '-'];

fn letters(name: &str) -> impl Iterator<Item = u8> + '_ {
    let letters = name.bytes().filter(|byte| !JOINTS.contains(&char::from(*byte)));
    letters.map(|byte| byte.to_ascii_lowercase())
}

/// The known name that `name` probably means, as text to put after it: ` (did you mean ring?)`. It
/// is empty if no known name is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint<'n>(Option<&'n str>);

impl<'n> Hint<'n> {
    /// Compares `name` with all known names.
    #[must_use]
    pub fn new(name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        Self(nearest(name, known))
    }

    /// The known name, if one is near.
    #[must_use]
    pub const fn name(&self) -> Option<&'n str> {
        self.0
    }
}

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " (did you mean {name}?)"))
    }
}

/// The known name with the fewest typing errors, if these are few: one in a short name, and one for
/// each three letters of a longer one. A letter too much, too little or wrong is an error, and so
/// are two neighbours in the wrong order.
fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let most = (letters(name).count() / 3).max(1);
    let errors = |known: &'n str| Some((typing_errors(name, known)?, known));
    let candidates = known.into_iter().filter_map(errors);
    let found = candidates.filter(|(errors, _)| *errors <= most).min_by_key(|(errors, _)| *errors);
    found.map(|(_, known)| known)
}

/// The optimal string alignment distance of two names; `None` if one of them is too long.
fn typing_errors(one: &str, other: &str) -> Option<usize> {
    let (mut columns, mut count) = ([0_u8; LENGTH_MAX], 0);
    for letter in letters(other) {
        *columns.get_mut(count)? = letter;
        count += 1;
    }
    let columns = &columns[..count];
    // The rows of the table for the letters before this one, and for those before the last.
    let (mut before, mut row) = ([0; LENGTH_MAX + 1], [0; LENGTH_MAX + 1]);
    row.iter_mut().zip(0..).for_each(|(cell, at)| *cell = at);
    let mut last = None;
    for (place, letter) in letters(one).take(LENGTH_MAX + 1).enumerate() {
        let mut next = [place + 1; LENGTH_MAX + 1];
        for (at, column) in columns.iter().enumerate() {
            let change = row[at] + usize::from(letter != *column);
            next[at + 1] = change.min(row[at + 1] + 1).min(next[at] + 1);
            if at > 0 && last == Some(*column) && letter == columns[at - 1] {
                next[at + 1] = next[at + 1].min(before[at - 1] + 1);
            }
        }
        (before, row, last) = (row, next, Some(letter));
    }
    (letters(one).count() <= LENGTH_MAX).then_some(row[count])
}

/// Names of values of one kind. Each row has the names of one value, and begins with the name that
/// is printed.
pub(crate) type Names = &'static [&'static [&'static str]];

/// Returns the value whose row in `known` has `name`, in any spelling.
pub(crate) fn find<T>(
    kind: &'static str,
    known: Names,
    of_row: impl Fn(usize) -> Option<T>,
    name: &str,
) -> Result<T, UnknownName> {
    let has = |names: &&[&str]| names.iter().any(|known| same_name(known, name));
    let all = || known.iter().flat_map(|names| names.iter().copied());
    let found = known.iter().position(has).and_then(of_row);
    found.ok_or_else(|| UnknownName { kind, hint: Hint::new(name, all()), known })
}

/// A name that no value of its kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    hint: Hint<'static>,
    known: Names,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {}{}; one of", self.kind, self.hint)?;
        self.known.iter().try_for_each(|names| write!(f, " {}", names[0]))
    }
}

impl core::error::Error for UnknownName {}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;
    use crate::{Collective, DataType, ReduceOp, UnevenCollective, Wire};

    #[test]
    fn spellings_differ_in_case_and_joints_only() {
        for name in ["all_reduce", "AllReduce", "ALL-REDUCE", "allreduce"] {
            assert_eq!(name.parse(), Ok(Collective::AllReduce), "{name}");
        }
        for name in ["reduce_scatter", "reducescatter", "reduce-scatter", "ReduceScatter"] {
            assert_eq!(name.parse(), Ok(Collective::ReduceScatter), "{name}");
        }
        assert_eq!("all_gather_v".parse(), Ok(UnevenCollective::AllGatherV));
        assert_eq!("ACCUMULATOR".parse(), Ok(Wire::Accumulator));
        assert!(same_name("a_b", "AB") && !same_name("ab", "abc"));
        assert!(!same_name("ab", "ab-") && !same_name("", "_"), "joints are within a name");
    }

    #[test]
    fn every_name_is_that_of_one_value() {
        let all: [(Names, &str); 5] = [
            (DataType::NAMES, "data types"),
            (Collective::NAMES, "collectives"),
            (UnevenCollective::NAMES, "uneven collectives"),
            (ReduceOp::NAMES, "reductions"),
            (Wire::NAMES, "forms"),
        ];
        for (known, kind) in all {
            for (row, names) in known.iter().enumerate() {
                for name in *names {
                    assert_eq!(find(kind, known, Some, name), Ok(row), "{kind}: {name}");
                }
            }
        }
    }

    #[test]
    fn aliases_name_the_same_value() {
        let types = [
            (DataType::F16, &["f16", "fp16", "half", "float16"][..]),
            (DataType::Bf16, &["bf16", "bfloat16"]),
            (DataType::F32, &["f32", "fp32", "float", "float32"]),
            (DataType::F64, &["f64", "fp64", "double", "float64"]),
            (DataType::I8, &["i8", "int8"]),
            (DataType::U64, &["u64", "uint64"]),
            (DataType::F8E4M3, &["f8e4m3", "fp8_e4m3", "float8_e4m3fn"]),
            (DataType::F8E5M2, &["f8e5m2", "fp8_e5m2", "float8_e5m2"]),
        ];
        for (data_type, names) in types {
            for name in names {
                assert_eq!(name.parse(), Ok(data_type), "{name}");
            }
        }
        for op in ReduceOp::PLAIN {
            assert_eq!(op.name().parse(), Ok(op));
        }
        assert_eq!("mean".parse(), Ok(ReduceOp::Avg));
        assert!("premulsum".parse::<ReduceOp>().is_err(), "its scale has no name");
        for data_type in DataType::ALL {
            assert_eq!(data_type.name().parse(), Ok(data_type));
        }
        for collective in Collective::ALL {
            assert_eq!(collective.name().parse(), Ok(collective));
        }
    }

    #[test]
    fn an_unknown_name_has_the_nearest_beside_it() {
        let error = |name: &str| name.parse::<DataType>().unwrap_err().to_string();
        assert!(
            error("flaot32").starts_with("unknown data type (did you mean float32?); one of i8 u8")
        );
        assert!(error("complex").starts_with("unknown data type; one of i8 u8"), "none is near");
        let error = "allredcue".parse::<Collective>().unwrap_err().to_string();
        assert!(error.contains("did you mean allreduce?"), "{error}");
    }

    #[test]
    fn typing_errors_are_counted() {
        let count = |one, other| typing_errors(one, other).unwrap();
        assert_eq!([count("abc", "abc"), count("abc", "acb"), count("abc", "ab")], [0, 1, 1]);
        assert_eq!([count("", "abc"), count("abc", "xbz"), count("kitten", "sitting")], [3, 2, 3]);
        let long = "x".repeat(LENGTH_MAX + 1);
        assert_eq!((typing_errors(&long, "x"), typing_errors("x", &long)), (None, None));
        assert_eq!(count(&long[1..], &long[1..]), 0);
        assert_eq!(nearest("x", ["y", "zz"]), Some("y"));
        assert_eq!(nearest("x", ["yy", "zz"]), None);
    }
}
