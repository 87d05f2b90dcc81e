//! Groups of a server in this process, whose members are threads.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::Secret;
use ringfold_innetwork::provider::{Aggregators, Leaf, Tree};
use ringfold_innetwork::server::core::Shape;
use ringfold_innetwork::server::{Config, Server};
use ringfold_innetwork::trees::{self, Above, Ask, AskError, GroupStats, Stats, Terms};
use ringfold_innetwork::wire::links::Endpoints;
use ringfold_innetwork::{
    Awaited, Chunk, Group, OffloadError, Provider as _, RdmaDevices, Reduction,
};
use ringfold_transport::rdma::Settings;
use ringfold_types::{Collective, DataType, ReduceOp, Wire, limits};
use tokio::runtime::{Builder, Runtime};

const MEMBERS: u16 = 3;
const WINDOW: usize = 4;
const CHUNK: usize = 200_000;
const KEY: [u8; 32] = [5; 32];
const PATIENCE: Duration = Duration::from_secs(30);
const LENGTHS: [usize; 9] = [1, 8, 31, 4095, 4096, 16_385, 70_000, CHUNK - 1, CHUNK];

/// A server in this process.
struct Aggregator {
    at: SocketAddr,
    site: Secret,
    _runtime: Runtime,
}

impl Aggregator {
    fn start(devices: Option<RdmaDevices>, memory: usize) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), devices, memory, None)
    }

    fn start_at(
        listen: IpAddr,
        devices: Option<RdmaDevices>,
        memory: usize,
        parent: Option<&Self>,
    ) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let config = Config {
            listen: SocketAddr::new(listen, 0),
            site: Secret::new([9; 32]),
            memory,
            threads: 1,
            mbps: 0,
            parent: parent.map(|parent| (parent.at.to_string(), parent.at)),
            devices: devices.map(Arc::new),
        };
        let server = runtime.block_on(async { Server::bind(config) }).unwrap();
        let at = server.address().unwrap();
        runtime.spawn(server.run());
        Self { at, site: Secret::new([9; 32]), _runtime: runtime }
    }

    /// Asks for a group of all members.
    fn grant(&self) -> Leaf {
        self.grant_below(None, MEMBERS, 0, vec![1; MEMBERS.into()]).unwrap().0
    }

    /// Asks for a group of a tree of `ranks`, with these members below its children, from `first`.
    /// Returns it, and its description for a group below it at the same aggregator.
    fn grant_below(
        &self,
        above: Option<Above>,
        ranks: u16,
        first: u16,
        members: Vec<u16>,
    ) -> Result<(Leaf, Above), AskError> {
        let terms = Terms {
            job: "test".into(),
            key: KEY,
            ranks: ranks.into(),
            window: u8::try_from(WINDOW).unwrap(),
            chunk_bytes: u32::try_from(CHUNK).unwrap(),
        };
        let ask = Ask { terms, first, members, above };
        let (granted, tcp) = trees::ask(&self.at.to_string(), &self.site, ask, PATIENCE)?;
        let (group, port, rdma_port) = (granted.group, granted.port, granted.rdma_port);
        let leaf = Leaf { first, children: MEMBERS, at: Endpoints { tcp, rdma_port } };
        Ok((leaf, Above { group, port, rdma_port, child: 0, is_here: true }))
    }

    fn stats(&self) -> Stats {
        trees::stats(&self.at.to_string(), &self.site, PATIENCE).unwrap()
    }

    /// Waits until the only group is so.
    fn until(&self, is_so: impl Fn(&GroupStats) -> bool) {
        let began = Instant::now();
        loop {
            let stats = self.stats();
            assert_eq!(stats.groups.len(), 1);
            if is_so(&stats.groups[0]) {
                return;
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

/// Devices that are gone.
fn gone() -> RdmaDevices {
    let mut settings = Settings::default();
    settings.devices = "no_such_device".parse().unwrap();
    RdmaDevices::new(settings, None, None, 1)
}

/// Connects a member, and waits until its group is ready.
fn connect(
    leaf: Leaf,
    member: u16,
    devices: Option<RdmaDevices>,
) -> Result<Box<dyn Group>, OffloadError> {
    let tree = Tree { name: "tree".into(), key: KEY, leaves: vec![leaf] };
    let mut provider = Aggregators::new(vec![tree], (WINDOW, CHUNK), devices.map(Arc::new));
    let mut group = provider.connect(0, member)?;
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

const REDUCTION: Reduction = Reduction {
    collective: Collective::AllReduce,
    data_type: DataType::U8,
    op: ReduceOp::Sum,
    root: 0,
    form: Wire::Element,
};

/// Hands over chunks of all lengths, twice, and compares the sums.
fn run(group: &mut Box<dyn Group>, member: u16) -> Result<(), OffloadError> {
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
            let (number, count) = (next as u64, count(next));
            let chunk = Chunk { number, tag: 9, reduction: REDUCTION, count };
            // `drive` returns the error.
            if !group.post(&chunk, &bytes).unwrap_or(false) {
                break;
            }
            next += 1;
        }
        taken == last
    })
}

/// Runs all members with these devices, and calls `meanwhile` while all are connected.
fn all(leaf: Leaf, devices: Option<&RdmaDevices>, meanwhile: impl FnOnce()) {
    let (done, is_done) = mpsc::channel();
    let (leave, may_leave): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for (member, may_leave) in (0..).zip(may_leave) {
            let done = done.clone();
            scope.spawn(move || {
                let mut group = connect(leaf, member, devices.cloned()).unwrap();
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
    let aggregator = Aggregator::start(None, 1 << 24);
    all(aggregator.grant(), None, || {
        aggregator.until(|group| group.linked == 0 && group.children.1 == 3);
    });
    aggregator.ends();
}

#[test]
fn an_aggregator_at_all_addresses_serves_members_by_ipv4() {
    let mut aggregator = Aggregator::start_at(Ipv6Addr::UNSPECIFIED.into(), None, 1 << 25, None);
    aggregator.at.set_ip(Ipv4Addr::LOCALHOST.into());
    all(aggregator.grant(), None, || ());
    aggregator.ends();
    // The lower group dials the upper one by the address at which it was asked for.
    let (_, above) = aggregator.grant_below(None, MEMBERS, 0, vec![MEMBERS]).unwrap();
    let each = vec![1; MEMBERS.into()];
    let (leaf, _) = aggregator.grant_below(Some(above), MEMBERS, 0, each).unwrap();
    all(leaf, None, || ());
    aggregator.ends();
}

#[test]
fn chunks_go_by_tcp_where_devices_are_gone_or_the_pool_lacks_room() {
    let shape = Shape {
        first: 0,
        members: vec![1; MEMBERS.into()],
        ranks: MEMBERS.into(),
        window: WINDOW,
        chunk_bytes_max: CHUNK,
        is_top: true,
    };
    for memory in [1 << 28, shape.bytes()] {
        let aggregator = Aggregator::start(Some(gone()), memory);
        let leaf = aggregator.grant();
        assert_eq!(leaf.at.rdma_port, 0);
        assert_eq!(aggregator.stats().memory.1, shape.bytes() as u64);
        // A member does not open devices that its aggregator lacks.
        all(leaf, Some(&gone()), || ());
    }
}

#[test]
fn a_member_without_its_devices_is_told_so() {
    let aggregator = Aggregator::start(None, 1 << 24);
    let mut leaf = aggregator.grant();
    leaf.at.rdma_port = 1;
    assert!(matches!(connect(leaf, 0, Some(gone())), Err(OffloadError::Io(_))));
}

#[test]
fn a_member_that_breaks_off_ends_the_group_for_all() {
    let aggregator = Aggregator::start(None, 1 << 24);
    let leaf = aggregator.grant();
    let mut groups: Vec<_> = (0..MEMBERS).map(|at| connect(leaf, at, None).unwrap()).collect();
    aggregator.until(|group| group.children.1 == 3);
    // The member keeps its end, as one that may be asked for results does.
    let mut given_up = groups.remove(1);
    given_up.give_up();
    for group in &mut groups {
        let error = drive(group, |_| false).unwrap_err();
        let is_told = |reason: &str| reason.contains("child 1: its connection ended");
        assert!(matches!(&error, OffloadError::Refused { reason } if is_told(reason)), "{error}");
    }
    aggregator.ends();
    assert!(matches!(connect(leaf, 0, None), Err(OffloadError::Unreachable { .. })));
}

#[test]
fn a_member_that_comes_after_the_failure_is_told_why() {
    let aggregator = Aggregator::start(None, 1 << 24);
    let is_told = |_| {
        let leaf = aggregator.grant();
        let mut groups: Vec<_> = (0..2).map(|at| connect(leaf, at, None).unwrap()).collect();
        groups[1].give_up();
        assert!(matches!(drive(&mut groups[0], |_| false), Err(OffloadError::Refused { .. })));
        let told = connect(leaf, 2, None).unwrap_err();
        matches!(told, OffloadError::Refused { reason } if reason.contains("child 1: "))
    };
    // A machine may be so busy that the member comes when the group has ended.
    assert!((0..5).any(is_told), "nobody was told");
    aggregator.ends();
}

#[test]
fn an_aggregator_that_ends_is_noticed() {
    let aggregator = Aggregator::start(None, 1 << 24);
    let mut group = connect(aggregator.grant(), 0, None).unwrap();
    drop(aggregator);
    assert!(matches!(run(&mut group, 0), Err(OffloadError::Closed)));
}

/// A root, an aggregator with two groups below it, and the members of both.
fn two_levels() -> (Aggregator, Aggregator, Vec<Box<dyn Group>>) {
    let root = Aggregator::start(None, 1 << 24);
    let listen = Ipv4Addr::LOCALHOST.into();
    let below = Aggregator::start_at(listen, None, 1 << 25, Some(&root));
    let ranks = 2 * MEMBERS;
    let (_, above) = root.grant_below(None, ranks, 0, vec![MEMBERS; 2]).unwrap();
    let members = |child: u8| {
        let above = Above { child, is_here: false, ..above };
        let (first, each) = (u16::from(child) * MEMBERS, vec![1; MEMBERS.into()]);
        let (leaf, _) = below.grant_below(Some(above), ranks, first, each).unwrap();
        (first..first + MEMBERS).map(move |member| connect(leaf, member, None).unwrap())
    };
    let groups = (0..2).flat_map(members).collect();
    (root, below, groups)
}

/// Posts the first chunk, with this tag.
fn post(group: &mut Box<dyn Group>, tag: u32) {
    let chunk = Chunk { number: 0, tag, reduction: REDUCTION, count: 8 };
    drive(group, |group| group.post(&chunk, &[1; 8]).unwrap()).unwrap();
}

#[test]
fn a_late_member_is_named_on_both_levels_and_one_that_differs_ends_both() {
    let (_root, below, mut groups) = two_levels();
    assert!(below.stats().groups.iter().all(|it| it.parent.as_ref().unwrap().is_connected));
    groups[..5].iter_mut().for_each(|group| post(group, 6));
    // A late member is no failure: heartbeats name it for longer than the bound for silence.
    let began = Instant::now();
    let bound = Duration::from_millis(2 * limits::OFFLOAD_SILENCE_MS);
    drive(&mut groups[0], |_| began.elapsed() > bound).unwrap();
    assert_eq!(groups[0].awaited(), Awaited { children: 0, above: 0b10 });
    drive(&mut groups[3], |group| group.awaited().children == 0b100).unwrap();
    post(&mut groups[5], 7);
    for (at, group) in groups.iter_mut().enumerate() {
        let error = drive(group, |_| false).unwrap_err();
        let OffloadError::Refused { reason } = &error else { panic!("{error}") };
        assert!(reason.contains("differ"), "{reason}");
        assert!(at < 3 || reason.contains("child 2"), "{reason}");
    }
}

#[test]
fn a_root_that_ends_fails_all_members_below() {
    let (root, _below, mut groups) = two_levels();
    let at = root.at.ip().to_string();
    drop(root);
    for group in &mut groups {
        let error = drive(group, |_| false).unwrap_err();
        assert!(
            matches!(&error, OffloadError::Refused { reason } if reason.contains(&at)),
            "{error}"
        );
    }
}

#[test]
fn a_group_without_the_parent_of_its_aggregator_is_refused() {
    let above = Above { group: 0, port: 1, rdma_port: 0, child: 0, is_here: false };
    let aggregator = Aggregator::start(None, 1 << 24);
    let error = aggregator.grant_below(Some(above), 1, 0, vec![1]).unwrap_err();
    assert!(error.to_string().contains("no parent"), "{error}");
}
