//! How jobs end: the exit status and the last line.

use crate::support::{assert_gone, mark, ringrun, run};
use ringfold_harness::{Folder, Job, Outcome};
use rustix::process::Signal;

#[test]
fn success_says_nothing() {
    let done = run(&["-n", "4", "sh", "-c", "echo $RINGFOLD_RANK/$RINGFOLD_SIZE"]);
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""));
    assert_eq!(done.lines(), ["0/4", "1/4", "2/4", "3/4"]);
}

#[test]
fn ranks_are_counted_as_mpirun_counts_them() {
    for count in ["-np", "--np", "-c"] {
        let done = run(&[count, "3", "sh", "-c", "echo $RINGFOLD_SIZE $1", "sh", "-np"]);
        assert_eq!((done.code(), done.lines()), (0, vec!["3 -np"; 3]), "{count}: {}", done.stderr);
    }
}

#[test]
fn the_first_failure_is_named_and_the_others_stopped() {
    let mark = mark();
    let script = format!("[ $RINGFOLD_RANK = 2 ] && exit 3; exec sleep {mark}");
    let done = run(&["-n", "4", "--grace", "0.1", "sh", "-c", &script]);
    assert_eq!(done.code(), 3, "{done:?}");
    let line = done.last_line();
    assert!(line.starts_with("ringrun: rank 2 (pid "), "{line}");
    assert!(line.contains(" returned exit status 3 after "), "{line}");
    assert!(line.ends_with("; 3 others were stopped"), "{line}");
    assert_gone(&mark);
}

#[test]
fn survivors_may_report_before_they_are_stopped() {
    let script = "[ $RINGFOLD_RANK = 0 ] && exit 9; sleep 0.3; echo rank 0 is gone; exit 1";
    let done = run(&["-n", "3", "sh", "-c", script]);
    assert_eq!(done.code(), 9, "{done:?}");
    assert_eq!(done.lines(), ["rank 0 is gone"; 2]);
    assert!(done.last_line().ends_with("; 2 others failed"), "{done:?}");
}

#[test]
fn a_killed_rank_is_named_by_its_signal() {
    let mark = mark();
    let script = format!("echo $RINGFOLD_RANK $$; exec sleep {mark}");
    let job = Job::start(&mut ringrun(&["-n", "3", "--grace", "0", "sh", "-c", &script]));
    let lines = job.lines(3);
    let victim = lines.iter().find_map(|line| line.strip_prefix("1 ")).unwrap();
    ringfold_harness::kill(victim.parse().unwrap(), Signal::KILL);
    let done = job.outcome();
    assert_eq!(done.code(), 137, "{done:?}");
    let line = done.last_line();
    assert!(line.contains(&format!("rank 1 (pid {victim}, host ")), "{line}");
    assert!(line.contains(" was killed by signal 9 (SIGKILL) after "), "{line}");
    assert_gone(&mark);
}

#[test]
fn a_crash_has_the_shells_status() {
    let done = run(&["-n", "1", "sh", "-c", "kill -ABRT $$"]);
    assert_eq!(done.code(), 134, "{done:?}");
    assert!(done.last_line().contains("signal 6 (SIGABRT)"), "{done:?}");
}

#[test]
fn the_time_limit_stops_even_the_stubborn() {
    let mark = mark();
    let script = format!("trap '' TERM; echo ready; while :; do sleep {mark}; done");
    let done = run(&["-n", "2", "--timeout", "0.5", "sh", "-c", &script]);
    assert_eq!(done.code(), 124, "{done:?}");
    assert_eq!(done.lines(), ["ready"; 2]);
    let line = "ringrun: the time limit of 0.5 s was reached; 2 ranks were stopped";
    assert_eq!(done.last_line(), line);
    assert_gone(&mark);
}

#[test]
fn programs_that_cannot_run_are_named() {
    let done = run(&["-n", "2", "no-such-program-here"]);
    assert_eq!((done.code(), done.stdout.as_str()), (127, ""));
    assert!(done.last_line().contains("ringrun: cannot start rank "), "{done:?}");
    assert!(done.last_line().ends_with(": program 'no-such-program-here' not found"));

    let done = run(&["-n", "2", "/etc/passwd"]);
    assert_eq!(done.code(), 126, "{done:?}");
    let line = done.last_line();
    assert!(line.contains("'/etc/passwd' cannot be executed: Permission denied"), "{line}");

    let folder = Folder::new();
    let lacks = [
        ("dos.sh", "#!/bin/sh\r\necho hi\r\n", "'/bin/sh\\r' does not exist: end its lines"),
        ("gone.sh", "#! /no/such/sh -e\necho hi\n", "'/no/such/sh' does not exist: install it"),
    ];
    for (name, text, words) in lacks {
        let program = folder.program(name, text);
        for program in [program.as_str(), name] {
            let mut command = ringrun(&["-n", "2", program]);
            let path = format!("{}:/usr/bin:/bin", folder.path().display());
            let done = Outcome::of(command.env("PATH", path));
            assert_eq!(done.code(), 126, "{done:?}");
            let words = format!("program '{program}' cannot be executed: its interpreter {words}");
            assert!(done.last_line().contains(&words), "{words} {done:?}");
        }
    }

    // Only the program itself is looked up. Its own exit status passes through.
    let done = run(&["-n", "1", "sh", "-c", "exit 127"]);
    assert_eq!(done.code(), 127, "{done:?}");
    assert!(done.last_line().contains("rank 0 (pid ") && done.last_line().contains(" status 127"));

    let done = run(&["-n", "1", "--wdir", "/no/such/dir", "true"]);
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.last_line().contains("working directory '/no/such/dir'"), "{done:?}");
}

