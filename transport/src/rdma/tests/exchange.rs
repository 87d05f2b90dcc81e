//! Bytes travel by the fake devices, and all objects are gone afterwards.

use super::{Settings, TAG, World, fake_test, roce};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::rdma::sys::fake::{Count, count};

fake_test! {
    /// In ordinary memory and in registered memory, by one rail and by two.
    fn bytes_travel_and_nothing_is_left() {
        for rails in [1, 2] {
            let ports = [0, 1].map(|host| [roce(host, 0), roce(host, 1)]);
            let ports = [&ports[0][..rails], &ports[1][..rails]];
            let mut world = World::new(ports, &Settings::default(), false);
            world.meet();
            let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
            let mut sent = world.ends[0].pages(bytes.len()).unwrap();
            sent.front_mut(bytes.len()).copy_from_slice(&bytes);
            let mut found = world.ends[1].pages(bytes.len()).unwrap();
            let (mut gone, mut here) = (0, 0);
            world.until("arrived", |world| {
                let rest = &sent.front(bytes.len())[gone..];
                gone += world.ends[0].send(World::link(0), TAG, rest).unwrap();
                let room = &mut found.front_mut(bytes.len())[here..];
                let some = world.ends[1].recv(World::link(1), TAG, room).unwrap();
                here += some.map_or(0, |some| some.bytes);
                here == bytes.len() && gone == bytes.len()
            });
            assert!(found.front(bytes.len()) == bytes);
            assert_eq!(count(Count::QueuePairs), 2 * rails as i64);
            assert!(count(Count::Polls) > 0 && count(Count::Regions) > 0);
            assert!(count(Count::RegionBytes) >= bytes.len() as i64);
            let [doorbells, works] = [Count::Doorbells, Count::Works].map(count);
            let [signalled, inline] = [Count::Signalled, Count::Inlines].map(count);
            assert!(doorbells > 0 && doorbells <= works, "{doorbells} for {works}");
            assert!(signalled > 0 && inline > 0 && signalled.max(inline) < works);
            assert!(count(Count::ReceivePosts) > 0);
            // Both are dropped at once, as by processes.
            let [one, other] = world.ends;
            let leaves = std::thread::spawn(move || drop(one));
            drop(other);
            leaves.join().unwrap();
            for what in [
                Count::QueuePairs,
                Count::Regions,
                Count::RegionBytes,
                Count::Domains,
                Count::Queues,
                Count::Contexts,
            ] {
                let left = count(what);
                assert_eq!(left, 0, "{what:?}");
            }
        }
    }
}
