//! What the suites share: programs of this workspace as processes that cannot outlive their test.
//!
//! * `program`: where a program of the workspace is, built if need be;
//! * `needed`: what a machine may lack, and what that means;
//! * `rdma`: its devices, and whose they are;
//! * `job`: a program under way, what it has printed, and a deadline.
#![forbid(unsafe_code)]

mod job;
pub mod needed;
pub mod program;
pub mod rdma;

pub use job::{Job, Outcome};
