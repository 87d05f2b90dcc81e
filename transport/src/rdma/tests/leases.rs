//! Callers' own buffers, lent to devices for the time of a call.

use std::time::{Duration, Instant};

use super::copies::{BYTES, Says, stream};
use super::long::pattern;
use super::sharing::deliver;
use super::{Settings, TAG, World, fake_test, roce};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::rdma::sys::fake::{Count, Hook, count, fork_status, input, output};
use crate::sys::{copied, fork_for_test};
use ringfold_types::limits::{RDMA_LEASE_BYTES, RDMA_LEASE_MAX_BYTES};
use rustix::process::{Pid, WaitOptions, waitpid};

pub(super) fn world(settings: &Settings) -> World {
    let mut world = World::new([&[roce(0, 0)], &[roce(1, 0)]], settings, false);
    world.meet();
    world
}

/// A call of both ranks: rank 0 sends its buffer, and rank 1 receives it.
pub(super) struct Call<'b> {
    sent: &'b [u8],
    found: &'b mut [u8],
    gone: usize,
    pub(super) here: usize,
}

impl<'b> Call<'b> {
    pub(super) fn begin(world: &mut World, sent: &'b [u8], found: &'b mut [u8]) -> Self {
        world.ends[0].lease(input(sent));
        world.ends[1].lease(output(found));
        assert!(world.ends[1].expect(World::link(1), TAG, 0, found));
        Self { sent, found, gone: 0, here: 0 }
    }

    /// Sends and receives on. Returns whether the call is done.
    pub(super) fn step(&mut self, world: &mut World) -> bool {
        let rest = &self.sent[self.gone..];
        if !rest.is_empty() {
            self.gone += world.ends[0].send(World::link(0), TAG, rest).unwrap();
        }
        let room = &mut self.found[self.here..];
        if !room.is_empty() {
            let some = world.ends[1].recv(World::link(1), TAG, room).unwrap();
            self.here += some.map_or(0, |some| some.bytes);
        }
        (self.gone, self.here) == (self.sent.len(), self.found.len())
    }

    pub(super) fn finish(mut self, world: &mut World) {
        world.until("the call", |world| self.step(world));
        release(world);
    }
}

pub(super) fn release(world: &mut World) {
    world.ends.iter_mut().for_each(|end| end.release());
}

pub(super) fn registered() -> (i64, i64) {
    (count(Count::Regions), count(Count::RegionBytes))
}

fake_test! {
    fn ordinary_memory_is_hardly_copied_at_any_pace() {
        let mut world = world(&Settings::default());
        let before = registered();
        for (bytes, messages) in [(256 << 10, 256), (1 << 20, 64), (64 << 20, 1)] {
            for pace in [1, 16, 256, 4096] {
                // A buffer of a call may be longer than its messages.
                let (sent, mut found) = (pattern(bytes.max(RDMA_LEASE_BYTES)), vec![0; BYTES]);
                world.ends[0].lease(input(&sent));
                world.ends[1].lease(output(&mut found));
                let says = Says::Rows(messages);
                let copied = stream(&mut world, &sent[..bytes], &mut found, pace, says, false);
                println!("copied {copied:.4} of messages of {bytes} bytes at pace {pace}");
                assert!(copied < 0.01, "{copied} of messages of {bytes} bytes at pace {pace}");
                let (regions, registered_bytes) = registered();
                assert_eq!(regions, before.0 + 2, "one for each rank");
                assert_eq!(registered_bytes, before.1 + (sent.len() + BYTES) as i64);
                release(&mut world);
                assert_eq!(registered(), before);
            }
        }
    }
}

