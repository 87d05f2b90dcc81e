//! The settings of a communicator. Only this module of the library reads the environment.

mod error;
mod file;
mod metrics;
mod table;
mod values;
mod variables;

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use ringfold_collectives::select::{
    Constraints, InvalidConstraints, InvalidMeasurements, Measurements,
};
pub use ringfold_topology::prices::{InvalidProfile, Profile};
pub use ringfold_transport::rdma::Settings as RdmaSettings;
pub use ringfold_transport::rdma::{Filter, InvalidFilter, Partition};
pub use ringfold_transport::shm::SingleCopy;
use ringfold_types::limits::{
    self, CHANNELS_MAX, PATHS_MAX, PLAN_BYTES_MAX, PRICES_BYTES_MAX, RAILS_MAX,
};
use ringfold_types::{Digest, Wire};

pub use error::ConfigError;
pub(crate) use file::part_of;
pub use metrics::Metrics;
use table::settings;
pub use tracing::Level;
pub use values::{CallProgress, InNetwork, Transports, timeout_of};
use values::{
    algorithms, bytes, call_progress, count, devices, flag, host_id, in_network, level, number,
    on_or_off, partition, seconds, single_copy, text, trace_file, transports, wire,
};

/// The most queue pairs on each pair of rails.
#[expect(clippy::cast_possible_truncation, reason = "asserted to be at most 255")]
const QUEUE_PAIRS_MAX: u8 = (PATHS_MAX / RAILS_MAX) as u8;

