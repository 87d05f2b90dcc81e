//! Admits the reports that a host may make. A broken keeper, or a stranger in its place, can end
//! its own part of a job. It speaks for no other host, floods nothing, and controls no terminal.
//! Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfold_types::limits::{CAUSE_BYTES_MAX, LINE_BYTES_MAX};

use crate::message::{Refusal, Up};

/// Bytes of one output report. A keeper reads less at once, and completes one line with it.
const OUTPUT_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// The reports of one host so far.
#[derive(Debug)]
pub(crate) struct Admission {
    ranks: HashMap<u32, Told>,
    /// Whether a piece of input was sent there and has not been taken. The launcher sends input to
    /// no host but that of rank 0.
    piece_out: Arc<AtomicBool>,
}

/// The reports of one rank so far. Each kind comes once.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    started: bool,
    exited: bool,
    refused: bool,
}

/// The reason why a report is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportError {
    /// The rank runs on another host, or nowhere.
    #[error("it reports of rank {0}, which does not run there")]
    Stranger(u32),
    /// A rank starts and ends once.
    #[error("it reports the same of rank {0} twice")]
    Twice(u32),
    /// No input was sent there, or what was sent has been taken already.
    #[error("it reports of input that it was not sent")]
    NoInput,
    /// More output than a keeper takes at once.
    #[error("it reports {0} bytes of output at once")]
    TooLong(usize),
}

impl Admission {
    /// For the host of these ranks.
    pub(crate) fn of(ranks: &[u32]) -> Self {
        let ranks = ranks.iter().map(|rank| (*rank, Told::default())).collect();
        Self { ranks, piece_out: Arc::default() }
    }

    /// To be set before a piece of input is sent to the host.
    pub(crate) fn piece_out(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.piece_out)
    }

    /// The report, fit to be passed on.
    ///
    /// # Errors
    /// A keeper of these ranks cannot mean it.
    pub(crate) fn admit(&mut self, report: Up) -> Result<Up, ReportError> {
        let mut once = |rank: u32, which: fn(&mut Told) -> &mut bool| {
            let told = self.ranks.get_mut(&rank).ok_or(ReportError::Stranger(rank))?;
            let before = std::mem::replace(which(told), true);
            if before { Err(ReportError::Twice(rank)) } else { Ok(()) }
        };
        match &report {
            Up::Started { rank, .. } => once(*rank, |told| &mut told.started)?,
            Up::Exited { rank, .. } => once(*rank, |told| &mut told.exited)?,
            Up::Refused { rank, .. } => once(*rank, |told| &mut told.refused)?,
            Up::Output { rank, bytes, .. } => {
                if !self.ranks.contains_key(rank) {
                    return Err(ReportError::Stranger(*rank));
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
            Up::Leaving { .. } | Up::Beat => {}
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

/// The beginning of a foreign text, without characters that would control a terminal.
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
    use crate::message::{Refusal, Status, Stream, Up};

    fn output(rank: u32, length: usize) -> Up {
        Up::Output { rank, stream: Stream::Out, bytes: vec![b'x'; length] }
    }

    #[test]
    fn a_host_speaks_for_its_own_ranks() {
        let mut host = Admission::of(&[2, 3]);
        let refusal = || Refusal::System(String::new());
        for stranger in [
            Up::Started { rank: 1, pid: 1 },
            Up::Exited { rank: 4, status: Status::Exited(0) },
            Up::Refused { rank: u32::MAX, refusal: refusal() },
            output(0, 1),
        ] {
            let error = host.admit(stranger).unwrap_err();
            assert!(matches!(error, ReportError::Stranger(_)), "{error}");
        }
        for own in [
            Up::Started { rank: 2, pid: 1 },
            output(3, OUTPUT_BYTES_MAX),
            Up::Exited { rank: 2, status: Status::Killed(9) },
            Up::Refused { rank: 3, refusal: refusal() },
            output(2, 1),
            Up::Beat,
        ] {
            host.admit(own).unwrap();
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
            let told = host.admit(Up::Started { rank: 0, pid: 1 });
            assert!(matches!(told, Ok(_) | Err(ReportError::Twice(0))));
        }
        assert_eq!(host.admit(Up::Started { rank: 0, pid: 1 }), Err(ReportError::Twice(0)));
        let long = host.admit(output(0, OUTPUT_BYTES_MAX + 1));
        assert_eq!(long, Err(ReportError::TooLong(OUTPUT_BYTES_MAX + 1)));
    }

    #[test]
    fn foreign_words_do_not_control_a_terminal() {
        assert_eq!(printable("no \u{1b}[2J\r\nroute \u{f6}"), "no \\u{1b}[2J\\r\\nroute \u{f6}");
        assert!(printable(&"\u{1b}".repeat(1 << 20)).len() <= CAUSE_BYTES_MAX + 8);
        let why = "\u{7}".to_owned();
        let told = Admission::of(&[]).admit(Up::Leaving { why });
        assert_eq!(told, Ok(Up::Leaving { why: "\\u{7}".into() }));
        let told = Admission::of(&[0])
            .admit(Up::Refused { rank: 0, refusal: Refusal::NotFound("\u{9b}".into()) });
        let refusal = Refusal::NotFound("\\u{9b}".into());
        assert_eq!(told, Ok(Up::Refused { rank: 0, refusal }));
    }
}
