//! Clients that break the server's rules: each is refused with an error and a line of the log that
//! names it, and other jobs go on.

use std::io::Write as _;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{self, AskError};
use ringfold_transport::offload::OffloadError;
use ringfold_transport::offload::handshake::{Connector, Place};
use ringfold_transport::offload::header::Kind;

use crate::DEADLINE;
use crate::member::{Endpoint, KEY, Member, Wire, run};
use crate::server::{Server, ask};

const CHUNK: usize = 4096;

/// Runs `act` while another job of the same server makes calls, and checks that job.
fn beside_a_job(act: impl FnOnce(&Server, Endpoint)) {
    let server = Server::start(&[]);
    let [other, endpoint] = [(); 2].map(|()| server.ask(2, 2, CHUNK).unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let job = scope.spawn(|| {
            let part = |child: u8| vec![child + 1; CHUNK];
            let mut members = [0, 1].map(|child| Member::join(&other, child, 1).unwrap());
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

fn refused(error: &OffloadError, reason: &str) {
    let is_it = matches!(error, OffloadError::Refused { reason: told } if told.contains(reason));
    assert!(is_it, "{error}, not {reason}");
}

/// Sends bytes to an endpoint before any proof. Checks the refusal and the log.
fn without_proof(server: &Server, endpoint: &Endpoint, bytes: &[u8], reason: &str) {
    let mut wire = Wire::connect(endpoint.at);
    wire.send(bytes);
    refused(&wire.receive().unwrap_err(), reason);
    server.wait_for_log(&["refused", &wire.name(), reason]);
}

/// Lets a member of a group break the protocol. Checks the refusal, that of its neighbour, and the
/// log.
fn as_a_member(server: &Server, reason: &str, act: impl FnOnce(&mut Member)) {
    let endpoint = server.ask(2, 2, CHUNK).unwrap();
    let mut neighbour = Member::join(&endpoint, 0, 1).unwrap();
    let mut member = Member::join(&endpoint, 1, 1).unwrap();
    act(&mut member);
    refused(&member.wire.receive().unwrap_err(), reason);
    refused(&neighbour.wire.receive().unwrap_err(), &format!("child 1: {reason}"));
    server.wait_for_log(&["child 1", &member.wire.name(), reason]);
    // Both may start again in the next epoch.
    let again = [0, 1].map(|child| Member::join(&endpoint, child, 2).unwrap());
    again.into_iter().for_each(Member::leave);
}

#[test]
fn another_site_secret_opens_no_control_port() {
    beside_a_job(|server, _| {
        let asked = ask(2, 2, CHUNK);
        let error = aggregators::ask(&server.aggregator.at, &Secret::new([1; 32]), asked, DEADLINE);
        assert!(matches!(error, Err(AskError::WrongSecret { .. })), "{error:?}");
        server.wait_for_log(&["turned away a connection from 127.0.0.1:", "secret"]);
    });
}

#[test]
fn another_key_opens_no_group() {
    beside_a_job(|server, endpoint| {
        // An honest client notices that the server does not know its key.
        let other = Endpoint { key: [8; 32], ..endpoint };
        let error = Member::join(&other, 0, 1).unwrap_err();
        assert!(matches!(error, OffloadError::Unproven), "{error}");
        // A hostile one sends a false proof.
        let place = Place { group: endpoint.group, epoch: 1, child: 0 };
        let mut wire = Wire::connect(endpoint.at);
        wire.send(&Connector::new([8; 32], place).unwrap().hello());
        wire.receive().unwrap();
        wire.send(&place.message(Kind::Proof, &[&[9; 32][..], &[0]].concat()));
        let reason = "it did not prove that it knows the group's key";
        refused(&wire.receive().unwrap_err(), reason);
        server.wait_for_log(&["refused", &wire.name(), reason]);
    });
}

#[test]
fn another_group_and_a_message_that_is_no_hello_are_refused() {
    beside_a_job(|server, endpoint| {
        let place = Place { group: endpoint.group, epoch: 1, child: 0 };
        let other = Place { group: place.group + 40, ..place };
        let hello = Connector::new(KEY, other).unwrap().hello();
        let reason = format!("it asks for group {}", other.group);
        without_proof(server, &endpoint, &hello, &reason);
        let mut newer = Connector::new(KEY, place).unwrap().hello();
        newer[1] = 9;
        without_proof(server, &endpoint, &newer, "version 9 of the offload protocol, not 2");
        let leave = place.message(Kind::Leave, &[]);
        without_proof(server, &endpoint, &leave, "a message out of place");
        // The length is refused before a byte of the payload has come.
        let mut long = Connector::new(KEY, place).unwrap().hello();
        long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        without_proof(server, &endpoint, &long[..32], "a message out of place");
    });
}

#[test]
fn a_replayed_handshake_is_refused() {
    beside_a_job(|server, endpoint| {
        let place = Place { group: endpoint.group, epoch: 1, child: 0 };
        let connector = Connector::new(KEY, place).unwrap();
        let mut wire = Wire::connect(endpoint.at);
        wire.send(&connector.hello());
        let proof = connector.answer(&wire.receive().unwrap().1, false).unwrap();
        wire.send(&proof);
        wire.receive().unwrap();
        let mut again = Wire::connect(endpoint.at);
        again.send(&connector.hello());
        again.receive().unwrap();
        again.send(&proof);
        let reason = "it did not prove that it knows the group's key";
        refused(&again.receive().unwrap_err(), reason);
        server.wait_for_log(&["refused", &again.name(), reason]);
        // A second connection of a child that is there is refused as well.
        let error = Member::join(&endpoint, 0, 1).unwrap_err();
        refused(&error, "it is connected already");
    });
}

#[test]
fn a_member_that_breaks_the_protocol_is_refused() {
    beside_a_job(|server, _| {
        as_a_member(server, "a chunk of a wrong length", |member| {
            let header = member.header(0, CHUNK + 1);
            member.post(&header, &[1; CHUNK + 1]);
        });
        as_a_member(server, "a chunk out of order", |member| {
            let header = member.header(0, CHUNK);
            (0..2).for_each(|_| member.post(&header, &[1; CHUNK]));
        });
        as_a_member(server, "a message of another group", |member| {
            let header = member.header(0, CHUNK);
            let group = header.group + 1;
            member.post(&ringfold_transport::offload::header::Header { group, ..header }, &[]);
        });
    });
}

#[test]
fn a_group_outlives_a_member_that_leaves_before_the_others_come() {
    beside_a_job(|server, endpoint| {
        Member::join(&endpoint, 0, 1).unwrap().leave();
        let is_there = || {
            let mut groups = server.stats().groups.into_iter();
            groups.any(|it| it.group == endpoint.group && it.children.1 > 0)
        };
        while is_there() {
            thread::sleep(Duration::from_millis(10));
        }
        let mut late = Member::join(&endpoint, 1, 1).unwrap();
        late.post(&late.header(0, 8), &[1; 8]);
        refused(&late.wire.receive().unwrap_err(), "child 0 has left");
        // Both may start again.
        let again = [0, 1].map(|child| Member::join(&endpoint, child, 2).unwrap());
        again.into_iter().for_each(Member::leave);
    });
}

#[test]
fn a_slow_handshake_is_refused_and_a_slow_member_holds_nobody_else() {
    beside_a_job(|server, endpoint| {
        // A member that has sent half a chunk, and reads nothing.
        let mut slow = Member::join(&endpoint, 0, 1).unwrap();
        let header = slow.header(0, CHUNK);
        slow.post(&header, &[1; CHUNK / 2]);
        let place = Place { group: endpoint.group, epoch: 1, child: 1 };
        let hello = Connector::new(KEY, place).unwrap().hello();
        let mut wire = Wire::connect(endpoint.at);
        let start = Instant::now();
        for byte in hello.chunks(1) {
            if start.elapsed() > Duration::from_millis(5200) || wire.0.write_all(byte).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(250));
        }
        let reason = "it did not prove itself within 5s";
        refused(&wire.receive().unwrap_err(), reason);
        server.wait_for_log(&["refused", &wire.name(), reason]);
        // The slow member is in its group as before.
        slow.wire.send(&[1; CHUNK / 2]);
        let mut other = Member::join(&endpoint, 1, 1).unwrap();
        other.all_reduce(0, 1, &[1; CHUNK], &[2; CHUNK]).unwrap();
        assert_eq!(slow.wire.receive().unwrap().1, [2; CHUNK]);
    });
}

/// A way to bother a server, tried once.
type Attempt = fn(&Server, &Endpoint);

/// The ways of clients that try again as soon as they are refused.
const ATTEMPTS: [(&str, Attempt); 5] = [
    ("wrong secret", |server, _| {
        let asked = ask(2, 2, CHUNK);
        let error = aggregators::ask(&server.aggregator.at, &Secret::new([1; 32]), asked, DEADLINE);
        assert!(matches!(error, Err(AskError::WrongSecret { .. })), "{error:?}");
    }),
    ("wrong group", |_, endpoint| {
        let place = Place { group: endpoint.group + 40, epoch: 1, child: 0 };
        attempt(endpoint, &Connector::new(KEY, place).unwrap().hello());
    }),
    ("oversized", |_, endpoint| {
        let place = Place { group: endpoint.group, epoch: 1, child: 0 };
        let mut long = Connector::new(KEY, place).unwrap().hello();
        long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        attempt(endpoint, &long);
    }),
    ("replayed", |_, endpoint| {
        let place = Place { group: endpoint.group, epoch: 1, child: 0 };
        let mut wire = Wire::connect(endpoint.at);
        wire.send(&Connector::new([8; 32], place).unwrap().hello());
        drop(wire.receive());
        wire.send(&place.message(Kind::Proof, &[&[9; 32][..], &[0]].concat()));
        assert!(wire.receive().is_err());
    }),
    ("slow", |server, endpoint| {
        // Fills the places of both ports with connections that say little.
        let ports = [server.address(), endpoint.at];
        let crowd = ports.iter().cycle().take(300).map(|at| TcpStream::connect(at).unwrap());
        let mut crowd: Vec<_> = crowd.collect();
        for _ in 0..10 {
            crowd.iter_mut().for_each(|stream| drop(stream.write_all(b"R")));
            thread::sleep(Duration::from_millis(50));
        }
    }),
];

fn attempt(endpoint: &Endpoint, bytes: &[u8]) {
    let mut wire = Wire::connect(endpoint.at);
    wire.send(bytes);
    assert!(wire.receive().is_err());
}

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
