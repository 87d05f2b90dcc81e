//! The package for Python: its programs, and those of `docs/python.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use ringfold_tests::{Job, Outcome, needed, program};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

const DEADLINE: Duration = Duration::from_secs(120);

/// The folder of the package, made of the module that cargo builds. `None`, with a note, without
/// Python 3.11.
fn package() -> Option<&'static Path> {
    static PACKAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let package = PACKAGE.get_or_init(|| {
        let test = "import sys; sys.exit(sys.version_info < (3, 11))";
        needed::succeeds("python", &["python3", "-c", test]).then(|| {
            let folder = program::libraries().join("python-package");
            let package = folder.join("ringfold");
            fs::create_dir_all(&package).unwrap();
            for file in fs::read_dir(format!("{ROOT}/crates/python/python/ringfold")).unwrap() {
                let file = file.unwrap();
                if file.file_type().unwrap().is_file() {
                    fs::copy(file.path(), package.join(file.file_name())).unwrap();
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
    command.arg(program).env("PYTHONPATH", package).env("RINGFOLD_TRANSPORT", transport);
    // A launcher around the tests must not reach the programs.
    for name in ["RANK", "WORLD_SIZE", "RINGFOLD_DEBUG"] {
        command.env_remove(name);
    }
    Job::start(&mut command).finish(DEADLINE)
}

fn file(name: &str) -> String {
    format!("{ROOT}/tests/python/{name}.py")
}

#[test]
fn operations_give_the_results_of_plain_python() {
    let Some(package) = package() else { return };
    for (ranks, transport) in [(1, "shm"), (2, "shm"), (3, "shm"), (4, "shm"), (3, "tcp")] {
        let outcome = run(package, Some(ranks), &file("operations"), transport);
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout.matches(" is content\n").count(), ranks, "{outcome:?}");
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
    for transport in ["shm", "tcp"] {
        let outcome = run(package, Some(3), &file("killed"), transport);
        assert!(!outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout.matches(" knows\n").count(), 2, "{outcome:?}");
    }
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

#[test]
fn the_page_works_as_it_stands() {
    let Some(package) = package() else { return };
    let page = fs::read_to_string(format!("{ROOT}/docs/python.md")).unwrap();
    let programs = page.split("\n```python\n").skip(1).map(|rest| rest.split("\n```").next());
    let mut count = 0;
    for (number, text) in programs.enumerate() {
        let program = package.join(format!("page{number}.py"));
        fs::write(&program, text.unwrap()).unwrap();
        for ranks in [1, 3] {
            let outcome = run(package, Some(ranks), program.to_str().unwrap(), "shm");
            assert!(outcome.status.success(), "{}: {outcome:?}", text.unwrap());
        }
        count += 1;
    }
    assert_eq!(count, 4);
}
