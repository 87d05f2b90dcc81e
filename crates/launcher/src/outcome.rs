//! The result of a job: of each rank, and of the whole.

use std::fmt;
use std::time::Duration;

use ringfold_types::Rank;

use crate::message::{Refusal, Status};
use crate::stream::{OUTPUT_CLOSED, StreamError};

/// How a job ended. [`Outcome::exit_code`] is for scripts, `Display` for people.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The decisive event.
    pub result: JobResult,
    /// The outcome of every rank, in order.
    pub ranks: Vec<RankOutcome>,
    /// The failure cause that the ranks agreed on, if they lived to report it.
    pub report: Option<String>,
}

/// The event that decided how a job ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum JobResult {
    /// Every rank returned 0.
    Success,
    /// This rank was the first to be killed or to return another status.
    RankFailed(Rank),
    /// A host could not start this rank, so no rank was left running.
    NotStarted(Rank, Refusal),
    /// A host went away with its ranks, for this reason.
    HostLost(String, String),
    /// `Job::time_limit` was reached.
    TimeLimit(Duration),
    /// This process received this signal.
    Interrupted(i32),
    /// The reader of this process's standard output or error has left.
    OutputClosed,
    /// This process cannot write the ranks' output, for this reason.
    OutputFailed(String),
}

impl JobResult {
    /// The result of a job whose output cannot be written.
    pub(crate) fn of_output(error: StreamError) -> Self {
        if error.is_closed() { Self::OutputClosed } else { Self::OutputFailed(error.to_string()) }
    }
}

/// The outcome of one rank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RankOutcome {
    /// The rank.
    pub rank: Rank,
    /// The host of the rank in the placement.
    pub host: String,
    /// Its process number there. `None` if it was not started.
    pub pid: Option<u32>,
    /// How it ended.
    pub end: End,
    /// The time from its start to its end.
    pub lasted: Duration,
    /// How many new processes were started for it. The others are those of the last one.
    pub restarts: u32,
}

/// How one rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It ended by itself, or by a signal from elsewhere.
    Alone(Status),
    /// It ended after the job had been told to stop.
    Stopped(Status),
    /// Its end is unknown: the connection to its host broke, or it was never started.
    Unknown,
}

impl Outcome {
    /// The exit status of the launcher: 0 if every rank returned 0, else that of the first rank
    /// that failed (128 + N if signal N killed it). It is 124 for the time limit, and 128 + N after
    /// signal N. It is 127 or 126 for a program that does not exist or is not executable. It is 141
    /// if the reader of the output has left, and 125 if the launcher itself failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let code = match &self.result {
            JobResult::Success => 0,
            JobResult::RankFailed(rank) => match self.ranks.get(rank.index()).map(|it| it.end) {
                Some(End::Alone(Status::Exited(code))) => code & 0xff,
                Some(End::Alone(Status::Killed(signal))) => signal.saturating_add(128),
                _ => 125,
            },
            JobResult::NotStarted(_, Refusal::NotFound(_)) => 127,
            JobResult::NotStarted(_, Refusal::NotExecutable { .. }) => 126,
            JobResult::NotStarted(..) | JobResult::HostLost(..) | JobResult::OutputFailed(_) => 125,
            JobResult::TimeLimit(_) => 124,
            JobResult::Interrupted(signal) => 128 + signal,
            JobResult::OutputClosed => i32::from(OUTPUT_CLOSED),
        };
        u8::try_from(code).unwrap_or(125)
    }

    /// Whether the result is that output was lost.
    pub(crate) fn is_about_output(&self) -> bool {
        matches!(self.result, JobResult::OutputClosed | JobResult::OutputFailed(_))
    }

    /// The ranks that were replaced or left out, if the job has ended well in spite of them.
    fn survival(&self) -> Option<String> {
        let list = |what: &str, ranks: Vec<String>| {
            (!ranks.is_empty()).then(|| format!("; {what}: rank {}", ranks.join(", rank ")))
        };
        let replaced = self.ranks.iter().filter(|it| it.restarts > 0).map(|it| match it.restarts {
            1 => it.rank.to_string(),
            times => format!("{} ({times} times)", it.rank),
        });
        let is_lost = |it: &&RankOutcome| it.failed_alone() || it.was_stopped();
        let lost = self.ranks.iter().filter(is_lost).map(|it| it.rank.to_string());
        let replaced = list("started again", replaced.collect());
        let lost = list("gone on without", lost.collect());
        let is_survival =
            self.result == JobResult::Success && (replaced.is_some() || lost.is_some());
        let [replaced, lost] = [replaced, lost].map(Option::unwrap_or_default);
        is_survival.then(|| format!("the job has ended well{replaced}{lost}"))
    }

    fn first(&self, rank: Rank) -> RankName<'_> {
        RankName { rank, outcome: self.ranks.get(rank.index()) }
    }

    /// `; 2 others failed, 3 were stopped`, or nothing.
    fn others(&self, but: Option<Rank>) -> String {
        let others = || self.ranks.iter().filter(|it| Some(it.rank) != but);
        let stopped = others().filter(|it| it.was_stopped()).count();
        let failed = others().filter(|it| it.failed_alone()).count();
        let mut parts = Vec::new();
        if failed > 0 {
            parts.push(format!("{} failed", count(failed, but.is_some())));
        }
        if stopped > 0 {
            let were = if stopped == 1 { "was" } else { "were" };
            let who = count(stopped, but.is_some() && parts.is_empty());
            let who = if parts.is_empty() { who } else { stopped.to_string() };
            parts.push(format!("{who} {were} stopped"));
        }
        if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) }
    }
}

