//! The host of rank 0 loses power: its packets vanish, and no connection is closed. All survivors
//! return the same cause, however each of them notices.
//!
//! The last test waits as long as a connection does by itself, about 20 s:

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{Control, FailureCause, FailureReport, Rendezvous, show_connections};
use ringfold_harness::Namespaces;
use ringfold_types::{Rank, limits};
use socket2::{SockRef, TcpKeepalive};

use crate::world::{Job, common_cause, failure_cause, leave};

/// The host of each rank.
const PLACES: [&str; 4] = ["h0", "h1", "h1", "h2"];
/// Drops all packets of rank 0's host from then on. No host is told.
const CUT: &str = "-n @s link set p0 down";
/// The network prefix on which connections time out soon.
const SHORT_TIMEOUT: &str = "10.78.9";

/// The milliseconds since the loss, the rank that reports, and its failure report.
type Report = (u64, usize, FailureReport);

fn overdue(after_ms: u64, rank: usize) -> Report {
    (after_ms, rank, FailureReport::Overdue { seq: 0 })
}

fn broken_link(after_ms: u64, rank: usize) -> Report {
    (after_ms, rank, FailureReport::Link { peer: 0, cause: "timed out".into() })
}

/// A job on three hosts.
fn joined(hosts: &Namespaces, network: &str) -> Vec<Control> {
    let mut job = Job::new(PLACES.len());
    job.options.linger = Duration::from_millis(200);
    let join = |rank: usize| {
        hosts.enter(PLACES[rank]);
        let mut identity = job.identity(rank as u32);
        if let Rendezvous::Ports { hosts: names, .. } = &mut identity.rendezvous {
            *names = vec![format!("{network}.1")];
        }
        Control::join(identity, job.secret.clone(), vec![], job.options.clone()).unwrap().0
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..PLACES.len()).map(|rank| scope.spawn(move || join(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Cuts the power of rank 0, while these ranks report what they notice.
#[expect(clippy::print_stdout, reason = "prints times for people to read")]
fn survive(hosts: &Namespaces, controls: Vec<Control>, reports: &[Report]) {
    hosts.ip(CUT);
    let lost = Instant::now();
    let causes: Vec<_> = thread::scope(|scope| {
        for (after_ms, rank, report) in reports {
            let control = &controls[*rank];
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(*after_ms));
                control.report_failure(report.clone());
            });
        }
        let survivors: Vec<_> = controls[1..]
            .iter()
            .map(|control| scope.spawn(move || (failure_cause(control), lost.elapsed())))
            .collect();
        survivors.into_iter().map(|survivor| survivor.join().unwrap()).collect()
    });
    println!("{reports:?}:");
    for (control, (cause, after)) in controls[1..].iter().zip(&causes) {
        println!("  rank {} after {after:.2?}: {cause}", control.rank());
    }
    for (cause, _) in &causes {
        assert_eq!(cause, &causes[0].0);
        assert_eq!(cause.culprits(), [Rank(0)]);
        assert!(
            matches!(&**cause, FailureCause::Silent { for_ms: limits::COORDINATOR_SILENCE_MS, .. }),
            "{cause}"
        );
    }
    leave(controls);
}

#[test]
fn survivors_whose_calls_are_overdue_return_the_same() {
    let Some(hosts) = Namespaces::star("10.78.8", 3) else { return };
    let controls = joined(&hosts, "10.78.8");
    survive(&hosts, controls, &[overdue(0, 1), overdue(300, 2), broken_link(700, 3)]);
}

#[test]
fn a_restored_network_brings_the_cause_that_a_rank_stated_to_all() {
    let Some(hosts) = Namespaces::star("10.78.6", 3) else { return };
    let controls = joined(&hosts, "10.78.6");
    hosts.ip(CUT);
    controls[1].report_failure(FailureReport::Overdue { seq: 0 });
    let cause = failure_cause(&controls[1]);
    assert_eq!(cause.culprits(), [Rank(0)]);
    hosts.ip("-n @s link set p0 up");
    assert_eq!(common_cause(&controls), cause);
    leave(controls);
}

/// The connections of survivors on the network with short timeouts.
static CONNECTIONS: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

fn note(connection: BorrowedFd<'_>) {
    let own = SockRef::from(&connection).local_addr().unwrap().as_socket();
    let own = own.unwrap().ip().to_string();
    if own.starts_with(SHORT_TIMEOUT) && own != format!("{SHORT_TIMEOUT}.1") {
        let mut all = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(connection.try_clone_to_owned().unwrap());
    }
}

#[test]
fn survivors_that_wait_and_survivors_whose_connections_time_out_return_the_same() {
    show_connections(note);
    for reports in [&[overdue(0, 1)][..], &[overdue(0, 2), broken_link(2500, 1)], &[]] {
        let Some(hosts) = Namespaces::star(SHORT_TIMEOUT, 3) else { return };
        let controls = joined(&hosts, SHORT_TIMEOUT);
        let connections = std::mem::take(&mut *CONNECTIONS.lock().unwrap());
        assert!(connections.len() >= PLACES.len() - 1);
        for connection in connections {
            let socket = SockRef::from(&connection);
            let (second, keepalive) = (Duration::from_secs(1), TcpKeepalive::new());
            let keepalive = keepalive.with_time(second).with_interval(second).with_retries(1);
            socket.set_tcp_keepalive(&keepalive).unwrap();
            socket.set_tcp_user_timeout(Some(2 * second)).unwrap();
        }
        survive(&hosts, controls, reports);
    }
}

#[test]
#[ignore = "takes 25 s: see the top of this file"]
fn survivors_return_the_same_as_long_as_connections_take_by_themselves() {
    thread::scope(|scope| {
        for reports in [vec![overdue(0, 1)], vec![overdue(15_000, 2)], vec![]] {
            scope.spawn(move || {
                let Some(hosts) = Namespaces::star("10.78.7", 3) else { return };
                let controls = joined(&hosts, "10.78.7");
                survive(&hosts, controls, &reports);
            });
        }
    });
}
