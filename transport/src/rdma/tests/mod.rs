//! Two ranks of one process, over devices that exist only there (`tests/fake-verbs`). They have
//! faults that real devices have rarely, and never on demand.

mod copies;
mod exchange;
mod faults;
mod faulty;
mod flap;
mod flush;
mod leases;
mod long;
mod long_packets;
mod moving;
mod partitions;
mod peers;
mod placing;
mod rates;
mod registrations;
mod routes;
mod sharing;
mod wire;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringfold_harness::{fake_verbs, random};
use ringfold_types::{Lane, Rank};

use super::rail::{Rail, Rails};
use super::sys::Placement;
use super::sys::fake::{self, Device, Like, placement};
use super::{Config, Rdma, Settings};
use crate::contract::{Link, LinkError, Transport};
use crate::tcp::{self, Liveness, Tcp};

/// The time that no test takes unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);
const KEY: [u8; 32] = [9; 32];
const TAG: u32 = 5;

/// Runs `body` with the fake libibverbs, as the test of that name.
fn with_fake(name: &str, body: impl FnOnce()) {
    fake_verbs::run(name, || {
        fake::seed(Some(seed()));
        body();
    });
}

/// The printed seed of this process.
fn seed() -> NonZero<u64> {
    static SEED: OnceLock<u64> = OnceLock::new();
    NonZero::new(*SEED.get_or_init(random::seed)).unwrap_or(NonZero::<u64>::MIN)
}

