//! One program for ringfold and for MPICH: both print the same.

use std::process::Command;

use ringfold_harness::{needed, random};

use crate::installed::Installed;
use crate::{DEADLINE, ringrun, run};

/// Returns the lines of a job's output, which begin with the rank and their number.
fn sorted(command: &mut Command) -> Vec<String> {
    let mut lines: Vec<_> = run(command, DEADLINE).stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_program_prints_the_same_as_with_mpich() {
    let Some(installed) = Installed::get() else { return };
    if !needed::are_there("mpich", &["mpicc.mpich", "mpiexec.mpich"]) {
        return;
    }
    let [ours, theirs] = [installed.compile("same"), installed.compile_for_mpich("same")];
    let seed = random::seed().to_string();
    for ranks in [1, 2, 4] {
        let mut mpiexec = Command::new("mpiexec.mpich");
        mpiexec.args(["-n", &ranks.to_string()]).arg(&theirs).arg(&seed);
        let expected = sorted(&mut mpiexec);
        assert!(expected.len() > 40 * ranks, "{expected:?}");
        for transport in ["shm", "tcp"] {
            let mut job = ringrun(ranks);
            job.arg(&ours).arg(&seed).env("RINGFOLD_TRANSPORT", transport);
            let found = sorted(&mut job);
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert!(found == expected, "{ranks} ranks over {transport}: {differs:?}");
        }
    }
}
