//! The work of a poll does not grow with the number of peers.

use std::time::Instant;

use super::sharing::{deliver, deliver_by};
use super::{DEADLINE, Device, Settings, World, fake_test, roce};
use crate::contract::Transport as _;
use crate::rdma::Rdma;
use crate::rdma::rail::PROBE_BYTES;
use crate::rdma::sys::fake::{Count, Hook, count};
use ringfold_types::limits::{LANES_MAX, RDMA_RING_BYTES};
use ringfold_types::{Lane, Rank};

const POLLS: u32 = 10_000;

/// The work of a poll.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Visits of contacts.
    visits: f64,
    /// Completion queues that were polled.
    queues: f64,
    /// Polls of the connections, each of which is a system call.
    connections: f64,
    /// KiB of locked memory for each peer, beside the rings.
    locked: f64,
}

/// Polls again and again. `tests/long peers` counts the instructions of this function.
#[inline(never)]
fn polls_with_one_busy_peer(end: &mut Rdma) {
    for _ in 0..POLLS {
        end.make_busy(Rank(1));
        end.poll().unwrap();
    }
}

/// Returns the work of a poll of a rank that has so many peers. One more peer is reached by TCP.
/// One peer is busy.
fn work(peers: usize) -> Work {
    let names = ["one", "rest", "by_tcp"].map(|name| format!("{name}_of_{peers}"));
    let mut hosts = 0..;
    let [one, rest, by_tcp] = names.map(|name| {
        let device = Device::add(&name, roce(hosts.next().unwrap(), 0));
        vec![(name, device)]
    });
    by_tcp[0].1.hook(Hook::RefuseReady(true));
    let mut devices = vec![rest; peers + 2];
    (devices[0], devices[peers + 1]) = (one, by_tcp);
    let settings = Settings { bytes_max: usize::MAX, ..Settings::default() };
    let mut ends = World::ends(&devices, &settings, LANES_MAX, true, None, &|_| ());
    for peer in 1..=peers + 1 {
        deliver(&mut ends, (0, peer), b"there");
    }
    let deadline = Instant::now() + DEADLINE;
    while ends[0].by_tcp() != 1 {
        assert!(Instant::now() < deadline, "never: one peer by tcp, of {}", ends[0].by_tcp());
        ends.iter_mut().for_each(|end| assert!(end.poll().is_ok()));
    }
    let (visits, connections) = ends[0].work_done();
    let queues = count(Count::Polls);
    polls_with_one_busy_peer(&mut ends[0]);
    let queues = count(Count::Polls) - queues;
    let (visits_after, connections_after) = ends[0].work_done();
    // Both ends of each link are here.
    let links = i64::try_from(2 * peers + 2).unwrap();
    let [regions, bytes, queue_bytes] =
        [Count::Regions, Count::RegionBytes, Count::QueueBytes].map(count);
    // Every rank has memory for questions and every link a mailbox. The other regions are rings.
    let ranks = i64::try_from(peers + 2).unwrap();
    let rings = (regions - ranks - links) * i64::try_from(RDMA_RING_BYTES).unwrap();
    let questions = ranks * i64::try_from(PROBE_BYTES).unwrap();
    let locked = (bytes - rings - questions + queue_bytes) as f64 / 1024.0 / links as f64;
    World::part(ends);
    let each = |of: f64| of / f64::from(POLLS);
    Work {
        visits: each((visits_after - visits) as f64),
        queues: each(queues as f64),
        connections: each(f64::from(connections_after - connections)),
        locked,
    }
}

/// Checks the work of a poll with so many peers, and prints it.
fn check(peers: usize) {
    let work = work(peers);
    println!("peers {peers}: {work:?}");
    assert!(work.visits >= 1.0, "{work:?}: else nobody is busy");
    assert!(work.visits < 1.2, "{work:?} with {peers} peers");
    assert!(work.queues < 1.01, "{work:?} with {peers} peers");
    assert!(work.connections < 0.1, "{work:?} with {peers} peers");
    assert!(work.locked <= 64.0, "{work:?} with {peers} peers");
}

fake_test! {
    fn the_work_of_a_poll_does_not_grow_with_peers() {
        [1, 8, 30].into_iter().for_each(check);
    }
}

fake_test! {
    /// A driver whose queues cannot grow makes as many as peers and lanes need.
    fn an_old_driver_serves_all_lanes_of_all_peers() {
        let devices = World::devices([&[roce(0, 0)], &[roce(1, 0)]], 1);
        let [one, other] = &devices;
        [one, other].into_iter().for_each(|of| of[0].1.hook(Hook::OldDriver));
        let hosts: Vec<_> = std::iter::once(one).chain([other; 12]).cloned().collect();
        let mut ends = World::ends(&hosts, &Settings::default(), LANES_MAX, false, None, &|_| ());
        for peer in 1..hosts.len() {
            deliver(&mut ends, (0, peer), b"there");
        }
        for lane in 1..LANES_MAX {
            deliver_by(&mut ends, (0, 1), Lane(u8::try_from(lane).unwrap()), b"there");
            deliver_by(&mut ends, (1, 0), Lane(u8::try_from(lane).unwrap()), b"back");
        }
        assert_eq!(ends[0].by_tcp(), 0);
        World::part(ends);
    }
}

fake_test! {
    #[ignore = "`tests/long peers` counts its instructions"]
    fn a_poll_with_1_peer() {
        check(1);
    }
}

fake_test! {
    #[ignore = "as above"]
    fn a_poll_with_8_peers() {
        check(8);
    }
}

fake_test! {
    #[ignore = "as above"]
    fn a_poll_with_30_peers() {
        check(30);
    }
}

fake_test! {
    #[ignore = "takes 2 GiB of memory; `tests/long peers` runs it"]
    fn a_poll_with_511_peers() {
        check(511);
    }
}
