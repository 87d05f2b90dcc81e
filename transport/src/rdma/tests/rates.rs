//! Ports with different rates.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::long::pattern;
use super::{DEADLINE, Device, Like, Settings, TAG, World, fake_test, roce};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::rdma::rail::{Rail, leave_out_slow};
use crate::rdma::sys::fake::{AddressEvent, Hook};

/// Bytes in a millisecond of a rail at full speed.
const FULL: u32 = 64_000;
/// Bytes of a message.
const BYTES: usize = 1 << 20;

/// The ports that remain of those with these rates, under that value of `RINGFOLD_IB_HCA`.
fn used(name: &str, rates: &[u32], devices: &str) -> (Vec<String>, Vec<String>) {
    let settings = Settings { devices: devices.parse().unwrap(), ..Settings::default() };
    let open = |(at, gigabits): (usize, &u32)| {
        let name = format!("{name}{at}");
        Device::add(&name, Like { gigabits: *gigabits, ..roce(0, 0) });
        Rail::open(&name, 1, &settings, None).unwrap()
    };
    let mut rails: Vec<Rail> = rates.iter().enumerate().map(open).collect();
    let left_out = leave_out_slow(&mut rails, &settings);
    (rails.iter().map(Rail::name).collect(), left_out)
}

fake_test! {
    fn a_port_below_a_quarter_of_the_fastest_is_left_out_unless_it_is_named() {
        let (names, left_out) = used("a", &[400, 25, 100], "");
        assert_eq!(names, ["a0:1", "a2:1"]);
        let [line] = &left_out[..] else { panic!("{left_out:?}") };
        for part in ["a1:1", "25 Gbit/s", "400 Gbit/s", "RINGFOLD_IB_HCA"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(used("b", &[400, 25], "b").0.len(), 2, "a prefix names both");
        assert_eq!(used("c", &[25, 400], "^x").0, ["c1:1"], "a list that excludes names neither");
        assert_eq!(used("d", &[25, 25], "").0.len(), 2);
    }
}

/// Two ranks with two rails. The ports of both report these rates, and bring so many bytes in a
/// millisecond.
fn world(gigabits: [u32; 2], paces: [u32; 2]) -> World {
    world_of([gigabits; 2], paces)
}

/// The same with rates for each rank.
fn world_of(gigabits: [[u32; 2]; 2], paces: [u32; 2]) -> World {
    let ports = [0, 1].map(|host| {
        let rates = gigabits[usize::from(host)];
        [0, 1].map(|rail| Like { gigabits: rates[usize::from(rail)], ..roce(host, rail) })
    });
    let mut world = World::new([&ports[0], &ports[1]], &Settings::default(), false);
    world.meet();
    world.until("both rails carry data", |world| {
        world.ends.iter().all(|end| end.carries(0) && end.carries(1))
    });
    for (rail, pace) in paces.into_iter().enumerate() {
        world.devices[0][rail].hook(Hook::Pace(Some(pace)));
    }
    world
}

/// The weight of the first rail over that of the second, at both ends.
fn ratios(world: &World) -> [f64; 2] {
    [0, 1].map(|end| world.ends[end].weight(0) as f64 / world.ends[end].weight(1) as f64)
}

/// Streams messages for a while, from registered memory or from other memory. Returns the part of
/// the bytes that went by the second rail.
fn second(world: &mut World, time: Duration, is_lent: bool) -> f64 {
    let bytes = pattern(BYTES);
    let mut pages = world.ends[0].pages(BYTES).unwrap();
    pages.front_mut(BYTES).copy_from_slice(&bytes);
    let mut found = world.ends[1].pages(BYTES).unwrap();
    let (mut other, mut gone, mut here) = (vec![0; BYTES], 0, 0);
    let before = [0, 1].map(|rail| world.devices[0][rail].carried());
    let (begin, mut is_over) = (Instant::now(), false);
    world.until("a stream", |world| {
        is_over |= begin.elapsed() > time;
        let from = if is_lent { pages.front(BYTES) } else { &bytes };
        let to = if is_lent { found.front_mut(BYTES) } else { &mut other };
        gone += world.ends[0].send(World::link(0), TAG, &from[gone..]).unwrap();
        let some = world.ends[1].recv(World::link(1), TAG, &mut to[here..]).unwrap();
        here += some.map_or(0, |some| some.bytes);
        let is_whole = (gone, here) == (BYTES, BYTES);
        if is_whole {
            assert!(to == bytes, "other bytes arrived");
            to.fill(0);
            (gone, here) = (0, 0);
        }
        is_whole && is_over
    });
    let after = [0, 1].map(|rail| world.devices[0][rail].carried());
    let [first, second] = [0, 1].map(|rail| (after[rail] - before[rail]) as f64);
    second / (first + second)
}

/// The time over which a share is taken.
const WINDOW: Duration = Duration::from_millis(500);

/// Streams messages until the part of the bytes that go by the second rail is within these bounds.
fn settles(world: &mut World, bounds: Range<f64>, is_lent: bool) {
    let end = Instant::now() + DEADLINE;
    loop {
        let part = second(world, WINDOW, is_lent);
        if bounds.contains(&part) {
            return;
        }
        assert!(Instant::now() < end, "the second rail carries {part}, and {bounds:?} were due");
    }
}

const HALF: Range<f64> = 0.45..0.55;

fake_test! {
    fn equal_rails_carry_equal_shares() {
        let mut world = world([200, 200], [FULL, FULL]);
        for is_lent in [false, true] {
            settles(&mut world, HALF, is_lent);
        }
    }
}

fake_test! {
    fn rails_carry_shares_by_the_rates_of_their_ports() {
        let mut world = world([400, 25], [FULL, FULL / 16]);
        assert_eq!(ratios(&world), [16.0; 2], "before a byte is sent");
        for is_lent in [false, true] {
            settles(&mut world, 0.02..0.12, is_lent);
        }
    }
}

fake_test! {
    fn the_slower_port_of_a_path_counts() {
        let world = world_of([[400, 400], [400, 25]], [FULL; 2]);
        assert_eq!(ratios(&world), [16.0; 2]);
    }
}

fake_test! {
    fn a_port_that_trains_down_gets_a_share_by_its_new_rate() {
        let mut world = world([400, 400], [FULL, FULL]);
        for is_lent in [false, true] {
            settles(&mut world, HALF, is_lent);
            let device = world.devices[0][1];
            for (gigabits, bounds) in [(25, 0.02..0.12), (400, HALF)] {
                device.train(gigabits);
                device.hook(Hook::Pace(Some(FULL / (400 / gigabits))));
                device.report(AddressEvent::ClientReregister);
                world.read_events();
                assert_eq!(ratios(&world)[0], f64::from(400 / gigabits));
                settles(&mut world, bounds, is_lent);
            }
        }
    }
}

fake_test! {
    /// The ports say nothing of it, as where a switch or a bad cable slows the rail. The rails are
    /// so slow that a busy host's delays do not hide the difference.
    fn a_rail_that_delivers_a_sixteenth_gets_a_share_by_its_own_rate() {
        for is_lent in [false, true] {
            let mut world = world([200, 200], [FULL / 2, FULL / 32]);
            settles(&mut world, 0.02..0.2, is_lent);
            world.devices[0][1].hook(Hook::Pace(Some(FULL / 2)));
            settles(&mut world, 0.4..0.6, is_lent);
        }
    }
}
