//! A progress bar on standard error, where that is a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfold_sim::Progress;

/// The time between two looks. A simulation that is shorter has no bar.
const LOOK: Duration = Duration::from_millis(200);
const CELLS: usize = 30;
/// The most characters of the words beside it.
const WORDS_MAX: usize = 40;

/// A bar, which a thread draws until it is dropped.
#[derive(Default)]
pub(super) struct Bar {
    shown: Arc<Mutex<Option<Shown>>>,
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Shown {
    words: String,
    progress: Arc<Progress>,
}

impl Bar {
    pub(super) fn new() -> Self {
        let mut bar = Self::default();
        if io::stderr().is_terminal() {
            let (end, ended) = mpsc::channel();
            let shown = Arc::clone(&bar.shown);
            let draw = move || {
                while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    if let Some(Shown { words, progress }) = &*lock(&shown) {
                        io::stderr().write_all(line(words, progress.part()).as_bytes()).ok();
                    }
                }
                io::stderr().write_all(b"\r\x1b[K").ok();
            };
            bar.drawing = Some((end, thread::spawn(draw)));
        }
        bar
    }

    /// From now on it shows these words and the part that is done.
    pub(super) fn show(&self, words: String, progress: &Arc<Progress>) {
        *lock(&self.shown) = Some(Shown { words, progress: Arc::clone(progress) });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.drawing.take() {
            drop(end);
            thread.join().ok();
        }
    }
}

fn lock(shown: &Mutex<Option<Shown>>) -> std::sync::MutexGuard<'_, Option<Shown>> {
    shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn line(words: &str, part: f64) -> String {
    let done = (0..CELLS).map(|at| if (at as f64) < part * CELLS as f64 { '=' } else { ' ' });
    let (bar, words) = (done.collect::<String>(), words.chars().take(WORDS_MAX));
    format!("\r[{bar}] {:3.0} % {}\x1b[K", part * 100.0, words.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal() {
        assert!(line("ring", 0.5).contains("[===============               ]  50 % ring"));
        assert!(line(&"x".repeat(99), 1.0).len() < 80 + 5);
    }
}
