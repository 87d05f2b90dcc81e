//! Measures collectives: allreduce-perf and its siblings, with nccl-tests' flags, columns and JSON.
//!
//! * `args`: the command line; `cases`: the calls and sizes to time;
//! * `run`: times and checks one case; `buffers`: the memory of a call; `stats`: percentiles;
//! * `report`: the table; `json`: the results as a file;
//! * `ranks`: starts this program once per rank without a launcher; `device`: the ranks' processes;
//! * `oracle`: inputs and expected outputs, also for the tests.
#![forbid(unsafe_code)]

mod args;
pub mod buffers;
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