fake_test! {
    /// The peer's write is under way when its receiver gives up.
    fn a_withdrawn_buffer_is_written_no_more() {
        let mut world = world(&Settings::default());
        let before = registered();
        let (sent, mut found) = (pattern(4 << 20), vec![0; 4 << 20]);
        let mut call = Call::begin(&mut world, &sent, &mut found);
        world.devices[0][0].hook(Hook::Hold);
        (0..1000).for_each(|_| assert!(!call.step(&mut world), "the network holds it"));
        assert!(registered().0 > before.0);
        for end in &mut world.ends {
            end.withdraw();
            end.release();
        }
        assert!(registered().1 <= before.1, "only rings and mailboxes are left");
        found.fill(0xaa);
        world.devices[0][0].release();
        let late = Instant::now() + Duration::from_millis(50);
        while Instant::now() < late {
            world.ends.iter_mut().for_each(|end| drop(end.poll()));
        }
        assert!(found.iter().all(|byte| *byte == 0xaa), "written after the withdrawal");
    }
}

fake_test! {
    /// The memory of a call is unmapped and mapped again before the next.
    fn each_call_sends_what_its_buffer_holds() {
        let mut world = world(&Settings::default());
        let before = registered();
        let mut addresses = Vec::new();
        for round in 0..8 {
            let mut sent: Vec<u8> = pattern(4 << 20);
            sent.iter_mut().for_each(|byte| *byte ^= round);
            let expected = sent.clone();
            let mut found = vec![0; 4 << 20];
            addresses.push(sent.as_ptr().addr());
            let mut call = Call::begin(&mut world, &sent, &mut found);
            world.until("all is sent", |world| {
                call.step(world);
                call.gone == call.sent.len()
            });
            let here = call.here;
            world.ends[0].release();
            // The sender has its buffer back, and the receiver may not be done.
            sent.fill(0x5a);
            drop(sent);
            let mut here = here;
            world.until("all is received", |world| {
                if here < found.len() {
                    let room = &mut found[here..];
                    let some = world.ends[1].recv(World::link(1), TAG, room).unwrap();
                    here += some.map_or(0, |some| some.bytes);
                }
                here == found.len()
            });
            world.ends[1].release();
            assert!(found == expected, "round {round}");
            assert_eq!(registered(), before);
        }
        addresses.sort_unstable();
        addresses.dedup();
        assert!(addresses.len() < 8, "some address was mapped again");
    }
}

fake_test! {
    fn a_fork_in_mid_call_changes_nothing() {
        let mut world = world(&Settings::default());
        let (sent, mut found) = (pattern(4 << 20), vec![0; 4 << 20]);
        let mut call = Call::begin(&mut world, &sent, &mut found);
        world.until("some has arrived", |world| {
            assert!(!call.step(world), "it takes several writes");
            call.here > 0
        });
        fork_for_test(|| ()).unwrap();
        call.finish(&mut world);
        assert!(found == sent);
    }
}

fake_test! {
    /// A sender lends one buffer once for each of its peers.
    fn a_buffer_is_registered_once() {
        let mut world = world(&Settings::default());
        let before = registered();
        let (sent, mut found) = (pattern(2 << 20), vec![0; 2 << 20]);
        (0..32).for_each(|_| world.ends[0].lease(input(&sent)));
        world.ends[0].lease(input(&sent[..1 << 20]));
        let mut call = Call::begin(&mut world, &sent, &mut found);
        assert_eq!(registered().0, before.0 + 1, "the receiver's");
        world.until("some has arrived", |world| call.step(world) || call.here > 0);
        assert_eq!(registered().0, before.0 + 2);
        call.finish(&mut world);
        assert!(found == sent);
        assert_eq!(registered(), before);
    }
}

