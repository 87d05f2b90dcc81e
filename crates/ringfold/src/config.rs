//! The settings of a communicator, and the only place of the library that reads the environment.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::str::FromStr;
use std::time::Duration;

use ringfold_collectives::select::{
    Constraints, InvalidConstraints, InvalidMeasurements, Measurements,
};
use ringfold_types::limits::PLAN_BYTES_MAX;

use crate::settings::digest;

/// The settings. One field per variable. Every rank of a job should have the same; ranks whose
/// `algorithms`, `plan` or `chunk_bytes` differ do not begin.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// `RINGFOLD_TRANSPORT`: which transports may be used, as in `tcp` or `shm,tcp`. Between two
    /// ranks the first of shm and tcp that both allow and that can reach is used. Default: all.
    pub transports: Transports,
    /// `RINGFOLD_ALGO`: which algorithms may be used, as in `ring,tree` for all collectives or
    /// `allreduce:ring;broadcast:^binomial` for some; `^` excludes. Default: all.
    pub algorithms: Constraints,
    /// `RINGFOLD_PLAN`: a file of measurements that `ringfold tune` made, by which algorithms are
    /// chosen. Default: none; then they are chosen by an estimate.
    pub plan: Measurements,
    /// `RINGFOLD_CHUNK`: bytes that pipelined algorithms pass on at a time, as in `256K`. Default:
    /// by the size of the call.
    pub chunk_bytes: Option<usize>,
    /// `RINGFOLD_TIMEOUT`: seconds that one call may take before the ranks are asked who is missing
    /// and the job fails. Default: 600.
    pub timeout: Duration,
    /// `RINGFOLD_JOIN_TIMEOUT`: seconds within which all ranks must have come together. Default:
    /// 60.
    pub join_timeout: Duration,
    /// `RINGFOLD_SOCKET_IFNAME`: network interfaces that may be used, as name prefixes separated by
    /// commas; after `^` those that may not be, after `=` exact names. Rank 0 also waits for the
    /// others there, unless its place is given by `MASTER_ADDR` or a list of nodes. Default: any.
    pub socket_ifname: Option<String>,
    /// `RINGFOLD_DEBUG`: how much is logged to standard error: `ERROR`, `WARN`, `INFO`, `DEBUG` or
    /// `TRACE`. If it is set, a `tracing` subscriber is installed unless the program has one;
    /// otherwise that is left to the program.
    pub debug: Option<tracing::Level>,
    /// What launchers say (`RINGFOLD_RANK`, `SLURM_PROCID`, `PMI_FD`, `OMPI_COMM_WORLD_RANK`,
    /// `RANK` and so on) and where the secret is (`RINGFOLD_SECRET_FD`, `RINGFOLD_SECRET`,
    /// `RINGFOLD_SECRET_FILE`, `HOME`): the whole environment, of which `ringfold_bootstrap` picks
    /// what it knows.
    pub environment: BTreeMap<String, String>,
}

impl fmt::Debug for Config {
    /// Leaves the environment out: it may hold the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("transports", &self.transports)
            .field("algorithms", &self.algorithms)
            .field("plan", &self.plan.rows().len())
            .field("chunk_bytes", &self.chunk_bytes)
            .field("timeout", &self.timeout)
            .field("join_timeout", &self.join_timeout)
            .field("socket_ifname", &self.socket_ifname)
            .field("debug", &self.debug)
            .finish_non_exhaustive()
    }
}

/// The variables that must be the same on every rank, because schedules depend on them.
pub(crate) const ALIKE: [&str; 3] = ["RINGFOLD_ALGO", "RINGFOLD_CHUNK", "RINGFOLD_PLAN"];

/// The longest time that anything is waited for: as good as for ever, and yet no clock overflows.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Which transports may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transports {
    /// Shared memory between ranks of one host.
    pub shm: bool,
    /// TCP.
    pub tcp: bool,
}

/// A setting that makes no sense.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is not what the variable takes.
    #[error("{variable}={value:?}: {wanted}")]
    Value {
        /// The variable.
        variable: &'static str,
        /// What it was set to.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
    /// The file of measurements cannot be used.
    #[error("RINGFOLD_PLAN={path:?}: {why}; `ringfold tune` writes such files")]
    Plan {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The choice of algorithms makes no sense.
    #[error("RINGFOLD_ALGO: {0}")]
    Algorithms(#[from] InvalidConstraints),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transports: Transports { shm: true, tcp: true },
            algorithms: Constraints::default(),
            plan: Measurements::default(),
            chunk_bytes: None,
            timeout: Duration::from_secs(600),
            join_timeout: Duration::from_secs(60),
            socket_ifname: None,
            debug: None,
            environment: BTreeMap::new(),
        }
    }
}

impl Config {
    /// The values of `ALIKE`, in words; empty where nothing is set.
    pub(crate) fn alike(&self) -> [String; 3] {
        let chunk = self.chunk_bytes.map_or_else(String::new, |bytes| bytes.to_string());
        let plan = match self.plan.rows().len() {
            0 => String::new(),
            lines => format!("{lines}-lines-{:x}", digest(&self.plan.to_string())),
        };
        [self.algorithms.to_string(), chunk, plan]
    }

