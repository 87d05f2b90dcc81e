//! Messages from registered memory to registered memory are hardly copied, however fast the wire
//! is.

use std::time::Duration;

use super::long::pattern;
use super::{Settings, TAG, World, fake_test, roce};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::sys::copied;

/// Bytes that each stream sends.
pub(super) const BYTES: usize = 64 << 20;
/// The receiver copies payloads in calls that copy more bytes than this.
const HEADERS: u64 = 1_000;

/// The receiver says this in advance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    /// Nothing.
    Nothing,
    /// The place of so many messages in a row, and of the next row while they come.
    Rows(usize),
}

/// Streams messages of `bytes` bytes between buffers of `alloc`, as `stream` does.
fn copies(bytes: usize, pace: usize, says: Says, is_early: bool) -> f64 {
    let mut world = World::new([&[roce(0, 0)], &[roce(1, 0)]], &Settings::default(), false);
    world.meet();
    let mut sent = world.ends[0].pages(bytes).unwrap();
    sent.front_mut(bytes).copy_from_slice(&pattern(bytes));
    let mut found = world.ends[1].pages(BYTES).unwrap();
    stream(&mut world, sent.front(bytes), found.front_mut(BYTES), pace, says, is_early)
}

/// Sends `message` again and again, until `found` is full. The sender makes `pace` attempts during
/// each of the receiver's copies. It begins when the receiver does, or as early as the link lets
/// it. Returns the copied part of all bytes.
pub(super) fn stream(
    world: &mut World,
    message: &[u8],
    found: &mut [u8],
    pace: usize,
    says: Says,
    is_early: bool,
) -> f64 {
    let bytes = message.len();
    let (mut to_send, mut received, mut expected) = (BYTES, 0, 0);
    let before = copied();
    let mut send = |world: &mut World| {
        if to_send > 0 {
            let at = (BYTES - to_send) % bytes;
            to_send -= world.ends[0].send(World::link(0), TAG, &message[at..]).unwrap();
        }
        world.ends[0].poll().unwrap();
        to_send
    };
    if is_early {
        for _ in 0..1_000 {
            send(world);
        }
    }
    let mut expect = |world: &mut World, received: usize, room: &mut [u8]| {
        if let Says::Rows(messages) = says
            && expected < BYTES
        {
            let row = &mut room[expected..][..messages * bytes];
            if world.ends[1].expect(World::link(1), TAG, expected - received, row) {
                expected += messages * bytes;
            }
        }
    };
    if !is_early {
        expect(world, 0, found);
        world.pass(Duration::from_millis(5));
    }
    world.until("all messages", |world| {
        let copied_before = copied();
        expect(world, received, found);
        let end = (received / bytes + 1) * bytes;
        if let Some(room) = found.get_mut(received..end)
            && let Some(some) = world.ends[1].recv(World::link(1), TAG, room).unwrap()
        {
            received += some.bytes;
        }
        world.ends[1].poll().unwrap();
        let attempts = if copied() - copied_before > HEADERS { pace } else { 1 };
        let left = (0..attempts).fold(0, |_, _| send(world));
        (received, left) == (BYTES, 0)
    });
    assert!(found.chunks(bytes).all(|it| it == message));
    (copied() - before) as f64 / BYTES as f64
}

fake_test! {
    /// A wire that is faster than the receiver's copies fills the ring before the receiver looks.
    fn long_messages_are_hardly_copied_at_any_pace() {
        for bytes in [256 << 10, 1 << 20, 16 << 20] {
            for pace in [1, 4, 16, 64] {
                let copied = copies(bytes, pace, Says::Nothing, false);
                assert!(copied < 0.01, "{copied} of messages of {bytes} bytes at pace {pace}");
            }
        }
    }
}

fake_test! {
    /// The receiver of many messages says early where it wants them, and so learns of none too
    /// late.
    fn expected_messages_are_hardly_copied_at_any_pace() {
        let rows = [(64 << 10, 1024), (256 << 10, 256), (256 << 10, 16), (1 << 20, 8)];
        for (bytes, messages) in rows {
            for pace in [1, 16, 256, 4096] {
                let copied = copies(bytes, pace, Says::Rows(messages), false);
                let what = format!("{copied} of rows of {messages} times {bytes} bytes");
                assert!(copied < 0.01, "{what} at pace {pace}");
            }
        }
    }
}

fake_test! {
    /// A sender that comes first leaves most of a message for the receiver's answer.
    fn a_late_receiver_copies_little() {
        for bytes in [256 << 10, 64 << 20] {
            let copied = copies(bytes, 256, Says::Rows((64 << 20) / bytes), true);
            assert!(copied < 0.01, "{copied} of messages of {bytes} bytes");
        }
    }
}
