//! The hosts that a job may use, as users write them: `--host a:2,b:2` and host files. This module
//! does no I/O.
//!
//! A host file has one host a line: `name`, `name:2` or `name slots=2`. `#` starts a comment. A
//! host without a number has one slot. A host named twice has the sum of its slots. A name is any
//! name that the agent (ssh) understands, including `user@name`. IPv6 addresses stand in brackets
//! before a number. The parser refuses every name that an agent could take for an option.

use std::net::Ipv6Addr;

use ringfold_types::limits;

/// A host and the number of ranks that may run there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name for the agent.
    pub name: String,
    /// The number of ranks that it takes before it is oversubscribed, at least 1.
    pub slots: usize,
}

/// Why a list of hosts could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// The file or the list names no host.
    #[error("no host is named: write one host a line, as in `node1 slots=2`")]
    Empty,
    /// A name is invalid, or could be an option of the agent.
    #[error(
        "{place}: '{name}' is not a host: write NAME, USER@NAME or an IPv6 address in brackets; \
         names have letters, digits, '-', '.' and '_', and begin with a letter or a digit"
    )]
    Name {
        /// Its position.
        place: Place,
        /// The written text, shortened.
        name: String,
    },
    /// The slots are not a number from 1 to `limits::RANKS_MAX`.
    #[error("{place}: '{slots}' is not a number of slots from 1 to {}", limits::RANKS_MAX)]
    Slots {
        /// Its position.
        place: Place,
        /// The written text, shortened.
        slots: String,
    },
    /// A word after the host is unknown.
    #[error("{place}: '{word}' is unknown: only `slots=N` may follow a host")]
    Word {
        /// Its position.
        place: Place,
        /// The written text, shortened.
        word: String,
    },
    /// There are more hosts or slots than a job may have ranks.
    #[error("more than {} slots", limits::RANKS_MAX)]
    TooMany,
}

/// A position in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A line of the host file, counted from 1.
    Line(usize),
    /// An item of `--host`, counted from 1.
    Item(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line(n) => write!(f, "line {n}"),
            Self::Item(n) => write!(f, "host {n} of the list"),
        }
    }
}

/// Parses a host file's text.
///
/// # Errors
/// The error names the first invalid line.
pub fn parse_file(text: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let place = Place::Line(number);
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut host = parse_item(first, place)?;
        for word in words {
            let Some(slots) = word.strip_prefix("slots=") else {
                return Err(HostsError::Word { place, word: shorten(word) });
            };
            host.slots = parse_slots(slots, place)?;
        }
        add(&mut hosts, host)?;
    }
    if hosts.is_empty() { Err(HostsError::Empty) } else { Ok(hosts) }
}

/// Parses the value of `--host`: `a:2,b:2`.
///
/// # Errors
/// The error names the first invalid item.
pub fn parse_list(text: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for (item, number) in text.split(',').zip(1..) {
        add(&mut hosts, parse_item(item.trim(), Place::Item(number))?)?;
    }
    Ok(hosts)
}

fn parse_item(item: &str, place: Place) -> Result<Host, HostsError> {
    let (name, slots) = match item.rsplit_once(':') {
        // Two colons or more without brackets are an IPv6 address without a number.
        Some((name, slots)) if !name.contains(':') || name.ends_with(']') => (name, Some(slots)),
        _ => (item, None),
    };
    let name = parse_name(name).ok_or_else(|| HostsError::Name { place, name: shorten(name) })?;
    let slots = slots.map_or(Ok(1), |slots| parse_slots(slots, place))?;
    Ok(Host { name, slots })
}

/// Parses `HOST` or `USER@HOST` for an agent, without brackets.
fn parse_name(text: &str) -> Option<String> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    // A user of a domain is `user@domain`.
    if user.is_some_and(|user| !user.split('@').all(is_word)) {
        return None;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(bare) => is_ipv6(bare),
        None => is_word(host) || is_ipv6(host),
    };
    let host = bare.unwrap_or(host);
    is_host.then(|| user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")))
}

/// Whether the text is an IPv6 address; `%` and an interface may follow.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "lo"));
    address.parse::<Ipv6Addr>().is_ok() && is_word(zone)
}

/// Whether no program takes the name for an option, and no shell for more than a word.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

fn parse_slots(text: &str, place: Place) -> Result<usize, HostsError> {
    let wrong = || HostsError::Slots { place, slots: shorten(text) };
    let slots = text.parse().map_err(|_| wrong())?;
    if (1..=limits::RANKS_MAX).contains(&slots) { Ok(slots) } else { Err(wrong()) }
}

fn add(hosts: &mut Vec<Host>, host: Host) -> Result<(), HostsError> {
    match hosts.iter_mut().find(|known| known.name == host.name) {
        Some(known) => known.slots += host.slots,
        None => hosts.push(host),
    }
    let total = hosts.iter().map(|host| host.slots).sum::<usize>();
    if total > limits::RANKS_MAX { Err(HostsError::TooMany) } else { Ok(()) }
}

