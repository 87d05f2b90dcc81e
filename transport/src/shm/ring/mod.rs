//! One direction of one link: a ring in shared memory with one producer and one consumer.
//!
//! What lies where is in `memory`; who writes what, and which ordering pairs with which, is argued
//! in `../README.md`. Generic over what keeps the memory alive, so that it runs on a heap as well.
#![allow(unsafe_code)]

mod consumer;
mod memory;
mod offer;
#[cfg(all(test, not(miri)))]
mod offer_tests;
mod producer;
mod pull;
#[cfg(test)]
mod tests;

pub(super) use consumer::Consumer;
pub(super) use memory::{DATA_BYTES, HEAD_BYTES, INLINE_BYTES, RING_BYTES, Ring};
pub(super) use producer::Producer;

/// Why a half of a ring is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The other end wrote something that a ring's other half does not write.
    Protocol(&'static str),
    /// The system has no memory for more of the ring's pages.
    Memory,
}
