//! Jobs of `ringrun`: their hosts, streams and ends, and the processes that they leave.

#![allow(clippy::unwrap_used, reason = "also in what the tests share")]

mod agents;
mod cut_off;
mod ending;
mod inherited;
mod leftovers;
mod spares;
mod streams;
#[path = "../support/mod.rs"]
mod support;
