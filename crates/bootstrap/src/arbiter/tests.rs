//! Every way from failure reports to a failure cause.

use ringfold_types::{Call, Collective, DataType, ReduceOp, Wire};

use super::*;

/// A history as `(seq, count, finished)`.
fn history(calls: &[(u64, usize, bool)]) -> History {
    let logged = |&(seq, count, finished): &(u64, usize, bool)| {
        let call = Call {
            collective: Collective::AllReduce,
            count,
            data_type: DataType::F32,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: Wire::default(),
        };
        let [kinds, count, root] = call.to_words();
        Logged { seq, words: [kinds, count, root, 0, 0], algorithm: 1, finished }
    };
    History { calls: calls.iter().map(logged).collect() }
}

fn arbiter(size: usize) -> Arbiter {
    Arbiter::new((0..size).map(|i| format!("h{}", i / 2)).collect())
}

fn overdue(seq: u64) -> FailureReport {
    FailureReport::Overdue { seq }
}

fn link(peer: u32) -> FailureReport {
    FailureReport::Link { peer, cause: "reset".into() }
}

fn failure_cause(action: Option<Action>) -> FailureCause {
    match action {
        Some(Action::Announce(cause)) => cause,
        other => panic!("no failure cause but {other:?}"),
    }
}

fn text(action: Option<Action>) -> String {
    failure_cause(action).to_string()
}

/// Reports a failure, hands in every answer, and returns the failure cause.
fn decided(arbiter: &mut Arbiter, report: FailureReport, answers: &[History]) -> FailureCause {
    let asked = (0..answers.len()).map(Rank::at).collect();
    assert_eq!(arbiter.report_failure(Rank(0), report, 0), Some(Action::Ask(asked)));
    let mut last = None;
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(last, None, "a failure cause before everyone has answered");
        last = arbiter.answer(Rank::at(i), answer.clone(), 1);
    }
    assert_eq!(arbiter.deadline_ms(), None);
    failure_cause(last)
}

#[test]
fn a_closed_connection_is_a_death_at_once() {
    let mut arbiter = arbiter(4);
    assert_eq!(
        failure_cause(arbiter.closed(Rank(3))),
        FailureCause::Died { who: RankOnHost { rank: Rank(3), host: Some("h1".into()) } }
    );
    // The first failure cause is the only one.
    assert_eq!(arbiter.closed(Rank(2)), None);
    assert_eq!(arbiter.report_failure(Rank(1), overdue(0), 0), None);
    assert_eq!(arbiter.answer(Rank(1), history(&[]), 0), None);
    assert_eq!(arbiter.tick(1_000_000), None);
    assert_eq!(arbiter.deadline_ms(), None);
}

#[test]
fn a_host_is_named_only_where_there_are_several() {
    let mut one = Arbiter::new(vec!["h".into(), "h".into()]);
    assert_eq!(text(one.closed(Rank(1))), "the process of rank 1 is gone");
    assert_eq!(text(arbiter(3).closed(Rank(2))), "the process of rank 2 (host h1) is gone");
}

#[test]
fn after_a_goodbye_a_closed_connection_is_nothing() {
    let mut arbiter = arbiter(3);
    assert_eq!(arbiter.left(Rank(1), history(&[]), 0), None);
    assert_eq!(arbiter.closed(Rank(1)), None);
    assert_eq!(arbiter.report_failure(Rank(1), overdue(0), 0), None);
    assert!(!arbiter.is_present(Rank(1)) && arbiter.is_present(Rank(2)));
}

#[test]
fn a_rank_that_does_not_answer_is_silent() {
    let mut arbiter = arbiter(3);
    assert!(arbiter.report_failure(Rank(0), overdue(4), 1000).is_some());
    for rank in [0, 2] {
        assert_eq!(arbiter.answer(Rank(rank), history(&[(4, 8, false)]), 1001), None);
    }
    assert_eq!(
        text(tick_until_a_failure_cause(&mut arbiter)),
        "rank 1 (host h0) does not answer (asked 500 ms ago): stopped or cut off"
    );
}

/// Calls `tick` whenever the arbiter asks for it.
fn tick_until_a_failure_cause(arbiter: &mut Arbiter) -> Option<Action> {
    loop {
        let now_ms = arbiter.deadline_ms()?;
        if let Some(action) = arbiter.tick(now_ms) {
            return Some(action);
        }
    }
}

