//! Runs a job: starts the node agents, supervises the ranks, and cleans up.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::CONTROL_BYTES_MAX;
use rustix::process::{Pid, child_subreaper, getpid, set_child_subreaper};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use zeroize::Zeroizing;

use crate::host::{self, HostChannels, Link};
use crate::hosts::Host;
use crate::job::Job;
use crate::message::{Down, HostOrder, SECRET_BYTES};
use crate::outcome::{JobResult, Outcome};
use crate::placement::{Placement, PlacementError, Share};
use crate::printer::{self, Printer};
use crate::rendezvous::{self, RendezvousError};
use crate::signals::{self, Signals};
use crate::stdin::{self, StdinForwarder};
use crate::stream::Stream;
use crate::supervisor::{Command, Event, Supervisor};
use crate::{affinity, descriptors, process_tree, this_host};

/// The time for node agents to exit after the job is over.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// The time for the rest of the output after an interrupt, if its reader is slow.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// The least time for the rest of the output, and for the last line, after the ranks have ended.
const LAST_WORDS: Duration = Duration::from_millis(400);

/// Why a job did not begin. A job that began has an [`Outcome`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The ranks do not fit the hosts.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Spare hosts without restarts.
    #[error(
        "--spare {host}: no process would ever start there: pass --restart N, with N of 1 or more"
    )]
    SpareWithoutRestart {
        /// The first spare host.
        host: String,
    },
    /// A spare host cannot be reached, or cannot run ranks.
    #[error(
        "--spare {host}: no rank can start there: {why}; correct the name or the host, or leave it \
         out"
    )]
    Spare {
        /// The spare host.
        host: String,
        /// The last sign of it.
        why: String,
    },
    /// There is no rendezvous.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The command that starts a node agent cannot be started.
    #[error("cannot start '{command}' for host {host}{}", descriptors::remedy(source))]
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
    /// There is no working directory for the ranks.
    #[error(
        "cannot find the current directory (it may be deleted: change to another directory, or \
         pass ringrun --wdir DIR)"
    )]
    Directory(#[source] io::Error),
    /// The operating system provides no randomness, signal, pipe, process or thread.
    #[error("cannot {what}{}", descriptors::remedy(source))]
    System {
        /// What the launcher cannot do.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Says what the launcher cannot do, in an error.
fn cannot<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> LaunchError {
    move |source| LaunchError::System { what, source: source.into() }
}

/// Runs a job until all its processes are gone.
///
/// Ranks write to this process's standard output and error. Every byte arrives unchanged. Lines of
/// different ranks do not mix, up to `limits::LINE_BYTES_MAX` bytes each. The lines of the outcome
/// follow on standard error, each after [`Job::name`].
///
/// SIGINT, SIGTERM and SIGHUP stop the job, unless this process ignored them before. Their handlers
/// stay installed, and the calling thread blocks no signal any more. So callers should call this
/// shortly before the process ends. While it runs, this process is a subreaper.
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
    signals::unblock().map_err(cannot("unblock signals"))?;
    descriptors::check().map_err(cannot("open files"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(cannot("wait for events"))?;
    let outcome = runtime.block_on(launch(job));
    // A thread that is blocked in a read must not delay the end.
    runtime.shutdown_background();
    outcome
}

async fn launch(job: &Job) -> Result<Outcome, LaunchError> {
    let placed = place(job)?;
    let Placed { placement, here } = &placed;
    // Three files for each host while its agent is started, and two connections for each rank.
    descriptors::allow(3 * placement.hosts.len() + 2 * placement.size);
    let remote = placement.hosts.iter().map(|share| &*share.host).find(|host| host != here);
    let (given, interfaces) = (job.rendezvous.as_deref(), job.interfaces.as_deref());
    let port = rendezvous::open(remote, given, interfaces).await?;
    let order = JobOrder::new(job, placement, &port.address)?;
    let serving = port.serve(&order.secret, order.job.clone(), placement.size);
    let caught = signals::catch_child().and_then(|()| Signals::listen());
    let mut signals = caught.map_err(cannot("catch signals"))?;
    let _subreaper = Subreaper::begin().map_err(cannot("become a subreaper"))?;

    let (events, mut events_rx) = mpsc::unbounded_channel();
    let (hurry, hurry_rx) = watch::channel(false);
    let printer = printer::start(job.tag_output, events.clone());
    let printer = printer.map_err(cannot("start a thread"))?;
    let channels = HostChannels {
        events,
        pieces: printer.pieces.clone(),
        input_taken: Arc::new(Notify::new()),
        hurry: hurry_rx,
    };
    let mut links = Links::default();
    let mut supervisor = Supervisor::new(placement, job.grace, job.time_limit, Instant::now());
    supervisor.allow_restarts(job.restarts);
    let watch = (&mut events_rx, &mut signals, &mut supervisor);
    let begun = links.begin(job, &placed, (&order, &channels), watch).await;
    let (stdin_forwarder, mut interrupted) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            drop(channels);
            links.shut_down(&printer, None, &mut signals).await;
            return Err(error);
        }
    };
    drop(channels);

    let mut node_agent_lost = false;
    while !supervisor.is_over() {
        let deadline = supervisor.deadline();
        let command = tokio::select! {
            Some(event) = events_rx.recv() => {
                node_agent_lost |= matches!(event, Event::HostLost { .. });
                supervisor.on_event(event, Instant::now())
            }
            signal = signals.next() => {
                let now = Instant::now();
                interrupted.get_or_insert(now);
                hurry.send_replace(true);
                supervisor.on_event(Event::Interrupted(signal), now)
            }
            () = sleep_until(deadline) => supervisor.on_time(Instant::now()),
        };
        supervisor.take_ended().into_iter().for_each(|(rank, how)| serving.end(rank, how));
        let notes = supervisor.take_notes();
        notes.iter().for_each(|note| printer.say(&format!("{}: {note}", job.name)));
        command.into_iter().for_each(|command| links.tell(command));
    }
    drop(stdin_forwarder);
    let mut outcome = supervisor.outcome();
    let mut rest = Rest::after(interrupted);
    if let Some(signal) = links.shut_down(&printer, rest.until, &mut signals).await {
        rest.interrupt(&mut outcome, signal);
    }
    if node_agent_lost {
        kill_orphans(&order.job).await;
    }
    outcome.report = serving.report();
    finish_output(printer, &job.name, &mut outcome, rest, &mut signals).await;
    Ok(outcome)
}

/// The sources of events, and the supervisor that handles them.
type Watch<'a> = (&'a mut mpsc::UnboundedReceiver<Event>, &'a mut Signals, &'a mut Supervisor);

