//! Clients that break the server's rules: each is refused with an error and a line of the log that
//! names it, and other jobs go on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::Secret;
use ringfold_innetwork::trees::{self, AskError};
use ringfold_innetwork::wire::header::{Header, Kind};

use super::DEADLINE;
use super::member::{Endpoint, Member, run};
use super::server::{Server, ask};

const CHUNK: usize = 4096;

/// Runs `act` while another job of the same server makes calls, and checks that job.
fn beside_a_job(act: impl FnOnce(&Server, Endpoint)) {
    let server = Server::start(&[]);
    let [other, endpoint] = [(); 2].map(|()| server.ask(2, 2, CHUNK).unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let job = scope.spawn(|| {
            let part = |child: u8| vec![child + 1; CHUNK];
            let mut members = [0, 1].map(|child| Member::join(&other, child).unwrap());
            let mut call = 0;
            while !is_over.load(Ordering::Relaxed) || call == 0 {
                thread::scope(|scope| {
                    for (member, child) in members.iter_mut().zip(0..) {
                        let part = part(child);
                        scope.spawn(move || {
                            member.all_reduce(call * 10, 10, &part, &[3; CHUNK]).unwrap();
                        });
                    }
                });
                call += 1;
            }
            members.into_iter().for_each(Member::leave);
        });
        // Also after a panic, so that the job ends.
        let acted = catch_unwind(AssertUnwindSafe(|| act(&server, endpoint)));
        is_over.store(true, Ordering::Relaxed);
        job.join().unwrap();
        acted.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Sends bytes to an endpoint before any proof. Checks the end of the connection, and the log.
fn without_proof(server: &Server, bytes: &[u8], reason: &str) {
    let endpoint = server.ask(2, 2, CHUNK).unwrap();
    let mut stream = TcpStream::connect(endpoint.at.tcp).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(bytes).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    let name = stream.local_addr().unwrap().to_string();
    server.wait_for_log(&["refused a connection", &name, reason]);
}

/// Lets a member of a group break the protocol. Checks the refusal, that of its neighbour, and the
/// log.
fn as_a_member(server: &Server, reason: &str, act: impl FnOnce(&mut Member)) {
    let endpoint = server.ask(2, 2, CHUNK).unwrap();
    let mut neighbour = Member::join(&endpoint, 0).unwrap();
    let mut member = Member::join(&endpoint, 1).unwrap();
    act(&mut member);
    let told = [&mut member, &mut neighbour].map(|member| member.receive().unwrap_err());
    assert_eq!(told, [(); 2].map(|()| format!("child 1: {reason}")));
    server.wait_for_log(&["child 1", reason]);
}

#[test]
fn another_site_secret_opens_no_control_port() {
    beside_a_job(|server, _| {
        let asked = ask(2, 2, CHUNK);
        let error = trees::ask(&server.aggregator.at, &Secret::new([1; 32]), asked, DEADLINE);
        assert!(matches!(error, Err(AskError::WrongSecret { .. })), "{error:?}");
        server.wait_for_log(&["turned away a connection from 127.0.0.1:", "secret"]);
    });
}

#[test]
fn another_key_opens_no_group() {
    beside_a_job(|_, endpoint| {
        let other = Endpoint { key: [8; 32], ..endpoint };
        let error = Member::join(&other, 0).unwrap_err();
        assert!(error.contains("did not prove"), "{error}");
    });
}

#[test]
fn bytes_that_are_no_hello_are_refused() {
    beside_a_job(|server, _| {
        without_proof(server, &[0x5a; 500], "its hello is not of this protocol version");
    });
}

#[test]
fn a_member_that_says_no_hello_is_refused() {
    beside_a_job(|server, _| {
        let hello = Header::plain(Kind::Hello, 0);
        let mut newer = hello.encode();
        newer[1] = 9;
        let long = Header { bytes: u32::MAX, ..hello }.encode();
        let leave = Header::plain(Kind::Leave, 0).encode();
        for (said, reason) in [
            (newer, "version 9 of the offload protocol, not 3"),
            (long, "a first message that is no hello"),
            (leave, "a first message that is no hello"),
        ] {
            let endpoint = server.ask(2, 2, CHUNK).unwrap();
            let mut member = Member::connect(&endpoint, 0).unwrap();
            member.send_raw(&said);
            assert_eq!(member.receive().unwrap_err(), format!("child 0: {reason}"));
            server.wait_for_log(&["child 0", reason]);
        }
    });
}

#[test]
fn a_second_connection_of_a_child_takes_nothing_from_the_first() {
    beside_a_job(|_, endpoint| {
        let mut first = Member::join(&endpoint, 0).unwrap();
        assert!(Member::join(&endpoint, 0).is_err());
        let mut other = Member::join(&endpoint, 1).unwrap();
        first.send(Member::header(0, CHUNK), &[1; CHUNK]);
        other.all_reduce(0, 1, &[1; CHUNK], &[2; CHUNK]).unwrap();
        assert_eq!(first.receive().unwrap().1, [2; CHUNK]);
    });
}

#[test]
fn a_member_that_breaks_the_protocol_is_refused() {
    beside_a_job(|server, _| {
        as_a_member(server, "a chunk of a wrong length", |member| {
            member.send(Member::header(0, CHUNK + 1), &[1; CHUNK + 1]);
        });
        as_a_member(server, "a chunk out of order", |member| {
            (0..2).for_each(|_| member.send(Member::header(0, CHUNK), &[1; CHUNK]));
        });
        as_a_member(server, "a message out of place", |member| {
            member.send(Header::plain(Kind::Hello, 0), &[]);
        });
    });
}

#[test]
fn a_group_outlives_a_member_that_leaves_before_the_others_come() {
    beside_a_job(|server, endpoint| {
        Member::join(&endpoint, 0).unwrap().leave();
        let is_there = || {
            let mut groups = server.stats().groups.into_iter();
            groups.any(|it| it.group == endpoint.group && it.children.1 > 0)
        };
        while is_there() {
            thread::sleep(Duration::from_millis(10));
        }
        let mut late = Member::join(&endpoint, 1).unwrap();
        late.send(Member::header(0, 8), &[1; 8]);
        assert_eq!(late.receive().unwrap_err(), "child 0 has left");
    });
}

#[test]
fn a_slow_handshake_is_refused_and_a_slow_member_holds_nobody_else() {
    beside_a_job(|server, endpoint| {
        // A member that has sent half a chunk, and reads nothing.
        let mut slow = Member::join(&endpoint, 0).unwrap();
        let header = Member::header(0, CHUNK).encode();
        slow.send_raw(&[&header[..], &[1; CHUNK / 2]].concat());
        let mut stream = TcpStream::connect(endpoint.at.tcp).unwrap();
        let start = Instant::now();
        while stream.write_all(&[1]).is_ok() {
            assert!(start.elapsed() < DEADLINE, "it is never refused");
            thread::sleep(Duration::from_millis(250));
        }
        let (name, late) =
            (stream.local_addr().unwrap().to_string(), "did not authenticate itself in time");
        server.wait_for_log(&["refused a connection", &name, late]);
        // The slow member is in its group as before.
        slow.send_raw(&[1; CHUNK / 2]);
        let mut other = Member::join(&endpoint, 1).unwrap();
        other.all_reduce(0, 1, &[1; CHUNK], &[2; CHUNK]).unwrap();
        assert_eq!(slow.receive().unwrap().1, [2; CHUNK]);
    });
}

/// A way to bother a server, tried once.
type Attempt = fn(&Server, &Endpoint);

/// The ways of clients that try again as soon as they are refused.
const ATTEMPTS: [(&str, Attempt); 4] = [
    ("wrong secret", |server, _| {
        let asked = ask(2, 2, CHUNK);
        let error = trees::ask(&server.aggregator.at, &Secret::new([1; 32]), asked, DEADLINE);
        assert!(matches!(error, Err(AskError::WrongSecret { .. })), "{error:?}");
    }),
    ("wrong key", |_, endpoint| {
        assert!(Member::join(&Endpoint { key: [8; 32], ..*endpoint }, 0).is_err());
    }),
    ("no hello", |_, endpoint| {
        let mut stream = TcpStream::connect(endpoint.at.tcp).unwrap();
        stream.write_all(&[0x5a; 500]).ok();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }),
    ("slow", |server, endpoint| {
        // Fills the places of both ports with connections that say little.
        let ports = [server.address(), endpoint.at.tcp];
        let crowd = ports.iter().cycle().take(300).map(|at| TcpStream::connect(at).unwrap());
        let mut crowd: Vec<_> = crowd.collect();
        for _ in 0..10 {
            crowd.iter_mut().for_each(|stream| drop(stream.write_all(b"R")));
            thread::sleep(Duration::from_millis(50));
        }
    }),
];

/// Prints the ratio of the times of a job's call with and without one hostile client of each kind,
/// at the endpoint of that job. A client makes a hundred attempts a second.
#[test]
#[ignore = "a minute, on a machine with nothing else to do"]
fn hostile_clients_slow_down_others_little() {
    const ROUNDS: usize = 7;
    const BYTES: usize = 64 << 20;
    let server = Server::start(&[]);
    for (name, act) in ATTEMPTS {
        let mut times: [Vec<Duration>; 2] = [vec![], vec![]];
        let attempts = AtomicUsize::new(0);
        for round in 0..2 * ROUNDS {
            let endpoint = server.ask(2, 8, 128 << 10).unwrap();
            let is_over = AtomicBool::new(round % 2 == 0);
            thread::scope(|scope| {
                let hostile = scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        act(&server, &endpoint);
                        attempts.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(10));
                    }
                });
                let start = Instant::now();
                run(&endpoint, 2, BYTES, 4, Member::leave);
                times[round % 2].push(start.elapsed());
                is_over.store(true, Ordering::Relaxed);
                hostile.join().unwrap();
            });
        }
        let [alone, beside] = times.map(|mut times| {
            times.sort();
            times[times.len() / 2]
        });
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        let attempts = attempts.load(Ordering::Relaxed);
        println!("{name}: {alone:.0?} alone, {beside:.0?} beside {attempts} attempts, {ratio:.2}");
        assert!(ratio <= 1.25, "{name}: {ratio}");
    }
}