/// The beginning of `text`, escaped for a terminal.
fn shorten(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    //! Lists and files of hosts, right and wrong.

    use proptest::prelude::{any, prop_assert, proptest};

    use super::{Host, HostsError, Place, parse_file, parse_list};

    fn host(name: &str, slots: usize) -> Host {
        Host { name: name.to_owned(), slots }
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list("a:2,b:3"), Ok(vec![host("a", 2), host("b", 3)]));
        assert_eq!(parse_list("a, b:1,a"), Ok(vec![host("a", 2), host("b", 1)]));
        assert_eq!(parse_list("me@a.b-c:4"), Ok(vec![host("me@a.b-c", 4)]));
        assert_eq!(parse_list("fe80::1%eth0"), Ok(vec![host("fe80::1%eth0", 1)]));
        assert_eq!(parse_list("[::1]:3,[::2]"), Ok(vec![host("::1", 3), host("::2", 1)]));
    }

    #[test]
    fn files() {
        let text = "# nodes\nn1 slots=2 # fast\n\n n2:3\r\nn3\nn1\n";
        assert_eq!(parse_file(text), Ok(vec![host("n1", 3), host("n2", 3), host("n3", 1)]));
    }

    #[test]
    fn mistakes_are_named() {
        let place = Place::Line(2);
        assert_eq!(parse_file("# only\n"), Err(HostsError::Empty));
        assert_eq!(
            parse_file("a\nb cores=2"),
            Err(HostsError::Word { place, word: "cores=2".into() })
        );
        assert_eq!(parse_file("a\nb slots=0"), Err(HostsError::Slots { place, slots: "0".into() }));
        let place = Place::Item(1);
        assert_eq!(parse_list("a:x"), Err(HostsError::Slots { place, slots: "x".into() }));
        assert_eq!(
            parse_list("-oProxyCommand=x"),
            Err(HostsError::Name { place, name: "-oProxyCommand=x".into() })
        );
        assert_eq!(parse_list(""), Err(HostsError::Name { place, name: String::new() }));
        assert_eq!(parse_list("a:65536,b"), Err(HostsError::TooMany));
    }

    #[test]
    fn names_that_an_agent_could_take_for_options_are_refused() {
        for name in [
            "-Fcfg",
            "[-Fcfg]",
            "[-Fcfg]:2",
            "-oProxyCommand=x",
            "-l@node",
            "[-l@node]",
            "me@-Fcfg",
            "me@[-Fcfg]",
            "@node",
            "me@",
            "a@-b@node",
            "[node]",
            "[me@node]",
            "[]",
            "[::1",
            "::1]",
            "fe80::1%-x",
            "fe80::1%",
            "a%b",
            ":",
            "a:b:c",
            ".",
            "a/b",
            "$(reboot)",
            "node;x",
            "n\u{f6}de",
            "\u{1b}[2J",
        ] {
            for hosts in [parse_list(name), parse_file(name)] {
                let error = hosts.expect_err(name).to_string();
                assert!(error.contains("is not a host: write NAME"), "{error}");
                let place = ["host 1 of the list: '", "line 1: '"];
                assert!(place.iter().any(|place| error.starts_with(place)), "{error}");
                assert!(!error.contains('\u{1b}'), "{error}");
            }
        }
        let error = parse_file("good\n\n[-Fcfg] slots=2\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: '[-Fcfg]' is not a host"), "{error}");
        assert_eq!(parse_list("me@[::1]:3,a@b@c"), Ok(vec![host("me@::1", 3), host("a@b@c", 1)]));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_within_limits(text in any::<String>()) {
            for hosts in [parse_file(&text), parse_list(&text)].into_iter().flatten() {
                prop_assert!(!hosts.is_empty());
                prop_assert!(hosts.iter().all(|h| h.slots >= 1 && !h.name.starts_with('-')));
            }
        }

        #[test]
        fn hosts_are_words_and_addresses(text in "[-a:@%\\[\\].,=/ #1]{0,12}") {
            for host in [parse_file(&text), parse_list(&text)].into_iter().flatten().flatten() {
                prop_assert!(host.name.split('@').all(|part| !part.starts_with('-')));
                prop_assert!(!host.name.contains(['[', ']', ' ', '/', '=', '#']));
            }
        }

        #[test]
        fn written_hosts_are_parsed(
            names in proptest::collection::btree_map("[a-z][a-z0-9.-]{0,9}", 1..9_usize, 1..9),
        ) {
            let hosts = names.iter().map(|(n, s)| host(n, *s)).collect::<Vec<_>>();
            let list = names.iter().map(|(n, s)| format!("{n}:{s}")).collect::<Vec<_>>();
            let file = names.iter().map(|(n, s)| format!("{n}  slots={s} # x\n"));
            prop_assert!(parse_list(&list.join(",")) == Ok(hosts.clone()));
            prop_assert!(parse_file(&file.collect::<String>()) == Ok(hosts));
        }
    }
}
