//! The package for Python: its programs, and those of `docs/python.md` under every launcher.
//!
//! A test without its requirement prints that it is skipped.
//! `RINGFOLD_TEST_REQUIRE=python,numpy,torchrun,mpich,slurm` makes that a failure.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use ringfold_harness::{Job, Outcome, needed, program};

use crate::slurm::Slurm;

#[path = "../launchers/slurm.rs"]
mod slurm;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

const DEADLINE: Duration = Duration::from_secs(300);

/// The folder of the package, made of the module that cargo builds. `None`, with a note, without
/// Python 3.11.
fn package() -> Option<&'static Path> {
    static PACKAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let package = PACKAGE.get_or_init(|| {
        let test = "import sys; sys.exit(sys.version_info < (3, 11))";
        needed::succeeds("python", &["python3", "-c", test]).then(|| {
            let folder = program::libraries().join("python-package");
            let package = folder.join("ringfold");
            for part in ["", "torch"] {
                fs::create_dir_all(package.join(part)).unwrap();
                let sources = Path::new(ROOT).join("crates/python/python/ringfold").join(part);
                for file in fs::read_dir(sources).unwrap() {
                    let file = file.unwrap();
                    if file.file_type().unwrap().is_file() {
                        fs::copy(file.path(), package.join(part).join(file.file_name())).unwrap();
                    }
                }
            }
            let module = program::libraries().join("lib_ringfold.so");
            fs::copy(module, package.join("_ringfold.abi3.so")).unwrap();
            folder
        })
    });
    package.as_deref()
}

/// Runs `program` with the package, under ringrun if there are `ranks`.
fn run(package: &Path, ranks: Option<usize>, program: &str, transport: &str) -> Outcome {
    let mut command = match ranks {
        None => Command::new("python3"),
        Some(ranks) => {
            let mut ringrun = Command::new(program::binary("ringrun"));
            ringrun.args(["-n", &ranks.to_string(), "--timeout", "100", "python3"]);
            ringrun
        }
    };
    run_by(package, command.arg(program).env("RINGFOLD_TRANSPORT", transport))
}

/// Runs a command with the package.
fn run_by(package: &Path, command: &mut Command) -> Outcome {
    command.env("PYTHONPATH", package);
    // A launcher around the tests must not reach the programs.
    for name in ["RANK", "WORLD_SIZE", "RINGFOLD_DEBUG"] {
        command.env_remove(name);
    }
    Job::start(command).finish(DEADLINE)
}

fn file(name: &str) -> String {
    format!("{ROOT}/tests/python/{name}.py")
}

/// Runs a program of this folder under ringrun, and checks that every rank is content.
fn all_are_content(package: &Path, ranks: usize, name: &str, transport: &str) {
    let outcome = run(package, Some(ranks), &file(name), transport);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("content\n").count(), ranks, "{outcome:?}");
}

#[test]
fn operations_give_the_results_of_plain_python() {
    let Some(package) = package() else { return };
    for (ranks, transport) in [(1, "shm"), (2, "shm"), (3, "shm"), (4, "shm"), (3, "tcp")] {
        all_are_content(package, ranks, "operations", transport);
    }
}

#[test]
fn tensors_come_by_dlpack_or_are_refused() {
    let Some(package) = package() else { return };
    for ranks in [1, 3] {
        all_are_content(package, ranks, "tensors", "shm");
    }
}

#[test]
fn arrays_of_numpy_are_memory() {
    let Some(package) = package() else { return };
    if needed::succeeds("numpy", &["python3", "-c", "import numpy"]) {
        for ranks in [1, 3] {
            all_are_content(package, ranks, "numpy_arrays", "shm");
        }
    }
}

/// The short form of `tests/differential/run`: a job of each number of ranks and each transport.
#[test]
fn random_calls_give_the_results_of_numpy() {
    let Some(package) = package() else { return };
    if needed::succeeds("numpy", &["python3", "-c", "import numpy"]) {
        let ringrun = program::binary("ringrun");
        let mut shell = Command::new("sh");
        shell.args(["-c", "PATH=\"$0:$PATH\" exec python3 \"$@\""]).arg(ringrun.parent().unwrap());
        shell
            .arg(format!("{ROOT}/tests/differential/run"))
            .args(["--calls", "440", "--each", "40"]);
        let outcome = run_by(package, &mut shell);
        assert!(outcome.status.success(), "{outcome:?}");
        let is_done = |line: &str| line.contains(" calls in ") && line.ends_with(" s, 0 wrong");
        assert!(outcome.stdout.lines().last().is_some_and(is_done), "{outcome:?}");
    }
}

#[test]
fn threads_use_groups_at_once() {
    let Some(package) = package() else { return };
    for transport in ["shm", "tcp"] {
        all_are_content(package, 3, "threads", transport);
    }
}

#[test]
fn calls_go_on_in_the_background() {
    let Some(package) = package() else { return };
    for (ranks, transport) in [(1, "shm"), (2, "shm"), (3, "shm"), (3, "tcp")] {
        all_are_content(package, ranks, "background", transport);
    }
}