fake_test! {
    fn a_call_pins_no_more_of_a_buffer_than_it_may() {
        let mut world = world(&Settings::default());
        let (bytes, before) = (1 << 20, registered());
        // Nothing reads most of it, so it takes no memory.
        let sent = vec![0; RDMA_LEASE_MAX_BYTES + 1];
        let (first, rest) = sent.split_at(bytes);
        for (leased, regions) in [(vec![&sent[..]], 0), (vec![first, rest], 1)] {
            leased.into_iter().for_each(|part| world.ends[0].lease(input(part)));
            let mut found = vec![1; bytes];
            let mut call = Call { sent: first, found: &mut found, gone: 0, here: 0 };
            world.until("the call", |world| call.step(world));
            let now = registered();
            let pinned = i64::try_from(bytes).unwrap() * regions;
            assert_eq!((now.0 - before.0, now.1 - before.1), (regions, pinned));
            release(&mut world);
            assert!(found == first);
        }
    }
}

fake_test! {
    /// Memory that cannot be registered for a while is copied for a while.
    fn refusals_lapse() {
        const BYTES: usize = 1 << 20;
        let mut world = world(&Settings::default());
        let mut pages = world.ends[0].pages(BYTES).unwrap();
        let (sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
        pages.front_mut(BYTES).copy_from_slice(&sent);
        let refuse = |world: &World, refuses| {
            let devices = world.devices.iter().flatten();
            devices.for_each(|device| device.hook(Hook::RefuseRegistration(refuses)));
        };
        let mut copies = |world: &mut World, is_leased| {
            let before = copied();
            if is_leased {
                Call::begin(world, &sent, &mut found).finish(world);
            } else {
                deliver(&mut world.ends, (0, 1), pages.front(BYTES));
            }
            // The receiver copies messages for which it has lent no buffer.
            let copies = usize::try_from(copied() - before).unwrap();
            assert!(found == sent || !is_leased);
            copies - if is_leased { 0 } else { BYTES }
        };
        for is_leased in [true, false] {
            refuse(&world, true);
            for _ in 0..10 {
                assert!(copies(&mut world, is_leased) >= BYTES);
            }
            refuse(&world, false);
            let calls = (0..1000).position(|_| copies(&mut world, is_leased) < BYTES / 8);
            assert!(calls.is_some_and(|calls| calls < 200), "{calls:?} calls, {is_leased}");
        }
    }
}

fake_test! {
    /// Nothing but the end of the process keeps a peer from writing to memory that its owner has
    /// back.
    fn a_device_that_keeps_a_buffer_for_its_peer_ends_the_process() {
        let cases = [(1, libc::EBUSY, true), (0, libc::EBUSY, false), (1, libc::EIO, false)];
        for (rank, error, is_over) in cases {
            let child = fork_for_test(|| {
                let mut world = world(&Settings::default());
                let (sent, mut found) = (pattern(1 << 20), vec![0; 1 << 20]);
                let before = registered().0;
                let mut call = Call::begin(&mut world, &sent, &mut found);
                world.until("both are registered", |world| {
                    call.step(world);
                    registered().0 == before + 2
                });
                world.devices[rank][0].hook(Hook::RefuseDeregistration(error));
                call.finish(&mut world);
                assert!(found == sent);
            });
            let child = Pid::from_raw(i32::try_from(child.unwrap()).unwrap()).unwrap();
            let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
            let signal = is_over.then_some(libc::SIGABRT);
            assert_eq!(status.terminating_signal(), signal, "rank {rank}, error {error}");
            assert_eq!(status.exit_status(), (!is_over).then_some(0), "rank {rank}, error {error}");
        }
    }
}

fake_test! {
    /// Messages of buffers that cannot be registered are copied.
    fn refused_buffers_are_copied() {
        let few = Settings { bytes_max: 64 << 20, ..Settings::default() };
        for (settings, status) in [(Settings::default(), 0), (Settings::default(), 1), (few, 2)] {
            fork_status(status);
            let mut world = world(&settings);
            let before = registered();
            let (sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
            let copied_before = copied();
            Call::begin(&mut world, &sent, &mut found).finish(&mut world);
            assert!(found == sent);
            assert!(copied() - copied_before >= 2 * BYTES as u64, "at both ends");
            assert_eq!(registered(), before);
        }
        fork_status(2);
    }
}
