//! Telling code from comments and strings, well enough for rules about words.

/// What is left by `blanked`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Code alone; strings lose their contents.
    Code,
    /// Code and strings.
    CodeAndStrings,
}

/// The source with everything else replaced by spaces, so that lines and columns stay.
pub(crate) fn blanked(source: &str, keep: Keep) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut kept = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (length, visible) = if let Some(length) = comment(rest) {
            (length, false)
        } else if let Some(length) = string(rest, at.checked_sub(1).map(|before| chars[before])) {
            (length, keep == Keep::CodeAndStrings)
        } else {
            (1, true)
        };
        let blank = |c: &char| if visible || *c == '\n' { *c } else { ' ' };
        kept.extend(rest[..length].iter().map(blank));
        at += length;
    }
    kept
}

/// Length of the comment that begins here.
fn comment(rest: &[char]) -> Option<usize> {
    if rest.starts_with(&['/', '/']) {
        return Some(rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with(&['/', '*']) {
        return None;
    }
    let (mut depth, mut at) = (1, 2);
    while depth > 0 && at < rest.len() {
        let step = match rest[at..] {
            ['/', '*', ..] => {
                depth += 1;
                2
            }
            ['*', '/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
    }
    Some(at)
}

/// Length of the string or character literal that begins here, after the character `before`.
fn string(rest: &[char], before: Option<char>) -> Option<usize> {
    match rest {
        ['"', ..] => Some(quoted(rest, '"')),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => Some(quoted(rest, '\'')),
        ['r', '"' | '#', ..] if !before.is_some_and(is_word_but_prefix) => raw(rest),
        _ => None,
    }
}

/// `b` and `c` may stand before a raw string; any other letter makes `r` the end of a name.
fn is_word_but_prefix(c: char) -> bool {
    is_word(c) && c != 'b' && c != 'c'
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn raw(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let mut end = vec!['"'];
    end.resize(1 + hashes, '#');
    let start = 2 + hashes;
    let found = rest[start..].windows(end.len()).position(|window| window == end);
    Some(found.map_or(rest.len(), |at| start + at + end.len()))
}

/// Whether `c` can be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in `line` with no letter, digit or underscore next to it.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[test]
fn comments_and_strings_are_blanked() {
    let source = "a(\"b // c\"); // d\n/* e /* f */ g */ h('\"', '\\'', r#\"i\"j\"#, k::<'l>());";
    let code = blanked(source, Keep::Code);
    for gone in ['b', 'c', 'd', 'e', 'f', 'g', 'i', 'j', '"'] {
        assert!(!code.contains(gone), "{gone} in {code}");
    }
    for kept in ['a', 'h', 'k', 'l'] {
        assert!(code.contains(kept), "{kept} not in {code}");
    }
    assert_eq!(code.lines().count(), source.lines().count());
    assert_eq!(code.len(), source.len());
    let both = blanked(source, Keep::CodeAndStrings);
    assert!(both.contains("b // c") && !both.contains('d') && both.contains("i\"j"));
}

#[test]
fn words_end_where_names_end() {
    assert!(has_word("an unsafe block", "unsafe"));
    assert!(has_word("(unsafe)", "unsafe"));
    assert!(!has_word("forbid(unsafe_code)", "unsafe"));
}
