//! Groups whose chunks go by the links of a carrier. The carrier here is ringfold's TCP transport,
//! which every machine has.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_aggregator::core::Shape;
use ringfold_aggregator::server::{Config, Server};
use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{self, Above, Ask, GroupStats, Stats};
use ringfold_transport::Transport;
use ringfold_transport::offload::aggregator::{Aggregators, Tree};
use ringfold_transport::offload::ticket::{Grant, Leaf};
use ringfold_transport::offload::{
    Carrier, Chunk, End, Group, OffloadError, Provider as _, Reduction,
};
use ringfold_transport::tcp::Tcp;
use ringfold_types::{Collective, DataType, ReduceOp, Wire};
use tokio::runtime::{Builder, Runtime};

const MEMBERS: u16 = 3;
const WINDOW: usize = 4;
const CHUNK: usize = 200_000;
const KEY: [u8; 32] = [5; 32];
const PATIENCE: Duration = Duration::from_secs(30);
const LINK_BYTES: usize = 10_000;
const LENGTHS: [usize; 9] = [1, 8, 31, 4095, 4096, 16_385, 70_000, CHUNK - 1, CHUNK];

#[derive(Debug)]
struct OverTcp;

impl Carrier for OverTcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn link_bytes(&self) -> usize {
        LINK_BYTES
    }

    fn make_transport(&self, tcp: Tcp, _: End) -> io::Result<Box<dyn Transport>> {
        Ok(Box::new(tcp))
    }
}

/// A carrier whose devices are gone.
#[derive(Debug)]
struct Gone;

impl Carrier for Gone {
    fn name(&self) -> &'static str {
        "gone"
    }

    fn link_bytes(&self) -> usize {
        LINK_BYTES
    }

    fn make_transport(&self, _: Tcp, _: End) -> io::Result<Box<dyn Transport>> {
        Err(io::Error::other("no device"))
    }
}

/// A server in this process.
struct Aggregator {
    at: SocketAddr,
    site: Secret,
    _runtime: Runtime,
}

