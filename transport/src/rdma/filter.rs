//! The devices and ports that may be used, in NCCL's syntax.

use std::str::FromStr;

use ringfold_topology::fabric::Place;

/// Names of devices, or prefixes of names: `mlx5`, `=mlx5_0:1,mlx5_2`, `^mlx5_3`. A leading `^`
/// excludes the entries, and `=` stands for whole names.
///
/// An entry is `device[:port[:rail[:plane]]]`, as NCCL has it. An empty field is a field that is
/// left out. The first entry that matches a port declares its rail and plane. A rail without a
/// plane is on plane 0, and `-1` stands for no rail or plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    excludes: bool,
    is_exact: bool,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    device: String,
    port: Option<u8>,
    place: Option<Place>,
}

/// The reason why a text is not a `Filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFilter {
    /// The field after the first colon is not a port.
    #[error("the port after a device's first colon is a number from 1 to 255, or empty")]
    Port,
    /// The field after the second colon is not a rail.
    #[error("the rail after a device's second colon is a number from 0 to 65535, or empty")]
    Rail,
    /// The field after the third colon is not a plane.
    #[error("the plane after a device's third colon is a number from 0 to 255, or empty")]
    Plane,
    /// An entry has a plane and no rail.
    #[error("a plane needs a rail before it, as in mlx5_0:1:0:1 (device:port:rail:plane)")]
    PlaneWithoutRail,
    /// An entry has more fields than there are.
    #[error("an entry has at most four fields, as in mlx5_0:1:0:1 (device:port:rail:plane)")]
    Fields,
    /// An entry has no device.
    #[error("an entry begins with a device, as in mlx5_0:1:0:1 (device:port:rail:plane)")]
    Device,
    /// An excluded entry has a rail.
    #[error("a list that begins with ^ names ports to leave out, which have no rail or plane")]
    ExcludedRail,
    /// Two entries declare different places for one port.
    #[error("two entries name one device and port, with different rails or planes")]
    Twice,
}

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let excludes = text.starts_with('^');
        let text = text.strip_prefix('^').unwrap_or(text);
        let is_exact = text.starts_with('=');
        let text = text.strip_prefix('=').unwrap_or(text);
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let entries = parts.map(Entry::from_str).collect::<Result<Vec<_>, _>>()?;
        if excludes && entries.iter().any(|entry| entry.place.is_some()) {
            return Err(InvalidFilter::ExcludedRail);
        }
        let is_named_twice = |(at, entry): (usize, &Entry)| {
            let mut before = entries[..at].iter();
            before.any(|it| (&it.device, it.port) == (&entry.device, entry.port) && it != entry)
        };
        if entries.iter().enumerate().any(is_named_twice) {
            return Err(InvalidFilter::Twice);
        }
        Ok(Self { excludes, is_exact, entries })
    }
}

impl FromStr for Entry {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let mut fields = text.split(':').map(str::trim);
        let device = fields.next().filter(|device| !device.is_empty());
        let device = device.ok_or(InvalidFilter::Device)?.to_owned();
        let port = number(fields.next(), InvalidFilter::Port)?;
        if port == Some(0) {
            return Err(InvalidFilter::Port);
        }
        let rail = number(fields.next().filter(|it| *it != UNASSIGNED), InvalidFilter::Rail)?;
        let plane = number(fields.next().filter(|it| *it != UNASSIGNED), InvalidFilter::Plane)?;
        if fields.next().is_some() {
            return Err(InvalidFilter::Fields);
        }
        let place = match (rail, plane) {
            (Some(rail), plane) => Some(Place { rail, plane: plane.unwrap_or(0) }),
            (None, None) => None,
            (None, Some(_)) => return Err(InvalidFilter::PlaneWithoutRail),
        };
        Ok(Self { device, port, place })
    }
}

/// NCCL's word for a port without a rail or plane.
const UNASSIGNED: &str = "-1";

/// Reads a field that may be empty or absent.
fn number<T: FromStr>(
    field: Option<&str>,
    invalid: InvalidFilter,
) -> Result<Option<T>, InvalidFilter> {
    let field = field.filter(|field| !field.is_empty());
    field.map(|field| field.parse().map_err(|_| invalid)).transpose()
}

