//! Decides when to let ranks run, when to stop them, and when the job is over. It does no I/O:
//! events and times in, orders out.

use std::time::{Duration, Instant};

use ringfold_types::Rank;
use rustix::process::Signal;

use crate::message::{Refusal, Status};
use crate::outcome::{End, JobResult, Outcome, RankOutcome};
use crate::placement::Placement;
use crate::stream::StreamError;

/// The time for ranks to end after they have been asked to, before they are killed.
const STOPPING: Duration = Duration::from_secs(2);

/// The time for reports of killed ranks to arrive. After it, the host counts as lost.
const KILLING: Duration = Duration::from_secs(5);

/// A grace that is practically unlimited, and that a clock can add.
const GRACE_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Failures this close together count as one, and a crash is named before the failures that it
/// caused.
const SAME_MOMENT: Duration = Duration::from_millis(100);

/// The pause before a rank is started again. It doubles while the processes of the rank live less
/// than `STEADY`.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const STEADY: Duration = Duration::from_secs(10);

/// An event of a job.
#[derive(Debug)]
pub(crate) enum Event {
    Started { rank: Rank, pid: u32 },
    Exited { rank: Rank, status: Status },
    Refused { rank: Rank, refusal: Refusal },
    HostLost { host: usize, why: String },
    Interrupted(i32),
    OutputLost(StreamError),
}

/// A command for every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Signal(i32),
    Kill,
    /// Start a new process for this rank.
    Restart(Rank),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// A rank has failed. The others have until this time.
    Grace(Instant),
    /// All have been asked to stop and have until this time.
    Stopping(Instant),
    /// All have been killed. Reports of it arrive until this time.
    Killing(Instant),
}

#[derive(Debug, Default)]
struct RankState {
    pid: Option<u32>,
    started: Option<Instant>,
    ended: Option<(Instant, End)>,
    /// How often a new process was started for it.
    restarts: u32,
    /// The pause before the next one.
    pause: Duration,
    /// When the next one starts, and how the last one ended.
    waits: Option<(Instant, Status)>,
}

impl RankState {
    const fn runs(&self) -> bool {
        self.ended.is_none() && self.waits.is_none()
    }
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Supervisor {
    placement: Placement,
    /// How long the others may go on after a failure. `None`: as long as they want.
    grace: Option<Duration>,
    time_limit: Option<(Duration, Instant)>,
    phase: Phase,
    result: Option<JobResult>,
    ranks: Vec<RankState>,
    note: Option<String>,
    /// How many new processes each rank may have.
    restarts: u32,
}

impl Supervisor {
    pub(crate) fn new(
        placement: Placement,
        grace: Option<Duration>,
        time_limit: Option<Duration>,
        now: Instant,
    ) -> Self {
        Self {
            grace: grace.map(|grace| grace.min(GRACE_MAX)),
            time_limit: time_limit.and_then(|limit| Some((limit, now.checked_add(limit)?))),
            phase: Phase::Running,
            result: None,
            ranks: (0..placement.size).map(|_| RankState::default()).collect(),
            placement,
            note: None,
            restarts: 0,
        }
    }

    /// Allows so many new processes for each rank that fails. The others then go on.
    pub(crate) fn allow_restarts(&mut self, times: Option<u32>) {
        if let Some(times) = times {
            (self.restarts, self.grace) = (times, None);
        }
    }

