//! The process that holds the ranks of one host, on this host and on others alike.
//!
//! It takes orders on standard input and reports on standard output (`message`, `frame`). When its
//! input ends, whether the launcher closed it, died, or the connection to it broke, every process
//! that descends from the keeper is killed before the keeper goes. The same happens when the
//! connection is cut without a word (`silence`), and when the guardian dies. When the keeper itself
//! is killed, the kernel kills the ranks (`trampoline`), and the guardian what they leave behind.

mod ranks;
mod relay;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::family;
use crate::message::{Down, HostOrder, Up};
use ranks::Ranks;
use relay::{Ends, Reports, Unheard};

/// The argument that makes a program a keeper; the process number of its guardian follows.
pub(crate) const KEEPER: &str = "--ringfold-keeper";

/// Time for the last report to a launcher that is silent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Keeps ranks until the launcher ends the job, or `guardian`, the parent, dies.
pub(crate) fn keep(guardian: Option<u32>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve(guardian))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write;
            writeln!(io::stderr(), "ringrun: keeper: {error}").unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

async fn serve(guardian: Option<u32>) -> io::Result<()> {
    let Some(guardian) = guardian else {
        return Err(io::Error::other("a keeper is started by its guardian, not by hand"));
    };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut deaths = signal(SignalKind::child())?;
    let mut signals = Signals::listen()?;
    family::die_with(guardian, rustix::process::Signal::TERM)?;
    let stdin = pipe::Receiver::from_owned_fd_unchecked(unblock(io::stdin().as_fd())?)?;
    let stdout = pipe::Sender::from_owned_fd_unchecked(unblock(io::stdout().as_fd())?)?;
    let (down, mut orders) = mpsc::channel(8);
    tokio::spawn(relay::read_orders(stdin, down));
    let order = match orders.recv().await {
        Some(Ok(Down::Start(order))) => order,
        Some(Err(unheard)) => return Err(io::Error::other(unheard)),
        _ => return Ok(()),
    };
    let (reports, mut ends) = Reports::over(stdout, order.silence);
    let mut ranks = start(&order, &reports).await;
    drop(order);
    let ending =
        until_the_end(&mut ranks, &mut orders, (&mut deaths, &mut signals), &reports, &mut ends)
            .await;
    let launcher_is_silent = matches!(ending, Ending::Unheard(Unheard::Silent(_)));
    let dead = family::exterminate();
    match ending {
        Ending::Told => report_dead(&mut ranks, dead, &reports),
        Ending::Unheard(unheard) => reports.event(Up::Leaving { why: unheard.to_string() }),
        Ending::Asked(signal) => {
            let is_guarded = rustix::process::getppid() == family::pid_of(guardian);
            let why = if is_guarded { signal } else { "its guardian was killed" };
            reports.event(Up::Leaving { why: why.to_owned() });
        }
    }
    reports.no_more_output();
    drop((ranks, reports));
    tokio::select! {
        // It ends when all is said, or when nobody listens.
        written = until_finished(&mut ends.writer) => written,
        () = silence(launcher_is_silent, &mut orders) => Ok(()),
    }
}

async fn until_finished(writer: &mut JoinHandle<()>) -> io::Result<()> {
    // It may have ended before, which is taken note of once only.
    if writer.is_finished() { Ok(()) } else { writer.await.map_err(io::Error::other) }
}

/// Returns when the launcher has been silent for too long and its last report has had its time.
async fn silence(already: bool, orders: &mut mpsc::Receiver<Result<Down, Unheard>>) {
    if !already {
        loop {
            match orders.recv().await {
                Some(Err(Unheard::Silent(_))) => break,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
    tokio::time::sleep(LAST_WORDS).await;
}

async fn start(order: &HostOrder, reports: &Reports) -> Ranks {
    let mut ranks = Ranks::default();
    if let Err((rank, refusal)) = ranks.start(order, reports).await {
        family::exterminate();
        reports.event(Up::Refused { rank, refusal });
        return Ranks::default();
    }
    ranks
}

/// Why the ranks of this host must end, if they have not yet.
enum Ending {
    /// The launcher says so, or is gone.
    Told,
    /// The launcher cannot be understood.
    Unheard(Unheard),
    /// This signal was sent to the keeper.
    Asked(&'static str),
}

async fn until_the_end(
    ranks: &mut Ranks,
    orders: &mut mpsc::Receiver<Result<Down, Unheard>>,
    (deaths, signals): (&mut Signal, &mut Signals),
    reports: &Reports,
    ends: &mut Ends,
) -> Ending {
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Ok(Down::Input(bytes))) => ranks.input(bytes),
                Some(Ok(Down::InputEnd)) => ranks.end_input(),
                Some(Ok(Down::Signal(signal))) => ranks.signal(signal),
                Some(Ok(Down::Kill)) => report_dead(ranks, family::exterminate(), reports),
                Some(Ok(Down::Beat)) => {}
                Some(Ok(Down::Start(_) | Down::End)) | None => return Ending::Told,
                Some(Err(unheard)) => return Ending::Unheard(unheard),
            },
            _ = deaths.recv() => report_dead(ranks, family::reap(), reports),
            Some((rank, refusal)) = ends.refusals.recv() => {
                family::exterminate();
                *ranks = Ranks::default();
                reports.event(Up::Refused { rank, refusal });
            }
            signal = signals.asked_to_go() => return Ending::Asked(signal),
            _ = &mut ends.writer => return Ending::Told,
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

    async fn asked_to_go(&mut self) -> &'static str {
        tokio::select! {
            _ = self.hangup.recv() => "SIGHUP asked it to",
            _ = self.interrupt.recv() => "SIGINT asked it to",
            _ = self.terminate.recv() => "SIGTERM asked it to",
        }
    }
}
