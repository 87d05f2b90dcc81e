//! The choice among the partition keys of a port.
//!
//! A port has a table of keys. A key is the number of a partition, with a mark for full members.
//! Ports exchange packets within a partition, unless both are limited members of it.

use std::fmt;

/// The mark of a full member.
const FULL: u16 = 0x8000;

/// A setting of the partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The key, with the mark of full members.
    Key(u16),
    /// The index of the key in the table of every port.
    Index(u16),
}

/// The key by which a port sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) u16);

/// An entry of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u16,
    pub(super) key: u16,
}

impl Partition {
    /// Reads a key in hexadecimal, as in `0x8001`, or the index of one in decimal. Returns nothing
    /// if the text is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => {
                let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let key = u16::from_str_radix(digits, 16).ok().filter(|_| is_number);
                key.filter(|key| is_valid(*key)).map(Self::Key)
            }
            None => text.parse().ok().map(Self::Index),
        }
    }
}

impl Key {
    /// Returns whether ports with these keys exchange packets.
    pub(super) const fn meets(self, other: Self) -> bool {
        (self.0 ^ other.0) & !FULL == 0 && (self.0 | other.0) & FULL != 0
    }
}

impl Default for Key {
    /// The key of full members of the default partition.
    fn default() -> Self {
        Self(Entry::DEFAULT.key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl Entry {
    /// The default partition, to which ports without a table belong.
    pub(super) const DEFAULT: Self = Self { index: 0, key: 0xffff };

    /// Chooses among the entries of a port's table, in their order: the first full member, unless
    /// the user `wanted` another.
    ///
    /// # Errors
    /// The port does not have the wanted entry. The text follows its name.
    pub(super) fn choose(
        table: impl Iterator<Item = Self> + Clone,
        wanted: Option<Partition>,
    ) -> Result<Self, String> {
        let mut valid = table.filter(|entry| is_valid(entry.key));
        let all = valid.clone();
        let (found, what) = match wanted {
            None => {
                let first = all.clone().next();
                let full = valid.find(|entry| !entry.is_limited());
                return Ok(full.or(first).unwrap_or(Self::DEFAULT));
            }
            Some(Partition::Key(key)) => {
                (valid.find(|entry| entry.key == key), format!("{key:#06x}"))
            }
            Some(Partition::Index(index)) => {
                (valid.find(|entry| entry.index == index), format!("at index {index}"))
            }
        };
        found.ok_or_else(|| {
            let has = all.map(|entry| entry.to_string()).collect::<Vec<_>>();
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            format!("has no partition key {what}, which RINGFOLD_IB_PKEY names; it has {has}")
        })
    }

    /// Returns whether the port reaches only full members.
    pub(super) const fn is_limited(self) -> bool {
        self.key & FULL == 0
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x} at index {}", self.key, self.index)
    }
}

/// Returns whether the key has the number of a partition. Free entries of a table have none.
const fn is_valid(key: u16) -> bool {
    key & !FULL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(keys: &[u16], wanted: &str) -> Result<u16, String> {
        let table = (0..).zip(keys).map(|(index, key)| Entry { index, key: *key });
        let wanted = (!wanted.is_empty()).then(|| Partition::parse(wanted).unwrap());
        Entry::choose(table, wanted).map(|entry| entry.index)
    }

    #[test]
    fn the_first_full_member_is_chosen() {
        assert_eq!(chosen(&[0x7fff, 0, 0x8000, 0x8002, 0xffff], ""), Ok(3));
        assert_eq!(chosen(&[0, 0x7fff, 0x0001], ""), Ok(1), "a limited one");
        assert_eq!(chosen(&[], ""), Ok(0));
    }

    #[test]
    fn ports_meet_within_a_partition_unless_both_are_limited() {
        for (one, other, meets) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0xffff, false),
            (0x8001, 0x0001, true),
        ] {
            assert_eq!(Key(one).meets(Key(other)), meets, "{one:#x} {other:#x}");
            assert_eq!(Key(other).meets(Key(one)), meets, "{other:#x} {one:#x}");
        }
    }

    #[test]
    fn keys_and_indices_are_named() {
        let table = [0xffff, 0x7fff, 0, 0x8001];
        assert_eq!(chosen(&table, "0x8001"), Ok(3));
        assert_eq!(chosen(&table, "0X7FFF"), Ok(1));
        assert_eq!(chosen(&table, "1"), Ok(1));
        let has = "which RINGFOLD_IB_PKEY names; it has 0xffff at index 0, 0x7fff at index 1, \
                   0x8001 at index 3";
        for (wanted, what) in [("0x1", "0x0001"), ("2", "at index 2"), ("65535", "at index 65535")]
        {
            let text = format!("has no partition key {what}, {has}");
            assert_eq!(chosen(&table, wanted), Err(text));
        }
        let none = "has no partition key 0x8001, which RINGFOLD_IB_PKEY names; it has none";
        assert_eq!(chosen(&[0], "0x8001"), Err(none.to_owned()));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "0x", "0x0", "0x8000", "0x10000", "0x+1", "65536", "-1", "ffff", "8001h"] {
            assert_eq!(Partition::parse(text), None, "{text}");
        }
    }
}
