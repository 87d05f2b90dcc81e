//! Parsers for values of settings: numbers, times, sizes, names and transports.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use ringfold_types::{Amount, limits, same_name};

use super::error::ConfigError;

/// The most bytes of a host's name.
const HOST_BYTES: usize = 64;

/// The allowed transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transports {
    /// Shared memory between ranks of one host.
    pub shm: bool,
    /// RDMA.
    pub rdma: bool,
    /// TCP.
    pub tcp: bool,
}

pub(super) fn number<T: FromStr + PartialOrd + Copy + Into<u16>>(
    variable: &'static str,
    value: &str,
    range: RangeInclusive<T>,
) -> Result<T, ConfigError> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    let (least, most) = ((*range.start()).into(), (*range.end()).into());
    number.ok_or_else(|| ConfigError::Range { variable, value: value.to_owned(), least, most })
}

pub(super) fn count(variable: &'static str, value: &str) -> Result<usize, ConfigError> {
    let wanted = "a number above 0";
    let number = value.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

pub(super) fn transports(variable: &'static str, value: &str) -> Result<Transports, ConfigError> {
    let mut chosen = Transports { shm: false, rdma: false, tcp: false };
    for name in value.split(',') {
        let Transports { shm, rdma, tcp } = &mut chosen;
        let known = [("shm", shm), ("rdma", rdma), ("tcp", tcp)];
        let Some((_, choice)) = known.into_iter().find(|(it, _)| same_name(it, name.trim())) else {
            let wanted = "a list of shm, rdma and tcp, separated by commas";
            return Err(ConfigError::Value { variable, value: value.to_owned(), wanted });
        };
        *choice = true;
    }
    Ok(chosen)
}

pub(super) fn host_id(variable: &'static str, value: &str) -> Result<String, ConfigError> {
    let is_name = value.len() <= HOST_BYTES && value.chars().all(|c| c.is_ascii_graphic());
    let wanted = "a name of up to 64 visible characters";
    let invalid = || ConfigError::Value { variable, value: value.to_owned(), wanted };
    is_name.then(|| value.to_owned()).ok_or_else(invalid)
}

pub(super) fn seconds(variable: &'static str, value: &str) -> Result<Duration, ConfigError> {
    let wanted = "a number of seconds above 0, as in 30 or 0.5";
    let seconds = value.parse().ok().filter(|seconds| *seconds > 0.0).and_then(timeout_of);
    seconds.ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

/// The timeout of so many seconds, within the limits of timeouts. Infinity gives the longest.
/// `None` if the number is negative or no number.
#[must_use]
pub fn timeout_of(seconds: f64) -> Option<Duration> {
    let is_time = seconds >= 0.0;
    is_time.then(|| limits::timeout(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

pub(super) fn bytes(variable: &'static str, value: &str) -> Result<usize, ConfigError> {
    let wanted = "a number of bytes above 0, as in 65536, 64K or 1G";
    let bytes = value.parse().ok().map(|Amount(bytes)| bytes).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

pub(super) fn on_or_off(variable: &'static str, value: &str) -> Result<bool, ConfigError> {
    let known = [("on", true), ("off", false)].into_iter().find(|(it, _)| same_name(it, value));
    let wanted = "`on` or `off`";
    let invalid = || ConfigError::Value { variable, value: value.to_owned(), wanted };
    known.map(|(_, is_on)| is_on).ok_or_else(invalid)
}

/// Whether calls may use aggregators in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InNetwork {
    /// They may not.
    Off,
    /// They may use those that grant a group, where they are faster.
    #[default]
    Auto,
    /// All aggregators must grant a group when the ranks join.
    Require,
}

impl fmt::Display for InNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Require => "require",
        })
    }
}

pub(super) fn in_network(variable: &'static str, value: &str) -> Result<InNetwork, ConfigError> {
    let all = [InNetwork::Off, InNetwork::Auto, InNetwork::Require];
    let wanted = "`off`, `auto` or `require`";
    let found = all.into_iter().find(|mode| same_name(&mode.to_string(), value));
    found.ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

pub(super) fn flag(variable: &'static str, value: &str) -> Result<bool, ConfigError> {
    Ok(number(variable, value, 0..=1_u8)? == 1)
}
