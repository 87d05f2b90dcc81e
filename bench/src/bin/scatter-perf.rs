//! Times and checks scatter. `scatter-perf --help` lists the options.

use std::process::ExitCode;

use ringfold::Collective;
use ringfold_bench::Test;

fn main() -> ExitCode {
    ringfold_bench::perf_main(Test::Collective(Collective::Scatter))
}
