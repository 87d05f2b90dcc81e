//! Long messages from registered memory to registered memory.

use std::time::{Duration, Instant};

use super::{TAG, World};
use crate::contract::{RegisteredMemory as _, Transport as _};
use crate::rdma::sys::Pages;
use crate::rdma::sys::fake::Hook;

pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// One long message of registered memory, up to a moment.
pub(super) struct Long {
    pub(super) sent: Pages,
    pub(super) found: Pages,
    pub(super) bytes: usize,
    pub(super) gone: usize,
    pub(super) here: usize,
}

impl Long {
    pub(super) fn new(world: &mut World, bytes: usize) -> Self {
        let mut sent = world.ends[0].pages(bytes).unwrap();
        sent.front_mut(bytes).copy_from_slice(&pattern(bytes));
        let found = world.ends[1].pages(bytes).unwrap();
        Self { sent, found, bytes, gone: 0, here: 0 }
    }

    /// Sends and receives on. Returns whether all of it is there.
    pub(super) fn step(&mut self, world: &mut World) -> bool {
        self.send(world);
        // The receiver takes the front, and opens the rest before the sender goes on.
        world.poll();
        self.receive(world);
        self.receive(world);
        world.ends[1].poll().unwrap();
        self.is_done()
    }

    pub(super) fn send(&mut self, world: &mut World) {
        let rest = &self.sent.front(self.bytes)[self.gone..];
        if !rest.is_empty() {
            self.gone += world.ends[0].send(World::link(0), TAG, rest).unwrap();
        }
    }

    pub(super) fn receive(&mut self, world: &mut World) {
        let room = &mut self.found.front_mut(self.bytes)[self.here..];
        if !room.is_empty() {
            let some = world.ends[1].recv(World::link(1), TAG, room).unwrap();
            self.here += some.map_or(0, |some| some.bytes);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        (self.gone, self.here) == (self.bytes, self.bytes)
    }

    /// Sends and receives as long as anything moves.
    fn stall(&mut self, world: &mut World) {
        let mut last = (Instant::now(), (self.gone, self.here));
        world.until("stalled", |world| {
            assert!(!self.step(world), "the network holds it");
            if last.1 != (self.gone, self.here) {
                last = (Instant::now(), (self.gone, self.here));
            }
            last.0.elapsed() > Duration::from_millis(300)
        });
    }
}

/// Rank 1 has opened a buffer to a message of rank 0, and the network holds the direct writes.
pub(super) fn held_message(world: &mut World) -> Long {
    for _ in 0..4 {
        let mut message = Long::new(world, 256 << 10);
        world.until("a message without trouble", |world| message.step(world));
    }
    let mut message = Long::new(world, 256 << 10);
    let began = Instant::now();
    world.until("opened", |world| {
        message.receive(world);
        began.elapsed() > Duration::from_millis(100)
    });
    world.devices[0][0].hook(Hook::Hold);
    message.stall(world);
    message
}