#[test]
fn a_stopped_arbiter_accuses_no_rank_that_its_question_has_not_reached() {
    let stopped_for_ms = 2 * limits::ANSWER_MS;
    let asked = || {
        let mut arbiter = arbiter(3);
        assert!(arbiter.report_failure(Rank(0), overdue(4), 0).is_some());
        assert_eq!(arbiter.answer(Rank(0), history(&[(4, 8, false)]), 0), None);
        assert_eq!(arbiter.tick(stopped_for_ms), None);
        assert_eq!(arbiter.answer(Rank(1), history(&[(4, 8, false)]), stopped_for_ms), None);
        arbiter
    };
    let answered = asked().answer(Rank(2), history(&[]), stopped_for_ms + 1);
    let expected = "not every rank has entered allreduce [f32 x 8, sum] #4: \
                    rank 2 (host h1) has made no call yet";
    assert_eq!(text(answered), expected);
    // If rank 2 does not answer then, it is silent.
    let silent = failure_cause(tick_until_a_failure_cause(&mut asked()));
    let waited_ms = stopped_for_ms + limits::ANSWER_MS - limits::ANSWER_MS / TICKS;
    let who = RankOnHost { rank: Rank(2), host: Some("h1".into()) };
    assert_eq!(silent, FailureCause::Silent { ranks: vec![who].into(), for_ms: waited_ms });
}

#[test]
fn a_rank_that_has_not_entered_is_absent_wherever_it_is() {
    let answers = [
        history(&[(6, 8, true), (7, 8, false)]),
        history(&[]),
        history(&[(6, 8, false)]),
        history(&[(6, 8, true)]),
    ];
    assert_eq!(
        decided(&mut arbiter(4), overdue(7), &answers).to_string(),
        "not every rank has entered allreduce [f32 x 8, sum] #7: rank 1 (host h0) has made no call \
         yet; rank 2 (host h1) is inside allreduce [f32 x 8, sum] #6; rank 3 (host h1) has made no \
         call since allreduce [f32 x 8, sum] #6"
    );
}

#[test]
fn an_earlier_difference_is_the_cause_of_later_trouble() {
    let rest = history(&[(6, 8, true), (7, 8, false)]);
    let odd = history(&[(6, 9, true), (7, 8, false)]);
    for report in [overdue(7), FailureReport::Mismatch { seq: 7, peer: 1 }] {
        let cause = decided(&mut arbiter(3), report, &[rest.clone(), odd.clone(), rest.clone()]);
        assert_eq!(
            cause.to_string(),
            "ranks differ in call #6: ranks 0, 2 called allreduce [f32 x 8, sum]; rank 1 called \
             allreduce [f32 x 9, sum]"
        );
    }
}

#[test]
fn a_mismatch_names_each_call_and_its_ranks() {
    let odd = history(&[(7, 9, false)]);
    let rest = history(&[(7, 8, false)]);
    let answers = [odd, rest.clone(), rest.clone(), history(&[]), rest];
    for report in [overdue(7), FailureReport::Mismatch { seq: 7, peer: 1 }] {
        let cause = decided(&mut arbiter(5), report, &answers);
        assert_eq!(
            cause.to_string(),
            "ranks differ in call #7: ranks 1-2, 4 called allreduce [f32 x 8, sum]; rank 0 called \
             allreduce [f32 x 9, sum]"
        );
        assert_eq!(cause.culprits(), [Rank(0)]);
    }
}

#[test]
fn the_same_call_by_different_algorithms_is_a_mismatch() {
    let mut other = history(&[(7, 8, false)]);
    other.calls[0].algorithm = 2;
    let answers = [history(&[(7, 8, false)]), other];
    let text = decided(&mut arbiter(2), overdue(7), &answers).to_string();
    assert!(text.ends_with("rank 1 called allreduce [f32 x 8, sum] by algorithm 2"), "{text}");
}

#[test]
fn everyone_inside_is_a_stall() {
    let answers = [(7, 8, false), (7, 8, true), (7, 8, false)].map(|c| history(&[c]));
    assert_eq!(
        decided(&mut arbiter(3), overdue(7), &answers).to_string(),
        "every rank is in allreduce [f32 x 8, sum] #7, which does not end in time: ranks 0, 2 \
         still inside"
    );
}

#[test]
fn a_rank_far_beyond_the_call_is_not_absent() {
    let answers = [history(&[(7, 8, false)]), history(&[(100, 8, false)])];
    let cause = decided(&mut arbiter(2), overdue(7), &answers);
    assert!(matches!(cause, FailureCause::Stalled { ranks, .. } if *ranks == [Rank(0)]));
}