settings! {
    /// `RINGFOLD_TRANSPORT`: the allowed transports, as in `tcp` or `shm,tcp`. Two ranks use the
    /// first of shm, rdma and tcp that both allow and that connects them. Default: all.
    "RINGFOLD_TRANSPORT" transports: Transports = Transports::default(), transports;
    /// `RINGFOLD_HOSTID`: a name of up to 64 visible characters that divides a machine into hosts.
    /// Only ranks with the same name share memory and count as ranks of one host. Default: none;
    /// every network namespace of a machine is a host.
    "RINGFOLD_HOSTID" host_id: Option<String> = None, host_id;
    /// `RINGFOLD_SHM_CMA`: the size from which the receiver of a message copies it directly from
    /// the memory of a sender on the same host (cross-memory attach), as in `128K`. It needs the
    /// system's permission; `0` turns it off. Default: only in calls by `single_copy`.
    "RINGFOLD_SHM_CMA" shm_cma: SingleCopy = SingleCopy::default(), single_copy;
    /// `RINGFOLD_ALGO`: the allowed algorithms, as in `ring,tree` for all collectives or
    /// `allreduce:ring;broadcast:^binomial` for some. `^` excludes algorithms. Default: all.
    "RINGFOLD_ALGO" algorithms: Constraints = Constraints::default(), algorithms,
        common |it, _| it.algorithms.to_string();
    /// `RINGFOLD_WIRE`: the form in which partial results of short floats travel between hosts:
    /// `element` rounds them to the call's data type before each message, `accumulator` sends them
    /// as `f32`. Default: `element`.
    "RINGFOLD_WIRE" wire: Wire = Wire::default(), wire,
        common |it, _| unless_default(&it.wire);
    /// `RINGFOLD_CHUNK`: the chunk size of pipelined algorithms, as in `256K`. Default: it depends
    /// on the size of the call and on whether there are several hosts.
    "RINGFOLD_CHUNK" chunk_bytes: Option<usize> = None, bytes,
        common |it, _| or_empty(it.chunk_bytes);
    /// `RINGFOLD_CHANNELS`: the number of parts, 1 to 8, into which `ring` and `chain` divide a
    /// long call. The parts run at the same time, each over a TCP connection of its own, since a
    /// network may limit the rate of each connection. The field is clamped to that range. Default:
    /// 1, or where all data goes by TCP, 2 or the number of rails for TCP if that is larger.
    "RINGFOLD_CHANNELS" channels: Option<u8> = None, number(1..=CHANNELS_MAX),
        common |it, _| or_empty(it.channels);
    /// `RINGFOLD_PLAN`: a tuning file that `ringfold tune` made. Algorithms are chosen by its
    /// measurements. Default: none; algorithms are chosen by an estimate.
    "RINGFOLD_PLAN" plan: Measurements = Measurements::default(), |_, path| measurements(path),
        common |it, _| plan_digest(&it.plan);
    /// `RINGFOLD_TOPO`: `off` ignores rails, planes and the order of hosts, and reads nothing about
    /// them. Default: `on`; ranks use the facts about the fabric that are certain.
    "RINGFOLD_TOPO" topology: bool = true, on_or_off,
        common |it, _| if it.topology { "" } else { "off" }.to_owned();
    /// `RINGFOLD_TOPO_FILE`: a file that describes the fabric: a site file (`ringfold topo
    /// --write`), output of `ibnetdiscover`, `iblinkinfo` or `lldpctl -f json`, or Slurm's
    /// `topology.conf`. Ranks find their ports and their host in it. Joining fails if ranks have
    /// different files, except with LLDP, where each file describes one host. Default: none.
    "RINGFOLD_TOPO_FILE" topology_file: Option<String> = None, text,
        common |_, site| or_empty(site.map(|digest| format!("{digest:x}")));
    /// `RINGFOLD_PRICES`: a profile of prices that `ringfold tune --machine` made. Estimates use
    /// it. Rank 0 reads the file and sends it to all ranks; the files of other ranks are ignored.
    /// Default: none; estimates use the rates of NICs and default prices.
    "RINGFOLD_PRICES" prices_file: Option<String> = None, text;
    /// `RINGFOLD_AGGREGATORS`: the aggregators for in-network reduction, as their control ports
    /// (`10.0.0.9:7411,10.0.0.10:7411`) or as the path of a tree file. Only rank 0 reads the file.
    /// Calls are divided among up to 8 trees. Default: none.
    "RINGFOLD_AGGREGATORS" aggregators: Option<String> = None, text,
        common |it, _| or_empty(it.aggregators.as_ref());
    /// `RINGFOLD_INNETWORK`: `off` ignores the aggregators. `auto` uses those that grant a group,
    /// where they are faster. With `require` joining fails unless every one grants a group.
    /// Default: `auto`.
    "RINGFOLD_INNETWORK" in_network: InNetwork = InNetwork::default(), in_network,
        common |it, _| unless_default(&it.in_network);
    /// `RINGFOLD_SITE_SECRET_FILE`: the file of the site's secret, which opens the control port of
    /// aggregators. Only rank 0 reads it. Default: `.ringfold/site-secret` in the home directory,
    /// made on first use.
    "RINGFOLD_SITE_SECRET_FILE" site_secret_file: Option<String> = None, text;
    /// `RINGFOLD_TIMEOUT`: the seconds that one call may take. The job fails after them, with an
    /// error that names the ranks missing from the call. `inf` stands for the longest timeout, a
    /// hundred years. The field is clamped to the range from a millisecond to that. Default: 600.
    "RINGFOLD_TIMEOUT" timeout: Duration = Duration::from_secs(600), seconds;
    /// `RINGFOLD_PROGRESS`: the threads that advance started calls. `thread`: those that wait, and
    /// else one helper thread of the process. `caller`: only those that wait. A list of CPUs, as in
    /// `0-3,8`: as `thread`, with the helper on these CPUs. Default: `thread`; the helper runs on
    /// the CPUs of the thread that started the first call.
    "RINGFOLD_PROGRESS" progress: CallProgress = CallProgress::default(), call_progress;
    /// `RINGFOLD_JOIN_TIMEOUT`: the seconds within which all ranks must have joined, with the same
    /// range. Default: 60.
    "RINGFOLD_JOIN_TIMEOUT" join_timeout: Duration = Duration::from_secs(60), seconds;
    /// `RINGFOLD_SOCKET_IFNAME`: the allowed network interfaces, as name prefixes separated by
    /// commas. A list after `^` names the interfaces to leave out. A list after `=` has exact
    /// names. Rank 0 also listens there for the others, unless `MASTER_ADDR`, a list of nodes or
    /// Open MPI gives its address. Several names that match one interface each declare rails for
    /// TCP, in their order. Default: any.
    "RINGFOLD_SOCKET_IFNAME" socket_ifname: Option<String> = None, text;
    /// `RINGFOLD_DUMP`: the folder to which a failure copies the records of the ranks, for
    /// `ringfold inspect`. Default: none.
    "RINGFOLD_DUMP" dump: Option<String> = None, text;
    /// `RINGFOLD_METRICS`: the place of metrics in the format OpenMetrics, for all processes of the
    /// user on this host. It is a port of the loopback interface, an address with a port, or a
    /// file. Default: none.
    "RINGFOLD_METRICS" metrics: Option<Metrics> = None, metrics::metrics;
    /// `RINGFOLD_TRACE`: the file of a trace in Chrome's format, with the calls, waits and messages
    /// of all ranks. Joining replaces it. It must be set on all ranks or on none. Default: none.
    "RINGFOLD_TRACE" trace: Option<PathBuf> = None, trace_file,
        common |it, _| if it.trace.is_some() { "set" } else { "" }.to_owned();
    /// `RINGFOLD_DEBUG`: the level of the log on standard error: `ERROR`, `WARN`, `INFO`, `DEBUG`
    /// or `TRACE`. If it is set, the library installs a `tracing` subscriber, unless the program
    /// has one. Without either, the library logs warnings while the ranks join.
    "RINGFOLD_DEBUG" debug: Option<Level> = None, level;

    rdma:
    /// `RINGFOLD_IB_HCA`: the allowed RDMA devices, as name prefixes separated by commas, each with
    /// an optional `:port:rail:plane`. A list after `^` names the devices to leave out. A list
    /// after `=` has exact names. Default: all.
    "RINGFOLD_IB_HCA" ib_devices: Filter = devices, devices;
    /// `RINGFOLD_IB_GID_INDEX`: the index of the GID to use on every port. Ports of iWARP have no
    /// GID. Default: a GID of RoCE v2 whose address this network namespace has, in the family of
    /// the job's address and nearest to it.
    "RINGFOLD_IB_GID_INDEX" ib_gid_index: Option<u8> = gid_index, number(0..=u8::MAX);
    /// `RINGFOLD_IB_TC`: the traffic class of packets over RoCE, or over InfiniBand across routers,
    /// 0 to 255. It is four times the DSCP. Default: 0.
    "RINGFOLD_IB_TC" ib_traffic_class: u8 = traffic_class, number(0..=u8::MAX);
    /// `RINGFOLD_IB_SL`: the service level of packets over InfiniBand and RoCE, 0 to 15. Default:
    /// 0.
    "RINGFOLD_IB_SL" ib_service_level: u8 = service_level, number(0..=15_u8);
    /// `RINGFOLD_IB_PKEY`: the partition key of every port, in hexadecimal, as in `0x8001`; or in
    /// decimal its index in the port's table. Both ends of a connection must be in the same
    /// partition, one of them as a full member. Ports of iWARP have no such table. Default: the
    /// first key in the table that makes the port a full member.
    "RINGFOLD_IB_PKEY" ib_partition: Option<Partition> = partition, partition;
    /// `RINGFOLD_IB_ADAPTIVE_ROUTING`: whether payloads beyond 8 KiB go by RDMA writes of their
    /// own, 0 or 1. Switches may route the packets of such writes one by one; the notification
    /// follows. Default: 1 on InfiniBand, else 0.
    "RINGFOLD_IB_ADAPTIVE_ROUTING" ib_adaptive_routing: Option<bool> = adaptive_routing, flag;
    /// `RINGFOLD_IB_TIMEOUT`: the time that an RDMA device waits for an answer, as an exponent from
    /// 1 to 31: 4.096 us times two to the power of this. Over iWARP the library waits instead, for
    /// the time of all retries. Default: 18, about a second.
    "RINGFOLD_IB_TIMEOUT" ib_timeout: u8 = timeout, number(1..=31_u8);
    /// `RINGFOLD_IB_RETRY_CNT`: the retries of an RDMA device before the peer counts as lost, 0 to
    /// 7. Soft-RoCE takes 7 to be unlimited. Default: 6.
    "RINGFOLD_IB_RETRY_CNT" ib_retries: u8 = retries, number(0..=7_u8);
    /// `RINGFOLD_IB_PCI_RELAXED_ORDERING`: whether RDMA devices may write received bytes to memory
    /// in any order, 0 or 1. Default: 1.
    "RINGFOLD_IB_PCI_RELAXED_ORDERING" ib_relaxed_ordering: bool = relaxed_ordering, flag;
    /// `RINGFOLD_IB_QPS_PER_CONNECTION`: the queue pairs between two ranks on each pair of rails,
    /// 1 to 4. Messages are spread over them. Two ranks use the smaller of their numbers. Default:
    /// 1.
    "RINGFOLD_IB_QPS_PER_CONNECTION" ib_queue_pairs: u8 = queue_pairs,
        number(1..=QUEUE_PAIRS_MAX);
    /// `RINGFOLD_IB_QPS_MAX`: the most queue pairs of this process with all peers of all
    /// communicators. When they run out, further peers get fewer and then none. The data of a peer
    /// without queue pairs goes by TCP; calls fail if `transports` excludes TCP. Default: 4096.
    "RINGFOLD_IB_QPS_MAX" ib_queue_pairs_max: usize = queue_pairs_max, count;
    /// `RINGFOLD_IB_BYTES_MAX`: the most bytes that this process registers with RDMA devices for
    /// all peers of all communicators, as in `256M`. They count once for each rail, as for
    /// `ulimit -l`; a peer counts 8 MiB on each rail. Peers beyond the limit have no queue pairs.
    /// Default: 8 GiB.
    "RINGFOLD_IB_BYTES_MAX" ib_bytes_max: usize = bytes_max, bytes;
}

