//! Times and checks the operation that its name tells: a broadcast under the name `broadcast-perf`.
//! `--help` lists the options.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfold_bench::perf_main()
}
