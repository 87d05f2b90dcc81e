//! One way between two ranks, tried by itself: both make an endpoint that has nothing else.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use ringfold::Config;
use ringfold_bootstrap::Secret;
use ringfold_lend::placement;
use ringfold_topology::discover::Host;
use ringfold_transport::rdma::{self, Finding, Port, Rails, Rdma, State};
use ringfold_transport::tcp::{self, Listening, Liveness, Tcp};
use ringfold_transport::trial::{self, Failed, Figures, Stage};
use ringfold_transport::{Link, Transport};
use ringfold_types::{Lane, Rank};
use serde::{Deserialize, Serialize};

/// As in the job, but for how long a device tries: 0.27 s, four times. Who waits longer than that
/// for an answer has found something.
const TIMEOUT: u8 = 16;
const RETRIES: u8 = 3;

/// What a rank tries a way to another by.
pub(super) struct By<'a> {
    pub(super) own: Rank,
    /// The lower one of both begins.
    pub(super) other: Rank,
    /// Ranks of the job.
    pub(super) size: usize,
    /// Of these two, and of this way.
    pub(super) key: [u8; 32],
    pub(super) config: &'a Config,
    /// The RDMA port; without one it is tcp.
    pub(super) port: Option<&'a Port>,
    /// The address by which ranks meet here.
    pub(super) near: Option<IpAddr>,
}

/// Why a way does not work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trouble {
    /// Short messages passed, and long ones did not.
    pub(super) is_long: bool,
    /// This end knows no more than that the other one gave up.
    pub(super) is_told: bool,
    pub(super) why: String,
}

impl Trouble {
    pub(super) fn told(why: &str) -> Self {
        Self { is_long: false, is_told: true, why: why.to_owned() }
    }
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        let is_long = failed.stage == Stage::Long;
        Self { is_long, is_told: failed.is_told(), why: failed.to_string() }
    }
}

impl From<anyhow::Error> for Trouble {
    /// The trial did not begin.
    fn from(why: anyhow::Error) -> Self {
        Self { is_long: false, is_told: false, why: format!("{why:#}") }
    }
}

impl By<'_> {
    /// Listens for the other rank. What `Listening::addresses` says must reach it.
    pub(super) fn door(&self, address: IpAddr) -> anyhow::Result<Listening> {
        let &By { own: rank, size, key, .. } = self;
        let (bind, liveness) = (vec![address], Liveness::default());
        let config = tcp::Config { key, rank, size, lanes: 1, bind, ports: None, liveness };
        Ok(Tcp::listen(config)?)
    }

    /// Tries the way to the other rank, which listens at `theirs` and does the same.
    pub(super) fn run(&self, door: Listening, theirs: Vec<SocketAddr>) -> Result<Figures, Trouble> {
        let mut transport = self.open(door, theirs)?;
        let link = Link { peer: self.other, lane: Lane(0) };
        Ok(trial::run(&mut *transport, link, self.own < self.other)?)
    }

    fn open(&self, door: Listening, theirs: Vec<SocketAddr>) -> anyhow::Result<Box<dyn Transport>> {
        let tcp = door.connect([(self.other, theirs)])?;
        let Some(port) = self.port else { return Ok(Box::new(tcp)) };
        let mut settings = self.config.rdma();
        settings.devices = format!("={}", port.name).parse()?;
        settings.host = Host::this().name;
        settings.timeout = settings.timeout.min(TIMEOUT);
        settings.retries = settings.retries.min(RETRIES);
        let rails = Rails::open(&settings, self.near)?;
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

/// Tries a port by two endpoints of this process.
pub(super) fn with_itself(port: &Port, config: &Config, near: Option<IpAddr>) -> Finding {
    let (state, what) = match both(port, config, near) {
        Ok(figures) => (State::Good, said(&figures)),
        Err(trouble) => (State::Bad, trouble.why),
    };
    Finding { about: "trial", state, what: format!("{} to itself: {what}", port.name) }
}

fn both(port: &Port, config: &Config, near: Option<IpAddr>) -> Result<Figures, Trouble> {
    let key = Secret::generate().context("no random bytes")?.derive(&["doctor"]);
    let by = |own, other| By { own, other, size: 2, key, config, port: Some(port), near };
    let ends = [by(Rank(0), Rank(1)), by(Rank(1), Rank(0))];
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let doors = [ends[0].door(local)?, ends[1].door(local)?];
    let [of_one, of_other] = doors.each_ref().map(|door| door.addresses().to_vec());
    let [one, other] = doors;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| ends[1].run(other, of_one));
        let here = ends[0].run(one, of_other);
        let there = there.join().unwrap_or_else(|_| unreachable!("trials do not panic"));
        match (here, there) {
            // That one knows more.
            (Err(told), Err(why)) if told.is_told => Err(why),
            (here, _) => here,
        }
    })
}

/// Figures in words.
fn said(figures: &Figures) -> String {
    let Figures { latency, bytes_per_second } = figures;
    format!("{}, {} for 8 bytes", rate(*bytes_per_second), time(*latency))
}

pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}

pub(super) fn time(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}
