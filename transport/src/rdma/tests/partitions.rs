//! Ports of several partitions.

use std::time::Instant;

use super::{DEADLINE, Settings, TAG, World, fake_test, infiniband};
use crate::contract::Transport as _;
use crate::rdma::Partition;
use crate::rdma::rail::{Rail, Rails, Refusal};
use crate::rdma::sys::fake::{AddressEvent, Count, Device, count, placement};

/// The prefix of a fabric that has no other.
const PLAIN: u64 = 0xfe80 << 48;

/// Two ranks whose ports have these keys.
fn world(keys: [&[u16]; 2], wanted: Option<Partition>, may_use_tcp: bool) -> World {
    let devices = World::devices([&[infiniband(PLAIN, 3)], &[infiniband(PLAIN, 4)]], 1);
    for (ports, keys) in devices.iter().zip(keys) {
        ports.iter().for_each(|(_, device)| device.set_partitions(keys));
    }
    let settings = Settings { partition: wanted, timeout: 14, retries: 1, ..Settings::default() };
    World::over(devices, &settings, may_use_tcp, Some(placement()), &|_| ())
}

/// Returns whether two ranks reach each other by their devices.
fn meets(keys: [&[u16]; 2], wanted: Option<Partition>) -> bool {
    let mut world = world(keys, wanted, true);
    world.offer(b"there");
    world.take(b"there");
    world.until("a way", |world| {
        let is_by_tcp = world.ends.iter().any(|end| end.by_tcp() > 0);
        is_by_tcp || world.ends.iter().all(|end| end.carries(0))
    });
    world.ends.iter().all(|end| end.by_tcp() == 0)
}

fake_test! {
    fn ports_meet_as_full_members_wherever_the_keys_stand() {
        assert!(meets([&[0x7fff, 0xffff], &[0x7fff, 0, 0xffff]], None));
        assert!(meets([&[0x7fff], &[0xffff]], None), "one is enough");
        assert!(!meets([&[0x7fff], &[0x7fff]], None), "limited members do not reach each other");
    }
}

fake_test! {
    /// No queue pair is made that cannot work, and the error names the keys.
    fn ports_of_different_partitions_do_not_pair() {
        let mut world = world([&[0xffff], &[0x8001]], None, false);
        let sent = world.ends[0].send(World::link(0), TAG, b"there");
        assert!(sent.is_ok(), "{sent:?}");
        let deadline = Instant::now() + DEADLINE;
        let polls = std::iter::repeat_with(|| world.try_poll());
        let mut polls = polls.take_while(|_| Instant::now() < deadline);
        let why = polls.find_map(Result::err).unwrap().to_string();
        let is_named = ["have the partition keys ", "0xffff", "0x8001", "IB_PKEY names"];
        assert!(is_named.iter().all(|part| why.contains(part)), "{why}");
        assert_eq!(count(Count::QueuePairs), 0);
    }
}

fake_test! {
    fn a_key_or_an_index_names_the_partition() {
        let keys: [&[u16]; 2] = [&[0xffff, 0x8001], &[0x8001, 0x8002]];
        assert!(!meets(keys, None));
        assert!(meets(keys, Some(Partition::Key(0x8001))));
        assert!(!meets(keys, Some(Partition::Index(1))));
        assert!(meets([&[0xffff, 0x8001], &[0x8002, 0x0001]], Some(Partition::Index(1))));
    }
}

fake_test! {
    /// A setting that no port can keep is an error, and no reason to go by TCP.
    fn what_no_port_has_is_an_error_with_the_keys_of_the_ports() {
        let [one, other] = ["some", "more"].map(|name| (name.to_owned(), None));
        let device = Device::add(&one.0, infiniband(PLAIN, 3));
        device.set_partitions(&[0xffff, 0x7fff]);
        Device::add(&other.0, infiniband(PLAIN, 4)).set_partitions(&[0xffff, 0x8002]);
        let open = |partition, gid_index| {
            let settings = Settings { partition, gid_index, ..Settings::default() };
            Rails::among(vec![one.clone(), other.clone()], &settings, None)
        };
        let key = |key| Some(Partition::Key(key));
        let why = open(key(0x8001), None).unwrap_err();
        let text = "no rdma because some:1 has no partition key 0x8001, which RINGFOLD_IB_PKEY \
                    names; it has 0xffff at index 0, 0x7fff at index 1; more:1 has no partition \
                    key 0x8001, which RINGFOLD_IB_PKEY names; it has 0xffff at index 0, 0x8002 at \
                    index 1";
        assert_eq!((why.to_string().as_str(), why.is_unknown()), (text, true));
        let why = open(None, Some(7)).unwrap_err();
        assert!(why.to_string().contains("RINGFOLD_IB_GID_INDEX") && why.is_unknown(), "{why}");
        // One port that has it is enough.
        let rails = open(key(0x8002), None).unwrap().0;
        let shown = rails[0].to_string();
        assert!(rails.len() == 1 && shown.ends_with("partition key 0x8002 at index 1"), "{shown}");
        assert!(!open(None, None).unwrap().0[0].to_string().contains("partition"));
        let settings = Settings { partition: Some(Partition::Index(1)), ..Settings::default() };
        let shown = Rail::open("some", 1, &settings, None).unwrap().to_string();
        assert!(shown.ends_with("partition key 0x7fff at index 1 (a limited member)"), "{shown}");
        device.port(false);
        let down = Rail::open("some", 1, &settings, None).unwrap_err();
        assert!(matches!(down, Refusal::Unable(_)), "{down:?}");
    }
}

fake_test! {
    /// A subnet manager does so that starts again.
    fn a_key_that_moves_in_the_table_takes_the_paths_along() {
        for rank in [0, 1] {
            let mut world = world([&[0xffff], &[0xffff]], None, true);
            world.meet();
            let device = world.devices[rank][0];
            device.set_partitions(&[0x7fff, 0x8001, 0xffff]);
            device.report(AddressEvent::PartitionChange);
            world.offer(b"on its way");
            world.goes_on();
        }
    }
}
