//! Ports that are down for a moment, and packets that are lost on the way.

use std::time::Duration;

use super::{Settings, World, fake_test, roce};
use crate::contract::{LinkFault, Transport as _};
use crate::rdma::sys::fake::{Count, Hook, count, placement};

/// Polls after which both ranks have surely read their devices' events.
const POLLS: i64 = 20_000;

/// Devices that try for longer than a test may take. A test that waits for their end hangs.
fn patient() -> Settings {
    Settings { timeout: 23, ..Settings::default() }
}

fn world(rails: usize, settings: &Settings, may_use_tcp: bool) -> World {
    let ports = [0, 1].map(|host| [roce(host, 0), roce(host, 1)]);
    let mut world = World::new([&ports[0][..rails], &ports[1][..rails]], settings, may_use_tcp);
    world.meet();
    world
}

impl World {
    /// Lets both ranks read their devices' events.
    pub(super) fn read_events(&mut self) {
        let before = count(Count::Polls);
        self.until("polled", |_| count(Count::Polls) > before + POLLS);
    }

    /// Sends a message in each of many turns, so every path in use carries some.
    fn exchange(&mut self) {
        for at in 0..20 {
            let bytes = vec![at; 1000];
            self.offer(&bytes);
            self.take(&bytes);
        }
    }
}

fake_test! {
    /// The device tries again by itself.
    fn a_flap_of_the_only_rail_is_waited_for() {
        for host in [0, 1] {
            let mut world = world(1, &patient(), false);
            let port = world.devices[host][0];
            port.port(false);
            world.offer(b"on its way");
            world.read_events();
            port.port(true);
            world.take(b"on its way");
            world.read_events();
            world.exchange();
        }
    }
}

fake_test! {
    fn a_port_that_stays_down_ends_the_link_when_the_device_gives_up() {
        let hasty = Settings { timeout: 14, retries: 3, ..Settings::default() };
        let mut world = world(1, &hasty, false);
        world.devices[0][0].port(false);
        world.offer(b"to nobody");
        let error = world.failure(0);
        let LinkFault::Io(why) = &error.fault else { panic!("{error:?}") };
        let why = why.to_string();
        for part in ["retries exhausted: rank 1", "RINGFOLD_TRANSPORT leaves no other way"] {
            assert!(why.contains(part), "{why}");
        }
    }
}

fake_test! {
    fn a_port_that_is_down_is_left_at_once_where_another_lives() {
        let mut world = world(2, &patient(), false);
        world.devices[0][0].port(false);
        world.read_events();
        world.exchange();
        // The last path is kept, and left when the first one lives again.
        world.devices[0][1].port(false);
        world.read_events();
        world.devices[0][0].port(true);
        world.until("by the first rail again", |world| {
            world.ends[0].is_flushed() && world.ends[0].carries(0)
        });
        world.exchange();
        world.devices[0][1].port(true);
        world.read_events();
        world.exchange();
    }
}

fake_test! {
    fn a_preferred_rail_that_fails_leaves_its_data_to_the_spare_one() {
        let ports = [0, 1].map(|host| [0, 1, 2].map(|rail| roce(host, rail)));
        let ports = ports.each_ref().map(<[_; 3]>::as_slice);
        let preferred = [false, true, false];
        let mut world =
            World::preferring(ports, &patient(), true, Some(placement()), &preferred);
        world.meet();
        world.until("by the preferred rail", |world| {
            world.ends.iter().all(|end| end.carries(0) && end.rail() == Some(1))
        });
        assert!(world.ends.iter().all(|end| !end.carries(2)), "one spare is enough");
        world.devices[0][1].port(false);
        world.read_events();
        world.exchange();
        assert!(world.ends.iter().all(|end| end.rail() == Some(0) && end.by_tcp() == 0));
        world.devices[0][1].port(true);
        world.until("by the preferred rail again", |world| {
            world.ends.iter().all(|end| end.rail() == Some(1))
        });
        world.exchange();
        assert!(world.ends.iter().all(|end| end.by_tcp() == 0));
    }
}

fake_test! {
    fn a_port_that_is_down_is_left_at_once_where_tcp_may_carry_on() {
        let mut world = world(1, &patient(), true);
        world.devices[1][0].port(false);
        world.read_events();
        world.exchange();
        assert!(world.ends[1].by_tcp() == 1);
        world.devices[1][0].port(true);
        world.until("by rdma again", |world| world.ends.iter().all(|end| end.by_tcp() == 0));
        world.exchange();
    }
}

fake_test! {
    /// The first packet is lost, and the device waits for up to 4.3 s before it sends it again.
    fn a_path_is_proven_by_a_packet_that_is_sent_again() {
        let ports = [[roce(0, 0)], [roce(1, 0)]];
        let mut world = World::new([&ports[0], &ports[1]], &Settings::default(), true);
        world.devices[0][0].hook(Hook::Hold);
        let link = World::link(0);
        world.until("accepted", |world| world.ends[0].send(link, 5, b"first").unwrap() > 0);
        world.pass(Duration::from_millis(4_300));
        assert!(world.ends.iter().all(|end| end.by_tcp() == 0), "the path was given up");
        world.devices[0][0].release();
        world.take(b"first");
        assert!(world.ends.iter().all(|end| end.by_tcp() == 0));
    }
}
