//! Runs a job: starts the node agents, supervises the ranks, and cleans up.

use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::CONTROL_BYTES_MAX;
use rustix::process::{Pid, child_subreaper, getpid, set_child_subreaper};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use zeroize::Zeroizing;

use crate::host::{self, HostChannels, Link};
use crate::hosts::Host;
use crate::job::Job;
use crate::message::{Down, HostOrder, SECRET_BYTES};
use crate::outcome::{JobResult, Outcome};
use crate::placement::{Placement, PlacementError, Share};
use crate::printer::{self, Printer};
use crate::rendezvous::{self, RendezvousError};
use crate::stdin::{self, StdinForwarder};
use crate::supervisor::{Command, Event, Supervisor};
use crate::{affinity, descriptors, process_tree};

/// The time for node agents to exit after the job is over.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// The time for the rest of the output of a stopped job.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// Why a job did not begin. A job that began has an [`Outcome`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The ranks do not fit the hosts.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// There is no rendezvous.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The command that starts a node agent cannot be started.
    #[error("cannot start '{command}' for host {host}")]
    NodeAgent {
        /// The host of the node agent.
        host: String,
        /// The command.
        command: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// Program, arguments and environment together exceed `limits::CONTROL_BYTES_MAX`.
    #[error(
        "the program, its arguments and its environment exceed {CONTROL_BYTES_MAX} bytes: \
         shorten them"
    )]
    TooLong,
    /// The operating system provides no randomness, signal, pipe or thread.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Runs a job until all its processes are gone.
///
/// Ranks write to this process's standard output and error. Every byte arrives unchanged. Lines of
/// different ranks do not mix, up to `limits::LINE_BYTES_MAX` bytes each.
///
/// SIGINT, SIGTERM and SIGHUP stop the job, unless this process ignored them before. Their handlers
/// stay installed, so callers should call this shortly before the process ends. While it runs, this
/// process is a subreaper.
///
/// Blocks for as long as the job takes. The program must call
/// [`intercept`](crate::intercept()) first in its `main`.
///
/// # Errors
/// The job could not begin. No rank has run.
///
/// # Panics
/// Panics when called from within an asynchronous runtime.
pub fn run(job: &Job) -> Result<Outcome, LaunchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(launch(job));
    // A thread that is blocked in a read must not delay the end.
    runtime.shutdown_background();
    outcome
}

async fn launch(job: &Job) -> Result<Outcome, LaunchError> {
    let Placed { placement, here } = place(job)?;
    // Three files for each host while its agent is started, and two connections for each rank.
    descriptors::allow(3 * placement.hosts.len() + 2 * placement.size);
    let remote = placement.hosts.iter().map(|share| &*share.host).find(|host| *host != here);
    let (given, interfaces) = (job.rendezvous.as_deref(), job.interfaces.as_deref());
    let port = rendezvous::open(remote, given, interfaces).await?;
    let order = JobOrder::new(job, &placement, &port.address)?;
    let serving = port.serve(&order.secret, order.job.clone(), placement.size);
    let mut signals = Signals::listen()?;
    let _subreaper = Subreaper::begin()?;

    let (events, mut events_rx) = mpsc::unbounded_channel();
    let printer = printer::start(job.tag_output, events.clone())?;
    let channels = HostChannels {
        events,
        pieces: printer.pieces.clone(),
        input_taken: Arc::new(Notify::new()),
    };
    let mut links = Links::default();
    if let Err(error) = links.start(job, &placement, &here, &order, &channels) {
        drop(channels);
        links.shut_down(&printer, &mut signals).await;
        return Err(error);
    }
    let stdin_forwarder = start_stdin(job, &links, &channels)?;
    drop(channels);

    let mut node_agent_lost = false;
    let mut supervisor = Supervisor::new(placement, job.grace, job.time_limit, Instant::now());
    while !supervisor.is_over() {
        let deadline = supervisor.deadline();
        let command = tokio::select! {
            Some(event) = events_rx.recv() => {
                node_agent_lost |= matches!(event, Event::HostLost { .. });
                supervisor.on_event(event, Instant::now())
            }
            signal = signals.next() => {
                supervisor.on_event(Event::Interrupted(signal), Instant::now())
            }
            () = sleep_until(deadline) => supervisor.on_time(Instant::now()),
        };
        if let Some(command) = command {
            links.tell(command);
        }
    }
    drop(stdin_forwarder);
    let mut outcome = supervisor.outcome();
    links.shut_down(&printer, &mut signals).await;
    if node_agent_lost {
        kill_orphans(&order.job).await;
    }
    outcome.report = serving.report();
    finish_output(printer, &outcome, &mut signals).await;
    Ok(outcome)
}

