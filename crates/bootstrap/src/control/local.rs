//! The control plane for ranks that are threads of one process. It needs no sockets, and serves
//! tests, doctests and communicators of one rank.

use std::io;
use std::sync::Arc;

use ringfold_types::Rank;

use super::local_coordinator::LocalCoordinator;
use super::rank_state::RankState;
use super::{Backend, Control};
use crate::arbiter::call_log::CallLog;

/// The controls of `size` ranks of this process, in rank order. Each belongs to one thread.
///
/// # Errors
/// No file descriptor is left.
pub fn controls(size: usize) -> io::Result<Vec<Control>> {
    let ranks =
        (0..size).map(|_| RankState::new(CallLog::default())).collect::<io::Result<Vec<_>>>()?;
    let states = ranks.iter().map(|(state, _)| Arc::clone(state)).collect();
    let coordinator = Arc::new(LocalCoordinator::new(states));
    let ranks = ranks.into_iter().enumerate();
    Ok(ranks
        .map(|(i, state)| {
            Control::new(Rank::at(i), size, state, Backend::Local(Arc::clone(&coordinator)))
        })
        .collect())
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]
mod tests {
    use std::thread;
    use std::time::Duration;

    use ringfold_types::{Call, Collective, DataType, ReduceOp, Wire};
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::arbiter::FailureReport;
    use crate::arbiter::call_log::{CallName, Finished};
    use crate::arbiter::failure_cause::{CallPosition, FailureCause};

    fn barrier() -> Call {
        Call {
            collective: Collective::Barrier,
            count: 0,
            data_type: DataType::U8,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: Wire::default(),
        }
    }

    fn is_awake(control: &Control) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(control.wake_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn an_overdue_call_names_the_one_that_is_missing() {
        let controls = controls(3).unwrap();
        for c in &controls[..2] {
            c.entered(0, &CallName::new(&barrier(), 0), 0);
        }
        assert!(!is_awake(&controls[2]) && controls[2].failure_cause().is_none());
        controls[0].report_failure(FailureReport::Overdue { seq: 0 });
        for c in &controls {
            let cause = c.failure_cause().unwrap();
            let FailureCause::Absent { seq: 0, ranks, .. } = &*cause else { panic!("{cause}") };
            assert_eq!((ranks[0].who.rank, &ranks[0].position), (Rank(2), &CallPosition::Start));
            assert!(is_awake(c));
        }
    }

    #[test]
    fn a_panicking_rank_is_named() {
        let mut all = controls(2).unwrap();
        let one = all.pop().unwrap();
        let panicked = thread::spawn(move || {
            let _one = one;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panicked.join().is_err());
        let text = all[0].failure_cause().unwrap().to_string();
        assert_eq!(text, "rank 1 gave up: it panicked without leaving the job");
    }

    #[test]
    fn a_broken_link_becomes_a_failure_cause_after_the_grace() {
        let all = controls(2).unwrap();
        all[0].report_failure(FailureReport::Link { peer: 1, cause: "reset".into() });
        assert_eq!(all[0].failure_cause(), None);
        let mut fds = [PollFd::from_borrowed_fd(all[1].wake_fd(), PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        assert_eq!(
            all[1].failure_cause().unwrap().to_string(),
            "the connection from rank 0 to rank 1 failed: reset"
        );
        all.into_iter().for_each(|c| drop(c.leave().unwrap_err()));
    }

    #[test]
    fn the_last_to_leave_hears_that_calls_differed() {
        let all = controls(2).unwrap();
        for c in &all {
            c.entered(1, &CallName::new(&Call { root: c.rank(), ..barrier() }, 0), 0);
            c.finished(1, Finished::Exchange);
        }
        let mut left = all.into_iter().map(Control::leave);
        assert_eq!(left.next(), Some(Ok(())));
        let cause = left.next().unwrap().unwrap_err();
        assert!(matches!(&*cause, FailureCause::Mismatch { seq: 1, .. }), "{cause}");
    }

    #[test]
    fn exchange_hands_everyone_everything() {
        let mut threads = Vec::new();
        for control in controls(5).unwrap() {
            threads.push(thread::spawn(move || {
                for round in 0..20_u8 {
                    let mine = vec![round, control.rank().0 as u8];
                    let all = control.exchange(mine, Duration::from_secs(30)).unwrap();
                    assert_eq!(all, (0..5).map(|r| vec![round, r]).collect::<Vec<_>>());
                }
                control.leave().unwrap();
            }));
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
