//! Callers' own buffers, registered for many calls.

use ringfold_types::limits::{RDMA_LEASE_MAX_BYTES, RDMA_REGISTRATIONS_MAX};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::leases::{Call, registered, release, world};
use super::long::pattern;
use super::sharing::{devices, group, objects, wait_for};
use super::{Settings, World, fake_test};
use crate::contract::{RegisteredMemory as _, Registration, Transport as _};
use crate::rdma::sys::fake::{Hook, fork_status, input, output};
use crate::sys::{copied, fork_for_test};

const BYTES: usize = 4 << 20;

/// Registers a buffer with the devices of a rank.
fn register(world: &mut World, rank: usize, buffer: &mut [u8]) -> Option<Registration> {
    let by = world.ends[rank].registered_memory().unwrap();
    by.register(output(buffer))
}

/// Calls by which rank 0 sends its buffer to rank 1. Returns the bytes that were copied for each
/// byte sent.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn calls(world: &mut World, sent: &[u8], found: &mut [u8]) -> f64 {
    let before = copied();
    for _ in 0..4 {
        found.fill(0);
        Call::begin(world, sent, found).finish(world);
        assert!(found == sent, "other bytes arrived");
    }
    (copied() - before) as f64 / (4 * sent.len()) as f64
}

fn change(before: (i64, i64)) -> (i64, i64) {
    let now = registered();
    (now.0 - before.0, now.1 - before.1)
}

