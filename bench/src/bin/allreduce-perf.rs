//! Times and checks allreduce. `allreduce-perf --help` lists the options.

use std::process::ExitCode;

use ringfold::Collective;

fn main() -> ExitCode {
    ringfold_bench::perf_main(Collective::AllReduce)
}
