//! The process that holds the ranks of one host, on this host and on others alike.
//!
//! It takes orders on standard input and reports on standard output (`message`, `frame`). When its
//! input ends, whether the launcher closed it, died, or the connection to it broke, every process
//! that descends from the keeper is killed before the keeper goes. When the keeper itself is
//! killed, the kernel kills the ranks (`trampoline`), and the launcher what they have left behind.

mod ranks;
mod relay;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::family;
use crate::message::{Down, HostOrder, Up};
use ranks::Ranks;
use relay::{Ends, Reports};

/// Keeps ranks until the launcher ends the job.
pub(crate) fn keep() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write;
            writeln!(io::stderr(), "ringrun: keeper: {error}").unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut deaths = signal(SignalKind::child())?;
    let mut signals = Signals::listen()?;
    let stdin = pipe::Receiver::from_owned_fd_unchecked(unblock(io::stdin().as_fd())?)?;
    let stdout = pipe::Sender::from_owned_fd_unchecked(unblock(io::stdout().as_fd())?)?;
    let (down, mut orders) = mpsc::channel(8);
    let (reports, mut ends) = Reports::over(stdout);
    tokio::spawn(relay::read_orders(stdin, down));

    let mut ranks = match orders.recv().await {
        Some(Down::Start(order)) => start(&order, &reports),
        _ => return Ok(()),
    };
    until_the_end(&mut ranks, &mut orders, (&mut deaths, &mut signals), &reports, &mut ends).await;
    report_dead(&mut ranks, family::exterminate(), &reports);
    reports.no_more_output();
    drop((ranks, reports));
    if !ends.writer.is_finished() {
        // It ends when all is said, or when nobody listens.
        ends.writer.await.map_err(io::Error::other)?;
    }
    Ok(())
}

fn start(order: &HostOrder, reports: &Reports) -> Ranks {
    let mut ranks = Ranks::default();
    if let Err((rank, refusal)) = ranks.start(order, reports) {
        family::exterminate();
        reports.event(Up::Refused { rank, refusal });
        return Ranks::default();
    }
    ranks
}

async fn until_the_end(
    ranks: &mut Ranks,
    orders: &mut mpsc::Receiver<Down>,
    (deaths, signals): (&mut Signal, &mut Signals),
    reports: &Reports,
    ends: &mut Ends,
) {
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Down::Input(bytes)) => ranks.input(bytes),
                Some(Down::InputEnd) => ranks.end_input(),
                Some(Down::Signal(signal)) => ranks.signal(signal),
                Some(Down::Kill) => report_dead(ranks, family::exterminate(), reports),
                Some(Down::Start(_)) | None => return,
            },
            _ = deaths.recv() => report_dead(ranks, family::reap(), reports),
            Some((rank, refusal)) = ends.refusals.recv() => {
                family::exterminate();
                *ranks = Ranks::default();
                reports.event(Up::Refused { rank, refusal });
            }
            () = signals.asked_to_go() => return,
            _ = &mut ends.writer => return,
        }
    }
}

/// Tells who ended. Of several that ended at once, those that were killed come first: the others
/// are more likely to have failed because of them.
fn report_dead(
    ranks: &mut Ranks,
    mut dead: Vec<(rustix::process::Pid, crate::Status)>,
    reports: &Reports,
) {
    dead.sort_by_key(|(_, status)| matches!(status, crate::Status::Exited(_)));
    for (pid, status) in dead {
        if let Some(rank) = ranks.ended(pid) {
            reports.event(Up::Exited { rank, status });
        }
    }
}

/// A descriptor of ours for what `fd` refers to, such that reads and writes do not block.
fn unblock(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    fd.as_fd().try_clone_to_owned()
}

struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn asked_to_go(&mut self) {
        tokio::select! {
            _ = self.hangup.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