    /// Whether every rank has ended, or has been given up.
    pub(crate) fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.ended.is_some())
    }

    /// When `on_time` is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => {
                let restart = self.ranks.iter().filter_map(|rank| Some(rank.waits?.0)).min();
                self.time_limit.map(|(_, at)| at).into_iter().chain(restart).min()
            }
            Phase::Grace(until) => {
                Some(self.time_limit.map_or(until, |(_, limit)| limit.min(until)))
            }
            Phase::Stopping(until) | Phase::Killing(until) => Some(until),
        }
    }

    /// Takes the line that tells users about the last command, if they could not expect it.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Handles a deadline that may have passed.
    pub(crate) fn on_time(&mut self, now: Instant) -> Option<Command> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        let is_late = self.time_limit.is_some_and(|(_, limit)| limit <= now);
        if self.phase == Phase::Running && !is_late {
            return self.start_again(now);
        }
        match self.phase {
            Phase::Running | Phase::Grace(_) => {
                let limit = self.time_limit.filter(|(_, at)| *at <= now).map(|(limit, _)| limit);
                self.note = self.why_to_stop(limit);
                if let Some(limit) = limit {
                    self.end_by(JobResult::TimeLimit(limit));
                }
                Some(self.stop(Signal::TERM.as_raw(), now))
            }
            Phase::Stopping(_) => {
                let (ranks, stopping) = (self.still_running(), STOPPING.as_secs());
                self.note =
                    Some(format!("{ranks} {stopping} s after the signal to stop: SIGKILL follows"));
                Some(self.kill(now))
            }
            Phase::Killing(_) => {
                self.give_up(0..self.ranks.len(), now);
                None
            }
        }
    }

    /// Handles an event.
    pub(crate) fn on_event(&mut self, event: Event, now: Instant) -> Option<Command> {
        match event {
            Event::Started { rank, pid } => {
                let state = self.ranks.get_mut(rank.index())?;
                (state.pid, state.started) = (Some(pid), Some(now));
                None
            }
            Event::Exited { rank, status } => {
                self.on_exit(rank, status, now);
                None
            }
            Event::Refused { rank, refusal } => {
                let host =
                    self.placement.hosts.iter().position(|share| share.ranks.contains(&rank))?;
                let ranks = self.ranks_of(host);
                self.give_up(ranks.iter().copied(), now);
                // The processes that existed were no ranks yet.
                ranks.iter().for_each(|at| self.ranks[*at].pid = None);
                self.result.get_or_insert(JobResult::NotStarted(rank, refusal));
                self.stop_once(now)
            }
            Event::HostLost { host, why } => {
                let name = self.placement.hosts.get(host)?.host.clone();
                if self.give_up(self.ranks_of(host), now) {
                    let failure = format!("the loss of host {name}");
                    self.result.get_or_insert(JobResult::HostLost(name, why));
                    self.on_failure(&failure, now);
                }
                None
            }
            Event::Interrupted(signal) => match self.phase {
                Phase::Running | Phase::Grace(_) => {
                    self.end_by(JobResult::Interrupted(signal));
                    Some(self.stop(signal, now))
                }
                Phase::Stopping(_) | Phase::Killing(_) => Some(self.kill(now)),
            },
            Event::OutputLost(error) => {
                self.end_by(JobResult::of_output(error));
                self.stop_once(now)
            }
        }
    }

    /// The outcome, after the job is over.
    pub(crate) fn outcome(self) -> Outcome {
        let mut hosts = vec![String::new(); self.ranks.len()];
        for share in &self.placement.hosts {
            for rank in &share.ranks {
                hosts[rank.index()].clone_from(&share.host);
            }
        }
        let result = match self.result {
            None => JobResult::Success,
            Some(JobResult::RankFailed(_) | JobResult::HostLost(..)) if self.has_recovered() => {
                JobResult::Success
            }
            Some(JobResult::RankFailed(first)) => {
                JobResult::RankFailed(culprit(&self.ranks, first))
            }
            Some(result) => result,
        };
        let ranks = self.ranks.into_iter().zip(hosts).enumerate().map(|(rank, (state, host))| {
            let (started, ended) = (state.started, state.ended.map(|(at, _)| at));
            RankOutcome {
                rank: Rank::at(rank),
                host,
                pid: state.pid,
                end: state.ended.map_or(End::Unknown, |(_, end)| end),
                lasted: ended.zip(started).map(|(to, from)| to - from).unwrap_or_default(),
                restarts: state.restarts,
            }
        });
        Outcome { result, ranks: ranks.collect(), report: None }
    }

    fn on_exit(&mut self, rank: Rank, status: Status, now: Instant) {
        let stopped = matches!(self.phase, Phase::Stopping(_) | Phase::Killing(_));
        let Some(state) = self.ranks.get_mut(rank.index()) else { return };
        if state.ended.is_some() {
            return;
        }
        if stopped {
            state.ended = Some((now, End::Stopped(status)));
            return;
        }
        if status == Status::Exited(0) {
            state.ended = Some((now, End::Alone(status)));
        } else {
            self.result.get_or_insert(JobResult::RankFailed(rank));
            if state.restarts < self.restarts {
                let lasted = state.started.map_or(Duration::ZERO, |started| now - started);
                let longer = (2 * state.pause).clamp(PAUSE_MIN, PAUSE_MAX);
                state.pause = if lasted < STEADY { longer } else { PAUSE_MIN };
                state.waits = Some((now + state.pause, status));
                let pause = state.pause.as_secs_f64();
                let (next, times) = (state.restarts + 1, self.restarts);
                let how = describe(status);
                self.note = Some(format!(
                    "rank {rank} {how}, and starts again in {pause} s ({next} of {times} times)"
                ));
            } else {
                let times = state.restarts;
                state.ended = Some((now, End::Alone(status)));
                let again =
                    if times > 0 { format!(" after {times} new starts") } else { String::new() };
                self.on_failure(&format!("the failure of rank {rank}{again}"), now);
            }
        }
        self.end_the_waiting(now, false);
    }

    /// Starts the next rank that has waited long enough.
    fn start_again(&mut self, now: Instant) -> Option<Command> {
        let is_due = |it: &RankState| it.waits.is_some_and(|(at, _)| at <= now);
        let at = self.ranks.iter().position(is_due)?;
        let state = self.ranks.get_mut(at)?;
        (state.waits, state.started) = (None, Some(now));
        state.restarts += 1;
        Some(Command::Restart(Rank::at(at)))
    }

    /// The ranks that wait for a new start have ended, if no rank runs that could admit them, or
    /// the job stops.
    fn end_the_waiting(&mut self, now: Instant, stops: bool) {
        if !stops && self.ranks.iter().any(RankState::runs) {
            return;
        }
        for state in &mut self.ranks {
            if let Some((_, status)) = state.waits.take() {
                state.ended = Some((now, End::Alone(status)));
            }
        }
    }

    fn on_failure(&mut self, failure: &str, now: Instant) {
        if let Some(grace) = self.grace
            && self.phase == Phase::Running
        {
            self.phase = Phase::Grace(now + grace);
        } else if self.grace.is_none() && !self.is_over() {
            self.note = Some(format!("{} after {failure}", self.still_running()));
        }
    }

    /// The job ends for this reason, unless it ends for another one already. Failures after which
    /// ranks go on are none.
    fn end_by(&mut self, result: JobResult) {
        if self.grace.is_none()
            && matches!(self.result, Some(JobResult::RankFailed(_) | JobResult::HostLost(..)))
        {
            self.result = Some(result);
        } else {
            self.result.get_or_insert(result);
        }
    }

    /// Whether ranks went on after a failure, and one of them has ended well.
    fn has_recovered(&self) -> bool {
        let ended_well =
            |it: &RankState| matches!(it.ended, Some((_, End::Alone(Status::Exited(0)))));
        self.grace.is_none() && self.ranks.iter().any(ended_well)
    }

    /// The failure of a rank or a host.
    fn failure(&self) -> Option<String> {
        match &self.result {
            Some(JobResult::RankFailed(rank)) => Some(format!("the failure of rank {rank}")),
            Some(JobResult::HostLost(host, _)) => Some(format!("the loss of host {host}")),
            _ => None,
        }
    }

    fn stop_once(&mut self, now: Instant) -> Option<Command> {
        let running = matches!(self.phase, Phase::Running | Phase::Grace(_));
        running.then(|| self.stop(Signal::TERM.as_raw(), now))
    }

    /// The line that says why ranks are stopped that have not failed.
    fn why_to_stop(&self, limit: Option<Duration>) -> Option<String> {
        let failure = self.failure()?;
        let (ranks, grace) = (self.still_running(), self.grace.unwrap_or_default().as_secs_f64());
        let seconds = STOPPING.as_secs();
        Some(match limit {
            Some(limit) => {
                let limit = limit.as_secs_f64();
                format!(
                    "{ranks} after {failure}, and the time limit of {limit} s is reached: \
                         SIGTERM follows, and SIGKILL {seconds} s later"
                )
            }
            None => format!(
                "{ranks} {grace} s after {failure}: SIGTERM follows, and SIGKILL {seconds} s \
                 later (ringrun --grace SECONDS gives survivors more time)"
            ),
        })
    }

    /// `2 ranks still run`.
    fn still_running(&self) -> String {
        let running = self.ranks.iter().filter(|rank| rank.runs()).count();
        if running == 1 { "1 rank still runs".into() } else { format!("{running} ranks still run") }
    }

    fn stop(&mut self, signal: i32, now: Instant) -> Command {
        self.end_the_waiting(now, true);
        self.phase = Phase::Stopping(now + STOPPING);
        Command::Signal(signal)
    }

    fn kill(&mut self, now: Instant) -> Command {
        self.phase = Phase::Killing(now + KILLING);
        Command::Kill
    }

    fn ranks_of(&self, host: usize) -> Vec<usize> {
        let share = self.placement.hosts.get(host);
        share.map(|share| share.ranks.iter().map(|rank| rank.index()).collect()).unwrap_or_default()
    }

    /// Expects no more reports of these ranks. Returns whether any was expected.
    fn give_up(&mut self, ranks: impl IntoIterator<Item = usize>, now: Instant) -> bool {
        let mut any = false;
        for rank in ranks {
            if let Some(state) = self.ranks.get_mut(rank)
                && state.ended.is_none()
            {
                (state.ended, state.waits) = (Some((now, End::Unknown)), None);
                any = true;
            }
        }
        any
    }
}