#[test]
fn the_oldest_of_several_overdue_calls_decides() {
    let mut arbiter = arbiter(2);
    assert!(arbiter.report_failure(Rank(0), overdue(9), 0).is_some());
    assert_eq!(arbiter.report_failure(Rank(1), overdue(8), 1), None);
    assert_eq!(arbiter.answer(Rank(0), history(&[(8, 1, true), (9, 1, false)]), 2), None);
    let cause = failure_cause(arbiter.answer(Rank(1), history(&[(8, 2, false)]), 3));
    assert!(matches!(cause, FailureCause::Mismatch { seq: 8, .. }), "{cause}");
}

#[test]
fn a_broken_link_waits_for_a_death() {
    let mut dies = arbiter(3);
    assert_eq!(dies.report_failure(Rank(0), link(2), 10), None);
    assert_eq!(dies.deadline_ms(), Some(10 + limits::LINK_GRACE_MS));
    assert!(matches!(
        failure_cause(dies.closed(Rank(2))),
        FailureCause::Died { who } if who.rank == Rank(2)
    ));

    let mut lives = arbiter(3);
    assert_eq!(lives.report_failure(Rank(0), link(2), 10), None);
    assert_eq!(lives.report_failure(Rank(2), link(0), 11), None);
    assert_eq!(lives.tick(9 + limits::LINK_GRACE_MS), None);
    assert_eq!(
        text(lives.tick(10 + limits::LINK_GRACE_MS)),
        "the connection from rank 0 (host h0) to rank 2 (host h1) failed: reset"
    );
    assert_eq!(arbiter(3).report_failure(Rank(0), link(3), 0), None, "there is no rank 3");
}

#[test]
fn a_link_to_one_that_left_in_peace_is_a_missing_call() {
    let mut arbiter = arbiter(2);
    assert_eq!(arbiter.report_failure(Rank(0), link(1), 0), None);
    assert_eq!(arbiter.left(Rank(1), history(&[(3, 8, true)]), 5), None);
    assert_eq!(arbiter.tick(limits::LINK_GRACE_MS), Some(Action::Ask(vec![Rank(0)])));
    assert_eq!(
        text(arbiter.answer(Rank(0), history(&[(4, 8, false)]), 400)),
        "not every rank has entered allreduce [f32 x 8, sum] #4: rank 1 has left the job"
    );
}

#[test]
fn a_link_to_one_that_made_every_call_before_it_left_is_a_link() {
    let mut arbiter = arbiter(2);
    assert_eq!(arbiter.left(Rank(1), history(&[(4, 8, true)]), 0), None);
    // Such a rank does not die any more, so there is nothing to wait for.
    let asked = arbiter.report_failure(Rank(0), link(1), 0);
    assert_eq!(asked, Some(Action::Ask(vec![Rank(0)])));
    let cause = failure_cause(arbiter.answer(Rank(0), history(&[(4, 8, false)]), 1));
    let FailureCause::Link { cause, .. } = cause else { panic!("{cause}") };
    assert_eq!(cause, "the rank has left the job");
}

#[test]
fn a_link_during_an_inquiry_explains_a_stall() {
    let mut arbiter = arbiter(2);
    assert!(arbiter.report_failure(Rank(0), overdue(1), 0).is_some());
    assert_eq!(arbiter.report_failure(Rank(1), link(0), 1), None);
    assert_eq!(arbiter.answer(Rank(0), history(&[(1, 8, false)]), 2), None);
    let cause = failure_cause(arbiter.answer(Rank(1), history(&[(1, 8, false)]), 3));
    assert!(matches!(cause, FailureCause::Link { .. }), "{cause}");
}

#[test]
fn death_and_goodbye_during_an_inquiry() {
    let mut dies = arbiter(2);
    assert!(dies.report_failure(Rank(0), overdue(1), 0).is_some());
    assert!(matches!(failure_cause(dies.closed(Rank(1))), FailureCause::Died { .. }));

    let mut leaves = arbiter(2);
    assert!(leaves.report_failure(Rank(0), overdue(1), 0).is_some());
    assert_eq!(leaves.answer(Rank(0), history(&[(1, 8, false)]), 1), None);
    let cause = failure_cause(leaves.left(Rank(1), history(&[(0, 8, true)]), 2));
    let FailureCause::Absent { ranks, .. } = cause else { panic!("{cause}") };
    assert_eq!(ranks[0].position, CallPosition::Gone);
}

#[test]
fn an_abort_is_passed_on_but_not_at_any_length() {
    let mut arbiter = arbiter(2);
    let reason = "\u{e4}".repeat(limits::CAUSE_BYTES_MAX);
    let FailureCause::Aborted { who, reason } =
        failure_cause(arbiter.report_failure(Rank(1), FailureReport::Abort { reason }, 0))
    else {
        panic!("not aborted")
    };
    assert_eq!((who.rank, reason.len()), (Rank(1), limits::CAUSE_BYTES_MAX));
}