#[test]
fn misuse_and_interrupts_are_exceptions() {
    let Some(package) = package() else { return };
    let outcome = run(package, None, &file("misuse"), "shm");
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout, "content\n");
}

#[test]
fn a_killed_rank_is_an_exception_on_the_others() {
    let Some(package) = package() else { return };
    survivors_know(package, "killed", 3);
}

#[test]
fn the_old_communicator_keeps_its_inputs_windows_and_groups() {
    let Some(package) = package() else { return };
    survivors_know(package, "after", 4);
}

#[test]
fn a_newcomer_joins_reduces_and_leaves() {
    let Some(package) = package() else { return };
    for transport in ["shm", "tcp"] {
        all_are_content(package, 2, "grow", transport);
    }
}

/// Runs a program whose last rank dies.
fn survivors_know(package: &Path, program: &str, ranks: usize) {
    for transport in ["shm", "tcp"] {
        let outcome = run(package, Some(ranks), &file(program), transport);
        assert!(!outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout.matches(" knows\n").count(), ranks - 1, "{outcome:?}");
    }
}

#[test]
fn a_program_ends_soon_though_a_call_waits() {
    let Some(package) = package() else { return };
    for how in ["thread", "background", "queue", "started"] {
        let mut ringrun = Command::new(program::binary("ringrun"));
        ringrun.args(["-n", "2", "--timeout", "100", "python3", &file("exits"), how]);
        let outcome = run_by(package, &mut ringrun);
        assert!(outcome.status.success(), "{how}: {outcome:?}");
        assert_eq!(outcome.stdout.matches("content\n").count(), 1, "{how}: {outcome:?}");
    }
}

#[test]
fn a_child_of_fork_ends_though_threads_held_locks() {
    let Some(package) = package() else { return };
    let outcome = run(package, None, &file("forks"), "shm");
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout, "content\n");
}

#[test]
fn free_threaded_python_is_refused_by_name() {
    let Some(package) = package() else { return };
    let program = package.join("free_threaded.py");
    let text = "import sysconfig\n\
                sysconfig.get_config_var = lambda name: 1\n\
                import ringfold\n";
    fs::write(&program, text).unwrap();
    let outcome = run(package, None, program.to_str().unwrap(), "shm");
    assert!(outcome.stderr.contains("ImportError: ringfold has not been tested on free-threaded"));
}

/// The programs of `docs/python.md`, as files.
fn page(package: &Path) -> Vec<PathBuf> {
    static PROGRAMS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| {
        let page = fs::read_to_string(format!("{ROOT}/docs/python.md")).unwrap();
        let programs = page.split("\n```python\n").skip(1).map(|rest| rest.split("\n```").next());
        let write = |(number, text): (usize, Option<&str>)| {
            let program = package.join(format!("page{number}.py"));
            fs::write(&program, text.unwrap()).unwrap();
            program
        };
        programs.enumerate().map(write).collect()
    });
    assert_eq!(programs.len(), 6);
    programs.clone()
}

/// Runs the programs of the page under a launcher.
fn page_works_by(package: &Path, launch: impl Fn() -> Command) {
    for program in page(package) {
        let mut command = launch();
        let outcome = run_by(package, command.arg(&program));
        assert!(outcome.status.success(), "{command:?}: {outcome:?}");
        if program.ends_with("page0.py") {
            // mpiexec mixes the lines of ranks.
            let means = outcome.stdout.matches(" of 2: 0.5").count();
            assert_eq!(means, 2, "{command:?}: {outcome:?}");
        }
    }
}

#[test]
fn the_page_works_as_it_stands() {
    let Some(package) = package() else { return };
    for program in page(package) {
        for ranks in [1, 3] {
            let outcome = run(package, Some(ranks), program.to_str().unwrap(), "shm");
            assert!(outcome.status.success(), "{program:?}: {outcome:?}");
        }
    }
}

#[test]
fn the_page_works_under_torchrun() {
    let Some(package) = package() else { return };
    if needed::succeeds("torchrun", &["python3", "-c", "import torch.distributed.run"]) {
        page_works_by(package, || {
            let mut command = Command::new("python3");
            command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]);
            command
        });
    }
}

#[test]
fn the_page_works_under_mpiexec() {
    let Some(package) = package() else { return };
    if needed::are_there("mpich", &["mpiexec.mpich"]) {
        page_works_by(package, || {
            let mut command = Command::new("mpiexec.mpich");
            command.args(["-n", "2", "python3"]);
            command
        });
    }
}

#[test]
#[ignore = "wants root and Slurm"]
fn the_page_works_under_srun() {
    let Some(package) = package() else { return };
    let Some(slurm) = Slurm::start() else { return };
    page_works_by(package, || {
        let mut command = slurm.command("srun");
        command.args(["-n", "2", "python3"]);
        command
    });
}
