//! The settings of a communicator. Only this module of the library reads the environment.

mod error;
mod values;
mod variables;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use ringfold_collectives::select::{
    Constraints, InvalidConstraints, InvalidMeasurements, Measurements,
};
pub use ringfold_topology::prices::{InvalidProfile, Profile};
pub use ringfold_transport::rdma::Settings as RdmaSettings;
pub use ringfold_transport::rdma::{Filter, InvalidFilter};
pub use ringfold_transport::shm::SingleCopy;
use ringfold_types::Wire;
use ringfold_types::limits::{
    self, CHANNELS_MAX, PATHS_MAX, PLAN_BYTES_MAX, PRICES_BYTES_MAX, RAILS_MAX,
};

use crate::digest::digest;
pub use error::ConfigError;
pub use tracing::Level;
pub use values::{InNetwork, Transports, timeout_of};
use values::{bytes, count, flag, host_id, in_network, number, on_or_off, seconds, transports};

/// The settings of a communicator, with one field for each variable.
///
/// Every rank of a job should have the same settings. Joining fails if ranks differ in
/// `algorithms`, `wire`, `plan`, `chunk_bytes`, `channels`, `topology`, `topology_file`,
/// `aggregators` or `in_network`.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// `RINGFOLD_TRANSPORT`: the allowed transports, as in `tcp` or `shm,tcp`. Two ranks use the
    /// first of shm, rdma and tcp that both allow and that connects them. Default: all.
    pub transports: Transports,
    /// `RINGFOLD_HOSTID`: a name of up to 64 visible characters that divides a machine into hosts.
    /// Only ranks with the same name share memory and count as ranks of one host. Default: none;
    /// every network namespace of a machine is a host.
    pub host_id: Option<String>,
    /// `RINGFOLD_SHM_CMA`: the size from which the receiver of a message copies it directly from
    /// the memory of a sender on the same host (cross-memory attach), as in `128K`. It needs the
    /// system's permission; `0` turns it off. Default: only in calls by `single_copy`.
    pub shm_cma: SingleCopy,
    /// `RINGFOLD_IB_HCA`: the allowed RDMA devices, as name prefixes separated by commas, each with
    /// an optional `:port:rail:plane`. A list after `^` names the devices to leave out. A list
    /// after `=` has exact names. Default: all.
    pub ib_devices: Filter,
    /// `RINGFOLD_IB_GID_INDEX`: the index of the GID to use on every port. Ports of iWARP have no
    /// GID. Default: a GID of RoCE v2, in the family of the job's address and nearest to it.
    pub ib_gid_index: Option<u8>,
    /// `RINGFOLD_IB_TC`: the traffic class of packets over RoCE, or over InfiniBand across routers,
    /// 0 to 255. It is four times the DSCP. Default: 0.
    pub ib_traffic_class: u8,
    /// `RINGFOLD_IB_SL`: the service level of packets over InfiniBand and RoCE, 0 to 15. Default:
    /// 0.
    pub ib_service_level: u8,
    /// `RINGFOLD_IB_PKEY`: the index of the partition key in the table of every port. Both ends of
    /// a connection must be in the same partition. Ports of iWARP have no such table. Default: 0.
    pub ib_partition_key_index: u16,
    /// `RINGFOLD_IB_ADAPTIVE_ROUTING`: whether payloads beyond 8 KiB go by RDMA writes of their
    /// own, 0 or 1. Switches may route the packets of such writes one by one; the notification
    /// follows. Default: 1 on InfiniBand, else 0.
    pub ib_adaptive_routing: Option<bool>,
    /// `RINGFOLD_IB_TIMEOUT`: the time that an RDMA device waits for an answer, as an exponent from
    /// 1 to 31: 4.096 us times two to the power of this. Over iWARP the library waits instead, for
    /// the time of all retries. Default: 18, about a second.
    pub ib_timeout: u8,
    /// `RINGFOLD_IB_RETRY_CNT`: the retries of an RDMA device before the peer counts as lost, 0 to
    /// 7. Soft-RoCE takes 7 to be unlimited. Default: 6.
    pub ib_retries: u8,
    /// `RINGFOLD_IB_PCI_RELAXED_ORDERING`: whether RDMA devices may write received bytes to memory
    /// in any order, 0 or 1. Default: 1.
    pub ib_relaxed_ordering: bool,
    /// `RINGFOLD_IB_QPS_PER_CONNECTION`: the queue pairs between two ranks on each pair of rails, 1
    /// to
    /// 4. Messages are spread over them. Two ranks use the smaller of their numbers. Default: 1.
    pub ib_queue_pairs: u8,
    /// `RINGFOLD_IB_QPS_MAX`: the most queue pairs of this rank with all peers of a communicator
    /// together. When they run out, further peers get fewer and then none. The data of a peer
    /// without queue pairs goes by TCP; calls fail if `transports` excludes TCP. Default: 4096.
    pub ib_queue_pairs_max: usize,
    /// `RINGFOLD_IB_BYTES_MAX`: the most bytes that this rank registers with RDMA devices for all
    /// peers of a communicator together, as in `256M`. They count once for each rail, as for
    /// `ulimit -l`; a peer counts 8 MiB on each rail. Peers beyond the limit have no queue pairs.
    /// Default: 8 GiB.
    pub ib_bytes_max: usize,
    /// `RINGFOLD_ALGO`: the allowed algorithms, as in `ring,tree` for all collectives or
    /// `allreduce:ring;broadcast:^binomial` for some. `^` excludes algorithms. Default: all.
    pub algorithms: Constraints,
    /// `RINGFOLD_WIRE`: the form in which partial results of short floats travel between hosts:
    /// `element` rounds them to the call's data type before each message, `accumulator` sends them
    /// as `f32`. Default: `element`.
    pub wire: Wire,
    /// `RINGFOLD_PLAN`: a tuning file that `ringfold tune` made. Algorithms are chosen by its
    /// measurements. Default: none; algorithms are chosen by an estimate.
    pub plan: Measurements,
    /// `RINGFOLD_CHUNK`: the chunk size of pipelined algorithms, as in `256K`. Default: it depends
    /// on the size of the call and on whether there are several hosts.
    pub chunk_bytes: Option<usize>,
    /// `RINGFOLD_CHANNELS`: the number of parts, 1 to 8, into which `ring` and `chain` divide a
    /// long call. The parts run at the same time, each over a TCP connection of its own, since a
    /// network may limit the rate of each connection. The field is clamped to that range. Default:
    /// 1, or where all data goes by TCP, 2 or the number of rails for TCP if that is larger.
    pub channels: Option<u8>,
    /// `RINGFOLD_TOPO`: `off` ignores rails, planes and the order of hosts, and reads nothing about
    /// them. Default: `on`; ranks use the facts about the fabric that are certain.
    pub topology: bool,
    /// `RINGFOLD_TOPO_FILE`: a file that describes the fabric: a site file (`ringfold topo
    /// --write`), output of `ibnetdiscover`, `iblinkinfo` or `lldpctl -f json`, or Slurm's
    /// `topology.conf`. Ranks find their ports and their host in it. Joining fails if ranks have
    /// different files, except with LLDP, where each file describes one host. Default: none.
    pub topology_file: Option<String>,
    /// `RINGFOLD_PRICES`: a profile of prices that `ringfold tune --machine` made. Estimates use
    /// it. Rank 0 reads the file and sends it to all ranks; the files of other ranks are ignored.
    /// Default: none; estimates use the rates of NICs and default prices.
    pub prices_file: Option<String>,
    /// `RINGFOLD_AGGREGATORS`: the aggregators for in-network reduction, as their control ports
    /// (`10.0.0.9:7411,10.0.0.10:7411`) or as the path of a tree file. Only rank 0 reads the file.
    /// Calls are divided among up to 8 trees. Default: none.
    pub aggregators: Option<String>,
    /// `RINGFOLD_INNETWORK`: `off` ignores the aggregators. `auto` uses those that grant a group,
    /// where they are faster. With `require` joining fails unless every one grants a group.
    /// Default: `auto`.
    pub in_network: InNetwork,
    /// `RINGFOLD_SITE_SECRET_FILE`: the file of the site's secret, which opens the control port of
    /// aggregators. Only rank 0 reads it. Default: `.ringfold/site-secret` in the home directory,
    /// made on first use.
    pub site_secret_file: Option<String>,
    /// `RINGFOLD_TIMEOUT`: the seconds that one call may take. The job fails after them, with an
    /// error that names the ranks missing from the call. `inf` stands for the longest timeout, a
    /// hundred years. The field is clamped to the range from a millisecond to that. Default: 600.
    pub timeout: Duration,
    /// `RINGFOLD_JOIN_TIMEOUT`: the seconds within which all ranks must have joined, with the same
    /// range. Default: 60.
    pub join_timeout: Duration,
    /// `RINGFOLD_SOCKET_IFNAME`: the allowed network interfaces, as name prefixes separated by
    /// commas. A list after `^` names the interfaces to leave out. A list after `=` has exact
    /// names. Rank 0 also listens there for the others, unless `MASTER_ADDR`, a list of nodes or
    /// Open MPI gives its address. Several names that match one interface each declare rails for
    /// TCP, in their order. Default: any.
    pub socket_ifname: Option<String>,
    /// `RINGFOLD_DEBUG`: the level of the log on standard error: `ERROR`, `WARN`, `INFO`, `DEBUG`
    /// or `TRACE`. If it is set, the library installs a `tracing` subscriber, unless the program
    /// has one. Without either, the library logs warnings while the ranks join.
    pub debug: Option<Level>,
    /// The whole environment. Joining reads the launchers' variables from it (`RINGFOLD_RANK`,
    /// `SLURM_PROCID`, `PMI_FD`, `OMPI_COMM_WORLD_RANK`, `RANK` and so on), and the place of the
    /// secret (`RINGFOLD_SECRET_FD`, `RINGFOLD_SECRET`, `RINGFOLD_SECRET_FILE`, `HOME`).
    pub environment: BTreeMap<String, String>,
}

