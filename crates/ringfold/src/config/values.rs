//! Parsers for values of settings: numbers, times, sizes, names and transports.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

use ringfold_collectives::select::Constraints;
use ringfold_topology::discover::Cpus;
use ringfold_transport::rdma::{Filter, Partition};
use ringfold_transport::shm::SingleCopy;
use ringfold_types::{Amount, Wire, limits, same_name};
use tracing::Level;

use super::error::ConfigError;
use super::file::check_file;

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

/// The threads that advance started calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallProgress {
    /// Waiting threads, and else the helper thread of the process.
    #[default]
    Thread,
    /// Only threads that wait for a request, or test one. There is no helper.
    Caller,
    /// As `Thread`. The helper runs on these CPUs, if this communicator is the first that needs it.
    Cpus(Cpus),
}

impl Default for Transports {
    fn default() -> Self {
        Self { shm: true, rdma: true, tcp: true }
    }
}

/// The result of the parser of a variable.
pub(super) type Parsed<T> = Result<T, ConfigError>;

/// Returns the parsed value, or an error that says which values the variable takes.
pub(super) fn given<T>(
    variable: &'static str,
    value: &str,
    wanted: &'static str,
    it: Option<T>,
) -> Parsed<T> {
    it.ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

pub(super) fn number<T: FromStr + PartialOrd + Copy + Into<u16>>(
    range: RangeInclusive<T>,
) -> impl Fn(&'static str, &str) -> Parsed<T> {
    move |variable, value| {
        let number = value.parse().ok().filter(|number| range.contains(number));
        let (least, most) = ((*range.start()).into(), (*range.end()).into());
        number.ok_or_else(|| ConfigError::Range { variable, value: value.to_owned(), least, most })
    }
}

pub(super) fn count(variable: &'static str, value: &str) -> Parsed<usize> {
    let number = value.parse().ok().filter(|number| *number > 0);
    given(variable, value, "a number above 0", number)
}

pub(super) fn text(_: &'static str, value: &str) -> Parsed<String> {
    Ok(value.to_owned())
}

/// A file that can be written.
pub(super) fn trace_file(_: &'static str, value: &str) -> Parsed<PathBuf> {
    let bad = |why: io::Error| ConfigError::Trace { path: value.to_owned(), why: why.to_string() };
    let path = PathBuf::from(value);
    check_file(&path).map_err(bad).map(|()| path)
}

pub(super) fn devices(_: &'static str, value: &str) -> Parsed<Filter> {
    value.parse().map_err(|source| ConfigError::Devices { value: value.to_owned(), source })
}

pub(super) fn partition(variable: &'static str, value: &str) -> Parsed<Partition> {
    let wanted = "a partition key in hexadecimal, as in 0x8001, or its index, from 0 to 65535";
    given(variable, value, wanted, Partition::parse(value))
}

pub(super) fn algorithms(_: &'static str, value: &str) -> Parsed<Constraints> {
    Ok(value.parse()?)
}

pub(super) fn wire(variable: &'static str, value: &str) -> Parsed<Wire> {
    given(variable, value, "'element' or 'accumulator'", value.parse().ok())
}

pub(super) fn level(variable: &'static str, value: &str) -> Parsed<Level> {
    given(variable, value, "one of ERROR WARN INFO DEBUG TRACE", value.parse().ok())
}

pub(super) fn single_copy(variable: &'static str, value: &str) -> Parsed<SingleCopy> {
    Ok(match value {
        "0" => SingleCopy::Never,
        _ => SingleCopy::From(bytes(variable, value)?),
    })
}

pub(super) fn transports(variable: &'static str, value: &str) -> Parsed<Transports> {
    let mut chosen = Transports { shm: false, rdma: false, tcp: false };
    for name in value.split(',') {
        let Transports { shm, rdma, tcp } = &mut chosen;
        let known = [("shm", shm), ("rdma", rdma), ("tcp", tcp)];
        let choice = known.into_iter().find(|(it, _)| same_name(it, name.trim()));
        let wanted = "a list of shm, rdma and tcp, separated by commas";
        *given(variable, value, wanted, choice)?.1 = true;
    }
    Ok(chosen)
}

pub(super) fn host_id(variable: &'static str, value: &str) -> Parsed<String> {
    let is_name = value.len() <= HOST_BYTES && value.chars().all(|c| c.is_ascii_graphic());
    let name = is_name.then(|| value.to_owned());
    given(variable, value, "a name of up to 64 visible characters", name)
}

pub(super) fn seconds(variable: &'static str, value: &str) -> Parsed<Duration> {
    let seconds = value.parse().ok().filter(|seconds| *seconds > 0.0).and_then(timeout_of);
    given(variable, value, "a number of seconds above 0, as in 30 or 0.5", seconds)
}

/// The timeout of so many seconds, within the limits of timeouts. Infinity gives the longest.
/// `None` if the number is negative or no number.
#[must_use]
pub fn timeout_of(seconds: f64) -> Option<Duration> {
    let is_time = seconds >= 0.0;
    is_time.then(|| limits::timeout(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

pub(super) fn bytes(variable: &'static str, value: &str) -> Parsed<usize> {
    let bytes = value.parse().ok().map(|Amount(bytes)| bytes).filter(|bytes| *bytes > 0);
    given(variable, value, "a number of bytes above 0, as in 65536, 64K or 1G", bytes)
}

pub(super) fn on_or_off(variable: &'static str, value: &str) -> Parsed<bool> {
    let known = [("on", true), ("off", false)].into_iter().find(|(it, _)| same_name(it, value));
    given(variable, value, "`on` or `off`", known.map(|(_, is_on)| is_on))
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

pub(super) fn in_network(variable: &'static str, value: &str) -> Parsed<InNetwork> {
    let all = [InNetwork::Off, InNetwork::Auto, InNetwork::Require];
    let found = all.into_iter().find(|mode| same_name(&mode.to_string(), value));
    given(variable, value, "`off`, `auto` or `require`", found)
}

pub(super) fn call_progress(variable: &'static str, value: &str) -> Parsed<CallProgress> {
    let named = [("thread", CallProgress::Thread), ("caller", CallProgress::Caller)];
    let named = named.into_iter().find(|(name, _)| same_name(name, value)).map(|(_, it)| it);
    let cpus = || value.parse().ok().filter(|cpus: &Cpus| !cpus.is_empty());
    let wanted = "`thread`, `caller` or a list of CPUs, as in `0-3,8`";
    given(variable, value, wanted, named.or_else(|| cpus().map(CallProgress::Cpus)))
}

pub(super) fn flag(variable: &'static str, value: &str) -> Parsed<bool> {
    Ok(number(0..=1_u8)(variable, value)? == 1)
}