impl RankOutcome {
    pub(crate) fn failed_alone(&self) -> bool {
        matches!(self.end, End::Alone(status) if status != Status::Exited(0))
    }

    fn was_stopped(&self) -> bool {
        matches!(self.end, End::Stopped(_)) || (self.end == End::Unknown && self.pid.is_some())
    }
}

fn count(number: usize, others: bool) -> String {
    match (number, others) {
        (1, true) => "1 other".to_owned(),
        (n, true) => format!("{n} others"),
        (1, false) => "1 rank".to_owned(),
        (n, false) => format!("{n} ranks"),
    }
}

/// Formats the report, if there is one, and a line for the result. For a success it formats the
/// ranks that were replaced or left out, which explain the report. Without any it formats only the
/// report, as the ranks returned 0 in spite of it. If the reader has left, it formats nothing. No
/// newline at the end.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.result == JobResult::OutputClosed {
            return Ok(());
        }
        if let Some(survival) = self.survival() {
            return f.write_str(&survival);
        }
        if let Some(report) = &self.report {
            let (before, after) = match self.result {
                JobResult::Success => ("every rank returned 0, though ", ""),
                _ => ("", "\n"),
            };
            write!(f, "{before}the ranks agree: {}{after}", report.escape_debug())?;
        }
        match &self.result {
            JobResult::Success | JobResult::OutputClosed => return Ok(()),
            JobResult::RankFailed(rank) => {
                let (name, others) = (self.first(*rank), self.others(Some(*rank)));
                return write!(f, "{name}{others}");
            }
            JobResult::NotStarted(rank, refusal) => {
                let host = self.ranks.get(rank.index()).map_or("?", |it| it.host.as_str());
                write!(f, "cannot start rank {rank} on host {host}: {refusal}")
            }
            JobResult::HostLost(host, why) => write!(f, "host {host} is lost: {why}"),
            JobResult::TimeLimit(limit) => {
                write!(f, "the time limit of {} s was reached", limit.as_secs_f64())
            }
            JobResult::Interrupted(signal) => write!(f, "interrupted by {}", Signal(*signal)),
            JobResult::OutputFailed(why) => write!(f, "{why}"),
        }?;
        write!(f, "{}", self.others(None))
    }
}

/// `rank 2 (pid 1234, host h1) was killed by signal 9 (SIGKILL) after 3.2 s`.
struct RankName<'a> {
    rank: Rank,
    outcome: Option<&'a RankOutcome>,
}

impl fmt::Display for RankName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        let Some(RankOutcome { host, pid, end, lasted, .. }) = self.outcome else { return Ok(()) };
        match pid {
            Some(pid) => write!(f, " (pid {pid}, host {host})")?,
            None => write!(f, " (host {host})")?,
        }
        match end {
            End::Alone(Status::Exited(code)) | End::Stopped(Status::Exited(code)) => {
                write!(f, " returned exit status {code}")?;
            }
            End::Alone(Status::Killed(signal)) | End::Stopped(Status::Killed(signal)) => {
                write!(f, " was killed by signal {signal} ({})", Signal(*signal))?;
            }
            End::Unknown => write!(f, " is lost")?,
        }
        write!(f, " after {:.1} s", lasted.as_secs_f64())
    }
}

