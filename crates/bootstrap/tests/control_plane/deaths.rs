//! Several ranks die one after the other. The survivors get the first death as the failure cause.

use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{CallName, Control, FailureCause, FailureReport};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire, limits};
use rustix::process::Signal;

use crate::world::{Job, common_cause, leave};

/// Less than the coordinator waits for a rank to reconnect.
const APART: Duration = Duration::from_millis(limits::RETURN_MS * 2 / 3);
/// The number of deaths: together they take longer than a rank waits for a message of the
/// coordinator.
const DEATHS: u32 = 15;
/// The survivors are ranks 0, 1 and 2.
const SURVIVORS: u32 = 3;

fn barrier() -> CallName {
    let (collective, data_type, op) = (Collective::Barrier, DataType::U8, ReduceOp::Sum);
    CallName::new(
        &Call { collective, count: 0, data_type, op, root: Rank(0), wire: Wire::default() },
        0,
    )
}

/// The survivors wait in a barrier, where the links to the first dead rank fail.
fn complain_of(dead: u32, controls: &[Control]) {
    for control in controls {
        control.entered(0, &barrier(), 0);
        control.report_failure(FailureReport::Link { peer: dead, cause: "it was reset".into() });
    }
}

#[test]
fn a_sequence_of_deaths_ends_with_the_first() {
    let job = Job::new((SURVIVORS + DEATHS) as usize);
    let victims: Vec<_> = (SURVIVORS..SURVIVORS + DEATHS).map(|rank| job.process(rank)).collect();
    let controls = job.joined(&(0..SURVIVORS).collect::<Vec<_>>());
    let began = Instant::now();
    let cause = thread::scope(|scope| {
        scope.spawn(|| {
            for victim in &victims {
                victim.signal(Signal::KILL);
                thread::sleep(APART);
            }
        });
        complain_of(SURVIVORS, &controls);
        let cause = common_cause(&controls);
        println!("{cause}: known everywhere {:?} after the first death", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        cause
    });
    assert!(matches!(&*cause, FailureCause::Died { who } if who.rank.0 >= SURVIVORS), "{cause}");
    leave(controls);
}