/// Declares a test with the fake libibverbs.
macro_rules! fake_test {
    ($(#[$note:meta])* fn $name:ident() $body:block) => {
        $(#[$note])*
        #[test]
        fn $name() {
            let name = concat!(module_path!(), "::", stringify!($name));
            $crate::rdma::tests::with_fake(name, || $body);
        }
    };
}
use fake_test;

/// Runs the library's own checks of verbs that the transport does not use.
#[test]
fn the_library_has_windows_and_options() {
    let Some(program) = fake_verbs::own_checks() else { return };
    let output = Command::new(&program).output().unwrap();
    fs::remove_file(program).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A RoCE v2 port of that host on that rail.
fn roce(host: u8, rail: u8) -> Like {
    let gid = Ipv4Addr::new(10, 10 + rail, 0, 1 + host).to_ipv6_mapped().octets();
    Like { is_infiniband: false, needs_grh: false, lid: 0, gid, gigabits: 200 }
}

/// An InfiniBand port, whose subnet has that prefix.
fn infiniband(prefix: u64, lid: u16) -> Like {
    let port = 0x0002_c903_0000_0000 + u128::from(lid);
    let gid = Ipv6Addr::from_bits(u128::from(prefix) << 64 | port).octets();
    Like { is_infiniband: true, needs_grh: false, lid, gid, gigabits: 200 }
}

/// Two ranks, and their devices, by rank and rail.
struct World {
    ends: [Rdma; 2],
    devices: [Vec<Device>; 2],
}

impl World {
    /// Makes ranks with these ports, on one rail or more.
    fn new(ports: [&[Like]; 2], settings: &Settings, may_use_tcp: bool) -> Self {
        Self::placing(ports, settings, may_use_tcp, Some(placement()))
    }

    /// Makes ranks with that promise.
    fn placing(
        ports: [&[Like]; 2],
        settings: &Settings,
        may_use_tcp: bool,
        placement: Option<Placement>,
    ) -> Self {
        Self::preferring(ports, settings, may_use_tcp, placement, &[])
    }

    /// Makes ranks that prefer these rails.
    fn preferring(
        ports: [&[Like]; 2],
        settings: &Settings,
        may_use_tcp: bool,
        placement: Option<Placement>,
        preferred: &[bool],
    ) -> Self {
        let devices = Self::devices(ports, 1);
        let prepare = |rails: &mut Rails| rails.prefer(preferred);
        Self::over(devices, settings, may_use_tcp, placement, &prepare)
    }

    /// Makes devices with so many of these ports each. Returns them with their names, by rank and
    /// port.
    fn devices(ports: [&[Like]; 2], ports_each: usize) -> [Vec<(String, Device)>; 2] {
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let name = |rank: usize, rail: usize| format!("fake{world}_h{rank}r{rail}");
        let mut ranks = 0..;
        ports.map(|ports| {
            let rank = ranks.next().unwrap();
            let devices = ports.chunks(ports_each).enumerate().flat_map(|(at, ports)| {
                let name = name(rank, at);
                let first = Device::add(&name, ports[0]);
                let others = ports[1..].iter().map(move |like| first.another(*like));
                std::iter::once(first).chain(others).map(move |it| (name.clone(), it))
            });
            devices.collect()
        })
    }

    /// Makes ranks with these devices, whose rails `prepare` sets.
    fn over(
        devices: [Vec<(String, Device)>; 2],
        settings: &Settings,
        may_use_tcp: bool,
        placement: Option<Placement>,
        prepare: &dyn Fn(&mut Rails),
    ) -> Self {
        let ends = Self::ends(&devices, settings, 1, may_use_tcp, placement, prepare);
        let Ok(ends) = ends.try_into() else { panic!("two ranks") };
        let devices = devices.map(|of| of.into_iter().map(|(_, device)| device).collect());
        Self { ends, devices }
    }

    /// Makes ranks with these devices each.
    fn ends(
        devices: &[Vec<(String, Device)>],
        settings: &Settings,
        lanes: usize,
        may_use_tcp: bool,
        placement: Option<Placement>,
        prepare: &dyn Fn(&mut Rails),
    ) -> Vec<Rdma> {
        let size = devices.len();
        let listen = |rank| {
            let (bind, liveness) = (vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], Liveness::default());
            let (key, rank, ports) = (KEY, Rank::at(rank), None);
            Tcp::listen(tcp::Config { key, rank, size, lanes, bind, ports, liveness }).unwrap()
        };
        let doors = Vec::from_iter((0..size).map(listen));
        let peers = (0..).map(Rank).zip(doors.iter().map(|door| door.addresses().to_vec()));
        let peers: Vec<_> = peers.collect();
        let end = |(rank, door): (usize, tcp::Listening)| {
            let rails = devices[rank].iter().map(|(name, device)| {
                Rail::open(name, device.port_number(), settings, None).unwrap()
            });
            let mut rails = Rails(rails.collect());
            prepare(&mut rails);
            let (rank, settings, reaches) = (Rank::at(rank), settings.clone(), vec![true; size]);
            let key = KEY;
            let config = Config { key, rank, lanes, settings, reaches, may_use_tcp, placement };
            let tcp = door.connect(peers.clone()).unwrap();
            Rdma::new(rails, tcp, config).unwrap()
        };
        doors.into_iter().enumerate().map(end).collect()
    }

    /// Drops ranks, each of which waits for the others until its bytes have arrived.
    fn part(ends: impl IntoIterator<Item = Rdma>) {
        std::thread::scope(|scope| {
            ends.into_iter().for_each(|end| drop(scope.spawn(|| drop(end))));
        });
    }

    /// The lane from a rank to the other.
    fn link(from: usize) -> Link {
        Link { peer: Rank::at(1 - from), lane: Lane(0) }
    }

    fn poll(&mut self) {
        self.try_poll().unwrap();
    }

    fn try_poll(&mut self) -> Result<(), LinkError> {
        for end in &mut self.ends {
            end.poll()?;
        }
        std::thread::yield_now();
        Ok(())
    }

    /// Polls both until the end of `rank` fails.
    fn failure(&mut self, rank: usize) -> LinkError {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "never: an error of rank {rank}");
            for (of, end) in self.ends.iter_mut().enumerate() {
                match end.poll() {
                    Err(error) if of == rank => return error,
                    polled => assert!(polled.is_ok(), "rank {of}: {polled:?}"),
                }
            }
            std::thread::yield_now();
        }
    }

    /// Polls both until `is_so` returns true.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "never: {what}");
            self.poll();
        }
    }

    /// Polls both for a while.
    fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.until("time passes", |_| Instant::now() >= end);
    }

    /// Sends bytes from rank 0 to rank 1. All are accepted, and none need have arrived.
    fn offer(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        self.until("accepted", |world| {
            sent += world.ends[0].send(Self::link(0), TAG, &bytes[sent..]).unwrap();
            sent == bytes.len()
        });
    }

    /// Receives the bytes that rank 0 sent on rank 1.
    fn take(&mut self, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        let mut arrived = 0;
        self.until("arrived", |world| {
            let some = world.ends[1].recv(Self::link(1), TAG, &mut found[arrived..]).unwrap();
            arrived += some.map_or(0, |some| some.bytes);
            arrived == bytes.len()
        });
        assert!(found == bytes, "other bytes arrived");
    }

    /// Checks that both ranks communicate, by devices only.
    fn meet(&mut self) {
        self.offer(b"there");
        self.take(b"there");
        self.until("by rdma", |world| world.ends.iter().all(|end| end.by_tcp() == 0));
    }
}