fake_test! {
    fn calls_use_the_registration_of_their_buffer() {
        let mut world = world(&Settings::default());
        let before = registered();
        let (mut sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
        let kept = [register(&mut world, 0, &mut sent), register(&mut world, 1, &mut found)];
        assert!(kept.iter().all(Option::is_some));
        let all = (2, 2 * BYTES as i64);
        assert_eq!(change(before), all);
        let mut call = Call::begin(&mut world, &sent, &mut found);
        world.until("some has arrived", |world| {
            assert!(!call.step(world), "it takes several writes");
            call.here > 0
        });
        assert_eq!(change(before), all, "a call registers nothing");
        call.finish(&mut world);
        let share = calls(&mut world, &sent, &mut found);
        assert!(share < 0.01, "{share}");
        // A part of the buffers that is too short to be registered for a call.
        let part = 7 << 10..135 << 10;
        let share = calls(&mut world, &sent[part.clone()], &mut found[part.clone()]);
        assert!(share < 0.6, "{share} of the bytes of short messages");
        assert_eq!(change(before), all);
        drop(kept);
        assert_eq!(change(before), (0, 0));
        let share = calls(&mut world, &sent[part.clone()], &mut found[part]);
        assert!(share > 1.9, "{share} without a registration");
        calls(&mut world, &sent, &mut found);
        assert_eq!(change(before), (0, 0));
    }
}

fake_test! {
    fn the_same_buffer_is_registered_once_and_parts_of_it_apart() {
        let mut world = world(&Settings::default());
        let before = registered();
        let (mut sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
        let first = register(&mut world, 0, &mut sent);
        let again = register(&mut world, 0, &mut sent);
        assert_eq!(change(before).0, 1);
        drop(first);
        assert_eq!(change(before), (1, BYTES as i64), "another holder has it");
        let part = register(&mut world, 0, &mut sent[BYTES / 2..]);
        assert_eq!(change(before), (2, (BYTES + BYTES / 2) as i64));
        let share = calls(&mut world, &sent, &mut found);
        assert!(share < 0.01, "{share}");
        drop(again);
        assert_eq!(change(before), (1, (BYTES / 2) as i64));
        calls(&mut world, &sent, &mut found);
        let share = calls(&mut world, &sent[BYTES / 2..], &mut found[BYTES / 2..]);
        assert!(share < 0.01, "{share}");
        drop(part);
        assert_eq!(change(before), (0, 0));
    }
}

fake_test! {
    /// A registration that ends in the middle of a call serves that call to its end.
    fn calls_hold_the_registrations_that_they_use() {
        let mut world = world(&Settings::default());
        let before = registered();
        let (mut sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
        let kept = [register(&mut world, 0, &mut sent), register(&mut world, 1, &mut found)];
        let part = register(&mut world, 0, &mut sent[..BYTES / 2]);
        let mut call = Call::begin(&mut world, &sent, &mut found);
        world.until("some has arrived", |world| {
            assert!(!call.step(world), "it takes several writes");
            call.here > 0
        });
        drop((kept, part));
        assert_eq!(change(before).0, 3);
        call.finish(&mut world);
        assert_eq!(change(before), (0, 0));
        assert!(found == sent);
    }
}

fake_test! {
    /// The system may give the memory of a buffer to another owner once it is deregistered.
    fn no_call_finds_a_registration_that_has_ended() {
        let mut world = world(&Settings::default());
        let before = registered();
        for round in 0..8 {
            let mut sent: Vec<u8> = pattern(BYTES);
            sent.iter_mut().for_each(|byte| *byte ^= round);
            let mut found = vec![0; BYTES];
            let kept = [register(&mut world, 0, &mut sent), register(&mut world, 1, &mut found)];
            calls(&mut world, &sent, &mut found);
            drop(kept);
            calls(&mut world, &sent, &mut found);
            assert_eq!(change(before), (0, 0));
        }
    }
}

fake_test! {
    /// A call registers no buffer as long by itself.
    fn a_long_buffer_can_be_registered() {
        let mut world = world(&Settings::default());
        let before = registered();
        // Nothing reads most of it, so it takes no memory.
        let mut long = vec![0; RDMA_LEASE_MAX_BYTES + 1];
        let kept = register(&mut world, 0, &mut long);
        assert_eq!(change(before), (1, long.len() as i64));
        let mut found = vec![1; BYTES];
        world.ends[0].lease(input(&long));
        let copied_before = copied();
        Call::begin(&mut world, &long[..BYTES], &mut found).finish(&mut world);
        assert!(copied() - copied_before < BYTES as u64 / 2, "less than one copy");
        assert!(found.iter().all(|byte| *byte == 0));
        drop(kept);
        assert_eq!(change(before), (0, 0));
    }
}

fake_test! {
    /// Calls then lease or copy a buffer, as one that nobody has tried to register.
    fn refused_buffers_are_not_registered() {
        let few = Settings { bytes_max: 64 << 20, ..Settings::default() };
        let mut full = world(&few);
        let before = registered();
        let (mut long, mut found) = (pattern(48 << 20), vec![0; 48 << 20]);
        assert!(register(&mut full, 0, &mut long).is_none());
        assert_eq!(change(before), (0, 0));
        calls(&mut full, &long[..BYTES], &mut found[..BYTES]);
        // The limits are those of the process, and a registration gives its bytes back.
        let kept = register(&mut full, 0, &mut long[..16 << 20]);
        assert!(kept.is_some() && register(&mut full, 1, &mut found[..16 << 20]).is_none());
        drop(kept);
        assert!(register(&mut full, 1, &mut found[..16 << 20]).is_some());
        assert_eq!(change(before), (0, 0));
        drop(full);
        // As beyond `ulimit -l`.
        let mut refusing = world(&Settings::default());
        refusing.devices[0][0].hook(Hook::RefuseRegistration(true));
        let before = registered();
        assert!(register(&mut refusing, 0, &mut long).is_none());
        assert!(register(&mut refusing, 1, &mut found).is_some());
        calls(&mut refusing, &long[..BYTES], &mut found[..BYTES]);
        assert_eq!(change(before), (0, 0));
        drop(refusing);
        fork_status(0);
        let mut forking = world(&Settings::default());
        let before = registered();
        assert!(register(&mut forking, 0, &mut long).is_none());
        calls(&mut forking, &long[..BYTES], &mut found[..BYTES]);
        assert_eq!(change(before), (0, 0));
        fork_status(2);
    }
}

fake_test! {
    fn registrations_are_bounded() {
        let mut world = world(&Settings::default());
        let before = registered();
        let mut buffer = vec![0; RDMA_REGISTRATIONS_MAX + 1];
        let mut kept: Vec<_> =
            buffer.chunks_mut(1).map(|byte| register(&mut world, 0, byte)).collect();
        assert!(kept.pop().unwrap().is_none());
        assert!(kept.iter().all(Option::is_some));
        kept.pop();
        let last = register(&mut world, 0, &mut buffer[RDMA_REGISTRATIONS_MAX..]);
        assert!(last.is_some());
        drop((kept, last));
        assert_eq!(change(before), (0, 0));
    }
}

fake_test! {
    /// Registrations outlive failed calls, lost devices and endpoints, and serve later endpoints.
    fn registrations_outlive_faults_and_endpoints() {
        let (devices, before) = (devices(), objects());
        let (mut sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
        let mut first = group(&devices, &Settings::default(), true);
        first.meet();
        let own = [register(&mut first, 0, &mut sent), register(&mut first, 1, &mut found)];
        let mut call = Call::begin(&mut first, &sent, &mut found);
        first.until("some has arrived", |world| call.step(world) || call.here > 0);
        first.ends.iter_mut().for_each(|end| end.withdraw());
        release(&mut first);
        World::part(first.ends);
        let [contexts, domains, regions, ..] = objects();
        let at_first = [before[0] + 2, before[1] + 2, before[2] + 2];
        assert_eq!([contexts, domains, regions], at_first, "the devices and the two buffers");
        let mut second = group(&devices, &Settings::default(), true);
        second.meet();
        let regions = registered();
        let mut call = Call::begin(&mut second, &sent, &mut found);
        second.until("some has arrived", |world| call.step(world) || call.here > 0);
        assert_eq!(registered(), regions, "the second endpoints find both");
        call.finish(&mut second);
        second.devices[0][0].die();
        second.until("by tcp", |world| world.ends[0].by_tcp() > 0);
        let copied_before = copied();
        calls(&mut second, &sent, &mut found);
        assert!(copied() > copied_before);
        drop(own);
        World::part(second.ends);
        wait_for(before, "all were dropped");
    }
}

fake_test! {
    /// A forked child leaves the registrations to its parent.
    fn a_child_drops_no_registration_of_its_parent() {
        let mut world = world(&Settings::default());
        let before = registered();
        let (mut sent, mut found) = (pattern(BYTES), vec![0; BYTES]);
        let mut kept =
            Some([register(&mut world, 0, &mut sent), register(&mut world, 1, &mut found)]);
        let child = fork_for_test(|| {
            drop(kept.take());
            assert_eq!(change(before).0, 2, "the child has told a device");
        });
        let child = Pid::from_raw(i32::try_from(child.unwrap()).unwrap()).unwrap();
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        let share = calls(&mut world, &sent, &mut found);
        assert!(share < 0.01, "{share}");
        drop(kept);
        assert_eq!(change(before), (0, 0));
    }
}
