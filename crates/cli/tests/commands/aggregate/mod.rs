//! Aggregators as processes, with groups of three threads as their clients.

mod levels;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{self, Ask, AskError, Granted, Terms};
use ringfold_reduce::{Form, Kernel, Operand};
use ringfold_transport::offload::aggregator::{Aggregators, Leaf, Tree};
use ringfold_transport::offload::links::Endpoints;
use ringfold_transport::offload::{Chunk, Group, OffloadError, Provider as _, Reduction};
use ringfold_types::{Collective, DataType, ReduceOp, Wire, limits};
use rustix::process::{Pid, Signal, kill_process};

const MEMBERS: u16 = 3;
const WINDOW: usize = 4;
const CHUNK: usize = 64 * 1024;
const KEY: [u8; 32] = [5; 32];
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `ringfold aggregate`, which ends with the test.
struct Aggregator {
    process: Child,
    at: String,
    site: Secret,
    folder: PathBuf,
}

impl Aggregator {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("ringfold-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfold"));
        command.args(["aggregate", "--listen", "127.0.0.1:0", "--threads", "2"]).args(arguments);
        command.env("HOME", &folder).env_remove("RINGFOLD_SITE_SECRET_FILE");
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.strip_prefix("aggregator at ").and_then(|rest| rest.split_once(": "));
        let at = at.unwrap_or_else(|| panic!("{line:?}")).0.to_owned();
        // The first use has made the secret.
        let site = Secret::site(None, Some(&folder)).unwrap();
        Self { process, at, site, folder }
    }

    fn ask(&self, ask: Ask) -> Result<(Granted, SocketAddr), AskError> {
        aggregators::ask(&self.at, &self.site, ask, PATIENCE)
    }

    /// Asks for a group, and returns where its members connect.
    fn grant(&self) -> Vec<Leaf> {
        let (_, tcp) = self.ask(request()).unwrap();
        vec![Leaf { first: 0, children: MEMBERS, at: Endpoints { tcp, rdma_port: 0 } }]
    }

    /// Sends a signal. A process that is to stop has stopped on return.
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        while signal == Signal::STOP && !self.has_stopped() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether all threads have stopped.
    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        threads.map(|it| std::fs::read_to_string(it.unwrap().path().join("stat")).unwrap()).all(
            // The state follows the name in brackets.
            |stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'),
        )
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn request() -> Ask {
    let terms = terms("test", MEMBERS.into());
    Ask { terms, first: 0, members: vec![1; MEMBERS.into()], above: None }
}

fn terms(job: &str, ranks: u32) -> Terms {
    let window = u8::try_from(WINDOW).unwrap();
    Terms { job: job.into(), key: KEY, ranks, window, chunk_bytes: u32::try_from(CHUNK).unwrap() }
}

fn provider(leaves: &[Leaf], key: [u8; 32]) -> Aggregators {
    let tree = Tree { name: "tree".into(), key, leaves: leaves.to_vec() };
    Aggregators::new(vec![tree], (WINDOW, CHUNK), None)
}

/// Connects a member with a key, and waits until its group is ready.
fn member(leaves: &[Leaf], member: u16, key: [u8; 32]) -> Result<Box<dyn Group>, OffloadError> {
    let mut group = provider(leaves, key).connect(0, member)?;
    drive(&mut group, |group| group.is_ready())?;
    Ok(group)
}

/// Polls until `done`, or returns the group's error.
fn drive(
    group: &mut Box<dyn Group>,
    mut done: impl FnMut(&mut Box<dyn Group>) -> bool,
) -> Result<(), OffloadError> {
    let began = Instant::now();
    while !done(group) {
        assert!(began.elapsed() < PATIENCE, "the test hangs");
        if !group.poll()? {
            thread::sleep(Duration::from_micros(50));
        }
    }
    Ok(())
}

/// The bytes that a member hands over for a chunk: small numbers, none of them NaN.
fn input(reduction: &Reduction, member: u16, number: u64, count: usize) -> Vec<u8> {
    let mut state = u64::from(member) * 1_000 + number + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).to_le_bytes()[0] & 0x3b
    };
    (0..reduction.input_bytes(count)).map(|_| next()).collect()
}

/// The result that the scalar kernel gives for the members in their order.
fn wanted(reduction: &Reduction, number: u64, count: usize) -> Vec<u8> {
    let kernel = Kernel::scalar(reduction.data_type, reduction.op, MEMBERS.into());
    let parts: Vec<_> = (0..MEMBERS).map(|m| input(reduction, m, number, count)).collect();
    let form = match reduction.form {
        Wire::Element => Form::Element,
        Wire::Accumulator => Form::Accumulator,
    };
    let operands: Vec<_> = parts.iter().map(|bytes| Operand::Bytes { bytes, form }).collect();
    let mut result = vec![0; count * reduction.data_type.bytes()];
    kernel.combine(&mut result, Form::Element, &operands);
    result
}

