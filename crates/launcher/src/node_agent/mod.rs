//! The process that runs the ranks of one host, on this host and on others alike.
//!
//! It takes orders on standard input and reports on standard output (`message`, `frame`). Its input
//! ends when the launcher closes it or dies, or when the connection breaks. The node agent then
//! kills all its descendants before it exits. It does the same when the connection falls silent
//! (`heartbeat`), and when the guardian dies. If the node agent itself is killed, the kernel kills
//! the ranks (`trampoline`), and the guardian kills the processes that they leave.

mod ranks;
mod relay;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use ringfold_types::Chain;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::message::{Down, HostOrder, Refusal, Status, Up};
use crate::stream::failed;
use crate::{descriptors, process_tree};
use ranks::Ranks;
use relay::{Ends, LauncherLost, Reports};

/// The argument that makes a program a node agent. The process number of its guardian follows.
pub(crate) const NODE_AGENT: &str = "--ringfold-node-agent";

/// The time for the last report to a silent launcher.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// Runs the ranks until the launcher ends the job, or `guardian`, the parent, dies.
pub(crate) fn run(guardian: Option<u32>) -> ExitCode {
    let runtime = descriptors::check()
        .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
    match runtime.and_then(|runtime| runtime.block_on(serve(guardian))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failed(&format!("ringrun: node agent{}", descriptors::remedy(&error)), &error, 1)
        }
    }
}

async fn serve(guardian: Option<u32>) -> io::Result<()> {
    let Some(guardian) = guardian else {
        return Err(io::Error::other("only a guardian starts a node agent, not a user"));
    };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut deaths = signal(SignalKind::child())?;
    let mut signals = Signals::listen()?;
    process_tree::die_with(guardian, rustix::process::Signal::TERM)?;
    let stdin = pipe::Receiver::from_owned_fd_unchecked(unblock(io::stdin().as_fd())?)?;
    let stdout = pipe::Sender::from_owned_fd_unchecked(unblock(io::stdout().as_fd())?)?;
    let (down, mut orders) = mpsc::channel(8);
    tokio::spawn(relay::read_orders(stdin, down));
    let order = match orders.recv().await {
        Some(Ok(Down::Start(order))) => order,
        Some(Err(lost)) => return Err(io::Error::other(lost)),
        _ => return Ok(()),
    };
    let (reports, mut ends) = Reports::over(stdout, order.silence);
    let mut ranks = Ranks::default();
    let ending = match start(&mut ranks, &order, &reports).await {
        Some(ending) => ending,
        None => {
            until_the_end(
                (&mut ranks, &order),
                &mut orders,
                (&mut deaths, &mut signals),
                &reports,
                &mut ends,
            )
            .await
        }
    };
    let launcher_is_silent = matches!(ending, Ending::LauncherLost(LauncherLost::Silent(_)));
    let dead = process_tree::kill_all_descendants();
    match ending {
        Ending::Told => report_dead(&mut ranks, dead, &reports),
        Ending::LauncherLost(lost) => reports.event(Up::Leaving { why: Chain(&lost).to_string() }),
        Ending::Refused(refusal) => reports.event(Up::Leaving { why: refusal.to_string() }),
        Ending::Asked(signal) => {
            let is_guarded = rustix::process::getppid() == process_tree::pid_of(guardian);
            let why = if is_guarded { signal } else { "its guardian was killed" };
            reports.event(Up::Leaving { why: why.to_owned() });
        }
    }
    reports.no_more_output();
    drop((ranks, reports));
    tokio::select! {
        // The writer ends when all reports are written, or when the launcher is gone.
        written = until_finished(&mut ends.writer) => written,
        () = silence(launcher_is_silent, &mut orders) => Ok(()),
    }
}

async fn until_finished(writer: &mut JoinHandle<()>) -> io::Result<()> {
    // The writer may have ended already. Its result can be taken only once.
    if writer.is_finished() { Ok(()) } else { writer.await.map_err(io::Error::other) }
}

/// Returns when the launcher has been silent for too long and its last report has had its time.
async fn silence(already: bool, orders: &mut mpsc::Receiver<Result<Down, LauncherLost>>) {
    if !already {
        loop {
            match orders.recv().await {
                Some(Err(LauncherLost::Silent(_))) => break,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
    tokio::time::sleep(LAST_REPORT).await;
}

/// Starts the ranks of the order. Returns why there is nothing more to do, if there is not.
async fn start(ranks: &mut Ranks, order: &HostOrder, reports: &Reports) -> Option<Ending> {
    match ranks.start(order, reports).await {
        Ok(()) => reports.event(Up::Ready),
        // No rank of a spare host could be named.
        Err((_, refusal)) if order.ranks.is_empty() => return Some(Ending::Refused(refusal)),
        Err((rank, refusal)) => {
            process_tree::kill_all_descendants();
            reports.event(Up::Refused { rank, refusal });
            *ranks = Ranks::default();
        }
    }
    None
}

/// Why the ranks of this host must end, if they still run.
enum Ending {
    /// The launcher ended the job, or is gone.
    Told,
    /// The launcher is silent, or sent an invalid order.
    LauncherLost(LauncherLost),
    /// The node agent received this signal.
    Asked(&'static str),
    /// No rank can be started on this spare host.
    Refused(Refusal),
}

async fn until_the_end(
    (ranks, order): (&mut Ranks, &HostOrder),
    orders: &mut mpsc::Receiver<Result<Down, LauncherLost>>,
    (deaths, signals): (&mut Signal, &mut Signals),
    reports: &Reports,
    ends: &mut Ends,
) -> Ending {
    loop {
        tokio::select! {
            received = orders.recv() => match received {
                Some(Ok(Down::Restart(rank))) => ranks.restart(order, rank, reports),
                Some(Ok(Down::Input(bytes))) => ranks.input(bytes),
                Some(Ok(Down::InputEnd)) => ranks.end_input(),
                Some(Ok(Down::Signal(signal))) => ranks.signal(signal),
                Some(Ok(Down::Kill)) => {
                    report_dead(ranks, process_tree::kill_all_descendants(), reports);
                }
                Some(Ok(Down::Heartbeat)) => {}
                Some(Ok(Down::Start(_) | Down::End)) | None => return Ending::Told,
                Some(Err(lost)) => return Ending::LauncherLost(lost),
            },
            _ = deaths.recv() => report_dead(ranks, process_tree::reap(), reports),
            Some((rank, refusal)) = ends.refusals.recv() => {
                if ranks.give_up(rank) {
                    reports.event(Up::Refused { rank, refusal });
                    // After a new start the others go on.
                    if !ranks.is_restarted(rank) {
                        process_tree::kill_all_descendants();
                        *ranks = Ranks::default();
                    }
                }
            }
            signal = signals.asked_to_go() => return Ending::Asked(signal),
            _ = &mut ends.writer => return Ending::Told,
        }
    }
}

/// Reports the ranks that ended. Of several that ended together, killed ones come first: the others
/// probably failed because of them.
fn report_dead(
    ranks: &mut Ranks,
    mut dead: Vec<(rustix::process::Pid, Status)>,
    reports: &Reports,
) {
    dead.sort_by_key(|(_, status)| matches!(status, Status::Exited(_)));
    for (pid, status) in dead {
        if let Some(rank) = ranks.ended(pid) {
            reports.event(Up::Exited { rank, status });
        }
    }
}

/// A new descriptor for the file of `fd`, set to non-blocking reads and writes.
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
