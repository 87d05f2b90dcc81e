//! The addresses by which queue pairs find each other over InfiniBand: LIDs, GIDs and routers.

use std::net::IpAddr;

use ringfold_topology::machine::{self, Interface, Machine, Nic, NicPort, PciAddress};

use super::{Like, Settings, World, fake_test, infiniband, roce};
use crate::contract::{LinkFault, Transport as _};
use crate::rdma::OpenPort;
use crate::rdma::rail::Rails;
use crate::rdma::sys::addresses;
use crate::rdma::sys::fake::{Count, count, placement, router};

/// The prefix of a fabric that has no other.
const PLAIN: u64 = 0xfe80 << 48;

/// Returns the prefix of a subnet with the LID of the routers to it.
fn routed(subnet: u64, routers: u16) -> u64 {
    0xfec0 << 48 | u64::from(routers) << 16 | subnet
}

fn meet(one: Like, other: Like) {
    let mut world = World::new([&[one], &[other]], &Settings::default(), false);
    world.meet();
    world.offer(&[7; 100_000]);
    world.take(&[7; 100_000]);
}

/// Returns the error of a rank that cannot reach the other.
fn refused(one: Like, other: Like) -> String {
    let mut world = World::new([&[one], &[other]], &Settings::default(), false);
    let link = World::link(0);
    let mut error = None;
    world.until("an error", |world| {
        let sent = world.ends[0].send(link, 5, b"to nobody");
        error = sent.err().or_else(|| world.ends[0].poll().err());
        world.ends[1].poll().ok();
        error.is_some()
    });
    match error.unwrap().fault {
        LinkFault::Io(why) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

fake_test! {
    /// A switch and a bond send all packets of a queue pair the same way.
    fn a_bond_gets_a_queue_pair_for_each_port() {
        let devices = World::devices([&[roce(0, 0)], &[roce(1, 0)]], 1);
        let bond = |rails: &mut Rails| {
            let OpenPort { name, gid, .. } = rails.ports().remove(0);
            let (device, _) = name.split_once(':').unwrap();
            let gid = machine::Gid { bytes: gid, interface: "bond0".into(), ..Default::default() };
            let port = NicPort { number: 1, gids: vec![gid], ..NicPort::default() };
            let nic = Nic { name: device.into(), ports: vec![port], ..Nic::default() };
            let interface = |name: &str, is_part: bool| Interface {
                name: name.into(),
                pci: is_part.then(PciAddress::default),
                master: is_part.then(|| "bond0".into()),
                ..Interface::default()
            };
            let interfaces = [("bond0", false), ("eth0", true), ("eth1", true)];
            let interfaces = interfaces.map(|(name, is_part)| interface(name, is_part)).into();
            rails.locate(&Machine { nics: vec![nic], interfaces, ..Machine::default() });
        };
        let settings = Settings::default();
        let mut world = World::over(devices.clone(), &settings, false, Some(placement()), &bond);
        let before = count(Count::QueuePairs);
        world.meet();
        assert_eq!(count(Count::QueuePairs) - before, 4, "two at each end");
        drop(world);
        let mut world = World::over(devices, &settings, false, Some(placement()), &|_| ());
        let before = count(Count::QueuePairs);
        world.meet();
        assert_eq!(count(Count::QueuePairs) - before, 2, "without a bond");
    }
}

fake_test! {
    fn ports_of_a_subnet_meet() {
        meet(infiniband(PLAIN, 3), infiniband(PLAIN, 4));
    }
}

fake_test! {
    /// One port that requires them is enough.
    fn a_port_that_requires_global_headers_gets_them() {
        for needy in 0..2 {
            let like = |rank, lid| Like { needs_grh: rank == needy, ..infiniband(PLAIN, lid) };
            meet(like(0, 3), like(1, 4));
        }
    }
}

fake_test! {
    fn ports_of_two_subnets_meet_by_a_router() {
        router(0x21);
        meet(infiniband(routed(1, 0x21), 3), infiniband(routed(2, 0x21), 4));
    }
}

fake_test! {
    fn subnets_without_a_known_router_are_named() {
        router(0x21);
        let why = refused(infiniband(routed(1, 0), 3), infiniband(routed(2, 0), 4));
        let [ours, theirs] = ["fec0:0:0:1::/64", "fec0:0:0:2::/64"];
        for part in ["fake0_h0r0:1 is on", ours, "rank 1 (fake0_h1r0:1", theirs] {
            assert!(why.contains(part), "{why}");
        }
    }
}

fake_test! {
    /// The device shows a GID of another network namespace first. Its interface may have the number
    /// of one of this namespace.
    fn gids_of_this_network_namespace_are_used() {
        let here = addresses().unwrap()[0];
        for interface in [here.interface, 0, 4_000_000_000] {
            let devices = World::devices([&[roce(0, 0)], &[roce(1, 0)]], 1);
            let own = match here.address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            for (host, ports) in (0..).zip(&devices) {
                ports[0].1.set_gid(0, (roce(host, 0).gid, interface), true);
                ports[0].1.set_gid(1, (own.octets(), here.interface), false);
            }
            let settings = Settings::default();
            let mut world = World::over(devices, &settings, false, Some(placement()), &|_| ());
            world.meet();
        }
    }
}

fake_test! {
    fn a_port_without_a_lid_is_named() {
        let why = refused(infiniband(PLAIN, 3), infiniband(PLAIN, 0));
        assert!(why.contains("fake0_h0r0:1 cannot reach rank 1 (fake0_h1r0:1"), "{why}");
    }
}