/// A signal's name.
struct Signal(i32);

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 31] = [
            "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV",
            "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN",
            "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
        ];
        let at = usize::try_from(self.0).ok().and_then(|number| number.checked_sub(1));
        match at.and_then(|at| NAMES.get(at)) {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringfold_types::Rank;

    use super::{End, JobResult, Outcome, RankOutcome};
    use crate::message::{Refusal, Status};

    fn outcome(result: JobResult, ends: &[End]) -> Outcome {
        let ranks = ends.iter().enumerate().map(|(rank, end)| RankOutcome {
            rank: Rank::at(rank),
            host: "h1".into(),
            pid: Some(1234),
            end: *end,
            lasted: Duration::from_millis(3210),
            restarts: 0,
        });
        Outcome { result, ranks: ranks.collect(), report: None }
    }

    #[test]
    fn the_first_failure_is_named() {
        let killed = End::Alone(Status::Killed(9));
        let term = End::Stopped(Status::Killed(15));
        let it = outcome(JobResult::RankFailed(Rank(2)), &[term, term, killed, term]);
        assert_eq!(
            it.to_string(),
            "rank 2 (pid 1234, host h1) was killed by signal 9 (SIGKILL) after 3.2 s; \
             3 others were stopped"
        );
        assert_eq!(it.exit_code(), 137);
        let one = End::Alone(Status::Exited(1));
        let it = outcome(JobResult::RankFailed(Rank(0)), &[one, one, term, one]);
        let line = it.to_string();
        assert!(line.ends_with("exit status 1 after 3.2 s; 2 others failed, 1 was stopped"));
        assert_eq!(it.exit_code(), 1);
    }

    #[test]
    fn every_result_has_its_status() {
        let term = End::Stopped(Status::Killed(15));
        let done = End::Alone(Status::Exited(0));
        let it = outcome(JobResult::TimeLimit(Duration::from_millis(1500)), &[term, done]);
        assert_eq!(it.to_string(), "the time limit of 1.5 s was reached; 1 rank was stopped");
        assert_eq!(it.exit_code(), 124);
        let it = outcome(JobResult::Interrupted(2), &[term, term]);
        assert_eq!(it.to_string(), "interrupted by SIGINT; 2 ranks were stopped");
        assert_eq!(it.exit_code(), 130);
        let it = outcome(JobResult::OutputFailed("the disk is full".into()), &[term, done]);
        assert_eq!(
            (it.to_string().as_str(), it.exit_code()),
            ("the disk is full; 1 rank was stopped", 125)
        );
        let it = outcome(JobResult::OutputClosed, &[term, term]);
        let it = Outcome { report: Some("rank 1 is gone".into()), ..it };
        assert_eq!((it.to_string().as_str(), it.exit_code()), ("", 141));
        // A broken node agent may report such a signal.
        let it = outcome(JobResult::RankFailed(Rank(0)), &[End::Alone(Status::Killed(i32::MAX))]);
        assert_eq!(it.exit_code(), 125);
        let missing = Refusal::NotFound("foo".into());
        let it = outcome(JobResult::NotStarted(Rank(0), missing), &[done]);
        assert_eq!(it.to_string(), "cannot start rank 0 on host h1: program 'foo' not found");
        assert_eq!(it.exit_code(), 127);
        let it = outcome(JobResult::Success, &[done]);
        assert_eq!((it.to_string(), it.exit_code()), (String::new(), 0));
        let it = Outcome { report: Some("ranks differ".into()), ..it };
        let line = "every rank returned 0, though the ranks agree: ranks differ";
        assert_eq!((it.to_string().as_str(), it.exit_code()), (line, 0));
    }

    #[test]
    fn a_job_that_survives_names_the_ranks_that_were_replaced_or_left_out() {
        let (done, killed) = (End::Alone(Status::Exited(0)), End::Alone(Status::Killed(9)));
        let mut it = outcome(JobResult::Success, &[done, killed, done, End::Unknown]);
        it.report = Some("the process of rank 1 is gone".into());
        let line = "the job has ended well; gone on without: rank 1, rank 3";
        assert_eq!((it.to_string().as_str(), it.exit_code()), (line, 0));
        (it.ranks[0].restarts, it.ranks[1].restarts) = (2, 1);
        let line = "the job has ended well; started again: rank 0 (2 times), rank 1; gone on \
                    without: rank 1, rank 3";
        assert_eq!(it.to_string(), line);
        it.result = JobResult::RankFailed(Rank(1));
        assert!(it.to_string().starts_with("the ranks agree: "), "{it}");
    }
}