#[test]
fn impossible_requests_are_refused() {
    for (args, code, words) in [
        (&["-n", "0", "true"][..], 125, "1 to 65536 ranks, not 0"),
        (&["-n", "65537", "true"], 125, "1 to 65536 ranks, not 65537"),
        (&["-n", "3", "--host", "localhost:2", "true"], 125, "pass --oversubscribe"),
        (&["--host", "localhost:x", "true"], 125, "'x' is not a number of slots"),
        (&["--host", "a,[-Fcfg]", "true"], 125, "--host: host 2 of the list: '[-Fcfg]' is not"),
        (&["--hostfile", "/no/such/file", "true"], 125, "host file '/no/such/file'"),
        (&["--hostfile", "/dev/zero", "true"], 125, "'/dev/zero': longer than 4194304 bytes"),
        (&["-x", "SURELY_NOT_SET_ANYWHERE", "true"], 125, "pass -x SURELY_NOT_SET_ANYWHERE=VALUE"),
        (&["-n", "4"], 2, "PROGRAM"),
        (&["-np", "x", "true"], 2, "not a number of ranks from 1 to 65536"),
        (&["-np", "99999999999999999999", "true"], 2, "not a number of ranks from 1 to 65536"),
        (&["--timeout=-1", "true"], 2, "not a number of seconds, 0 or more"),
        (&["-host", "localhost:x", "true"], 125, "'x' is not a number of slots"),
        (&["-hots", "localhost", "true"], 2, "unexpected argument '--hots'"),
        (&["--rendezvous-addr", "127.0.0.1:99999", "true"], 125, "not a port from 0 to 65535"),
    ] {
        let done = run(args);
        assert_eq!(done.code(), code, "{args:?} {done:?}");
        assert!(done.stderr.contains(words), "{args:?} {done:?}");
    }
}

#[test]
fn options_of_mpirun_may_have_one_dash() {
    let folder = Folder::new();
    let file = folder.path().join("hosts");
    std::fs::write(&file, "Localhost slots=2\n").unwrap();
    let file = file.to_str().unwrap();
    for args in [["-host", "LOCALHOST:2"], ["-H", "localhost:2"], ["-hostfile", file]] {
        let done = run(&[&args[..], &["echo", "x"]].concat());
        assert_eq!((done.code(), done.lines()), (0, vec!["x"; 2]), "{args:?} {}", done.stderr);
    }
}

#[test]
fn an_address_of_the_rendezvous_may_stand_in_brackets() {
    for address in ["[::1]", "::1", "[::1]:0", "127.0.0.1", "localhost:0"] {
        let args =
            ["--rendezvous-addr", address, "-n", "1", "sh", "-c", "echo $RINGFOLD_RENDEZVOUS"];
        let done = run(&args);
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(
            done.stdout.starts_with("[::1]:") || done.stdout.starts_with("127.0.0.1:"),
            "{done:?}"
        );
    }
}

#[test]
fn ringrun_says_that_it_stops_survivors() {
    // The rank would save its state for a long time.
    let mark = mark();
    let script =
        format!("[ $RINGFOLD_RANK = 1 ] && exit 3; trap '' TERM; while :; do sleep {mark}; done");
    let done = run(&["-n", "3", "--grace", "0.5", "sh", "-c", &script]);
    assert_eq!(done.code(), 3, "{done:?}");
    let lines = done.stderr.lines().collect::<Vec<_>>();
    let stop = "ringrun: 2 ranks still run 0.5 s after the failure of rank 1: SIGTERM follows, and \
                SIGKILL 2 s later (ringrun --grace SECONDS gives survivors more time)";
    let kill = "ringrun: 2 ranks still run 2 s after the signal to stop: SIGKILL follows";
    assert_eq!(lines[..2], [stop, kill], "{done:?}");
    assert!(lines[2].ends_with("; 2 others were stopped"), "{done:?}");
    assert_gone(&mark);
}

#[test]
fn survivors_that_recover_are_not_stopped() {
    let script = "[ $RINGFOLD_RANK = 1 ] && kill -9 $$; sleep 1; echo $RINGFOLD_RANK; exit $0";
    for (last, code) in [("0", 0), ("7", 137)] {
        let done = run(&["-n", "3", "--enable-recovery", "sh", "-c", script, last]);
        assert_eq!(done.code(), code, "{done:?}");
        assert_eq!(done.lines().len(), 2, "{done:?}");
        let note = "ringrun: 2 ranks still run after the failure of rank 1\n";
        assert!(done.stderr.contains(note), "{done:?}");
    }
    let both = run(&["-n", "2", "--enable-recovery", "--grace", "1", "true"]);
    assert_eq!(both.code(), 2, "{both:?}");
}

#[test]
fn oversubscription_on_request() {
    let done = run(&["-n", "3", "--host", "localhost:2", "--oversubscribe", "echo", "x"]);
    assert_eq!((done.code(), done.lines()), (0, vec!["x"; 3]), "{}", done.stderr);
    let done = run(&["--host", "localhost:2,127.0.0.1", "sh", "-c", "echo $RINGFOLD_LOCAL_RANK"]);
    assert_eq!((done.code(), done.lines()), (0, vec!["0", "1", "2"]), "{}", done.stderr);
}
