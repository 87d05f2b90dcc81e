//! What RDMA on this host needs, looked at piece by piece, with what to do about each that is
//! wrong; and a trial of every port that looks usable.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ringfold_types::{Lane, Rank};
use rustix::process::{Resource, getrlimit};

use super::rail::{DEVICES, Rail, Rails};
use super::sys::{Context, LinkLayer, devices};
use super::{Config, Filter, Rdma, Settings};
use crate::contract::{Link, LinkError, Transport as _};
use crate::tcp::{self, Liveness, Tcp};

/// What was looked at, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What this is about, in a word.
    pub about: &'static str,
    /// How it is.
    pub state: State,
    /// What was found, and what to do about it.
    pub what: String,
}

impl Finding {
    const fn new(about: &'static str, state: State, what: String) -> Self {
        Self { about, state, what }
    }
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// It works, but could be better.
    Fair,
    /// It does not work.
    Bad,
}

/// Memory that may be locked, below which a job of some size runs out.
const LOCKED_BYTES: u64 = 256 << 20;
/// Bytes of a trial's long messages,
const LONG_BYTES: usize = 1 << 20;
/// how many of them there are,
const LONG_COUNT: usize = 32;
/// bytes of its short ones, which go there and back,
const SHORT_BYTES: usize = 4096;
/// and how many of those there are.
const SHORT_COUNT: usize = 200;
/// Time that a trial may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of an RDMA packet from which on the network's headers cost little.
const MTU_BYTES: u32 = 4096;

/// Looks at the library, the devices that the settings allow, their ports and GIDs, and the memory
/// that may be locked. Takes up to half a minute for each port.
#[must_use]
pub fn examine(settings: &Settings, near: Option<IpAddr>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some()) {
        let what = format!(
            "none in {DEVICES}; if there is an RDMA NIC, load its driver (`lspci`, `dmesg`), and \
             in a container hand in /dev/infiniband"
        );
        findings.push(Finding::new("device", State::Fair, what));
        return findings;
    }
    let found = match devices() {
        Ok(found) => found,
        Err(why) => {
            findings.push(Finding::new("library", State::Bad, why));
            return findings;
        }
    };
    findings.push(Finding::new("library", State::Good, "libibverbs is there".to_owned()));
    if found.is_empty() {
        let what = "libibverbs sees none of the kernel's devices; install ibverbs-providers, and \
                    in a container hand in /dev/infiniband";
        findings.push(Finding::new("device", State::Bad, what.to_owned()));
    }
    for (name, is_ib) in found {
        if !is_ib {
            let what = format!("{name} is iWARP, which ringfold does not speak");
            findings.push(Finding::new("device", State::Fair, what));
            continue;
        }
        match Context::open(&name).and_then(|context| context.limits()) {
            Ok((_, _, ports)) => {
                for number in (1..=ports).filter(|port| settings.devices.allows(&name, *port)) {
                    findings.extend(port(&name, number, settings, near));
                }
            }
            Err(error) => {
                let what = format!(
                    "{name} cannot be opened: {error}; who may open /dev/infiniband/uverbs*?"
                );
                findings.push(Finding::new("device", State::Bad, what));
            }
        }
    }
    findings.push(memory());
    findings
}

/// Looks at one port.
fn port(name: &str, number: u8, settings: &Settings, near: Option<IpAddr>) -> Vec<Finding> {
    let rail = match Rail::open(name, number, settings, near) {
        Ok(rail) => rail,
        Err(why) => {
            let what = format!("{name}:{number} {}", why.unwrap_or_default());
            return vec![Finding::new("port", State::Bad, what)];
        }
    };
    let mut findings = Vec::new();
    let mut find = |about, state, what| findings.push(Finding::new(about, state, what));
    find("port", State::Good, rail.to_string());
    find(
        "gid",
        State::Good,
        format!("{name}:{number}: {} ({}): {}", rail.gid.index, rail.gid, rail.why),
    );
    let bytes = rail.mtu_bytes();
    if bytes < MTU_BYTES {
        let advice = match rail.port.link_layer {
            LinkLayer::Ethernet => {
                "an interface of 4200 bytes or more has 4096 (`ip link set ... mtu 9000`, and on \
                 the switch)"
            }
            LinkLayer::InfiniBand => "the subnet manager sets it",
        };
        find("mtu", State::Fair, format!("{name}:{number}: {bytes} bytes; {advice}"));
    } else {
        find("mtu", State::Good, format!("{name}:{number}: {bytes} bytes"));
    }
    drop(rail);
    let result = trial(name, number, settings, near);
    find(
        "trial",
        if result.is_ok() { State::Good } else { State::Bad },
        match result {
            Ok(trial) => format!("{name}:{number} to itself: {trial}"),
            Err(why) => format!("{name}:{number} to itself: {why}"),
        },
    );
    findings
}

