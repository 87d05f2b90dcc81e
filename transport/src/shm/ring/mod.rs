//! One direction of one link: a ring in shared memory with one producer and one consumer.
//!
//! What lies where is in `memory`; who writes what, and which ordering pairs with which, is argued
//! in `../README.md`. Generic over what keeps the memory alive, so that it runs on a heap as well.
#![allow(unsafe_code)]

mod consumer;
mod memory;
mod offer;
mod producer;
mod pull;
#[cfg(test)]
mod tests;

pub(super) use consumer::Consumer;
pub(super) use memory::{Broken, HEAD_BYTES, RING_BYTES, Ring};
pub(super) use producer::Producer;
