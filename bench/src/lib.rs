//! Measures collectives: allreduce-perf and its siblings, with nccl-tests' flags, columns and JSON.
//!
//! * `test`: the operation that a program times, by its name; `args`: the command line; `cases`:
//!   the calls and sizes to time;
//! * `run`: times and checks one case; `buffers`: the memory of a call; `stats`: percentiles;
//! * `report`: the table; `json`: the results as JSON; `output`: their file; `timestamp`: the time
//!   of day;
//! * `ranks`: starts this program once per rank without a launcher; `device`: the ranks' processes;
//! * `oracle`: inputs and expected outputs, also for the tests.
#![forbid(unsafe_code)]

mod args;
pub mod buffers;
mod cases;
mod device;
mod json;
pub mod oracle;
mod output;
mod perf;
mod ranks;
mod report;
mod run;
mod stats;
mod test;
mod timestamp;

pub use perf::perf_main;
pub use test::Test;
