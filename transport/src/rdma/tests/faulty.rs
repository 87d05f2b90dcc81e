//! Devices that break the rules of reliable connections: they bring a write twice, or refuse one
//! that was right.

use std::time::{Duration, Instant};

use super::long::{Long, pattern};
use super::{Settings, World, fake_test, roce};
use crate::contract::Transport as _;
use crate::rdma::sys::fake::Hook;

/// The status of work that the peer's device takes for an invalid request.
const INVALID: i32 = 9;

fn world(rails: usize, may_use_tcp: bool) -> World {
    let ports = [0, 1].map(|host| [roce(host, 0), roce(host, 1)]);
    let ports = [&ports[0][..rails], &ports[1][..rails]];
    let mut world = World::new(ports, &Settings::default(), may_use_tcp);
    world.meet();
    world
}

/// Sends and receives short and long messages, in ordinary memory and in registered memory, and
/// checks them.
fn exchange(world: &mut World) {
    for bytes in [40, 5000, 300_000] {
        let bytes = pattern(bytes);
        world.offer(&bytes);
        world.take(&bytes);
    }
    let mut message = Long::new(world, 256 << 10);
    world.until("a message in registered memory", |world| message.step(world));
    assert!(message.found.front(message.bytes) == pattern(message.bytes));
}

fake_test! {
    /// The bytes count once, and only the path is lost.
    fn a_write_that_arrives_twice_costs_its_path_only() {
        for (rails, may_use_tcp) in [(1, true), (2, false)] {
            let mut world = world(rails, may_use_tcp);
            for _ in 0..4 {
                exchange(&mut world);
            }
            world.devices[1][0].hook(Hook::Repeat(1));
            let mut was_lost = false;
            for _ in 0..20 {
                exchange(&mut world);
                was_lost |= !world.ends[1].carries(0);
            }
            assert!(was_lost, "no write arrived twice");
        }
    }
}

fake_test! {
    /// Fragments are under way, arrive twice, or arrive late, when the device of the sender fails
    /// one as invalid. TCP carries on, and the path comes back.
    fn an_invalid_request_in_mid_stream_loses_no_byte() {
        let mut world = world(1, true);
        for round in 0..6_u16 {
            let (sender, receiver) = (world.devices[0][0], world.devices[1][0]);
            // The event makes the path anew without a pause.
            sender.port(true);
            world.until("by rdma", |world| world.ends.iter().all(|end| end.carries(0)));
            exchange(&mut world);
            receiver.hook(Hook::Repeat(round % 3));
            let bytes = pattern(1 << 20);
            let (mut found, mut gone, mut here) = (vec![0; bytes.len()], 0, 0);
            let began = Instant::now();
            let mut step = 0;
            world.until("arrived", |world| {
                gone += world.ends[0].send(World::link(0), super::TAG, &bytes[gone..]).unwrap();
                match step {
                    1 if round % 2 == 1 => sender.hook(Hook::Hold),
                    3 => sender.break_queue_pairs(INVALID),
                    _ if began.elapsed() > Duration::from_millis(20) => drop(sender.release()),
                    _ => {}
                }
                step += 1;
                let some = world.ends[1].recv(World::link(1), super::TAG, &mut found[here..]);
                here += some.unwrap().map_or(0, |some| some.bytes);
                here == bytes.len()
            });
            sender.release();
            receiver.hook(Hook::Repeat(0));
            assert!(found == bytes, "other bytes arrived in round {round}");
        }
    }
}
