//! Ranks die, stop, disagree and abort. Every survivor gets the same failure cause.

use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{
    CallName, Control, FailureCause, FailureReport, Finished, RegroupError, Regrouped, Wish,
};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire, limits};
use rustix::process::Signal;

use crate::world::{Job, STOPPED, TIME_LIMIT, common_cause, failure_cause, leave};

fn call(count: usize) -> Call {
    Call {
        collective: Collective::AllReduce,
        count,
        data_type: DataType::F32,
        op: ReduceOp::Sum,
        root: Rank(0),
        wire: Wire::default(),
    }
}

#[test]
fn a_rank_0_that_ends_with_the_failure_cause_has_sent_it_to_all() {
    let job = Job::new(40);
    let coordinator = job.process_that_vanishes(0);
    let controls = job.joined(&(1..40).collect::<Vec<_>>());
    controls[0].report_failure(FailureReport::Abort { reason: "enough".into() });
    assert_eq!(common_cause(&controls).to_string(), "rank 1 gave up: enough");
    drop(coordinator);
    leave(controls);
}

#[test]
fn a_rank_that_was_stopped_catches_up_with_the_failure_cause() {
    // Rank 0 gets the failure cause from its own coordinator, which was stopped with it.
    for rank in [0, 1] {
        let job = Job::new(3);
        let mut victim = job.stopped_process(rank);
        let others: Vec<u32> = (0..3).filter(|other| *other != rank).collect();
        let controls = job.joined(&others);
        victim.wait_until_it_spins();
        victim.stop();
        controls[1].report_failure(FailureReport::Abort { reason: "enough".into() });
        thread::sleep(STOPPED);
        victim.signal(Signal::CONT);
        assert_eq!(victim.failure_cause(), common_cause(&controls).to_string());
        leave(controls);
    }
}

#[test]
fn a_coordinator_that_resumes_adopts_the_cause_that_a_rank_has_stated() {
    let job = Job::new(3);
    let mut coordinator = job.process(0);
    let controls = job.joined(&[1, 2]);
    controls[0].entered(0, &CallName::new(&call(8), 0), 0);
    coordinator.stop();
    controls[0].report_failure(FailureReport::Overdue { seq: 0 });
    // Rank 1 stops waiting before the coordinator resumes. The coordinator's own inquiry would find
    // rank 2 absent.
    thread::sleep(STOPPED);
    coordinator.signal(Signal::CONT);
    let cause = common_cause(&controls);
    assert_eq!(cause.culprits(), [Rank(0)]);
    assert_eq!(coordinator.failure_cause(), cause.to_string());
    leave(controls);
}

#[test]
fn a_coordinator_that_resumes_reads_the_answers_before_it_calls_ranks_silent() {
    let job = Job::new(4);
    let mut coordinator = job.process(0);
    let controls = job.joined(&[1, 2, 3]);
    controls[..2].iter().for_each(|c| c.entered(0, &CallName::new(&call(8), 0), 0));
    controls[0].report_failure(FailureReport::Overdue { seq: 0 });
    // The stop may fall between the question and its end, and the answers arrive while rank 0 is
    // stopped. Or it falls amid the questions, and rank 0 asks some ranks only when it resumes.
    coordinator.stop();
    thread::sleep(Duration::from_millis(1200));
    coordinator.signal(Signal::CONT);
    let cause = common_cause(&controls);
    let text = cause.to_string();
    // On a busy machine the coordinator may resume after rank 1 has stopped waiting.
    if matches!(&*cause, FailureCause::Silent { for_ms: limits::COORDINATOR_SILENCE_MS, .. }) {
        assert_eq!(cause.culprits(), [Rank(0)]);
    } else {
        assert!(text.starts_with("not every rank has entered"), "{text}");
    }
    assert_eq!(coordinator.failure_cause(), text);
    leave(controls);
}

/// The threads of this process that help rank 0.
fn helpers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|it| std::fs::read_to_string(it.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "ringfold-help").count()
}

