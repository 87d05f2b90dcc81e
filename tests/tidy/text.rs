//! Rules about lines and words in files.

use crate::Offence;
use crate::rust::has_word;
use crate::tree::Tree;

/// The most characters of a line, as in `rustfmt.toml`. rustfmt does not wrap comments and strings.
const LINE_CHARS_MAX: usize = 100;

/// Words that mark unfinished or duplicate code. They are written in halves, because the rule
/// applies to this file too.
const WORDS: &[&str] = &[
    concat!("leg", "acy"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("TO", "DO"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Endings of names that mark duplicate code.
const ENDINGS: &[&str] = &[concat!("_v", "2"), concat!("_o", "ld")];

/// Folders of a particular machine.
const MACHINES: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The only allowed registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn offences(tree: &Tree) -> Vec<Offence> {
    let mut offences = lockfile("Cargo.lock", tree.text("Cargo.lock"));
    for file in &tree.0 {
        let path = &file.path;
        if file.is_rust() && !file.text.starts_with("//!") {
            offences.push(format!("{path}:1: does not begin with `//!` and why it exists"));
        }
        for (index, line) in file.text.lines().enumerate() {
            let complaints = complaints(path, line);
            offences.extend(complaints.map(|what| format!("{path}:{}: {what}", index + 1)));
        }
    }
    offences
}

/// Returns the offences of one line.
fn complaints(path: &str, line: &str) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let (is_rust, is_script) = (path.ends_with(".rs"), path.starts_with(".ci/"));
    let is_source = is_rust || is_script || path.ends_with(".toml");
    if (is_rust || is_script) && line.chars().count() > LINE_CHARS_MAX {
        found.push(format!("more than {LINE_CHARS_MAX} characters"));
    }
    if is_source && !line.is_ascii() {
        found.push("not ASCII".to_owned());
    }
    if is_source || path.ends_with(".md") {
        let ends = |ending: &&&str| ends_a_name(line, ending);
        let words = WORDS.iter().filter(|word| has_word(line, word));
        found.extend(words.chain(ENDINGS.iter().filter(ends)).map(|word| format!("`{word}`")));
    }
    let machines = MACHINES.iter().filter(|place| line.contains(**place));
    found.extend(machines.map(|place| format!("`{place}` is a place of one machine")));
    found.into_iter()
}

fn ends_a_name(line: &str, ending: &str) -> bool {
    line.match_indices(ending)
        .any(|(at, _)| !line[at + ending.len()..].chars().next().is_some_and(crate::rust::is_word))
}

fn lockfile(path: &str, text: &str) -> Vec<Offence> {
    let is_foreign =
        |line: &&str| line.starts_with("source = ") && *line != format!("source = \"{REGISTRY}\"");
    text.lines().filter(is_foreign).map(|line| format!("{path}: {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, line: &str) -> usize {
        complaints(path, line).count()
    }

    #[test]
    fn lines_are_short_and_ascii() {
        assert_eq!(count("x.rs", &"x".repeat(101)), 1);
        assert_eq!(count("x.rs", &"x".repeat(100)), 0);
        assert_eq!(count("x.toml", "# \u{2026}"), 1);
        assert_eq!(count("x.md", "\u{2026}"), 0);
    }

    #[test]
    fn unfinished_business_is_found() {
        for word in WORDS {
            assert_eq!(count("x.rs", &format!("a {word} b")), 1, "{word}");
        }
        for ending in ENDINGS {
            assert_eq!(count("x.rs", &format!("let frame{ending} = 1;")), 1, "{ending}");
            assert_eq!(count("x.rs", &format!("let frame{ending}er = 1;")), 0, "{ending}");
        }
        assert_eq!(count("x.rs", "MAXXXX"), 0);
    }

    #[test]
    fn machines_are_found() {
        for place in MACHINES {
            assert_eq!(count("notes.txt", &format!("see {place}x")), 1, "{place}");
        }
        let lock = format!("source = \"{REGISTRY}\"\nsource = \"registry+https://mirror/\"\n");
        assert_eq!(lockfile("Cargo.lock", &lock).len(), 1);
    }
}