/// How a process has ended, after its name.
fn describe(status: Status) -> String {
    match status {
        Status::Exited(code) => format!("returned {code}"),
        Status::Killed(signal) => format!("was killed by signal {signal}"),
    }
}

/// The rank to name: the first rank killed within `SAME_MOMENT` of the first failure, else the
/// first that failed.
fn culprit(ranks: &[RankState], first: Rank) -> Rank {
    let at = |index: usize| ranks.get(index).and_then(|rank| rank.ended);
    let Some((start, End::Alone(Status::Exited(_)))) = at(first.index()) else { return first };
    let killed = (0..ranks.len()).filter_map(|index| match at(index) {
        Some((when, End::Alone(Status::Killed(_)))) if when - start <= SAME_MOMENT => {
            Some((when, Rank::at(index)))
        }
        _ => None,
    });
    killed.min().map_or(first, |(_, rank)| rank)
}

#[cfg(test)]
mod tests {
    //! Runs jobs without processes and without waiting.

    use std::time::{Duration, Instant};

    use ringfold_types::Rank;

    use super::{Command, Event, Supervisor};
    use crate::hosts::parse_list;
    use crate::message::{Refusal, Status};
    use crate::outcome::{End, JobResult};
    use crate::placement::Placement;

    const TERM: Command = Command::Signal(15);

