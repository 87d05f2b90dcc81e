//! The input and output of ranks: lines, input, environment, secret, cores.

use std::io::Write;
use std::process::Stdio;

use crate::support::{ringrun, run};
use ringfold_harness::{Outcome, needed};

#[test]
fn lines_are_never_mixed() {
    // awk writes in pieces that end anywhere. Every line is long and repeats one letter of its
    // rank.
    let script = r#"awk -v r=$RINGFOLD_RANK 'BEGIN {
        for (i = 0; i < 3000; i++) s = s substr("abcdefgh", r + 1, 1);
        for (i = 0; i < 1000; i++) print substr(s, 1, 2000 + i) }'"#;
    let done = run(&["-n", "8", "sh", "-c", script]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let mut counts = [0; 8];
    for line in done.stdout.lines() {
        let first = line.bytes().next().unwrap();
        assert!(line.len() >= 2000 && line.bytes().all(|byte| byte == first));
        counts[usize::from(first - b'a')] += 1;
    }
    assert_eq!(counts, [1000; 8]);
}

#[test]
fn bytes_arrive_as_they_were_written() {
    // Binary data with newlines, a line far longer than the limit, and an unfinished last line.
    let script = "head -c 200000 /dev/zero; od -An -v -tx1 /dev/zero -N 40000 | tr -d '\\n'; echo; \
                  printf '\\0\\377\\n\\n\\r\\200end' | tee /dev/stderr";
    let expected = {
        let mut bytes = vec![0; 200_000];
        bytes.extend(b" 00".repeat(40_000));
        bytes.extend(b"\n\0\xff\n\n\r\x80end");
        bytes
    };
    let output = ringrun(&["-n", "1", "sh", "-c", script]).output().unwrap();
    assert_eq!(output.stdout.len(), expected.len());
    assert!(output.stdout == expected, "bytes differ");
    assert_eq!(output.stderr, b"\0\xff\n\n\r\x80end");
}

