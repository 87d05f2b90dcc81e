//! Tests the control plane over loopback with real sockets. Ranks are threads, or processes if the
//! test kills or stops them.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "all of it is test code, with small numbers"
)]

mod broken;
mod deaths;
mod failing;
mod foreign;
mod joining;
mod launchers;
mod power;
mod prices;
mod unauthenticated;
mod world;
