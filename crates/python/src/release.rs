//! The release of the memory and objects of calls that ran in the background.
//!
//! The waiter for a call releases them. A thread of the process does so for a call without a
//! waiter, because a worker that waited for the GIL would delay the next call.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use ringfold_foreign::lock;

/// The time in which a waiter may release the memory, so that the thread needs no GIL for it.
const PATIENCE: Duration = Duration::from_millis(20);

/// Takes the memory and objects of a call, unless a waiter has taken them.
type Take = Box<dyn FnOnce() -> Option<Box<dyn Any + Send>> + Send>;

/// The thread of this process that releases memory.
pub(crate) struct Releaser {
    /// The number of forks behind the process.
    forks: u64,
    finished: mpsc::Sender<Take>,
    /// Whether the interpreter ends. The thread holds the lock while it uses the interpreter.
    is_over: Arc<Mutex<bool>>,
}

static RELEASER: Mutex<Option<Releaser>> = Mutex::new(None);

impl Releaser {
    /// Starts the thread. Without one, the next call of Python releases the memory.
    fn start(forks: u64) -> Option<Self> {
        let (finished, receiver) = mpsc::channel();
        let is_over = Arc::new(Mutex::new(false));
        let ours = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("ringfold-free".to_owned());
        thread.spawn(move || serve(&receiver, &ours)).ok()?;
        Some(Self { forks, finished, is_over })
    }
}

fn serve(finished: &mpsc::Receiver<Take>, is_over: &Mutex<bool>) {
    while let Ok(first) = finished.recv() {
        thread::sleep(PATIENCE);
        let all = std::iter::once(first).chain(finished.try_iter());
        let kept: Vec<_> = all.filter_map(|take| take()).collect();
        let is_over = lock(is_over);
        if *is_over {
            return;
        }
        if !kept.is_empty() {
            Python::try_attach(move |_| drop(kept));
        }
    }
}

/// Releases soon what `take` finds. `forks` is the number of forks behind this process.
pub(crate) fn soon(forks: u64, take: Take) {
    let mut releaser = lock(&RELEASER);
    if releaser.as_ref().is_none_or(|it| it.forks != forks) {
        *releaser = Releaser::start(forks);
    }
    if let Some(releaser) = &*releaser {
        // The thread ends with the interpreter.
        releaser.finished.send(take).unwrap_or_default();
    }
}

/// Keeps other threads from starting the thread, while the process forks.
pub(crate) fn hold() -> MutexGuard<'static, Option<Releaser>> {
    lock(&RELEASER)
}

/// Releases no more memory, because the interpreter ends. Waits for the thread to let go of it, so
/// the caller must not hold the GIL.
pub(crate) fn end(forks: u64) {
    let releaser = lock(&RELEASER);
    let ours = releaser.as_ref().filter(|it| it.forks == forks).map(|it| Arc::clone(&it.is_over));
    drop(releaser);
    if let Some(is_over) = ours {
        *lock(&is_over) = true;
    }
}
