//! Prices that were measured on a machine, and their text form. `ringfold tune --machine` writes
//! the text, and `RINGFOLD_PRICES` names the file.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ringfold_types::limits::{PRICE_BYTE_PS_MAX, PRICE_NS_MAX, PRICES_BYTES_MAX};

use super::class::LinkClass;
use super::link::LinkPrice;

/// The measured prices of some classes of links, and of combining.
///
/// The text form begins with its name and version. Then each line has the price of one class, or of
/// combining. `#` begins a comment:
///
/// ```text
/// ringfold-prices 1
/// class latency_ns message_ns byte_ps [work_message_ns work_byte_ps]
/// combining byte_ps
/// ```
///
/// Without the last two words of a line, the CPU work is the default of the class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    links: BTreeMap<LinkClass, LinkPrice>,
    combining_ps: Option<u64>,
}

/// The first line of a profile.
const HEAD: &str = "ringfold-prices 1";

/// The first word of the line about combining.
const COMBINING: &str = "combining";

/// A text that is not a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidProfile {
    /// The text has more than `limits::PRICES_BYTES_MAX` bytes.
    TooLong,
    /// A line is wrong.
    Line {
        /// The number of the line, counted from 1.
        line: usize,
        /// The expected content of the line.
        wanted: &'static str,
    },
}

impl Profile {
    /// The prices of links, by class.
    pub fn links(&self) -> impl Iterator<Item = (&LinkClass, &LinkPrice)> {
        self.links.iter()
    }

    /// The time to combine one byte, in picoseconds; `None` if it was not measured.
    #[must_use]
    pub const fn combining_ps(&self) -> Option<u64> {
        self.combining_ps
    }

    /// Sets the price of a class. Times beyond the limits of a profile are cut to them.
    pub fn set_link(&mut self, class: LinkClass, price: LinkPrice) {
        // The text has whole nanoseconds, and times of 0 would make calls free.
        let time = |ps: u64| ps.div_ceil(1000).clamp(1, PRICE_NS_MAX) * 1000;
        let rate = |ps: u64| ps.clamp(1, PRICE_BYTE_PS_MAX);
        let LinkPrice { latency_ps, message_ps, byte_ps, work_ps: [message_work, byte_work] } =
            price;
        let price = LinkPrice {
            latency_ps: time(latency_ps),
            message_ps: time(message_ps),
            byte_ps: rate(byte_ps),
            work_ps: [time(message_work), rate(byte_work)],
        };
        self.links.insert(class, price);
    }

    /// Sets the time to combine one byte, in picoseconds.
    pub fn set_combining(&mut self, byte_ps: u64) {
        self.combining_ps = Some(byte_ps.clamp(1, PRICE_BYTE_PS_MAX));
    }

    /// Parses one line without its comment.
    fn add(&mut self, data: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = data.split_whitespace().collect();
        let (class, numbers) = words.split_first().ok_or("a class")?;
        let number = |word: &str, most: u64| {
            let number = word.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or("whole numbers from 1 up to the limits of a profile")
        };
        if *class == COMBINING {
            let [byte] = numbers else { return Err("combining byte_ps") };
            let is_new = self.combining_ps.replace(number(byte, PRICE_BYTE_PS_MAX)?).is_none();
            return if is_new { Ok(()) } else { Err("one line for combining") };
        }
        let class: LinkClass =
            class.parse().map_err(|_| "a class of links or `combining` as the first word")?;
        let time = |word: &str| number(word, PRICE_NS_MAX).map(|nanos| nanos * 1000);
        let rate = |word: &str| number(word, PRICE_BYTE_PS_MAX);
        let (latency, message, byte, work_ps) = match numbers {
            [latency, message, byte] => (latency, message, byte, LinkPrice::of(class).work_ps),
            [latency, message, byte, of_message, of_byte] => {
                (latency, message, byte, [time(of_message)?, rate(of_byte)?])
            }
            _ => return Err("class latency_ns message_ns byte_ps [work_message_ns work_byte_ps]"),
        };
        let price = LinkPrice {
            latency_ps: time(latency)?,
            message_ps: time(message)?,
            byte_ps: rate(byte)?,
            work_ps,
        };
        let is_new = self.links.insert(class, price).is_none();
        if is_new { Ok(()) } else { Err("one line for each class") }
    }
}

impl FromStr for Profile {
    type Err = InvalidProfile;

    fn from_str(text: &str) -> Result<Self, InvalidProfile> {
        if text.len() > PRICES_BYTES_MAX {
            return Err(InvalidProfile::TooLong);
        }
        let mut profile = Self::default();
        let mut has_head = false;
        for (line, text) in (1..).zip(text.lines()) {
            let wanted = |wanted| InvalidProfile::Line { line, wanted };
            let data = text.split('#').next().unwrap_or_default().trim();
            match (data, has_head) {
                ("", _) => {}
                (HEAD, false) => has_head = true,
                (_, false) => return Err(wanted(HEAD)),
                (data, true) => profile.add(data).map_err(wanted)?,
            }
        }
        let line = text.lines().count().max(1);
        if has_head { Ok(profile) } else { Err(InvalidProfile::Line { line, wanted: HEAD }) }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        writeln!(f, "# class latency_ns message_ns byte_ps work_message_ns work_byte_ps")?;
        for (class, price) in &self.links {
            let LinkPrice { latency_ps, message_ps, byte_ps, work_ps: [of_message, of_byte] } =
                price;
            let [latency, message, of_message] =
                [latency_ps, message_ps, of_message].map(|ps| ps.div_ceil(1000));
            writeln!(f, "{class} {latency} {message} {byte_ps} {of_message} {of_byte}")?;
        }
        match self.combining_ps {
            Some(byte_ps) => writeln!(f, "{COMBINING} {byte_ps}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for InvalidProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a profile has at most {PRICES_BYTES_MAX} bytes"),
            Self::Line { line, wanted } => write!(f, "line {line}: expected {wanted}"),
        }
    }
}

impl std::error::Error for InvalidProfile {}