/// All reductions, each with a count of elements.
fn calls() -> Vec<(Reduction, usize)> {
    let ops = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    let mut calls = Vec::new();
    for data_type in DataType::ALL {
        for (op, form) in ops.iter().flat_map(|op| Wire::ALL.map(|form| (*op, form))) {
            let all = Reduction { collective: Collective::AllReduce, data_type, op, root: 0, form };
            let most = CHUNK / all.input_bytes(1);
            calls.push((all, 1));
            calls.push((all, most));
            calls.push((Reduction { collective: Collective::Reduce, root: 1, ..all }, 77));
            calls.push((Reduction { collective: Collective::Barrier, ..all }, 0));
        }
    }
    calls
}

/// Runs all calls at one member, several chunks ahead, and compares the results.
fn run(group: &mut Box<dyn Group>, at: u16, from: u64) -> Result<(), OffloadError> {
    let calls = calls();
    let (mut next, mut taken) = (0, 0);
    let chunk = |number: usize| {
        let (reduction, count) = calls[number];
        Chunk { number: from + number as u64, tag: 9, reduction, count }
    };
    drive(group, |group| {
        while let Some(outcome) = group.result() {
            let Chunk { number, reduction, count, .. } = chunk(taken);
            assert_eq!((outcome.number, outcome.tag), (number, 9));
            let bytes = reduction.output_bytes(count, at);
            let result = if bytes == 0 { vec![] } else { wanted(&reduction, number, count) };
            assert!(
                outcome.bytes == result,
                "member {at}, chunk {number}: {reduction:?} x {count}"
            );
            group.take();
            taken += 1;
        }
        while next < calls.len() {
            let chunk = chunk(next);
            let bytes = input(&chunk.reduction, at, chunk.number, chunk.count);
            // `drive` returns the error.
            if !group.post(&chunk, &bytes).unwrap_or(false) {
                break;
            }
            next += 1;
        }
        taken == calls.len()
    })
}

