//! The page of limits has each limit of the code, with its value and its description.

use std::collections::BTreeMap;

use crate::Offence;
use crate::tree::Tree;

/// The source.
const SOURCE: &str = "crates/types/src/limits.rs";

/// The page.
const PAGE: &str = "docs/limits.md";

/// Units in descriptions. The value has its own.
const UNITS: &[&str] =
    &[" in milliseconds", " in nanoseconds", " in picoseconds", ", in bytes", " in bytes"];

/// Units of names by their last words, and how many of each make the next larger unit.
const BYTES: &[(&str, u64)] = &[("B", 1024), ("KiB", 1024), ("MiB", 1024), ("GiB", 1024)];
const MILLISECONDS: &[(&str, u64)] = &[("ms", 1000), ("s", 1000)];
const NANOSECONDS: &[(&str, u64)] = &[("ns", 1000), ("us", 1000), ("ms", 1000), ("s", 1000)];
const PICOSECONDS: &[(&str, u64)] = &[("ps", 1000), ("ns", 1000), ("us", 1000), ("ms", 1000)];
const NUMBER: &[(&str, u64)] = &[("", 1000)];

pub(crate) fn offences(tree: &Tree) -> Vec<Offence> {
    let rows = rows(tree.text(SOURCE));
    let page = tree.text(PAGE);
    let written: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let missing = rows.iter().filter(|row| !written.contains(&row.as_str()));
    let missing = missing.map(|row| format!("{PAGE}: there is no row\n{row}"));
    let invented = written.iter().filter(|row| !rows.iter().any(|known| known == *row));
    missing.chain(invented.map(|row| format!("{PAGE}: not of {SOURCE}:\n{row}"))).collect()
}

/// The rows of the table.
fn rows(source: &str) -> Vec<String> {
    let text = source.replace("=\n    ", "= ");
    let expressions = text.lines().filter_map(constant).collect();
    let (mut rows, mut description) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            description.push(words);
        } else if let Some((name, expression)) = constant(line) {
            let value = in_units(name, value(expression, &expressions));
            let words = UNITS.iter().fold(description.join(" "), |words, it| words.replace(it, ""));
            rows.push(format!("| `{name}` | {value} | {words} |"));
            description.clear();
        }
    }
    rows
}

/// The name and the expression of a public constant.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
    let (_, value) = rest.strip_suffix(';')?.split_once(" = ")?;
    Some((name, value))
}

/// The value of a sum of products, quotients and shifted numbers. It has one pair of parentheses at
/// most.
fn value(expression: &str, all: &BTreeMap<&str, &str>) -> u64 {
    if let Some((before, rest)) = expression.split_once('(') {
        let (within, after) = rest.split_once(')').unwrap_or((rest, ""));
        return value(&format!("{before}{}{after}", value(within, all)), all);
    }
    if let Some((left, right)) = expression.split_once(" + ") {
        return value(left, all) + value(right, all);
    }
    let mut words = expression.split(' ').map(|word| match word.replace('_', "").parse() {
        Ok(number) => Ok(number),
        Err(_) => all.get(word).map(|named| value(named, all)).ok_or(word),
    });
    let mut next = || words.next();
    let Some(Ok(mut total)) = next() else { panic!("{expression} is no value") };
    while let Some(operator) = next() {
        total = match (operator, next()) {
            (Err("*"), Some(Ok(right))) => total * right,
            (Err("/"), Some(Ok(right))) => total / right,
            (Err("<<"), Some(Ok(right))) => total << right,
            _ => panic!("{expression} is no value"),
        };
    }
    total
}

/// The value in the largest unit that divides it.
fn in_units(name: &str, value: u64) -> String {
    let has = |word: &str| name.split('_').any(|it| it == word);
    let units = match () {
        () if has("MS") => MILLISECONDS,
        () if has("NS") => NANOSECONDS,
        () if has("PS") => PICOSECONDS,
        () if has("BYTES") || has("ALIGN") => BYTES,
        () => NUMBER,
    };
    let (mut value, mut units) = (value, units.iter());
    let mut unit = units.next();
    while let (Some((_, next)), true) = (unit, units.len() > 0) {
        if value == 0 || !value.is_multiple_of(*next) {
            break;
        }
        (value, unit) = (value / next, units.next());
    }
    let (word, _) = unit.unwrap_or(&("", 1));
    format!("{} {word}", grouped(value)).trim_end().to_owned()
}

/// The number with commas.
fn grouped(value: u64) -> String {
    match value / 1000 {
        0 => value.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), value % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_constants() {
        let source = "//! Bounds.\n
/// Bytes of
/// a ring.
pub const RING_BYTES: usize = 3 << 19;
/// Half.
pub const HALF_BYTES: usize =
    2 * (RING_BYTES / 4 + 512);
/// Time in milliseconds.
pub const WAIT_MS: u64 = 2_000;
/// Most.
pub const MOST: u32 = 65_536;
";
        let table = "| `RING_BYTES` | 1,536 KiB | Bytes of a ring. |
| `HALF_BYTES` | 769 KiB | Half. |
| `WAIT_MS` | 2 s | Time. |
| `MOST` | 65,536 | Most. |";
        assert_eq!(rows(source).join("\n"), table);
        assert!(offences(&Tree::of(&[(SOURCE, source), (PAGE, table)])).is_empty());
        let wrong = table.replace("2 s", "3 s");
        assert_eq!(offences(&Tree::of(&[(SOURCE, source), (PAGE, &wrong)])).len(), 2);
    }
}
