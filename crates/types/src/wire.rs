//! The form in which partial results travel between hosts.

use core::fmt;
use core::str::FromStr;

use crate::names::{Names, UnknownName, find};

/// The form in which partial results of short floats travel between hosts. Within a host they are
/// accumulators, except in exchanges whose partners are on several hosts.
///
/// The form makes no difference to other data types, which are their own accumulators, nor to
/// collectives that combine nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Wire {
    /// In the call's data type, rounded to nearest even before each message between hosts. A host
    /// sends as many bytes as the algorithm's number of elements needs.
    #[default]
    Element = 0,
    /// In the accumulator's type, without rounding. A `bf16` then takes twice the bytes of its data
    /// type, and an 8-bit float four times as many.
    Accumulator = 1,
}

impl Wire {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Element, Self::Accumulator];

    /// The form whose discriminant is `code`, as ranks send it to each other.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Element),
            1 => Some(Self::Accumulator),
            _ => None,
        }
    }

    /// The names of both forms, by their codes.
    pub(crate) const NAMES: Names = &[&["element"], &["accumulator"]];

    /// The name, as in `element`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize][0]
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Wire {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("form of partial results", Self::NAMES, |row| Self::ALL.get(row).copied(), name)
    }
}
