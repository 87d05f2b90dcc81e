//! A probe of one path between two ranks. Each rank makes a transport with that path alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use anyhow::Context as _;
use ringfold::Config;
use ringfold_bootstrap::Secret;
use ringfold_lend::placement;
use ringfold_topology::discover::Host;
use ringfold_transport::rdma::{self, Port, Rails, Rdma};
use ringfold_transport::tcp::{self, Listening, Liveness, PeerRoutes, Route, Tcp};
use ringfold_transport::trial::{self, Failed, Figures, Stage};
use ringfold_transport::{Link, Transport};
use ringfold_types::{Chain, Lane, Rank};
use serde::{Deserialize, Serialize};

/// The longest acknowledgement timeout of a device: 2^16 * 4.096 us, or 0.27 s. A probe thus
/// finds a broken path sooner than a job would.
const TIMEOUT: u8 = 16;
/// The most retries of a device.
const RETRIES: u8 = 3;

/// A rank's end of a path.
pub(crate) struct Path<'a> {
    /// This host's address for the connection.
    pub(crate) address: IpAddr,
    /// The network interface of the connection; any if `None`.
    pub(crate) interface: Option<&'a str>,
    /// The RDMA port, and this host's address for the job's setup; `None` for tcp.
    pub(crate) rdma: Option<(&'a Port, Option<IpAddr>)>,
}

/// The inputs of a rank's probe.
#[derive(Clone, Copy)]
pub(super) struct Probe<'a> {
    pub(super) own: Rank,
    /// The peer.
    pub(super) other: Rank,
    /// Number of ranks in the job.
    pub(super) size: usize,
    /// The key of this pair and path.
    pub(super) key: [u8; 32],
    pub(super) config: &'a Config,
    pub(super) path: &'a Path<'a>,
}

/// The reason why a path does not work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProbeError {
    /// Short messages passed, and long ones did not.
    pub(crate) is_long: bool,
    /// This end knows only that the other end gave up.
    pub(crate) is_secondary: bool,
    pub(crate) why: String,
}

impl ProbeError {
    /// The error of an end that knows no cause of its own.
    pub(crate) fn secondary(why: &str) -> Self {
        Self { is_long: false, is_secondary: true, why: why.to_owned() }
    }
}

impl From<Failed> for ProbeError {
    fn from(failed: Failed) -> Self {
        let is_long = failed.stage == Stage::Long;
        Self { is_long, is_secondary: failed.is_told(), why: Chain(&failed).to_string() }
    }
}

impl From<anyhow::Error> for ProbeError {
    /// Reports a probe that could not start.
    fn from(why: anyhow::Error) -> Self {
        Self { is_long: false, is_secondary: false, why: format!("{why:#}") }
    }
}

impl Probe<'_> {
    /// Listens for the other rank. The caller sends it the addresses of `Listening::addresses`.
    pub(super) fn listen(&self) -> anyhow::Result<Listening> {
        let &Probe { own: rank, size, key, path, .. } = self;
        let (bind, liveness) = (vec![path.address], Liveness::default());
        let config = tcp::Config { key, rank, size, lanes: 1, bind, ports: None, liveness };
        Ok(Tcp::listen_through(config, path.interface.map(str::to_owned))?)
    }

    /// Runs a trial with the other rank, which listens at `theirs` and calls this too. Blocks.
    pub(super) fn run<T>(
        &self,
        listener: Listening,
        theirs: Vec<SocketAddr>,
        trial: impl Fn(&mut dyn Transport, Link, bool) -> Result<T, Failed>,
    ) -> Result<T, ProbeError> {
        let mut transport = self.open(listener, theirs)?;
        let link = Link { peer: self.other, lane: Lane(0) };
        Ok(trial(&mut *transport, link, self.own < self.other)?)
    }

    fn open(
        &self,
        listener: Listening,
        theirs: Vec<SocketAddr>,
    ) -> anyhow::Result<Box<dyn Transport>> {
        // A NIC may have other addresses, which other routes reach.
        let from = self.path.interface.map(|_| self.path.address);
        let rails = theirs.into_iter().map(|to| Route { from, to }).collect();
        let tcp =
            listener.connect_by_rail([(self.other, PeerRoutes { rails, others: Vec::new() })])?;
        let Some((port, near)) = self.path.rdma else { return Ok(Box::new(tcp)) };
        let mut settings = self.config.rdma();
        settings.devices = format!("={}", port.name).parse()?;
        settings.host = Host::this().name;
        settings.timeout = settings.timeout.min(TIMEOUT);
        settings.retries = settings.retries.min(RETRIES);
        let rails = Rails::open(&settings, near)?;
        let config = rdma::Config {
            key: self.key,
            rank: self.own,
            lanes: 1,
            settings,
            reaches: vec![true; self.size],
            may_use_tcp: false,
            placement: Some(placement()),
        };
        Ok(Box::new(Rdma::new(rails, tcp, config)?))
    }
}

/// Probes a port between two transports of this process.
pub(crate) fn loopback(
    port: &Port,
    config: &Config,
    near: Option<IpAddr>,
) -> Result<Figures, ProbeError> {
    let key = Secret::generate().context("no random bytes")?.derive(&["doctor"]);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let path = &Path { address, interface: None, rdma: Some((port, near)) };
    let by = |own, other| Probe { own, other, size: 2, key, config, path };
    let ends = [by(Rank(0), Rank(1)), by(Rank(1), Rank(0))];
    let listeners = [ends[0].listen()?, ends[1].listen()?];
    let [of_one, of_other] = listeners.each_ref().map(|listener| listener.addresses().to_vec());
    let [one, other] = listeners;
    thread::scope(|scope| {
        let there = scope.spawn(|| ends[1].run(other, of_one, trial::run));
        let here = ends[0].run(one, of_other, trial::run);
        let there = there.join().unwrap_or_else(|_| unreachable!("probes do not panic"));
        match (here, there) {
            // The other transport saw the cause.
            (Err(told), Err(why)) if told.is_secondary => Err(why),
            (here, _) => here,
        }
    })
}
