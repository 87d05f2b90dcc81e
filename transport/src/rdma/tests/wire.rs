//! The truth of the fake devices: when they read memory, in which order bytes land, and how wires
//! and ports fail.

use std::time::{Duration, Instant};

use super::long::{Long, held_message};
use super::{Like, Settings, World, fake_test, roce};
use crate::rdma::rail::Rail;
use crate::rdma::sys::fake::{Count, Hook, count, placement};

/// The status of work whose retries are exhausted.
const EXHAUSTED: i32 = 12;
/// Bytes in a packet.
const PACKET: usize = 4096;

/// Two ranks with one rail, whose devices give up soon.
fn world(may_use_tcp: bool) -> World {
    let hasty = Settings { timeout: 14, retries: 1, ..Settings::default() };
    let mut world = World::new([&[roce(0, 0)], &[roce(1, 0)]], &hasty, may_use_tcp);
    world.meet();
    world
}

fake_test! {
    fn long_packets_are_lost_in_silence_and_short_ones_pass() {
        let mut world = world(true);
        let device = world.devices[0][0];
        device.hook(Hook::LoseLonger(1024));
        for _ in 0..20 {
            world.offer(&[1; 900]);
            world.take(&[1; 900]);
        }
        assert!(world.ends[0].by_tcp() == 0, "a short packet was lost");
        let before = device.carried();
        world.offer(&[2; 3000]);
        world.until("lost", |world| world.ends[0].by_tcp() == 1);
        assert_eq!(device.carried(), before);
        device.hook(Hook::LoseLonger(0));
        world.take(&[2; 3000]);
    }
}

fake_test! {
    fn a_wire_with_a_rate_takes_its_time() {
        for slow in 0..2 {
            let mut world = world(false);
            world.devices[slow][0].hook(Hook::Pace(Some(1000)));
            let begin = Instant::now();
            world.offer(&[3; 300_000]);
            world.take(&[3; 300_000]);
            assert!(begin.elapsed() >= Duration::from_millis(290), "{:?}", begin.elapsed());
            assert!(world.devices[0][0].carried() > 300_000, "by the device");
        }
    }
}

fake_test! {
    fn ports_report_the_rate_that_they_train_to() {
        let like = |host| Like { gigabits: 400, ..roce(host, 0) };
        let world = World::new([&[like(0)], &[like(1)]], &Settings::default(), true);
        let rate = || {
            let rail = Rail::open("fake0_h0r0", 1, &Settings::default(), None).unwrap();
            rail.port.gigabits
        };
        assert_eq!(rate(), 400);
        world.devices[0][0].train(25);
        assert_eq!(rate(), 25);
    }
}

fake_test! {
    /// A sender that changes bytes before they are accepted finds them changed at the receiver.
    fn bytes_are_read_on_the_way() {
        let ports: [&[_]; 2] = [&[roce(0, 0)], &[roce(1, 0)]];
        let mut world = World::new(ports, &Settings::default(), true);
        world.meet();
        let mut message = held_message(&mut world);
        let (gone, bytes) = (message.gone, message.bytes);
        message.sent.front_mut(bytes)[gone..].fill(255);
        world.devices[0][0].release();
        world.until("arrived", |world| message.step(world));
        assert!(message.found.front(bytes)[gone..].iter().all(|byte| *byte == 255));
    }
}

fake_test! {
    fn packets_of_a_write_land_in_any_order() {
        let mut world = world(true);
        let mut has_hole = false;
        for _ in 0..200 {
            let mut message = Long::new(&mut world, 256 << 10);
            world.until("a message", |world| {
                let done = message.step(world);
                let packets = message.found.front(message.bytes)[message.here..].chunks(PACKET);
                let landed = packets.map(|it| it.iter().any(|byte| *byte != 0));
                has_hole |= !landed.is_sorted_by(|one, next| one >= next);
                done
            });
            if has_hole {
                return;
            }
        }
        panic!("all packets landed in order");
    }
}

fake_test! {
    /// The sender cannot know that everything has arrived.
    fn a_lost_answer_costs_the_path_and_no_byte() {
        let mut world = world(true);
        let device = world.devices[0][0];
        device.hook(Hook::LoseReplies(true));
        let before = device.carried();
        world.offer(&[4; 3000]);
        world.take(&[4; 3000]);
        assert!(device.carried() > before, "by the device");
        world.until("lost", |world| world.ends[0].by_tcp() == 1);
        device.hook(Hook::LoseReplies(false));
        world.offer(&[5; 3000]);
        world.take(&[5; 3000]);
    }
}

fake_test! {
    fn a_queue_pair_that_does_not_become_ready_is_made_again() {
        for host in 0..2 {
            let ports: [&[_]; 2] = [&[roce(0, 0)], &[roce(1, 0)]];
            let mut world = World::new(ports, &Settings::default(), true);
            world.devices[host][0].hook(Hook::RefuseReady(true));
            world.offer(b"by tcp");
            world.take(b"by tcp");
            world.devices[host][0].hook(Hook::RefuseReady(false));
            world.until("by rdma", |world| {
                world.ends.iter().all(|end| end.by_tcp() == 0 && end.carries(0))
            });
            world.offer(b"by rdma");
            world.take(b"by rdma");
        }
    }
}

fake_test! {
    fn a_late_flush_is_waited_for() {
        for host in 0..2 {
            let mut world = world(true);
            world.devices[host][0].hook(Hook::Flush(Duration::from_millis(200)));
            world.offer(&[6; 3000]);
            world.devices[0][0].break_queue_pairs(EXHAUSTED);
            world.take(&[6; 3000]);
            world.until("by rdma", |world| world.ends.iter().all(|end| end.by_tcp() == 0));
        }
    }
}

fake_test! {
    fn ports_of_one_device_live_by_themselves() {
        let ports = [0, 1].map(|host| [roce(host, 0), roce(host, 1)]);
        let devices = World::devices([&ports[0], &ports[1]], 2);
        let patient = Settings { timeout: 23, ..Settings::default() };
        let mut world = World::over(devices, &patient, false, Some(placement()), &|_| ());
        world.meet();
        world.until("both", |world| world.ends.iter().all(|end| end.carries(0) && end.carries(1)));
        assert_eq!(count(Count::QueuePairs), 4);
        world.devices[0][0].port(false);
        world.read_events();
        assert!(!world.ends[0].carries(0) && world.ends[0].carries(1));
        world.offer(&[7; 30_000]);
        world.take(&[7; 30_000]);
        world.devices[0][0].port(true);
        world.until("both", |world| world.ends.iter().all(|end| end.carries(0) && end.carries(1)));
    }
}
