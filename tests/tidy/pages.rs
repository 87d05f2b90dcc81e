//! The pages for users: the README's length, links, and tables that must agree with the code.

use std::collections::BTreeSet;

use crate::Offence;
use crate::place::is_test;
use crate::tree::{File, Tree};

/// Lines of the README.
const README_LINES_MAX: usize = 170;

/// Words of the README, tables and programs included.
const README_WORDS_MAX: usize = 1200;

/// A table of flags: its page, its first heading, and the sources that declare the flags.
type FlagTable = (&'static str, &'static str, &'static [&'static str]);

/// All tables of flags.
const FLAGS: &[FlagTable] = &[
    ("docs/environment.md", "Flag of ringrun", &["crates/launcher/src/args.rs"]),
    ("docs/environment.md", "Flag of a perf program", &["bench/src/args.rs"]),
    (
        "docs/tuning.md",
        "Flag of `plan` and `explain`",
        &["crates/cli/src/plan/args.rs", "crates/cli/src/explain.rs"],
    ),
    ("docs/tuning.md", "Flag of `precision`", &["crates/cli/src/precision/mod.rs"]),
    ("docs/tuning.md", "Flag of `tune`", &["crates/cli/src/tune.rs"]),
];

/// The page with the variables of launchers.
const ENVIRONMENT: &str = "docs/environment.md";

/// The first heading of its table of launchers' variables.
const LAUNCHERS: &str = "Variable of a launcher or the system";

/// Beginnings of launchers' variables.
const LAUNCHERS_PREFIXES: &[&str] =
    &["MASTER_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_"];

/// Further variables that ringfold reads and others set.
const SET_BY_OTHERS: &[&str] = &["CUDA_VISIBLE_DEVICES", "HOME", "RANK", "WORLD_SIZE"];

/// The page that quotes error messages.
const FIRST_ERRORS: &str = "docs/two-machines.md";

/// The first heading of its table of messages.
const MESSAGES: &str = "Part of the message";

pub(crate) fn offences(tree: &Tree) -> Vec<Offence> {
    let mut offences = readme(tree.text("README.md"));
    offences.extend(FLAGS.iter().flat_map(|table| flags(tree, table)));
    offences.extend(launchers(tree));
    offences.extend(messages(tree));
    offences.extend(links(tree));
    offences
}

/// The README is short.
fn readme(text: &str) -> Vec<Offence> {
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    let too_long = [(lines, README_LINES_MAX, "lines"), (words, README_WORDS_MAX, "words")];
    let too_long = too_long.into_iter().filter(|(count, most, _)| count > most);
    too_long.map(|(count, most, of)| format!("README.md: {count} {of}, at most {most}")).collect()
}

/// Every flag has its row, and every row its flag.
fn flags(tree: &Tree, (page, heading, sources): &FlagTable) -> Vec<Offence> {
    let declared = sources.iter().flat_map(|path| declared(tree.text(path))).collect();
    differences(page, heading, &named(tree.text(page), heading), &declared)
}

/// Every variable of others that the code reads has its row, and every row such a variable.
fn launchers(tree: &Tree) -> Vec<Offence> {
    let is_read = |name: &&str| {
        let prefix = LAUNCHERS_PREFIXES.iter().find(|prefix| name.starts_with(**prefix));
        // Open MPI's parameters alone have small letters.
        let is_letter = |c: char| c.is_ascii_uppercase() || prefix == Some(&"OMPI_");
        let is_name = name.chars().all(|c| is_letter(c) || c == '_') && !name.ends_with('_');
        SET_BY_OTHERS.contains(name) || prefix.is_some() && is_name
    };
    let mut read = BTreeSet::new();
    for file in tree.rust().filter(|file| file.path.starts_with("crates/") && !is_suite(file)) {
        let code = file.code_and_strings();
        let quoted = code.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
        read.extend(quoted.filter(is_read).map(str::to_owned));
    }
    differences(ENVIRONMENT, LAUNCHERS, &named(tree.text(ENVIRONMENT), LAUNCHERS), &read)
}

/// Every message that a page quotes is one of the code's.
fn messages(tree: &Tree) -> Vec<Offence> {
    let sources = tree.rust().filter(|file| file.path.starts_with("crates/") && !is_suite(file));
    let sources: Vec<_> = sources.map(|file| unbroken(&file.text)).collect();
    let is_lost = |quoted: &String| !sources.iter().any(|source| source.contains(quoted.as_str()));
    let quoted = named(tree.text(FIRST_ERRORS), MESSAGES);
    let lost = quoted.into_iter().filter(is_lost);
    lost.map(|quoted| format!("{FIRST_ERRORS}: no error says `{quoted}`")).collect()
}

/// Every link to a file of the repository leads to one, and to a heading of it if it names one.
fn links(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in tree.0.iter().filter(|file| is_page(&file.path)) {
        let targets = file.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { beside(&file.path, path) };
            let folder = format!("{}/", path.trim_end_matches('/'));
            let is_there = tree.0.iter().any(|it| it.path == path || it.path.starts_with(&folder));
            let mut headings = tree.text(&path).lines().filter(|line| line.starts_with('#'));
            if !is_there || !heading.is_empty() && !headings.any(|line| anchor(line) == heading) {
                offences.push(format!("{}: nothing is at {target}", file.path));
            }
        }
    }
    offences
}

fn is_page(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") && path.ends_with(".md")
}

