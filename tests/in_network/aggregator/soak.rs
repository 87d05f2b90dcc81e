//! Jobs of all kinds for minutes, beside hostile clients. Memory and descriptors must not grow.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::member::{Endpoint, Member, run};
use super::server::Server;

/// Seconds of the soak, unless `RINGFOLD_TEST_SECONDS` at compile time says otherwise.
const SECONDS: u64 = 300;
/// Jobs at a time.
const JOBS: usize = 3;
/// The pool: less than all jobs may want, so some are refused.
const POOL: usize = 16 << 20;
/// Growth of the process's memory after its first jobs, because the allocator keeps some.
const GROWTH: usize = 16 << 20;

/// One job: its shape, its calls and its end depend on its number.
fn job(server: &Server, number: usize, refused: &AtomicUsize) {
    let members = u8::try_from(1 + number % 5).unwrap();
    let window = u8::try_from(1 + number % 8).unwrap();
    let chunk = [64, 4096, 65_537, 128 << 10, 1 << 20][number / 3 % 5];
    let Ok(endpoint) = server.ask(members.into(), window, chunk) else {
        refused.fetch_add(1, Ordering::Relaxed);
        return thread::sleep(Duration::from_millis(20));
    };
    let bytes = chunk * (1 + number % 40);
    match number % 6 {
        0 => misbehave(&endpoint, members),
        // Nobody connects, or the connections end without a farewell.
        1 => {}
        2 => run(&endpoint, members, bytes, 2, drop),
        _ => run(&endpoint, members, bytes, 3, Member::leave),
    }
}

/// A member breaks the protocol.
fn misbehave(endpoint: &Endpoint, members: u8) {
    let mut joined: Vec<_> =
        (0..members).map(|child| Member::join(endpoint, child).unwrap()).collect();
    joined[0].send(Member::header(5, endpoint.chunk_bytes), &[]);
    for member in &mut joined {
        assert!(member.receive().is_err());
    }
}

/// Sends nonsense to the control port, again and again.
fn bother(server: &Server) {
    TcpStream::connect(server.address()).unwrap().write_all(&[0x5a; 100]).ok();
    thread::sleep(Duration::from_millis(5));
}

#[test]
#[ignore = "five minutes"]
fn soak() {
    let seconds = option_env!("RINGFOLD_TEST_SECONDS")
        .map_or(SECONDS, |seconds| seconds.parse().expect("RINGFOLD_TEST_SECONDS is a number"));
    let server = Server::start(&["--memory", &POOL.to_string()]);
    let at_rest = server.descriptors();
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    let (mut early, mut peak) = (0, (0, 0));
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    job(&server, next.fetch_add(1, Ordering::Relaxed), &refused);
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                bother(&server);
            }
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(seconds) {
            thread::sleep(Duration::from_secs(1));
            let now = (server.memory("VmRSS"), server.descriptors());
            peak = (peak.0.max(now.0), peak.1.max(now.1));
            if start.elapsed().as_secs() <= seconds / 10 {
                early = early.max(now.0);
            }
            assert!(server.stats().memory.1 <= POOL as u64);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    server.wait_until_free();
    let start = Instant::now();
    while server.descriptors() > at_rest {
        assert!(start.elapsed() < super::DEADLINE, "{} descriptors", server.descriptors());
        thread::sleep(Duration::from_millis(100));
    }
    let (jobs, refused) = (next.into_inner(), refused.into_inner());
    let end = server.memory("VmRSS");
    println!(
        "{seconds} s: {jobs} jobs, {refused} refused; memory early {early}, peak {}, end {end}; \
         descriptors at rest {at_rest}, peak {}, end {}",
        peak.0,
        peak.1,
        server.descriptors()
    );
    assert!(peak.0 <= early + GROWTH && jobs > refused);
}