impl Config {
    /// These settings, with timeouts within their limits.
    pub(crate) fn bounded(&self) -> Arc<Self> {
        let [timeout, join_timeout] = [self.timeout, self.join_timeout].map(limits::timeout);
        Arc::new(Self { timeout, join_timeout, ..self.clone() })
    }

    /// Whether `ringrun` has started this process in place of a dead rank.
    pub(crate) fn is_newcomer(&self) -> bool {
        let value = self.environment.get("RINGFOLD_NEWCOMER");
        value.is_some_and(|value| !value.is_empty())
    }

    /// The number of ranks that `ringrun` has started, or 0.
    pub(crate) fn started_ranks(&self) -> usize {
        let size = self.environment.get("RINGFOLD_SIZE");
        size.and_then(|size| size.parse().ok()).unwrap_or_default()
    }

    /// The values of the variables in `COMMON`, as text; empty if not set. `site` is the digest of
    /// a topology file for all hosts.
    pub(crate) fn common_values(&self, site: Option<u64>) -> [String; COMMON.len()] {
        std::array::from_fn(|index| (COMMON[index].1)(self, site))
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
        for (variable, read) in VARIABLES {
            if let Some(value) = environment.get(*variable).filter(|value| !value.is_empty()) {
                read(&mut config, value)?;
            }
        }
        config.environment = environment;
        Ok(config)
    }
}