struct Placed {
    placement: Placement,
    /// The name of this host in the placement.
    here: String,
}

/// Places the ranks. All names of this host become one, so that it has one node agent.
fn place(job: &Job) -> Result<Placed, LaunchError> {
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if job.hosts.is_empty() {
        let host = Host { name: here.clone(), slots: affinity::allowed_cores() };
        return Ok(Placed { placement: Placement::place(job.ranks, &[host], true)?, here });
    }
    let mut hosts = Vec::<Host>::new();
    for host in &job.hosts {
        let local = rendezvous::is_this_host(&host.name)?;
        let name = if local { here.clone() } else { host.name.clone() };
        match hosts.iter_mut().find(|known| known.name == name) {
            Some(known) => known.slots += host.slots,
            None => hosts.push(Host { name, slots: host.slots }),
        }
    }
    Ok(Placed { placement: Placement::place(job.ranks, &hosts, job.oversubscribe)?, here })
}

/// The part of the order that is the same for all hosts.
struct JobOrder {
    job: String,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    rendezvous: String,
    size: u32,
    wdir: Vec<u8>,
}

impl JobOrder {
    fn new(job: &Job, placement: &Placement, rendezvous: &str) -> Result<Self, LaunchError> {
        let mut id = [0; 8];
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut id).map_err(io::Error::other)?;
        getrandom::fill(&mut *secret).map_err(io::Error::other)?;
        let wdir = match &job.wdir {
            Some(wdir) => wdir.clone(),
            None => std::env::current_dir()?,
        };
        let order = Self {
            job: format!("{:016x}", u64::from_le_bytes(id)),
            secret,
            rendezvous: rendezvous.to_owned(),
            size: Rank::at(placement.size).0,
            wdir: wdir.into_os_string().into_vec(),
        };
        let longest = placement.hosts.iter().max_by_key(|share| share.ranks.len());
        let fits = longest.is_none_or(|share| {
            crate::frame::encode(&Down::Start(Box::new(order.for_host(job, share)))).is_ok()
        });
        if fits { Ok(order) } else { Err(LaunchError::TooLong) }
    }

    fn for_host(&self, job: &Job, share: &Share) -> HostOrder {
        let bytes = |text: &std::ffi::OsString| text.as_bytes().to_vec();
        HostOrder {
            job: self.job.clone(),
            secret: self.secret.clone(),
            rendezvous: self.rendezvous.clone(),
            size: self.size,
            ranks: share.ranks.iter().map(|rank| rank.0).collect(),
            program: bytes(&job.program),
            args: job.args.iter().map(bytes).collect(),
            env: job.env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            wdir: self.wdir.clone(),
            bind: job.bind,
            silence: None,
        }
    }
}

/// The links to all hosts.
#[derive(Default)]
struct Links(Vec<Link>);

impl Links {
    fn start(
        &mut self,
        job: &Job,
        placement: &Placement,
        here: &str,
        order: &JobOrder,
        channels: &HostChannels,
    ) -> Result<(), LaunchError> {
        for (at, share) in placement.hosts.iter().enumerate() {
            let words = host::node_agent_command(job, &share.host, share.host == here)?;
            // A pipe on this host shows by itself that its other end is gone.
            let silence = (share.host != here).then_some(job.host_timeout);
            let order = HostOrder { silence, ..order.for_host(job, share) };
            let link = host::start(&words, at, order, channels.clone());
            self.0.push(link.map_err(|source| LaunchError::NodeAgent {
                host: share.host.clone(),
                command: words.first().map(|it| it.display().to_string()).unwrap_or_default(),
                source,
            })?);
        }
        Ok(())
    }

    fn tell(&self, command: Command) {
        for link in &self.0 {
            let order = match command {
                Command::Signal(signal) => Down::Signal(signal),
                Command::Kill => Down::Kill,
            };
            // A host that is gone has already been reported as lost.
            link.orders.send(order).ok();
        }
    }

