//! The inheritance of ringrun from its parent process: signal masks, streams, limits, a directory.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::ringrun;
use ringfold_harness::{Folder, Job, Outcome, needed};
use rustix::process::Signal;

/// `ringrun` as a child of `env` with this option.
fn by_env(option: &str, args: &[&str]) -> Command {
    let mut command = Command::new("env");
    // A shell's job in the background ignores SIGINT, and one of nohup SIGHUP.
    command.args(["--default-signal=INT,HUP", option, env!("CARGO_BIN_EXE_ringrun")]).args(args);
    command
}

#[test]
fn blocked_signals_are_unblocked() {
    let show = ["-n", "1", "grep", "SigBlk", "/proc/self/status"];
    for blocked in ["CHLD", "INT,TERM,HUP,USR1,PIPE"] {
        let option = format!("--block-signal={blocked}");
        let done = Outcome::of(&mut by_env(&option, &show));
        assert_eq!((done.code(), &*done.stdout), (0, "SigBlk:\t0000000000000000\n"), "{done:?}");
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let args = ["-n", "1", "sh", "-c", "echo ready; exec sleep 50"];
        let job = Job::start(&mut by_env("--block-signal=TERM,INT,HUP,CHLD", &args));
        job.lines(1);
        job.signal(signal);
        let done = job.outcome();
        assert_eq!(done.code(), code, "{done:?}");
    }
}

#[test]
fn an_ignored_sigchld_hides_no_status() {
    let script = "grep SigIgn /proc/self/status; exit $((RINGFOLD_RANK * 3))";
    let args = ["-n", "2", "sh", "-c", script];
    let done = Outcome::of(&mut by_env("--ignore-signal=CHLD", &args));
    assert_eq!(done.code(), 3, "{done:?}");
    for line in done.lines() {
        let ignored = u64::from_str_radix(line.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(ignored & (1 << 16), 0, "a rank ignores SIGCHLD: {line}");
    }
}

/// A pipe whose writers do not block.
fn unblocked_pipe() -> (File, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    rustix::io::ioctl_fionbio(&write, true).unwrap();
    (File::from(read), write)
}

#[test]
fn streams_that_do_not_block_lose_nothing() {
    let (mut out, write_out) = unblocked_pipe();
    let (mut err, write_err) = unblocked_pipe();
    let script = "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 3";
    let mut command = ringrun(&["-n", "1", "sh", "-c", script]);
    let mut child = command.stdout(write_out).stderr(write_err).spawn().unwrap();
    drop(command);
    std::thread::sleep(Duration::from_millis(500));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).unwrap();
    let err = reader.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(bytes.len(), 1_000_000);
    let zeros = err.iter().take_while(|byte| **byte == 0).count();
    let last = String::from_utf8_lossy(&err[zeros..]).into_owned();
    assert_eq!(zeros, 1_000_000, "{last}");
    assert!(last.starts_with("\nringrun: rank 0 (pid "), "{last}");
}

#[test]
fn a_full_disk_fails_the_job() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    // The first job is stopped. The second has ended before anybody notices.
    for script in ["echo hello; sleep 50", "echo hello"] {
        let mut command = ringrun(&["-n", "2", "sh", "-c", script]);
        let output = command.stdout(full()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{err}");
        let line =
            "ringrun: cannot write to standard output: No space left on device (os error 28)";
        assert!(err.starts_with(line), "{err}");
        let mut command = ringrun(&["-n", "2", "sh", "-c", &format!("({script}) >&2")]);
        let output = command.stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
    }
    // A rank that has failed stays the cause.
    let mut command = ringrun(&["-n", "1", "sh", "-c", "echo hello; exit 7"]);
    let output = command.stdout(full()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("No space left on device"), "{err}");
    for option in ["--help", "--version"] {
        let output = ringrun(&[option]).stdout(full()).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{option}: {err}");
        assert!(err.contains("cannot write to standard output: No space left"), "{option}: {err}");
    }
}

#[test]
fn a_very_slow_reader_loses_nothing() {
    // ringrun waits some seconds for node agents after the ranks have ended. A reader takes longer.
    let mut command = ringrun(&["-n", "8", "sh", "-c", "head -c 400000 /dev/zero"]);
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut total, begin) = (0, Instant::now());
    let mut buffer = [0; 1024];
    while begin.elapsed() < Duration::from_secs(12) {
        total += out.read(&mut buffer).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(child.try_wait().unwrap().is_none(), "it has ended with {total} bytes read");
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(total + rest.len(), 8 * 400_000);
}

