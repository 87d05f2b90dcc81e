//! The commands of `ringfold`, as their users give them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its seed"
)]

mod aggregate;
mod doctor;
mod measure;
mod plan;
mod precision;
mod topo;
mod tune;
