//! Which devices may be used, in the words that users know from other libraries.

use std::str::FromStr;

use ringfold_topology::fabric::Place;

/// Names of devices, or what they begin with, each maybe with a port: `mlx5`, `=mlx5_0:1,mlx5_2`,
/// `^mlx5_3`. A leading `^` excludes what is named, and `=` means exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    excludes: bool,
    is_exact: bool,
    entries: Vec<(String, Option<u8>)>,
}

/// An entry's port is no number from 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what follows a colon is a port's number, from 1 to 255")]
pub struct InvalidFilter;

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let excludes = text.starts_with('^');
        let text = text.strip_prefix('^').unwrap_or(text);
        let is_exact = text.starts_with('=');
        let text = text.strip_prefix('=').unwrap_or(text);
        let entry = |entry: &str| match entry.rsplit_once(':') {
            None => Ok((entry.to_owned(), None)),
            Some((name, port)) => match port.parse() {
                Ok(port @ 1..) => Ok((name.to_owned(), Some(port))),
                _ => Err(InvalidFilter),
            },
        };
        let entries = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(Self { excludes, is_exact, entries: entries.map(entry).collect::<Result<_, _>>()? })
    }
}

impl Filter {
    /// Whether this port of that device may be used.
    #[must_use]
    pub fn allows(&self, device: &str, port: u8) -> bool {
        if self.entries.is_empty() {
            return true;
        }
        let matches = |(name, only): &(String, Option<u8>)| {
            let is_named = if self.is_exact { device == name } else { device.starts_with(name) };
            is_named && only.is_none_or(|only| only == port)
        };
        self.entries.iter().any(matches) != self.excludes
    }

    /// The rail and plane that the user declared for this port of that device.
    #[must_use]
    pub fn place(&self, _device: &str, _port: u8) -> Option<Place> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(text: &str) -> Vec<&'static str> {
        let filter = text.parse::<Filter>().unwrap();
        let ports = [("mlx5_0", 1), ("mlx5_0", 2), ("mlx5_1", 1), ("mlx5_10", 1), ("rxe0", 1)];
        let names = ["mlx5_0:1", "mlx5_0:2", "mlx5_1:1", "mlx5_10:1", "rxe0:1"];
        let is_allowed = |at: &usize| filter.allows(ports[*at].0, ports[*at].1);
        (0..ports.len()).filter(is_allowed).map(|at| names[at]).collect()
    }

    #[test]
    fn names_select() {
        let all = ["mlx5_0:1", "mlx5_0:2", "mlx5_1:1", "mlx5_10:1", "rxe0:1"];
        assert_eq!(allowed(""), all);
        assert_eq!(allowed("mlx5"), all[..4]);
        assert_eq!(allowed("mlx5_1"), all[2..4]);
        assert_eq!(allowed("=mlx5_1"), all[2..3]);
        assert_eq!(allowed("=mlx5_0:2, rxe0"), [all[1], all[4]]);
        assert_eq!(allowed("^mlx5"), all[4..]);
        assert_eq!(allowed("^=mlx5_0:1,mlx5_1"), [all[1], all[3], all[4]]);
        assert_eq!(allowed("^"), all);
        assert!(allowed("mlx4").is_empty());
    }

    /// Else it would be part of a name that no device has, and leave all of them out.
    #[test]
    fn a_port_is_a_number() {
        for text in ["mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:-1", "^=mlx5_0,mlx5_1:x", ":a"] {
            assert_eq!(text.parse::<Filter>(), Err(InvalidFilter), "{text}");
        }
    }
}