/// The text of a value; empty if not set.
fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The text of a value; empty for the default.
fn unless_default<T: Display + Default + PartialEq>(value: &T) -> String {
    or_empty(Some(value).filter(|value| **value != T::default()))
}

/// The number of measurements and their digest; empty without any.
fn plan_digest(plan: &Measurements) -> String {
    let lines = Some(plan.rows().len()).filter(|lines| *lines > 0);
    or_empty(lines.map(|lines| format!("{lines}-lines-{:x}", Digest::of(plan.to_string()))))
}

/// Reads a tuning file that `ringfold tune` wrote, of at most `limits::PLAN_BYTES_MAX` bytes.
///
/// # Errors
/// [`ConfigError::Plan`] if the file cannot be read, is too long, or is not a tuning file.
pub fn measurements(path: &str) -> Result<Measurements, ConfigError> {
    let bad = |why: String| ConfigError::Plan { path: path.to_owned(), why };
    let text = text_of(path, PLAN_BYTES_MAX).map_err(bad)?;
    text.parse().map_err(|e: InvalidMeasurements| bad(e.to_string()))
}

/// Reads a profile of prices that `ringfold tune --machine` wrote, of at most
/// `limits::PRICES_BYTES_MAX` bytes.
///
/// # Errors
/// [`ConfigError::Prices`] if the file cannot be read, is too long, or is not a profile.
pub fn profile(path: &str) -> Result<Profile, ConfigError> {
    let bad = |why: String| ConfigError::Prices { path: path.to_owned(), why };
    let text = text_of(path, PRICES_BYTES_MAX).map_err(bad)?;
    text.parse().map_err(|e: InvalidProfile| bad(e.to_string()))
}

