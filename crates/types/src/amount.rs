//! Amounts with a suffix of K, M or G for powers of 1024.

use core::fmt;
use core::str::FromStr;

/// A number of bytes or elements.
///
/// As text it is a number with an optional suffix of K, M or G, which multiplies it by a power of
/// 1024. `KB` and `KiB` mean the same as `K`, and case does not matter. It may have a fraction if
/// the product is whole, as in `1.5K`. `Display` prints the largest suffix that leaves a whole
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub usize);

/// A text that is no `Amount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidAmount {
    /// It is no number with a suffix.
    Text,
    /// It is no whole number.
    Fraction,
    /// It is larger than any memory.
    TooLarge,
}

impl fmt::Display for InvalidAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "give a whole number, with K, M or G for powers of 1024, as in 64M",
            Self::Fraction => "that is no whole number: give one, or another fraction, as in 1.5K",
            Self::TooLarge => "that is too large: give a number below 2^64, as in 64M",
        })
    }
}

impl core::error::Error for InvalidAmount {}

/// Suffixes with their factors, the largest first.
const SUFFIXES: [(char, usize); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl FromStr for Amount {
    type Err = InvalidAmount;

    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let unit = unit(suffix.trim_start()).ok_or(InvalidAmount::Text)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = !(whole.is_empty() && fraction.is_empty() || fraction.contains('.'));
        if !is_number {
            return Err(InvalidAmount::Text);
        }
        let fraction = fraction.trim_end_matches('0');
        let digits = |text: &str| if text.is_empty() { Some(0_usize) } else { text.parse().ok() };
        let places = u32::try_from(fraction.len()).ok();
        let part = || {
            let scale = 10_usize.checked_pow(places?)?;
            let scaled = digits(fraction)?.checked_mul(unit)?;
            scaled.is_multiple_of(scale).then(|| scaled / scale)
        };
        let part = part().ok_or(InvalidAmount::Fraction)?;
        let sum = digits(whole).and_then(|it| it.checked_mul(unit)?.checked_add(part));
        sum.map(Self).ok_or(InvalidAmount::TooLarge)
    }
}

/// The factor of a suffix.
fn unit(suffix: &str) -> Option<usize> {
    let Some(first) = suffix.chars().next() else { return Some(1) };
    if suffix.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let (_, unit) = SUFFIXES.iter().find(|(letter, _)| first.eq_ignore_ascii_case(letter))?;
    let is_known = ["", "b", "ib"].iter().any(|rest| suffix[1..].eq_ignore_ascii_case(rest));
    is_known.then_some(*unit)
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SUFFIXES.iter().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit)) {
            Some((letter, unit)) => write!(f, "{}{letter}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("7", 7), ("4K", 4096), ("3m", 3 << 20), ("2G", 2 << 30)] {
            assert_eq!(text.parse(), Ok(Amount(bytes)), "{text}");
            assert_eq!(Amount(bytes).to_string(), text.to_uppercase());
        }
        assert_eq!(Amount(1025).to_string(), "1025");
    }

    #[test]
    fn suffixes_have_several_spellings() {
        for text in ["64K", "64k", "64KB", "64kb", "64KiB", "64 KB", " 64K ", "65536", "65536B"] {
            assert_eq!(text.parse(), Ok(Amount(65_536)), "{text}");
        }
        assert_eq!("1.5MB".parse(), Ok(Amount(3 << 19)));
    }

    #[test]
    fn fractions_must_give_a_whole_number() {
        assert_eq!("1.5K".parse(), Ok(Amount(1536)));
        assert_eq!("0.25g".parse(), Ok(Amount(1 << 28)));
        assert_eq!("2.0".parse(), Ok(Amount(2)));
        assert_eq!(".5K".parse(), Ok(Amount(512)));
        assert_eq!("1.K".parse(), Ok(Amount(1024)));
        for text in ["1.5", "1.3K", "0.00000000000000000000000001G"] {
            assert_eq!(text.parse::<Amount>(), Err(InvalidAmount::Fraction), "{text}");
        }
    }

    #[test]
    fn invalid_amounts_are_refused() {
        let texts =
            ["", "K", "-1", "+1", "64KK", "64Kb2", "1.5.0K", ".", "nan", "\u{e9}", "1K\u{e9}"];
        for text in texts {
            assert_eq!(text.parse::<Amount>(), Err(InvalidAmount::Text), "{text}");
        }
        for text in ["99999999999G", "99999999999999999999999", "18446744073709551616"] {
            assert_eq!(text.parse::<Amount>(), Err(InvalidAmount::TooLarge), "{text}");
        }
    }
}