/// Waits until all spare hosts take ranks. Calls the job off after an event that ends it, and
/// returns the time of an interrupt.
///
/// # Errors
/// One of them does not take ranks.
async fn spares_are_ready(
    placement: &Placement,
    (events, signals, supervisor): Watch<'_>,
) -> Result<Option<Instant>, LaunchError> {
    let hosts = placement.hosts.iter().enumerate();
    let spares = hosts.filter(|(_, share)| share.ranks.is_empty());
    let mut missing: BTreeSet<_> = spares.map(|(at, _)| at).collect();
    let mut interrupted = None;
    while !missing.is_empty() && !supervisor.is_over() {
        let event = tokio::select! {
            Some(event) = events.recv() => Some(event),
            signal = signals.next() => Some(Event::Interrupted(signal)),
            () = sleep_until(supervisor.deadline()) => None,
        };
        match event {
            Some(Event::Ready { host }) => drop(missing.remove(&host)),
            Some(Event::HostLost { host, why }) => {
                let host = placement.hosts.get(host).map(|share| share.host.clone());
                return Err(LaunchError::Spare { host: host.unwrap_or_default(), why });
            }
            event => {
                let now = Instant::now();
                interrupted = matches!(event, Some(Event::Interrupted(_))).then_some(now);
                supervisor.call_off(event, now);
            }
        }
    }
    Ok(interrupted)
}

struct Placed {
    placement: Placement,
    /// The name of this host in the placement.
    here: String,
}

/// Places the ranks.
fn place(job: &Job) -> Result<Placed, LaunchError> {
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if let Some(spare) = job.spares.first()
        && job.restarts.is_none_or(|times| times == 0)
    {
        return Err(LaunchError::SpareWithoutRestart { host: spare.name.clone() });
    }
    let (hosts, spares) = (distinct(&job.hosts, &here)?, distinct(&job.spares, &here)?);
    let (hosts, oversubscribe) = if hosts.is_empty() {
        (vec![Host { name: here.clone(), slots: affinity::allowed_cores() }], true)
    } else {
        (hosts, job.oversubscribe)
    };
    let placement = Placement::place(job.ranks, &hosts, oversubscribe)?;
    Ok(Placed { placement: placement.with_spares(spares, &hosts)?, here })
}

