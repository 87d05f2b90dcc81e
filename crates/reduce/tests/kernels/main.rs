//! The kernels against the scalar ones, against references, and against what proofs assume of them.

#![cfg(test)]

mod agreement;
mod axioms;
mod inputs;
mod to_all;
mod truth;
