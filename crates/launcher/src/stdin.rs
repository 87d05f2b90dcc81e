//! Forwards this process's standard input to rank 0. It uses a thread, because a terminal, a pipe
//! and a file have only blocking reads in common. It reads no more than rank 0 has taken.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::message::Down;

const READ_BYTES: usize = 32 * 1024;

/// The forwarding of input. Dropping it ends the thread, and releases the link to the host.
#[derive(Debug)]
pub(crate) struct StdinForwarder {
    _end: OwnedFd,
    task: JoinHandle<()>,
}

impl Drop for StdinForwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts to pass standard input on to `host`, a piece each time that `taken` is notified.
///
/// # Errors
/// There is no thread or no pipe available.
pub(crate) fn start(
    host: mpsc::UnboundedSender<Down>,
    taken: Arc<Notify>,
) -> io::Result<StdinForwarder> {
    let (watch, end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (pieces, mut pieces_rx) = mpsc::channel::<Vec<u8>>(1);
    std::thread::Builder::new()
        .name("ringrun-input".into())
        .spawn(move || read_pieces(&watch, &pieces))?;
    let task = tokio::spawn(async move {
        while let Some(piece) = pieces_rx.recv().await {
            if host.send(Down::Input(piece)).is_err() {
                return;
            }
            taken.notified().await;
        }
        host.send(Down::InputEnd).ok();
    });
    Ok(StdinForwarder { _end: end, task })
}

/// Reads until the input ends or `watch` does.
fn read_pieces(watch: &OwnedFd, pieces: &mpsc::Sender<Vec<u8>>) {
    let stdin = rustix::stdio::stdin();
    loop {
        let mut fds =
            [PollFd::new(watch, PollFlags::IN), PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !fds[0].revents().is_empty() => return,
            Ok(_) => {}
        }
        let mut piece = vec![0; READ_BYTES];
        match rustix::io::read(stdin, &mut piece) {
            Ok(count @ 1..) => piece.truncate(count),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Ok(0) | Err(_) => return,
        }
        if pieces.blocking_send(piece).is_err() {
            return;
        }
    }
}

/// Whether this process may read standard input. Its terminal would stop a job in the background.
pub(crate) fn may_read() -> bool {
    let stdin = rustix::stdio::stdin();
    let foreground = rustix::termios::tcgetpgrp(stdin);
    !rustix::termios::isatty(stdin) || foreground.is_ok_and(|it| it == rustix::process::getpgrp())
}
