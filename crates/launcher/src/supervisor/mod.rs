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
    Ready { host: usize },
    Started { rank: Rank, pid: u32 },
    Exited { rank: Rank, status: Status },
    Refused { rank: Rank, refusal: Refusal },
    HostLost { host: usize, why: String },
    Interrupted(i32),
    OutputLost(StreamError),
}

/// A command for every host, or for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Signal(i32),
    Kill,
    /// Start a new process for this rank on this host.
    Restart {
        rank: Rank,
        host: usize,
    },
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

#[derive(Debug)]
struct HostState {
    name: String,
    /// How many ranks of other hosts it takes.
    spare_slots: usize,
    is_lost: bool,
}

#[derive(Debug, Default)]
struct RankState {
    host: usize,
    pid: Option<u32>,
    started: Option<Instant>,
    ended: Option<(Instant, End)>,
    /// How often a new process was started for it.
    restarts: u32,
    /// The pause before the next one.
    pause: Duration,
    /// When the next one starts, and how the last one ended.
    waits: Option<(Instant, End)>,
}

impl RankState {
    const fn runs(&self) -> bool {
        self.ended.is_none() && self.waits.is_none()
    }
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// The hosts of the placement.
    hosts: Vec<HostState>,
    /// How long the others may go on after a failure. `None`: as long as they want.
    grace: Option<Duration>,
    time_limit: Option<(Duration, Instant)>,
    phase: Phase,
    result: Option<JobResult>,
    ranks: Vec<RankState>,
    notes: Vec<String>,
    /// How many new processes each rank may have.
    restarts: u32,
    /// The ranks whose processes have ended, and how, that nobody has taken.
    news: Vec<(Rank, String)>,
}

