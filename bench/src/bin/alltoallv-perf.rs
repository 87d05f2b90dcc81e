//! Times and checks all_to_all_v. `alltoallv-perf --help` lists the options.

use std::process::ExitCode;

use ringfold_bench::Test;

fn main() -> ExitCode {
    ringfold_bench::perf_main(Test::AllToAllV)
}
