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

/// The progress of a command, on standard error.
pub struct Progress {
    /// The destination; `None` if nothing is shown.
    place: Option<Place>,
    last: Option<Instant>,
}

impl Progress {
    /// Starts a display if it `is_shown`, as on the first rank only. Lines of a log begin with
    /// `ringfold: `.
    #[must_use]
    pub fn new(is_shown: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let place = if is_terminal { Place::Terminal } else { Place::Log };
        Self { place: is_shown.then_some(place), last: None }
    }

    /// Starts a display, which is visible on a terminal only.
    #[must_use]
    pub fn on_terminal() -> Self {
        Self::new(io::stderr().is_terminal())
    }

    /// Shows the text, unless the last one is too new.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if let Some(line) = self.line(text, Instant::now()) {
            // A closed standard error does not end the command.
            io::stderr().write_all(line.as_bytes()).ok();
        }
    }

    /// Removes the line from a terminal, to make room for other output. The next text is shown at
    /// once.
    pub fn clear(&mut self) {
        if self.last.take().is_some() && self.place == Some(Place::Terminal) {
            io::stderr().write_all(b"\r\x1b[K").ok();
        }
    }

    /// Returns the line to show now, or `None` too soon after the last one.
    fn line(&mut self, text: impl FnOnce() -> String, now: Instant) -> Option<String> {
        let place = self.place?;
        if self.last.is_some_and(|last| now.duration_since(last) < place.pause()) {
            return None;
        }
        self.last = Some(now);
        Some(match place {
            Place::Terminal => format!("\r\x1b[K{}", text()),
            Place::Log => format!("ringfold: {}\n", text()),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_a_line_every_two_seconds() {
        let mut progress = Progress { place: Some(Place::Log), last: None };
        let start = Instant::now();
        let mut line = |millis| {
            progress.line(|| format!("at {millis}"), start + Duration::from_millis(millis))
        };
        assert_eq!(line(0).as_deref(), Some("ringfold: at 0\n"));
        assert_eq!(line(1999), None);
        assert_eq!(line(2000).as_deref(), Some("ringfold: at 2000\n"));
        assert_eq!(line(3999), None);
    }

    #[test]
    fn a_terminal_has_one_line_and_other_ranks_none() {
        let line = |place| Progress { place, last: None }.line(|| "x".to_owned(), Instant::now());
        assert_eq!(line(None), None);
        let mut shown = Progress { place: Some(Place::Terminal), last: None };
        let line = shown.line(|| "1 of 2".to_owned(), Instant::now());
        assert_eq!(line.as_deref(), Some("\r\x1b[K1 of 2"));
        // The test must not clear a line of its own output.
        shown.last = None;
    }
}
