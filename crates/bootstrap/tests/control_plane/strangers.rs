//! Whoever connects without the secret costs a log line: while a job forms and while it runs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::world::{Job, PATIENCE, leave};

/// Connects as soon as rank 0 listens.
fn connect(port: u16) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(e) => assert!(began.elapsed() < PATIENCE, "nobody listens: {e}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn half_open_connections_by_the_hundred_do_not_keep_the_job_from_forming() {
    let job = Job::new(3);
    let hub = job.spawn(0);
    let half_open: Vec<_> = (0..300).map(|_| connect(job.ports[0])).collect();
    let mut controls = job.joined(&[1, 2]);
    controls.push(hub.join().unwrap().unwrap().0);
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
    let hub = job.spawn(0);
    for i in 0..200 {
        let mut stream = connect(job.ports[0]);
        let mut bytes = vec![0; random.next_u32() as usize % 300];
        random.fill_bytes(&mut bytes);
        match i % 4 {
            // An HTTP client; lengths that claim the world; our own greeting with nothing behind.
            1 => bytes.splice(0..0, *b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").for_each(drop),
            2 => bytes.splice(0..0, [0xff; 64]).for_each(drop),
            3 => bytes.splice(0..0, *b"ringfold\x01\x00\x01\x00\x02\x00\x00\x00").for_each(drop),
            _ => {}
        }
        // It may hang up before it has read all that.
        if stream.write_all(&bytes).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap_or_default();
            assert!(answer.len() <= 33, "a stranger gets a greeting at most");
        }
    }
    let mut controls = job.joined(&[1]);
    controls.push(hub.join().unwrap().unwrap().0);
    leave(controls);
}

#[test]
fn a_replayed_opening_does_not_make_a_member() {
    // Record what a rank with the secret says to a listener of ours, then say it to the hub.
    let mut job = Job::new(2).timeout(Duration::from_secs(3));
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let recorded = job.clone();
    job.ports = vec![listener.local_addr().unwrap().port()];
    let honest = job.spawn(1);
    let mut opening = [0; 80];
    listener.accept().unwrap().0.read_exact(&mut opening).unwrap();
    drop(listener);

    let hub = recorded.spawn(0);
    let mut stream = connect(recorded.ports[0]);
    stream.write_all(&opening).unwrap();
    let mut answer = [0; 81];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[32], 1, "the opening itself is genuine");
    stream.write_all(&[0x20, 0, 7, 7, 7, 7]).unwrap();
    stream.write_all(&[7; 60]).unwrap();
    let error = hub.join().unwrap().unwrap_err().to_string();
    assert!(error.starts_with("1 of 2 ranks joined"), "{error}");
    assert!(honest.join().unwrap().is_err());
}

#[test]
fn a_running_job_listens_to_nobody() {
    let job = Job::new(2);
    let controls = job.joined(&[0, 1]);
    // The port closes with the last rank to join; a moment may pass until the system knows.
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", job.ports[0])).is_ok() {
        assert!(began.elapsed() < PATIENCE, "the port is still open");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(controls[0].verdict(), None);
    leave(controls);
}
