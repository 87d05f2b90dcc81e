//! One direction of one link: a ring in shared memory with one producer and one consumer.
//!
//! `memory` has the layout. `../README.md` argues the writers of each line and the pairs of memory
//! orderings. A ring is generic over the owner of its memory, so tests run it on the heap.
#![allow(unsafe_code)]

mod consumer;
mod memory;
mod producer;
mod pull;
mod rendezvous;
#[cfg(test)]
mod tests;

pub(super) use consumer::Consumer;
pub(super) use memory::{Broken, HEAD_BYTES, RING_BYTES, Ring};
pub(super) use producer::Producer;
