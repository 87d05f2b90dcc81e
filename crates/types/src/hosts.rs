//! Slurm's lists of hosts: `node[1-3,07],login` is node1, node2, node3, node07 and login.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::limits::FABRIC_NAME_BYTES_MAX;

/// Why a list of hosts is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHostList {
    /// The brackets do not pair, or they nest.
    Brackets,
    /// This text between brackets, cut after a few words, is neither a number nor a range.
    Range(String),
    /// There are more hosts than this, or a name is too long.
    TooMany(usize),
}

impl fmt::Display for InvalidHostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brackets => f.write_str("brackets do not pair"),
            Self::Range(text) => write!(f, "{text:?} is neither a number nor a range"),
            Self::TooMany(most) => {
                write!(
                    f,
                    "more than {most} hosts, or a name of more than {FABRIC_NAME_BYTES_MAX} bytes"
                )
            }
        }
    }
}

impl core::error::Error for InvalidHostList {}

/// The most digits of a number.
const DIGITS_MAX: usize = 19;

/// The hosts that `list` names, in order, `most` at most. Empty names are left out.
///
/// # Errors
/// See `InvalidHostList`. A failing list allocates little memory.
pub fn expand_hosts(list: &str, most: usize) -> Result<Vec<String>, InvalidHostList> {
    let mut hosts = Vec::new();
    for item in items(list)? {
        let (mut names, mut rest, mut bytes) = (vec![String::new()], item, 0);
        // Text and brackets take turns, as in `rack[1-2]node[0-9]`.
        while let Some((fixed, after)) = rest.split_once('[') {
            let (ranges, after) = after.split_once(']').ok_or(InvalidHostList::Brackets)?;
            let numbers = numbers(ranges, most)?;
            bytes += fixed.len() + numbers.iter().map(String::len).max().unwrap_or(0);
            let count = names.len().saturating_mul(numbers.len());
            if count > most - hosts.len() || bytes > FABRIC_NAME_BYTES_MAX {
                return Err(InvalidHostList::TooMany(most));
            }
            let heads = names.iter();
            names = heads
                .flat_map(|head| numbers.iter().map(move |it| format!("{head}{fixed}{it}")))
                .collect();
            rest = after;
        }
        if names.len() > most - hosts.len() || bytes + rest.len() > FABRIC_NAME_BYTES_MAX {
            return Err(InvalidHostList::TooMany(most));
        }
        hosts.extend(names.into_iter().map(|name| name + rest).filter(|name| !name.is_empty()));
    }
    Ok(hosts)
}

/// Splits a list at the commas outside brackets.
fn items(list: &str) -> Result<Vec<&str>, InvalidHostList> {
    let (mut is_inside, mut are_paired) = (false, true);
    let items = list.split(|c| {
        are_paired &= !matches!((c, is_inside), ('[', true) | (']', false));
        is_inside = (is_inside || c == '[') && c != ']';
        c == ',' && !is_inside
    });
    let items = items.map(str::trim).collect();
    if are_paired && !is_inside { Ok(items) } else { Err(InvalidHostList::Brackets) }
}

/// `01-16,20`: numbers with their leading zeros.
fn numbers(ranges: &str, most: usize) -> Result<Vec<String>, InvalidHostList> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let invalid = || InvalidHostList::Range(range.chars().take(40).collect());
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number = text.len() <= DIGITS_MAX && text.bytes().all(|it| it.is_ascii_digit());
            is_number.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(invalid)
        };
        let (from, to, width) = (number(first)?, number(last)?, first.len());
        let more = to.checked_sub(from).ok_or_else(invalid)?;
        if more >= (most - numbers.len()) as u64 {
            return Err(InvalidHostList::TooMany(most));
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::{FABRIC_NODES_MAX, RANKS_MAX};

    #[test]
    fn the_grammar() {
        for (list, names) in [
            ("h[1-3,07],x", "h1 h2 h3 h07 x"),
            ("r[1-2]n[08-10]", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10"),
            ("gpu[098-101].cluster", "gpu098.cluster gpu099.cluster gpu100.cluster gpu101.cluster"),
            ("n[1,3-4,007]x", "n1x n3x n4x n007x"),
            ("n[5-5]", "n5"),
            ("a, b", "a b"),
            ("a,,b,", "a b"),
            ("", ""),
        ] {
            assert_eq!(expand_hosts(list, RANKS_MAX).unwrap().join(" "), names, "{list}");
        }
        let all = expand_hosts("[1-262144]", FABRIC_NODES_MAX).unwrap();
        assert_eq!(all.len(), FABRIC_NODES_MAX);
    }

    #[test]
    fn invalid_lists_are_refused() {
        let error = |list| expand_hosts(list, RANKS_MAX).unwrap_err();
        for list in ["h[1", "h1]", "h[", "h[[1]]", "h[1]]"] {
            assert_eq!(error(list), InvalidHostList::Brackets, "{list}");
        }
        for list in [
            "h[]",
            "h[a]",
            "h[1-b]",
            "h[-1]",
            "h[1-]",
            "h[1,]",
            "h[+1]",
            "h[2-1]",
            "h[1-2-3]",
            "h[1-99999999999999999999]",
        ] {
            assert!(matches!(error(list), InvalidHostList::Range(_)), "{list}");
        }
        let long = "x".repeat(FABRIC_NAME_BYTES_MAX + 1);
        for list in [
            "h[0-999999999]",
            "h[0-9223372036854775807]",
            "h[0-999][0-999]",
            "h[0-39999],h[0-39999]",
            "[0-65535],x",
            &long,
        ] {
            assert_eq!(error(list), InvalidHostList::TooMany(RANKS_MAX), "{list}");
        }
        let text = error("h[a]").to_string();
        assert_eq!(text, "\"a\" is neither a number nor a range");
    }

    proptest! {
        #[test]
        fn folding_is_undone(prefix in "[a-z]{1,6}", first in 0..500_u32, more in 0..50_u32,
            width in 1..5_usize, suffix in "[a-z.]{0,4}", other in "[a-z]{1,5}"
        ) {
            let names = |n| format!("{prefix}{n:0width$}{suffix}");
            let last = first + more;
            let list = format!("{prefix}[{first:0width$}-{last:0width$}]{suffix},{other}");
            let mut expected: Vec<String> = (first..=last).map(names).collect();
            expected.push(other);
            prop_assert_eq!(expand_hosts(&list, RANKS_MAX).unwrap(), expected);
        }

        #[test]
        fn any_text_is_a_list_or_an_error(list in "[a-z0-9,\\[\\]-]{0,60}|.{0,60}") {
            if let Ok(hosts) = expand_hosts(&list, RANKS_MAX) {
                prop_assert!(hosts.len() <= RANKS_MAX);
            }
        }
    }
}