#[test]
fn messages_of_ranks_that_do_not_exist_are_ignored() {
    let mut arbiter = arbiter(2);
    let nobody = Rank(7);
    assert_eq!(arbiter.report_failure(nobody, overdue(0), 0), None);
    assert_eq!(arbiter.answer(nobody, history(&[]), 0), None);
    assert_eq!(arbiter.left(nobody, history(&[]), 0), None);
    assert_eq!(arbiter.closed(nobody), None);
    assert!(arbiter.report_failure(Rank(0), overdue(0), 0).is_some());
    assert_eq!(arbiter.answer(nobody, history(&[]), 0), None);
    let mut odd = history(&[(5, 8, false), (0, 8, false)]);
    odd.calls[0].words = [u64::MAX; 5];
    assert_eq!(arbiter.answer(Rank(1), odd, 0), None);
    assert!(arbiter.answer(Rank(0), history(&[(0, 8, false)]), 0).is_some());
}

fn message(peer: u32) -> FailureReport {
    FailureReport::Message { peer, cause: "another tag".into() }
}

/// The sender of a message that its receiver does not expect may have left by then.
#[test]
fn a_message_that_differs_is_the_cause_wherever_its_sender_is() {
    let expected = "a message between rank 0 (host h0) and rank 1 (host h0) failed: another tag";
    for has_left in [false, true] {
        for calls_more in [0, 3] {
            let mut arbiter = arbiter(3);
            if has_left {
                assert_eq!(arbiter.left(Rank(1), history(&[(4, 8, true)]), 0), None);
            }
            assert!(matches!(arbiter.report_failure(Rank(0), message(1), 0), Some(Action::Ask(_))));
            let mut cause = arbiter.answer(Rank(0), history(&[(4 + calls_more, 8, false)]), 1);
            for rank in [1, 2] {
                let answer = history(&[(4, 8, true)]);
                cause = cause.or_else(|| arbiter.answer(Rank(rank), answer, 1));
            }
            assert_eq!(text(cause), expected, "{has_left} {calls_more}");
        }
    }
}

#[test]
fn a_message_that_differs_explains_more_than_a_link_to_a_rank_that_has_left() {
    let mut arbiter = arbiter(3);
    assert_eq!(arbiter.left(Rank(1), history(&[(4, 8, true)]), 0), None);
    assert!(arbiter.report_failure(Rank(2), link(1), 0).is_some());
    assert_eq!(arbiter.report_failure(Rank(0), message(1), 1), None);
    assert_eq!(arbiter.answer(Rank(0), history(&[(4, 8, true)]), 2), None);
    let cause = failure_cause(arbiter.answer(Rank(2), history(&[(4, 8, true)]), 3));
    assert!(
        matches!(&cause, FailureCause::Message { from, .. } if from.rank == Rank(0)),
        "{cause}"
    );
}

#[test]
fn different_tags_of_the_same_call_are_a_cause_of_their_own() {
    let answers = [0, 0, 0].map(|_| history(&[(7, 8, false)]));
    let report = FailureReport::Mismatch { seq: 7, peer: 2 };
    let cause = decided(&mut arbiter(3), report, &answers);
    assert_eq!(
        cause.to_string(),
        "rank 0 (host h0) and rank 2 (host h1) both made allreduce [f32 x 8, sum] #7, and the \
         tags of their messages differ: start every rank with the same build and settings of \
         ringfold"
    );
    assert_eq!(cause.culprits(), [Rank(0), Rank(2)]);
}

#[test]
fn a_death_that_a_rank_reports_is_one_even_if_its_connection_stays() {
    let died = FailureReport::Died { peer: 2 };
    let mut dies = arbiter(3);
    assert_eq!(dies.report_failure(Rank(0), died, 10), None);
    assert_eq!(dies.tick(9 + limits::LINK_GRACE_MS), None);
    let cause = failure_cause(dies.tick(10 + limits::LINK_GRACE_MS));
    assert!(matches!(cause, FailureCause::Died { who } if who.rank == Rank(2)));

    let mut leaves = arbiter(2);
    assert_eq!(leaves.left(Rank(1), history(&[(4, 8, true)]), 0), None);
    let asked = leaves.report_failure(Rank(0), FailureReport::Died { peer: 1 }, 0);
    assert_eq!(asked, Some(Action::Ask(vec![Rank(0)])));
    let cause = failure_cause(leaves.answer(Rank(0), history(&[(4, 8, false)]), 1));
    assert!(matches!(cause, FailureCause::Link { .. }), "{cause}");
}