impl fmt::Debug for Config {
    /// Omits the environment, which may hold the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("transports", &self.transports)
            .field("host_id", &self.host_id)
            .field("shm_cma", &self.shm_cma)
            .field("rdma", &self.rdma())
            .field("algorithms", &self.algorithms)
            .field("wire", &self.wire)
            .field("plan", &self.plan.rows().len())
            .field("chunk_bytes", &self.chunk_bytes)
            .field("channels", &self.channels)
            .field("topology", &self.topology)
            .field("topology_file", &self.topology_file)
            .field("prices_file", &self.prices_file)
            .field("aggregators", &self.aggregators)
            .field("in_network", &self.in_network)
            .field("site_secret_file", &self.site_secret_file)
            .field("timeout", &self.timeout)
            .field("join_timeout", &self.join_timeout)
            .field("socket_ifname", &self.socket_ifname)
            .field("debug", &self.debug)
            .finish_non_exhaustive()
    }
}

/// The variables that must be the same on every rank, because schedules depend on them.
pub(crate) const COMMON: [&str; 9] = [
    "RINGFOLD_ALGO",
    "RINGFOLD_WIRE",
    "RINGFOLD_CHUNK",
    "RINGFOLD_CHANNELS",
    "RINGFOLD_PLAN",
    "RINGFOLD_TOPO",
    "RINGFOLD_TOPO_FILE",
    "RINGFOLD_AGGREGATORS",
    "RINGFOLD_INNETWORK",
];

