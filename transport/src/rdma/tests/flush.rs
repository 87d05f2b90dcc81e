//! Queue pairs that do not stop when they should. A write that the peer posted before must not land
//! after the receiver has reported its arrivals.

use std::time::Duration;

use super::long::{held_message, pattern};
use super::{Settings, World, fake_test, roce};
use crate::contract::{LinkFault, RegisteredMemory as _, Transport as _};
use crate::rdma::sys::fake::{Count, Hook, count};

/// Longer than a flush may take, and long enough that a device in no hurry is noticed.
const SLOW: Duration = Duration::from_millis(1500);
/// The status of work whose retries are exhausted.
const EXHAUSTED: i32 = 12;

fn world() -> World {
    let mut world = World::new([&[roce(0, 0)], &[roce(1, 0)]], &Settings::default(), true);
    world.meet();
    world
}

/// The network holds a write of rank 0, the path is lost, and TCP brings the bytes. The write lands
/// nowhere afterwards.
fn nothing_lands_late(spoil: impl Fn(&World)) {
    let mut world = world();
    let bytes = pattern(1000);
    let sender = world.devices[0][0];
    sender.hook(Hook::Hold);
    world.offer(&bytes);
    spoil(&world);
    world.take(&bytes);
    assert_eq!(sender.release(), 0, "a write landed after the receiver had reported its arrivals");
}

fake_test! {
    fn a_flush_that_takes_too_long_tells_nothing_before_its_end() {
        nothing_lands_late(|world| {
            world.devices[1][0].hook(Hook::FlushNever);
            world.devices[1][0].hook(Hook::Destruction(SLOW));
            world.devices[0][0].break_queue_pairs(EXHAUSTED);
        });
    }
}

fake_test! {
    fn a_queue_pair_that_refuses_to_end_is_destroyed_first() {
        nothing_lands_late(|world| {
            world.devices[1][0].hook(Hook::RefuseError(true));
            world.devices[1][0].hook(Hook::Destruction(SLOW));
            world.devices[0][0].break_queue_pairs(EXHAUSTED);
        });
    }
}

fake_test! {
    fn a_lost_device_tells_nothing_before_its_queue_pairs_are_gone() {
        nothing_lands_late(|world| {
            world.devices[1][0].hook(Hook::Destruction(SLOW));
            world.devices[1][0].die();
        });
    }
}

fake_test! {
    fn a_buffer_that_was_given_back_is_not_written_any_more() {
        let mut world = world();
        let mut message = held_message(&mut world);
        world.devices[1][0].hook(Hook::RefuseError(true));
        world.devices[1][0].hook(Hook::Destruction(SLOW));
        world.devices[0][0].break_queue_pairs(EXHAUSTED);
        world.until("by tcp", |world| message.step(world));
        assert!(message.found.front(message.bytes) == pattern(message.bytes));
        message.found.front_mut(message.bytes).fill(0);
        world.devices[0][0].release();
        let is_clean = message.found.front(message.bytes).iter().all(|byte| *byte == 0);
        assert!(is_clean, "a late write changed a buffer that its owner had back");
    }
}

fake_test! {
    /// The device does not end the queue pair, and either does not let go of the memory or keeps
    /// the queue pair.
    fn a_withdrawn_buffer_is_not_written_any_more() {
        for hook in [Hook::RefuseDeregistration(libc::EIO), Hook::RefuseDestruction] {
            let mut world = world();
            let mut message = held_message(&mut world);
            world.devices[1][0].hook(Hook::RefuseError(true));
            world.devices[1][0].hook(hook);
            world.ends[1].withdraw();
            message.found.front_mut(message.bytes).fill(0);
            world.devices[0][0].release();
            let is_clean = message.found.front(message.bytes).iter().all(|byte| *byte == 0);
            assert!(is_clean, "{hook:?}: a late write changed a buffer that its owner had back");
        }
    }
}

fake_test! {
    /// The device keeps the queue pair and the memory.
    fn a_buffer_that_a_device_keeps_serves_nobody_else() {
        let mut world = world();
        let message = held_message(&mut world);
        let keeps = Hook::RefuseDeregistration(libc::EIO);
        let hooks = [Hook::RefuseError(true), Hook::RefuseDestruction, keeps];
        hooks.into_iter().for_each(|hook| world.devices[1][0].hook(hook));
        world.ends[1].withdraw();
        let at = message.found.front(1).as_ptr();
        let bytes = message.bytes;
        drop(message);
        let other = world.ends[1].pages(bytes).unwrap();
        assert_ne!(other.front(1).as_ptr(), at);
    }
}

fake_test! {
    /// A rank that cannot rule out late writes ends the link, and reports the reason.
    fn a_queue_pair_that_cannot_be_destroyed_ends_the_link() {
        let mut world = world();
        world.devices[1][0].hook(Hook::RefuseError(true));
        world.devices[1][0].hook(Hook::RefuseDestruction);
        world.devices[0][0].break_queue_pairs(EXHAUSTED);
        let error = world.failure(1);
        let LinkFault::Io(why) = &error.fault else { panic!("{error:?}") };
        let why = why.to_string();
        for part in ["rank 0", "fake0_h1r0:1", "cannot destroy", "dmesg"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(count(Count::QueuePairs), 2);
    }
}
