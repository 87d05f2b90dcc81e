//! An unauthenticated peer costs a log line, while a job forms and while it runs.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use ringfold_bootstrap::JoinError;
use ringfold_harness::free_port;
use ringfold_types::limits;

use crate::foreign::{
    CHALLENGE_BYTES, FIRST_BYTES, Foreign, GREETING_BYTES, Proxy, answer_as, echo, http,
};
use crate::world::{Job, TIME_LIMIT, leave};

/// Connects as soon as rank 0 listens.
fn connect(port: u16) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(e) => assert!(began.elapsed() < TIME_LIMIT, "nobody listens: {e}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn half_open_connections_by_the_hundred_do_not_keep_the_job_from_forming() {
    let job = Job::new(3);
    let coordinator = job.spawn(0);
    let half_open: Vec<_> = (0..300).map(|_| connect(job.ports[0])).collect();
    let mut controls = job.joined(&[1, 2]);
    controls.push(coordinator.join().unwrap().unwrap().0);
    drop(half_open);
    leave(controls);
}

#[test]
fn bytes_of_every_kind_are_turned_away() {
    let seed: u64 = 0x5eed_0001;
    println!("seed {seed:#x}");
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &key);
    let job = Job::new(2);
    let coordinator = job.spawn(0);
    for i in 0..200 {
        let mut stream = connect(job.ports[0]);
        let mut bytes = vec![0; random.next_u32() as usize % 300];
        random.fill_bytes(&mut bytes);
        match i % 4 {
            // An HTTP client, enormous lengths, and our own greeting without anything after it.
            1 => bytes.splice(0..0, *b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").for_each(drop),
            2 => bytes.splice(0..0, [0xff; 64]).for_each(drop),
            3 => bytes.splice(0..0, *b"ringfold\x01\x00\x01\x00\x02\x00\x00\x00").for_each(drop),
            _ => {}
        }
        // Rank 0 may close the connection before it has read all bytes.
        if stream.write_all(&bytes).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap_or_default();
            assert!(
                answer.len() <= GREETING_BYTES + CHALLENGE_BYTES + 1,
                "an unauthenticated peer gets a greeting at most"
            );
        }
    }
    let mut controls = job.joined(&[1]);
    controls.push(coordinator.join().unwrap().unwrap().0);
    leave(controls);
}

#[test]
fn replayed_openings_neither_make_a_member_nor_hold_a_slot() {
    // Records the bytes that a rank with the secret sends to our listener, then sends them to the
    // coordinator.
    let mut job = Job::new(2).timeout(Duration::from_secs(3));
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let recorded = job.clone();
    job.ports = vec![listener.local_addr().unwrap().port()];
    let honest = job.spawn(1);
    let mut opening = [0; GREETING_BYTES + FIRST_BYTES];
    let (greeting, first) = opening.split_at_mut(GREETING_BYTES);
    let mut stream = listener.accept().unwrap().0;
    stream.read_exact(greeting).unwrap();
    let mut answer = [7; GREETING_BYTES + CHALLENGE_BYTES];
    answer[..GREETING_BYTES].copy_from_slice(greeting);
    answer[11] = 1;
    stream.write_all(&answer).unwrap();
    stream.read_exact(first).unwrap();
    drop((listener, stream));

    let mut job = recorded.timeout(TIME_LIMIT);
    let coordinator = job.spawn(0);
    let mut stream = connect(job.ports[0]);
    stream.write_all(&opening).unwrap();
    let mut answer = [0; GREETING_BYTES + CHALLENGE_BYTES + 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer.last(), Some(&2), "the recorded bytes answer another challenge");
    assert!(honest.join().unwrap().is_err());

    // Twice as many peers as there are slots, half of them mute, do not keep an honest rank out.
    let replays: Vec<_> = (0..2 * limits::HANDSHAKES_MAX)
        .map(|i| {
            let mut stream = connect(job.ports[0]);
            stream.write_all(if i % 2 == 0 { &opening } else { &[] }).unwrap();
            stream
        })
        .collect();
    job.options.timeout = Duration::from_secs(20);
    let mut controls = job.joined(&[1]);
    controls.push(coordinator.join().unwrap().unwrap().0);
    drop(replays);
    leave(controls);
}

