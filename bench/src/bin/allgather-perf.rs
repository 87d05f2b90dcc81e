//! Runs allreduce-perf, in the folder of this program, under the name of this program. The other
//! siblings of allreduce-perf are links to this file.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let program = std::env::current_exe().unwrap_or_default().with_file_name("allreduce-perf");
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let error = Command::new(&program).arg0(name).args(words).exec();
    let program = program.display();
    // Without a standard error there is nobody to tell.
    writeln!(io::stderr(), "error: {program} must run, but: {error}; build or install it there")
        .ok();
    ExitCode::from(2)
}