/// The path of `link`, which is relative to the folder of `page`.
fn beside(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor of a heading, as sites for Markdown make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn is_suite(file: &File) -> bool {
    is_test(&file.path) || file.stem() == "tests"
}

/// The source with each string of several lines in one.
fn unbroken(text: &str) -> String {
    let lines: Vec<_> = text.split("\\\n").map(str::trim_start).collect();
    lines.concat()
}

/// The words in backticks in the first cells of the table with this first heading.
fn named(page: &str, heading: &str) -> BTreeSet<String> {
    let head = format!("| {heading} |");
    let rows = page.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
    let cells = rows.map_while(|row| row.strip_prefix('|'));
    let cells = cells.filter_map(|row| row.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn differences(
    page: &str,
    table: &str,
    written: &BTreeSet<String>,
    known: &BTreeSet<String>,
) -> Vec<Offence> {
    let missing = known.difference(written);
    let missing = missing.map(|name| format!("{page}: {name} is not in the table \"{table}\""));
    let invented = written.difference(known);
    let invented = invented.map(|name| format!("{page}: \"{table}\": there is no {name}"));
    missing.chain(invented).collect()
}

/// The flags that the structure `Args` of a source declares to clap, except hidden ones.
fn declared(source: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    let body = source.split_once("struct Args {").map_or("", |(_, body)| body);
    let mut attributes = String::new();
    for line in body.lines().take_while(|line| *line != "}").map(str::trim) {
        match field(line) {
            Some(name) => flags.extend(flags_of(name, &std::mem::take(&mut attributes))),
            None if line.starts_with("//") => {}
            None => attributes += line,
        }
    }
    flags
}

/// The name of the field that a line declares.
fn field(line: &str) -> Option<&str> {
    let (name, _) = line.strip_prefix("pub(crate) ").unwrap_or(line).split_once(": ")?;
    name.chars().all(|c| c.is_ascii_lowercase() || c == '_').then_some(name)
}

/// The flags of one field, from its attributes.
fn flags_of(name: &str, attributes: &str) -> Vec<String> {
    let text = attributes.replace("#[arg(", ",").replace(")]", ",");
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if words.contains(&"hide = true") {
        return Vec::new();
    }
    let of_word = |word: &&str| match word.split_once(" = ") {
        None if *word == "short" => Some(format!("-{}", &name[..1])),
        None if *word == "long" => Some(format!("--{}", name.replace('_', "-"))),
        Some(("short" | "visible_short_alias", letter)) => {
            Some(format!("-{}", letter.trim_matches('\'')))
        }
        Some(("long" | "visible_alias", word)) => Some(format!("--{}", word.trim_matches('"'))),
        _ => None,
    };
    words.iter().filter_map(of_word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_readme_is_found() {
        assert!(readme(&"word\n".repeat(README_LINES_MAX)).is_empty());
        assert_eq!(readme(&"word\n".repeat(README_LINES_MAX + 1)).len(), 1);
        assert_eq!(readme(&"word ".repeat(README_WORDS_MAX + 1)).len(), 1);
    }

    #[test]
    fn flags_are_in_their_table() {
        let source = "pub(crate) struct Args {
    /// A number: 1 or 2
    #[arg(short = 'n', long = \"np\", visible_short_alias = 'c', value_name = \"RANKS\")]
    #[arg(value_parser = parse)]
    pub(crate) ranks: Option<usize>,
    #[arg(
        long, value_enum,
    )]
    bind_to: BindTo,
    #[arg(short, long, default_value_t = 1, hide = true)]
    memory: usize,
    #[arg(required = true)]
    command: Vec<OsString>,
}
struct Other { #[arg(long)] x: u8 }";
        let all = ["--bind-to", "--np", "-c", "-n"];
        assert_eq!(declared(source), all.map(str::to_owned).into());
        let page = "| Flag | Meaning |\n|---|---|\n| `-n`, `-c`, `--np` | `x` |\n| `-x` | |\n";
        let tree = Tree::of(&[("a.rs", source), ("a.md", page)]);
        assert_eq!(flags(&tree, &("a.md", "Flag", &["a.rs"])).len(), 2, "--bind-to and -x");
    }

    #[test]
    fn variables_of_launchers_are_in_their_table() {
        let code = "f(\"SLURM_PROCID\", \"HOME\", \"SLURM_\", \"see RANK\") // \"PMI_FD\"";
        let source = ("crates/a/src/lib.rs", code);
        let page = format!("| {LAUNCHERS} | Meaning |\n|---|---|\n| `SLURM_PROCID`, `HOME` | |\n");
        assert!(launchers(&Tree::of(&[source, (ENVIRONMENT, &page)])).is_empty());
        assert_eq!(launchers(&Tree::of(&[source])).len(), 2);
        assert_eq!(launchers(&Tree::of(&[(ENVIRONMENT, &page)])).len(), 2);
    }

    #[test]
    fn quoted_messages_exist() {
        let source = ("crates/a/src/lib.rs", "\"host {host} has gone: \\\n     say --host\"");
        let page = format!("| {MESSAGES} |\n|---|\n| `has gone: say` |\n| `is lost` |\n");
        let found = messages(&Tree::of(&[source, (FIRST_ERRORS, &page)]));
        assert_eq!(found, [format!("{FIRST_ERRORS}: no error says `is lost`")]);
    }

    #[test]
    fn links_lead_somewhere() {
        let other = ("docs/b.md", "# B\n## Ports, and (more) `x`\n");
        let good = "[a](b.md) [b](b.md#ports-and-more-x) [c](../tests) [d](#here) \
                    [e](https://a.example/b)\n# Here";
        let tests = ("tests/x/y.rs", "");
        assert_eq!(links(&Tree::of(&[other, tests, ("docs/a.md", good)])), Vec::<Offence>::new());
        let bad = "[a](c.md) [b](b.md#nothing) [c](tests)";
        assert_eq!(links(&Tree::of(&[other, tests, ("docs/a.md", bad)])).len(), 3);
    }
}
