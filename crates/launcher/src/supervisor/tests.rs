//! Runs jobs without processes and without waiting.

use std::time::{Duration, Instant};

use ringfold_types::Rank;

use super::{Command, Event, Supervisor};
use crate::hosts::parse_list;
use crate::message::{Refusal, Status};
use crate::outcome::{End, JobResult};
use crate::placement::Placement;

const TERM: Command = Command::Signal(15);

fn again(rank: u32, host: usize) -> Command {
    Command::Restart { rank: Rank(rank), host }
}

struct Scenario {
    supervisor: Supervisor,
    now: Instant,
}

impl Scenario {
    /// Four started ranks on two hosts with a grace of 5 s.
    fn begin(limit: Option<Duration>) -> Self {
        Self::begin_on("a:2,b:2", None, limit)
    }

    /// Four started ranks, three new starts for each, and spare hosts.
    fn begin_with(spares: &str) -> Self {
        let mut scenario = Self::begin_on("a:2,b:2", Some(spares), None);
        scenario.supervisor.allow_restarts(Some(3));
        scenario
    }

    fn begin_on(hosts: &str, spares: Option<&str>, limit: Option<Duration>) -> Self {
        let hosts = parse_list(hosts).unwrap();
        let spares = spares.map(|list| parse_list(list).unwrap()).unwrap_or_default();
        let placement = Placement::place(None, &hosts, false).unwrap();
        let placement = placement.with_spares(spares, &hosts).unwrap();
        let now = Instant::now();
        let grace = Some(Duration::from_secs(5));
        let supervisor = Supervisor::new(&placement, grace, limit, now);
        let mut scenario = Self { supervisor, now };
        for rank in 0..4 {
            scenario.event(0, Event::Started { rank: Rank(rank), pid: 100 + rank });
        }
        scenario
    }

    fn wait(&mut self, ms: u64) -> Option<Command> {
        self.now += Duration::from_millis(ms);
        self.supervisor.on_time(self.now)
    }

    fn event(&mut self, ms: u64, event: Event) -> Option<Command> {
        assert_eq!(self.wait(ms), None);
        self.supervisor.on_event(event, self.now)
    }

    fn lose(&mut self, host: usize) -> String {
        assert_eq!(self.event(0, Event::HostLost { host, why: "gone".into() }), None);
        self.supervisor.take_notes().join("\n")
    }

    fn exit(&mut self, ms: u64, rank: u32, status: Status) {
        assert_eq!(self.event(ms, Event::Exited { rank: Rank(rank), status }), None);
    }
}

#[test]
fn survivors_that_recover_go_on_and_decide() {
    for (last, recovers) in [(0, true), (3, false)] {
        let mut scenario = Scenario::begin(None);
        scenario.supervisor.grace = None;
        scenario.exit(100, 2, Status::Killed(9));
        let note = scenario.supervisor.take_notes().remove(0);
        assert!(note.starts_with("3 ranks still run after the failure of rank 2"), "{note}");
        assert_eq!(scenario.wait(1_000_000), None);
        scenario.exit(100, 0, Status::Exited(3));
        scenario.exit(100, 1, Status::Exited(last));
        scenario.exit(100, 3, Status::Exited(last));
        let result = scenario.supervisor.outcome().result;
        assert_eq!(matches!(result, JobResult::Success), recovers, "{result:?}");
    }
    let mut scenario = Scenario::begin(Some(Duration::from_secs(9)));
    scenario.supervisor.grace = None;
    scenario.exit(100, 2, Status::Killed(9));
    scenario.exit(100, 0, Status::Exited(0));
    assert_eq!(scenario.wait(9_000), Some(TERM));
    let result = scenario.supervisor.outcome().result;
    assert!(matches!(result, JobResult::TimeLimit(_)), "{result:?}");
}

