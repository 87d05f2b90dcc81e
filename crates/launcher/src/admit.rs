//! Admits the reports that a host may make. A broken node agent, or a foreign process in its place,
//! can end its own part of a job. It cannot report for another host, flood the launcher, or control
//! a terminal. This module does no I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ringfold_types::limits::{CAUSE_BYTES_MAX, LINE_BYTES_MAX};

use crate::message::{Refusal, Up};

/// The most bytes of one output report. A node agent reads less at once, and completes one line
/// with it.
const OUTPUT_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// The reports of one host so far.
#[derive(Debug)]
pub(crate) struct Admission {
    ranks: HashMap<u32, Reported>,
    /// How many restarts the launcher has ordered, and the host has not reported.
    restarts: Arc<AtomicU32>,
    /// Whether a piece of input is on its way there. The launcher sends input to the host of rank 0
    /// only.
    piece_out: Arc<AtomicBool>,
}

/// The reports of one rank so far. Each kind comes once.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    started: bool,
    exited: bool,
    refused: bool,
}

/// Why the launcher refuses a report.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportError {
    /// The rank runs on another host, or nowhere.
    #[error("it reports on rank {0}, which does not run there")]
    ForeignRank(u32),
    /// A process of a rank starts and ends once.
    #[error("it reports the same event of rank {0} twice")]
    Twice(u32),
    /// The launcher sent no input there, or the host has already reported it.
    #[error("it reports input that was not sent to it")]
    NoInput,
    /// More output than a node agent sends at once.
    #[error("it reports {0} bytes of output at once")]
    TooLong(usize),
}

impl Admission {
    /// Makes the admission for the host of these ranks.
    pub(crate) fn of(ranks: &[u32]) -> Self {
        let ranks = ranks.iter().map(|rank| (*rank, Reported::default())).collect();
        Self { ranks, piece_out: Arc::default(), restarts: Arc::default() }
    }

    /// The flag that the launcher must set before it sends a piece of input to the host.
    pub(crate) fn piece_out(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.piece_out)
    }

    /// The number of restarts that the launcher has ordered and the host has not reported.
    pub(crate) fn restarts(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.restarts)
    }

    /// Checks a report and makes its texts printable.
    ///
    /// # Errors
    /// No node agent of these ranks sends such a report.
    pub(crate) fn admit(&mut self, report: Up) -> Result<Up, ReportError> {
        if let Up::Started { rank, .. } = &report
            && let Some(reported) = self.ranks.get_mut(rank)
            && reported.exited
            && self
                .restarts
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1))
                .is_ok()
        {
            *reported = Reported::default();
        }
        let mut once = |rank: u32, which: fn(&mut Reported) -> &mut bool| {
            let reported = self.ranks.get_mut(&rank).ok_or(ReportError::ForeignRank(rank))?;
            let before = std::mem::replace(which(reported), true);
            if before { Err(ReportError::Twice(rank)) } else { Ok(()) }
        };
        match &report {
            Up::Started { rank, .. } => once(*rank, |reported| &mut reported.started)?,
            Up::Exited { rank, .. } => once(*rank, |reported| &mut reported.exited)?,
            Up::Refused { rank, .. } => once(*rank, |reported| &mut reported.refused)?,
            Up::Output { rank, bytes, .. } => {
                if !self.ranks.contains_key(rank) {
                    return Err(ReportError::ForeignRank(*rank));
                }
                if bytes.len() > OUTPUT_BYTES_MAX {
                    return Err(ReportError::TooLong(bytes.len()));
                }
            }
            Up::InputTaken => {
                if !self.piece_out.swap(false, Ordering::Relaxed) {
                    return Err(ReportError::NoInput);
                }
            }
            Up::Leaving { .. } | Up::Heartbeat => {}
        }
        Ok(match report {
            Up::Refused { rank, refusal } => Up::Refused { rank, refusal: readable(refusal) },
            Up::Leaving { why } => Up::Leaving { why: printable(&why) },
            other => other,
        })
    }
}

fn readable(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::NotFound(program) => Refusal::NotFound(printable(&program)),
        Refusal::NotExecutable { program, error } => {
            Refusal::NotExecutable { program: printable(&program), error: printable(&error) }
        }
        Refusal::Directory(path) => Refusal::Directory(printable(&path)),
        Refusal::System(why) => Refusal::System(printable(&why)),
    }
}

