//! A control connection breaks while both of its ends live. No rank is accused, and no message is
//! lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ringfold_bootstrap::{CallName, Control, FailureCause, FailureReport};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};
use rustix::process::Signal;

use crate::world::{Job, TIME_LIMIT, common_cause, leave};

/// Longer than the coordinator waits for a rank to reconnect.
const LONG: Duration = Duration::from_millis(1500);

/// The connection of one rank, which a test may cut.
struct Cable {
    port: u16,
    /// The rank's side and rank 0's side of each connection.
    ends: Arc<Mutex<Vec<[TcpStream; 2]>>>,
    /// Whether the end of one side leaves the other one open.
    is_one_sided: Arc<AtomicBool>,
}

impl Cable {
    fn new(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let is_one_sided = Arc::new(AtomicBool::new(false));
        let (all, one_sided) = (Arc::clone(&ends), Arc::clone(&is_one_sided));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let one_sided = Arc::clone(&one_sided);
                    thread::spawn(move || carry(from, to, &one_sided));
                }
                all.lock().unwrap().push([client, server]);
            }
        });
        Self { port, ends, is_one_sided }
    }

    fn cut(&self) {
        for end in self.ends.lock().unwrap().drain(..).flatten() {
            end.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// Ends the rank's side of its connection. Rank 0 notices nothing.
    fn cut_at_the_rank(&self) {
        self.is_one_sided.store(true, Ordering::SeqCst);
        for [client, _] in &*self.ends.lock().unwrap() {
            client.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_one_sided: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    if is_one_sided.load(Ordering::SeqCst) {
        return;
    }
    to.shutdown(Shutdown::Both).unwrap_or_default();
    from.shutdown(Shutdown::Both).unwrap_or_default();
}

/// The controls of `size` ranks. The last rank is connected by a cable.
fn joined(size: usize) -> (Vec<Control>, Cable) {
    let job = Job::new(size);
    let cable = Cable::new(job.ports[0]);
    let mut last = job.clone();
    last.ports = vec![cable.port];
    let last = last.spawn(size as u32 - 1);
    let mut controls = job.joined(&(0..size as u32 - 1).collect::<Vec<_>>());
    controls.push(last.join().unwrap().unwrap().0);
    (controls, cable)
}

fn exchange(controls: &[Control]) {
    thread::scope(|scope| {
        let all: Vec<_> = controls
            .iter()
            .map(|control| {
                let mine = vec![control.rank().0 as u8];
                scope.spawn(move || control.exchange(mine, TIME_LIMIT).unwrap())
            })
            .collect();
        for one in all {
            let expected: Vec<Vec<u8>> = (0..controls.len()).map(|rank| vec![rank as u8]).collect();
            assert_eq!(one.join().unwrap(), expected);
        }
    });
}

fn barrier() -> CallName {
    let (collective, data_type, op) = (Collective::Barrier, DataType::U8, ReduceOp::Sum);
    CallName::new(
        &Call { collective, count: 0, data_type, op, root: Rank(0), wire: Wire::default() },
        0,
    )
}

#[test]
fn a_connection_that_breaks_is_made_again_and_nobody_is_accused() {
    let (controls, cable) = joined(6);
    exchange(&controls);
    cable.cut();
    thread::sleep(LONG);
    assert!(controls.iter().all(|control| control.failure_cause().is_none()));
    exchange(&controls);
    controls[5].report_failure(FailureReport::Abort { reason: "enough".into() });
    assert_eq!(common_cause(&controls).to_string(), "rank 5 gave up: enough");
    leave(controls);
}

#[test]
fn a_break_that_only_the_rank_notices_accuses_nobody() {
    let (controls, cable) = joined(3);
    exchange(&controls);
    cable.cut_at_the_rank();
    thread::sleep(LONG);
    assert!(controls.iter().all(|control| control.failure_cause().is_none()));
    exchange(&controls);
    controls[2].report_failure(FailureReport::Abort { reason: "enough".into() });
    assert_eq!(common_cause(&controls).to_string(), "rank 2 gave up: enough");
    leave(controls);
}

#[test]
fn messages_on_their_way_are_sent_again() {
    let (controls, cable) = joined(3);
    // The contribution of rank 2 to an exchange is sent again.
    thread::scope(|scope| {
        let waits = scope.spawn(|| controls[2].exchange(vec![2], TIME_LIMIT).unwrap());
        cable.cut();
        thread::sleep(LONG / 3);
        let others: Vec<_> = controls[..2]
            .iter()
            .map(|c| scope.spawn(|| c.exchange(vec![c.rank().0 as u8], TIME_LIMIT).unwrap()))
            .collect();
        let all: Vec<_> = others.into_iter().chain([waits]).map(|t| t.join().unwrap()).collect();
        assert!(all.iter().all(|one| *one == [[0], [1], [2]]), "{all:?}");
    });
    leave(controls);
    // Its failure report and the failure cause are sent again.
    for is_before in [true, false] {
        let (controls, cable) = joined(3);
        if is_before {
            cable.cut();
        }
        controls[..2].iter().for_each(|control| control.entered(1, &barrier(), 0));
        controls[2].report_failure(FailureReport::Overdue { seq: 1 });
        if !is_before {
            cable.cut();
        }
        let cause = common_cause(&controls);
        assert!(
            matches!(&*cause, FailureCause::Absent { ranks, .. } if ranks[0].who.rank == Rank(2))
        );
        leave(controls);
    }
    // The failure cause on another rank is sent again.
    let (controls, cable) = joined(3);
    controls[1].report_failure(FailureReport::Abort { reason: "enough".into() });
    cable.cut();
    assert_eq!(common_cause(&controls).to_string(), "rank 1 gave up: enough");
    leave(controls);
    // The goodbye is sent again.
    let (controls, cable) = joined(3);
    cable.cut();
    assert_eq!(leave(controls), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_death_while_another_rank_reconnects_is_the_failure_cause_of_all() {
    let job = Job::new(4);
    let cable = Cable::new(job.ports[0]);
    let mut last = job.clone();
    last.ports = vec![cable.port];
    let (last, victim) = (last.spawn(3), job.process(2));
    let mut controls = job.joined(&[0, 1]);
    controls.push(last.join().unwrap().unwrap().0);
    cable.cut();
    victim.signal(Signal::KILL);
    assert_eq!(common_cause(&controls).to_string(), "the process of rank 2 is gone");
    leave(controls);
}