#[test]
fn a_failed_rank_starts_again_with_doubling_pauses_and_is_then_named() {
    let mut scenario = Scenario::begin(None);
    scenario.supervisor.allow_restarts(Some(3));
    for (pause, time) in [(100, "0.1"), (200, "0.2"), (400, "0.4")] {
        scenario.exit(0, 2, Status::Exited(3));
        let note = scenario.supervisor.take_notes().remove(0);
        assert!(
            note.contains(&format!("rank 2 returned 3, and starts again in {time} s")),
            "{note}"
        );
        assert_eq!(scenario.wait(pause - 1), None);
        assert_eq!(scenario.wait(1), Some(again(2, 1)));
    }
    scenario.exit(0, 2, Status::Exited(3));
    let note = scenario.supervisor.take_notes().remove(0);
    assert!(note.contains("3 ranks still run after the failure of rank 2 after 3 new"), "{note}");
    // A process that has lived long starts again soon.
    for _ in 0..2 {
        scenario.exit(10_000, 1, Status::Killed(9));
        assert_eq!(scenario.wait(100), Some(again(1, 0)));
    }
    for rank in [0, 1, 3] {
        assert!(!scenario.supervisor.is_over());
        scenario.exit(0, rank, Status::Exited(0));
    }
    let outcome = scenario.supervisor.outcome();
    assert_eq!(outcome.result, JobResult::Success);
    assert_eq!(outcome.ranks.iter().map(|it| it.restarts).collect::<Vec<_>>(), [0, 2, 3, 0]);
}

#[test]
fn a_rank_does_not_start_again_when_nobody_is_left_or_the_job_stops() {
    let mut scenario = Scenario::begin(None);
    scenario.supervisor.allow_restarts(Some(9));
    (0..4).for_each(|rank| scenario.exit(0, rank, Status::Exited(3)));
    assert!(scenario.supervisor.is_over());
    let outcome = scenario.supervisor.outcome();
    assert_eq!((outcome.result.clone(), outcome.exit_code()), (JobResult::RankFailed(Rank(0)), 3));
    let mut scenario = Scenario::begin(None);
    scenario.supervisor.allow_restarts(Some(0));
    scenario.exit(0, 1, Status::Exited(3));
    assert_eq!(scenario.wait(1_000_000), None);
    scenario.supervisor.allow_restarts(Some(1));
    scenario.exit(0, 2, Status::Exited(3));
    assert_eq!(scenario.event(5, Event::Interrupted(2)), Some(Command::Signal(2)));
    assert!(scenario.supervisor.ranks[2].ended.is_some());
}

#[test]
fn the_ranks_of_a_lost_host_start_again_on_spare_hosts() {
    let mut scenario = Scenario::begin_with("c,d:2");
    let notes = scenario.lose(1);
    let note = "rank 3 is lost with its host, and starts again in 0.1 s on host d (1 of 3 times)";
    assert!(notes.starts_with("host b is lost: gone\nrank 2 "), "{notes}");
    assert!(notes.contains("0.1 s on host c") && notes.ends_with(note), "{notes}");
    let news = scenario.supervisor.take_ended();
    assert_eq!(news, [2, 3].map(|rank| (Rank(rank), "lost with host b".to_owned())));
    assert_eq!((scenario.wait(100), scenario.wait(0)), (Some(again(2, 2)), Some(again(3, 3))));
    // A new process that fails starts again where it was.
    scenario.event(0, Event::Started { rank: Rank(2), pid: 200 });
    scenario.exit(10, 2, Status::Exited(3));
    assert_eq!(scenario.wait(200), Some(again(2, 2)));
    // So does one that waits, until its host is lost too.
    scenario.exit(10, 2, Status::Exited(3));
    assert!(scenario.lose(2).contains("rank 2 is lost with its host"));
    assert_eq!(scenario.wait(800), Some(again(2, 3)));
    // Nobody takes the ranks of the next host, and the others go on.
    let notes = scenario.lose(3);
    assert!(notes.ends_with("2 ranks still run after the loss of host d"), "{notes}");
    for rank in [0, 1] {
        assert!(!scenario.supervisor.is_over());
        scenario.exit(0, rank, Status::Exited(0));
    }
    let outcome = scenario.supervisor.outcome();
    assert_eq!(outcome.result, JobResult::Success);
    let hosts = outcome.ranks.iter().map(|it| (&*it.host, it.restarts));
    assert_eq!(hosts.collect::<Vec<_>>(), [("a", 0), ("a", 0), ("d", 3), ("d", 1)]);
}

