//! Wires with a rate, and wires that lose long packets.

use std::time::{Duration, Instant};

use super::{Like, Settings, World, fake_test, roce};
use crate::rdma::rail::Rail;
use crate::rdma::sys::fake::Hook;

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
