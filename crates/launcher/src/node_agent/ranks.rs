//! The ranks of one host as processes: started through the trampoline, each in its own process
//! group.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::relay::{Reports, read_stream, write_input};
use crate::frame::encode;
use crate::message::{HostOrder, RankOrder, Refusal, Up};
use crate::sentinel::{self, AGENT};
use crate::stream::Stream;
use crate::trampoline::TRAMPOLINE;
use crate::{affinity, descriptors, process_tree};

/// The running ranks.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    running: HashMap<Pid, u32>,
    input: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// The rank in each slot that has had one.
    slots: Vec<u32>,
    /// The CPUs of each slot.
    cpus: Vec<Vec<u16>>,
    /// The ranks that have been restarted.
    restarted: BTreeSet<u32>,
}

impl Ranks {
    /// Starts every rank of `order`. If one cannot be started, returns it with the reason, and the
    /// caller kills the others.
    pub(super) async fn start(
        &mut self,
        order: &HostOrder,
        reports: &Reports,
    ) -> Result<(), (u32, Refusal)> {
        let first = order.ranks.first().copied().unwrap_or_default();
        check(order).map_err(|refusal| (first, refusal))?;
        // Each rank needs three pipes.
        descriptors::allow(3 * affinity::slots(order));
        let cpus = match affinity::assign(order) {
            Ok(cpus) => cpus,
            Err(error) if order.bind.is_none() => {
                warn(&format!("no rank is bound to cores (--bind-to): {error}"));
                vec![Vec::new(); affinity::slots(order)]
            }
            Err(error) => {
                let why = format!("cannot bind to cores: {error}; pass --bind-to none");
                return Err((first, Refusal::System(why)));
            }
        };
        self.cpus.clone_from(&cpus);
        self.slots.clone_from(&order.ranks);
        // Its lack matters only if three other processes are killed.
        sentinel::start(order).ok();
        for ((rank, local_rank), cpus) in order.ranks.iter().zip(0..).zip(cpus) {
            let own = RankOrder { cpus, ..rank_order(order, *rank) };
            let pid = self.start_one(order, local_rank, own, *rank, reports);
            let pid = pid.map_err(|error| (*rank, cannot_start(&error)))?;
            reports.event(Up::Started { rank: *rank, pid });
            // Starting many ranks takes long, and the launcher must get heartbeats meanwhile.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Starts a new process for a rank, in its slot or in a free one.
    pub(super) fn restart(&mut self, order: &HostOrder, rank: u32, reports: &Reports) {
        let known = self.slots.iter().position(|it| *it == rank);
        let at = known.unwrap_or(self.slots.len());
        if at == affinity::slots(order) {
            let refusal = Refusal::System("all slots of the host are taken".to_owned());
            return reports.event(Up::Refused { rank, refusal });
        }
        if known.is_none() {
            self.slots.push(rank);
        }
        self.restarted.insert(rank);
        let cpus = self.cpus.get(at).cloned().unwrap_or_default();
        let own = RankOrder { cpus, input: false, ..rank_order(order, rank) };
        let local_rank = u32::try_from(at).unwrap_or_default();
        match self.start_one(order, local_rank, own, rank, reports) {
            Ok(pid) => reports.event(Up::Started { rank, pid }),
            Err(error) => {
                reports.event(Up::Refused { rank, refusal: cannot_start(&error) });
            }
        }
    }

    /// Kills the process of a rank that cannot become its program. Returns whether it ran.
    pub(super) fn give_up(&mut self, rank: u32) -> bool {
        let pids = self.running.extract_if(|_, running| *running == rank);
        let ended = pids.map(|(pid, _)| kill_process_group(pid, Signal::KILL));
        ended.count() > 0
    }

    /// Whether the rank has been restarted.
    pub(super) fn is_restarted(&self, rank: u32) -> bool {
        self.restarted.contains(&rank)
    }

    fn start_one(
        &mut self,
        order: &HostOrder,
        local_rank: u32,
        own: RankOrder,
        rank: u32,
        reports: &Reports,
    ) -> io::Result<u32> {
        let mut command = command(order, rank, local_rank);
        if self.restarted.contains(&rank) {
            command.env("RINGFOLD_NEWCOMER", "1");
        }
        let mut child = command.spawn()?;
        let pid = child.id();
        if let Some(raw) = process_tree::pid_of(pid) {
            self.running.insert(raw, rank);
        }
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("no pipes"));
        };
        let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
        let jump = Zeroizing::new(encode(&own).map_err(io::Error::other)?);
        let (pieces, pieces_rx) = mpsc::unbounded_channel();
        if own.input {
            self.input = Some(pieces);
        }
        tokio::spawn(write_input(stdin, jump, pieces_rx, reports.clone()));
        tokio::spawn(read_stream(stdout, rank, Stream::Out, reports.clone()));
        tokio::spawn(read_stream(stderr, rank, Stream::Err, reports.clone()));
        Ok(pid)
    }

    /// The rank whose process was `pid`. It does not run any more.
    pub(super) fn ended(&mut self, pid: Pid) -> Option<u32> {
        self.running.remove(&pid)
    }

    /// Sends a signal to the process groups of the running ranks. Their leaders are not reaped yet,
    /// so no foreign process can have their numbers.
    pub(super) fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for pid in self.running.keys() {
            // A group may just have ended. A stopped group must resume to receive the signal.
            kill_process_group(*pid, signal).unwrap_or_default();
            kill_process_group(*pid, Signal::CONT).unwrap_or_default();
        }
    }

    /// Passes input to rank 0, if it runs here and its input is open.
    pub(super) fn input(&self, bytes: Vec<u8>) {
        if let Some(input) = &self.input {
            input.send(bytes).ok();
        }
    }

    /// Ends the input of rank 0.
    pub(super) fn end_input(&mut self) {
        self.input = None;
    }
}

fn command(order: &HostOrder, rank: u32, local_rank: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let pairs = order.env.iter().cloned();
    command
        .arg0(format!("ringrun-rank-{rank}"))
        .arg(TRAMPOLINE)
        .envs(pairs.map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value))))
        .env("RINGFOLD_JOB", &order.job)
        .env(AGENT, sentinel::agent_of(order))
        .env("RINGFOLD_RENDEZVOUS", &order.rendezvous)
        .env("RINGFOLD_RANK", rank.to_string())
        .env("RINGFOLD_SIZE", order.size.to_string())
        .env("RINGFOLD_LOCAL_RANK", local_rank.to_string())
        .env("RINGFOLD_LOCAL_SIZE", order.slots.to_string())
        .current_dir(OsString::from_vec(order.wdir.clone()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

/// Prints a warning about this host.
fn warn(text: &str) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // Without a standard error there is nobody to tell.
    Stream::Err.put(format!("ringrun: host {host}: {text}\n").as_bytes()).unwrap_or_default();
}

fn cannot_start(error: &io::Error) -> Refusal {
    let remedy = descriptors::remedy(error);
    Refusal::System(format!("cannot start a process{remedy}: {error}"))
}

fn rank_order(order: &HostOrder, rank: u32) -> RankOrder {
    RankOrder {
        node_agent: std::process::id(),
        secret: order.secret.clone(),
        cpus: Vec::new(),
        program: order.program.clone(),
        args: order.args.clone(),
        input: rank == 0,
    }
}

/// Refuses an order that no rank could follow, before any rank runs.
fn check(order: &HostOrder) -> Result<(), Refusal> {
    let wdir = PathBuf::from(OsString::from_vec(order.wdir.clone()));
    if wdir.is_dir() { Ok(()) } else { Err(Refusal::Directory(wdir.display().to_string())) }
}