#[test]
fn threads_that_help_rank_0_serve_its_connections_until_it_has_left() {
    let job = Job::new(130);
    let controls = job.joined(&(0..130).collect::<Vec<_>>());
    assert_eq!(helpers(), 1);
    let all = thread::scope(|scope| {
        let exchange =
            |control| scope.spawn(move || Control::exchange(control, vec![7], TIME_LIMIT));
        let ranks: Vec<_> = controls.iter().map(exchange).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    assert!(all.iter().all(|it| *it == vec![vec![7]; 130]));
    assert!(controls[0].catch_up());
    for control in &controls[..128] {
        control.entered(0, &CallName::new(&call(8), 0), 0);
    }
    controls[77].report_failure(FailureReport::Overdue { seq: 0 });
    let cause = common_cause(&controls);
    assert_eq!(cause.culprits(), [Rank(128), Rank(129)], "{cause}");
    leave(controls);
    let until = Instant::now() + TIME_LIMIT;
    while helpers() > 0 {
        assert!(Instant::now() < until, "the threads stay");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn after_rank_0_has_left_all_return_the_same() {
    let mut job = Job::new(5);
    job.options.linger = Duration::from_millis(200);
    let mut controls = job.joined(&[0, 1, 2, 3, 4]);
    controls.remove(0).leave().unwrap();
    for (seq, control) in controls[..3].iter().enumerate() {
        control.entered(seq as u64, &CallName::new(&call(seq), 0), 0);
    }
    controls[0].report_failure(FailureReport::Overdue { seq: 0 });
    controls[1].report_failure(FailureReport::Mismatch { seq: 1, peer: 1 });
    controls[2].report_failure(FailureReport::Overdue { seq: 2 });
    controls[3].report_failure(FailureReport::Link { peer: 1, cause: "reset".into() });
    let cause = common_cause(&controls);
    assert_eq!(cause.culprits(), [Rank(0)]);
    let text = cause.to_string();
    assert!(text.starts_with("rank 0 has left the job"), "{text}");
    leave(controls);
}

#[test]
fn dropping_without_leaving_is_a_failure() {
    for victim in [0, 2] {
        let mut controls = Job::new(3).joined(&[0, 1, 2]);
        drop(controls.remove(victim));
        let expected = format!("rank {victim} gave up: it dropped its communicator");
        let text = common_cause(&controls).to_string();
        assert!(text.starts_with(&expected), "{text}");
        leave(controls);
    }
}

#[test]
fn all_ranks_that_leave_learn_of_a_call_that_one_never_made() {
    let controls = Job::new(3).joined(&[0, 1, 2]);
    for (control, calls) in controls.iter().zip([2, 3, 3]) {
        for seq in 1..=calls {
            control.entered(seq, &CallName::new(&call(seq as usize), 0), 0);
            control.finished(seq, Finished::Exchange);
        }
    }
    for left in leave(controls) {
        assert_eq!(
            left.unwrap_err().to_string(),
            "not every rank has entered allreduce [f32 x 3, sum] #3: rank 0 has left the job"
        );
    }
}

#[test]
fn ranks_that_called_the_same_part_in_peace() {
    let controls = Job::new(3).joined(&[0, 1, 2]);
    for control in &controls[..] {
        (1..=3).for_each(|seq| control.entered(seq, &CallName::new(&call(8), 0), 0));
    }
    assert_eq!(leave(controls), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(leave(Job::new(2).joined(&[0, 1])), [Ok(()), Ok(())]);
}

#[test]
fn an_exchange_ends_with_the_failure_cause() {
    let controls = Job::new(3).joined(&[0, 1, 2]);
    thread::scope(|scope| {
        let waits = scope.spawn(|| controls[1].exchange(vec![1], Duration::from_secs(600)));
        controls[2].report_failure(FailureReport::Abort { reason: "enough".into() });
        let error = waits.join().unwrap().unwrap_err().to_string();
        assert_eq!(error, "the job has failed: rank 2 gave up: enough");
    });
    assert_eq!(failure_cause(&controls[0]).culprits(), [Rank(2)]);
    leave(controls);
}

#[test]
fn a_rank_in_doubt_goes_on_in_the_group_that_has_formed() {
    let mut controls = Job::new(5).joined(&[0, 1, 2, 3, 4]);
    drop(controls.remove(0));
    common_cause(&controls);
    let wish = |doubtful| Wish {
        without: Vec::new(),
        suspects: vec![Rank(0)],
        address: None,
        timeout: TIME_LIMIT,
        doubtful,
    };
    let regroup = |control: &Control| control.regroup(wish(None)).unwrap().unwrap();
    let invited: Vec<Regrouped> = thread::scope(|scope| {
        let all: Vec<_> = controls.iter().map(|it| scope.spawn(move || regroup(it))).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let nonce = invited[0].nonce;
    assert!(invited.iter().all(|it| it.nonce == nonce && it.members.len() == 4));
    // The leader ends after it has told rank 2 alone that all have joined.
    invited[1].seat.as_ref().unwrap().joined();
    drop(invited);
    drop(controls.remove(0));
    assert!(matches!(controls[1].regroup(wish(Some(nonce))), Ok(None)));
    // A rank that cannot go on there is left out.
    let late = controls[2].regroup(wish(None));
    assert!(matches!(late, Err(RegroupError::Excluded)), "{late:?}");
    leave(controls);
}
