//! Proofs of every algorithm's schedules, and of the proofs.
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod algorithms;
mod fabric;
mod mutants;
mod offload;
mod sequences;
mod uneven;
mod world;