    /// The settings that this process's environment asks for.
    ///
    /// # Errors
    /// A variable has a value that it does not take.
    pub fn from_env() -> Result<Self, ConfigError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::from_map(env::vars_os().filter_map(text).collect())
    }

    /// The settings that `environment` asks for.
    ///
    /// # Errors
    /// A variable has a value that it does not take.
    pub fn from_map(environment: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let set = |name| environment.get(name).map(String::as_str).filter(|v| !v.is_empty());
        if let Some(value) = set("RINGFOLD_TRANSPORT") {
            config.transports = transports("RINGFOLD_TRANSPORT", value)?;
        }
        if let Some(value) = set("RINGFOLD_ALGO") {
            config.algorithms = value.parse()?;
        }
        if let Some(path) = set("RINGFOLD_PLAN") {
            config.plan = measurements(path)?;
        }
        if let Some(value) = set("RINGFOLD_CHUNK") {
            config.chunk_bytes = Some(bytes("RINGFOLD_CHUNK", value)?);
        }
        if let Some(value) = set("RINGFOLD_TIMEOUT") {
            config.timeout = seconds("RINGFOLD_TIMEOUT", value)?;
        }
        if let Some(value) = set("RINGFOLD_JOIN_TIMEOUT") {
            config.join_timeout = seconds("RINGFOLD_JOIN_TIMEOUT", value)?;
        }
        if let Some(value) = set("RINGFOLD_DEBUG") {
            let level = tracing::Level::from_str(value).map_err(|_| ConfigError::Value {
                variable: "RINGFOLD_DEBUG",
                value: value.to_owned(),
                wanted: "one of ERROR WARN INFO DEBUG TRACE",
            })?;
            config.debug = Some(level);
        }
        config.socket_ifname = set("RINGFOLD_SOCKET_IFNAME").map(str::to_owned);
        config.environment = environment;
        Ok(config)
    }
}

/// What `ringfold tune` wrote to a file of at most `limits::PLAN_BYTES_MAX` bytes.
///
/// # Errors
/// [`ConfigError::Plan`].
pub fn measurements(path: &str) -> Result<Measurements, ConfigError> {
    let bad = |why: String| ConfigError::Plan { path: path.to_owned(), why };
    let file = File::open(path).map_err(|e| bad(e.to_string()))?;
    let mut text = String::new();
    let bytes = file.take(PLAN_BYTES_MAX as u64 + 1).read_to_string(&mut text);
    if bytes.map_err(|e| bad(e.to_string()))? > PLAN_BYTES_MAX {
        return Err(bad(format!("more than {PLAN_BYTES_MAX} bytes")));
    }
    text.parse().map_err(|e: InvalidMeasurements| bad(e.to_string()))
}

fn transports(variable: &'static str, value: &str) -> Result<Transports, ConfigError> {
    let mut chosen = Transports { shm: false, tcp: false };
    for name in value.split(',') {
        match name.trim() {
            "shm" => chosen.shm = true,
            "tcp" => chosen.tcp = true,
            _ => {
                let wanted = "a list of shm and tcp, separated by commas";
                return Err(ConfigError::Value { variable, value: value.to_owned(), wanted });
            }
        }
    }
    Ok(chosen)
}

fn seconds(variable: &'static str, value: &str) -> Result<Duration, ConfigError> {
    let wanted = "a number of seconds above 0, as in 30 or 0.5";
    value
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| !time.is_zero())
        .map(|time| time.min(LONGEST))
        .ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

fn bytes(variable: &'static str, value: &str) -> Result<usize, ConfigError> {
    let wanted = "a number of bytes above 0, as in 65536 or 64K";
    let (digits, unit) = match value.trim_end_matches(['K', 'k', 'M', 'm']) {
        digits if digits.len() == value.len() => (digits, 1),
        digits if value.ends_with(['K', 'k']) => (digits, 1 << 10),
        digits => (digits, 1 << 20),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| ConfigError::Value { variable, value: value.to_owned(), wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Config, ConfigError> {
        Config::from_map(BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn values_are_taken() {
        assert_eq!(with("RINGFOLD_CHUNK", "64K").unwrap().chunk_bytes, Some(65536));
        assert_eq!(with("RINGFOLD_TIMEOUT", "0.5").unwrap().timeout, Duration::from_millis(500));
        assert_eq!(with("RINGFOLD_TIMEOUT", "1e19").unwrap().timeout, LONGEST);
        let tcp_only = Transports { shm: false, tcp: true };
        assert_eq!(with("RINGFOLD_TRANSPORT", "tcp").unwrap().transports, tcp_only);
        assert_eq!(
            with("RINGFOLD_TRANSPORT", "").unwrap().transports,
            Config::default().transports
        );
    }

    #[test]
    fn settings_can_be_logged_without_the_secret() {
        let config = with("RINGFOLD_SECRET", "5ec2e7").unwrap();
        assert!(!format!("{config:?}").contains("5ec2e7"));
    }

    #[test]
    fn nonsense_names_the_variable() {
        for (name, value) in [
            ("RINGFOLD_CHUNK", "0"),
            ("RINGFOLD_CHUNK", "99999999999999999999"),
            ("RINGFOLD_CHUNK", "1KK0"),
            ("RINGFOLD_TIMEOUT", "-1"),
            ("RINGFOLD_TIMEOUT", "nan"),
            ("RINGFOLD_JOIN_TIMEOUT", "soon"),
            ("RINGFOLD_TRANSPORT", "ib"),
            ("RINGFOLD_ALGO", "allreduce:teleport"),
            ("RINGFOLD_PLAN", "/no/such/file"),
            ("RINGFOLD_PLAN", "/dev/zero"),
            ("RINGFOLD_DEBUG", "LOUD"),
        ] {
            let message = with(name, value).expect_err(value).to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
