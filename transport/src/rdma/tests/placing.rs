//! Peers write directly into registered memory only by a promise of the receiver.

use std::time::{Duration, Instant};

use ringfold_types::limits::RAILS_MAX;
use ringfold_types::{Lane, Rank};

use super::long::{Long, held_message};
use super::sharing::deliver;
use super::{DEADLINE, Placement, Settings, TAG, World, fake_test, roce};
use crate::contract::{Link, RegisteredMemory as _, Transport as _};
use crate::rdma::sys::fake::placement;

fn world(placement: Option<Placement>) -> World {
    let ports: [&[_]; 2] = [&[roce(0, 0)], &[roce(1, 0)]];
    let mut world = World::placing(ports, &Settings::default(), true, placement);
    world.meet();
    world
}

/// Returns whether bytes lie in the receiver's memory before `recv` reports them.
fn is_written_early(mut world: World) -> bool {
    let mut is_early = false;
    for _ in 0..8 {
        let mut message = Long::new(&mut world, 256 << 10);
        world.until("a message", |world| {
            message.send(world);
            world.poll();
            let ahead = &message.found.front(message.bytes)[message.here..];
            is_early |= ahead.iter().any(|byte| *byte != 0);
            message.receive(world);
            message.receive(world);
            world.ends[1].poll().unwrap();
            message.is_done()
        });
    }
    is_early
}

fake_test! {
    fn without_a_placement_only_recv_writes() {
        assert!(is_written_early(world(Some(placement()))), "else the next line says nothing");
        assert!(!is_written_early(world(None)), "a peer wrote without a ready-to-receive message");
    }
}

fake_test! {
    /// A ready-to-receive message over many rails has two lines. The first has the keys of eight
    /// rails.
    fn the_last_rail_of_many_writes_directly_too() {
        let rails = 0..u8::try_from(RAILS_MAX).unwrap();
        let ports = [0, 1].map(|host| Vec::from_iter(rails.clone().map(|rail| roce(host, rail))));
        let settings = Settings::default();
        let ports = [&ports[0][..], &ports[1][..]];
        let mut world = World::placing(ports, &settings, true, Some(placement()));
        world.meet();
        world.until("all rails carry data", |world| {
            world.ends.iter().all(|end| (0..RAILS_MAX).all(|rail| end.carries(rail)))
        });
        let last = RAILS_MAX - 1;
        world.devices[0][..last].iter().for_each(|device| device.port(false));
        world.read_events();
        world.until("one rail carries data", |world| {
            (0..RAILS_MAX).all(|rail| world.ends[0].carries(rail) == (rail == last))
        });
        assert!(is_written_early(world));
    }
}

fake_test! {
    /// The pages' owner drops them in the middle of a receive, and does not withdraw.
    fn pages_that_a_peer_may_write_serve_nobody_else() {
        let mut world = world(Some(placement()));
        let message = held_message(&mut world);
        assert!(message.here < message.bytes, "the network holds the rest");
        let (at, bytes) = (message.found.front(1).as_ptr(), message.bytes);
        drop(message);
        let other = world.ends[1].pages(bytes).unwrap();
        assert_ne!(other.front(1).as_ptr(), at, "a peer may still write there");
    }
}

fake_test! {
    /// The ring of a lane is announced by TCP, and a ready-to-receive message goes by the device,
    /// which may be faster.
    fn a_ready_to_receive_message_does_not_overtake_the_ring() {
        const BYTES: usize = 1 << 20;
        let devices = World::devices([&[roce(0, 0)], &[roce(1, 0)]], 1);
        let promise = Some(placement());
        let mut ends = World::ends(&devices, &Settings::default(), 2, false, promise, &|_| ());
        deliver(&mut ends, (0, 1), b"there");
        let [to, from] = [1, 0].map(|peer| Link { peer: Rank(peer), lane: Lane(1) });
        let sent = ends[0].pages(BYTES).unwrap();
        let mut found = ends[1].pages(BYTES).unwrap();
        let mut gone = ends[0].send(to, TAG, sent.front(BYTES)).unwrap();
        // The receiver makes the ring while the sender is busy elsewhere.
        for _ in 0..100 {
            ends[1].poll().unwrap();
            ends[1].expect(from, TAG, 0, found.front_mut(BYTES));
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut here, deadline) = (0, Instant::now() + DEADLINE);
        while here < BYTES {
            assert!(Instant::now() < deadline, "never: the message");
            gone += ends[0].send(to, TAG, &sent.front(BYTES)[gone..]).unwrap();
            let some = ends[1].recv(from, TAG, &mut found.front_mut(BYTES)[here..]).unwrap();
            here += some.map_or(0, |some| some.bytes);
            ends.iter_mut().for_each(|end| assert!(end.poll().is_ok()));
        }
        World::part(ends);
    }
}
