//! The signals of this process: those that ask it to stop, and the mask that its children inherit.

use std::io;
use std::task::Poll;

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Unblocks all signals in this thread, and so in the threads and processes that it starts. A
/// process inherits its mask from the program that starts it. A blocked SIGCHLD would hide the end
/// of the ranks.
///
/// # Errors
/// The system refuses.
pub(crate) fn unblock() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Catches SIGCHLD until the program ends. If this process was started to ignore it, the statuses
/// of children would be lost, and children would inherit that.
///
/// # Errors
/// The system refuses.
pub(crate) fn catch_child() -> io::Result<()> {
    signal(SignalKind::child()).map(drop)
}

/// The signals that ask this process to stop (SIGINT, SIGTERM and SIGHUP), except those that it was
/// started to ignore.
pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Catches the signals until the program ends. The caller must be in a runtime of `tokio` with
    /// its driver for I/O.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let wanted = kinds.into_iter().map(|kind| (kind.as_raw_value(), kind));
        let heard = wanted.filter(|(number, _)| ignored & (1 << (number - 1)) == 0);
        let signals = heard.map(|(number, kind)| Ok((number, signal(kind)?)));
        Ok(Self(signals.collect::<io::Result<_>>()?))
    }

    /// Waits for the next signal, and returns its number.
    pub async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The set of ignored signals in /proc, as bits. `nohup`, and shells without job control, set some
/// of them.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