impl Filter {
    /// Returns whether this port of that device may be used.
    #[must_use]
    pub fn allows(&self, device: &str, port: u8) -> bool {
        self.entries.is_empty() || self.entry(device, port).is_some() != self.excludes
    }

    /// Returns whether the user named the ports that may be used, rather than none or those that
    /// may not be used.
    #[must_use]
    pub fn names_ports(&self) -> bool {
        !self.entries.is_empty() && !self.excludes
    }

    /// Returns the rail and plane that the user declared for this port of that device.
    #[must_use]
    pub fn place(&self, device: &str, port: u8) -> Option<Place> {
        self.entry(device, port)?.place
    }

    /// Returns the first entry that matches.
    fn entry(&self, device: &str, port: u8) -> Option<&Entry> {
        self.entries.iter().find(|entry| {
            let is_named = if self.is_exact {
                device == entry.device
            } else {
                device.starts_with(&entry.device)
            };
            is_named && entry.port.is_none_or(|only| only == port)
        })
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

    #[test]
    fn lists_that_exclude_name_no_ports_to_use() {
        let names = |text: &str| text.parse::<Filter>().unwrap().names_ports();
        assert!(names("mlx5") && names("=mlx5_0:1") && !names("") && !names("^mlx5_1"));
    }

    #[test]
    fn fields_are_numbers() {
        for text in ["mlx5_0:0", "mlx5_0:256", "mlx5_0:-1", "^=mlx5_0,mlx5_1:x", "a:1x:2"] {
            assert_eq!(text.parse::<Filter>(), Err(InvalidFilter::Port), "{text}");
        }
        for (text, error) in [
            (":1", InvalidFilter::Device),
            ("mlx5_0,:", InvalidFilter::Device),
            ("mlx5_0:1:x", InvalidFilter::Rail),
            ("mlx5_0:1:65536", InvalidFilter::Rail),
            ("mlx5_0:1:-2", InvalidFilter::Rail),
            ("mlx5_0:1:0:256", InvalidFilter::Plane),
            ("mlx5_0:1:0:p", InvalidFilter::Plane),
            ("mlx5_0:1::1", InvalidFilter::PlaneWithoutRail),
            ("mlx5_0:1:-1:1", InvalidFilter::PlaneWithoutRail),
            ("mlx5_0:1:0:1:2", InvalidFilter::Fields),
            ("^mlx5_0:1:0", InvalidFilter::ExcludedRail),
            ("=mlx5_0:1:0,mlx5_0:1:1", InvalidFilter::Twice),
            ("=mlx5_0:1:0:0,mlx5_0:1:0:1", InvalidFilter::Twice),
        ] {
            assert_eq!(text.parse::<Filter>(), Err(error), "{text}");
        }
    }

    #[test]
    fn rails_and_planes_are_declared() {
        let place = |text: &str, device, port| {
            let filter = text.parse::<Filter>().unwrap();
            filter.place(device, port).map(|Place { rail, plane }| (rail, plane))
        };
        let two = "=mlx5_0:1:0:0,mlx5_1:1:0:1";
        assert_eq!(place(two, "mlx5_0", 1), Some((0, 0)));
        assert_eq!(place(two, "mlx5_1", 1), Some((0, 1)));
        assert_eq!(place(two, "mlx5_1", 2), None);
        assert_eq!(place(two, "mlx5_10", 1), None);
        let all = "=mlx5_0::7:3";
        assert_eq!([1, 2].map(|port| place(all, "mlx5_0", port)), [Some((7, 3)); 2]);
        assert_eq!(place("mlx5_0:1:65535", "mlx5_0", 1), Some((65535, 0)), "no plane");
        for text in ["mlx5_0", "mlx5_0:", "mlx5_0::", "mlx5_0:1:", "mlx5_0:1:-1:-1", "^rxe", ""] {
            assert_eq!(place(text, "mlx5_0", 1), None, "{text}");
        }
        let mixed = "=mlx5_0:1:2,mlx5_1";
        assert_eq!(place(mixed, "mlx5_0", 1), Some((2, 0)));
        assert_eq!(place(mixed, "mlx5_1", 1), None, "it has no rail");
        assert_eq!(place("mlx5_1:1:4,mlx5:1:5", "mlx5_1", 1), Some((4, 0)), "the first counts");
    }
}
