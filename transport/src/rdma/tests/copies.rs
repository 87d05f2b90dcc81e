//! Messages from registered memory to registered memory are hardly copied, however fast the wire
//! is.

use super::long::pattern;
use super::{Settings, TAG, World, fake_test, roce};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::sys::copied;

/// Bytes that each stream sends.
const BYTES: usize = 128 << 20;
/// The receiver copies payloads in calls that copy more bytes than this.
const HEADERS: u64 = 1_000;

/// Streams messages of `bytes` bytes. The sender makes `pace` attempts during each of the
/// receiver's copies. Returns the copied part of all bytes.
fn copies(bytes: usize, pace: usize) -> f64 {
    let mut world = World::new([&[roce(0, 0)], &[roce(1, 0)]], &Settings::default(), false);
    world.meet();
    let mut sent = world.ends[0].pages(bytes).unwrap();
    sent.front_mut(bytes).copy_from_slice(&pattern(bytes));
    let mut found = world.ends[1].pages(bytes).unwrap();
    let messages = BYTES / bytes;
    let (mut left, mut gone, mut received, mut here) = (messages, 0, 0, 0);
    let before = copied();
    world.until("all messages", |world| {
        let copied_before = copied();
        let room = &mut found.front_mut(bytes)[here..];
        if let Some(some) = world.ends[1].recv(World::link(1), TAG, room).unwrap() {
            here += some.bytes;
        }
        if here == bytes {
            (received, here) = (received + 1, 0);
        }
        world.ends[1].poll().unwrap();
        let attempts = if copied() - copied_before > HEADERS { pace } else { 1 };
        for _ in 0..attempts {
            if left > 0 {
                gone +=
                    world.ends[0].send(World::link(0), TAG, &sent.front(bytes)[gone..]).unwrap();
            }
            if gone == bytes {
                (left, gone) = (left - 1, 0);
            }
            world.ends[0].poll().unwrap();
        }
        received == messages
    });
    assert!(found.front(bytes) == pattern(bytes));
    (copied() - before) as f64 / BYTES as f64
}

fake_test! {
    /// A wire that is faster than the receiver's copies fills the ring before the receiver looks.
    fn long_messages_are_hardly_copied_at_any_pace() {
        for bytes in [256 << 10, 1 << 20, 16 << 20] {
            for pace in [1, 4, 16, 64] {
                let copied = copies(bytes, pace);
                assert!(copied < 0.01, "{copied} of messages of {bytes} bytes at pace {pace}");
            }
        }
    }
}
