//! How fast it is: allreduce-perf and its siblings, with nccl-tests' flags, columns and JSON.
//!
//! * `args`: what was typed; `cases`: what it means: which calls of which sizes;
//! * `run`: times and checks one case; `stats`: percentiles and means;
//! * `report`: the table; `json`: the same as a file;
//! * `ranks`: starts this program several times when no launcher did; `device`: their processes;
//! * `oracle`: what goes in and what must come out. The tests use it too.
#![forbid(unsafe_code)]

mod args;
mod cases;
mod device;
mod json;
pub mod oracle;
mod perf;
mod ranks;
mod report;
mod run;
mod stats;

pub use perf::perf_main;
