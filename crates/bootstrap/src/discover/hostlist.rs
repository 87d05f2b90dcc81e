//! Slurm's lists of hosts: `node[1-3,07],login` is node1, node2, node3, node07 and login.

use ringfold_types::limits;

/// Why a list of hosts is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// The brackets do not pair, or they nest.
    #[error("brackets do not pair")]
    Brackets,
    /// The text between brackets is not a list of numbers and ranges.
    #[error("{0:?} is neither a number nor a range")]
    Range(String),
    /// There are more hosts than a job may have ranks, or a name is too long.
    #[error("more than {} hosts, or a name of more than {NAME_BYTES_MAX} bytes", limits::RANKS_MAX)]
    TooMany,
}

/// The longest name in the domain name system.
const NAME_BYTES_MAX: usize = 255;
/// The most digits of a number: more would not fit the arithmetic.
const DIGITS_MAX: usize = 9;

/// The hosts that `list` names, in order.
///
/// # Errors
/// See `HostListError`. A failing list allocates little memory.
pub fn expand(list: &str) -> Result<Vec<String>, HostListError> {
    let mut hosts = Vec::new();
    for item in split(list)? {
        let mut names = vec![String::new()];
        for part in parts(item)? {
            names = match part {
                Part::Plain(text) => product(&names, &[text.to_owned()])?,
                Part::Numbers(text) => product(&names, &numbers(text)?)?,
            };
        }
        if hosts.len() + names.len() > limits::RANKS_MAX {
            return Err(HostListError::TooMany);
        }
        hosts.extend(names.into_iter().filter(|name| !name.is_empty()));
    }
    Ok(hosts)
}

enum Part<'a> {
    Plain(&'a str),
    Numbers(&'a str),
}

/// Splits a list at the commas outside brackets.
fn split(list: &str) -> Result<Vec<&str>, HostListError> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if !inside => inside = true,
            b']' if inside => inside = false,
            b'[' | b']' => return Err(HostListError::Brackets),
            b',' if !inside => {
                items.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(HostListError::Brackets);
    }
    items.push(list[start..].trim());
    Ok(items)
}

/// The parts of one item: text and brackets in turn, as in `rack[1-2]node[0-9]`.
fn parts(mut item: &str) -> Result<Vec<Part<'_>>, HostListError> {
    let mut parts = Vec::new();
    while let Some((text, rest)) = item.split_once('[') {
        let (ranges, rest) = rest.split_once(']').ok_or(HostListError::Brackets)?;
        parts.push(Part::Plain(text));
        parts.push(Part::Numbers(ranges));
        item = rest;
    }
    parts.push(Part::Plain(item));
    Ok(parts)
}

fn numbers(ranges: &str) -> Result<Vec<String>, HostListError> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let shown = &range[..range.floor_char_boundary(limits::CAUSE_BYTES_MAX)];
        let invalid = || HostListError::Range(shown.into());
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |digits: &str| {
            let plain = digits.bytes().all(|b| b.is_ascii_digit()) && digits.len() <= DIGITS_MAX;
            plain.then(|| digits.parse::<u32>().ok()).flatten().ok_or_else(invalid)
        };
        let width = first.len();
        for n in number(first)?..=number(last)? {
            if all.len() >= limits::RANKS_MAX {
                return Err(HostListError::TooMany);
            }
            all.push(format!("{n:0width$}"));
        }
    }
    Ok(all)
}

fn product(names: &[String], ends: &[String]) -> Result<Vec<String>, HostListError> {
    let longest = |all: &[String]| all.iter().map(String::len).max().unwrap_or(0);
    let too_many = names.len().saturating_mul(ends.len()) > limits::RANKS_MAX;
    if too_many || longest(names) + longest(ends) > NAME_BYTES_MAX {
        return Err(HostListError::TooMany);
    }
    Ok(names.iter().flat_map(|name| ends.iter().map(move |end| format!("{name}{end}"))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_grammar() {
        let hosts = |list| expand(list).unwrap().join(" ");
        assert_eq!(hosts("h[1-3,07],x"), "h1 h2 h3 h07 x");
        assert_eq!(hosts("r[1-2]n[08-10]"), "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10");
        assert_eq!(
            hosts("gpu[098-101].cluster"),
            "gpu098.cluster gpu099.cluster gpu100.cluster gpu101.cluster"
        );
        assert_eq!(hosts("a, b"), "a b");
        assert_eq!(hosts(""), "");
    }

    #[test]
    fn invalid_lists_are_refused() {
        for list in ["h[1", "h1]", "h[[1]]", "h[1]]"] {
            assert_eq!(expand(list), Err(HostListError::Brackets), "{list}");
        }
        for list in ["h[]", "h[a]", "h[1-b]", "h[-1]", "h[1,]", "h[99999999999]", "h[+1]"] {
            assert!(matches!(expand(list), Err(HostListError::Range(_))), "{list}");
        }
        for list in ["h[0-999999999]", "h[0-999][0-999]", "h[0-39999],h[0-39999]"] {
            assert_eq!(expand(list), Err(HostListError::TooMany), "{list}");
        }
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
            prop_assert_eq!(expand(&list).unwrap(), expected);
        }

        #[test]
        fn any_text_is_a_list_or_an_error(list in "[a-z0-9,\\[\\]-]{0,60}|.{0,60}") {
            if let Ok(hosts) = expand(&list) {
                prop_assert!(hosts.len() <= limits::RANKS_MAX);
            }
        }
    }
}
