//! Times and checks reduce-scatter. `reduce-scatter-perf --help` lists the options.

use std::process::ExitCode;

use ringfold::Collective;

fn main() -> ExitCode {
    ringfold_bench::perf_main(Collective::ReduceScatter)
}
