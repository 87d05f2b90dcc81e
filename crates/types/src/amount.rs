//! Amounts with a suffix of K, M or G for powers of 1024.

use core::fmt;
use core::str::FromStr;

/// A number of bytes or elements.
///
/// As text it is a number with an optional suffix of K, M or G, which multiplies it by a power of
/// 1024. It may have a fraction if the product is whole, as in `1.5K`. `Display` prints the largest
/// suffix that leaves a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub usize);

/// A text that is no `Amount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAmount;

impl fmt::Display for InvalidAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("give a whole number, with K, M or G for powers of 1024, as in 64M")
    }
}

impl core::error::Error for InvalidAmount {}

/// Suffixes with their factors, the largest first.
const SUFFIXES: [(char, usize); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl FromStr for Amount {
    type Err = InvalidAmount;

    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        parse(text).map(Self).ok_or(InvalidAmount)
    }
}

fn parse(text: &str) -> Option<usize> {
    let last = text.chars().next_back()?;
    let suffix = SUFFIXES.iter().find(|(letter, _)| last.eq_ignore_ascii_case(letter));
    let (number, unit) = suffix.map_or((text, 1), |(_, unit)| (&text[..text.len() - 1], *unit));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10_usize.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = digits(fraction)?.checked_mul(unit)?;
    let rest = scaled.is_multiple_of(scale).then(|| scaled / scale)?;
    digits(whole)?.checked_mul(unit)?.checked_add(rest)
}

fn digits(text: &str) -> Option<usize> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
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
    fn fractions_must_give_a_whole_number() {
        assert_eq!("1.5K".parse(), Ok(Amount(1536)));
        assert_eq!("0.25g".parse(), Ok(Amount(1 << 28)));
        assert_eq!("2.0".parse(), Ok(Amount(2)));
        for text in ["1.5", "1.3K", "1.K", ".5K", "1.5.0K"] {
            assert_eq!(text.parse::<Amount>(), Err(InvalidAmount), "{text}");
        }
    }

    #[test]
    fn invalid_amounts_are_refused() {
        let long = "99999999999999999999999";
        for text in
            ["", "K", "-1", "+1", "1KB", "64KK", "4 K", "nan", "99999999999G", long, "\u{e9}"]
        {
            assert_eq!(text.parse::<Amount>(), Err(InvalidAmount), "{text}");
        }
    }
}