/// The text of a file of at most `most` bytes, or the reason why it cannot be used.
fn text_of(path: &str, most: usize) -> Result<String, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let mut text = String::new();
    let bytes = file.take(most as u64 + 1).read_to_string(&mut text);
    let fits = bytes.map_err(|e| e.to_string())? <= most;
    fits.then_some(text).ok_or_else(|| format!("it has more than {most} bytes"))
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Folder;

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
        let partition = |value| with("RINGFOLD_IB_PKEY", value).unwrap().rdma().partition;
        assert_eq!(partition("127"), Some(Partition::Index(127)));
        assert_eq!(partition("0x8001"), Some(Partition::Key(0x8001)));
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
    fn the_threads_of_started_calls_are_named_or_have_cpus() {
        let of = |value| with("RINGFOLD_PROGRESS", value).map(|config| config.progress);
        assert_eq!(of("Thread").unwrap(), CallProgress::Thread);
        assert_eq!(of("caller").unwrap(), CallProgress::Caller);
        assert_eq!(of("0-2,8").unwrap(), CallProgress::Cpus("0,1,2,8".parse().unwrap()));
        for wrong in [",", "helper", "0-", "8192", "-1", "99999999999999999999"] {
            let text = of(wrong).unwrap_err().to_string();
            assert!(text.contains("RINGFOLD_PROGRESS") && text.contains("0-3,8"), "{text}");
        }
    }

    #[test]
    fn a_profile_that_cannot_be_used_is_refused_with_the_reason() {
        let folder = Folder::new();
        let path = folder.at("prices");
        let path = path.as_str();
        let why = |text: &str| {
            folder.file("prices", text);
            profile(path).unwrap_err().to_string()
        };
        let wrong = why("ringfold-prices 1\ntcp 5 5\n");
        assert!(
            wrong.contains("RINGFOLD_PRICES=") && wrong.contains("line 2: expected"),
            "{wrong}"
        );
        let long = why(&"#".repeat(PRICES_BYTES_MAX + 1));
        assert!(long.contains("it has more than 8192 bytes"), "{long}");
        folder.file("prices", "ringfold-prices 1\ntcp 5 5 5\n");
        assert_eq!(profile(path).unwrap().links().count(), 1);
        std::fs::remove_file(path).unwrap();
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
            ("RINGFOLD_IB_PKEY", "0x8000"),
            ("RINGFOLD_IB_PKEY", "ffff"),
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
            ("RINGFOLD_TRACE", "/no/such/folder/trace.json"),
            ("RINGFOLD_TRACE", "/tmp"),
            ("RINGFOLD_TRACE", "/dev/full"),
        ] {
            let message = with(name, value).expect_err(value).to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
