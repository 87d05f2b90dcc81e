//! Admits the reports that a host may make. A broken node agent, or a foreign process in its place,
//! can end its own part of a job. It cannot report for another host, flood the launcher, or control
//! a terminal. This module does no I/O.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringfold_types::limits::{CAUSE_BYTES_MAX, LINE_BYTES_MAX};

use crate::message::{Refusal, Up};

/// The most bytes of one output report. A node agent reads less at once, and completes one line
/// with it.
const OUTPUT_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// The reports of one host so far.
#[derive(Debug)]
pub(crate) struct Admission {
    ranks: HashMap<u32, Reported>,
    restarts: Arc<Restarts>,
    /// Whether a piece of input is on its way there. The launcher sends input to the host of rank 0
    /// only.
    piece_out: Arc<AtomicBool>,
}

/// The reports of one process of a rank so far. Each kind comes once.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    started: bool,
    /// It has exited, or was refused.
    ended: bool,
}

/// The ranks for which the launcher has ordered new processes, and the host has not reported any.
#[derive(Debug, Default)]
pub(crate) struct Restarts(Mutex<Vec<u32>>);

impl Restarts {
    /// Expects a report of a new process of this rank, which may have run on another host.
    pub(crate) fn expect(&self, rank: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(rank);
    }

    /// Whether a new process of this rank was expected. From now on it is not.
    fn take(&self, rank: u32) -> bool {
        let mut ranks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ranks.iter().position(|it| *it == rank);
        at.map(|at| ranks.swap_remove(at)).is_some()
    }
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

    /// The new processes that the launcher must expect before it orders them.
    pub(crate) fn restarts(&self) -> Arc<Restarts> {
        Arc::clone(&self.restarts)
    }

    /// Checks a report and makes its texts printable.
    ///
    /// # Errors
    /// No node agent of these ranks sends such a report.
    pub(crate) fn admit(&mut self, report: Up) -> Result<Up, ReportError> {
        if let Up::Started { rank, .. } | Up::Refused { rank, .. } = &report
            && self.ranks.get(rank).is_none_or(|reported| reported.ended)
            && self.restarts.take(*rank)
        {
            self.ranks.insert(*rank, Reported::default());
        }
        let mut once = |rank: u32, which: fn(&mut Reported) -> &mut bool| {
            let reported = self.ranks.get_mut(&rank).ok_or(ReportError::ForeignRank(rank))?;
            let before = std::mem::replace(which(reported), true);
            if before { Err(ReportError::Twice(rank)) } else { Ok(()) }
        };
        match &report {
            Up::Started { rank, .. } => once(*rank, |reported| &mut reported.started)?,
            Up::Exited { rank, .. } | Up::Refused { rank, .. } => {
                once(*rank, |reported| &mut reported.ended)?;
            }
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
            Up::Leaving { .. } | Up::Heartbeat | Up::Ready => {}
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
        host.restarts().expect(2);
        assert_eq!(host.admit(started(2)), Err(ReportError::Twice(2)));
        for report in [exited(2), started(2), exited(2), exited(3)] {
            host.admit(report).unwrap();
        }
        for rank in [2, 3] {
            assert_eq!(host.admit(started(rank)), Err(ReportError::Twice(rank)));
        }
        // A process that cannot be started ends without a start, and one that is refused, once.
        let refused = || Up::Refused { rank: 2, refusal: Refusal::System(String::new()) };
        for report in [vec![refused()], vec![started(2), refused()]] {
            host.restarts().expect(2);
            report.into_iter().for_each(|report| drop(host.admit(report).unwrap()));
            assert_eq!(host.admit(exited(2)), Err(ReportError::Twice(2)));
            assert_eq!(host.admit(refused()), Err(ReportError::Twice(2)));
        }
    }

    #[test]
    fn a_rank_of_another_host_starts_only_where_it_was_ordered() {
        let mut host = Admission::of(&[]);
        let started = |rank| Up::Started { rank, pid: 1 };
        assert_eq!(host.admit(started(5)), Err(ReportError::ForeignRank(5)));
        host.restarts().expect(5);
        assert_eq!(host.admit(started(6)), Err(ReportError::ForeignRank(6)));
        host.admit(started(5)).unwrap();
        host.admit(output(5, 1)).unwrap();
        assert_eq!(host.admit(started(5)), Err(ReportError::Twice(5)));
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