#[test]
fn only_ranks_that_others_can_await_go_to_a_spare_host() {
    // A spare host that is lost takes none.
    let mut scenario = Scenario::begin_with("c:2,d:2");
    assert_eq!(scenario.lose(2), "host c is lost: gone");
    scenario.exit(0, 3, Status::Exited(0));
    scenario.supervisor.take_notes();
    assert!(!scenario.lose(1).contains("rank 3"));
    assert_eq!((scenario.wait(100), scenario.wait(0)), (Some(again(2, 3)), None));
    // Nobody is left to admit them.
    scenario.exit(0, 2, Status::Exited(3));
    scenario.lose(0);
    assert!(scenario.supervisor.is_over());
    assert_eq!(scenario.supervisor.outcome().exit_code(), 0, "rank 3 has ended well");
    // Ranks that have never run are none that others await anew.
    let mut scenario = Scenario::begin_with("c:2");
    scenario.supervisor.ranks[2].pid = None;
    assert!(!scenario.lose(1).contains("rank 2"));
    assert_eq!((scenario.wait(100), scenario.wait(0)), (Some(again(3, 2)), None));
    // A job that stops starts none.
    let mut scenario = Scenario::begin_with("c:2");
    assert_eq!(scenario.event(0, Event::Interrupted(2)), Some(Command::Signal(2)));
    scenario.lose(1);
    assert!(scenario.supervisor.ranks[2].ended.is_some());
}

#[test]
fn a_rank_that_cannot_start_again_on_its_host_goes_to_a_spare_one() {
    let mut scenario = Scenario::begin_with("c");
    let refused =
        |rank| Event::Refused { rank: Rank(rank), refusal: Refusal::NotFound("x".into()) };
    scenario.exit(0, 1, Status::Killed(9));
    assert_eq!(scenario.wait(100), Some(again(1, 0)));
    assert_eq!(scenario.event(0, refused(1)), None);
    let note = scenario.supervisor.take_notes().pop().unwrap();
    let words = "rank 1 cannot start on host a (program 'x' not found), and starts again in 0.2 \
                 s on host c (2 of 3 times)";
    assert_eq!(note, words);
    assert_eq!(scenario.wait(200), Some(again(1, 2)));
    // Without another spare host it tries the same one, until its starts are used up.
    assert_eq!(scenario.event(0, refused(1)), None);
    assert_eq!(scenario.wait(400), Some(again(1, 2)));
    assert_eq!(scenario.event(0, refused(1)), None);
    let note = scenario.supervisor.take_notes().pop().unwrap();
    assert_eq!(note, "3 ranks still run after the failure of rank 1 after 3 new starts");
    assert_eq!(scenario.wait(1_000_000), None);
}

#[test]
fn a_job_that_is_called_off_before_its_start_is_over() {
    let mut scenario = Scenario::begin(Some(Duration::from_secs(3)));
    scenario.supervisor.call_off(Some(Event::Interrupted(2)), scenario.now);
    assert!(scenario.supervisor.is_over());
    assert_eq!(scenario.supervisor.outcome().result, JobResult::Interrupted(2));
    let mut scenario = Scenario::begin(Some(Duration::from_secs(3)));
    scenario.supervisor.call_off(None, scenario.now + Duration::from_secs(3));
    assert!(scenario.supervisor.is_over());
    let result = scenario.supervisor.outcome().result;
    assert_eq!(result, JobResult::TimeLimit(Duration::from_secs(3)));
}

#[test]
fn success() {
    let mut scenario = Scenario::begin(None);
    for rank in 0..4 {
        assert!(!scenario.supervisor.is_over());
        scenario.exit(10_000, rank, Status::Exited(0));
    }
    assert!(scenario.supervisor.is_over());
    let outcome = scenario.supervisor.outcome();
    assert_eq!(outcome.result, JobResult::Success);
    assert_eq!(outcome.ranks[3].lasted, Duration::from_secs(40));
    assert_eq!(outcome.ranks[3].host, "b");
}

