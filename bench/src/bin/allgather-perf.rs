//! Times and checks allgather. `allgather-perf --help` lists the options.

use std::process::ExitCode;

use ringfold::Collective;

fn main() -> ExitCode {
    ringfold_bench::perf_main(Collective::AllGather)
}
