//! The common code of the suites. It runs programs of this workspace as processes that cannot
//! outlive their test.
//!
//! * `program`: finds and builds the programs of the workspace;
//! * `needed`: skips tests on machines that lack something;
//! * `rdma`: RDMA devices, and their hosts;
//! * `aggregator`: a running `ringfold aggregate`;
//! * `job`: a running program with its output and a deadline;
//! * `ranks`: ranks without a launcher;
//! * `random`: random numbers from a seed.
#![forbid(unsafe_code)]

mod aggregator;
mod job;
pub mod needed;
pub mod program;
pub mod random;
mod ranks;
pub mod rdma;

pub use aggregator::{Aggregator, Home, IN_NETWORK};
pub use job::{Job, Outcome};
pub use random::Random;
pub use ranks::{Process, Ranks};