#[test]
fn others_get_their_grace_then_a_signal_then_the_end() {
    let mut scenario = Scenario::begin(None);
    scenario.exit(10, 2, Status::Exited(3));
    scenario.exit(500, 0, Status::Exited(1));
    assert_eq!(scenario.wait(4_499), None);
    assert!(scenario.supervisor.take_notes().is_empty());
    assert_eq!(scenario.wait(1), Some(TERM));
    let note = scenario.supervisor.take_notes().remove(0);
    assert!(note.starts_with("2 ranks still run 5 s after the failure of rank 2: "), "{note}");
    assert!(note.contains("--grace SECONDS"), "{note}");
    scenario.exit(100, 1, Status::Killed(15));
    assert_eq!(scenario.wait(1_900), Some(Command::Kill));
    let note = scenario.supervisor.take_notes().remove(0);
    assert!(note.starts_with("1 rank still runs 2 s after the signal to stop"), "{note}");
    assert!(!scenario.supervisor.is_over());
    scenario.exit(10, 3, Status::Killed(9));
    assert!(scenario.supervisor.is_over());
    let outcome = scenario.supervisor.outcome();
    assert_eq!(outcome.result, JobResult::RankFailed(Rank(2)));
    assert_eq!(outcome.ranks[0].end, End::Alone(Status::Exited(1)));
    assert_eq!(outcome.ranks[1].end, End::Stopped(Status::Killed(15)));
    assert_eq!(outcome.exit_code(), 3);
}

#[test]
fn a_crash_is_named_before_the_reports_about_it() {
    let mut scenario = Scenario::begin(None);
    scenario.exit(10, 1, Status::Exited(1));
    scenario.exit(5, 3, Status::Killed(11));
    scenario.exit(5, 0, Status::Exited(1));
    scenario.exit(200, 2, Status::Killed(6));
    let outcome = scenario.supervisor.outcome();
    assert_eq!(outcome.result, JobResult::RankFailed(Rank(3)));
    assert_eq!(outcome.exit_code(), 139);
}

#[test]
fn silence_after_the_kill_is_not_waited_for() {
    let mut scenario = Scenario::begin(Some(Duration::from_secs(3)));
    assert_eq!(scenario.wait(3_000), Some(TERM));
    assert_eq!(scenario.wait(2_000), Some(Command::Kill));
    assert_eq!(scenario.wait(5_000), None);
    assert!(scenario.supervisor.is_over());
    let outcome = scenario.supervisor.outcome();
    assert_eq!(outcome.result, JobResult::TimeLimit(Duration::from_secs(3)));
    assert_eq!(outcome.ranks[0].end, End::Unknown);
}

#[test]
fn the_time_limit_cuts_the_grace_short_but_not_the_blame() {
    let mut scenario = Scenario::begin(Some(Duration::from_secs(3)));
    scenario.exit(1_000, 0, Status::Exited(7));
    assert_eq!(scenario.wait(2_000), Some(TERM));
    let note = scenario.supervisor.take_notes().remove(0);
    assert!(note.contains("the time limit of 3 s") && !note.contains("--grace"), "{note}");
    assert_eq!(scenario.supervisor.outcome().result, JobResult::RankFailed(Rank(0)));
}

#[test]
fn a_second_interrupt_kills() {
    let mut scenario = Scenario::begin(None);
    assert_eq!(scenario.event(5, Event::Interrupted(2)), Some(Command::Signal(2)));
    assert_eq!(scenario.event(5, Event::Interrupted(2)), Some(Command::Kill));
    assert_eq!(scenario.supervisor.outcome().result, JobResult::Interrupted(2));
}

#[test]
fn a_host_that_refuses_stops_the_others_at_once() {
    let mut scenario = Scenario::begin(None);
    let refusal = Refusal::NotFound("x".into());
    let event = Event::Refused { rank: Rank(2), refusal: refusal.clone() };
    assert_eq!(scenario.event(5, event), Some(TERM));
    scenario.exit(5, 0, Status::Killed(15));
    scenario.exit(5, 1, Status::Killed(15));
    assert!(scenario.supervisor.is_over());
    assert_eq!(scenario.supervisor.outcome().result, JobResult::NotStarted(Rank(2), refusal));
}

#[test]
fn a_lost_host_is_a_failure_of_its_ranks() {
    let mut scenario = Scenario::begin(None);
    assert_eq!(scenario.event(5, Event::HostLost { host: 1, why: "gone".into() }), None);
    assert_eq!(scenario.wait(5_000), Some(TERM));
    scenario.exit(5, 0, Status::Killed(15));
    scenario.exit(5, 1, Status::Killed(15));
    assert!(scenario.supervisor.is_over());
    // After the end, the loss of a host changes nothing.
    assert_eq!(scenario.event(5, Event::HostLost { host: 0, why: "gone".into() }), None);
    assert_eq!(
        scenario.supervisor.outcome().result,
        JobResult::HostLost("b".into(), "gone".into())
    );
}