/// The most queue pairs on each pair of rails.
#[expect(clippy::cast_possible_truncation, reason = "asserted to be at most 255")]
const QUEUE_PAIRS_MAX: u8 = (PATHS_MAX / RAILS_MAX) as u8;

impl Default for Config {
    fn default() -> Self {
        let rdma = RdmaSettings::default();
        Self {
            transports: Transports { shm: true, rdma: true, tcp: true },
            host_id: None,
            shm_cma: SingleCopy::default(),
            ib_devices: rdma.devices,
            ib_gid_index: rdma.gid_index,
            ib_traffic_class: rdma.traffic_class,
            ib_service_level: rdma.service_level,
            ib_partition_key_index: rdma.partition_key_index,
            ib_adaptive_routing: rdma.adaptive_routing,
            ib_timeout: rdma.timeout,
            ib_retries: rdma.retries,
            ib_relaxed_ordering: rdma.relaxed_ordering,
            ib_queue_pairs: rdma.queue_pairs,
            ib_queue_pairs_max: rdma.queue_pairs_max,
            ib_bytes_max: rdma.bytes_max,
            algorithms: Constraints::default(),
            wire: Wire::default(),
            plan: Measurements::default(),
            chunk_bytes: None,
            channels: None,
            topology: true,
            topology_file: None,
            prices_file: None,
            aggregators: None,
            in_network: InNetwork::default(),
            site_secret_file: None,
            timeout: Duration::from_secs(600),
            join_timeout: Duration::from_secs(60),
            socket_ifname: None,
            debug: None,
            environment: BTreeMap::new(),
        }
    }
}