#[test]
fn three_members_get_the_bits_of_the_scalar_kernel_and_the_memory_returns() {
    let aggregator = Aggregator::start("aggregate-right", &[]);
    let grant = aggregator.grant();
    thread::scope(|scope| {
        for at in 0..MEMBERS {
            let grant = &grant;
            scope.spawn(move || run(&mut member(grant, at, KEY).unwrap(), at, 0).unwrap());
        }
    });
    let began = Instant::now();
    while aggregators::stats(&aggregator.at, &aggregator.site, PATIENCE).unwrap().memory.1 > 0 {
        assert!(began.elapsed() < PATIENCE, "the group keeps its memory");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_wrong_secret_and_a_wrong_key_are_refused_and_the_group_goes_on() {
    let aggregator = Aggregator::start("aggregate-secret", &[]);
    let wrong = aggregators::ask(&aggregator.at, &Secret::new([1; 32]), request(), PATIENCE);
    assert!(matches!(wrong, Err(AskError::WrongSecret { .. })), "{wrong:?}");
    let grant = aggregator.grant();
    assert!(matches!(member(&grant, 0, [6; 32]), Err(OffloadError::Unproven)));
    // Mute connections and arbitrary bytes take nothing from the members.
    let at = grant[0].at.tcp;
    let mute: Vec<_> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
    let mut strange = TcpStream::connect(at).unwrap();
    strange.write_all(&[0x5a; 200]).unwrap();
    assert_eq!(strange.read(&mut [0]).unwrap_or(0), 0);
    let barrier = Barrier::new(MEMBERS.into());
    thread::scope(|scope| {
        for at in 0..MEMBERS {
            let (grant, barrier) = (&grant, &barrier);
            scope.spawn(move || {
                let mut group = member(grant, at, KEY).unwrap();
                barrier.wait();
                if at == 0 {
                    let again = member(grant, 0, KEY).map(|_| ());
                    assert!(matches!(again, Err(OffloadError::Unproven)), "{again:?}");
                }
                run(&mut group, at, 0).unwrap();
            });
        }
    });
    drop(mute);
}

#[test]
fn a_full_pool_refuses_with_the_reason_and_others_go_on() {
    let aggregator = Aggregator::start("aggregate-full", &["--memory", "2M"]);
    let kept = aggregator.grant();
    let refused = aggregator.ask(request()).unwrap_err().to_string();
    assert!(refused.contains("2015232 bytes") && refused.contains("2097152"), "{refused}");
    let large = Terms { chunk_bytes: u32::MAX, ..request().terms };
    let large = Ask { terms: large, ..request() };
    assert!(matches!(aggregator.ask(large), Err(AskError::Refused { .. })));
    let stats = Command::new(env!("CARGO_BIN_EXE_ringfold"))
        .args(["aggregate", "--stats", "--listen", &aggregator.at])
        .env("HOME", &aggregator.folder)
        .env_remove("RINGFOLD_SITE_SECRET_FILE")
        .output()
        .unwrap();
    let text = String::from_utf8(stats.stdout).unwrap();
    assert!(text.starts_with("pool: 2015232 of 2097152 bytes"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("test ")), "{text}");
    thread::scope(|scope| {
        for at in 0..MEMBERS {
            let kept = &kept;
            scope.spawn(move || run(&mut member(kept, at, KEY).unwrap(), at, 0).unwrap());
        }
    });
}

#[test]
fn a_member_that_breaks_ends_the_group_for_all() {
    let aggregator = Aggregator::start("aggregate-epoch", &[]);
    let grant = aggregator.grant();
    let mut groups: Vec<_> = (0..MEMBERS).map(|at| member(&grant, at, KEY).unwrap()).collect();
    let (reduction, count) = calls()[0];
    let chunk = Chunk { number: 0, tag: 1, reduction, count };
    let mut last = groups.pop().unwrap();
    for (group, at) in groups.iter_mut().zip(0..) {
        assert!(group.post(&chunk, &input(&reduction, at, 0, count)).unwrap());
    }
    // A late member is no failure: heartbeats name it for longer than the bound for silence.
    let began = Instant::now();
    let bound = Duration::from_millis(2 * limits::OFFLOAD_SILENCE_MS);
    drive(&mut groups[0], |_| began.elapsed() > bound).unwrap();
    assert_eq!(groups[0].awaited().children, 0b100);
    drive(&mut groups[1], |group| group.awaited().children == 0b100).unwrap();
    // A member that differs ends the group for all, with the reason.
    let other = Chunk { tag: 2, ..chunk };
    assert!(last.post(&other, &input(&reduction, 2, 0, count)).unwrap());
    for group in groups.iter_mut().chain([&mut last]) {
        let error = drive(group, |_| false).unwrap_err();
        let OffloadError::Refused { reason } = &error else { panic!("{error}") };
        assert!(reason.contains("child 2") && reason.contains("differ"), "{reason}");
    }
}

/// Members post a chunk that lacks one part, and then `signal` hits the aggregator. Returns the
/// errors of those that wait, and the time until the last one.
fn struck(name: &str, signal: Signal) -> (Vec<OffloadError>, Duration) {
    let aggregator = Aggregator::start(name, &[]);
    let grant = aggregator.grant();
    let mut groups: Vec<_> = (0..MEMBERS).map(|at| member(&grant, at, KEY).unwrap()).collect();
    let (reduction, count) = calls()[0];
    let chunk = Chunk { number: 0, tag: 1, reduction, count };
    for (group, at) in groups.iter_mut().zip(0..MEMBERS - 1) {
        assert!(group.post(&chunk, &input(&reduction, at, 0, count)).unwrap());
        drive(group, |group| group.awaited().children != 0).unwrap();
    }
    aggregator.signal(signal);
    let began = Instant::now();
    groups.pop();
    let errors = thread::scope(|scope| {
        let end = |group: &mut Box<dyn Group>| drive(group, |_| false).unwrap_err();
        let ends: Vec<_> = groups.iter_mut().map(|group| scope.spawn(move || end(group))).collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    (errors, began.elapsed())
}

#[test]
fn a_killed_aggregator_is_noticed_and_a_new_one_serves() {
    let (errors, _) = struck("aggregate-kill", Signal::KILL);
    assert!(errors.iter().all(|e| matches!(e, OffloadError::Closed)), "{errors:?}");
    let aggregator = Aggregator::start("aggregate-again", &[]);
    let grant = aggregator.grant();
    thread::scope(|scope| {
        for at in 0..MEMBERS {
            let grant = &grant;
            scope.spawn(move || run(&mut member(grant, at, KEY).unwrap(), at, 0).unwrap());
        }
    });
}

#[test]
fn a_stopped_aggregator_is_silent_after_the_bound() {
    let (errors, took) = struck("aggregate-stop", Signal::STOP);
    for error in &errors {
        let OffloadError::Silent { millis } = error else { panic!("{error}") };
        assert!(*millis >= limits::OFFLOAD_SILENCE_MS);
        // The members polled all the time, so their own clock says how late they noticed.
        assert!(u128::from(*millis) <= took.as_millis() + 2 * u128::from(limits::OFFLOAD_BEAT_MS));
    }
}
