//! The progress of a measurement: its rounds, and the pairs of NICs that all ranks have tried.

use ringfold_launcher as launcher;

pub(super) struct Progress {
    display: launcher::Progress,
    round: usize,
    rounds: usize,
    /// Pairs of NICs that all ranks probed.
    pairs: usize,
}

impl Progress {
    /// Starts a display, which is visible on the first rank only.
    pub(super) fn new(is_first: bool, rounds: usize) -> Self {
        Self { display: launcher::Progress::new(is_first), round: 0, rounds, pairs: 0 }
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
        let Self { display, round, rounds, pairs } = self;
        let step = step + 1;
        display.show(|| {
            format!("round {round} of {rounds}: {what} {step} of {steps}, {pairs} pairs tried")
        });
    }
}