impl Aggregator {
    fn start(carrier: Option<Arc<dyn Carrier>>, memory: usize, parent: Option<SocketAddr>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            site: Secret::new([9; 32]),
            memory,
            threads: 1,
            mbps: 0,
            parent: parent.map(|at| (at.to_string(), at)),
            carrier,
        };
        let server = runtime.block_on(async { Server::bind(config) }).unwrap();
        let at = server.address().unwrap();
        runtime.spawn(server.run());
        Self { at, site: Secret::new([9; 32]), _runtime: runtime }
    }

    fn ask(&self, first: u16, members: u16, above: Option<Above>) -> Leaf {
        let ask = Ask {
            job: "test".into(),
            key: KEY,
            ranks: MEMBERS.into(),
            first,
            members: vec![1; members.into()],
            above,
            window: u8::try_from(WINDOW).unwrap(),
            chunk_bytes: u32::try_from(CHUNK).unwrap(),
        };
        let (granted, at) =
            aggregators::ask(&self.at.to_string(), &self.site, ask, PATIENCE).unwrap();
        Leaf { first, children: members, group: granted.group, at }
    }

    fn stats(&self) -> Stats {
        aggregators::stats(&self.at.to_string(), &self.site, PATIENCE).unwrap()
    }

    /// The numbers of the only group, once `is_so`.
    fn until(&self, is_so: impl Fn(&GroupStats) -> bool) -> GroupStats {
        let began = Instant::now();
        loop {
            let stats = self.stats();
            assert_eq!(stats.groups.len(), 1);
            if is_so(&stats.groups[0]) {
                return stats.groups[0].clone();
            }
            assert!(began.elapsed() < PATIENCE, "{stats:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until all memory has returned to the pool.
    fn ends(&self) {
        let began = Instant::now();
        while self.stats().memory.1 > 0 {
            assert!(began.elapsed() < PATIENCE, "a group keeps its memory");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn grant(leaves: Vec<Leaf>, epoch: u32) -> Grant {
    Grant { window: WINDOW, chunk_bytes_max: CHUNK, epoch, leaves }
}

fn by_tcp() -> Option<Arc<dyn Carrier>> {
    Some(Arc::new(OverTcp))
}

/// Connects a member, and waits until its group is ready.
fn connect(
    grant: &Grant,
    member: u16,
    carrier: Option<Arc<dyn Carrier>>,
) -> Result<Box<dyn Group>, OffloadError> {
    let tree = Tree { name: "tree".into(), key: KEY, grant: None };
    let mut group = Aggregators::new(vec![tree], carrier).connect(0, member, &[grant.encode()])?;
    drive(&mut group, |group| group.is_ready())?;
    Ok(group)
}

/// Polls, and parks while nothing moves, until `done` or an error.
fn drive(
    group: &mut Box<dyn Group>,
    mut done: impl FnMut(&mut Box<dyn Group>) -> bool,
) -> Result<(), OffloadError> {
    let began = Instant::now();
    while !done(group) {
        assert!(began.elapsed() < PATIENCE, "the test hangs");
        if group.poll()? {
            continue;
        }
        group.arm();
        if !group.poll()? {
            let limit = rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 };
            let wake = rustix::event::PollFd::from_borrowed_fd(
                group.wake_fd(),
                rustix::event::PollFlags::IN,
            );
            rustix::event::poll(&mut [wake], Some(&limit)).unwrap();
        }
        group.disarm();
    }
    Ok(())
}

/// Byte `at` of a member's part of a chunk.
fn byte(member: u16, number: usize, at: usize) -> u8 {
    u8::try_from((usize::from(member) * 7 + number * 3 + at) % 80).unwrap()
}

/// Hands over chunks of all lengths, twice, and compares the sums.
fn run(group: &mut Box<dyn Group>, member: u16) -> Result<(), OffloadError> {
    let reduction = Reduction {
        collective: Collective::AllReduce,
        data_type: DataType::U8,
        op: ReduceOp::Sum,
        root: 0,
        form: Wire::Element,
    };
    let count = |number: usize| LENGTHS[number % LENGTHS.len()];
    let (mut next, mut taken) = (0, 0);
    let last = 2 * LENGTHS.len();
    drive(group, |group| {
        while let Some(outcome) = group.result() {
            assert_eq!((outcome.number, outcome.bytes.len()), (taken as u64, count(taken)));
            let sum = |at| (0..MEMBERS).map(|member| byte(member, taken, at)).sum::<u8>();
            let wrong = (0..count(taken)).find(|at| outcome.bytes[*at] != sum(*at));
            assert_eq!(wrong, None, "chunk {taken}");
            group.take();
            taken += 1;
        }
        while next < last {
            let bytes: Vec<u8> = (0..count(next)).map(|at| byte(member, next, at)).collect();
            let chunk = Chunk { number: next as u64, tag: 9, reduction, count: count(next) };
            // `drive` returns the error.
            if !group.post(&chunk, &bytes).unwrap_or(false) {
                break;
            }
            next += 1;
        }
        taken == last
    })
}

/// Runs all members, each with the carrier of its number, and calls `meanwhile` while all are
/// connected.
fn all(
    grant: &Grant,
    carriers: [Option<Arc<dyn Carrier>>; MEMBERS as usize],
    meanwhile: impl FnOnce(),
) {
    let (done, is_done) = mpsc::channel();
    let (leave, may_leave): (Vec<_>, Vec<_>) = carriers.iter().map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for ((member, carrier), may_leave) in (0..).zip(carriers).zip(may_leave) {
            let done = done.clone();
            scope.spawn(move || {
                let mut group = connect(grant, member, carrier).unwrap();
                run(&mut group, member).unwrap();
                done.send(()).unwrap();
                may_leave.recv_timeout(PATIENCE).unwrap();
            });
        }
        let leave = leave;
        (0..MEMBERS).for_each(|_| is_done.recv_timeout(PATIENCE).unwrap());
        meanwhile();
        leave.iter().for_each(|leave: &mpsc::Sender<()>| leave.send(()).unwrap());
    });
}

#[test]
fn links_carry_chunks_of_all_lengths_and_their_memory_returns() {
    let aggregator = Aggregator::start(by_tcp(), 1 << 24, None);
    let leaf = aggregator.ask(0, MEMBERS, None);
    all(&grant(vec![leaf], 1), [by_tcp(), by_tcp(), by_tcp()], || {
        let stats = aggregator.until(|group| group.linked == 3);
        assert_eq!(stats.children.1, 3);
        let without = Aggregator::start(None, 1 << 24, None);
        without.ask(0, MEMBERS, None);
        let links = u64::from(MEMBERS) * LINK_BYTES as u64;
        assert_eq!(stats.memory, without.until(|_| true).memory + links);
    });
    aggregator.ends();
}

#[test]
fn members_with_and_without_a_carrier_share_a_group() {
    let aggregator = Aggregator::start(by_tcp(), 1 << 24, None);
    let leaf = aggregator.ask(0, MEMBERS, None);
    all(&grant(vec![leaf], 1), [by_tcp(), None, by_tcp()], || {
        aggregator.until(|group| group.linked == 2 && group.children.1 == 3);
    });
}

#[test]
fn connections_carry_chunks_where_links_cannot() {
    // The server's devices are gone; it has none; the pool lacks room for them.
    let gone: Option<Arc<dyn Carrier>> = Some(Arc::new(Gone));
    let shape = Shape {
        first: 0,
        members: vec![1; MEMBERS.into()],
        ranks: MEMBERS.into(),
        window: WINDOW,
        chunk_bytes_max: CHUNK,
        is_top: true,
    };
    let tight = shape.bytes() + usize::from(MEMBERS) * LINK_BYTES - 1;
    for (carrier, memory) in [(gone, 1 << 24), (None, 1 << 24), (by_tcp(), tight)] {
        let aggregator = Aggregator::start(carrier, memory, None);
        let leaf = aggregator.ask(0, MEMBERS, None);
        all(&grant(vec![leaf], 1), [by_tcp(), by_tcp(), by_tcp()], || {
            aggregator.until(|group| group.linked == 0 && group.children.1 == 3);
        });
    }
}

#[test]
fn the_group_above_has_links_too() {
    let top = Aggregator::start(by_tcp(), 1 << 24, None);
    let lower = Aggregator::start(by_tcp(), 1 << 24, Some(top.at));
    let ask = Ask {
        job: "test".into(),
        key: KEY,
        ranks: MEMBERS.into(),
        first: 0,
        members: vec![MEMBERS],
        above: None,
        window: u8::try_from(WINDOW).unwrap(),
        chunk_bytes: u32::try_from(CHUNK).unwrap(),
    };
    let (granted, _) = aggregators::ask(&top.at.to_string(), &top.site, ask, PATIENCE).unwrap();
    let above = Above { group: granted.group, port: granted.port, child: 0, is_here: false };
    let leaf = lower.ask(0, MEMBERS, Some(above));
    all(&grant(vec![leaf], 1), [by_tcp(), by_tcp(), by_tcp()], || {
        lower.until(|group| group.linked == 3);
        top.until(|group| group.linked == 1);
    });
    lower.ends();
    top.ends();
}

#[test]
fn a_member_that_breaks_off_ends_the_epoch_and_the_next_one_links_again() {
    let aggregator = Aggregator::start(by_tcp(), 1 << 24, None);
    let leaf = aggregator.ask(0, MEMBERS, None);
    for epoch in 1..=3 {
        let grant = grant(vec![leaf], epoch);
        let mut groups: Vec<_> =
            (0..MEMBERS).map(|at| connect(&grant, at, by_tcp()).unwrap()).collect();
        aggregator.until(|group| group.linked == 3);
        // The member keeps its end, as one that may be asked for results does.
        let mut given_up = groups.remove(1);
        given_up.give_up();
        for group in &mut groups {
            let error = drive(group, |_| false).unwrap_err();
            assert!(
                matches!(&error, OffloadError::Refused { reason } if reason.contains("child 1"))
                    || matches!(error, OffloadError::Closed),
                "{error}"
            );
        }
    }
    all(&grant(vec![leaf], 4), [by_tcp(), by_tcp(), by_tcp()], || {
        aggregator.until(|group| group.linked == 3);
    });
    aggregator.ends();
}

#[test]
fn an_aggregator_that_ends_is_noticed() {
    let aggregator = Aggregator::start(by_tcp(), 1 << 24, None);
    let leaf = aggregator.ask(0, MEMBERS, None);
    let mut group = connect(&grant(vec![leaf], 1), 0, by_tcp()).unwrap();
    drop(aggregator);
    assert!(matches!(run(&mut group, 0), Err(OffloadError::Closed)));
}
