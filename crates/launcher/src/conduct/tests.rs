//! A job's life without processes and without waiting.

use std::time::{Duration, Instant};

use ringfold_types::Rank;

use super::{Command, Conductor, Event};
use crate::hosts::parse_list;
use crate::message::{Refusal, Status};
use crate::outcome::{End, Verdict};
use crate::plan::Plan;

const TERM: Command = Command::Signal(15);

struct Story {
    conductor: Conductor,
    now: Instant,
}

impl Story {
    /// Four ranks on two hosts, grace 5 s, started.
    fn begin(limit: Option<Duration>) -> Self {
        let plan = Plan::place(None, &parse_list("a:2,b:2").unwrap(), false).unwrap();
        let now = Instant::now();
        let conductor = Conductor::new(plan, Duration::from_secs(5), limit, now);
        let mut story = Self { conductor, now };
        for rank in 0..4 {
            story.event(0, Event::Started { rank: Rank(rank), pid: 100 + rank });
        }
        story
    }

    fn wait(&mut self, ms: u64) -> Option<Command> {
        self.now += Duration::from_millis(ms);
        self.conductor.on_time(self.now)
    }

    fn event(&mut self, ms: u64, event: Event) -> Option<Command> {
        assert_eq!(self.wait(ms), None);
        self.conductor.on_event(event, self.now)
    }

    fn exit(&mut self, ms: u64, rank: u32, status: Status) {
        assert_eq!(self.event(ms, Event::Exited { rank: Rank(rank), status }), None);
    }
}

#[test]
fn success() {
    let mut story = Story::begin(None);
    for rank in 0..4 {
        assert!(!story.conductor.is_over());
        story.exit(10_000, rank, Status::Exited(0));
    }
    assert!(story.conductor.is_over());
    let outcome = story.conductor.outcome();
    assert_eq!(outcome.verdict, Verdict::Success);
    assert_eq!(outcome.ranks[3].lasted, Duration::from_secs(40));
    assert_eq!(outcome.ranks[3].host, "b");
}

#[test]
fn others_get_their_grace_then_a_signal_then_the_end() {
    let mut story = Story::begin(None);
    story.exit(10, 2, Status::Exited(3));
    story.exit(500, 0, Status::Exited(1));
    assert_eq!(story.wait(4_499), None);
    assert_eq!(story.wait(1), Some(TERM));
    story.exit(100, 1, Status::Killed(15));
    assert_eq!(story.wait(1_900), Some(Command::Kill));
    assert!(!story.conductor.is_over());
    story.exit(10, 3, Status::Killed(9));
    assert!(story.conductor.is_over());
    let outcome = story.conductor.outcome();
    assert_eq!(outcome.verdict, Verdict::RankFailed(Rank(2)));
    assert_eq!(outcome.ranks[0].end, End::Alone(Status::Exited(1)));
    assert_eq!(outcome.ranks[1].end, End::Stopped(Status::Killed(15)));
    assert_eq!(outcome.exit_code(), 3);
}

#[test]
fn a_crash_is_named_before_the_complaints_about_it() {
    let mut story = Story::begin(None);
    story.exit(10, 1, Status::Exited(1));
    story.exit(5, 3, Status::Killed(11));
    story.exit(5, 0, Status::Exited(1));
    story.exit(200, 2, Status::Killed(6));
    let outcome = story.conductor.outcome();
    assert_eq!(outcome.verdict, Verdict::RankFailed(Rank(3)));
    assert_eq!(outcome.exit_code(), 139);
}

#[test]
fn silence_after_the_kill_is_not_waited_for() {
    let mut story = Story::begin(Some(Duration::from_secs(3)));
    assert_eq!(story.wait(3_000), Some(TERM));
    assert_eq!(story.wait(2_000), Some(Command::Kill));
    assert_eq!(story.wait(5_000), None);
    assert!(story.conductor.is_over());
    let outcome = story.conductor.outcome();
    assert_eq!(outcome.verdict, Verdict::TimeLimit(Duration::from_secs(3)));
    assert_eq!(outcome.ranks[0].end, End::Unknown);
}

#[test]
fn the_time_limit_cuts_the_grace_short_but_not_the_blame() {
    let mut story = Story::begin(Some(Duration::from_secs(3)));
    story.exit(1_000, 0, Status::Exited(7));
    assert_eq!(story.wait(2_000), Some(TERM));
    assert_eq!(story.conductor.outcome().verdict, Verdict::RankFailed(Rank(0)));
}

#[test]
fn a_second_interrupt_kills() {
    let mut story = Story::begin(None);
    assert_eq!(story.event(5, Event::Interrupted(2)), Some(Command::Signal(2)));
    assert_eq!(story.event(5, Event::Interrupted(2)), Some(Command::Kill));
    assert_eq!(story.conductor.outcome().verdict, Verdict::Interrupted(2));
}

#[test]
fn a_host_that_refuses_stops_the_others_at_once() {
    let mut story = Story::begin(None);
    let refusal = Refusal::NotFound("x".into());
    let event = Event::Refused { rank: Rank(2), refusal: refusal.clone() };
    assert_eq!(story.event(5, event), Some(TERM));
    story.exit(5, 0, Status::Killed(15));
    story.exit(5, 1, Status::Killed(15));
    assert!(story.conductor.is_over());
    assert_eq!(story.conductor.outcome().verdict, Verdict::NotStarted(Rank(2), refusal));
}

#[test]
fn a_lost_host_is_a_failure_of_its_ranks() {
    let mut story = Story::begin(None);
    assert_eq!(story.event(5, Event::HostLost { host: 1, why: "gone".into() }), None);
    assert_eq!(story.wait(5_000), Some(TERM));
    story.exit(5, 0, Status::Killed(15));
    story.exit(5, 1, Status::Killed(15));
    assert!(story.conductor.is_over());
    // After the end, the loss of a host is no news.
    assert_eq!(story.event(5, Event::HostLost { host: 0, why: "gone".into() }), None);
    assert_eq!(story.conductor.outcome().verdict, Verdict::HostLost("b".into(), "gone".into()));
}