    struct Scenario {
        supervisor: Supervisor,
        now: Instant,
    }

    impl Scenario {
        /// Four started ranks on two hosts with a grace of 5 s.
        fn begin(limit: Option<Duration>) -> Self {
            let placement = Placement::place(None, &parse_list("a:2,b:2").unwrap(), false).unwrap();
            let now = Instant::now();
            let grace = Some(Duration::from_secs(5));
            let supervisor = Supervisor::new(placement, grace, limit, now);
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
            let note = scenario.supervisor.take_note().unwrap();
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
            let note = scenario.supervisor.take_note().unwrap();
            assert!(
                note.contains(&format!("rank 2 returned 3, and starts again in {time} s")),
                "{note}"
            );
            assert_eq!(scenario.wait(pause - 1), None);
            assert_eq!(scenario.wait(1), Some(Command::Restart(Rank(2))));
        }
        scenario.exit(0, 2, Status::Exited(3));
        let note = scenario.supervisor.take_note().unwrap();
        assert!(
            note.contains("3 ranks still run after the failure of rank 2 after 3 new"),
            "{note}"
        );
        // A process that has lived long starts again soon.
        for _ in 0..2 {
            scenario.exit(10_000, 1, Status::Killed(9));
            assert_eq!(scenario.wait(100), Some(Command::Restart(Rank(1))));
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
        assert_eq!(
            (outcome.result.clone(), outcome.exit_code()),
            (JobResult::RankFailed(Rank(0)), 3)
        );
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
        assert_eq!(scenario.supervisor.take_note(), None);
        assert_eq!(scenario.wait(1), Some(TERM));
        let note = scenario.supervisor.take_note().unwrap();
        assert!(note.starts_with("2 ranks still run 5 s after the failure of rank 2: "), "{note}");
        assert!(note.contains("--grace SECONDS"), "{note}");
        scenario.exit(100, 1, Status::Killed(15));
        assert_eq!(scenario.wait(1_900), Some(Command::Kill));
        let note = scenario.supervisor.take_note().unwrap();
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
        let note = scenario.supervisor.take_note().unwrap();
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
}
