//! Ports whose address changes while a job runs.

use std::time::Duration;

use super::{Like, Settings, World, fake_test, infiniband, roce};
use crate::rdma::sys::fake::{AddressEvent, Count, count};

/// The prefix of a fabric that has no other.
const PLAIN: u64 = 0xfe80 << 48;

/// Devices that try for longer than a test may take. A test that relies on their end hangs.
fn patient() -> Settings {
    Settings { timeout: 23, ..Settings::default() }
}

/// Two connected ranks with these ports. Without TCP there is no other way.
fn world(ports: [&[Like]; 2], may_use_tcp: bool) -> World {
    let mut world = World::new(ports, &patient(), may_use_tcp);
    world.meet();
    world
}

impl World {
    /// Gives a rank's port another address, and lets its device report that.
    fn relocate(&mut self, rank: usize, like: Like, event: AddressEvent) {
        let device = self.devices[rank][0];
        device.relocate(like.lid, like.gid);
        device.report(event);
    }

    /// Exchanges messages by a path that was made after the addresses changed.
    pub(super) fn goes_on(&mut self) {
        self.take(b"on its way");
        self.until("by rdma", |world| world.ends.iter().all(|end| end.carries(0)));
        for at in 0..20 {
            let bytes = vec![at; 10_000];
            self.offer(&bytes);
            self.take(&bytes);
        }
        assert!(self.ends.iter().all(|end| end.by_tcp() == 0));
    }
}

fake_test! {
    fn a_new_lid_takes_the_only_path_down_and_up_again() {
        for rank in [0, 1] {
            let mut world = world([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], false);
            world.relocate(rank, infiniband(PLAIN, 7), AddressEvent::LidChange);
            world.offer(b"on its way");
            world.goes_on();
        }
    }
}

fake_test! {
    /// A subnet manager does so that starts again and forgets the old LIDs.
    fn new_lids_of_both_ranks_at_once_end_no_job() {
        let mut world = world([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], false);
        for round in 0..3 {
            for rank in [0, 1] {
                let lid = 10 + 2 * round + u16::try_from(rank).unwrap();
                world.relocate(rank, infiniband(PLAIN, lid), AddressEvent::ClientReregister);
            }
            world.offer(b"on its way");
            world.goes_on();
        }
    }
}

fake_test! {
    fn a_new_prefix_of_the_subnet_ends_no_job() {
        let mut world = world([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], false);
        for (rank, lid) in [(0, 3), (1, 4)] {
            world.relocate(rank, infiniband(PLAIN + 1, lid), AddressEvent::GidChange);
        }
        world.offer(b"on its way");
        world.goes_on();
    }
}

fake_test! {
    fn a_new_ip_address_takes_the_only_path_down_and_up_again() {
        for rank in [0, 1] {
            let mut world = world([&[roce(0, 0)], &[roce(1, 0)]], false);
            world.relocate(rank, roce(7, 0), AddressEvent::GidChange);
            world.offer(b"on its way");
            world.goes_on();
        }
    }
}

fake_test! {
    /// The commands `ip addr del` and then `ip addr add`, of the same address or another.
    fn an_address_that_goes_and_another_that_comes_end_no_job() {
        for (rank, next) in [(0, roce(0, 0)), (0, roce(7, 0)), (1, roce(7, 0))] {
            let mut world = world([&[roce(0, 0)], &[roce(1, 0)]], false);
            world.relocate(rank, Like { gid: [0; 16], ..next }, AddressEvent::GidChange);
            world.read_events();
            world.offer(b"on its way");
            world.read_events();
            world.relocate(rank, next, AddressEvent::GidChange);
            world.goes_on();
        }
    }
}

fake_test! {
    fn a_port_that_comes_up_with_another_lid_is_used_again() {
        for rank in [0, 1] {
            let mut world = world([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], false);
            let port = world.devices[rank][0];
            port.port(false);
            world.read_events();
            world.offer(b"on its way");
            let like = infiniband(PLAIN, 9);
            port.relocate(like.lid, like.gid);
            port.port(true);
            world.goes_on();
        }
    }
}

fake_test! {
    /// The other rail carries on, and so does TCP where there is no other rail.
    fn other_ways_carry_on_meanwhile() {
        let ports = [0, 1].map(|host| [roce(host, 0), roce(host, 1)]);
        for (rails, may_use_tcp) in [(2, false), (1, true)] {
            let mut world = world([&ports[0][..rails], &ports[1][..rails]], may_use_tcp);
            world.relocate(0, roce(7, 0), AddressEvent::GidChange);
            world.offer(b"on its way");
            world.take(b"on its way");
            world.offer(b"on its way");
            world.until("by tcp no more", |world| {
                world.ends.iter().all(|end| end.by_tcp() == 0 && end.carries(0))
            });
            world.goes_on();
        }
    }
}

fake_test! {
    fn events_that_change_nothing_cost_nothing() {
        let mut world = world([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], false);
        let before = count(Count::QueuePairs);
        for event in
            [AddressEvent::LidChange, AddressEvent::ClientReregister, AddressEvent::GidChange]
        {
            world.devices[0][0].report(event);
            world.read_events();
            assert!(world.ends.iter().all(|end| end.carries(0)), "{event:?}");
        }
        assert_eq!(count(Count::QueuePairs), before);
    }
}

fake_test! {
    /// A port whose new address nobody reaches ends the link, though the device would try on.
    fn a_path_that_does_not_come_back_ends_the_link_in_time() {
        let mut world = world([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], false);
        world.relocate(0, infiniband(PLAIN, 0), AddressEvent::LidChange);
        world.offer(b"to nobody");
        let begin = std::time::Instant::now();
        let error = world.failure(0);
        assert!(begin.elapsed() > Duration::from_secs(5), "{error:?}");
    }
}
