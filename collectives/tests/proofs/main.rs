//! Proofs of every algorithm's schedules, and of the proofs.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

mod algorithms;
mod fabric;
mod mutants;
mod offload;
mod random;
mod uneven;
mod world;
