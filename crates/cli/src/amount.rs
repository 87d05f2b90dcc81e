//! Amounts with a suffix of K, M or G for powers of 1024.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

/// A number of bytes or elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount(pub(crate) usize);

/// Suffixes with their factors, the largest first.
const SUFFIXES: [(char, usize); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl FromStr for Amount {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let suffix = SUFFIXES.iter().find(|(letter, _)| {
            text.chars().last().is_some_and(|last| last.eq_ignore_ascii_case(letter))
        });
        let (digits, unit) = match suffix {
            Some((_, unit)) => (&text[..text.len() - 1], *unit),
            None => (text, 1),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            bail!("give a whole number, with K, M or G for powers of 1024, as in 64M");
        }
        let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        number.map(Self).context("the number does not fit into 64 bits")
    }
}

impl fmt::Display for Amount {
    /// Prints the largest suffix that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SUFFIXES.iter().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit)) {
            Some((letter, unit)) => write!(f, "{}{letter}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("7", 7), ("4K", 4096), ("3m", 3 << 20), ("2G", 2 << 30)] {
            assert_eq!(text.parse::<Amount>().unwrap(), Amount(bytes), "{text}");
            assert_eq!(Amount(bytes).to_string(), text.to_uppercase());
        }
        assert_eq!(Amount(1025).to_string(), "1025");
    }

    #[test]
    fn invalid_amounts_are_refused() {
        for text in ["", "K", "-1", "1.5M", "1KB", "4 K", "99999999999G", "\u{e9}"] {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
    }
}
