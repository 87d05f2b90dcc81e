//! Progress lines: a single line that changes on a terminal, else a new line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The destination of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A terminal, on which each line replaces the one before.
    Terminal,
    /// A pipe, as under ringrun, or a file. Each line stays.
    Log,
}

impl Place {
    /// Returns the time between two lines.
    const fn pause(self) -> Duration {
        match self {
            Self::Terminal => Duration::from_millis(200),
            Self::Log => Duration::from_secs(2),
        }
    }
}

pub(super) struct Progress {
    /// The destination; `None` on a rank that shows nothing.
    place: Option<Place>,
    last: Option<Instant>,
    round: usize,
    rounds: usize,
    /// Pairs of NICs that all ranks probed.
    pairs: usize,
}

impl Progress {
    /// Starts a display, which is visible on the first rank only.
    pub(super) fn new(is_first: bool, rounds: usize) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let place = if is_terminal { Place::Terminal } else { Place::Log };
        Self { place: is_first.then_some(place), last: None, round: 0, rounds, pairs: 0 }
    }

    /// Counts a new round.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
    }

    /// Adds to the number of probed pairs of NICs.
    pub(super) fn probed(&mut self, pairs: usize) {
        self.pairs += pairs;
    }

    pub(super) fn show(&mut self, what: &str, step: usize, steps: usize) {
        if let Some(line) = self.line(what, step, steps, Instant::now()) {
            // A closed standard error does not end the measurement.
            io::stderr().write_all(line.as_bytes()).ok();
        }
    }

    /// Returns the line to show now, or `None` too soon after the last one.
    fn line(&mut self, what: &str, step: usize, steps: usize, now: Instant) -> Option<String> {
        let place = self.place?;
        if self.last.is_some_and(|last| now.duration_since(last) < place.pause()) {
            return None;
        }
        self.last = Some(now);
        let Self { round, rounds, pairs, .. } = self;
        let step = step + 1;
        let text =
            format!("round {round} of {rounds}: {what} {step} of {steps}, {pairs} pairs tried");
        Some(match place {
            Place::Terminal => format!("\r\x1b[K{text}"),
            Place::Log => format!("ringfold: {text}\n"),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() && self.place == Some(Place::Terminal) {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(place: Option<Place>) -> Progress {
        Progress { place, last: None, round: 1, rounds: 3, pairs: 8 }
    }

    #[test]
    fn a_log_has_a_line_every_two_seconds() {
        let mut progress = progress(Some(Place::Log));
        let start = Instant::now();
        let mut line = |millis| {
            progress.probed(1);
            progress.line("flows", 4, 9, start + Duration::from_millis(millis))
        };
        let first = "ringfold: round 1 of 3: flows 5 of 9, 9 pairs tried\n";
        assert_eq!(line(0).as_deref(), Some(first));
        assert_eq!(line(1999), None);
        let second = "ringfold: round 1 of 3: flows 5 of 9, 11 pairs tried\n";
        assert_eq!(line(2000).as_deref(), Some(second));
        assert_eq!(line(3999), None);
    }

    #[test]
    fn a_terminal_has_one_line_and_other_ranks_none() {
        let now = Instant::now();
        let line = progress(Some(Place::Terminal)).line("probes", 0, 2, now).unwrap();
        assert_eq!(line, "\r\x1b[Kround 1 of 3: probes 1 of 2, 8 pairs tried");
        assert_eq!(progress(None).line("probes", 0, 2, now), None);
    }
}