/// The beginning of a foreign text, with control characters escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::new();
    for c in text.chars() {
        if printable.len() >= CAUSE_BYTES_MAX {
            break;
        }
        if c.is_control() { printable.extend(c.escape_default()) } else { printable.push(c) }
    }
    printable
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use ringfold_types::limits::CAUSE_BYTES_MAX;

    use super::{Admission, OUTPUT_BYTES_MAX, ReportError, printable};
    use crate::message::{Refusal, Status, Up};
    use crate::stream::Stream;

    fn output(rank: u32, length: usize) -> Up {
        Up::Output { rank, stream: Stream::Out, bytes: vec![b'x'; length] }
    }

    #[test]
    fn a_host_reports_on_its_own_ranks_only() {
        let mut host = Admission::of(&[2, 3]);
        let refusal = || Refusal::System(String::new());
        for foreign in [
            Up::Started { rank: 1, pid: 1 },
            Up::Exited { rank: 4, status: Status::Exited(0) },
            Up::Refused { rank: u32::MAX, refusal: refusal() },
            output(0, 1),
        ] {
            let error = host.admit(foreign).unwrap_err();
            assert!(matches!(error, ReportError::ForeignRank(_)), "{error}");
        }
        for own in [
            Up::Started { rank: 2, pid: 1 },
            output(3, OUTPUT_BYTES_MAX),
            Up::Exited { rank: 2, status: Status::Killed(9) },
            Up::Refused { rank: 3, refusal: refusal() },
            output(2, 1),
            Up::Heartbeat,
        ] {
            host.admit(own).unwrap();
        }
    }

    #[test]
    fn a_rank_starts_again_only_after_its_end_and_as_often_as_ordered() {
        let mut host = Admission::of(&[2, 3]);
        let started = |rank| Up::Started { rank, pid: 1 };
        let exited = |rank| Up::Exited { rank, status: Status::Exited(3) };
        for rank in [2, 3] {
            host.admit(started(rank)).unwrap();
        }
        host.restarts().store(1, Ordering::Relaxed);
        assert_eq!(host.admit(started(2)), Err(ReportError::Twice(2)));
        for report in [exited(2), started(2), exited(2), exited(3)] {
            host.admit(report).unwrap();
        }
        for rank in [2, 3] {
            assert_eq!(host.admit(started(rank)), Err(ReportError::Twice(rank)));
        }
    }

    #[test]
    fn input_is_taken_once_and_only_where_it_was_sent() {
        let mut host = Admission::of(&[0]);
        assert_eq!(host.admit(Up::InputTaken), Err(ReportError::NoInput));
        for _ in 0..2 {
            host.piece_out().store(true, Ordering::Relaxed);
            assert_eq!(host.admit(Up::InputTaken), Ok(Up::InputTaken));
            assert_eq!(host.admit(Up::InputTaken), Err(ReportError::NoInput));
        }
    }

    #[test]
    fn a_host_floods_nothing() {
        let mut host = Admission::of(&[0]);
        for _ in 0..2 {
            let reported = host.admit(Up::Started { rank: 0, pid: 1 });
            assert!(matches!(reported, Ok(_) | Err(ReportError::Twice(0))));
        }
        assert_eq!(host.admit(Up::Started { rank: 0, pid: 1 }), Err(ReportError::Twice(0)));
        let long = host.admit(output(0, OUTPUT_BYTES_MAX + 1));
        assert_eq!(long, Err(ReportError::TooLong(OUTPUT_BYTES_MAX + 1)));
    }

    #[test]
    fn foreign_text_does_not_control_a_terminal() {
        assert_eq!(printable("no \u{1b}[2J\r\nroute \u{f6}"), "no \\u{1b}[2J\\r\\nroute \u{f6}");
        assert!(printable(&"\u{1b}".repeat(1 << 20)).len() <= CAUSE_BYTES_MAX + 8);
        let why = "\u{7}".to_owned();
        let reported = Admission::of(&[]).admit(Up::Leaving { why });
        assert_eq!(reported, Ok(Up::Leaving { why: "\\u{7}".into() }));
        let reported = Admission::of(&[0])
            .admit(Up::Refused { rank: 0, refusal: Refusal::NotFound("\u{9b}".into()) });
        let refusal = Refusal::NotFound("\\u{9b}".into());
        assert_eq!(reported, Ok(Up::Refused { rank: 0, refusal }));
    }
}
