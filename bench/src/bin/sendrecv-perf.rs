//! Times and checks send_recv between neighbours. `sendrecv-perf --help` lists the options.

use std::process::ExitCode;

use ringfold_bench::Test;

fn main() -> ExitCode {
    ringfold_bench::perf_main(Test::SendRecv)
}