#[test]
fn an_interrupt_does_not_wait_for_a_reader() {
    // Standard output and error are one pipe that nobody reads. Stubborn ranks end last.
    for script in ["exec yes", "trap '' INT TERM; yes; :"] {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut command = ringrun(&["-n", "8", "sh", "-c", script]);
        command.stdout(write.try_clone().unwrap()).stderr(write);
        let mut child = command.spawn().unwrap();
        drop(command);
        std::thread::sleep(Duration::from_millis(1500));
        let begin = Instant::now();
        ringfold_harness::kill(child.id(), Signal::INT);
        let status = child.wait().unwrap();
        // Three seconds, with slack for a busy machine.
        assert!(begin.elapsed() < Duration::from_secs(7), "{:?}", begin.elapsed());
        assert_eq!(status.code(), Some(130));
        drop(read);
    }
    // A signal ends the wait for the reader after the ranks have ended, too: output is lost.
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut child = ringrun(&["-n", "1", "head", "-c", "300000", "/dev/zero"]);
    let mut child = child.stdout(write).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    ringfold_harness::kill(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(read);
}

#[test]
fn a_deleted_directory_is_named() {
    let start = |args: &str| {
        let folder = Folder::new();
        let script = format!("rmdir \"$PWD\"; exec {} {args}", env!("CARGO_BIN_EXE_ringrun"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder.path());
        Outcome::of(&mut command)
    };
    let done = start("-n 1 true");
    let line = "ringrun: cannot find the current directory (it may be deleted: change to another \
                directory, or pass ringrun --wdir DIR): No such file or directory (os error 2)";
    assert_eq!((done.code(), done.last_line()), (125, line));
    let done = start("--wdir there -n 1 true");
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.stderr.contains("--wdir there: no current directory"), "{done:?}");
    assert_eq!(start("--wdir / -n 1 true").code(), 0);
}

#[test]
fn few_descriptors_suffice_or_are_named() {
    let start = |limit: u32, ranks: u32| {
        let script = format!(
            "ulimit -n {limit}; exec {} -n {ranks} \
             sh -c 'cat /proc/self/fd/$RINGFOLD_SECRET_FD | wc -c'",
            env!("CARGO_BIN_EXE_ringrun")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        Outcome::of(&mut command)
    };
    let done = start(64, 2);
    assert_eq!((done.code(), done.lines()), (0, vec!["32"; 2]), "{done:?}");
    for limit in [8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40] {
        let done = start(limit, 4);
        assert_named(&done, "ulimit -n", &format!("{limit} files"));
    }
}

/// Asserts that a job has ended well, or else has named the limit that was too low.
fn assert_named(done: &Outcome, limit: &str, what: &str) {
    assert!(!done.stderr.contains("panicked"), "{what}: {done:?}");
    assert!(done.code() == 0 || done.stderr.contains(limit), "{what}: {done:?}");
}

/// More processes and threads than a job of two ranks has.
const ENOUGH: u32 = 32;

#[test]
fn few_processes_suffice_or_are_named() {
    if !needed::is_root("few processes") {
        return;
    }
    let folder = Folder::new();
    let program = folder.path().join("ringrun");
    std::fs::copy(env!("CARGO_BIN_EXE_ringrun"), &program).unwrap();
    // A round has a user that nothing else runs as, not even zombies of the round before.
    let becoming = |round: u32| {
        let user = (1_000_000_000 + 64 * std::process::id() + round).to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let may_become = becoming(0).arg("true").output().is_ok_and(|output| output.status.success());
    if !may_become && !needed::skipped("few processes", "the system refuses users of high number") {
        return;
    }
    // The job has ringrun, a guardian, an agent, a sentinel, ranks, threads.
    for processes in (1..12).chain([ENOUGH]) {
        let mut command = becoming(processes);
        command.arg("prlimit").arg(format!("--nproc={processes}"));
        let done = Outcome::of(command.arg(&program).args(["-n", "2", "true"]));
        assert_named(&done, "ulimit -u", &format!("{processes} processes"));
        assert!(done.code() == 0 || processes != ENOUGH, "{processes}: {done:?}");
    }
}

#[test]
fn names_of_this_host_need_no_agent() {
    let names =
        "127.0.0.1 localhost\n127.0.1.1 node1.cluster.example node1 alias\n192.0.2.7 other\n";
    let folder = Folder::new();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, names).unwrap();
    let start = |host: &str| {
        let script = format!(
            "mount --bind {} /etc/hosts && hostname node1 && exec {} --agent false --host {host}:2 \
             --rendezvous-addr 127.0.0.1 echo ok",
            hosts.display(),
            env!("CARGO_BIN_EXE_ringrun")
        );
        let mut command = Command::new("unshare");
        command.args(["-um", "sh", "-c", &script]);
        Outcome::of(&mut command)
    };
    let done = start("node1");
    let is_refused = done.stderr.starts_with("unshare: ") || done.stderr.starts_with("mount: ");
    if is_refused && !needed::skipped("names", "the system refuses namespaces of names and mounts")
    {
        return;
    }
    for host in ["node1", "NODE1", "node1.cluster.example", "Node1.Cluster.Example", "alias"] {
        let done = start(host);
        assert_eq!((done.code(), done.lines()), (0, vec!["ok"; 2]), "{host}: {done:?}");
    }
    assert_eq!(start("root@localhost").code(), 0);
    for host in ["other", "nobody@localhost"] {
        let done = start(host);
        assert_eq!(done.code(), 125, "{host}: {done:?}");
        assert!(done.last_line().contains("'false' ended"), "{host}: {done:?}");
    }
}

#[test]
fn rank_0_may_leave_the_input_alone() {
    let program = env!("CARGO_BIN_EXE_ringrun");
    let lines = |option: &str| {
        let script = format!(
            "printf 'a\\nb\\nc\\n' | while read l; do {program} {option} -n 1 echo got $l; done"
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(lines("--stdin none"), "got a\ngot b\ngot c\n");
    assert_eq!(lines("-stdin none"), "got a\ngot b\ngot c\n");
    let output = Command::new("sh")
        .args(["-c", &format!("echo a | {program} -n 2 --stdin 0 sh -c 'cat; echo'")])
        .output()
        .unwrap();
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'a').count(), 1, "{output:?}");
    let help = Command::new(program).arg("--help").output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("Rank 0 gets the standard input"));
}

/// Executes its arguments after a filter that refuses `sched_setaffinity` to all descendants.
const UNBINDABLE: &str = "
import ctypes, os, platform, struct, sys
number = {'x86_64': 203, 'aarch64': 122}[platform.machine()]
op = lambda code, t, f, k: struct.pack('HBBI', code, t, f, k)
code = op(0x20, 0, 0, 0) + op(0x15, 1, 0, number) + op(6, 0, 0, 0x7FFF0000) + op(6, 0, 0, 0x50001)
text = ctypes.create_string_buffer(code)
class Prog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
libc = ctypes.CDLL(None); prog = Prog(4, ctypes.addressof(text))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_system_that_binds_no_process_runs_jobs() {
    let start = |options: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", UNBINDABLE, env!("CARGO_BIN_EXE_ringrun"), "-n", "1"]);
        command.args(options).args(["echo", "ok"]);
        Outcome::of(&mut command)
    };
    let filtered = Command::new("python3").args(["-c", UNBINDABLE, "true"]).status();
    if !filtered.is_ok_and(|it| it.success()) && !needed::skipped("seccomp", "python3 or filters") {
        return;
    }
    let done = start(&[]);
    assert_eq!((done.code(), &*done.stdout), (0, "ok\n"), "{done:?}");
    let words = "no rank is bound to cores (--bind-to): Operation not permitted (os error 1)";
    assert!(done.stderr.lines().count() == 1 && done.stderr.contains(words), "{done:?}");
    assert_eq!(start(&["--bind-to", "none"]).stderr, "");
    for bind in ["core", "share"] {
        let done = start(&["--bind-to", bind]);
        assert_eq!(done.code(), 125, "{done:?}");
        assert!(done.stderr.contains("cannot bind to cores: Operation not permitted"), "{done:?}");
    }
}