/// The hosts, without those that are named twice. All names of this host become one, so that it has
/// one node agent.
fn distinct(named: &[Host], here: &str) -> Result<Vec<Host>, LaunchError> {
    let names = named.iter().map(|host| host.name.clone()).collect();
    let local = this_host::are_here(names);
    let local = local.map_err(cannot("list the addresses of this host"))?;
    let mut hosts = Vec::<Host>::new();
    for (host, local) in named.iter().zip(local) {
        let name = if local { here } else { &host.name };
        match hosts.iter_mut().find(|known| known.name == name) {
            Some(known) => known.slots += host.slots,
            None => hosts.push(Host { name: name.to_owned(), slots: host.slots }),
        }
    }
    Ok(hosts)
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
        let filled = getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut *secret));
        filled.map_err(io::Error::other).map_err(cannot("make a secret"))?;
        let wdir = match &job.wdir {
            Some(wdir) => wdir.clone(),
            None => std::env::current_dir().map_err(LaunchError::Directory)?,
        };
        let order = Self {
            job: format!("{:016x}", u64::from_le_bytes(id)),
            secret,
            rendezvous: rendezvous.to_owned(),
            size: Rank::at(placement.size).0,
            wdir: wdir.into_os_string().into_vec(),
        };
        let hosts = placement.hosts.iter().enumerate();
        let longest = hosts.max_by_key(|(_, share)| share.ranks.len());
        let fits = longest.is_none_or(|host| {
            crate::frame::encode(&Down::Start(Box::new(order.for_host(job, host)))).is_ok()
        });
        if fits { Ok(order) } else { Err(LaunchError::TooLong) }
    }

    fn for_host(&self, job: &Job, (at, share): (usize, &Share)) -> HostOrder {
        let bytes = |text: &std::ffi::OsString| text.as_bytes().to_vec();
        HostOrder {
            job: self.job.clone(),
            secret: self.secret.clone(),
            rendezvous: self.rendezvous.clone(),
            size: self.size,
            agent: Rank::at(at).0,
            slots: Rank::at(share.slots()).0,
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

/// The links to all hosts, by their positions in the placement.
#[derive(Default)]
struct Links(BTreeMap<usize, Link>);

impl Links {
    /// Starts the ranks, once the spare hosts can take some. Returns the forwarder of standard
    /// input, and the time of an interrupt that has called the job off.
    async fn begin(
        &mut self,
        job: &Job,
        Placed { placement, here }: &Placed,
        (order, channels): (&JobOrder, &HostChannels),
        (events, signals, supervisor): Watch<'_>,
    ) -> Result<(Option<StdinForwarder>, Option<Instant>), LaunchError> {
        let hosts = placement.hosts.iter().enumerate();
        let (spares, used) = hosts.partition(|(_, share)| share.ranks.is_empty());
        self.start(job, spares, here, (order, channels))?;
        let watch = (events, signals, &mut *supervisor);
        let interrupted = spares_are_ready(placement, watch).await?;
        if supervisor.is_over() {
            return Ok((None, interrupted));
        }
        self.start(job, used, here, (order, channels))?;
        Ok((start_stdin(job, self, channels)?, interrupted))
    }

    fn start(
        &mut self,
        job: &Job,
        hosts: Vec<(usize, &Share)>,
        here: &str,
        (order, channels): (&JobOrder, &HostChannels),
    ) -> Result<(), LaunchError> {
        for (at, share) in hosts {
            let words = host::node_agent_command(job, &share.host, share.host == here);
            let words = words.map_err(cannot("find the path of this program"))?;
            // A pipe on this host shows by itself that its other end is gone.
            let silence = (share.host != here).then_some(job.host_timeout);
            let order = HostOrder { silence, ..order.for_host(job, (at, share)) };
            let link = host::start(&words, at, order, channels.clone());
            let link = link.map_err(|source| LaunchError::NodeAgent {
                host: share.host.clone(),
                command: words.first().map(|it| it.display().to_string()).unwrap_or_default(),
                source,
            })?;
            self.0.insert(at, link);
        }
        Ok(())
    }

    fn tell(&self, command: Command) {
        for (at, link) in &self.0 {
            let order = match command {
                Command::Signal(signal) => Down::Signal(signal),
                Command::Kill => Down::Kill,
                Command::Restart { rank, host } if host == *at => Down::Restart(rank.0),
                Command::Restart { .. } => continue,
            };
            // A host that is gone has already been reported as lost.
            link.orders.send(order).ok();
        }
    }

    /// Tells all hosts that the job is over, and waits for the node agents to kill leftover
    /// processes and pass on all output. Waits as long as output flows and no signal interrupts,
    /// but not beyond `until`. Then closes the connections and waits until the agents have ended.
    /// Returns the signal, if there was one.
    async fn shut_down(
        self,
        printer: &Printer,
        until: Option<Instant>,
        signals: &mut Signals,
    ) -> Option<i32> {
        let (hang_ups, mut tasks): (Vec<_>, Vec<_>) =
            self.0.into_values().map(|link| (link.hang_up, link.task)).unzip();
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
        let heard = tokio::select! {
            () = &mut all_ended => return None,
            () = stuck => None,
            () = sleep_until(until) => None,
            signal = signals.next() => Some(signal),
        };
        hang_ups.iter().for_each(|hang_up| hang_up.notify_one());
        // After another interrupt, the guardians finish the work.
        tokio::select! {
            () = all_ended => heard,
            signal = signals.next() => heard.or(Some(signal)),
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
) -> Result<Option<StdinForwarder>, LaunchError> {
    // Ranks are placed in order, so rank 0 is on the first host.
    let Some((_, first)) = links.0.first_key_value() else { return Ok(None) };
    if job.forward_input && stdin::may_read() {
        let taken = Arc::clone(&channels.input_taken);
        let forwarder = stdin::start(first.orders.clone(), taken);
        return forwarder.map(Some).map_err(cannot("forward standard input"));
    }
    first.orders.send(Down::InputEnd).ok();
    Ok(None)
}

/// The rest of the output after the ranks have ended.
#[derive(Clone, Copy)]
struct Rest {
    /// The end of the wait for a slow reader. `None` waits for ever: the reader may be a pager.
    until: Option<Instant>,
}

impl Rest {
    /// The rest of a job that a signal has stopped at this time, if one has.
    fn after(interrupted: Option<Instant>) -> Self {
        let until = interrupted.map(|at| (at + LAST_OUTPUT).max(Instant::now() + LAST_WORDS));
        Self { until }
    }

    /// A signal ends the wait. A job that has lost output is no success.
    fn interrupt(&mut self, outcome: &mut Outcome, signal: i32) {
        self.until = Some(Instant::now() + LAST_WORDS);
        if outcome.result == JobResult::Success {
            outcome.result = JobResult::Interrupted(signal);
        }
    }
}

/// Waits for the rest of the output. Then prints the lines of the outcome, each after `name`.
async fn finish_output(
    printer: Printer,
    name: &str,
    outcome: &mut Outcome,
    mut rest: Rest,
    signals: &mut Signals,
) {
    drop(printer.pieces);
    let printed = tokio::select! {
        printed = printer.done => printed.ok(),
        () = sleep_until(rest.until) => None,
        signal = signals.next() => {
            rest.interrupt(outcome, signal);
            None
        }
    };
    let lost = printed.as_ref().and_then(|printed| printed.lost).map(JobResult::of_output);
    let mut lines = Vec::new();
    match lost {
        Some(lost) if outcome.result == JobResult::Success => outcome.result = lost,
        Some(JobResult::OutputFailed(why)) if !outcome.is_about_output() => lines.push(why),
        _ => {}
    }
    let text = outcome.to_string();
    lines.extend(text.lines().map(str::to_owned));
    let mut last = lines.iter().map(|line| format!("{name}: {line}\n")).collect::<String>();
    if last.is_empty() {
        return;
    }
    if printed.is_some_and(|printed| printed.unfinished_error_line) {
        last.insert(0, '\n');
    }
    let until = rest.until.map(|until| until.max(Instant::now() + LAST_WORDS));
    let (finished, done) = oneshot::channel();
    // Without a standard error there is nobody to tell.
    let write = |text: &str| Stream::Err.put(text.as_bytes()).unwrap_or_default();
    let text = last.clone();
    let thread = std::thread::Builder::new().name("ringrun-print".into());
    let started = thread.spawn(move || {
        write(&text);
        finished.send(()).ok();
    });
    if started.is_err() {
        write(&last);
    } else {
        // The reader may be slow, and a signal ends the wait for it.
        tokio::select! {
            _ = done => {}
            () = sleep_until(until) => {}
            _ = signals.next() => {}
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
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
        let errors: [Box<dyn Error>; 7] = [
            Box::new(LaunchError::NodeAgent { host: host.clone(), command, source: cause() }),
            Box::new(LaunchError::System { what: "wait", source: cause() }),
            Box::new(LaunchError::Directory(cause())),
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