    /// Tells all hosts that the job is over, and waits for the node agents to kill leftover
    /// processes and pass on all output. Waits as long as output flows and no signal interrupts.
    /// Then closes the connections and waits until the agents have ended.
    async fn shut_down(self, printer: &Printer, signals: &mut Signals) {
        let (hang_ups, mut tasks): (Vec<_>, Vec<_>) =
            self.0.into_iter().map(|link| (link.hang_up, link.task)).unzip();
        let all_ended = async {
            for task in &mut tasks {
                // A task that panicked has ended as well.
                task.await.ok();
            }
        };
        tokio::pin!(all_ended);
        let stuck = async {
            loop {
                tokio::time::sleep(SHUTDOWN).await;
                if printer.is_idle() {
                    return;
                }
            }
        };
        tokio::select! {
            () = &mut all_ended => return,
            () = stuck => {}
            _ = signals.next() => {}
        }
        hang_ups.iter().for_each(|hang_up| hang_up.notify_one());
        // After another interrupt, the guardians finish the work.
        tokio::select! {
            () = all_ended => {}
            _ = signals.next() => {}
        }
    }
}

/// Kills the processes that the ranks of a killed node agent have left behind. They are descendants
/// of this process now. The job in their environment tells them from other children.
async fn kill_orphans(job: &str) {
    let variable = format!("RINGFOLD_JOB={job}");
    let until = Instant::now() + LAST_OUTPUT;
    while process_tree::kill_descendants(|process| process.inherited(&variable)) > 0
        && Instant::now() < until
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Makes this process the subreaper of the orphans of a killed node agent, until dropped.
struct Subreaper {
    before: Option<Pid>,
}

impl Subreaper {
    fn begin() -> io::Result<Self> {
        let before = child_subreaper()?;
        set_child_subreaper(Some(getpid()))?;
        Ok(Self { before })
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        // Setting it has worked before.
        set_child_subreaper(self.before).unwrap_or_default();
    }
}

/// Passes standard input to rank 0, or ends rank 0's input immediately.
fn start_stdin(
    job: &Job,
    links: &Links,
    channels: &HostChannels,
) -> io::Result<Option<StdinForwarder>> {
    // Ranks are placed in order, so rank 0 is on the first host.
    let Some(first) = links.0.first() else { return Ok(None) };
    if job.forward_input && stdin::may_read() {
        return stdin::start(first.orders.clone(), Arc::clone(&channels.input_taken)).map(Some);
    }
    first.orders.send(Down::InputEnd).ok();
    Ok(None)
}

async fn finish_output(printer: Printer, outcome: &Outcome, signals: &mut Signals) {
    drop(printer.pieces);
    let limit = match outcome.result {
        JobResult::Interrupted(_) | JobResult::OutputClosed => LAST_OUTPUT,
        // A reader may be slow, like a pager.
        _ => Duration::MAX,
    };
    let printed = tokio::select! {
        printed = tokio::time::timeout(limit, printer.done) => printed,
        _ = signals.next() => return,
    };
    if let Ok(Ok(printed)) = printed
        && printed.unfinished_error_line
        && !outcome.to_string().is_empty()
    {
        // The outcome follows on the same stream, on its own line.
        io::stderr().write_all(b"\n").unwrap_or_default();
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// The signals that ask this process to stop, except those that it was started to ignore.
struct Signals(Vec<(i32, Signal)>);

impl Signals {
    fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let wanted = kinds.into_iter().map(|kind| (kind.as_raw_value(), kind));
        let heard = wanted.filter(|(number, _)| ignored & (1 << (number - 1)) == 0);
        let signals = heard.map(|(number, kind)| Ok((number, signal(kind)?)));
        Ok(Self(signals.collect::<io::Result<_>>()?))
    }

    async fn next(&mut self) -> i32 {
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

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ringfold_bootstrap::interface::{ChooseError, Family};
    use ringfold_types::Chain;

    use super::*;

    fn cause() -> io::Error {
        io::Error::other("the cause")
    }

    #[test]
    fn the_chain_of_an_error_names_each_cause_once() {
        let (host, command) = (String::from("h"), String::from("ssh"));
        let listen = || RendezvousError::Listen { address: host.clone(), source: cause() };
        let tried = String::from("the cause");
        let errors: [Box<dyn Error>; 6] = [
            Box::new(LaunchError::NodeAgent { host: host.clone(), command, source: cause() }),
            Box::new(LaunchError::System(cause())),
            Box::new(LaunchError::Rendezvous(listen())),
            Box::new(RendezvousError::Unresolved { host: host.clone(), source: cause() }),
            Box::new(RendezvousError::Route { host: host.clone(), source: cause() }),
            Box::new(RendezvousError::Interface(ChooseError::NoAddress {
                tried,
                family: Family::Any,
            })),
        ];
        for error in &errors {
            let text = Chain(&**error).to_string();
            assert_eq!(text.matches("the cause").count(), 1, "{text}");
            assert!(error.source().is_none() || !error.to_string().contains("the cause"), "{text}");
        }
    }
}