/// Looks at the memory that may be locked.
fn memory() -> Finding {
    let about = "memlock";
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if bytes < LOCKED_BYTES => {
            let what = format!(
                "{} KiB of memory may be locked; raise it (`ulimit -l unlimited`, memlock in \
                 /etc/security/limits.conf, LimitMEMLOCK=infinity for a service), unless the job \
                 runs as root",
                bytes / 1024
            );
            Finding::new(about, State::Fair, what)
        }
        Some(bytes) => {
            let what = format!("{} MiB of memory may be locked", bytes >> 20);
            Finding::new(about, State::Good, what)
        }
        None => {
            let what = "any amount of memory may be locked".to_owned();
            Finding::new(about, State::Good, what)
        }
    }
}

/// What a port did in a trial with itself.
struct Trial {
    round_trip: Duration,
    bytes_per_second: f64,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gigabytes, micros) = (self.bytes_per_second / 1e9, self.round_trip.as_micros());
        write!(f, "{gigabytes:.2} GB/s, {SHORT_BYTES} bytes there and back in {micros} us")
    }
}

/// Why a trial came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Setup(String),
    #[error("nothing arrived for {} s; see `dmesg`", PATIENCE.as_secs())]
    Late,
}

/// Two ranks of this process use the port.
fn trial(
    name: &str,
    number: u8,
    settings: &Settings,
    near: Option<IpAddr>,
) -> Result<Trial, Failed> {
    let mut settings = settings.clone();
    let Ok(only) = format!("={name}:{number}").parse::<Filter>();
    settings.devices = only;
    let setup = |error: &dyn fmt::Display| Failed::Setup(error.to_string());
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let listen = |rank| {
        let bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let liveness = Liveness::default();
        let config = tcp::Config { key, rank, size: 2, lanes: 1, bind, ports: None, liveness };
        Tcp::listen(config).map_err(|error| setup(&error))
    };
    let doors = [listen(Rank(0))?, listen(Rank(1))?];
    let peers = [0, 1].map(|rank| (Rank::at(rank), doors[rank].addresses().to_vec()));
    let mut ends = Vec::new();
    for (rank, door) in doors.into_iter().enumerate() {
        let tcp = door.connect(peers.clone()).map_err(|error| setup(&error))?;
        let rails = Rails::open(&settings, near).map_err(|error| setup(&error))?;
        let config = Config {
            key,
            rank: Rank::at(rank),
            lanes: 1,
            settings: settings.clone(),
            reaches: vec![true; 2],
            may_use_tcp: false,
        };
        ends.push(Rdma::new(rails, tcp, config)?);
    }
    let [one, other] = ends.as_mut_slice() else { unreachable!("two were made") };
    carry(one, other, SHORT_BYTES)?;
    let start = Instant::now();
    for _ in 0..SHORT_COUNT {
        carry(one, other, SHORT_BYTES)?;
        carry(other, one, SHORT_BYTES)?;
    }
    let round_trip = start.elapsed() / u32::try_from(SHORT_COUNT).unwrap_or(u32::MAX);
    let start = Instant::now();
    for _ in 0..LONG_COUNT {
        carry(one, other, LONG_BYTES)?;
    }
    let bytes_per_second = (LONG_COUNT * LONG_BYTES) as f64 / start.elapsed().as_secs_f64();
    Ok(Trial { round_trip, bytes_per_second })
}

/// Sends `count` bytes from one to the other.
fn carry(from: &mut Rdma, to: &mut Rdma, count: usize) -> Result<(), Failed> {
    let link = |peer: &Rdma| Link { peer: peer.rank(), lane: Lane(0) };
    let (there, here) = (link(to), link(from));
    let bytes = vec![0x5a; count];
    let (mut sent, mut arrived) = (0, 0);
    let start = Instant::now();
    while arrived < count {
        let mut moved = from.poll()? | to.poll()?;
        if sent < count {
            sent += from.send(there, 0, &bytes[sent..])?;
        }
        while let Some(fragment) = to.readable(here)? {
            let (length, is_right) =
                (fragment.bytes.len(), fragment.bytes.iter().all(|byte| *byte == 0x5a));
            if !is_right {
                return Err(Failed::Setup("other bytes arrived than were sent".to_owned()));
            }
            to.consume(here, length);
            arrived += length;
            moved = true;
        }
        if !moved {
            if start.elapsed() > PATIENCE {
                return Err(Failed::Late);
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}
