//! A line that says how far measuring is, on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two lines.
const BETWEEN: Duration = Duration::from_millis(200);

pub(super) struct Progress {
    is_shown: bool,
    last: Option<Instant>,
    round: usize,
    rounds: usize,
}

impl Progress {
    /// Only one rank shows it.
    pub(super) fn new(is_first: bool, rounds: usize) -> Self {
        Self { is_shown: is_first && io::stderr().is_terminal(), last: None, round: 0, rounds }
    }

    /// The next round begins.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
    }

    pub(super) fn show(&mut self, what: &str, step: usize, steps: usize) {
        if !self.is_shown || self.last.is_some_and(|last| last.elapsed() < BETWEEN) {
            return;
        }
        self.last = Some(Instant::now());
        let Self { round, rounds, .. } = self;
        let step = step + 1;
        // A terminal that is gone does not end the measurement.
        write!(io::stderr(), "\r\x1b[Kround {round} of {rounds}: {what} {step} of {steps}").ok();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }
}