impl Config {
    /// These settings, with timeouts within their limits.
    pub(crate) fn bounded(&self) -> Arc<Self> {
        let [timeout, join_timeout] = [self.timeout, self.join_timeout].map(limits::timeout);
        Arc::new(Self { timeout, join_timeout, ..self.clone() })
    }

    /// The values of the variables in `COMMON`, as text; empty if not set. `site` is the digest of
    /// a topology file for all hosts.
    pub(crate) fn common_values(&self, site: Option<u64>) -> [String; 9] {
        let chunk = self.chunk_bytes.map_or_else(String::new, |bytes| bytes.to_string());
        let channels = self.channels.map_or_else(String::new, |channels| channels.to_string());
        let plan = match self.plan.rows().len() {
            0 => String::new(),
            lines => format!("{lines}-lines-{:x}", digest(self.plan.to_string())),
        };
        let topology = if self.topology { "" } else { "off" }.to_owned();
        let site = site.map_or_else(String::new, |digest| format!("{digest:x}"));
        let wire = match self.wire {
            Wire::Element => String::new(),
            Wire::Accumulator => self.wire.to_string(),
        };
        let aggregators = self.aggregators.clone().unwrap_or_default();
        let in_network = match self.in_network {
            InNetwork::Auto => String::new(),
            other => other.to_string(),
        };
        let algorithms = self.algorithms.to_string();
        [algorithms, wire, chunk, channels, plan, topology, site, aggregators, in_network]
    }

