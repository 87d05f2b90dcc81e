//! Which hosts a job may use, as people write it: `--host a:2,b:2` and host files. Pure.
//!
//! A host file has one host a line: `name`, `name:2` or `name slots=2`; `#` starts a comment. A
//! host without a number has one slot; a host named twice has the sum. A name is what the agent
//! (ssh) understands, so `user@name` will do; IPv6 addresses stand in brackets before a number.
//! Nothing that an agent could take for an option passes.

use std::net::Ipv6Addr;

use ringfold_types::limits;

/// A host and how many ranks may run there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What the agent calls it.
    pub name: String,
    /// Ranks that it takes before it is oversubscribed, at least 1.
    pub slots: usize,
}

/// Why a list of hosts could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// The file, or the list, names nobody.
    #[error("no host is named: write one host a line, as in `node1 slots=2`")]
    Empty,
    /// A name that no agent should see.
    #[error(
        "{place}: '{name}' is not a host: write NAME, USER@NAME or an IPv6 address in brackets; \
         names have letters, digits, '-', '.' and '_', and begin with a letter or a digit"
    )]
    Name {
        /// Where it stands.
        place: Place,
        /// What was written, shortened.
        name: String,
    },
    /// Slots that are not a number from 1 to `limits::RANKS_MAX`.
    #[error("{place}: '{slots}' is not a number of slots from 1 to {}", limits::RANKS_MAX)]
    Slots {
        /// Where it stands.
        place: Place,
        /// What was written, shortened.
        slots: String,
    },
    /// A word after the host that means nothing here.
    #[error("{place}: '{word}' is not understood: after a host comes only `slots=N`")]
    Word {
        /// Where it stands.
        place: Place,
        /// What was written, shortened.
        word: String,
    },
    /// More hosts or slots than ranks can be.
    #[error("more than {} slots", limits::RANKS_MAX)]
    TooMany,
}

/// Where in the input something stands.
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

/// Reads a host file's text.
///
/// # Errors
/// Names the first line that is wrong.
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

/// Reads the value of `--host`: `a:2,b:2`.
///
/// # Errors
/// Names the first item that is wrong.
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

/// `HOST` or `USER@HOST` as an agent understands it, without brackets.
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

/// An IPv6 address; `%` and an interface may follow.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "lo"));
    address.parse::<Ipv6Addr>().is_ok() && is_word(zone)
}

/// A name that no program takes for an option and no shell for anything but a word.
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

/// The beginning of `text`, fit for a terminal.
fn shorten(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