#[test]
fn binary_data_passes_through_to_rank_0_and_back() {
    // Deterministic noise: every byte value, newlines at odd places.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let noise = noise.take(700_001).collect::<Vec<u8>>();
    let mut child = ringrun(&["-n", "1", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = noise.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.stdout == noise, "{} bytes of {}", output.stdout.len(), noise.len());
}

#[test]
fn every_rank_adds_its_own_bytes_and_no_others() {
    // Each of 3 ranks writes a line beyond the limit, without a newline at the end.
    let script = "head -c 100000 /dev/zero | tr '\\0' $RINGFOLD_RANK";
    let output = ringrun(&["-n", "3", "sh", "-c", script]).output().unwrap();
    for digit in b"012" {
        assert_eq!(output.stdout.iter().filter(|byte| *byte == digit).count(), 100_000);
    }
    assert_eq!(output.stdout.len(), 300_000);
}

#[test]
fn the_report_has_a_line_of_its_own() {
    let done = run(&["-n", "1", "sh", "-c", "printf oops >&2; exit 3"]);
    assert!(done.stderr.starts_with("oops\nringrun: rank 0 "), "{done:?}");
    let done = run(&["-n", "1", "sh", "-c", "printf fine >&2"]);
    assert_eq!(done.stderr, "fine");
}

#[test]
fn streams_stay_apart_and_are_tagged() {
    let script = "echo out; echo err >&2; printf rest";
    let done = run(&["-n", "2", "--tag-output", "sh", "-c", script]);
    assert_eq!(done.lines(), ["[0] out", "[0] rest", "[1] out", "[1] rest"]);
    let mut err = done.stderr.lines().collect::<Vec<_>>();
    err.sort_unstable();
    assert_eq!(err, ["[0] err", "[1] err"]);
}

#[test]
fn rank_0_alone_reads_the_input() {
    let mut command = ringrun(&["-n", "3", "--tag-output", "wc", "-c"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&vec![b'x'; 1_000_000]));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().collect::<Vec<_>>();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 1000000", "[1] 0", "[2] 0"]);
}

#[test]
fn input_that_nobody_reads_does_not_matter() {
    let mut command = ringrun(&["-n", "2", "sh", "-c", "exec <&-; sleep 0.2; echo done"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Fails with a broken pipe when ringrun is gone, and would block for ever before.
    let writer = std::thread::spawn(move || while stdin.write_all(&[b'y'; 4096]).is_ok() {});
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\ndone\n"[..]));
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    // As a program that SIGPIPE ends, it says nothing. The last rank ends before anybody notices.
    for script in ["exec yes", "yes >&2", "sleep 0.2; echo late", "sleep 0.2; echo late >&2"] {
        let mut child = ringrun(&["-n", "2", "sh", "-c", script]).spawn().unwrap();
        let to_err = script.contains(">&2");
        if to_err {
            drop(child.stderr.take())
        } else {
            drop(child.stdout.take())
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{script}: {output:?}");
        assert!(to_err || output.stderr.is_empty(), "{script}: {output:?}");
    }
}

#[test]
fn a_slow_reader_loses_nothing() {
    let mut child = ringrun(&["-n", "2", "seq", "200000"]).spawn().unwrap();
    // The output is far more than all pipes and queues hold, so the ranks must have waited.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 400_000);
}

#[test]
fn ranks_know_who_they_are() {
    let script = "echo $RINGFOLD_RANK $RINGFOLD_SIZE $RINGFOLD_LOCAL_RANK $RINGFOLD_LOCAL_SIZE; \
                  echo job $RINGFOLD_JOB; echo at $RINGFOLD_RENDEZVOUS; \
                  echo secret $(od -An -tx1 /proc/self/fd/$RINGFOLD_SECRET_FD)";
    let done = run(&["-n", "2", "sh", "-c", script]);
    let lines = done.lines();
    assert_eq!(lines[..2], ["0 2 0 2", "1 2 1 2"], "{done:?}");
    // Everything else is the same for both.
    let shared = lines[2..].chunks(2).map(|pair| {
        assert_eq!(pair[0], pair[1]);
        pair[0]
    });
    let shared = shared.collect::<Vec<_>>();
    assert!(shared[0].starts_with("at 127.0.0.1:"), "{done:?}");
    assert_eq!(shared[1].len(), "job ".len() + 16);
    assert_eq!(shared[2].split_whitespace().count(), 1 + 32);
}

#[test]
fn the_secret_is_in_no_arguments_and_no_environment() {
    let script = "od -An -tx1 /proc/self/fd/$RINGFOLD_SECRET_FD | tr -d ' \\n'; echo; \
                  cat /proc/self/environ /proc/$PPID/environ /proc/self/cmdline \
                  /proc/$PPID/cmdline | tr '\\0' '\\n'";
    let done = run(&["-n", "1", "sh", "-c", script]);
    let (secret, rest) = done.stdout.split_once('\n').unwrap();
    assert_eq!(secret.len(), 64);
    assert!(rest.contains("RINGFOLD_RENDEZVOUS=") && rest.contains("--ringfold-node-agent"));
    assert!(!rest.contains(secret));
}

#[test]
fn the_secret_cannot_be_altered_and_every_reader_gets_it_whole() {
    // Writing through the descriptor, beyond its end, and cutting the file must all fail.
    let script = "fd=$RINGFOLD_SECRET_FD; file=/proc/self/fd/$fd; sum() { cat $file | md5sum; }
        before=$(sum); size=$(stat -Lc %s $file)
        (eval \"printf XXXX >&$fd\") 2>/dev/null && echo written
        (printf X | dd of=$file bs=1 seek=$size conv=notrunc) 2>/dev/null && echo grown
        (truncate -s 8 $file || : >$file) 2>/dev/null && echo cut
        [ \"$(sum)\" = \"$before\" ] && [ $(stat -Lc %s $file) = 32 ] && echo intact $size";
    let done = run(&["-n", "1", "sh", "-c", script]);
    assert_eq!((done.stdout.as_str(), done.code()), ("intact 32\n", 0), "{done:?}");
}

#[test]
fn variables_are_passed_on() {
    let script = "echo \"$A,$B,$RINGFOLD_TRANSPORT\"; pwd";
    let args = ["-n", "1", "-x", "A", "-x", "B=x=y z", "--wdir", "/usr", "sh", "-c", script];
    let mut command = ringrun(&args);
    command.env("A", "a").env("RINGFOLD_TRANSPORT", "tcp").env("RINGFOLD_RANK", "77");
    let done = Outcome::of(&mut command);
    assert_eq!(done.stdout, "a,x=y z,tcp\n/usr\n", "{}", done.stderr);
}

#[test]
fn ranks_share_the_cores_unless_told_otherwise() {
    let script = "taskset -cp $$ | sed 's/.*: //'";
    let free = run(&["-n", "2", "--bind-to", "none", "sh", "-c", script]);
    let shared = run(&["-n", "2", "sh", "-c", script]);
    assert_eq!((free.code(), shared.code()), (0, 0), "{free:?} {shared:?}");
    assert_eq!(free.lines()[0], free.lines()[1]);
    if free.lines()[0] == "0" && !needed::skipped("cores", "this machine lacks a second one") {
        return;
    }
    assert_ne!(shared.lines()[0], shared.lines()[1], "{shared:?}");
}

#[test]
fn cores_share_the_ranks_where_there_are_more() {
    let script = "taskset -cp $$ | sed 's/.*: //'";
    let shares = |ranks: usize| {
        let args = ["-n", &ranks.to_string(), "--tag-output", "sh", "-c", script];
        let done = run(&args);
        assert_eq!(done.code(), 0, "{done:?}");
        let mut lines: Vec<String> = done.lines().iter().map(|&line| line.to_owned()).collect();
        lines.sort_unstable();
        let cores = lines.iter().map(|line| line.split_once(' ').unwrap().1.to_owned());
        cores.collect::<Vec<_>>()
    };
    let cpus =
        run(&["-n", "1", "--bind-to", "none", "nproc"]).stdout.trim().parse::<usize>().unwrap();
    if std::thread::available_parallelism().is_ok_and(|usable| usable.get() < cpus) {
        let _ = needed::skipped("cores", "a quota leaves less than all of the CPUs");
        return;
    }
    // Without a count there is one rank per core.
    let each = run(&["sh", "-c", script]).lines().len();
    if !(2..=4).contains(&each) {
        let _ = needed::skipped("cores", "this machine does not have two to four");
        return;
    }
    let (cores, twice, more) = (shares(each), shares(2 * each), shares(2 * each + 1));
    assert_eq!(twice, cores.iter().flat_map(|core| [core; 2]).cloned().collect::<Vec<_>>());
    assert!(more.iter().all(|free| *free == more[0] && !cores.contains(free)), "{more:?}");
}

#[test]
fn each_rank_has_its_core() {
    let script = "taskset -cp $$ | sed 's/.*: //'";
    let free = run(&["-n", "1", "sh", "-c", script]);
    let bound = run(&["-n", "3", "--tag-output", "--bind-to", "core", "sh", "-c", script]);
    assert_eq!(bound.code(), 0, "{bound:?}");
    let cores = bound.lines().iter().map(|line| line[4..].to_owned()).collect::<Vec<_>>();
    assert!(cores.iter().all(|core| core.parse::<u32>().is_ok()), "{bound:?} {free:?}");
    if free.stdout.trim() == "0,1" || free.stdout.trim() == "0-1" {
        assert_eq!(cores[0], cores[2]);
    }
}
