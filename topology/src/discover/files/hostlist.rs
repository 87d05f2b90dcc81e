//! Slurm's lists of names, such as `node[01-16,20],login`. Their size is checked before they are
//! expanded.

use ringfold_types::limits::{FABRIC_NAME_BYTES_MAX, FABRIC_NODES_MAX};

/// The names of a list, in its order.
///
/// # Errors
/// The text is not a list, or the list has too many names.
pub(super) fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for item in items(list)? {
        if item.is_empty() {
            return Err(format!("{} contains an empty name", super::scan::shown(list)));
        }
        if item.split(['[', ']']).step_by(2).map(str::len).sum::<usize>() > FABRIC_NAME_BYTES_MAX {
            return Err(format!("a name has more than {FABRIC_NAME_BYTES_MAX} bytes, the limit"));
        }
        let mut heads = vec![String::new()];
        let mut rest = item;
        while let Some((fixed, after)) = rest.split_once('[') {
            let Some((ranges, after)) = after.split_once(']') else {
                return Err(format!("`]` is missing in {}", super::scan::shown(item)));
            };
            let numbers = numbers(ranges)?;
            bounded(heads.len().saturating_mul(numbers.len()).saturating_add(names.len()))?;
            heads = heads
                .iter()
                .flat_map(|head| numbers.iter().map(move |number| format!("{head}{fixed}{number}")))
                .collect();
            rest = after;
        }
        if rest.contains(']') {
            return Err(format!("`[` is missing in {}", super::scan::shown(item)));
        }
        bounded(names.len() + heads.len())?;
        names.extend(heads.into_iter().map(|head| head + rest));
    }
    Ok(names)
}

fn bounded(names: usize) -> Result<(), String> {
    if names > FABRIC_NODES_MAX {
        return Err(format!("the list has at least {names} names; the most is {FABRIC_NODES_MAX}"));
    }
    Ok(())
}

/// Splits at commas outside brackets.
fn items(list: &str) -> Result<Vec<&str>, String> {
    let mut is_inside = false;
    for c in list.chars() {
        match (c, is_inside) {
            ('[', true) | (']', false) => {
                return Err(format!("brackets do not match in {}", super::scan::shown(list)));
            }
            ('[', false) => is_inside = true,
            (']', true) => is_inside = false,
            _ => (),
        }
    }
    let mut is_inside = false;
    let split = list.split(move |c| {
        is_inside = (is_inside || c == '[') && c != ']';
        c == ',' && !is_inside
    });
    Ok(split.map(str::trim).collect())
}

/// `01-16,20`: numbers with their leading zeros.
fn numbers(ranges: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let wrong = || format!("{} is not a range of numbers", super::scan::shown(range));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_digits).ok_or_else(wrong)
        };
        let (from, to, width) = (number(first)?, number(last)?, first.len());
        let count = to.checked_sub(from).ok_or_else(wrong)?;
        let count = usize::try_from(count).map_err(|_| wrong())?;
        bounded(count.saturating_add(1).saturating_add(numbers.len()))?;
        if width > FABRIC_NAME_BYTES_MAX {
            return Err(wrong());
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_expand() {
        for (list, names) in [
            ("a", "a"),
            ("a,b", "a b"),
            ("n[1-3]", "n1 n2 n3"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[1,3-4,007]x", "n1x n3x n4x n007x"),
            ("r[1-2]n[0-1],login", "r1n0 r1n1 r2n0 r2n1 login"),
            ("n[5-5]", "n5"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), names, "{list}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for list in [
            "",
            "a,",
            ",a",
            "n[",
            "n]",
            "n[1",
            "n[]",
            "n[a]",
            "n[2-1]",
            "n[1-]",
            "n[-1]",
            "n[1-2-3]",
            "n[[1]]",
            "n[+1]",
            "n[1-18446744073709551616]",
            "n[0-999999999]",
            "n[0-18446744073709551615]",
            "a[0-999]b[0-999]c[0-999]",
            "[0-262143],x",
            "a[1]]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
        assert!(expand(&"x".repeat(FABRIC_NAME_BYTES_MAX + 1)).is_err());
        assert_eq!(expand("[1-262144]").unwrap().len(), FABRIC_NODES_MAX);
    }
}
