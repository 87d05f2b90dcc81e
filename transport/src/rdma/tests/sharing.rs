//! The endpoints of a process share its devices, memory and limits.

use std::time::{Duration, Instant};

use super::{DEADLINE, Device, Settings, TAG, World, fake_test, roce};
use crate::contract::{Link, RegisteredMemory as _, Transport as _};
use crate::rdma::Rdma;
use crate::rdma::rail::{Rail, Rails};
use crate::rdma::sys::About;
use crate::rdma::sys::fake::{AddressEvent, Count, Hook, count, placement};
use crate::rdma::table;
use crate::sys::fork_for_test;
use ringfold_types::{Lane, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::time::Timespec;

/// The devices of two hosts.
pub(super) type Devices = [Vec<(String, Device)>; 2];

pub(super) fn devices() -> Devices {
    World::devices([&[roce(0, 0)], &[roce(1, 0)]], 1)
}

/// A group of two ranks on these devices.
pub(super) fn group(devices: &Devices, settings: &Settings, may_use_tcp: bool) -> World {
    World::over(devices.clone(), settings, may_use_tcp, Some(placement()), &|_| ())
}

/// The objects that are alive.
pub(super) fn objects() -> [i64; 6] {
    use Count::{Contexts, Domains, QueuePairs, Queues, RegionBytes, Regions};
    [Contexts, Domains, Regions, Queues, QueuePairs, RegionBytes].map(count)
}

/// Waits until as many objects are alive as before. Threads destroy some queue pairs.
pub(super) fn wait_for(before: [i64; 6], when: &str) {
    let deadline = Instant::now() + DEADLINE;
    while objects() != before {
        assert!(Instant::now() < deadline, "{when}: {:?} in place of {before:?}", objects());
        std::thread::yield_now();
    }
}

/// Makes so many groups that communicate, 64 at once, and drops them.
fn make_groups(groups: usize) {
    let (devices, before) = (devices(), objects());
    let mut made = 0;
    while made < groups {
        let mut living = Vec::new();
        for _ in 0..64.min(groups - made) {
            let mut group = group(&devices, &Settings::default(), false);
            group.meet();
            living.push(group);
        }
        made += living.len();
        let [contexts, domains, ..] = objects();
        assert_eq!((contexts, domains), (2, 2), "with {} groups of two hosts", living.len());
        drop(living);
        wait_for(before, "groups were dropped");
    }
}

fake_test! {
    fn groups_share_devices_and_give_all_back() {
        make_groups(256);
    }
}

fake_test! {
    #[ignore = "takes minutes; `tests/long groups` runs it"]
    fn ten_thousand_groups_share_devices_and_give_all_back() {
        make_groups(10_000);
    }
}

fake_test! {
    /// A link that fails, a peer that goes, a path that is refused and a device that dies leave
    /// nothing behind.
    fn nothing_is_left_after_faults() {
        type Spoil = fn(&mut World);
        let spoil: [(&str, Spoil); 5] = [
            ("a link has failed", |world| {
                world.meet();
                world.devices[0][0].break_queue_pairs(12);
                world.until("an error", |world| world.ends[1].by_tcp() > 0);
            }),
            ("a message was withdrawn", |world| {
                world.meet();
                let pages = world.ends[0].pages(1 << 20).unwrap();
                world.ends[0].send(World::link(0), TAG, pages.front(1 << 20)).unwrap();
                world.ends[0].withdraw();
            }),
            ("a path was refused", |world| {
                world.devices[1][0].hook(Hook::RefuseReady(true));
                world.offer(b"there");
                world.take(b"there");
                world.until("by tcp", |world| world.ends[0].by_tcp() > 0);
            }),
            ("a rank has gone in the setup", |world| {
                world.ends[0].send(World::link(0), TAG, b"there").unwrap();
                world.poll();
            }),
            ("a device is gone", |world| {
                world.meet();
                let pages = world.ends[0].pages(1 << 20).unwrap();
                world.ends[0].send(World::link(0), TAG, pages.front(1 << 20)).unwrap();
                world.devices[0][0].die();
                world.until("by tcp", |world| world.ends[0].by_tcp() > 0);
            }),
        ];
        for (what, spoil) in spoil {
            let before = objects();
            let mut world = group(&devices(), &Settings::default(), true);
            spoil(&mut world);
            World::part(world.ends);
            wait_for(before, what);
        }
    }
}

/// Sends `bytes` to a rank, while all ranks poll.
pub(super) fn deliver(ends: &mut [Rdma], between: (usize, usize), bytes: &[u8]) {
    deliver_by(ends, between, Lane(0), bytes);
}

/// As `deliver`, by that lane.
pub(super) fn deliver_by(ends: &mut [Rdma], (from, to): (usize, usize), lane: Lane, bytes: &[u8]) {
    let [from_link, to_link] = [to, from].map(|it| Link { peer: Rank::at(it), lane });
    let (mut found, mut sent, mut here) = (vec![0; bytes.len()], 0, 0);
    let deadline = Instant::now() + DEADLINE;
    while here < bytes.len() || sent < bytes.len() {
        assert!(Instant::now() < deadline, "never: {sent} and {here} of {} bytes", bytes.len());
        sent += ends[from].send(from_link, TAG, &bytes[sent..]).unwrap();
        let some = ends[to].recv(to_link, TAG, &mut found[here..]).unwrap();
        here += some.map_or(0, |some| some.bytes);
        for at in [from, to] {
            ends[at].poll().unwrap();
        }
    }
    assert!(found == bytes, "other bytes arrived at rank {to}");
}

fake_test! {
    /// A buffer is registered once on each device, for all peers and communicators.
    fn a_buffer_is_registered_once_for_all_peers() {
        const PEERS: u8 = 33;
        const BYTES: usize = 1 << 20;
        let names = (0..=PEERS).map(|host| format!("many_h{host}"));
        let hosts = names.zip(0..).map(|(name, host)| {
            let device = Device::add(&name, roce(host, 0));
            vec![(name, device)]
        });
        let hosts = Vec::from_iter(hosts);
        let worlds = [&hosts[..], &hosts[..2]];
        let promise = Some(placement());
        let mut worlds =
            worlds.map(|of| World::ends(of, &Settings::default(), 1, true, promise, &|_| ()));
        let peers = usize::from(PEERS);
        for (ends, peers) in worlds.iter_mut().zip([peers, 1]) {
            (1..=peers).for_each(|peer| deliver(ends, (0, peer), b"there"));
        }
        let [contexts, domains, regions, ..] = objects();
        let all = i64::from(PEERS) + 1;
        assert_eq!((contexts, domains), (all, all));
        let pages = worlds[0][0].pages(BYTES).unwrap();
        for (ends, peers) in worlds.iter_mut().zip([peers, 1]) {
            (1..=peers).for_each(|peer| deliver(ends, (0, peer), pages.front(BYTES)));
        }
        assert_eq!(objects()[2], regions + 1, "by {peers} peers of two groups");
        drop(pages);
        worlds.into_iter().for_each(World::part);
        wait_for([0; 6], "all ranks have gone");
    }
}

fake_test! {
    /// A device that takes its time for a registration keeps no other endpoint waiting.
    fn others_go_on_while_a_device_registers() {
        const BYTES: usize = 1 << 20;
        let [mut slow, mut quick] =
            [(); 2].map(|()| group(&devices(), &Settings::default(), false));
        slow.meet();
        quick.meet();
        let (pages, device) = (slow.ends[0].pages(BYTES).unwrap(), slow.devices[0][0]);
        device.hook(Hook::Registration(Duration::from_secs(20)));
        std::thread::scope(|scope| {
            let registering = scope.spawn(|| {
                deliver(&mut slow.ends, (0, 1), pages.front(BYTES));
            });
            std::thread::sleep(Duration::from_millis(200));
            for _ in 0..4 {
                let own = quick.ends[0].pages(BYTES).unwrap();
                deliver(&mut quick.ends, (0, 1), own.front(BYTES));
            }
            assert!(!registering.is_finished(), "the others have waited");
            device.hook(Hook::Registration(Duration::ZERO));
        });
    }
}

fake_test! {
    /// Pages outlive the endpoints that have sent them.
    fn devices_close_while_their_memory_is_in_use() {
        const BYTES: usize = 1 << 20;
        let mut owner = group(&devices(), &Settings::default(), false);
        owner.meet();
        let pages = owner.ends[0].pages(BYTES).unwrap();
        let before = objects();
        let apart = Settings { apart: Some(64 << 20), ..Settings::default() };
        for settings in [Settings::default(), apart] {
            let mut user = group(&devices(), &settings, false);
            let registered = count(Count::Regions);
            user.meet();
            deliver(&mut user.ends, (0, 1), pages.front(BYTES));
            assert!(count(Count::Regions) > registered);
            World::part(user.ends);
            wait_for(before, "the user has gone");
        }
    }
}

fake_test! {
    /// Two ranks of this process take two queue pairs for a group.
    fn the_limits_are_those_of_the_process() {
        let (devices, limits) = (devices(), Settings { queue_pairs_max: 3, ..Settings::default() });
        let mut first = group(&devices, &limits, true);
        first.meet();
        let mut second = group(&devices, &limits, true);
        second.offer(b"there");
        second.take(b"there");
        second.until("by tcp", |world| world.ends.iter().all(|end| end.by_tcp() > 0));
        assert_eq!(count(Count::QueuePairs), 2);
        drop(first);
        let mut third = group(&devices, &limits, true);
        third.meet();
    }
}

fake_test! {
    /// Endpoints of other jobs have domains of their own.
    fn endpoints_apart_share_the_context_only() {
        let (devices, before) = (devices(), objects());
        let apart = Settings { apart: Some(64 << 20), ..Settings::default() };
        let mut groups = [&apart, &apart, &Settings::default()]
            .map(|settings| group(&devices, settings, false));
        groups.iter_mut().for_each(World::meet);
        let [contexts, domains, ..] = objects();
        assert_eq!((contexts, domains), (2, 6));
        drop(groups);
        wait_for(before, "all were dropped");
    }
}

/// Returns whether an armed rank is awake.
fn is_awake(end: &Rdma) -> bool {
    let (fd, now) = (end.wake_fd(), Timespec { tv_sec: 0, tv_nsec: 0 });
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() > 0
}

fake_test! {
    /// Whichever endpoint reads an event, all handle it, and those that sleep wake up.
    fn all_users_of_a_device_learn_of_its_events() {
        let devices = devices();
        let mut groups = [(); 3].map(|()| group(&devices, &Settings::default(), true));
        groups.iter_mut().for_each(World::meet);
        for group in &mut groups {
            group.pass(Duration::from_millis(50));
        }
        let [reader, sleeper, other] = &mut groups;
        sleeper.ends[0].arm();
        sleeper.ends[0].poll().unwrap();
        assert!(!is_awake(&sleeper.ends[0]));
        reader.devices[0][0].port(false);
        reader.read_events();
        assert!(is_awake(&sleeper.ends[0]), "the event is gone from the device");
        sleeper.ends[0].disarm();
        for group in [reader, sleeper, other] {
            group.until("by tcp", |world| world.ends[0].by_tcp() > 0);
        }
        // A device that is gone serves nobody who comes later. Nobody misses its end.
        let gone = table::Device::open(&devices[0][0].0).unwrap();
        groups[1].devices[0][0].die();
        groups[2].read_events();
        let told = gone.listen().unwrap().take();
        assert!(told.iter().any(|event| event.about == About::Device), "{told:?}");
        let contexts = count(Count::Contexts);
        let _again = table::Device::open(&devices[0][0].0).unwrap();
        assert_eq!(count(Count::Contexts), contexts + 1);
    }
}

fake_test! {
    fn ranks_of_a_host_divide_the_completion_vectors() {
        let [(name, device), ..] = &devices()[0][..] else { panic!("a device") };
        for (local_rank, vectors) in [(1, 0b10), (3, 0b1010), (6, 0b1110), (8, 0b1111)] {
            let rail = Rail::open(name, device.port_number(), &Settings::default(), None);
            let mut rails = Rails(vec![rail.unwrap()]);
            rails.set_local_rank(local_rank);
            rails.0[0].queue(16).unwrap();
            assert_eq!(device.vectors(), vectors, "local rank {local_rank}");
        }
    }
}

fake_test! {
    /// A queue that fails ends the device for its owner, however many events come after it. It does
    /// not end it for the owner of a later queue at the same address.
    fn a_queue_that_fails_is_that_of_its_owner() {
        let [(name, device), ..] = &devices()[0][..] else { panic!("a device") };
        let [mut owner, mut other] = [(); 2].map(|()| {
            Rail::open(name, device.port_number(), &Settings::default(), None).unwrap()
        });
        let is_over = |rail: &Rail| {
            rail.events().filter(|event| event.about == About::Device).count() > 0
        };
        owner.queue(16).unwrap();
        device.fail_queues();
        (0..200).for_each(|_| device.report(AddressEvent::GidChange));
        assert!(!is_over(&other) && is_over(&owner) && !is_over(&owner));
        device.fail_queues();
        other.queue(16).unwrap();
        assert!(!is_over(&other), "the failure was reported before");
        // The next queue takes the place of one that has failed unnoticed.
        let mut third = Rail::open(name, device.port_number(), &Settings::default(), None).unwrap();
        device.fail_queues();
        third.device.read_events();
        drop(other);
        third.queue(16).unwrap();
        assert!(!is_over(&third));
    }
}

fake_test! {
    /// A forked child opens devices of its own.
    fn a_child_does_not_use_the_devices_of_its_parent() {
        let devices = devices();
        let mut world = group(&devices, &Settings::default(), false);
        world.meet();
        let child = fork_for_test(|| {
            let before = count(Count::Contexts);
            let _again = table::Device::open(&devices[0][0].0).unwrap();
            assert_eq!(count(Count::Contexts), before + 1, "the parent's device");
        });
        let child = Pid::from_raw(i32::try_from(child.unwrap()).unwrap()).unwrap();
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        world.meet();
    }
}