    /// Reads the settings from this process's environment. Variables that are not set, or not
    /// UTF-8, keep their defaults.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn from_env() -> Result<Self, ConfigError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::from_map(env::vars_os().filter_map(text).collect())
    }

    /// Reads the settings from `environment`, which maps names of variables to their values.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn from_map(environment: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let set = |name: &str| {
            debug_assert!(variables::is_known(name), "{name}");
            environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
        };
        if let Some(value) = set("RINGFOLD_TRANSPORT") {
            config.transports = transports("RINGFOLD_TRANSPORT", value)?;
        }
        if let Some(value) = set("RINGFOLD_HOSTID") {
            config.host_id = Some(host_id("RINGFOLD_HOSTID", value)?);
        }
        if let Some(value) = set("RINGFOLD_SHM_CMA") {
            config.shm_cma = match value {
                "0" => SingleCopy::Never,
                _ => SingleCopy::From(bytes("RINGFOLD_SHM_CMA", value)?),
            };
        }
        config.set_rdma(&set)?;
        if let Some(value) = set("RINGFOLD_ALGO") {
            config.algorithms = value.parse()?;
        }
        if let Some(value) = set("RINGFOLD_WIRE") {
            config.wire = value.parse().map_err(|_| ConfigError::Value {
                variable: "RINGFOLD_WIRE",
                value: value.to_owned(),
                wanted: "'element' or 'accumulator'",
            })?;
        }
        if let Some(path) = set("RINGFOLD_PLAN") {
            config.plan = measurements(path)?;
        }
        if let Some(value) = set("RINGFOLD_CHUNK") {
            config.chunk_bytes = Some(bytes("RINGFOLD_CHUNK", value)?);
        }
        if let Some(value) = set("RINGFOLD_CHANNELS") {
            config.channels = Some(number("RINGFOLD_CHANNELS", value, 1..=CHANNELS_MAX)?);
        }
        if let Some(value) = set("RINGFOLD_TOPO") {
            config.topology = on_or_off("RINGFOLD_TOPO", value)?;
        }
        config.topology_file = set("RINGFOLD_TOPO_FILE").map(str::to_owned);
        config.prices_file = set("RINGFOLD_PRICES").map(str::to_owned);
        config.aggregators = set("RINGFOLD_AGGREGATORS").map(str::to_owned);
        if let Some(value) = set("RINGFOLD_INNETWORK") {
            config.in_network = in_network("RINGFOLD_INNETWORK", value)?;
        }
        config.site_secret_file = set("RINGFOLD_SITE_SECRET_FILE").map(str::to_owned);
        if let Some(value) = set("RINGFOLD_TIMEOUT") {
            config.timeout = seconds("RINGFOLD_TIMEOUT", value)?;
        }
        if let Some(value) = set("RINGFOLD_JOIN_TIMEOUT") {
            config.join_timeout = seconds("RINGFOLD_JOIN_TIMEOUT", value)?;
        }
        if let Some(value) = set("RINGFOLD_DEBUG") {
            let level = Level::from_str(value).map_err(|_| ConfigError::Value {
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

    /// Reads the settings of the RDMA transport.
    fn set_rdma<'a>(&mut self, set: &impl Fn(&str) -> Option<&'a str>) -> Result<(), ConfigError> {
        if let Some(value) = set("RINGFOLD_IB_HCA") {
            let invalid = |source| ConfigError::Devices { value: value.to_owned(), source };
            self.ib_devices = value.parse().map_err(invalid)?;
        }
        if let Some(value) = set("RINGFOLD_IB_GID_INDEX") {
            self.ib_gid_index = Some(number("RINGFOLD_IB_GID_INDEX", value, 0..=u8::MAX)?);
        }
        if let Some(value) = set("RINGFOLD_IB_TC") {
            self.ib_traffic_class = number("RINGFOLD_IB_TC", value, 0..=u8::MAX)?;
        }
        if let Some(value) = set("RINGFOLD_IB_SL") {
            self.ib_service_level = number("RINGFOLD_IB_SL", value, 0..=15)?;
        }
        if let Some(value) = set("RINGFOLD_IB_PKEY") {
            self.ib_partition_key_index = number("RINGFOLD_IB_PKEY", value, 0..=u16::MAX)?;
        }
        if let Some(value) = set("RINGFOLD_IB_ADAPTIVE_ROUTING") {
            self.ib_adaptive_routing = Some(flag("RINGFOLD_IB_ADAPTIVE_ROUTING", value)?);
        }
        if let Some(value) = set("RINGFOLD_IB_TIMEOUT") {
            self.ib_timeout = number("RINGFOLD_IB_TIMEOUT", value, 1..=31)?;
        }
        if let Some(value) = set("RINGFOLD_IB_RETRY_CNT") {
            self.ib_retries = number("RINGFOLD_IB_RETRY_CNT", value, 0..=7)?;
        }
        if let Some(value) = set("RINGFOLD_IB_PCI_RELAXED_ORDERING") {
            self.ib_relaxed_ordering = flag("RINGFOLD_IB_PCI_RELAXED_ORDERING", value)?;
        }
        if let Some(value) = set("RINGFOLD_IB_QPS_PER_CONNECTION") {
            let most = 1..=QUEUE_PAIRS_MAX;
            self.ib_queue_pairs = number("RINGFOLD_IB_QPS_PER_CONNECTION", value, most)?;
        }
        if let Some(value) = set("RINGFOLD_IB_QPS_MAX") {
            self.ib_queue_pairs_max = count("RINGFOLD_IB_QPS_MAX", value)?;
        }
        if let Some(value) = set("RINGFOLD_IB_BYTES_MAX") {
            self.ib_bytes_max = bytes("RINGFOLD_IB_BYTES_MAX", value)?;
        }
        Ok(())
    }

    /// A sentence about each variable of the environment that looks like one of ringfold's and is
    /// none, with the nearest name. Joining logs them as warnings of rank 0.
    #[must_use]
    pub fn unknown_variables(&self) -> Vec<String> {
        variables::unknown(&self.environment)
    }

    /// The settings of the RDMA transport.
    #[must_use]
    pub fn rdma(&self) -> RdmaSettings {
        let mut settings = RdmaSettings::default();
        settings.devices = self.ib_devices.clone();
        settings.gid_index = self.ib_gid_index;
        settings.traffic_class = self.ib_traffic_class;
        settings.service_level = self.ib_service_level;
        settings.partition_key_index = self.ib_partition_key_index;
        settings.adaptive_routing = self.ib_adaptive_routing;
        settings.timeout = self.ib_timeout;
        settings.retries = self.ib_retries;
        settings.relaxed_ordering = self.ib_relaxed_ordering;
        settings.queue_pairs = self.ib_queue_pairs;
        settings.queue_pairs_max = self.ib_queue_pairs_max;
        settings.bytes_max = self.ib_bytes_max;
        settings
    }
}

/// Reads a tuning file that `ringfold tune` wrote, of at most `limits::PLAN_BYTES_MAX` bytes.
///
/// # Errors
/// [`ConfigError::Plan`] if the file cannot be read, is too long, or is not a tuning file.
pub fn measurements(path: &str) -> Result<Measurements, ConfigError> {
    let bad = |why: String| ConfigError::Plan { path: path.to_owned(), why };
    let text = text(path, PLAN_BYTES_MAX).map_err(bad)?;
    text.parse().map_err(|e: InvalidMeasurements| bad(e.to_string()))
}

/// Reads a profile of prices that `ringfold tune --machine` wrote, of at most
/// `limits::PRICES_BYTES_MAX` bytes.
///
/// # Errors
/// [`ConfigError::Prices`] if the file cannot be read, is too long, or is not a profile.
pub fn profile(path: &str) -> Result<Profile, ConfigError> {
    let bad = |why: String| ConfigError::Prices { path: path.to_owned(), why };
    let text = text(path, PRICES_BYTES_MAX).map_err(bad)?;
    text.parse().map_err(|e: InvalidProfile| bad(e.to_string()))
}

/// The text of a file of at most `most` bytes, or the reason why it cannot be used.
fn text(path: &str, most: usize) -> Result<String, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let mut text = String::new();
    let bytes = file.take(most as u64 + 1).read_to_string(&mut text);
    let fits = bytes.map_err(|e| e.to_string())? <= most;
    fits.then_some(text).ok_or_else(|| format!("it has more than {most} bytes"))
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
        assert_eq!(with("RINGFOLD_WIRE", "accumulator").unwrap().wire, Wire::Accumulator);
        assert_eq!(Config::default().wire, Wire::Element);
        assert_eq!(with("RINGFOLD_CHUNK", "1G").unwrap().chunk_bytes, Some(1 << 30));
        assert_eq!(with("RINGFOLD_HOSTID", "h2").unwrap().host_id.as_deref(), Some("h2"));
        assert_eq!(with("RINGFOLD_SHM_CMA", "128K").unwrap().shm_cma, SingleCopy::From(131_072));
        assert_eq!(with("RINGFOLD_SHM_CMA", "0").unwrap().shm_cma, SingleCopy::Never);
        assert_eq!(Config::default().shm_cma, SingleCopy::Asked);
        assert!(!with("RINGFOLD_IB_PCI_RELAXED_ORDERING", "0").unwrap().ib_relaxed_ordering);
        let devices = with("RINGFOLD_IB_HCA", "=mlx5_0:1:3:1,mlx5_1").unwrap().rdma().devices;
        let [first, second] = [1, 2].map(|port| devices.place("mlx5_0", port));
        assert_eq!((first.map(|it| (it.rail, it.plane)), second), (Some((3, 1)), None));
        assert!(!devices.allows("mlx5_0", 2) && devices.allows("mlx5_1", 2), "of mlx5_0 port 1");
        let adaptive = |value| with("RINGFOLD_IB_ADAPTIVE_ROUTING", value).unwrap().rdma();
        assert_eq!(adaptive("1").adaptive_routing, Some(true));
        assert_eq!(adaptive("0").adaptive_routing, Some(false));
        assert_eq!(with("RINGFOLD_IB_PKEY", "127").unwrap().rdma().partition_key_index, 127);
        assert_eq!(with("RINGFOLD_TIMEOUT", "0.5").unwrap().timeout, Duration::from_millis(500));
        for long in ["1e19", "1e300", "inf"] {
            let longest = Duration::from_millis(limits::TIMEOUT_MAX_MS);
            assert_eq!(with("RINGFOLD_TIMEOUT", long).unwrap().timeout, longest);
            assert_eq!(with("RINGFOLD_JOIN_TIMEOUT", long).unwrap().join_timeout, longest);
        }
        let shortest = Duration::from_millis(limits::TIMEOUT_MIN_MS);
        assert_eq!(with("RINGFOLD_TIMEOUT", "1e-9").unwrap().timeout, shortest);
        assert!(!with("RINGFOLD_TOPO", "off").unwrap().topology && Config::default().topology);
        assert_eq!(with("RINGFOLD_TOPO_FILE", "x").unwrap().topology_file.as_deref(), Some("x"));
        let places = with("RINGFOLD_AGGREGATORS", "a:1, [::1]:2").unwrap().aggregators;
        assert_eq!(places.as_deref(), Some("a:1, [::1]:2"));
        assert_eq!(with("RINGFOLD_INNETWORK", "require").unwrap().in_network, InNetwork::Require);
        let tcp_only = Transports { shm: false, rdma: false, tcp: true };
        assert_eq!(with("RINGFOLD_TRANSPORT", "tcp").unwrap().transports, tcp_only);
        assert_eq!(with("RINGFOLD_TRANSPORT", "TCP").unwrap().transports, tcp_only);
        assert_eq!(with("RINGFOLD_CHUNK", "1.5MB").unwrap().chunk_bytes, Some(3 << 19));
        assert!(with("RINGFOLD_ALGO", "All_Reduce:recursive-doubling").is_ok());
        assert_eq!(
            with("RINGFOLD_TRANSPORT", "").unwrap().transports,
            Config::default().transports
        );
    }

    #[test]
    fn a_profile_that_cannot_be_used_is_refused_with_the_reason() {
        let file = env::temp_dir().join(format!("ringfold-prices-{}", std::process::id()));
        let path = file.to_str().unwrap();
        let why = |text: &str| {
            std::fs::write(&file, text).unwrap();
            profile(path).unwrap_err().to_string()
        };
        let wrong = why("ringfold-prices 1\ntcp 5 5\n");
        assert!(
            wrong.contains("RINGFOLD_PRICES=") && wrong.contains("line 2: expected"),
            "{wrong}"
        );
        let long = why(&"#".repeat(PRICES_BYTES_MAX + 1));
        assert!(long.contains("it has more than 8192 bytes"), "{long}");
        std::fs::write(&file, "ringfold-prices 1\ntcp 5 5 5\n").unwrap();
        assert_eq!(profile(path).unwrap().links().count(), 1);
        std::fs::remove_file(&file).unwrap();
        assert!(profile(path).unwrap_err().to_string().contains("No such file"));
        let set = with("RINGFOLD_PRICES", path).unwrap();
        assert_eq!(set.prices_file.as_deref(), Some(path), "only rank 0 reads it");
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
            ("RINGFOLD_HOSTID", "two words"),
            ("RINGFOLD_SHM_CMA", "always"),
            ("RINGFOLD_CHUNK", "99999999999999999999"),
            ("RINGFOLD_CHUNK", "1KK0"),
            ("RINGFOLD_CHANNELS", "9"),
            ("RINGFOLD_TIMEOUT", "-1"),
            ("RINGFOLD_TIMEOUT", "nan"),
            ("RINGFOLD_TIMEOUT", "-inf"),
            ("RINGFOLD_TIMEOUT", "0"),
            ("RINGFOLD_JOIN_TIMEOUT", "soon"),
            ("RINGFOLD_TRANSPORT", "ib"),
            ("RINGFOLD_IB_TIMEOUT", "0"),
            ("RINGFOLD_IB_HCA", "mlx5_0:one"),
            ("RINGFOLD_IB_HCA", "mlx5_0:1:one"),
            ("RINGFOLD_IB_SL", "16"),
            ("RINGFOLD_IB_PKEY", "65536"),
            ("RINGFOLD_IB_ADAPTIVE_ROUTING", "2"),
            ("RINGFOLD_IB_PCI_RELAXED_ORDERING", "2"),
            ("RINGFOLD_IB_QPS_PER_CONNECTION", "5"),
            ("RINGFOLD_IB_GID_INDEX", "three"),
            ("RINGFOLD_IB_QPS_MAX", "0"),
            ("RINGFOLD_IB_BYTES_MAX", "none"),
            ("RINGFOLD_ALGO", "allreduce:teleport"),
            ("RINGFOLD_WIRE", "f32"),
            ("RINGFOLD_PLAN", "/no/such/file"),
            ("RINGFOLD_PLAN", "/dev/zero"),
            ("RINGFOLD_TOPO", "0"),
            ("RINGFOLD_INNETWORK", "on"),
            ("RINGFOLD_DEBUG", "LOUD"),
        ] {
            let message = with(name, value).expect_err(value).to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
