//! The control plane over loopback: real sockets, ranks as threads, and as processes where one has
//! to be killed or stopped.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "all of it is test code, with small numbers"
)]

mod broken;
mod deaths;
mod failing;
mod foreign;
mod hosts;
mod joining;
mod launchers;
mod power;
mod strangers;
mod world;