#[test]
fn a_running_job_has_no_open_port() {
    let job = Job::new(2);
    let controls = job.joined(&[0, 1]);
    // The port closes with the last rank to join. The system may take a moment.
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", job.ports[0])).is_ok() {
        assert!(began.elapsed() < TIME_LIMIT, "the port is still open");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(controls[0].failure_cause(), None);
    leave(controls);
}

/// Opens mute connections, holds some and closes others, until the value is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<usize>>,
}

impl Flood {
    /// Holds up to `held` connections. A further one replaces the oldest.
    fn new(port: u16, held: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut streams, mut count) = (VecDeque::new(), 0);
            // Bounded, because closed connections hold their ports for a while.
            while !stopped.load(Ordering::Relaxed) && count < 5_000 {
                // The port closes when the last rank has joined.
                let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { break };
                count += 1;
                streams.push_back(stream);
                if streams.len() > held {
                    streams.pop_front();
                }
            }
            count
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn a_flood_of_mute_connections_does_not_keep_a_large_job_from_forming() {
    const SIZE: u32 = 100;
    let job = Job::new(SIZE as usize);
    let coordinator = job.spawn(0);
    drop(connect(job.ports[0]));
    let flood = Flood::new(job.ports[0], 400);
    thread::sleep(Duration::from_millis(300));
    let mut controls = job.joined(&(1..SIZE).collect::<Vec<_>>());
    controls.push(coordinator.join().unwrap().unwrap().0);
    println!("joined beside {} mute connections", flood.end());
    leave(controls);
}

#[test]
fn a_rank_whose_connection_is_closed_tries_again() {
    let mut job = Job::new(2);
    let coordinator = job.spawn(0);
    // The proxy breaks the first connections: during the handshake, after it, and after the first
    // encrypted message.
    let proxy = Proxy::new(job.ports[0], vec![Some(48), Some(89), Some(98)]);
    job.ports = vec![proxy.port];
    let mut controls = job.joined(&[1]);
    controls.push(coordinator.join().unwrap().unwrap().0);
    assert!(proxy.connections() >= 3, "{}", proxy.connections());
    leave(controls);
}

#[test]
fn foreign_services_on_candidate_ports_do_not_end_the_search() {
    let mut job = Job::new(2);
    // Another job of another version, and this job's name with another secret and another size.
    let foreign = [
        Foreign::new(echo),
        Foreign::new(http),
        Foreign::new(|stream| answer_as(stream, |g| (g[8], g[16]) = (99, !g[16]), 1)),
        Foreign::new(|stream| answer_as(stream, |g| g[8] = 99, 1)),
        Foreign::new(|stream| answer_as(stream, |g| g[12] = 77, 1)),
        Foreign::new(|stream| answer_as(stream, |_| {}, 2)),
    ];
    job.ports = foreign.iter().map(|f| f.port).chain([free_port()]).collect();
    let early = job.spawn(1);
    thread::sleep(Duration::from_millis(500));
    assert!(!early.is_finished(), "{:?}", early.join().unwrap().map(|_| ()));
    // Rank 0 takes the one free port.
    let mut controls = job.joined(&[0]);
    controls.push(early.join().unwrap().unwrap().0);
    assert!(foreign.iter().all(|f| f.connections() > 0));
    leave(controls);
}

#[test]
fn the_error_names_the_most_telling_cause() {
    let cause = |foreign: &[&Foreign]| {
        let mut job = Job::new(2).timeout(Duration::from_millis(400));
        job.ports = foreign.iter().map(|f| f.port).chain([free_port()]).collect();
        job.join(1).unwrap_err()
    };
    let (echo, http) = (Foreign::new(echo), Foreign::new(http));
    let other_job = Foreign::new(|stream| answer_as(stream, |g| (g[8], g[16]) = (99, !g[16]), 1));
    let other_secret = Foreign::new(|stream| answer_as(stream, |_| {}, 2));
    let other_version = Foreign::new(|stream| answer_as(stream, |g| g[8] = 99, 1));
    let error = cause(&[&other_secret, &echo, &http]);
    assert!(matches!(error, JoinError::WrongSecret { .. }), "{error}");
    let error = cause(&[&other_version, &other_secret, &other_job]);
    assert!(matches!(error, JoinError::Version { theirs: 99, .. }), "{error}");
    let error = cause(&[&other_job, &echo]);
    assert!(matches!(error, JoinError::NoCoordinator { .. }), "{error}");
    let error = cause(&[&echo]).to_string();
    assert!(error.ends_with("it does not speak ringfold's control protocol"), "{error}");
}
