//! Separates code from comments and strings, well enough for the rules of this suite.

/// The parts of a source that `blanked` keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Code only; strings lose their contents.
    Code,
    /// Code and strings.
    CodeAndStrings,
}

/// Replaces the other parts of a source by spaces. Lines and columns stay.
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

/// Returns the length of the comment that begins here.
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

/// Returns the length of the string or character literal that begins here, after `before`.
fn string(rest: &[char], before: Option<char>) -> Option<usize> {
    match rest {
        ['"', ..] => Some(quoted(rest, '"')),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => Some(quoted(rest, '\'')),
        ['r', '"' | '#', ..] if !before.is_some_and(is_word_but_prefix) => raw(rest),
        _ => None,
    }
}

/// Returns whether an `r` after `c` ends a name: after any letter except `b` and `c`, which may
/// precede a raw string.
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

/// A name, a number, a lifetime, `::` or a single punctuation mark, with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// The line, counted from 1.
    pub(crate) line: usize,
}

/// Returns the tokens of code without comments and strings.
pub(crate) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, mut rest) in code.lines().enumerate() {
        while let Some(first) = rest.chars().next() {
            let after = &rest[first.len_utf8()..];
            let length = if is_word(first) || first == '\'' {
                first.len_utf8() + after.find(|c| !is_word(c)).unwrap_or(after.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                tokens.push(Token { text: &rest[..length], line: index + 1 });
            }
            rest = &rest[length..];
        }
    }
    tokens
}

/// Returns the tokens without test items: those under `#[test]` or under a `#[cfg(..)]` that
/// requires `test`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = attribute(&tokens[at..]);
        if is_of_tests(&tokens[at..at + attribute]) {
            at += attribute;
            at += item(&tokens[at..]);
        } else {
            let taken = attribute.max(1);
            kept.extend_from_slice(&tokens[at..at + taken]);
            at += taken;
        }
    }
    kept
}

/// Returns the number of tokens of the attribute that begins here; 0 without an attribute.
fn attribute(tokens: &[Token<'_>]) -> usize {
    match tokens {
        [hash, bracket, ..] if (hash.text, bracket.text) == ("#", "[") => 1 + group(&tokens[1..]),
        _ => 0,
    }
}

fn is_of_tests(attribute: &[Token<'_>]) -> bool {
    let words: Vec<_> = attribute.iter().map(|token| token.text).collect();
    matches!(
        words[..],
        ["#", "[", "test", "]"]
            | ["#", "[", "cfg", "(", "test", ..]
            | ["#", "[", "cfg", "(", "all", "(", "test", ..]
    )
}

/// Returns the number of tokens of the group that the first token opens.
fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => (),
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Returns the number of tokens of the item, statement, field or variant that begins here.
fn item(tokens: &[Token<'_>]) -> usize {
    /// Keywords of items that end with their block, or with a semicolon without one.
    const BLOCKS: &[&str] =
        &["fn", "mod", "struct", "enum", "union", "impl", "trait", "macro_rules"];
    /// Keywords of items whose values may contain blocks.
    const VALUES: &[&str] = &["use", "const", "static", "type", "let"];
    let mut at = 0;
    let mut kind = "";
    while at < tokens.len() {
        let text = tokens[at].text;
        if kind.is_empty() && (BLOCKS.contains(&text) || VALUES.contains(&text)) || kind == "const"
        {
            kind = if text == "fn" || kind != "const" { text } else { "value" };
        }
        match text {
            ")" | "]" | "}" => return at,
            "(" | "[" => at += group(&tokens[at..]),
            "{" => {
                at += group(&tokens[at..]);
                if BLOCKS.contains(&kind) {
                    return at;
                }
            }
            ";" => return at + 1,
            "," if kind.is_empty() => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Returns whether `c` can be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether `line` has `word` with no letter, digit or underscore next to it.
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

#[test]
fn tokens_are_names_paths_and_marks() {
    let texts = |code| tokens(code).into_iter().map(|token| token.text).collect::<Vec<_>>();
    assert_eq!(texts("a::b1 <'c>\n;"), ["a", "::", "b1", "<", "'c", ">", ";"]);
    assert_eq!(tokens("a\n\n b")[1], Token { text: "b", line: 3 });
}

#[test]
fn items_of_tests_are_left_out() {
    let left = |code: &str| {
        let kept = without_tests(&tokens(code)).into_iter().map(|token| token.text.to_owned());
        kept.collect::<Vec<_>>().join("")
    };
    for gone in [
        "#[cfg(test)] mod tests { use a; fn f() {} }",
        "#[cfg(test)] #[path = x] mod tests;",
        "#[cfg(all(test, not(miri)))] use a::{b, c};",
        "#[cfg(test)] pub(crate) fn f<A, B>(a: [A; 2]) -> B { g(); }",
        "#[cfg(test)] pub(crate) const fn f() {}",
        "#[cfg(test)] const A: B = B { c: 1 };",
        "#[cfg(test)] impl A { fn b() {} }",
        "#[cfg(test)] a: (B, C),",
        "#[test] fn a() { b::c() }",
    ] {
        assert_eq!(left(&format!("{gone} z")), "z", "{gone}");
    }
    assert_eq!(left("struct A { #[cfg(test)] b: C } z"), "structA{}z");
    let kept = "#[cfg(not(test))] mod a; #[cfg(feature)] mod b; z";
    assert_eq!(left(kept), kept.replace(' ', ""));
}