impl Supervisor {
    pub(crate) fn new(
        placement: &Placement,
        grace: Option<Duration>,
        time_limit: Option<Duration>,
        now: Instant,
    ) -> Self {
        let mut ranks: Vec<_> = (0..placement.size).map(|_| RankState::default()).collect();
        let mut hosts = Vec::new();
        for (at, share) in placement.hosts.iter().enumerate() {
            share.ranks.iter().for_each(|rank| ranks[rank.index()].host = at);
            let (name, spare_slots) = (share.host.clone(), share.spare_slots);
            hosts.push(HostState { name, spare_slots, is_lost: false });
        }
        Self {
            grace: grace.map(|grace| grace.min(GRACE_MAX)),
            time_limit: time_limit.and_then(|limit| Some((limit, now.checked_add(limit)?))),
            phase: Phase::Running,
            result: None,
            ranks,
            hosts,
            notes: Vec::new(),
            restarts: 0,
            news: Vec::new(),
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

    /// Takes the lines that tell users what they could not expect.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes the ranks whose processes have ended, and how.
    pub(crate) fn take_ended(&mut self) -> Vec<(Rank, String)> {
        std::mem::take(&mut self.news)
    }

    /// Ends a job before its ranks have started, after an event or at the deadline.
    pub(crate) fn call_off(&mut self, event: Option<Event>, now: Instant) {
        match event {
            Some(event) => self.on_event(event, now),
            None => self.on_time(now),
        };
        self.give_up(0..self.ranks.len(), now);
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
                self.notes.extend(self.why_to_stop(limit));
                if let Some(limit) = limit {
                    self.end_by(JobResult::TimeLimit(limit));
                }
                Some(self.stop(Signal::TERM.as_raw(), now))
            }
            Phase::Stopping(_) => {
                let (ranks, stopping) = (self.still_running(), STOPPING.as_secs());
                self.notes.push(format!(
                    "{ranks} {stopping} s after the signal to stop: SIGKILL follows"
                ));
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
            Event::Ready { .. } => None,
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
                let state = self.ranks.get(rank.index())?;
                let host = state.host;
                if state.restarts > 0 {
                    self.on_refusal(rank, &refusal, now);
                    return None;
                }
                let ranks = self.ranks_of(host);
                self.give_up(ranks.iter().copied(), now);
                // The processes that existed were no ranks yet.
                ranks.iter().for_each(|at| self.ranks[*at].pid = None);
                self.result.get_or_insert(JobResult::NotStarted(rank, refusal));
                self.stop_once(now)
            }
            Event::HostLost { host, why } => {
                self.on_lost_host(host, why, now);
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
        let ranks = self.ranks.into_iter().enumerate().map(|(rank, state)| {
            let (started, ended) = (state.started, state.ended.map(|(at, _)| at));
            let host = self.hosts.get(state.host);
            RankOutcome {
                rank: Rank::at(rank),
                host: host.map(|host| host.name.clone()).unwrap_or_default(),
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
        let how = match status {
            Status::Exited(code) => format!("exit status {code}"),
            Status::Killed(signal) => format!("killed by signal {signal}"),
        };
        self.news.push((rank, how));
        let end = End::Alone(status);
        if stopped {
            state.ended = Some((now, End::Stopped(status)));
            return;
        }
        if status == Status::Exited(0) {
            state.ended = Some((now, end));
        } else {
            let host = state.host;
            self.result.get_or_insert(JobResult::RankFailed(rank));
            self.on_failed_rank(rank, (end, &describe(status)), host, now);
        }
        self.end_the_waiting(now, false);
    }

    /// A new process of a rank could not be started on its host.
    fn on_refusal(&mut self, rank: Rank, refusal: &Refusal, now: Instant) {
        let at = rank.index();
        if self.ranks.get(at).is_some_and(RankState::runs) {
            let host = self.ranks[at].host;
            let how = format!("cannot start on host {} ({refusal})", self.hosts[host].name);
            let spare = self.may_restart(at).then(|| self.take_spare_slot()).flatten();
            self.on_failed_rank(rank, (End::Unknown, &how), spare.unwrap_or(host), now);
            self.end_the_waiting(now, false);
        }
    }

    /// The ranks of a lost host start again on spare hosts, as far as there are any.
    fn on_lost_host(&mut self, host: usize, why: String, now: Instant) {
        let Some(state) = self.hosts.get_mut(host) else { return };
        state.is_lost = true;
        let (name, ranks) = (state.name.clone(), self.ranks_of(host));
        let ranks: Vec<_> =
            ranks.into_iter().filter(|at| self.ranks[*at].ended.is_none()).collect();
        let goes_on = self.phase == Phase::Running && self.grace.is_none();
        if goes_on && (!ranks.is_empty() || self.hosts[host].spare_slots > 0) {
            self.notes.push(format!("host {name} is lost: {why}"));
        }
        if ranks.is_empty() {
            return;
        }
        self.result.get_or_insert_with(|| JobResult::HostLost(name.clone(), why));
        let mut are_lost = false;
        for at in ranks {
            let rank = Rank::at(at);
            self.news.push((rank, format!("lost with host {name}")));
            // A rank that has never run is awaited by the others as it was, and not as a new one.
            let may_restart = goes_on && self.may_restart(at) && self.ranks[at].pid.is_some();
            match may_restart.then(|| self.take_spare_slot()).flatten() {
                Some(host) => {
                    let end = self.ranks[at].waits.map_or(End::Unknown, |(_, end)| end);
                    self.on_failed_rank(rank, (end, "is lost with its host"), host, now);
                }
                None => are_lost |= self.give_up([at], now),
            }
        }
        if are_lost {
            self.on_failure(&format!("the loss of host {name}"), now);
        }
        self.end_the_waiting(now, false);
    }

    /// Starts a new process for a rank on this host after a pause, if it may have one more.
    fn on_failed_rank(&mut self, rank: Rank, (end, how): (End, &str), host: usize, now: Instant) {
        let may_restart = self.may_restart(rank.index());
        let Some(state) = self.ranks.get_mut(rank.index()) else { return };
        let times = state.restarts;
        if !may_restart {
            (state.ended, state.waits) = (Some((now, end)), None);
            let again =
                if times > 0 { format!(" after {times} new starts") } else { String::new() };
            return self.on_failure(&format!("the failure of rank {rank}{again}"), now);
        }
        let lasted = state.started.map_or(Duration::ZERO, |started| now - started);
        let longer = (2 * state.pause).clamp(PAUSE_MIN, PAUSE_MAX);
        state.pause = if lasted < STEADY { longer } else { PAUSE_MIN };
        state.waits = Some((now + state.pause, end));
        let place = match self.hosts.get(host) {
            Some(it) if host != state.host => format!(" on host {}", it.name),
            _ => String::new(),
        };
        state.host = host;
        let (pause, next, most) = (state.pause.as_secs_f64(), times + 1, self.restarts);
        self.notes.push(format!(
            "rank {rank} {how}, and starts again in {pause} s{place} ({next} of {most} times)"
        ));
    }

    fn may_restart(&self, rank: usize) -> bool {
        self.ranks.get(rank).is_some_and(|state| state.restarts < self.restarts)
    }

    /// A spare host for a rank of another host.
    fn take_spare_slot(&mut self) -> Option<usize> {
        let at = self.hosts.iter().position(|it| !it.is_lost && it.spare_slots > 0)?;
        self.hosts.get_mut(at)?.spare_slots -= 1;
        Some(at)
    }

    /// Starts the next rank that has waited long enough.
    fn start_again(&mut self, now: Instant) -> Option<Command> {
        let is_due = |it: &RankState| it.waits.is_some_and(|(at, _)| at <= now);
        let at = self.ranks.iter().position(is_due)?;
        let state = self.ranks.get_mut(at)?;
        (state.waits, state.started) = (None, Some(now));
        state.restarts += 1;
        Some(Command::Restart { rank: Rank::at(at), host: state.host })
    }

    /// The ranks that wait for a new start have ended, if no rank runs that could admit them, or
    /// the job stops.
    fn end_the_waiting(&mut self, now: Instant, stops: bool) {
        if !stops && self.ranks.iter().any(RankState::runs) {
            return;
        }
        for state in &mut self.ranks {
            if let Some((_, end)) = state.waits.take() {
                state.ended = Some((now, end));
            }
        }
    }

    fn on_failure(&mut self, failure: &str, now: Instant) {
        if let Some(grace) = self.grace
            && self.phase == Phase::Running
        {
            self.phase = Phase::Grace(now + grace);
        } else if self.grace.is_none() && !self.is_over() {
            self.notes.push(format!("{} after {failure}", self.still_running()));
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
        (0..self.ranks.len()).filter(|at| self.ranks[*at].host == host).collect()
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
mod tests;
